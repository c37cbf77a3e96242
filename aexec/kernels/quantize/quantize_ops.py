"""Quantises floats, dequantises them, and both at once; with a range for the whole tensor or one per slice of an axis.

Ranges per slice are vectors shaped to be broadcast, so that there is one implementation for both.  The formulas,
float32 and in this order, are those of core/kernels/{quantize_op,dequantize_op,quantize_and_dequantize_op}.  A
quantised tensor is held as its integer dtype.  For MIN_FIRST, TensorFlow may use oneDNN's kernel, which rounds once,
after the shift and to even: its results differ by up to one step.
Next to read: `fake_quant_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.array.array_ops import reshape
from aexec.kernels.quantize.cache_blocks import clamp, in_cache_blocks, round_away

__all__: list[str] = []

_QUANTIZED = (dtypes.qint8, dtypes.quint8, dtypes.qint16, dtypes.quint16, dtypes.qint32)
_QADQ_TYPES = (dtypes.float32, dtypes.float64)
_COST = 4.0


def _rounded_away(xp: Any, x: Any) -> Any:
    """The nearest integers of a few numbers, with halves rounded away from zero."""
    whole = xp.array(x, np.float32)
    round_away(xp, whole)
    return whole


def _along(vector: Any, axis: int, rank: int) -> Any:
    """A vector shaped to lie along an axis."""
    return vector.reshape([-1 if i == axis else 1 for i in range(rank)])


class _Integers:
    """A quantised type: its limits as float32, and rounding results into it."""

    def __init__(self, xp: Any, dtype: Any, *, narrow: bool = False) -> None:
        info = np.iinfo(dtype)
        self.xp = xp
        self.np = dtype
        self.signed = info.min < 0
        self.low, self.high = np.float32(info.min), np.float32(info.max)
        self.narrow_low = np.float32(info.min + narrow)
        self.half_range = (self.high - self.low + 1) / np.float32(2) if self.signed else np.float32(0)
        self.steps = float(2**info.bits - 1)
        # 2**31 - 1 is not a float32; TensorFlow lets 2**31 overflow to -2**31, here the largest float below is used.
        self.clip_high = min(self.high, np.float32(2**31 - 128))

    def cast(self, x: Any, steps: Callable[[Any], object], *, whole: bool) -> Any:
        """Apply `steps` to x, clamp to the limits, and truncate to integers; see `in_cache_blocks`."""

        def limited(values: Any) -> None:
            steps(values)
            clamp(self.xp, values, self.low, self.clip_high)

        return in_cache_blocks(self.xp, x, self.np, limited, whole=whole)


# ---------------------------------------------------------------- QuantizeV2


class _Quantize:
    def __init__(self, c: OpKernelConstruction) -> None:
        self.xp = c.xp
        self.mode = c.text("mode")
        self.to_even = c.text("round_mode") == "HALF_TO_EVEN"
        if self.to_even and self.mode != "SCALED":
            raise errors.InvalidArgumentError(
                f"Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{self.mode}'."
            )
        self.axis = max(-1, c.attr("axis"))
        self.least = np.float32(c.attr("ensure_minimum_range"))
        self.type = _Integers(c.xp, c.output_types[0].np, narrow=c.attr("narrow_range"))
        self.convert: Callable[[Any, Any, Any], tuple[Any, Any, Any]] = {
            "MIN_COMBINED": self._min_combined,
            "MIN_FIRST": self._min_first,
            "SCALED": self._scaled,
        }[self.mode]

    def check_range(self, x: Any, name: str, array: Any) -> None:
        if self.axis < 0:
            if array.size != 1:
                raise errors.InvalidArgumentError(
                    f"If axis is not specified, {name} must contain a single float element, "
                    f"but it contains {array.size} elements"
                )
            return
        if self.axis >= x.ndim:
            raise errors.InvalidArgumentError(
                "Axis is on a zero-based index, so its value must always be less than number of input's dims, "
                f"but given axis value was {self.axis} and input's dims was {x.ndim}"
            )
        wanted = (
            f"If axis is specified, {name} must be a 1-D tensor whose size matches the axis dimension "
            "of the input and output tensors, but "
        )
        if array.ndim != 1:
            raise errors.InvalidArgumentError(f"{wanted}{name} dims are {array.ndim}")
        if array.size != x.shape[self.axis]:
            raise errors.InvalidArgumentError(
                f"{wanted}{name} is a 1-D tensor of size {array.size} and input's axis dimension "
                f"is of size {x.shape[self.axis]}"
            )

    def __call__(self, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        xp = self.xp
        self.check_range(x, "min_range", low)
        self.check_range(x, "max_range", high)
        if xp.count_nonzero(high < low):
            raise errors.InvalidArgumentError("input_max_range must be larger than input_min_range.")
        shape = () if self.axis < 0 else low.shape
        size = xp.maximum(np.float32(1), xp.maximum(abs(low), abs(high)))
        least = size * self.least
        low = xp.minimum(np.float32(0), low)
        high = xp.maximum(np.float32(0), xp.maximum(high, low + least))
        if self.axis >= 0:
            low, high = _along(low, self.axis, x.ndim), _along(high, self.axis, x.ndim)
        elif low.ndim or high.ndim:
            low, high = low.reshape(()), high.reshape(())
        out, low, high = self.convert(x, low, high)
        return out, low.reshape(shape), high.reshape(shape)

    def _min_combined(self, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        xp, t, scale = self.xp, self.type, (self.type.high - self.type.low) / (high - low)

        def steps(values: Any) -> None:
            clamp(xp, values, low, high)
            values -= low
            values *= scale
            if t.signed:
                values -= t.half_range
                round_away(xp, values, to_be_cast=True)
            else:  # TensorFlow adds a half and truncates
                values += np.float32(0.5)

        return t.cast(x, steps, whole=self.axis >= 0), low, high

    def _min_first(self, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        xp, t = self.xp, self.type
        scale = xp.where(high == low, 0.0, t.steps / (high - low)).astype(np.float32)
        offset = xp.where(high == low, t.low, _rounded_away(xp, low * scale)) - t.low

        def steps(values: Any) -> None:
            values *= scale
            round_away(xp, values)
            values -= offset

        return t.cast(x, steps, whole=self.axis >= 0), low, high

    def _scaled(self, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        xp, t, most = self.xp, self.type, np.finfo(np.float32).max
        below = xp.where(t.narrow_low * low > 0, t.narrow_low / low, most)
        above = xp.where(t.high * high > 0, t.high / high, most)
        scale = xp.minimum(below, above)
        low, high = t.narrow_low / scale, t.high / scale

        def steps(values: Any) -> None:
            clamp(xp, values, low, high)
            values *= scale
            if self.to_even:
                xp.rint(values, out=values)
            else:
                round_away(xp, values, to_be_cast=True)

        return t.cast(x, steps, whole=self.axis >= 0), low, high


# Bytes of a channel's range and its scale; and of an element, if there are channels: then all are processed at once.
_RANGE_BYTES, _WHOLE_BYTES = 48, 8


def _of_ranges(_x: Any, low: Any, _high: Any) -> int:
    return int(_RANGE_BYTES * low.size)


def _ranges_scratch(x: Any, low: Any, high: Any) -> int:
    return _of_ranges(x, low, high) + (int(_WHOLE_BYTES * x.size) if low.ndim else 0)


@kernel("QuantizeV2", T=_QUANTIZED, cost=1.5, scratch=_ranges_scratch)
def quantize_v2(c: OpKernelConstruction) -> Compute:
    """Return the quantised tensor, and the range of its smallest and largest integer."""
    return _Quantize(c).__call__


# ---------------------------------------------------------------- Dequantize


def _wide_and_ranges(x: Any, low: Any, high: Any) -> int:
    """Bytes of the ranges; with channels also of the whole tensor in float32, as it is dequantised at once."""
    return _of_ranges(x, low, high) + (4 * int(x.size) if low.ndim else 0)


class _Dequantize:
    def __init__(self, c: OpKernelConstruction) -> None:
        self.xp = c.xp
        self.mode, self.result = c.text("mode"), c.output_types[0].np
        if c.output_types[0] is dtypes.bfloat16 and self.mode != "MIN_COMBINED":
            raise errors.InvalidArgumentError(
                f"When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '{self.mode}'"
            )
        self.axis = max(-1, c.attr("axis"))
        self.type = _Integers(c.xp, c.input_types[0].np, narrow=c.attr("narrow_range"))

    def __call__(self, x: Any, low: Any, high: Any) -> Any:
        t, axis = self.type, self.axis
        if axis >= x.ndim:
            raise errors.InvalidArgumentError(f"Axis must be less than input dimension({x.ndim}), got {axis}")
        wanted = 1 if axis < 0 else x.shape[axis]
        for name, array in (("input_min_tensor", low), ("input_max_tensor", high)):
            if array.size != wanted:
                raise errors.InvalidArgumentError(
                    f"{name} must have as many elements as input on the dequantization axis ({axis}), "
                    f"got {array.size}, expected {wanted}"
                )
        low, high = (a.reshape(()) if axis < 0 else _along(a, axis, x.ndim) for a in (low, high))
        before, origin = np.float32(0), None
        if self.mode == "MIN_COMBINED":
            before, scale, origin = t.half_range, (high - low) / (t.high - t.low), low
        elif self.mode == "MIN_FIRST":
            scale = ((high - low) / t.steps).astype(np.float32)
            before, origin = -t.low, self.xp.where(high == low, low, _rounded_away(self.xp, low / scale) * scale)
        else:
            scale = self.xp.maximum(low / t.narrow_low, high / t.high) if t.signed else high / t.high

        def steps(values: Any) -> None:
            if before:
                values += before
            values *= scale
            if origin is not None:
                values += origin

        return in_cache_blocks(self.xp, x, self.result, steps, whole=axis >= 0)


@kernel("Dequantize", T=_QUANTIZED, dtype=(dtypes.float32,), cost=0.7, scratch=_of_ranges)
@kernel("Dequantize", T=_QUANTIZED, dtype=(dtypes.bfloat16,), cost=1.5, scratch=_wide_and_ranges)
def dequantize(c: OpKernelConstruction) -> Compute:
    """Return the floats that quantised values represent."""
    return _Dequantize(c).__call__


# ------------------------------------------------------ QuantizeAndDequantize


class _RoundTrip:
    """Rounds floats to `num_bits` bits between two limits, which are given or those of the input."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.xp, self.dtype = c.xp, c.output_types[0].np
        self.signed, self.given = c.attr("signed_input"), c.attr("range_given")
        self.axis = c.attrs.get("axis", -1)
        self.narrow = c.attrs.get("narrow_range", False)
        self.half_up = c.attrs.get("round_mode", b"HALF_TO_EVEN") == b"HALF_UP"
        if self.axis < -1:
            raise errors.InvalidArgumentError(f"Axis must be at least -1. Found {self.axis}")

    def check_bits(self, bits: int, quote: str = "") -> None:
        if not 0 < bits < (62 if self.signed else 63):
            raise errors.InvalidArgumentError(
                f"num_bits is out of range: {bits} with {quote}signed_input_{quote} {int(self.signed)}"
            )

    def limits(self, x: Any, low: Any, high: Any) -> tuple[Any, Any]:
        """The limits, shaped to be broadcast."""
        xp, axis = self.xp, self.axis
        if axis >= x.ndim:
            raise errors.InvalidArgumentError(f"Shape must be at least rank {axis + 1} but is rank {x.ndim}")
        if self.given:
            _check_limits(x, low, high, axis)
            if axis >= 0:
                return _along(low, axis, x.ndim), _along(high, axis, x.ndim)
            if low > high:
                raise errors.InvalidArgumentError(f"Invalid range: input_min {low:g} > input_max {high:g}")
            return low, high
        axes = tuple(i for i in range(x.ndim) if i != axis)
        if not x.size:
            zero = xp.zeros([1] * x.ndim, self.dtype)
            return zero, zero
        return x.min(axis=axes, keepdims=True), x.max(axis=axes, keepdims=True)

    def __call__(self, x: Any, low: Any, high: Any, bits: int) -> Any:
        xp, real = self.xp, self.dtype.type
        low, high = self.limits(x, low, high)
        if self.signed:
            first, last = real(-(2 ** (bits - 1)) + self.narrow), real(2 ** (bits - 1) - 1)
        else:
            first, last = real(0), real(2**bits - 1)
        # The larger scale that keeps both limits within the integers; zero stays zero.
        most = np.finfo(self.dtype).max
        from_low = xp.where(first * low > 0, first / low, most)
        from_high = xp.where(last * high > 0, last / high, most)
        by_low = from_low < from_high
        scale = xp.where(by_low, from_low, from_high)
        inverse = xp.where(by_low, low / first, high / last).astype(self.dtype, copy=False)
        if self.given:
            low = xp.where(by_low, low, first * inverse)
            high = xp.where(by_low, last * inverse, high)
            x = xp.maximum(xp.minimum(x, high), low)
        scaled = x * scale
        rounded = xp.floor(scaled + real(0.5)) if self.half_up else xp.rint(scaled)
        return (rounded * inverse).astype(self.dtype, copy=False)


def _check_limits(x: Any, low: Any, high: Any, axis: int) -> None:
    for name, array in (("input_min", low), ("input_max", high)):
        if axis < 0:
            if array.ndim:
                raise errors.InvalidArgumentError(f"{name} must be a scalar.")
            continue
        if array.ndim != 1:
            raise errors.InvalidArgumentError(f"Shape must be rank 1 for {name}_tensor when the axis is specified")
        if array.size != x.shape[axis]:
            raise errors.InvalidArgumentError(
                f"{name}_tensor has incorrect size, was {array.size} expected {x.shape[axis]} "
                f"to match dim {axis} of the input {list(x.shape)}"
            )


@kernel("QuantizeAndDequantize", T=_QADQ_TYPES, cost=_COST, scratch=24)
def quantize_and_dequantize(c: OpKernelConstruction) -> Compute:
    """Takes the range from attrs."""
    trip, bits = _RoundTrip(c), c.attr("num_bits")
    trip.check_bits(bits)
    low, high = (trip.dtype.type(c.attr(name)) for name in ("input_min", "input_max"))
    if trip.given and low > high:
        raise errors.InvalidArgumentError(f"Invalid range: input_min {low:g} > input_max {high:g}")
    return lambda x: trip(x, low, high, bits)


@kernel("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4", T=_QADQ_TYPES, cost=_COST, scratch=24)
def quantize_and_dequantize_v2(c: OpKernelConstruction) -> Compute:
    """Takes the range from inputs, or that of the input."""
    trip, bits = _RoundTrip(c), c.attr("num_bits")
    trip.check_bits(bits)
    return lambda x, low, high: trip(x, low, high, bits)


@kernel("QuantizeAndDequantizeV3", T=_QADQ_TYPES, cost=_COST, scratch=24)
def quantize_and_dequantize_v3(c: OpKernelConstruction) -> Compute:
    """Like V2, with the number of bits as an input."""
    trip = _RoundTrip(c)

    def compute(x: Any, low: Any, high: Any, num_bits: Any) -> Any:
        if num_bits.ndim:
            raise errors.InvalidArgumentError(
                f"Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: {num_bits.ndim}"
            )
        bits = int(num_bits)
        trip.check_bits(bits, quote="`")
        return trip(x, low, high, bits)

    return compute


@kernel("QuantizeAndDequantizeV4Grad", T=_QADQ_TYPES, cost=3.0)
def quantize_and_dequantize_v4_grad(c: OpKernelConstruction) -> Compute:
    """Return the gradient where the input is inside the range; those for input_min and input_max are 0, as in
    TensorFlow.
    """
    xp, axis, zero = c.xp, c.attr("axis"), c.output_types[0].np.type(0)
    if axis < -1:
        raise errors.InvalidArgumentError(f"Axis must be at least -1. Found {axis}")

    def check(grad: Any, x: Any, low: Any, high: Any) -> None:
        if grad.shape != x.shape:
            raise errors.InvalidArgumentError("gradient and input must be the same size")
        if axis >= x.ndim:
            raise errors.InvalidArgumentError(
                f"Axis should be -1 or 0 or a positive value less than {x.ndim}but given axis value was {axis}"
            )
        for name, array in (("min", low), ("max", high)):
            if axis < 0 and array.ndim:
                raise errors.InvalidArgumentError(f"input_{name} must be a scalar if axis is unspecified")
            if axis >= 0 and array.ndim != 1:
                raise errors.InvalidArgumentError(
                    f"Shape must be rank 1 for input_{name}_tensor when the axis is specified"
                )
            if axis >= 0 and array.size != x.shape[axis]:
                raise errors.InvalidArgumentError(
                    f"{name} has incorrect size, expected {x.shape[axis]} was {array.size}"
                )

    def compute(grad: Any, x: Any, low: Any, high: Any) -> Any:
        check(grad, x, low, high)
        none = xp.zeros(low.shape, low.dtype)
        if axis >= 0:
            low, high = _along(low, axis, x.ndim), _along(high, axis, x.ndim)
        return xp.where((x >= low) & (x <= high), grad, zero), none, none.copy()

    return compute


# ------------------------------------------------------------------- Reshape


@kernel("QuantizedReshape", T=(dtypes.quint8, dtypes.qint32), host_memory=("shape",), cost=0)
def quantized_reshape(c: OpKernelConstruction) -> Compute:
    """Like Reshape; passes the range on."""
    inner = reshape(c)

    def compute(x: Any, shape: Any, low: Any, high: Any) -> Any:
        for name, array in (("input_min", low), ("input_max", high)):
            if array.size != 1:
                raise errors.InvalidArgumentError(f"{name} must have one element, got {array.size}")
        return inner(x, shape), low.reshape(()), high.reshape(())

    return compute
