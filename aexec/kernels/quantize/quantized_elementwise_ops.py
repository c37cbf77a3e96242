"""Sums and products of quantised tensors, element by element, as 32-bit integers.

A byte has 256 values, so its 32-bit integer of another range is taken from a table.  The formulas are those of
core/kernels/quantization_utils.
Next to read: `quantized_math_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.quantize.quantized_range import Range, all_bytes, check_scalars, in_floats, product_limits

__all__: list[str] = []

_QUINT8, _QINT8, _QINT32 = (dtypes.quint8,), (dtypes.qint8,), (dtypes.qint32,)
# The range of a sum is this many times the larger one of the two: the room keeps sums from overflowing.
_ROOM, _BIAS_ROOM = 1 << 14, 1 << 17


def _pair_cost(x: Any, y: Any, *_: Any) -> float:
    """Two look-ups and a sum per element of the result, which is not smaller than an input."""
    return 4.0 * float(max(x.size, y.size))


def _broadcast(x: Any, y: Any) -> None:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"Incompatible shapes: {shape_text(x.shape)} vs. {shape_text(y.shape)}"
        ) from None


def _ranges(x: Any, y: Any, low_x: Any, high_x: Any, low_y: Any, high_y: Any) -> tuple[Range, Range]:
    check_scalars(min_x=low_x, max_x=high_x, min_y=low_y, max_y=high_y)
    _broadcast(x, y)
    of_x, of_y = (
        Range(a.dtype, low.reshape(()), high.reshape(())) for a, low, high in ((x, low_x, high_x), (y, low_y, high_y))
    )
    for name, given in (("x", of_x), ("y", of_y)):
        if not given.high_given > given.low_given:
            raise errors.InvalidArgumentError(f"max_{name} must be larger than min_{name}.")
    return of_x, of_y


def _wide(of_x: Range, of_y: Range, room: int) -> Range:
    """The range of sums: symmetric around zero, with room."""
    ends = (of_x.low_given, of_x.high_given, of_y.low_given, of_y.high_given)
    most = np.float32(max(abs(end) for end in ends)) * np.float32(room)
    return Range(np.int32, -most, most)


def _evenly_spaced(given: Range, wanted: Range) -> Any:
    """int64 [256]: the integers in the wanted range, spaced as those of 0 and 1 are."""
    zero, one = (wanted.integer(float(np.float32(value))) for value in given.floats(np.arange(2)))
    return (np.arange(256) * (one - zero) + zero).clip(wanted.first, wanted.last)


def _nearest(given: Range, wanted: Range, dtype: Any) -> Any:
    """int64 [256]: the nearest integer in the wanted range, in the order of the bits."""
    floats = given.floats(all_bytes(dtype)).astype(np.float32)
    return np.array([wanted.held(float(value)) for value in floats])


@kernel("QuantizedAdd", T1=_QUINT8, T2=_QUINT8, Toutput=_QINT32, cost=_pair_cost, scratch=24)
def quantized_add(c: OpKernelConstruction) -> Compute:
    """The sum, with broadcasting.  TensorFlow broadcasts scalars, vectors along the last dimension, and no others."""
    xp = c.xp

    def compute(x: Any, y: Any, *limits: Any) -> tuple[Any, Any, Any]:
        of_x, of_y = _ranges(x, y, *limits)
        wanted = _wide(of_x, of_y, _ROOM)
        tables = [_evenly_spaced(of_x, wanted), _evenly_spaced(of_y, wanted)]
        # A single element is quantised by itself, so that it is not multiplied by a rounded step.
        if x.size == 1:
            tables[0] = _nearest(of_x, wanted, x.dtype)
        elif y.size == 1:
            tables[1] = _nearest(of_y, wanted, y.dtype)
        found = xp.asarray(tables[0])[x] + xp.asarray(tables[1])[y]
        return found.astype(np.int32), np.float32(wanted.low_given), np.float32(wanted.high_given)

    return compute


@kernel("QuantizedMul", T1=_QUINT8, T2=_QUINT8, Toutput=_QINT32, cost=_pair_cost, scratch=24)
def quantized_mul(c: OpKernelConstruction) -> Compute:
    """The product, with broadcasting.  TensorFlow broadcasts scalars, vectors along the last dimension, no others."""

    def compute(x: Any, y: Any, *limits: Any) -> tuple[Any, Any, Any]:
        of_x, of_y = _ranges(x, y, *limits)
        found = (x.astype(np.int64) - of_x.integer(0.0)) * (y.astype(np.int64) - of_y.integer(0.0))
        return (found.astype(np.int32), *product_limits(of_x, of_y))

    return compute


def _in_range(xp: Any, values: Any, given: Range, wanted: Range) -> Any:
    """int32: the nearest integers in the wanted range; those of unsigned bytes are computed in float32."""
    if values.dtype == np.uint8:
        return in_floats(xp, values, given, wanted, np.int32)
    return xp.asarray(_nearest(given, wanted, values.dtype).astype(np.int32))[values.view(np.uint8)]


@kernel("QuantizedBiasAdd", T1=_QUINT8, T2=_QUINT8, out_type=_QINT32, cost=_pair_cost, scratch=12)
@kernel("QuantizedBiasAdd", T1=_QINT8, T2=_QINT8, out_type=_QINT32, cost=_pair_cost, scratch=12)
def quantized_bias_add(c: OpKernelConstruction) -> Compute:
    """The sum of [..., channels] and a bias for each channel."""
    xp = c.xp

    def compute(x: Any, bias: Any, low: Any, high: Any, low_bias: Any, high_bias: Any) -> tuple[Any, Any, Any]:
        check_scalars(min_input=low, max_input=high, min_bias=low_bias, max_bias=high_bias)
        if bias.ndim != 1:
            raise errors.InvalidArgumentError(f"bias must be a vector, but has the shape {shape_text(bias.shape)}")
        if not x.ndim or x.shape[-1] != bias.size:
            raise errors.InvalidArgumentError(
                f"Must provide as many biases as the last dimension of the input tensor: {shape_text(bias.shape)} vs. "
                f"{shape_text(x.shape)}"
            )
        given = Range(x.dtype, low.reshape(()), high.reshape(()))
        of_bias = Range(bias.dtype, low_bias.reshape(()), high_bias.reshape(()))
        wanted = _wide(given, of_bias, _BIAS_ROOM)
        terms = [_in_range(xp, a, each, wanted) for a, each in ((x, given), (bias, of_bias))]
        found = terms[0] + terms[1] + np.int32(wanted.held(0.0))
        return found, np.float32(wanted.low_given), np.float32(wanted.high_given)

    return compute
