"""Each rule gives for a batch what the op gives for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec import ops
from aexec.graph.op_functions import snake_case
from aexec.graph.row_functions.row_rules import ROW_RULES
from tests.graph.row_functions.row_calls import Columns, both

F32, I32, I64 = np.float32, np.int32, np.int64


def _floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    return np.random.default_rng(len(shape)).uniform(low, high, (5, *shape)).astype(F32)


def _ints(*shape: int, high: int = 3) -> Any:
    return np.random.default_rng(len(shape)).integers(0, high, (5, *shape), I32)


def _texts(*texts: bytes) -> Any:
    return np.array(texts, object)


def _op(op: str, *arguments: Any, **attrs: Any) -> Callable[..., Any]:
    """A function that applies an op to its arguments, and then some of its own."""
    return lambda *rows: getattr(ops, snake_case(op))(*rows, *arguments, **attrs)


# op, function of rows, columns
Case = tuple[str, Callable[..., Any], Columns]

_UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor Identity Inv IsFinite IsInf
    IsNan LeakyRelu Lgamma Log Log1p Neg OnesLike PreventGradient Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid
    Sign Sin Sinh Softplus Softsign Sqrt Square StopGradient Tan Tanh ZerosLike AsString""".split()
_BINARY = """Add AddV2 Atan2 Div DivNoNan Equal Greater GreaterEqual Less LessEqual Maximum Minimum Mul MulNoNan
    NotEqual Pow RealDiv SquaredDifference Sub Xdivy Xlogy""".split()
_BINARY_INTS = """BitwiseAnd BitwiseOr BitwiseXor FloorDiv FloorMod LeftShift Mod RightShift TruncateDiv
    TruncateMod""".split()

_IMAGES = _floats(4, 5, 3, low=0, high=1)
_RECORD = b"\x0a\x0f\x0a\x0d\x0a\x01\x61\x12\x08\x12\x06\x0a\x04\x00\x00\x80\x3f"  # an Example with a = [1.0]
_NONE = np.array([], object)


def _with_size(op: str) -> Callable[..., Any]:
    return lambda x: ops.squeeze(_op(op, np.array([7, 6], I32))(ops.expand_dims(x, 0)), squeeze_dims=[0])


def _cases() -> list[Case]:
    words = _texts(b"Ab", b"cD", b" e ", b"", b"fgh")
    cases: list[Case] = [
        (op, _op(op), (_floats(2, 3, low=1.1 if op == "Acosh" else 0.1, high=1.5 if op == "Acosh" else 0.9),))
        for op in _UNARY
    ]
    cases += [(op, _op(op), (_floats(2, 3), _floats(2, 3))) for op in _BINARY]
    cases += [(op, _op(op, np.array([[1.0], [2.0]], F32)), (_floats(),)) for op in _BINARY]
    cases += [(op, _op(op), (_floats(2, 3), _floats(3))) for op in _BINARY]
    cases += [(op, _op(op), (_ints(2, 3), 1 + _ints(3))) for op in _BINARY_INTS]
    cases += [(op, _op(op), (_ints(2) > 1, _ints(2) > 0)) for op in ("LogicalAnd", "LogicalOr")]
    cases += [(op, _op(op), (words,)) for op in ("EncodeBase64", "StringLength", "StringLower", "StringStrip")]
    cases += [(op, _op(op, num_buckets=7), (words,)) for op in ("StringToHashBucket", "StringToHashBucketFast")]
    cases += [
        ("Cast", lambda x: ops.cast(x, DstT="int32"), (_floats(2),)),
        ("Invert", _op("Invert"), (_ints(2),)),
        ("LogicalNot", _op("LogicalNot"), (_ints(2) > 1,)),
        ("DecodeBase64", _op("DecodeBase64"), (_texts(b"YQ", b"Yg", b"Yw", b"", b"YWE"),)),
        ("StringUpper", _op("StringUpper"), (words,)),
        ("StringToHashBucketStrong", _op("StringToHashBucketStrong", num_buckets=7, key=[1, 2]), (words,)),
        ("StringToNumber", _op("StringToNumber"), (_texts(b"1", b"2", b"3.5", b"-4", b"0"),)),
        ("StaticRegexFullMatch", _op("StaticRegexFullMatch", pattern="A.*"), (words,)),
        ("StaticRegexReplace", _op("StaticRegexReplace", pattern="[aA]", rewrite="x"), (words,)),
        ("RegexFullMatch", _op("RegexFullMatch", b"A.*"), (words,)),
        ("RegexReplace", _op("RegexReplace", b"[aA]", b"x"), (words,)),
        ("SelectV2", _op("SelectV2", F32(1), F32(0)), (_ints(2) > 1,)),
        ("Select", _op("Select"), (_ints(2) > 1, _floats(2), _floats(2))),
        ("AddN", lambda x, y: ops.add_n([x, y]), (_floats(2), _floats(2))),
        ("ClipByValue", _op("ClipByValue", F32(-1), F32(1)), (_floats(2, 3),)),
        ("StringJoin", lambda x: ops.string_join([x, b"-", x]), (words,)),
        ("Substr", _op("Substr", np.int32(0), np.int32(1)), (_texts(b"ab", b"cd", b"e", b"f", b"gh"),)),
        ("DecodeRaw", _op("DecodeRaw", out_type="uint8"), (_texts(b"ab", b"cd", b"ef", b"gh", b"ij"),)),
        (
            "DecodeCSV",
            lambda x: ops.decode_csv(x, [np.array([], F32), np.array([7], I32)]),
            (_texts(b"1,2", b"3,", b"4.5,6", b"7,8", b"9,1"),),
        ),
        (
            "ParseExampleV2",
            lambda x: ops.parse_example_v2(
                x,
                _NONE,
                _NONE,
                np.array([b"a"], object),
                _NONE,
                [np.zeros(1, F32)],
                num_sparse=0,
                sparse_types=[],
                ragged_value_types=[],
                ragged_split_types=[],
                dense_shapes=[[1]],
            ).dense_values[0],
            (_texts(*[_RECORD] * 5),),
        ),
        (
            "ParseSingleExample",
            lambda x: ops.parse_single_example(
                x,
                [np.zeros(1, F32)],
                num_sparse=0,
                sparse_keys=[],
                dense_keys=["a"],
                sparse_types=[],
                dense_shapes=[[1]],
            ).dense_values[0],
            (_texts(*[_RECORD] * 4, b""),),
        ),
        *[(op, _with_size(op), (_IMAGES,)) for op in ROW_RULES if op.startswith("Resize")],
        *[(op, _op(op, F32(0.4)), (_IMAGES,)) for op in ("AdjustContrastv2", "AdjustHue", "AdjustSaturation")],
        ("RGBToHSV", _op("RGBToHSV"), (_IMAGES,)),
        ("HSVToRGB", _op("HSVToRGB"), (_IMAGES,)),
        ("Reshape", _op("Reshape", np.array([3, 2], I32)), (_floats(6),)),
        ("Reshape", _op("Reshape", np.array([-1, 2], I64)), (_floats(2, 3),)),
        ("Reshape", _op("Reshape", np.array([], I32)), (_floats(1),)),
        ("BroadcastTo", _op("BroadcastTo", np.array([4, 2, 3], I32)), (_floats(3),)),
        ("EnsureShape", _op("EnsureShape", shape=[None, 3]), (_floats(2, 3),)),
        *[("ExpandDims", _op("ExpandDims", I32(axis)), (_floats(2, 3),)) for axis in (-3, -1, 0, 2)],
        ("Squeeze", _op("Squeeze"), (_floats(1, 3, 1),)),
        ("Squeeze", _op("Squeeze"), (_floats(2, 3),)),
        ("Squeeze", _op("Squeeze", squeeze_dims=[-1]), (_floats(1, 3, 1),)),
        ("Transpose", _op("Transpose", np.array([2, 0, 1], I32)), (_floats(2, 3, 4),)),
        ("Pad", _op("Pad", np.array([[1, 0], [0, 2]], I32)), (_floats(2, 3),)),
        ("PadV2", _op("PadV2", np.array([[1, 0], [0, 2]], I32), F32(7)), (_floats(2, 3),)),
        ("MirrorPad", _op("MirrorPad", np.array([[1, 0], [0, 2]], I32), mode="REFLECT"), (_floats(2, 3),)),
        ("Tile", _op("Tile", np.array([2, 3], I32)), (_floats(2, 3),)),
        ("Slice", _op("Slice", np.array([0, 1], I32), np.array([-1, 2], I32)), (_floats(2, 3),)),
        *[("StridedSlice", chosen, (_floats(4, 5, 2),)) for chosen in _CHOSEN],
        *[(op, _op(op, np.array([0, -1], I32)), (_floats(2, 3, 4),)) for op in ("Max", "Mean", "Min", "Prod", "Sum")],
        ("Sum", _op("Sum", I32(0), keep_dims=True), (_floats(2, 3),)),
        *[(op, _op(op, I32(0)), (_ints(2, 3) > 0,)) for op in ("All", "Any")],
        *[(op, _op(op, I32(axis)), (_floats(3, 4),)) for op in ("ArgMax", "ArgMin", "Cumsum") for axis in (0, -1)],
        ("Cumprod", _op("Cumprod", I32(1), reverse=True), (_floats(3, 4),)),
        ("ReverseV2", _op("ReverseV2", np.array([0], I32)), (_floats(3, 4),)),
        *[(op, _op(op), (_floats(2, 3),)) for op in ("LogSoftmax", "Softmax")],
        *[("Pack", lambda x, y, axis=axis: ops.pack([x, y], axis=axis), (_floats(2), _floats(2))) for axis in (0, -1)],
        *[("Unpack", _op("Unpack", num=3, axis=axis), (_floats(3, 3),)) for axis in (0, -1)],
        ("ConcatV2", lambda x, y: ops.concat_v2([x, y], I32(0)), (_floats(2, 3), _floats(1, 3))),
        ("ConcatV2", lambda x, y: ops.concat_v2([x, y], I32(-1)), (_floats(2, 1), _floats(2, 3))),
        ("Split", lambda x: ops.split(I32(1), x, num_split=2), (_floats(2, 4),)),
        ("SplitV", lambda x: ops.split_v(x, np.array([1, 3], I32), I32(-1), num_split=2), (_floats(2, 4),)),
        *[("OneHot", _op("OneHot", I32(3), F32(1), F32(0), axis=axis), (_ints(2),)) for axis in (-1, 0, 1)],
        ("GatherV2", lambda x: ops.gather_v2(np.arange(12.0).reshape(3, 4), x, I32(0)), (_ints(2),)),
        ("GatherV2", _op("GatherV2", np.array([[2, 0]], I32), I32(-1)), (_floats(2, 3),)),
        ("GatherV2", _op("GatherV2", I32(0)), (_floats(3, 2), _ints(2))),
        ("Gather", lambda x: ops.gather(np.arange(12.0).reshape(3, 4), x), (_ints(2),)),
    ]
    return cases


_CHOSEN = [
    lambda x: x[1],
    lambda x: x[..., ::-1, 0],
    lambda x: x[:2, 1:4],
    lambda x: x[:, None, -1],
]


@pytest.mark.parametrize(("op", "function", "columns"), _cases())
async def test_rule_gives_for_a_batch_what_the_op_gives_for_each_row(
    op: str, function: Callable[..., Any], columns: Columns
) -> None:
    rows, batch = await both(function, columns)
    assert batch is not None, op
    for got, expected in zip(batch, rows, strict=True):
        assert got.dtype == expected.dtype
        if expected.dtype == F32:
            np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, expected)


def test_every_rule_has_a_case() -> None:
    assert {op for op, *_ in _cases()} == set(ROW_RULES)


REFUSED: dict[str, tuple[Callable[..., Any], Columns]] = {
    "sizes that are computed": (lambda x: ops.reshape(x, ops.cast(ops.reshape(x, [1]), DstT="int32")), (_floats(),)),
    "result that is the same for all": (lambda x: ops.identity(np.float32(7)), (_floats(2),)),
    "table with an axis in front": (lambda x: ops.gather_v2(np.eye(3), x, I32(1)), (_ints(2),)),
    "state": (lambda x: x + ops.random_uniform(np.array([2], I32), dtype="float32"), (_floats(2),)),
    "op without a rule": (_op("MatrixInverse"), (_floats(2, 2),)),
    "images in a batch of unknown size": (_op("ResizeBilinear", np.array([2, 2], I32)), (_floats(2, 3, 3, 1),)),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_function_without_a_form_for_batches_has_none(case: str) -> None:
    assert (await both(*REFUSED[case], run=False))[1] is None


# ---- Functions drawn at random

Step = Callable[[Any], Any]


def _axes(rank: int) -> st.SearchStrategy[int]:
    return st.integers(-rank, rank - 1)


@st.composite
def _steps(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Step]]:
    """A shape of rows, and steps that each take the result of the last one."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=3)))
    begun, steps = shape, []
    for _ in range(draw(st.integers(1, 6))):
        step, shape = draw(_step(shape))
        steps.append(step)
    return begun, steps


@st.composite
def _step(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Step, tuple[int, ...]]:
    rank = len(shape)
    kinds = ["unary", "constant", "expand", "flatten"] + ["transpose", "sum", "reverse", "slice", "stack"] * (rank > 0)
    match draw(st.sampled_from(kinds)):
        case "unary":
            return _op(draw(st.sampled_from(["Abs", "Neg", "Square", "Tanh", "Sigmoid", "Relu"]))), shape
        case "constant":
            other = tuple(draw(st.sampled_from([1, size])) for size in shape[draw(st.integers(0, rank)) :])
            more = tuple(draw(st.lists(st.integers(1, 2), max_size=1))) if len(other) == rank else ()
            value = np.arange(1, 1 + int(np.prod(more + other)), dtype=F32).reshape(more + other)
            return (lambda x: x * value), np.broadcast_shapes(shape, value.shape)
        case "expand":
            axis = draw(_axes(rank + 1))
            return _op("ExpandDims", I32(axis)), np.expand_dims(np.empty(shape), axis).shape
        case "flatten":
            return _op("Reshape", np.array([-1], I32)), (int(np.prod(shape)),)
        case "transpose":
            order = draw(st.permutations(range(rank)))
            return _op("Transpose", np.array(order, I32)), tuple(shape[i] for i in order)
        case "sum":
            axis, keep = draw(_axes(rank)), draw(st.booleans())
            summed = np.empty(shape).sum(axis, keepdims=keep).shape
            return _op("Sum", I32(axis), keep_dims=keep), summed
        case "reverse":
            return _op("ReverseV2", np.array([draw(_axes(rank))], I32)), shape
        case "slice":
            return (lambda x: x[..., :1]), (*shape[:-1], 1)
        case _:
            axis = draw(_axes(rank + 1))
            return (lambda x: ops.pack([x, x + x], axis=axis)), np.stack([np.empty(shape)] * 2, axis).shape


@given(_steps())
@settings(max_examples=40, deadline=None)
async def test_functions_drawn_at_random_give_for_a_batch_what_they_give_for_rows(
    drawn: tuple[tuple[int, ...], list[Step]],
) -> None:
    shape, steps = drawn

    def function(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    (rows,), (batch,) = await _batched(function, _floats(*shape))
    np.testing.assert_allclose(batch, rows, rtol=1e-5, atol=1e-5)


async def _batched(function: Callable[..., Any], column: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    rows, batch = await both(function, (column,))
    assert batch is not None
    return rows, batch
