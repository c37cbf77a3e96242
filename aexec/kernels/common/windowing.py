"""Windows that slide over spatial dimensions: their number, the padding, and views of them.

The convolutions and pools of `conv_ops` and the patch kernels of `space_ops` use it. Arrays are batch, spatial
dimensions, channels (NHWC, NDHWC).  The arithmetic is that of core/framework/kernel_shape_util.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch
from aexec.kernels.common.scratch import scratch

__all__ = ["MOST_BYTES", "Part", "Window", "extent", "for_loops", "images_together", "pad", "spatial_attr", "windows"]

# The most bytes of the windows, or of the input that they cover, from which a block of output is computed, unless one
# row of windows takes more.
MOST_BYTES = 1 << 23
# Limit of the elements that windows may reach over the edges: positions have 64 bits.
_FARTHEST = 1 << 62
# What the loops of `aexec.native` take of sizes and positions.
_LOOPS_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension: `count` windows of `size` taps, with `before` and `after` added elements.

    A negative `before` is the number of elements to skip.
    """

    count: int
    size: int
    stride: int
    dilation: int
    before: int
    after: int


def extent(
    length: int,
    size: int,
    stride: int,
    dilation: int,
    padding: str,
    explicit: tuple[int, int] = (0, 0),
    *,
    centred: bool = False,
) -> Window:
    """Return the positions of windows of `size` taps over a dimension of this length.

    Args:
        padding: SAME (ceil(length / stride) windows), VALID (only complete windows) or EXPLICIT.
        explicit: elements added before and after, for EXPLICIT.
        centred: with SAME, if the strides leave a remainder, skip half of it at the beginning
            (a negative `before`).  TensorFlow does this in three dimensions, but not in two.

    Raises:
        InvalidArgumentError: stride or dilation is below 1, the window is larger than the padded dimension, or, with
            SAME, it is too large for 64-bit positions.
    """
    if stride <= 0:
        raise errors.InvalidArgumentError(f"Stride must be > 0, but got {stride}")
    if dilation < 1:
        raise errors.InvalidArgumentError(f"Dilation rate must be >= 1, but got {dilation}")
    reach = (size - 1) * dilation + 1
    if padding == "SAME":
        count = -(-length // stride)
        added = (count - 1) * stride + reach - length
        if added > _FARTHEST:
            raise errors.InvalidArgumentError(f"Windows of an effective size of {reach} are too large")
        if added < 0:
            added = -(-added // 2 * 2) if centred else 0
        return Window(count, size, stride, dilation, added // 2, added - added // 2)
    before, after = explicit if padding == "EXPLICIT" else (0, 0)
    # A quotient of C++ integers, rounded towards zero.
    count = int((length + before + after - reach + stride) / stride)
    if count < 0:
        raise errors.InvalidArgumentError(
            f"Computed output size would be negative: {count} [input_size: {length}, "
            f"effective_filter_size: {reach}, stride: {stride}]"
        )
    return Window(count, size, stride, dilation, before, after)


def pad(xp: Any, x: Any, spec: Sequence[Window], value: Any = 0) -> Any:
    """The array with `before` and `after` elements of `value` around its spatial dimensions; the array itself if
    none.
    """
    if not any(w.before or w.after for w in spec):
        return x
    if any(w.before < 0 for w in spec):
        x = x[(slice(None), *[slice(max(0, -w.before), None) for w in spec])]
        spec = [w if w.before >= 0 else replace(w, before=0, after=0) for w in spec]
    shape = list(x.shape)
    inside = [slice(None)] * x.ndim
    for axis, w in enumerate(spec, start=1):
        shape[axis] += w.before + w.after
        inside[axis] = slice(w.before, w.before + x.shape[axis])
    announce_scratch(prod(shape) * x.itemsize)
    out = xp.zeros(shape, x.dtype) if _is_zero(value) else xp.full(shape, value, x.dtype)
    out[tuple(inside)] = x
    return out


def images_together(spec: Sequence[Window], channels: int, itemsize: int) -> int:
    """The number of images to process at once.  Windows may reach far around an image, and what they cover is
    copied.
    """
    met = prod((w.count - 1) * w.stride + (w.size - 1) * w.dilation + 1 for w in spec)
    return max(1, MOST_BYTES // max(1, met * channels * itemsize))


class Part:
    """Some images and rows of windows, and the part of the input that they cover: all that does not depend on the data.

    Attributes:
        spec: the windows over the array that `met` returns.
        images, rows: as given.
    """

    __slots__ = ("_inside", "_padding", "_shape", "_source", "images", "rows", "spec")

    def __init__(self, spec: Sequence[Window], shape: Sequence[int], images: slice, rows: slice) -> None:
        """`rows` counts windows in the first spatial dimension of an input of this shape."""
        first, *rest = spec
        start = rows.start * first.stride - first.before
        stop = (rows.stop - 1) * first.stride + (first.size - 1) * first.dilation + 1 - first.before
        above, below = (min(max(0, n), stop - start) for n in (-start, stop - shape[1]))
        self.images, self.rows = images, rows
        self.spec = (replace(first, count=rows.stop - rows.start), *rest)
        # Skipped elements are left out of the source; padding goes around it.
        self._source = (images, slice(max(0, start), max(0, stop)), *[slice(max(0, -w.before), None) for w in rest])
        added = [(above, below), *[(max(0, w.before), max(0, w.after)) for w in rest]]
        lengths = [len(range(n)[cut]) for n, cut in zip(shape, self._source, strict=False)]
        self._shape = (lengths[0], *[n + sum(two) for n, two in zip(lengths[1:], added, strict=True)], shape[-1])
        self._inside = (slice(None), *[slice(two[0], two[0] + n) for n, two in zip(lengths[1:], added, strict=True)])
        self._padding = [
            ((slice(None),) * axis + (edge,))
            for axis, (before, after) in enumerate(added, start=1)
            for edge in (slice(before), slice(self._shape[axis] - after, None))
            if len(range(self._shape[axis])[edge])
        ]

    @property
    def elements(self) -> int:
        """The count of elements that `met` returns."""
        return prod(self._shape)

    @property
    def met_elements(self) -> int:
        """The count of elements that `met` copies; 0 if it returns a view."""
        return prod(self._shape) if self._padding else 0

    def met(self, xp: Any, x: Any) -> Any:
        """The elements that the windows cover, padded with 0; valid until the thread calls this again."""
        if not self._padding:
            return x[self._source]
        out = scratch.empty(xp, "padded", self._shape, x.dtype)
        for edge in self._padding:
            out[edge] = 0
        out[self._inside] = x[self._source]
        return out


def _is_zero(value: Any) -> bool:
    return isinstance(value, int) and value == 0


@lru_cache(256)
def for_loops(spec: tuple[Window, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Two-dimensional windows over an input of this shape, [n, h, w, c], as the loops of `aexec.native` take them.

    None if they do not take these: an empty image, or positions beyond 32 bits.
    """
    high, wide = spec
    sizes = (*shape[1:3], high.size, wide.size, high.dilation, wide.dilation, high.stride, wide.stride)
    counts = (high.count, wide.count, abs(high.before), abs(wide.before), high.size * wide.size)
    if min(sizes) < 1 or max(*sizes, *counts) >= _LOOPS_LIMIT:
        return None
    return (*sizes, wide.count, high.before, wide.before)


def windows(xp: Any, x: Any, spec: Sequence[Window]) -> Any:
    """Read-only view [batch, counts..., sizes..., channels] of an already padded array."""
    n, c = x.strides[0], x.strides[-1]
    steps = x.strides[1:-1]
    shape = (x.shape[0], *[w.count for w in spec], *[w.size for w in spec], x.shape[-1])
    strides = (
        n,
        *[s * w.stride for s, w in zip(steps, spec, strict=True)],
        *[s * w.dilation for s, w in zip(steps, spec, strict=True)],
        c,
    )
    if prod(shape) == 0:
        return xp.empty(shape, x.dtype)
    if xp is np and x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, 0, strides)  # as `as_strided`, in a tenth of its time
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def spatial_attr(c: OpKernelConstruction, name: str, spatial: int) -> tuple[int, ...]:
    """The spatial entries of a window attr such as `strides`, given for NHWC or NDHWC.

    Raises:
        InvalidArgumentError: the attr has the wrong length.
        UnimplementedError: windows stride over batch or depth.
        OutOfRangeError: an entry is below 1.
    """
    values = c.attr(name)
    if len(values) != spatial + 2:
        raise errors.InvalidArgumentError(f"input requires {spatial + 2} entries in {name}, got {len(values)}")
    if values[0] != 1 or values[-1] != 1:
        raise errors.UnimplementedError(f"Only support {name} across space.")
    if min(values) < 1:
        raise errors.OutOfRangeError(f"{name} is out of range.")
    return tuple(values[1:-1])
