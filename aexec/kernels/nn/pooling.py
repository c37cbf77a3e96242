"""Code that all pooling kernels share: the checked attrs of a pool, and the taps of its windows.

A tap is one position of the window.  For each tap there is a box of the outputs whose windows have that tap inside the
input, and a box of the inputs that it covers there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common import windowing
from aexec.kernels.nn.conv_ops import explicit_pairs

__all__ = ["Layout", "Pool", "Pool2D", "Pool3D", "Tap", "TapBox", "lowest", "pool_cost", "taps", "window_cost"]

_INT32_MAX = 2**31 - 1
# Number of taps processed without giving way; bytes and nanoseconds per tap.
_FEW_TAPS = 200
_TAP_BYTES, _TAP_NS = 320, 2_000.0

Box = tuple[slice, ...]
# The tap's number, row by row; its outputs; its inputs; both as indices into [batch, spatial..., channels] arrays.
Tap = tuple[int, Box, Box]
# A tap in one dimension: its number, its outputs, its inputs.
TapBox = tuple[int, slice, slice]


def lowest(dtype: np.dtype[Any]) -> Any:
    """The lowest finite number of a type."""
    return (np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)).min


def _tap_boxes(w: windowing.Window, length: int) -> list[TapBox]:
    """(tap, outputs, inputs) for each tap of a dimension that is inside the input for some window.

    However large the window is, there are not many more such taps than elements of the input.
    """
    boxes = []
    nearest = w.before - (w.count - 1) * w.stride  # the first tap of the last window that is inside
    inside: Iterable[int]
    inside = range(max(0, -(-nearest // w.dilation)), min(w.size, (w.before + length - 1) // w.dilation + 1))
    if len(inside) > _FEW_TAPS:
        announce_scratch(_TAP_BYTES * len(inside))
        inside = giving_way(inside, _TAP_NS)
    for at in inside:
        offset = at * w.dilation - w.before
        first = max(0, -(offset // w.stride)) if offset < 0 else 0
        last = min(w.count, (length - 1 - offset) // w.stride + 1) if length > offset else 0
        if first < last:
            start = first * w.stride + offset
            boxes.append((at, slice(first, last), slice(start, start + (last - first - 1) * w.stride + 1, w.stride)))
    return boxes


def taps(spec: Sequence[windowing.Window], shape: Sequence[int]) -> Iterator[Tap]:
    """Yield the taps of windows over an input of this shape, row by row, that are inside the input for some window."""
    return Layout(tuple(spec), tuple(shape)).taps()


class Layout:
    """The windows of a pool over inputs of one shape.

    Attributes:
        spec: one per spatial dimension.
        output: the output's shape.
        size: the number of taps of a window.
    """

    __slots__ = ("_boxes", "_lengths", "output", "size", "spec")

    def __init__(self, spec: tuple[windowing.Window, ...], shape: tuple[int, ...]) -> None:
        self.spec, self._lengths = spec, shape[1:-1]
        self.size = prod(w.size for w in spec)
        self.output = (shape[0], *[w.count for w in spec], shape[-1])
        self._boxes = [_tap_boxes(w, length) for w, length in zip(spec, self._lengths, strict=True)]

    def taps(self, *, backwards: bool = False) -> Iterator[Tap]:
        """Yield the taps, row by row, that are inside the input for some window."""
        every = slice(None)
        together: Iterable[tuple[TapBox, ...]]
        together = product(*(reversed(b) for b in self._boxes) if backwards else self._boxes)
        if prod([len(b) for b in self._boxes]) > _FEW_TAPS:
            together = giving_way(together, _TAP_NS)
        for boxes in together:
            number = 0
            for (at, _, _), w in zip(boxes, self.spec, strict=True):
                number = number * w.size + at
            yield number, (every, *[b[1] for b in boxes]), (every, *[b[2] for b in boxes])

    def boxes(self, dimension: int) -> Sequence[TapBox]:
        """The taps along one spatial dimension that are inside the input for some window."""
        return self._boxes[dimension]

    def add_spread(self, xp: Any, y: Any, out: Any) -> None:
        """Add each number of `y`, which has the output's shape, to all elements of its window in `out`."""
        shape = list(y.shape)
        for axis, boxes in enumerate(self._boxes[1:], start=2):
            shape[axis] = self._lengths[axis - 1]
            wider, every = xp.zeros(shape, y.dtype), (slice(None),) * axis
            for _, where, source in boxes:
                target = wider[(*every, source)]
                target += y[(*every, where)]
            y = wider
        for _, where, source in self._boxes[0]:
            target = out[:, source]
            target += y[:, where]

    def counts(self, xp: Any, dtype: np.dtype[Any]) -> Any:
        """The number of taps of each window inside the input: [counts..., 1], or one number for all."""
        if all(_inside(w, length) for w, length in zip(self.spec, self._lengths, strict=True)):
            return dtype.type(self.size)
        total = xp.ones(1, np.int64)
        for w, length in zip(self.spec, self._lengths, strict=True):
            start = xp.arange(w.count) * w.stride - w.before
            inside = xp.minimum(start + w.size, length) - xp.maximum(start, 0)
            total = total[..., None] * inside
        return total[0][..., None].astype(dtype)

    def side_by_side(self, x: Any) -> Any:
        """The view [n, count, size, count, size, ..., c] of an input whose windows neither overlap nor leave gaps.

        None if they do, or are not all inside the input.
        """
        for w, length in zip(self.spec, self._lengths, strict=True):
            if w.stride != w.size or w.before or not _inside(w, length):
                return None
        part = x[(slice(None), *[slice(w.count * w.size) for w in self.spec])]
        return part.reshape(x.shape[0], *[n for w in self.spec for n in (w.count, w.size)], x.shape[-1])

    def spread(self, y: Any) -> Any:
        """The view of an output that broadcasts against `side_by_side`."""
        return y.reshape(y.shape[0], *[n for w in self.spec for n in (w.count, 1)], y.shape[-1])


def _inside(w: windowing.Window, length: int) -> bool:
    """True if all windows are completely inside a dimension of this length."""
    return w.before <= 0 and (w.count - 1) * w.stride - w.before + w.size <= length


def pool_cost(x: Any, *_: Any) -> float:
    """A few passes over the tensor: see `window_reduction.py`."""
    return 2.0 * float(x.size)


def window_cost(x: Any, *rest: Any) -> float:
    """A window has about ten taps; each costs a pass over the tensor."""
    return 5.0 * max((a.size for a in (x, *rest)), default=0)


class Pool:
    """The checked attrs of a pool.

    Attributes:
        sizes, strides: of the window, spatial dimensions only.
        depth, depth_stride: of the window over the channels.
    """

    spatial = 0
    layout_names = ("", "")

    def __init__(self, c: OpKernelConstruction, label: str, ksize: Any = None, strides: Any = None) -> None:
        """Checks the attrs; `label` names TensorFlow's kernel in the error about the layout.

        Raises:
            InvalidArgumentError: channels first; ksize or strides of the wrong length, or not positive.
            UnimplementedError: a window over the batch.
        """
        self.layout = c.text("data_format") if "data_format" in c.attrs else self.layout_names[0]
        self.channels = 1 if self.layout == self.layout_names[1] else self.spatial + 1
        if self.layout != self.layout_names[0]:
            raise errors.InvalidArgumentError(
                f"Default {label} only supports {self.layout_names[0]} on device type CPU"
            )
        sizes, steps = self._vector(c, "ksize", ksize), self._vector(c, "strides", strides)
        if sizes[0] != 1 or steps[0] != 1:
            raise errors.UnimplementedError("Pooling is not yet supported on the batch dimension.")
        self.check_sizes(c.op, sizes)
        self.depth, self.depth_stride = sizes[self.channels], steps[self.channels]
        self.sizes, self.strides = self._spatial(sizes), self._spatial(steps)
        self.padding = c.text("padding")
        self.explicit = explicit_pairs(c, self.spatial + 2, self.channels) if self.padding == "EXPLICIT" else None
        if self.explicit is not None:
            self._check_explicit(self.explicit)
        # The last shape, and the layout for it.
        self._known: tuple[Any, Layout | None] = (None, None)

    def _vector(self, c: OpKernelConstruction, name: str, value: Any) -> list[int]:
        values = list(c.attr(name)) if value is None else np.asarray(value).ravel()[: self.spatial + 3].tolist()
        if len(values) != self.spatial + 2:
            raise errors.InvalidArgumentError(f"Sliding window {name} field must specify {self.spatial + 2} dimensions")
        for size in values:
            if size > _INT32_MAX:
                raise errors.InvalidArgumentError(f"Attr {name} has value {size} out of range for an int32")
        return values

    def _spatial(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(v for i, v in enumerate(values) if i not in (0, self.channels))

    def _check_explicit(self, pairs: Sequence[tuple[int, int]]) -> None:
        for names, pair, size in zip((("Top", "Bottom"), ("Left", "Right")), pairs, self.sizes, strict=False):
            for name, amount in zip(names, pair, strict=True):
                if amount >= size:
                    raise errors.InvalidArgumentError(
                        f"{name} padding {amount} needs to be smaller than the window size {size}"
                    )

    def check_sizes(self, op: str, sizes: Sequence[int]) -> None:
        """Raise InvalidArgumentError unless the window has elements."""

    def check_input(self, x: Any) -> None:
        """Raise InvalidArgumentError for an input of another rank."""
        raise errors.InternalError("a pool has two or three spatial dimensions")

    def windows(self, shape: tuple[int, ...], *, centred: bool = False) -> Layout:
        """The windows over an input of this shape; `centred` as in `windowing.extent`."""
        seen, layout = self._known
        if seen != (shape, centred) or layout is None:
            pairs = self.explicit or ((0, 0),) * self.spatial
            spec = tuple(
                windowing.extent(length, size, stride, 1, self.padding, pair, centred=centred)
                for length, size, stride, pair in zip(shape[1:-1], self.sizes, self.strides, pairs, strict=True)
            )
            layout = Layout(spec, shape)
            self._known = ((shape, centred), layout)
        return layout


class Pool2D(Pool):
    """A pool over height and width, or over depth."""

    spatial = 2
    layout_names = ("NHWC", "NCHW")

    def check_sizes(self, op: str, sizes: Sequence[int]) -> None:
        if min(sizes) > 0:
            return
        if op.startswith("Avg"):
            raise errors.InvalidArgumentError(f"ksize must be a positive int32 value, got:{min(sizes)}")
        raise errors.InvalidArgumentError(
            "Sliding window ksize must be positive. The specified or inferred ksize is: " + ",".join(map(str, sizes))
        )

    def check_input(self, x: Any) -> None:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(
                f"tensor_in_shape must have 2 spatial dimensions. {x.ndim} {self.layout_names.index(self.layout)}"
            )


class Pool3D(Pool):
    """A pool over three spatial dimensions."""

    spatial = 3
    layout_names = ("NDHWC", "NCDHW")

    def check_sizes(self, op: str, sizes: Sequence[int]) -> None:
        if min(sizes) <= 0:
            raise errors.InvalidArgumentError("Sliding window ksize field must have non-negative dimensions")
        if sizes[self.channels] != 1:
            raise errors.UnimplementedError("Pooling is not yet supported on the depth dimension.")

    def check_input(self, x: Any) -> None:
        if x.ndim != 5:
            raise errors.InvalidArgumentError("tensor_in must be 5-dimensional")
