"""32-bit sums whose channels have ranges of their own, and back to 8 bits.

The ranges are symmetric: an integer stands for itself times the larger end of its channel's range, divided by 2^31.
Next to read: `quantized_math_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.quantize.quantized_range import check_scalars

__all__: list[str] = []

_SUMS = np.float32(2**31)
# What the larger end of the requested range is in 8 bits.
_MOST = {np.dtype(np.int8): np.float32(127), np.dtype(np.uint8): np.float32(255)}


def _ends(values: Any, low: Any, high: Any) -> Any:
    """The larger end of each channel's range, float32 [channels].

    Raises:
        InvalidArgumentError: `values` is not [batch, height, width, channels], or there is not one range for each.
    """
    if values.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional, but has shape {shape_text(values.shape)}")
    for name, limits in (("input_min", low), ("input_max", high)):
        if limits.size != values.shape[3]:
            raise errors.InvalidArgumentError(
                f"{name} must have one value for each of {values.shape[3]} channels, but has {limits.size}"
            )
    return np.maximum(np.abs(low), np.abs(high)).reshape(-1).astype(np.float32)


@kernel("RequantizationRangePerChannel", T=(dtypes.qint32,), cost=1.0)
def requantization_range_per_channel(c: OpKernelConstruction) -> Compute:
    """One symmetric range for the values of all channels, or one from 0 on if none is negative."""
    most_allowed = np.float32(c.attr("clip_value_max"))

    def compute(values: Any, low: Any, high: Any) -> tuple[Any, Any]:
        ends = _ends(values, low, high)
        if not values.size:
            return np.float32(0), np.float32(0)
        least, most = (np.float32(reduce(values, axis=(0, 1, 2))) for reduce in (np.min, np.max))
        width = min((np.maximum(np.abs(least), np.abs(most)) * ends / _SUMS).max(), most_allowed)
        return np.float32(-width if (least < 0).any() else 0), np.float32(width)

    return compute


@kernel("RequantizePerChannel", T=(dtypes.qint32,), out_type=(dtypes.qint8, dtypes.quint8), cost=4.0, scratch=8)
def requantize_per_channel(c: OpKernelConstruction) -> Compute:
    """The values of all channels in 8 bits of one range, whose larger end counts."""
    dtype = c.output_types[0].np
    info = np.iinfo(dtype)

    def compute(values: Any, low: Any, high: Any, least: Any, most: Any) -> tuple[Any, Any, Any]:
        check_scalars(requested_output_min=least, requested_output_max=most)
        ends, least, most = _ends(values, low, high), least.reshape(()), most.reshape(())
        if not least <= most:
            raise errors.InvalidArgumentError(
                f"requested_output_max must be >= requested_output_min, but got {most:g} and {least:g}"
            )
        width = np.float32(max(abs(least), abs(most)))
        if not width > 0:
            raise errors.InvalidArgumentError("the requested range must have a number other than 0")
        found = values.astype(np.float32)
        found *= _MOST[dtype] * (ends / width) / _SUMS
        np.rint(found, out=found)
        return found.clip(info.min, info.max, found).astype(dtype), least, most

    return compute
