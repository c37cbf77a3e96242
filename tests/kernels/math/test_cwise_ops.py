"""Elementwise kernels of one input, gradients of them, complex parts, and sums of many inputs."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import scratch_bytes
from aexec.framework.wire import variant
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op

bfloat16 = ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
SPECIAL = np.float32([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5])
TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 1e-2,
    "float32": 2e-6,
    "float64": 1e-13,
    "complex64": 2e-6,
    "complex128": 1e-13,
}


def assert_close(got, want, rtol=None):
    """Equal in shape and NaNs, and close as the type of `got` allows."""
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    rtol = TOLERANCE.get(got.dtype.name, 0) if rtol is None else rtol
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.astype(wide), np.asarray(want).astype(wide), rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("op", ops_of("math.cwise_ops", "math.cwise_binary_ops", "math.cast_ops", "math.select_ops"))
def test_types_are_those_of_tensorflow(op):
    expected = in_tensorflow(op)
    if expected is None:
        # TensorFlow replaces it when a graph is run, for all types that its definition allows.
        assert op == "AccumulateNV2"
        expected = {("CPU", "", frozenset(), frozenset({("T", t)})) for t in dtypes.NUMBER}
    assert registered(op) == expected


@pytest.mark.parametrize(
    ("op", "of_special"),
    [
        ("Abs", [NAN, INF, INF, 0, 0, 1, 1, 0.5, 2.5, 2.5]),
        ("Ceil", [NAN, INF, -INF, 0, 0, 1, -1, 1, 3, -2]),
        ("Exp", [NAN, INF, 0, 1, 1, np.e, 1 / np.e, 1.6487212, 12.182494, 0.082085]),
        ("Floor", [NAN, INF, -INF, 0, 0, 1, -1, 0, 2, -3]),
        ("IsFinite", [False, False, False, True, True, True, True, True, True, True]),
        ("IsInf", [False, True, True, False, False, False, False, False, False, False]),
        ("IsNan", [True, False, False, False, False, False, False, False, False, False]),
        ("Log", [NAN, INF, NAN, -INF, -INF, 0, NAN, -0.6931472, 0.9162907, NAN]),
        ("Log1p", [NAN, INF, NAN, 0, 0, 0.6931472, -INF, 0.4054651, 1.252763, NAN]),
        ("Neg", [NAN, -INF, INF, 0, 0, -1, 1, -0.5, -2.5, 2.5]),
        ("Reciprocal", [NAN, 0, 0, INF, -INF, 1, -1, 2, 0.4, -0.4]),
        ("Inv", [NAN, 0, 0, INF, -INF, 1, -1, 2, 0.4, -0.4]),
        ("Rint", [NAN, INF, -INF, 0, 0, 1, -1, 0, 2, -2]),
        ("Round", [NAN, INF, -INF, 0, 0, 1, -1, 0, 2, -2]),
        ("Rsqrt", [NAN, 0, NAN, INF, -INF, 1, NAN, 1.4142135, 0.6324555, NAN]),
        ("Sigmoid", [NAN, 1, 0, 0.5, 0.5, 0.7310586, 0.26894143, 0.62245935, 0.92414182, 0.07585818]),
        ("Sign", [NAN, 1, -1, 0, 0, 1, -1, 1, 1, -1]),
        ("Sqrt", [NAN, INF, NAN, 0, 0, 1, NAN, 0.70710677, 1.5811388, NAN]),
        ("Square", [NAN, INF, INF, 0, 0, 1, 1, 0.25, 6.25, 6.25]),
        ("Tanh", [NAN, 1, -1, 0, 0, 0.7615942, -0.7615942, 0.46211717, 0.9866143, -0.9866143]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
def test_special_values(op, of_special, dtype):
    if op == "Rint" and np.dtype(dtype).itemsize == 2:
        with pytest.raises(errors.NotFoundError, match="No registered 'Rint' OpKernel"):
            run_op(op, [SPECIAL.astype(dtype)])
        return
    got = run_op(op, [SPECIAL.astype(dtype)])
    assert_close(got, np.float64(of_special), rtol=max(TOLERANCE[np.dtype(dtype).name], 1e-6))
    for x, y in zip(SPECIAL, got, strict=True):
        np.testing.assert_equal(np.asarray(run_op(op, [np.asarray(x, dtype)])).astype(float), float(y))


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        ("Acos", np.arccos),
        ("Acosh", lambda x: np.arccosh(x)),
        ("Asin", np.arcsin),
        ("Asinh", np.arcsinh),
        ("Atan", np.arctan),
        ("Atanh", np.arctanh),
        ("Cos", np.cos),
        ("Cosh", np.cosh),
        ("Exp", np.exp),
        ("Expm1", np.expm1),
        ("Log", np.log),
        ("Log1p", np.log1p),
        ("Neg", np.negative),
        ("Reciprocal", lambda x: 1 / x),
        ("Rsqrt", lambda x: 1 / np.sqrt(x)),
        ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("Sign", lambda x: x / abs(x)),
        ("Sin", np.sin),
        ("Sinh", np.sinh),
        ("Sqrt", np.sqrt),
        ("Square", lambda x: x * x),
        ("Tan", np.tan),
        ("Tanh", np.tanh),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("size", [1, 7, 3000], ids=lambda n: f"n{n}")  # 3000: narrow floats go through float32
def test_functions_of_all_float_types(op, reference, dtype, size):
    x = np.linspace(0.05, 0.95, size)
    if op == "Acosh":
        x = x + 1
    if np.dtype(dtype).kind == "c":
        x = x + 1j * x[::-1]
    x = x.astype(dtype)
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    assert_close(run_op(op, [x]), reference(wide), rtol=3 * TOLERANCE[x.dtype.name])


@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign", "Square"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_wrap(op, dtype):
    low = np.iinfo(dtype).min
    x = np.array([low, -2, 0, 3], dtype)
    want = {"Abs": [low, 2, 0, 3], "Neg": [low, 2, 0, -3], "Sign": [-1, -1, 0, 1], "Square": [0, 4, 0, 9]}[op]
    np.testing.assert_array_equal(run_op(op, [x]), np.array(want, dtype), strict=True)


def test_square_of_unsigned_integers_wraps():
    np.testing.assert_array_equal(run_op("Square", [np.uint8([16, 255])]), np.uint8([0, 1]), strict=True)


def test_round_of_integers_is_zero_as_in_tensorflow():
    np.testing.assert_array_equal(run_op("Round", [np.int64([-2, 5])]), np.int64([0, 0]), strict=True)


def test_round_goes_to_even():
    x = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5])
    np.testing.assert_array_equal(run_op("Round", [x]), np.float32([-2, -2, 0, 0, 2, 2, 4]))


@pytest.mark.parametrize(
    ("x", "want"), [(1000.0, 1), (-1000.0, 0), (complex(-20000, 6), 0), (complex(20000, 6), 1), (-90.0, 8.19401262e-40)]
)
def test_sigmoid_does_not_overflow(x, want):
    x = np.array([x], np.complex128 if isinstance(x, complex) else np.float64)
    assert_close(run_op("Sigmoid", [x]), np.array([want]), rtol=1e-8)


def test_sigmoid_is_the_same_for_small_and_large_arrays():
    x = np.linspace(-20, 20, 4000, dtype=np.float32)
    large = run_op("Sigmoid", [x])
    small = np.concatenate([run_op("Sigmoid", [part]) for part in np.split(x, 100)])
    np.testing.assert_allclose(large, small, rtol=3e-7)


def test_logical_not():
    np.testing.assert_array_equal(run_op("LogicalNot", [[True, False]]), np.array([False, True]), strict=True)


# Gradients: of the output y and its gradient dy

Y = np.float64([0.25, -0.5, 2.0])
DY = np.float64([1.0, -2.0, 3.0])


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("InvGrad", -DY * Y**2),
        ("ReciprocalGrad", -DY * Y**2),
        ("RsqrtGrad", -0.5 * DY * Y**3),
        ("SigmoidGrad", DY * Y * (1 - Y)),
        ("SqrtGrad", 0.5 * DY / Y),
        ("TanhGrad", DY * (1 - Y**2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
def test_gradients(op, want, dtype):
    assert_close(run_op(op, [Y.astype(dtype), DY.astype(dtype)]), want)


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("InvGrad", [2 + 11j, 0.25 - 0.25j]),
        ("SqrtGrad", [0.5j, 1 + 1j]),
        ("RsqrtGrad", [12 + 3.5j, -0.0625 - 0.0625j]),
        ("SigmoidGrad", [10, 0.75 + 0.25j]),
        ("TanhGrad", [12 - 4j, 1.25 - 1.25j]),
    ],
)
def test_gradients_of_complex_functions(op, want):
    """Inverse and roots take the conjugate of y; for sigmoid and tanh the caller has taken it."""
    got = run_op(op, [np.complex64([1 + 2j, 0.5j]), np.complex64([2 + 1j, 1 - 1j])])
    assert_close(got, np.array(want))


@pytest.mark.parametrize("op", ["InvGrad", "SqrtGrad", "RsqrtGrad"])
def test_gradient_is_zero_where_dy_is_zero(op):
    y = np.float32([INF, NAN, 0])
    np.testing.assert_array_equal(run_op(op, [y, np.zeros(3, np.float32)]), np.zeros(3, np.float32))


@pytest.mark.parametrize("op", ["TanhGrad", "SqrtGrad"])
def test_gradients_look_at_numbers_of_elements_only(op):
    got = run_op(op, [np.float32([1, 2, 3, 4]), np.float32([[1, 2], [3, 4]])])
    assert got.shape == (4,)
    with pytest.raises(errors.InvalidArgumentError, match="must have same number of elements, got 3 and 1"):
        run_op(op, [np.float32([1, 2, 3]), np.float32([2])])


# Complex numbers


@pytest.mark.parametrize(("dtype", "part"), [(np.complex64, np.float32), (np.complex128, np.float64)])
def test_complex_parts(dtype, part):
    z = np.array([[3 + 4j, -1j], [-1, 0]], dtype)
    tout = dtypes.from_numpy(np.dtype(part))
    for op, want in {"Real": z.real, "Imag": z.imag, "ComplexAbs": np.abs(z), "Angle": np.angle(z)}.items():
        np.testing.assert_allclose(run_op(op, [z], Tout=tout), want.astype(part), rtol=1e-6, strict=True)
    np.testing.assert_array_equal(run_op("Conj", [z]), z.conj(), strict=True)
    back = run_op("Complex", [z.real, z.imag], Tout=dtypes.from_numpy(np.dtype(dtype)))
    np.testing.assert_array_equal(back, z, strict=True)


def test_complex_parts_do_not_keep_their_input_alive():
    z = np.ones(4, np.complex64)
    assert run_op("Real", [z]).base is None
    assert run_op("Imag", [z]).flags.c_contiguous


def test_complex_broadcasts_and_keeps_infinities_apart():
    got = run_op("Complex", [np.float32([[1], [INF]]), np.float32([NAN, 2])])
    assert got.shape == (2, 2)
    assert got[1, 1] == complex(INF, 2)
    with pytest.raises(errors.InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs. \[3\]"):
        run_op("Complex", [np.float32([1, 2]), np.float32([1, 2, 3])])


def test_absolute_value_has_the_precision_of_its_input():
    with pytest.raises(errors.InvalidArgumentError, match="Signature mismatch, have: complex64->double"):
        run_op("ComplexAbs", [np.complex64([1])], Tout="double")


# Sums of many inputs


@pytest.mark.parametrize("op", ["AddN", "AccumulateNV2"])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, bfloat16, np.float16, np.uint64])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_add_n(op, count, dtype, shape):
    parts = [np.full(shape, k, dtype) for k in range(count)]
    attrs = {"shape": shape} if op == "AccumulateNV2" else {}
    got = run_op(op, [parts], **attrs)
    np.testing.assert_array_equal(np.asarray(got), np.full(shape, sum(range(count)), dtype), strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64, np.int8, np.uint32, bfloat16])
@pytest.mark.parametrize("shape", [(1,), (2,), (4, 4), (2000,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_many_inputs_are_added_from_left_to_right(dtype, shape, transposed):
    rng = np.random.default_rng(7)
    parts = [(rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 2)).astype(dtype) for _ in range(50)]
    if transposed:
        parts = [part.T for part in parts]
    expected = parts[0]
    for part in parts[1:]:
        expected = np.add(expected, part)
    assert np.asarray(run_op("AddN", [parts])).tobytes() == expected.tobytes()


def test_sum_of_negative_zeros_is_one():
    for dtype in (np.float32, np.complex64):
        parts = [-np.zeros((2, 2), dtype)] * 20
        assert np.asarray(run_op("AddN", [parts])).tobytes() == parts[0].tobytes()


def test_add_n_wants_equal_shapes():
    message = (
        r"Inputs to operation AddN of type AddN must have the same size and shape\.  Input 0: \[3\] != input {}: \[1\]"
    )
    with pytest.raises(errors.InvalidArgumentError, match=message.format(1)):
        run_op("AddN", [[np.zeros(3), np.zeros(1)]])
    with pytest.raises(errors.InvalidArgumentError, match=message.format(2)):
        run_op("AddN", [[np.zeros(3), np.zeros(3), np.zeros(1)]])
    with pytest.raises(errors.InvalidArgumentError, match=message.format(19)):
        run_op("AddN", [[*[np.zeros(3)] * 19, np.zeros(1)]])


class Pile:
    """A variant that knows how to be added."""

    def __init__(self, size):
        self.size = size


variant.register_binary_op("ADD", "CPU", Pile, lambda a, b: Pile(a.size + b.size))
variant.register_unary_op("CONJ", "CPU", Pile, lambda a: Pile(-a.size))


def boxed(value):
    box = np.empty((), object)
    box[()] = value
    return box


def test_variants_are_added_by_what_is_registered_for_their_class():
    got = run_op("AddN", [[boxed(Pile(1)), boxed(Pile(2)), boxed(Pile(4))]], T=dtypes.variant)
    assert got.item().size == 7
    assert run_op("Conj", [boxed(Pile(1))], T=dtypes.variant).item().size == -1
    with pytest.raises(errors.InvalidArgumentError, match="different type ids"):
        run_op("AddN", [[boxed(Pile(1)), boxed(2)]], T=dtypes.variant)


# Random shapes


ANY_SHAPE = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


@given(x=hnp.arrays(np.float32, ANY_SHAPE, elements=st.floats(0.25, 4, width=32)))
def test_any_shape(x):
    for op, reference in {"Exp": np.exp, "Rsqrt": lambda v: 1 / np.sqrt(v), "Round": np.rint}.items():
        got = np.asarray(run_op(op, [x]))
        np.testing.assert_allclose(got, reference(x), rtol=1e-5)
        assert got.dtype == x.dtype


@pytest.mark.parametrize(("op", "function"), [("Exp", np.exp), ("Neg", np.negative), ("LogicalNot", np.logical_not)])
def test_kernel_is_numpys_function_where_possible(op, function):
    built, *_ = build(op, [np.array([True]) if op == "LogicalNot" else np.float32([1])])
    assert built.compute is function


@pytest.mark.parametrize("op", ["InvGrad", "RsqrtGrad", "SigmoidGrad", "SqrtGrad", "TanhGrad"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_gradients_need_no_more_than_they_say(op, dtype):
    y = np.ones(200_000, dtype)
    built, arrays, _ = build(op, [y, y])
    tracemalloc.start()
    try:
        built.compute(*arrays)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most <= y.nbytes + scratch_bytes(built.scratch, arrays, y.size) + 10_000
