"""The sizes of a convolution: what its kernels need to know beside the data, and parts to cut its output into.

Next to read: `convolution.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common import windowing

__all__ = ["FILTER_SUMS", "Geometry", "mirrored", "turned_around"]

# A filter's gradient is the sum of this many sums, which cores share.
FILTER_SUMS = 8

# The approximate bytes of a block's inputs and outputs, which stay in a core's second-level cache.
_BLOCK_BYTES = 1 << 20
_DEVICE_BLOCK_BYTES = 1 << 28
_ITEM_BYTES = 4
# BLAS copies the whole kernel for each block, so a block has at least this many pixels, unless they take too much.
_LEAST_PIXELS = 256
# The least length of a run, and the least windows per image, for separate products: smaller ones are faster as one.
_LEAST_RUN, _LEAST_WINDOWS = 128, 1024
# The most filters for which windows of the output are taken instead of windows of the input.
_MOST_SWAPPED = 12


@dataclass(frozen=True)
class Geometry:
    """All properties of a convolution that do not depend on its data.

    Attributes:
        input_shape, filter_shape: [n, ..., c] and [..., c / groups, f].
        spec: the windows, one per spatial dimension.
        on_host: True if parts should stay in a core's cache; else they should be few, as each takes launches.
    """

    input_shape: tuple[int, ...]
    filter_shape: tuple[int, ...]
    spec: tuple[windowing.Window, ...]
    on_host: bool = True

    @cached_property
    def groups(self) -> int:
        return self.input_shape[-1] // self.filter_shape[-2]

    @cached_property
    def taps(self) -> int:
        """Numbers in one window of one group."""
        return prod(self.filter_shape[:-1])

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        return (self.input_shape[0], *[w.count for w in self.spec], self.filter_shape[-1])

    @cached_property
    def is_matmul(self) -> bool:
        """True if every window is one pixel, and every pixel one window."""
        return all(w.size == w.stride == 1 and not w.before and not w.after for w in self.spec)

    @cached_property
    def sampled(self) -> tuple[slice, ...] | None:
        """The pixels that are windows, one slice per spatial dimension, if every window is one pixel of the input.

        None if not, or if all pixels are windows.
        """
        lengths = self.input_shape[1:-1]
        if self.is_matmul or self.groups != 1:
            return None
        if any(
            w.size > 1 or w.before or (w.count - 1) * w.stride >= n for w, n in zip(self.spec, lengths, strict=True)
        ):
            return None
        return tuple(slice(0, (w.count - 1) * w.stride + 1, w.stride) for w in self.spec)

    @cached_property
    def run(self) -> int:
        """Numbers of one row of a window."""
        return prod(self.filter_shape[1:-1])

    @cached_property
    def shares_rows(self) -> bool:
        """True if it pays to copy each row of the windows once, for all windows that have it."""
        first, windows = self.spec[0], prod(w.count for w in self.spec)
        long = self.run >= max(_LEAST_RUN, self.filter_shape[-1])
        return self.groups == 1 and first.stride == 1 and first.size > 1 and long and windows >= _LEAST_WINDOWS

    @cached_property
    def mirrored(self) -> Geometry | None:
        """The convolution of the output's gradient with the flipped kernel that gives the input's gradient.

        None if there is no such simple form: with strides, groups, or padding that no window needs.
        """
        spec = mirrored(self.spec, self.input_shape[1:-1])
        if spec is None or self.groups != 1:
            return None
        *sizes, depth, filters = self.filter_shape
        return Geometry(self.output_shape, (*sizes, filters, depth), spec, self.on_host)

    @cached_property
    def swapped(self) -> Geometry | None:
        """`mirrored`, if the filters are so few that windows of the output are smaller than windows of the input.

        The convolution is then the input's gradient of the mirrored one, and the filter's gradient that of the
        mirrored one with input and gradient swapped, turned around.
        """
        depth, filters = self.filter_shape[-2:]
        return self.mirrored if filters <= _MOST_SWAPPED and filters < depth else None

    @cached_property
    def parts(self) -> list[windowing.Part]:
        """Parts of limited size that the output is cut into; the pixels of a part are contiguous."""
        images, rows = self.input_shape[0], self.spec[0].count
        width = prod(w.count for w in self.spec[1:])
        bytes_per_pixel = max(self.taps, self.filter_shape[-1]) * _ITEM_BYTES
        least = max(1, min(_LEAST_PIXELS, windowing.MOST_BYTES // bytes_per_pixel))
        fit = max(least, (_BLOCK_BYTES if self.on_host else _DEVICE_BLOCK_BYTES) // bytes_per_pixel)
        if rows * width <= fit:
            step = fit // (rows * width)
            if self.on_host:
                step = min(step, windowing.images_together(self.spec, self.input_shape[-1], _ITEM_BYTES))
            return [self._part(slice(i, min(i + step, images)), slice(0, rows)) for i in range(0, images, step)]
        if rows * width < 2 * least:
            parts = 1
        else:
            parts = min(rows, -(-rows * width // fit))
        bounds = [rows * i // parts for i in range(parts + 1)]
        cuts = [slice(start, stop) for start, stop in pairwise(bounds)]
        return [self._part(slice(i, i + 1), cut) for i in range(images) for cut in cuts]

    @cached_property
    def part_elements(self) -> int:
        """The numbers that a part is computed from: its windows, and the input that they cover."""
        part, width = self.parts[0], prod(w.count for w in self.spec[1:])
        windows: int = (part.images.stop - part.images.start) * (part.rows.stop - part.rows.start) * width
        return windows * self.taps + part.met_elements

    def _part(self, images: slice, rows: slice) -> windowing.Part:
        check_wanted()
        return windowing.Part(self.spec, self.input_shape, images, rows)


def mirrored(spec: Sequence[windowing.Window], lengths: Sequence[int]) -> tuple[windowing.Window, ...] | None:
    """The windows over the output's gradient whose sums are the gradient of an input of these lengths.

    None if there is no such simple form: with strides, or padding that no window needs.
    """
    found = []
    for w, length in zip(spec, lengths, strict=True):
        reach = (w.size - 1) * w.dilation
        before = reach - w.before
        after = length + reach - before - w.count
        if w.stride != 1 or before < 0 or after < 0:
            return None
        found.append(replace(w, count=length, before=before, after=after))
    return tuple(found)


def turned_around(kernel: Any) -> Any:
    """The kernel of `Geometry.mirrored`."""
    return kernel[(slice(None, None, -1),) * (kernel.ndim - 2)].swapaxes(-1, -2)
