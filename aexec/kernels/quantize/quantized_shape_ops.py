"""Quantised tensors joined and resized.

Next to read: `quantized_math_ops.py`, `aexec/kernels/image/resampling.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.kernels.array.concat_ops import check_concat
from aexec.kernels.common.allocation import allocator
from aexec.kernels.image.resampling import Grid, Taps
from aexec.kernels.image.resize_ops import output_shape, resize_cost
from aexec.kernels.quantize.quantized_range import Range, check_scalars, in_floats

__all__: list[str] = []

_TYPES = (dtypes.quint8, dtypes.qint32)
# Bits of the fraction of a weight between two integers, by the type of the images.
_FRACTION = {np.dtype(np.uint8): 7, np.dtype(np.int32): 30}


# Concatenation


def _concat_cost(_: Any, *values: Any) -> float:
    return 8.0 * sum(float(value.size) for value in values)


@kernel("QuantizedConcat", T=_TYPES, host_memory=("concat_dim",), cost=_concat_cost, scratch=8)
def quantized_concat(c: OpKernelConstruction) -> Compute:
    """The tensors joined, in one range that has zero and all of theirs; it is symmetric for 32-bit integers."""
    xp, count, dtype = c.xp, c.attr("N"), c.output_types[0].np

    def compute(axis: Any, *inputs: Any) -> tuple[Any, Any, Any]:
        values, lows, highs = (inputs[i * count : (i + 1) * count] for i in range(3))
        for low, high in zip(lows, highs, strict=True):
            check_scalars(input_min=low, input_max=high)
        check_concat(axis, values, "concat_dim")
        ranges = [Range(dtype, low.reshape(()), high.reshape(())) for low, high in zip(lows, highs, strict=True)]
        wanted = _common(ranges, dtype)
        same = (wanted.low_given, wanted.high_given)
        parts = [
            value if (given.low_given, given.high_given) == same else in_floats(xp, value, given, wanted, dtype)
            for value, given in zip(values, ranges, strict=True)
        ]
        return xp.concatenate(parts, axis.item()), np.float32(same[0]), np.float32(same[1])

    return compute


def _common(ranges: list[Range], dtype: Any) -> Range:
    low, high = min(0.0, *(given.low_given for given in ranges)), max(given.high_given for given in ranges)
    if np.iinfo(dtype).min:
        most = max(abs(low), abs(high))
        low, high = -most, most
    return Range(dtype, low, high)


# Resizing


def _weighted(low: Any, high: Any, weight: Any, bits: int) -> Any:
    """The number between two integers, times 2^bits."""
    return (low << bits) + (high - low) * weight


def _towards_zero(xp: Any, values: Any, bits: int) -> Any:
    """Integers divided by 2^bits, without the fraction."""
    return xp.where(values < 0, -(-values >> bits), values >> bits)


@kernel(
    "QuantizedResizeBilinear",
    T=(*_TYPES, dtypes.float32),
    host_memory=("size",),
    cost=resize_cost(30.0),
    scratch=16,
)
def quantized_resize_bilinear(c: OpKernelConstruction) -> Compute:
    """Images with interpolation between two neighbours in each dimension; the range stays.

    Weights of 8-bit images have 7 bits of fraction, those of 32-bit images 30; 32-bit integers go through float32, as
    in TensorFlow.
    """
    xp, grid, allocate = c.xp, Grid(c.attr("align_corners"), c.attr("half_pixel_centers")), allocator(c)
    bits = _FRACTION.get(c.output_types[0].np)

    def compute(images: Any, size: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        check_scalars(min=low, max=high)
        shape = output_shape(images, size)
        out = allocate(shape)  # refuses a shape that does not fit into memory
        if images.shape == shape:
            out[...] = images
        elif out.size:
            announce_scratch(48 * out.size)
            (top_rows, bottom_rows, y), (left, right, x) = (_neighbours(grid, images, shape, axis) for axis in (1, 2))
            corners = [
                [xp.take(xp.take(images, rows, 1), columns, 2) for columns in (left, right)]
                for rows in (top_rows, bottom_rows)
            ]
            x, y = xp.asarray(x)[:, None], xp.asarray(y)[:, None, None]
            out[...] = _in_fractions(xp, corners, x, y, bits) if bits else _in_float32(corners, x, y)
        return out, low.reshape(()), high.reshape(())

    return compute


def _neighbours(grid: Grid, images: Any, shape: tuple[int, ...], axis: int) -> tuple[Any, Any, Any]:
    """(below, above, float32 fraction of the way) for each new row or column."""
    taps = Taps.linear(grid, images.shape[axis], shape[axis])
    below, above = taps.index
    return np.minimum(below, above), above, taps.weight[1]


def _in_float32(corners: list[list[Any]], x: Any, y: Any) -> Any:
    top, bottom = (left + (right - left) * x for left, right in corners)
    return top + (bottom - top) * y


def _in_fractions(xp: Any, corners: list[list[Any]], x: Any, y: Any, bits: int) -> Any:
    """Integers between integers: each step drops the bits of the fraction that it has no room for."""
    x, y = ((weight * np.float32(1 << bits)).astype(np.int64) for weight in (x, y))
    through = np.float32 if bits > 24 else np.int64
    whole = [[corner.astype(through).astype(np.int64) for corner in row] for row in corners]
    top, bottom = (_weighted(left, right, x, bits) for left, right in whole)
    found = top + _towards_zero(xp, bottom - top, bits) * y
    return _towards_zero(xp, found + (1 << (bits - 1)), bits)
