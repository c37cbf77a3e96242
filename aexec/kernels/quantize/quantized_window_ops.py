"""Convolutions and pools of quantised images [n, h, w, c], and their normalisation.

The sums of a convolution are exact: products of two 9-bit numbers are added in float64.
Next to read: `quantized_math_ops.py`, `aexec/kernels/nn/pooling_ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common import windowing
from aexec.kernels.nn import convolution
from aexec.kernels.nn.conv_ops import conv_cost
from aexec.kernels.nn.convolution_geometry import Geometry
from aexec.kernels.nn.pooling import Pool2D, pool_cost
from aexec.kernels.nn.pooling_ops import max_over_depth, max_over_windows
from aexec.kernels.nn.window_reduction import sums
from aexec.kernels.quantize.quantized_range import Range, check_scalars, product_limits, quantized

__all__: list[str] = []

_EIGHT = (dtypes.quint8, dtypes.qint8)


# Convolution


def _spatial(c: OpKernelConstruction, name: str) -> tuple[int, int]:
    """The attr's values for rows and columns."""
    values: Sequence[int] = c.attr(name)
    if len(values) != 4:
        raise errors.InvalidArgumentError(f"{name} must have 4 values, but has {len(values)}")
    if values[0] != 1 or values[3] != 1:
        raise errors.InvalidArgumentError(f"{name} must be 1 in the batch and depth dimensions")
    return values[1], values[2]


def _check_images(x: Any, filter: Any) -> None:
    for name, array in (("input", x), ("filter", filter)):
        if array.ndim != 4:
            raise errors.InvalidArgumentError(f"{name} must be 4-dimensional: {shape_text(array.shape)}")
    if x.shape[3] != filter.shape[2]:
        raise errors.InvalidArgumentError(
            f"input and filter must have the same depth: {x.shape[3]} vs {filter.shape[2]}"
        )


@kernel(
    "QuantizedConv2D", Tinput=(dtypes.quint8,), Tfilter=_EIGHT, out_type=(dtypes.qint32,), cost=conv_cost, scratch=16
)
def quantized_conv_2d(c: OpKernelConstruction) -> Compute:
    """The convolution, as 32-bit sums.  Padding is the integer of zero.

    With a signed filter the integers are multiplied as they are: zero is the integer zero in both ranges.
    """
    xp, padding = c.xp, c.text("padding")
    strides, dilations = _spatial(c, "strides"), _spatial(c, "dilations")

    def compute(x: Any, filter: Any, low: Any, high: Any, low_filter: Any, high_filter: Any) -> tuple[Any, Any, Any]:
        check_scalars(min_input=low, max_input=high, min_filter=low_filter, max_filter=high_filter)
        _check_images(x, filter)
        of_x = Range(x.dtype, low.reshape(()), high.reshape(()))
        of_filter = Range(filter.dtype, low_filter.reshape(()), high_filter.reshape(()))
        spec = tuple(
            windowing.extent(length, size, stride, dilation, padding)
            for length, size, stride, dilation in zip(x.shape[1:3], filter.shape[:2], strides, dilations, strict=True)
        )
        geometry = Geometry(x.shape, filter.shape, spec, xp is np)
        announce_scratch(8 * int(np.prod(geometry.output_shape, dtype=np.float64)))
        signed = filter.dtype == np.int8
        zeros = [np.float64(0 if signed else given.integer(0.0)) for given in (of_x, of_filter)]
        found = convolution.forward(xp, x - zeros[0], filter - zeros[1], geometry)
        limits = product_limits(of_x, of_filter, symmetric=signed)
        return (found.astype(np.int64).astype(np.int32), *limits)

    return compute


# Pools


@kernel("QuantizedMaxPool", T=_EIGHT, cost=pool_cost)
def quantized_max_pool(c: OpKernelConstruction) -> Compute:
    """Maximum of windows over height and width, or over depth; the range stays."""
    xp, pool = c.xp, Pool2D(c, "MaxPoolingOp")

    def compute(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        check_scalars(min_input=low, max_input=high)
        pool.check_input(x)
        found = max_over_windows(xp, x, pool) if pool.depth == 1 else max_over_depth(x, pool)
        return found, low.reshape(()), high.reshape(())

    return compute


@kernel("QuantizedAvgPool", T=_EIGHT, cost=pool_cost, scratch=16)
def quantized_avg_pool(c: OpKernelConstruction) -> Compute:
    """The mean of each window's integers, rounded towards zero; the range stays."""
    xp, pool = c.xp, Pool2D(c, "AvgPoolingOp")

    def compute(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        check_scalars(min_input=low, max_input=high)
        pool.check_input(x)
        if pool.depth != 1:
            raise errors.UnimplementedError("QuantizedAvgPool averages over height and width only")
        layout = pool.windows(x.shape)
        total = sums(xp, x.astype(np.int32), layout)
        mean = (total / layout.counts(xp, np.dtype(np.float64))).astype(x.dtype)
        return mean, low.reshape(()), high.reshape(())

    return compute


# Normalisation


@kernel("QuantizedInstanceNorm", T=(dtypes.quint8,), cost=20.0, scratch=12)
def quantized_instance_norm(c: OpKernelConstruction) -> Compute:
    """Each channel of each image with mean 0 and variance 1, and its range."""
    xp, epsilon, least_width = c.xp, np.float32(c.attr("variance_epsilon")), np.float32(c.attr("min_separation"))
    wanted = [np.float32(c.attr(name)) for name in ("given_y_min", "given_y_max")]
    is_given = c.attr("output_range_given")
    if is_given and not wanted[0] < wanted[1]:
        raise errors.InvalidArgumentError(f"given_y_min must be less than given_y_max : {wanted[0]:g} >= {wanted[1]:g}")

    def compute(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        check_scalars(x_min=low, x_max=high)
        if x.ndim != 4:
            raise errors.InvalidArgumentError(f"x must be 4-dimensional: {shape_text(x.shape)}")
        low, high = low.reshape(()), high.reshape(())
        if not low < high:
            raise errors.InvalidArgumentError(f"input_min must be less than input_max : {low:g} >= {high:g}")
        values = x.astype(np.float32)
        if values.size:
            values -= values.mean(axis=(1, 2), keepdims=True)
            values *= (high - low) / np.float32(255)
            values *= 1 / xp.sqrt(xp.square(values).mean(axis=(1, 2), keepdims=True) + epsilon)
        least, most = wanted if is_given else _ends(values)
        if most - least < least_width:
            most = least + least_width
        return quantized(xp, values, Range(np.uint8, least, most), np.uint8), np.float32(least), np.float32(most)

    return compute


def _ends(values: Any) -> tuple[Any, Any]:
    """The lowest and the highest float; zeros if there are none."""
    if not values.size:
        return np.float32(0), np.float32(0)
    return np.float32(values.min()), np.float32(values.max())
