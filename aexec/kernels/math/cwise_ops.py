"""Elementwise kernels with one input, and those of the complex numbers' parts; sums of many inputs.

Most are one ufunc, named in a table.  The rest are short expressions in float32 or wider (see
`elementwise.in_float32`).
Next to read: `cwise_binary_ops.py`, then `cast_ops.py` and `select_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.shape import check_same_shape, shape_text
from aexec.framework.wire import variant
from aexec.kernels.common.elementwise import (
    FLOAT_COMPLEX,
    SIGNED,
    broadcast_error,
    by_ufunc,
    in_float32,
    register,
    ufunc,
)
from aexec.kernels.common.single_loops import by_loop, tanh
from aexec.kernels.common.variants import boxed

__all__: list[str] = []

_UNARY_HOST = ("x", "y")
_CHEAP, _EXP, _TRIGONOMETRIC = 0.5, 3.0, 6.0

# op -> ufunc, types, ns per element
_UFUNCS: dict[str, tuple[str, tuple[dtypes.DType, ...], float]] = {
    "Abs": ("absolute", SIGNED, _CHEAP),
    "Acos": ("arccos", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Acosh": ("arccosh", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Asin": ("arcsin", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Asinh": ("arcsinh", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Atan": ("arctan", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Atanh": ("arctanh", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Ceil": ("ceil", dtypes.FLOAT, _CHEAP),
    "Cos": ("cos", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Cosh": ("cosh", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Exp": ("exp", FLOAT_COMPLEX, _EXP),
    "Expm1": ("expm1", FLOAT_COMPLEX, _EXP),
    "Floor": ("floor", dtypes.FLOAT, _CHEAP),
    "Inv": ("reciprocal", FLOAT_COMPLEX, _CHEAP),
    "IsFinite": ("isfinite", dtypes.FLOAT, _CHEAP),
    "IsInf": ("isinf", dtypes.FLOAT, _CHEAP),
    "IsNan": ("isnan", dtypes.FLOAT, _CHEAP),
    "Log": ("log", FLOAT_COMPLEX, _EXP),
    "Log1p": ("log1p", FLOAT_COMPLEX, _EXP),
    "Neg": ("negative", (*SIGNED, *dtypes.COMPLEX), _CHEAP),
    "Reciprocal": ("reciprocal", FLOAT_COMPLEX, _CHEAP),
    "Rint": ("rint", (dtypes.float32, dtypes.float64), _CHEAP),
    "Sign": ("sign", (*SIGNED, *dtypes.COMPLEX), _CHEAP),
    "Sin": ("sin", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Sinh": ("sinh", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Sqrt": ("sqrt", FLOAT_COMPLEX, 1.0),
    "Square": ("square", dtypes.NUMBER, _CHEAP),
    "Tan": ("tan", FLOAT_COMPLEX, _TRIGONOMETRIC),
    "Tanh": ("tanh", tuple(t for t in FLOAT_COMPLEX if t is not dtypes.float32), _EXP),
}
_ON_ANY_DEVICE = {"Abs", "Neg", "Sign", "Square"}


def _unary(name: str) -> Builder:
    return lambda c: by_ufunc(c, name)


for _op, (_name, _types, _cost) in _UFUNCS.items():
    register(_op, _unary(_name), _types, cost=_cost, host_int32=_UNARY_HOST if _op in _ON_ANY_DEVICE else ())


@kernel("Tanh", T=(dtypes.float32,), cost=_EXP)
def tanh_of_singles(c: OpKernelConstruction) -> Compute:
    c.forward_inputs(0)
    return tanh if c.xp is np else ufunc(c, "tanh")


@kernel("Acos", T=dtypes.SIGNED_INTEGRAL, cost=_TRIGONOMETRIC)
def acos_of_integers(c: OpKernelConstruction) -> Compute:
    """TensorFlow registers it, although the op's definition does not allow integers."""
    dtype = c.output_types[0].np
    return lambda x: c.xp.arccos(x.astype(np.float64)).astype(dtype)


@kernel("LogicalNot", cost=_CHEAP)
def logical_not(c: OpKernelConstruction) -> Compute:
    return by_ufunc(c, "logical_not")


@kernel("Round", T=dtypes.FLOAT, cost=_CHEAP)
def round_half_to_even(c: OpKernelConstruction) -> Compute:
    return by_ufunc(c, "rint")


@kernel("Round", T=(dtypes.int32, dtypes.int64), cost=_CHEAP)
def round_integers(c: OpKernelConstruction) -> Compute:
    """Return zeros for any input, as TensorFlow 2.21 does for integers."""
    zeros_like: Compute = c.xp.zeros_like
    return zeros_like


@kernel("Rsqrt", T=FLOAT_COMPLEX, cost=1.0)
def rsqrt(c: OpKernelConstruction) -> Compute:
    sqrt, reciprocal = c.xp.sqrt, c.xp.reciprocal

    def compute(x: Any, out: Any = None) -> Any:
        return reciprocal(sqrt(x, out), out)

    return in_float32(c, compute, forwards=(0,))


# Up to this size SciPy's expit, one call, is faster than the formula's four vectorised calls.
_EXPIT_BELOW = 300


@kernel("Sigmoid", T=(dtypes.complex64, dtypes.complex128), cost=_EXP, scratch=64)
def sigmoid_of_complex(c: OpKernelConstruction) -> Compute:
    exp, where = c.xp.exp, c.xp.where

    def compute(x: Any) -> Any:
        negative = x.real < 0
        e = exp(where(negative, x, -x))  # at most 1: two infinities would give NaN
        return where(negative, e, 1) / (1 + e)

    return compute


@kernel("Sigmoid", T=dtypes.FLOAT, cost=_EXP, needs=("scipy.special",))
def sigmoid(c: OpKernelConstruction) -> Compute:
    exp, negative, divide = c.xp.exp, c.xp.negative, c.xp.divide

    def formula(x: Any, out: Any = None) -> Any:
        scale = exp(negative(x, out), out)
        scale += 1
        return divide(1, scale, out)

    if c.xp is not np:
        return in_float32(c, formula)
    from scipy.special import expit

    def compute(x: Any, out: Any = None) -> Any:
        if x.size < _EXPIT_BELOW:
            return expit(x)
        made = by_loop("sigmoids", out, x)
        return formula(x, out) if made is None else made

    return in_float32(c, compute, forwards=(0,))


# --- gradients as functions of the output y and its gradient dy


def _conjugated(c: OpKernelConstruction) -> Compute:
    return c.xp.conjugate if c.input_types[0].is_complex else lambda y: y


def _no_nan(formula: Builder) -> Builder:
    """The result is zero if dy is zero, even if the derivative is infinite or NaN."""

    def make(c: OpKernelConstruction) -> Compute:
        where, count_nonzero, of_arrays = c.xp.where, c.xp.count_nonzero, formula(c)
        on_host = c.xp is np  # counting on a device would make the host wait

        def compute(y: Any, dy: Any) -> Any:
            zero, out = dy == 0, of_arrays(y, dy)
            return out if on_host and not count_nonzero(zero) else where(zero, 0, out)

        return compute

    return make


@_no_nan
def _inv_grad(c: OpKernelConstruction) -> Compute:
    conj = _conjugated(c)

    def compute(y: Any, dy: Any) -> Any:
        y = conj(y)
        return -dy * y * y

    return compute


@_no_nan
def _rsqrt_grad(c: OpKernelConstruction) -> Compute:
    conj = _conjugated(c)

    def compute(y: Any, dy: Any) -> Any:
        y = conj(y)
        return -0.5 * dy * (y * y * y)

    return compute


@_no_nan
def _sqrt_grad(c: OpKernelConstruction) -> Compute:
    conj = _conjugated(c)
    return lambda y, dy: 0.5 * dy / conj(y)


def _sigmoid_grad(c: OpKernelConstruction) -> Compute:
    return _by_loop_or("sigmoid_grads", lambda y, dy: dy * y * (1 - y))


def _tanh_grad(c: OpKernelConstruction) -> Compute:
    return _by_loop_or("tanh_grads", lambda y, dy: dy * (1 - y * y))


def _by_loop_or(loop: str, formula: Compute) -> Compute:
    def compute(y: Any, dy: Any) -> Any:
        made = by_loop(loop, None, y, dy)
        return formula(y, dy) if made is None else made

    return compute


def _gradient_scratch(y: Any, _: Any) -> int:
    """Bytes of the conjugate of y, and of two steps of the formula."""
    return int(3 * y.size * max(4, y.itemsize))


def _gradient(formula: Builder) -> Builder:
    """Return a kernel that combines its inputs element by element in order, for all shapes."""

    def build(c: OpKernelConstruction) -> Compute:
        of_arrays = in_float32(c, formula(c))

        def compute(y: Any, dy: Any) -> Any:
            if y.shape != dy.shape:
                if y.size != dy.size:
                    raise errors.InvalidArgumentError(
                        f"The two arguments to a cwise op must have same number of elements, got {y.size} and {dy.size}"
                    )
                dy = dy.reshape(y.shape)
            return of_arrays(y, dy)

        return compute

    return build


for _op, _formula in {
    "InvGrad": _inv_grad,
    "ReciprocalGrad": _inv_grad,
    "RsqrtGrad": _rsqrt_grad,
    "SigmoidGrad": _sigmoid_grad,
    "SqrtGrad": _sqrt_grad,
    "TanhGrad": _tanh_grad,
}.items():
    register(_op, _gradient(_formula), FLOAT_COMPLEX, cost=1.0, scratch=_gradient_scratch)


# --- complex numbers


def _complex_pairs(op: str, of: str, real: str) -> Callable[[Builder], Builder]:
    """Register for both precisions: attr `of` complex64 with `real` float32, or both twice as wide."""

    def decorate(builder: Builder) -> Builder:
        for wide, narrow in zip(dtypes.COMPLEX, (dtypes.float32, dtypes.float64), strict=True):
            constraints: dict[str, Any] = {of: (wide,), real: (narrow,)}
            kernel(op, **constraints)(builder)
        return builder

    return decorate


@_complex_pairs("Real", of="T", real="Tout")
def real(c: OpKernelConstruction) -> Compute:
    return lambda x: x.real.copy()  # a view would keep the whole input in memory


@_complex_pairs("Imag", of="T", real="Tout")
def imag(c: OpKernelConstruction) -> Compute:
    return lambda x: x.imag.copy()


@_complex_pairs("Angle", of="T", real="Tout")
def angle(c: OpKernelConstruction) -> Compute:
    arctan2 = c.xp.arctan2
    return lambda x: arctan2(x.imag, x.real)


@_complex_pairs("Complex", of="Tout", real="T")
def complex_of_parts(c: OpKernelConstruction) -> Compute:
    c.explain = broadcast_error
    empty, dtype = c.xp.empty, c.output_types[0].np

    def compute(re: Any, im: Any) -> Any:
        shape = re.shape if re.shape == im.shape else np.broadcast_shapes(re.shape, im.shape)
        out = empty(shape, dtype)
        out.real = re
        out.imag = im
        return out

    return compute


@kernel("ComplexAbs", T=dtypes.COMPLEX, cost=2.0)
def complex_abs(c: OpKernelConstruction) -> Compute:
    (of,) = c.input_types
    c.match_signature([of], [dtypes.float32 if of is dtypes.complex64 else dtypes.float64])
    return ufunc(c, "absolute")


@kernel("Conj", T=dtypes.COMPLEX, cost=_CHEAP)
def conj(c: OpKernelConstruction) -> Compute:
    return by_ufunc(c, "conjugate")


@kernel("Conj", T=(dtypes.variant,), cost=1000.0)
def conj_of_variant(c: OpKernelConstruction) -> Compute:
    """Calls the function registered as CONJ for the class of each element; raises UnimplementedError if there is
    none.
    """

    def compute(x: Any) -> Any:
        out = np.empty(x.shape, object)
        for index, value in np.ndenumerate(x):
            out[index] = variant.unary_op("CONJ", "CPU", value)
        return out

    return compute


# --- sums of many inputs


# Join at least this many inputs of at most this many elements into one array: otherwise joining takes longer.
_JOIN_FROM, _JOINED_ELEMENTS = 8, 1024


def _add_n(c: OpKernelConstruction) -> Compute:
    """Left to right, each sum rounded to the type."""
    add = ufunc(c, "add")
    takes_out = add is c.xp.add
    if takes_out and len(c.input_types) > 1:
        c.forward_inputs(0)
    joins = takes_out and c.xp is np and len(c.input_types) >= _JOIN_FROM and c.input_types[0].np.kind in "iufc"

    def compute(first: Any, *rest: Any, out: Any = None) -> Any:
        # Inputs of one element are added pair by pair.
        if joins and 1 < first.size <= _JOINED_ELEMENTS:
            check_same_shape(c.name, c.op, first, *rest)
            total = _sum_of_joined((first, *rest))
            if total is not None:
                return total
        total = first
        for x in rest:
            if x.shape != first.shape:
                check_same_shape(c.name, c.op, first, *rest)
            total = add(total, x) if out is None else add(total, x, out)
            if takes_out and first.ndim:  # a sum of scalars cannot be written to
                out = total
        return total

    def compute_two(x: Any, y: Any, out: Any = None) -> Any:
        if x.shape != y.shape:
            check_same_shape(c.name, c.op, x, y)
        return add(x, y) if out is None else add(x, y, out)

    return compute_two if len(c.input_types) == 2 else compute


def _sum_of_joined(inputs: Sequence[Any]) -> Any:
    """The sum, from left to right, of arrays of one shape with more than one element; None if one is not contiguous."""
    try:
        joined = b"".join(inputs)
    except (TypeError, BufferError, ValueError):
        return None
    shape, dtype = inputs[0].shape, inputs[0].dtype
    rows = np.frombuffer(joined, dtype).reshape(len(inputs), -1)
    # Starting from -0 changes nothing; the default, 0, would turn -0 into 0.
    return np.add.reduce(rows, axis=0, dtype=dtype, initial=-dtype.type(0)).reshape(shape)


def _add_variants(c: OpKernelConstruction) -> Compute:
    def compute(first: Any, *rest: Any) -> Any:
        check_same_shape(c.name, c.op, first, *rest)
        if first.ndim:
            raise errors.InvalidArgumentError(  # TensorFlow's words
                "AddN of non-scalar Tensor with dtype=DT_VARIANT is not supported; "
                f"inputs[0 has shape: {shape_text(first.shape)}."
            )
        total = first[()]
        for x in rest:
            total = variant.add(total, x[()])
        return boxed(total)

    return compute


register("AddN", _add_n, dtypes.NUMBER, host_int32=("inputs", "sum"))
kernel("AddN", T=(dtypes.variant,), cost=1000.0)(_add_variants)


@kernel("AccumulateNV2", T=dtypes.NUMBER)
def accumulate_n(c: OpKernelConstruction) -> Compute:
    """AddN by another name: TensorFlow rewrites it to a temporary variable and assignments."""
    return _add_n(c)
