"""Every elementwise kernel against NumPy and SciPy, over its types and over shapes with zeros, ones and broadcasts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sc
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from tests.kernels.harness import ops_of, run_op
from tests.support.sweep import (
    SEEDS,
    SHAPES,
    Check,
    Draw,
    assert_close,
    broadcasting,
    random_values,
    rounded,
    sweeps,
    types_of,
    wide,
)

Oracle = Callable[..., Any]


def _types(op: str, kinds: str) -> list[Any]:
    return types_of(op, "T", kinds) or [np.dtype(bool)]


def elementwise(
    oracle: Oracle,
    *bounds: tuple[float, float],
    inputs: int = 1,
    kinds: str = "biufc",
    out: Any = None,
    corners: bool = True,
    tolerance: float | None = None,
    shapes: Any = None,
    **attrs: Any,
) -> Check:
    """A check of an op of which every output element is `oracle` of the input elements at its place.

    Args:
        bounds: lowest and highest value of the inputs, the last for all further ones.
        kinds: the kinds of types that the oracle is right for.
        out: type of the output, if it is not the inputs'.
        corners: NaN, infinities and the limits of integer types occur.
        shapes: strategy for the shapes of the inputs; by default they broadcast.
    """

    def check(op: str, draw: Draw) -> None:
        dtype = draw(st.sampled_from(_types(op, kinds)))
        drawn = draw(broadcasting(inputs) if shapes is None else shapes)
        seed = draw(SEEDS)
        ranges = [*bounds, *[bounds[-1] if bounds else (-4, 4)] * inputs]
        arrays = [random_values(seed + i, shape, dtype, *ranges[i], corners=corners) for i, shape in enumerate(drawn)]
        got = run_op(op, arrays, **attrs)
        with np.errstate(all="ignore"):
            want = oracle(*np.broadcast_arrays(*[wide(a) for a in arrays])) if inputs > 1 else oracle(wide(arrays[0]))
        assert_close(got, rounded(want, dtype if out is None else out), tolerance)

    return check


def same_shape(count: int) -> Any:
    return SHAPES.map(lambda shape: [shape] * count)


def each(function: Callable[..., Any]) -> Oracle:
    """An oracle of single elements."""
    return lambda *arrays: np.frompyfunc(function, len(arrays), 1)(*arrays)


FLOAT = "f"
NUMBERS = "iufc"
unary = elementwise


def binary(oracle: Oracle, *bounds: tuple[float, float], **options: Any) -> Check:
    return elementwise(oracle, *bounds, inputs=2, **options)


def gradient(oracle: Oracle, *bounds: tuple[float, float], **options: Any) -> Check:
    return elementwise(oracle, *bounds, inputs=2, shapes=same_shape(2), **{"kinds": FLOAT, "corners": False, **options})


def _by_kind(integers: Oracle, floats: Oracle) -> Oracle:
    return lambda *arrays: (integers if arrays[0].dtype == object else floats)(*arrays)


def _truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _sign(z: Any) -> Any:
    if z.dtype == object:
        return each(lambda v: (v > 0) - (v < 0))(z)
    return np.where(z == 0, 0, z / np.abs(z)) if z.dtype.kind == "c" else np.sign(z)


UNARY = {
    "Abs": unary(np.abs),
    "Acos": unary(np.arccos, (-1, 1)),
    "Acosh": unary(np.arccosh, (1, 4)),
    "Asin": unary(np.arcsin, (-1, 1)),
    "Asinh": unary(np.arcsinh),
    "Atan": unary(np.arctan, corners=False),
    "Atanh": unary(np.arctanh, (-0.75, 0.75)),
    "Ceil": unary(np.ceil),
    "Conj": unary(np.conj, kinds="c"),
    "Cos": unary(np.cos),
    "Cosh": unary(np.cosh),
    "Exp": unary(np.exp),
    "Expm1": unary(np.expm1),
    "Floor": unary(np.floor),
    "Inv": unary(lambda x: 1 / x, (0.25, 4), kinds="fc"),
    "IsFinite": unary(np.isfinite, kinds=FLOAT, out=bool),
    "IsInf": unary(np.isinf, kinds=FLOAT, out=bool),
    "IsNan": unary(np.isnan, kinds=FLOAT, out=bool),
    "Log": unary(np.log, (0.25, 4)),
    "Log1p": unary(np.log1p, (-0.75, 4)),
    "LogicalNot": unary(np.logical_not),
    "Neg": unary(lambda x: -x),
    "Reciprocal": unary(lambda x: 1 / x, (0.25, 4), kinds="fc"),
    "Rint": unary(np.rint),
    "Round": unary(np.rint, kinds=FLOAT),
    "Rsqrt": unary(lambda x: 1 / np.sqrt(x), (0.25, 4)),
    "Sigmoid": unary(lambda x: 1 / (1 + np.exp(-x))),
    "Sign": unary(_sign),
    "Sin": unary(np.sin),
    "Sinh": unary(np.sinh),
    "Sqrt": unary(np.sqrt),
    "Square": unary(lambda x: x * x),
    "Tan": unary(np.tan, (-1, 1)),
    "Tanh": unary(np.tanh),
}

GRADIENTS = {
    "InvGrad": gradient(lambda y, dy: -dy * y * y),
    "ReciprocalGrad": gradient(lambda y, dy: -dy * y * y),
    "RsqrtGrad": gradient(lambda y, dy: dy * -0.5 * y**3),
    "SigmoidGrad": gradient(lambda y, dy: dy * y * (1 - y)),
    "SqrtGrad": gradient(lambda y, dy: dy * 0.5 / y, (0.25, 4)),
    "TanhGrad": gradient(lambda y, dy: dy * (1 - y * y)),
}

BINARY = {
    "Add": binary(lambda x, y: x + y, kinds=NUMBERS),
    "AddV2": binary(lambda x, y: x + y, kinds=NUMBERS),
    "Atan2": binary(np.arctan2),
    "Div": binary(_by_kind(each(_truncated_quotient), lambda x, y: x / y), (-4, 4), (1, 4), kinds=NUMBERS,
                  corners=False),
    "DivNoNan": binary(lambda x, y: np.where(y == 0, 0, x / y), kinds="fc"),
    "Equal": binary(lambda x, y: x == y, out=bool),
    "FloorDiv": binary(_by_kind(lambda x, y: x // y, lambda x, y: np.floor(x / y)), (-4, 4), (1, 4), corners=False),
    "FloorMod": binary(lambda x, y: x % y, (-4, 4), (1, 4), corners=False),
    "Greater": binary(lambda x, y: x > y, out=bool),
    "GreaterEqual": binary(lambda x, y: x >= y, out=bool),
    "Less": binary(lambda x, y: x < y, out=bool),
    "LessEqual": binary(lambda x, y: x <= y, out=bool),
    "LogicalAnd": binary(np.logical_and),
    "LogicalOr": binary(np.logical_or),
    "Maximum": binary(_by_kind(each(max), lambda x, y: np.where(np.isnan(x + y) & ~np.isinf(x), x + y, np.fmax(x, y))),
                      corners=False),
    "Minimum": binary(_by_kind(each(min), np.minimum)),
    "Mod": binary(_by_kind(each(lambda a, b: a - b * _truncated_quotient(a, b)), np.fmod), (-4, 4), (1, 4),
                  corners=False),
    "Mul": binary(lambda x, y: x * y, kinds=NUMBERS),
    "MulNoNan": binary(lambda x, y: np.where(y == 0, 0, x * y), kinds="fc"),
    "NotEqual": binary(lambda x, y: x != y, out=bool),
    "Pow": binary(_by_kind(each(pow), np.power), (0.25, 4), (0, 4), corners=False),
    "RealDiv": binary(lambda x, y: x / y, (-4, 4), (0.25, 4), kinds="fc"),
    "SquaredDifference": binary(lambda x, y: np.conj(x - y) * (x - y) if x.dtype.kind == "c" else (x - y) * (x - y),
                                kinds=NUMBERS),
    "Sub": binary(lambda x, y: x - y, kinds=NUMBERS),
    "TruncateDiv": binary(_by_kind(each(_truncated_quotient), lambda x, y: np.trunc(x / y)), (-4, 4), (1, 4),
                          kinds="iuf", corners=False),
    "TruncateMod": binary(_by_kind(each(lambda a, b: a - b * _truncated_quotient(a, b)), np.fmod), (-4, 4), (1, 4),
                          corners=False),
    "Xdivy": binary(lambda x, y: np.where(x == 0, 0, x / y), kinds="fc", corners=False),
    "Xlog1py": binary(lambda x, y: np.where(x == 0, 0, x * np.log1p(y)), (-4, 4), (-0.75, 4), kinds="fc"),
    "Xlogy": binary(lambda x, y: np.where(x == 0, 0, x * np.log(y)), (-4, 4), (0.25, 4), kinds="fc"),
}  # fmt: skip

BITWISE = {
    "BitwiseAnd": binary(lambda x, y: x & y),
    "BitwiseOr": binary(lambda x, y: x | y),
    "BitwiseXor": binary(lambda x, y: x ^ y),
    "Invert": unary(each(lambda v: -v - 1)),
}

SPECIAL = {
    "BesselI0": unary(sc.i0), "BesselI0e": unary(sc.i0e),
    "BesselI1": unary(sc.i1), "BesselI1e": unary(sc.i1e),
    "BesselJ0": unary(sc.j0, corners=False), "BesselJ1": unary(sc.j1, corners=False),
    "BesselK0": unary(sc.k0, (0.25, 4), corners=False), "BesselK0e": unary(sc.k0e, (0.25, 4), corners=False),
    "BesselK1": unary(sc.k1, (0.25, 4), corners=False), "BesselK1e": unary(sc.k1e, (0.25, 4), corners=False),
    "BesselY0": unary(sc.y0, (0.25, 4), corners=False), "BesselY1": unary(sc.y1, (0.25, 4), corners=False),
    "Dawsn": unary(sc.dawsn, corners=False),
    "Digamma": unary(sc.digamma, (0.25, 4), corners=False),
    # TensorFlow's erf of infinite doubles is NaN: tests of the module have it.
    "Erf": unary(sc.erf, corners=False), "Erfc": unary(sc.erfc),
    "Erfinv": unary(sc.erfinv, (-0.75, 0.75), corners=False),
    "Expint": unary(sc.expi, (0.25, 4), corners=False),
    "FresnelCos": unary(lambda x: sc.fresnel(x)[1], corners=False),
    "FresnelSin": unary(lambda x: sc.fresnel(x)[0], corners=False),
    "Igamma": binary(sc.gammainc, (0.25, 4), corners=False),
    "Igammac": binary(sc.gammaincc, (0.25, 4), corners=False),
    "Lgamma": unary(lambda x: np.where(np.isinf(x), np.inf, sc.gammaln(x)), (0.25, 4)),
    "Ndtri": unary(sc.ndtri, (0.25, 0.75), corners=False),
    "Polygamma": binary(lambda n, x: sc.polygamma(np.round(n).astype(int), x), (1, 1), (0.25, 4), corners=False),
    "Spence": unary(sc.spence, (0.25, 4), corners=False),
    "Zeta": binary(sc.zeta, (1.25, 4), (0.25, 4), corners=False),
}  # fmt: skip

SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772


def _softmax(x: Any) -> Any:
    return sc.softmax(x, axis=-1) if x.size else x


ROWS = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(lambda shape: [tuple(shape)])

ACTIVATIONS = {
    "Elu": unary(lambda x: np.where(x < 0, np.expm1(x), x), corners=False),
    "EluGrad": gradient(lambda dy, y: np.where(y < 0, (y + 1) * dy, dy)),
    "LeakyRelu": unary(lambda x: np.where(x > 0, x, x * 0.25), corners=False, alpha=0.25),
    "LeakyReluGrad": gradient(lambda dy, x: np.where(x > 0, dy, dy * 0.25), alpha=0.25),
    "LogSoftmax": unary(lambda x: sc.log_softmax(x, axis=-1) if x.size else x, corners=False, shapes=ROWS),
    "Relu": unary(_by_kind(each(lambda v: max(v, 0)), lambda x: np.maximum(x, 0)), corners=False),
    "Relu6": unary(_by_kind(each(lambda v: min(max(v, 0), 6)), lambda x: np.clip(x, 0, 6)), (-4, 9), corners=False),
    "Relu6Grad": gradient(lambda dy, x: dy * ((x > 0) & (x < 6)), kinds="iuf"),
    "ReluGrad": gradient(lambda dy, x: dy * (x > 0), kinds="iuf"),
    "Selu": unary(lambda x: SCALE * np.where(x < 0, ALPHA * np.expm1(x), x), corners=False),
    "SeluGrad": gradient(lambda dy, y: dy * np.where(y < 0, y + SCALE * ALPHA, SCALE)),
    "Softmax": unary(_softmax, corners=False, shapes=ROWS),
    "Softplus": unary(lambda x: np.logaddexp(x, 0), corners=False),
    "SoftplusGrad": gradient(lambda dy, x: dy / (1 + np.exp(-x))),
    "Softsign": unary(lambda x: x / (1 + np.abs(x)), corners=False),
    "SoftsignGrad": gradient(lambda dy, x: dy / (1 + np.abs(x)) ** 2),
}


# Ops of other forms


def _check_sum(op: str, draw: Draw) -> None:
    dtype = draw(st.sampled_from(types_of(op, kinds="iufc") or [np.dtype(np.float32)]))
    shape, count, seed = draw(SHAPES), draw(st.integers(1, 11)), draw(SEEDS)
    parts = [random_values(seed + i, shape, dtype, corners=False) for i in range(count)]
    attrs = {"shape": shape} if op == "AccumulateNV2" else {}
    want = parts[0].astype(object) * 0 if dtype.kind in "iu" else wide(parts[0]) * 0
    for part in parts:
        want = want + wide(part)
    assert_close(
        run_op(op, [parts], **attrs),
        rounded(want, dtype),
        0.1 if dtype.itemsize == 2 and dtype.kind not in "iu" else None,
    )


def _complex_part(oracle: Oracle) -> Check:
    def check(op: str, draw: Draw) -> None:
        dtype, part = draw(st.sampled_from([(np.complex64, np.float32), (np.complex128, np.float64)]))
        z = random_values(draw(SEEDS), draw(SHAPES), dtype)
        assert_close(run_op(op, [z], Tout=dtypes.from_numpy(np.dtype(part))), oracle(wide(z)).astype(part))

    return check


def _check_complex(op: str, draw: Draw) -> None:
    dtype, whole = draw(st.sampled_from([(np.float32, np.complex64), (np.float64, np.complex128)]))
    seed = draw(SEEDS)
    x, y = (random_values(seed + i, shape, dtype, corners=False) for i, shape in enumerate(draw(broadcasting(2))))
    assert_close(run_op(op, [x, y], Tout=dtypes.from_numpy(np.dtype(whole))), np.asarray(x + 1j * y).astype(whole))


def _check_approximate(op: str, draw: Draw) -> None:
    dtype, shape, seed = draw(st.sampled_from(types_of(op, kinds="iuf"))), draw(SHAPES), draw(SEEDS)
    x, y = (random_values(seed + i, shape, dtype, 0, 3, corners=False) for i in range(2))
    want = np.abs(np.asarray(wide(x) - wide(y))) < 0.5
    assert_close(run_op(op, [x, y], tolerance=0.5), np.asarray(want).astype(bool))


def _check_clip(op: str, draw: Draw) -> None:
    dtype, shape, seed = draw(st.sampled_from(types_of(op, kinds="iuf"))), draw(SHAPES), draw(SEEDS)
    x = random_values(seed, shape, dtype)
    low = random_values(seed + 1, draw(st.sampled_from([shape, ()])), dtype, -4, 0, corners=False)
    high = random_values(seed + 2, draw(st.sampled_from([shape, ()])), dtype, 0, 4, corners=False)
    want = np.maximum(np.minimum(wide(x), wide(high)), wide(low))
    assert_close(run_op(op, [x, low, high]), rounded(want, dtype))


def _check_shift(op: str, draw: Draw) -> None:
    dtype, seed = draw(st.sampled_from(types_of(op))), draw(SEEDS)
    shapes = draw(broadcasting(2))
    x = random_values(seed, shapes[0], dtype)
    y = random_values(seed + 1, shapes[1], dtype, 0, 7, corners=False)
    want = each(lambda v, n: v << n if op == "LeftShift" else v >> n)(*np.broadcast_arrays(wide(x), wide(y)))
    assert_close(run_op(op, [x, y]), rounded(want, dtype))


def _check_population_count(op: str, draw: Draw) -> None:
    dtype = draw(st.sampled_from(types_of(op)))
    x = random_values(draw(SEEDS), draw(SHAPES), dtype)
    want = each(lambda v: (int(v) & ((1 << 8 * dtype.itemsize) - 1)).bit_count())(wide(x))
    assert_close(run_op(op, [x]), rounded(want, np.uint8))


CAST_TYPES = [
    np.dtype(t) for t in (bool, "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
]


def _check_cast(op: str, draw: Draw) -> None:
    source, target = draw(st.sampled_from(CAST_TYPES)), draw(st.sampled_from(CAST_TYPES))
    low = 0 if target.kind == "u" else -4
    # What a number becomes that the target cannot hold is the machine's choice: tables elsewhere have it.
    x = random_values(draw(SEEDS), draw(SHAPES), source, low, 4, corners=source.kind in "iu" and target.kind in "iu")
    values = np.real(wide(x)) if source.kind == "c" and target.kind != "c" else wide(x)
    if target.kind == "b":
        values = np.asarray(wide(x) != 0) if source.kind != "c" else np.asarray(np.real(x) != 0)
    elif target.kind in "iu":
        values = np.asarray(values) if source.kind == "b" else each(int)(values)
    want = np.asarray(values).astype(target) if source.kind == "b" else rounded(values, target)
    got = run_op(op, [x], DstT=dtypes.from_numpy(target))
    assert_close(got, want)


def _check_bitcast(op: str, draw: Draw) -> None:
    wide_type, narrow = draw(
        st.sampled_from([(np.int32, np.uint8), (np.float64, np.int16), (np.complex64, np.float32)])
    )
    x = random_values(draw(SEEDS), draw(SHAPES), wide_type)
    ratio = np.dtype(wide_type).itemsize // np.dtype(narrow).itemsize
    want = np.frombuffer(x.tobytes(), narrow).reshape(*x.shape, ratio)
    got = run_op(op, [x], type=dtypes.from_numpy(np.dtype(narrow)))
    assert_close(got, want, tolerance=0)
    back = run_op(op, [got], type=dtypes.from_numpy(np.dtype(wide_type)))
    assert np.asarray(back).tobytes() == x.tobytes()
    assert np.shape(back) == x.shape


def _check_betainc(op: str, draw: Draw) -> None:
    dtype, shape, seed = draw(st.sampled_from(types_of(op))), draw(SHAPES), draw(SEEDS)
    a, b = (random_values(seed + i, shape, dtype, 0.25, 4, corners=False) for i in range(2))
    x = random_values(seed + 2, shape, dtype, 0, 1, corners=False)
    assert_close(run_op(op, [a, b, x]), rounded(sc.betainc(wide(a), wide(b), wide(x)), dtype))


def _check_igamma_grad(op: str, draw: Draw) -> None:
    dtype, seed = draw(st.sampled_from(types_of(op))), draw(SEEDS)
    a, x = (
        random_values(seed + i, shape, dtype, 0.5, 4, corners=False) for i, shape in enumerate(draw(broadcasting(2)))
    )
    step = 1e-4
    slope = (sc.gammainc(wide(a) + step, wide(x)) - sc.gammainc(wide(a) - step, wide(x))) / (2 * step)
    assert_close(run_op(op, [a, x]), rounded(slope, dtype), tolerance=max(1e-5, 1e-2 * (dtype.itemsize == 2)))


def _check_select(op: str, draw: Draw) -> None:
    dtype, seed = draw(st.sampled_from(types_of(op))), draw(SEEDS)
    if op == "SelectV2":
        shapes = draw(broadcasting(3))
        condition = random_values(seed, shapes[0], bool)
    else:
        shapes = [draw(SHAPES)] * 3
        condition = random_values(seed, draw(st.sampled_from([shapes[0], shapes[0][:1], ()])), bool)
    then, otherwise = (random_values(seed + i, shapes[i], dtype) for i in (1, 2))
    spread = condition if op == "SelectV2" else condition.reshape(
        condition.shape + (1,) * (then.ndim - condition.ndim))  # fmt: skip
    assert_close(run_op(op, [condition, then, otherwise]), np.where(spread, then, otherwise), tolerance=0)


OTHERS = {
    "AccumulateNV2": _check_sum,
    "AddN": _check_sum,
    "Angle": _complex_part(np.angle),
    "ApproximateEqual": _check_approximate,
    "Betainc": _check_betainc,
    "Bitcast": _check_bitcast,
    "Cast": _check_cast,
    "ClipByValue": _check_clip,
    "Complex": _check_complex,
    "ComplexAbs": _complex_part(np.abs),
    "IgammaGradA": _check_igamma_grad,
    "Imag": _complex_part(np.imag),
    "LeftShift": _check_shift,
    "PopulationCount": _check_population_count,
    "Real": _complex_part(np.real),
    "RightShift": _check_shift,
    "Select": _check_select,
    "SelectV2": _check_select,
    "_HostCast": _check_cast,
}

TABLE: dict[str, Check] = {**UNARY, **GRADIENTS, **BINARY, **BITWISE, **SPECIAL, **ACTIVATIONS, **OTHERS}


def test_every_elementwise_op_is_swept():
    modules = (
        "math.cwise_ops",
        "math.cwise_binary_ops",
        "math.bitwise_ops",
        "math.cast_ops",
        "math.special_math_ops",
        "nn.activation_ops",
    )
    assert sorted(TABLE) == sorted(ops_of(*modules, "math.select_ops"))


test_sweep, test_long_sweep = sweeps(TABLE, examples=8)


@pytest.mark.parametrize("op", ["Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"])
@settings(max_examples=6)
@given(shapes=broadcasting(2), seed=SEEDS)
def test_integers_are_not_divided_by_zero(op, shapes, seed):
    x = random_values(seed, shapes[0], np.int32)
    y = np.zeros(shapes[1], np.int32)
    if math.prod(np.broadcast_shapes(*shapes)):
        message = "Unexpected error in binary operator" if op.startswith("Truncate") else "Integer division by zero"
        with pytest.raises(errors.OpError, match=message):
            run_op(op, [x, y])
