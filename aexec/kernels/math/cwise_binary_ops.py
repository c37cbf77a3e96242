"""Elementwise kernels with two inputs that broadcast: arithmetic, comparison, logic; and clipping.

Bare ufuncs if one ufunc suffices (`_UFUNCS`); integer divisions first look for zeros; the rest are expressions in
float32 or wider.
Next to read: `bitwise_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, Cost, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import Varying, broadcast_elements
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.elementwise import (
    FLOAT_COMPLEX,
    SIGNED,
    broadcast_error,
    by_ufunc,
    in_float32,
    register,
    ufunc,
)
from aexec.kernels.common.strings import elements_of, made, string_array

__all__: list[str] = []

_HOST = ("x", "y", "z")
_CHEAP, _DIVISION, _POWER = 0.5, 1.5, 6.0
# The remainder of floats with a large quotient is computed bit by bit.
_REMAINDER = Varying(200.0)
_SINGLE_DOUBLE = (dtypes.float32, dtypes.float64)
_COMPARABLE = (*dtypes.POD, *dtypes.QUANTIZED)
_INT32_INT64 = (dtypes.int32, dtypes.int64)
_SMALL_ADDED = (*FLOAT_COMPLEX, *dtypes.SIGNED_INTEGRAL, dtypes.uint8)

# op -> ufunc, types, ns per element
_UFUNCS: dict[str, tuple[str, tuple[dtypes.DType, ...], Cost]] = {
    "Add": ("add", _SMALL_ADDED, _CHEAP),
    "AddV2": ("add", dtypes.NUMBER, _CHEAP),
    "Atan2": ("arctan2", dtypes.FLOAT, _POWER),
    "Div": ("divide", FLOAT_COMPLEX, _CHEAP),
    "Greater": ("greater", dtypes.REAL_NUMBER, _CHEAP),
    "GreaterEqual": ("greater_equal", dtypes.REAL_NUMBER, _CHEAP),
    "Less": ("less", dtypes.REAL_NUMBER, _CHEAP),
    "LessEqual": ("less_equal", dtypes.REAL_NUMBER, _CHEAP),
    "Maximum": ("maximum", dtypes.REAL_NUMBER, _CHEAP),
    "Minimum": ("minimum", dtypes.REAL_NUMBER, _CHEAP),
    "Mod": ("fmod", _SINGLE_DOUBLE, _REMAINDER),
    "Mul": ("multiply", dtypes.NUMBER, _CHEAP),
    "RealDiv": ("divide", FLOAT_COMPLEX, _CHEAP),
    "Sub": ("subtract", dtypes.NUMBER, _CHEAP),
    "TruncateMod": ("fmod", _SINGLE_DOUBLE, _REMAINDER),
    "FloorMod": ("remainder", dtypes.FLOAT, _REMAINDER),
    # Also for integers: for a negative exponent NumPy raises, and `broadcast_error` translates.
    "Pow": ("power", SIGNED, _POWER),
}
_HOST_INT32 = {
    "Add",
    "AddV2",
    "Div",
    "FloorDiv",
    "FloorMod",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "Maximum",
    "Minimum",
    "Mod",
    "Mul",
    "SquaredDifference",
    "Sub",
    "TruncateMod",
}


def _explained(make: Builder) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        c.explain = broadcast_error
        return make(c)

    return build


def _binary(name: str) -> Builder:
    return lambda c: by_ufunc(c, name)


# Bytes per element of the intermediate results of a formula of several steps, and of its condition.
_SCRATCH = 18.0


def _register(op: str, make: Builder, types: tuple[dtypes.DType, ...], cost: Cost, scratch: float = 0.0) -> None:
    host = _HOST if op in _HOST_INT32 and dtypes.int32 in types else ()
    register(op, _explained(make), types, cost=cost, host_int32=host, scratch=scratch)


for _op, (_name, _types, _cost) in _UFUNCS.items():
    _register(_op, _binary(_name), _types, _cost)

kernel("LogicalAnd", cost=_CHEAP)(_explained(_binary("logical_and")))
kernel("LogicalOr", cost=_CHEAP)(_explained(_binary("logical_or")))


# Nanoseconds that a string takes which is joined of two, and each of its bytes.
_JOINED_NS, _BYTE_NS = 100.0, 0.5
# Strings whose lengths are sampled.
_FEW = 100


def _add_strings_ns(x: Any, y: Any) -> float:
    length = sum([max(map(len, value.ravel()[:_FEW].tolist()), default=0) for value in (x, y)])
    return broadcast_elements((x, y)) * (_JOINED_NS + _BYTE_NS * length)


@kernel("Add", T=(dtypes.string,), cost=_add_strings_ns)
def add_strings(c: OpKernelConstruction) -> Compute:
    """Strings are joined one by one, and announced: one long string and many others make a large result."""
    c.explain = broadcast_error

    def compute(x: Any, y: Any) -> Any:
        shape = np.broadcast_shapes(x.shape, y.shape)
        firsts, seconds = (elements_of(np.broadcast_to(value, shape)) for value in (x, y))
        pairs = giving_way(zip(firsts, seconds, strict=True), _JOINED_NS)
        return string_array(made(first + second for first, second in pairs), shape)

    return compute


@kernel("Pow", T=dtypes.COMPLEX, cost=100.0)
def pow_complex(c: OpKernelConstruction) -> Compute:
    """exp(y log x), so that 0 to the power of 0 is NaN."""
    c.explain = broadcast_error
    xp, nan = c.xp, c.output_types[0].np.type(complex(np.nan, np.nan))
    return lambda x, y: xp.where((x == 0) & (y == 0), nan, xp.power(x, y))


# --- division of integers


def _zero_error(op: str) -> errors.OpError:
    """TensorFlow's error for a divisor of 0: all ops have their own but those that truncate."""
    if op.startswith("Truncate"):
        return errors.InvalidArgumentError(
            "Unexpected error in binary operator (only integer div and mod should have errors)"
        )
    return errors.InvalidArgumentError("Integer division by zero")


def _checked(c: OpKernelConstruction, divide: Callable[..., Any]) -> Compute:
    count_nonzero, op = c.xp.count_nonzero, c.op

    def compute(x: Any, y: Any) -> Any:
        if count_nonzero(y) != y.size and x.size:
            raise _zero_error(op)
        return divide(x, y)

    return compute


def _integer_division(name: str) -> Builder:
    return lambda c: _checked(c, getattr(c.xp, name))


def _truncated_quotient(c: OpKernelConstruction) -> Compute:
    fmod, floor_divide = c.xp.fmod, c.xp.floor_divide
    if c.input_types[0] in dtypes.UNSIGNED_INTEGRAL:
        return _checked(c, floor_divide)
    dtype = c.input_types[0].np
    if dtype.itemsize <= 4:
        # For 32-bit integers, float64 never rounds a quotient up to the next integer.
        divide = c.xp.true_divide
        return _checked(c, lambda x, y: divide(x, y).astype(dtype))
    # The dividend without its remainder divides exactly, so nothing is rounded down.
    return _checked(c, lambda x, y: floor_divide(x - fmod(x, y), y))


_register("Div", _truncated_quotient, dtypes.INTEGRAL, 2 * _DIVISION, _SCRATCH)
_register("TruncateDiv", _truncated_quotient, dtypes.INTEGRAL, 2 * _DIVISION, _SCRATCH)
_register("FloorDiv", _integer_division("floor_divide"), dtypes.INTEGRAL, _DIVISION, _SCRATCH)
_register("FloorMod", _integer_division("remainder"), dtypes.INTEGRAL, _DIVISION, _SCRATCH)
_register("Mod", _integer_division("fmod"), _INT32_INT64, _DIVISION, _SCRATCH)
_register("TruncateMod", _integer_division("fmod"), _INT32_INT64, _DIVISION, _SCRATCH)


# --- expressions


def _rounded_quotient(rounding: str) -> Builder:
    """The quotient in the type, then rounded: not NumPy's floor_divide, for which 1 // 0.1 is 9."""

    def make(c: OpKernelConstruction) -> Compute:
        divide, rounded = ufunc(c, "divide"), ufunc(c, rounding)
        return lambda x, y: rounded(divide(x, y))

    return make


def _div_no_nan(c: OpKernelConstruction) -> Compute:
    where, divide = c.xp.where, c.xp.divide
    return in_float32(c, lambda x, y: where(y == 0, 0, divide(x, y)))


def _mul_no_nan(c: OpKernelConstruction) -> Compute:
    where, multiply = c.xp.where, c.xp.multiply
    return in_float32(c, lambda x, y: where(y == 0, 0, multiply(x, y)))


def _xdivy(c: OpKernelConstruction) -> Compute:
    where, divide = c.xp.where, c.xp.divide
    return in_float32(c, lambda x, y: where(x == 0, 0, divide(x, y)))


def _x_times(name: str) -> Builder:
    def make(c: OpKernelConstruction) -> Compute:
        # Not `*`: its last digit differs for NumPy's complex scalars.
        where, multiply, function = c.xp.where, c.xp.multiply, getattr(c.xp, name)
        return in_float32(c, lambda x, y: where(x == 0, 0, multiply(x, function(y))))

    return make


def _squared_difference(c: OpKernelConstruction) -> Compute:
    subtract, square, conjugate = ufunc(c, "subtract"), ufunc(c, "square"), c.xp.conjugate
    multiply = c.xp.multiply
    if not c.input_types[0].is_complex:
        if subtract is c.xp.subtract:
            c.forward_inputs(0, 1)

        def compute_real(x: Any, y: Any, out: Any = None) -> Any:
            if out is None:
                return square(subtract(x, y))
            return square(subtract(x, y, out), out)

        return compute_real

    def compute(x: Any, y: Any) -> Any:
        difference = subtract(x, y)
        return multiply(difference, conjugate(difference))

    return compute


_register("FloorDiv", _rounded_quotient("floor"), dtypes.FLOAT, _DIVISION, _SCRATCH)
_register("TruncateDiv", _rounded_quotient("trunc"), dtypes.FLOAT, _DIVISION, _SCRATCH)
_register("DivNoNan", _div_no_nan, FLOAT_COMPLEX, _DIVISION, _SCRATCH)
_register("MulNoNan", _mul_no_nan, FLOAT_COMPLEX, _DIVISION, _SCRATCH)
_register("Xdivy", _xdivy, FLOAT_COMPLEX, _DIVISION, _SCRATCH)
_register("Xlogy", _x_times("log"), FLOAT_COMPLEX, _POWER, _SCRATCH)
_register("Xlog1py", _x_times("log1p"), FLOAT_COMPLEX, _POWER, _SCRATCH)
_register("SquaredDifference", _squared_difference, (*FLOAT_COMPLEX, *_INT32_INT64), _CHEAP, _SCRATCH)


# --- equality


def _equality(name: str, unequal: bool) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        c.explain = broadcast_error
        compare = ufunc(c, name)
        if c.attr("incompatible_shape_error"):
            return compare
        answer = c.xp.full((), unequal)[()]

        def compute(x: Any, y: Any) -> Any:
            try:
                return compare(x, y)
            except ValueError:
                return answer

        return compute

    return build


for _op, _name, _unequal in (("Equal", "equal", False), ("NotEqual", "not_equal", True)):
    register(_op, _equality(_name, _unequal), _COMPARABLE, cost=_CHEAP, host_int32=_HOST)
    register(_op, _equality(_name, _unequal), (dtypes.string,), cost=50.0)


@kernel("ApproximateEqual", T=_SINGLE_DOUBLE, cost=_CHEAP, scratch=17)
def approximate_equal(c: OpKernelConstruction) -> Compute:
    """|x - y| < tolerance; two equal infinities are not approximately equal."""
    absolute, less = c.xp.absolute, c.xp.less
    # The attr is a float32, even if the inputs are double.
    tolerance = c.input_types[0].np.type(np.float32(c.attr("tolerance")))

    def compute(x: Any, y: Any) -> Any:
        if x.shape != y.shape:
            raise errors.InvalidArgumentError(
                f"x and y must be of the same shape. x shape: {shape_text(x.shape)}. y shape: {shape_text(y.shape)}"
            )
        return less(absolute(x - y), tolerance)

    return compute


# --- clipping


def _check_bounds(t: Any, low: Any, high: Any) -> None:
    if low.shape not in ((), t.shape) or high.shape not in ((), t.shape):
        raise errors.InvalidArgumentError(
            "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
            f"input shape: {shape_text(t.shape)}clip_value_min shape: {shape_text(low.shape)}"
            f"clip_value_max shape: {shape_text(high.shape)}"
        )


def _clip(c: OpKernelConstruction) -> Compute:
    """The lower bound wins over the upper one.  A NaN stays; a bound that is NaN is ignored."""
    maximum, minimum = ufunc(c, "maximum"), ufunc(c, "minimum")
    if not c.input_types[0].is_floating:

        def compute_integers(t: Any, low: Any, high: Any) -> Any:
            _check_bounds(t, low, high)
            return maximum(minimum(t, high), low)

        return compute_integers
    fmax, fmin = c.xp.fmax, c.xp.fmin
    below, above = (c.input_types[0].np.type(v) for v in (-np.inf, np.inf))

    def compute(t: Any, low: Any, high: Any) -> Any:
        if low.ndim or high.ndim:
            _check_bounds(t, low, high)
        elif low == low and high == high:  # neither is NaN
            return maximum(minimum(t, high), low)
        return maximum(minimum(t, fmin(high, above)), fmax(low, below))

    return compute


def _clip_complex(c: OpKernelConstruction) -> Compute:
    """Clips real and imaginary parts separately, each by that part of the bound."""
    xp, dtype = c.xp, c.input_types[0].np
    part = dtype.type(0).real.dtype

    def parts(z: Any) -> Any:
        return xp.ascontiguousarray(z).reshape((*z.shape, 1)).view(part)

    def compute(t: Any, low: Any, high: Any) -> Any:
        _check_bounds(t, low, high)
        clipped = xp.maximum(xp.minimum(parts(t), xp.fmin(parts(high), np.inf)), xp.fmax(parts(low), -np.inf))
        return clipped.view(dtype).reshape(t.shape)

    return compute


_CLIPPED = (*SIGNED, dtypes.uint8, dtypes.uint16)
kernel("ClipByValue", T=_CLIPPED, cost=_CHEAP)(_clip)
kernel("ClipByValue", T=dtypes.COMPLEX, cost=_CHEAP)(_clip_complex)
