"""Depthwise convolution and its gradients: every channel has filters of its own.

There is no matrix product in it: the input, shifted to each position of the filter
window, is multiplied by that position's weights and added up, in blocks of output
rows small enough to stay in the cache.  Where a channel has one filter, `einsum` does
both in one go, and its inner loop is a stretch of several pixels, with their weights
repeated.
Next to read: `pooling_ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common import windowing
from aexec.kernels.nn.conv_ops import explicit_pairs

__all__: list[str] = []

_NARROW = (dtypes.float16, dtypes.bfloat16)
# Bytes of output worked on at once.
_BLOCK_BYTES = 1 << 18
# Numbers of an inner loop, about: it should be long, and what it needs stay in the first cache.
_STRETCH = 1024


class _Depthwise:
    """The attrs of a depthwise convolution, and the windows that they give for shapes."""

    def __init__(self, c: OpKernelConstruction) -> None:
        strides, dilations = c.attr("strides"), c.attr("dilations")
        self.layout = c.text("data_format")
        channels = 1 if self.layout == "NCHW" else 3
        if len(strides) != 4:
            raise errors.InvalidArgumentError("Sliding window strides field must specify 4 dimensions")
        rows, cols = (s for i, s in enumerate(strides) if i not in (0, channels))
        if rows != cols:
            raise errors.InvalidArgumentError(
                "Current implementation only supports equal length strides in the row and column dimensions."
            )
        if strides[0] != 1 or strides[channels] != 1:
            raise errors.InvalidArgumentError(
                "Current implementation does not yet support strides in the batch and depth dimensions."
            )
        if len(dilations) != 4 or dilations[0] != 1 or dilations[channels] != 1:
            raise errors.UnimplementedError(
                f"Current kernel implementation does not support dilations, received [{' '.join(map(str, dilations))}]"
            )
        self.stride = rows
        self.dilations = tuple(d for i, d in enumerate(dilations) if i not in (0, channels))
        self.padding = c.text("padding")
        self.explicit = explicit_pairs(c, 4, channels)
        self.result = c.output_types[0].np
        self.inner = np.dtype(np.float32) if c.output_types[0] in _NARROW else self.result

    def spec(self, shape: Sequence[int], filter_shape: Sequence[int]) -> tuple[windowing.Window, ...]:
        if self.layout != "NHWC":
            raise errors.UnimplementedError("Depthwise convolution on CPU is only supported for NHWC format")
        return tuple(
            windowing.extent(shape[i + 1], filter_shape[i], self.stride, self.dilations[i], self.padding, pair)
            for i, pair in enumerate(self.explicit)
        )


def _shifted(x: Any, spec: Sequence[windowing.Window], at: tuple[int, int], images: slice, rows: slice) -> Any:
    """The input pixels that filter position `at` meets for the output pixels of a block: [n, rows, cols, c]."""
    high, wide = spec
    top, left = at[0] * high.dilation, at[1] * wide.dilation
    return x[
        images,
        top + rows.start * high.stride : top + (rows.stop - 1) * high.stride + 1 : high.stride,
        left : left + (wide.count - 1) * wide.stride + 1 : wide.stride,
    ]


def _blocks(batch: int, spec: Sequence[windowing.Window], bytes_per_pixel: int) -> Iterator[tuple[slice, slice]]:
    rows = spec[0].count
    fit = max(1, _BLOCK_BYTES // max(1, spec[1].count * bytes_per_pixel))
    images = max(1, fit // max(1, rows))
    for n in range(0, batch, images):
        for r in range(0, rows, min(fit, rows)):
            yield slice(n, min(n + images, batch)), slice(r, min(r + fit, rows))


def _positions(spec: Sequence[windowing.Window]) -> list[tuple[int, int]]:
    return [(i, j) for i in range(spec[0].size) for j in range(spec[1].size)]


def _cost(x: Any, weights: Any, *grad: Any) -> float:
    size = max((a.size for a in (x, *grad)), default=0)
    taps = weights.shape[0] * weights.shape[1] if np.ndim(weights) == 4 else 9
    return 0.5 * size * taps


@kernel("DepthwiseConv2dNative", T=dtypes.FLOAT, cost=_cost)
def depthwise_conv_2d(c: OpKernelConstruction) -> Compute:
    """input [n, h, w, c] with filter [h, w, c, m] gives c × m channels.  Dilations are supported."""
    xp, conv = c.xp, _Depthwise(c)

    def compute(x: Any, weights: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(f"input must be 4-dimensional{shape_text(x.shape)}")
        if weights.ndim != 4:
            raise errors.InvalidArgumentError(f"filter must be 4-dimensional: {shape_text(weights.shape)}")
        depth, times = weights.shape[2:]
        if conv.layout == "NHWC" and x.shape[3] != depth:
            raise errors.InvalidArgumentError(f"input and filter must have the same depth: {x.shape[3]} vs {depth}")
        spec = conv.spec(x.shape, weights.shape)
        x, weights = x.astype(conv.inner, copy=False), weights.astype(conv.inner, copy=False)
        # With one filter each every number is written, else added to.
        make = xp.empty if times == 1 else xp.zeros
        out = make((x.shape[0], spec[0].count, spec[1].count, depth, times), conv.inner)
        if out.size and times == 1:
            _one_filter_each(xp, x, weights[..., 0], out[..., 0], spec)
        elif out.size:
            _multiply_add(xp, windowing.pad(xp, x, spec), weights, out, spec)
        return out.reshape(*out.shape[:3], depth * times).astype(conv.result, copy=False)

    return compute


def _multiply_add(xp: Any, x: Any, weights: Any, out: Any, spec: Sequence[windowing.Window]) -> None:
    """Add every position's products to `out` [n, rows, cols, c, m]."""
    for images, rows in _blocks(out.shape[0], spec, out[0, 0, 0].nbytes):
        target = out[images, rows]
        product = xp.empty(target.shape, out.dtype)
        for at in _positions(spec):
            pixels = _shifted(x, spec, at, images, rows)
            target += xp.multiply(pixels[..., None], weights[at], out=product)


def _one_filter_each(xp: Any, x: Any, weights: Any, out: Any, spec: Sequence[windowing.Window]) -> None:
    """Write the convolution of `x` (not padded) with `weights` [h, w, c] into `out` [n, rows, cols, c]."""
    high, wide = spec
    depth = x.shape[3]
    # Output pixels side by side meet input pixels side by side, unless there is a stride.
    pixels = max(1, min(wide.count, _STRETCH // depth)) if wide.stride == 1 else 1
    repeated = xp.repeat(weights[:, :, None], pixels, axis=2).reshape(high.size, wide.size, -1)
    whole = wide.count // pixels * pixels
    padded = _PaddedRows(xp, x, spec)
    for images, rows in _blocks(out.shape[0], spec, out[0, 0, 0].nbytes):
        block, target = padded(images, rows), out[images, rows]
        for first, last, count in ((0, whole, pixels), (whole, wide.count, wide.count - whole)):
            if first == last:
                continue
            n, row, col, _ = block.strides
            shape = (*target.shape[:2], (last - first) // count, high.size, wide.size, count * depth)
            strides = (n, row * high.stride, col * wide.stride * count, row * high.dilation, col * wide.dilation)
            view = xp.lib.stride_tricks.as_strided(
                block[:, :, first * wide.stride :], shape, (*strides, block.itemsize)
            )
            stretch = target[:, :, first:last].reshape(*shape[:3], count * depth)
            xp.einsum("nrsijc,ijc->nrsc", view, repeated[:, :, : count * depth], out=stretch)


class _PaddedRows:
    """The input rows that a block of output rows meets, with padding around them, in a buffer that is used again."""

    def __init__(self, xp: Any, x: Any, spec: Sequence[windowing.Window]) -> None:
        self._xp, self._x, self._spec = xp, x, spec
        self._buffer: Any = None

    def __call__(self, images: slice, rows: slice) -> Any:
        (high, wide), x = self._spec, self._x
        first = rows.start * high.stride - high.before
        length = (rows.stop - rows.start - 1) * high.stride + (high.size - 1) * high.dilation + 1
        if not (high.before or high.after or wide.before or wide.after):
            return self._xp.ascontiguousarray(x[images, first : first + length])
        if self._buffer is None:  # The first block is the largest.
            width = x.shape[2] + wide.before + wide.after
            self._buffer = self._xp.zeros((images.stop - images.start, length, width, x.shape[3]), x.dtype)
        block = self._buffer[: images.stop - images.start, :length]
        start = min(max(-first, 0), length)
        stop = max(start, min(x.shape[1] - first, length))
        block[:, :start], block[:, stop:] = 0, 0
        block[:, start:stop, wide.before : wide.before + x.shape[2]] = x[images, first + start : first + stop]
        return block


def _sizes(values: Any, what: str, label: str) -> tuple[int, ...]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise errors.InvalidArgumentError(f"Conv2DBackpropInput: {what} input must be 1-dim, not {array.ndim}")
    sizes = tuple(array.tolist())
    for i, size in enumerate(sizes):
        if size < 0:
            raise errors.InvalidArgumentError(f"Dimension {i} of {what} must be >= 0")
    if len(sizes) != 4:
        raise errors.InvalidArgumentError(f"{label}: {what.partition('_')[0]} must be 4-dimensional")
    return sizes


def _check_gradient(
    conv: _Depthwise, label: str, shape: Sequence[int], filter_shape: Sequence[int], grad: Any
) -> tuple[windowing.Window, ...]:
    for what, rank in (("input", len(shape)), ("filter", len(filter_shape)), ("out_backprop", grad.ndim)):
        if rank != 4:
            raise errors.InvalidArgumentError(f"{label}: {what} must be 4-dimensional")
    if shape[0] != grad.shape[0]:
        raise errors.InvalidArgumentError(f"{label}: input and out_backprop must have the same batch size")
    if shape[3] != filter_shape[2]:
        raise errors.InvalidArgumentError(f"{label}: input and filter must have the same in_depth")
    if filter_shape[2] * filter_shape[3] != grad.shape[3]:
        raise errors.InvalidArgumentError(f"{label}: depth_multiplier * in_depth not equal to out_depth")
    spec = conv.spec(shape, filter_shape)
    for i, what in enumerate(("rows", "cols")):
        if grad.shape[i + 1] != spec[i].count:
            raise errors.InvalidArgumentError(
                f"{label}: Number of {what} of out_backprop doesn't match computed: "
                f"actual = {grad.shape[i + 1]}, computed = {spec[i].count}"
            )
    return spec


@kernel("DepthwiseConv2dNativeBackpropInput", T=dtypes.FLOAT, cost=_cost)
def depthwise_conv_2d_backprop_input(c: OpKernelConstruction) -> Compute:
    """Gradient for the input, whose shape is the first argument."""
    xp, conv, label = c.xp, _Depthwise(c), "DepthwiseConv2DBackpropInput"

    def compute(input_sizes: Any, weights: Any, grad: Any) -> Any:
        shape = _sizes(input_sizes, "input_sizes", label)
        spec = _check_gradient(conv, label, shape, weights.shape, grad)
        weights, grad = weights.astype(conv.inner, copy=False), grad.astype(conv.inner, copy=False)
        high, wide = spec
        padded = xp.zeros(
            (shape[0], shape[1] + high.before + high.after, shape[2] + wide.before + wide.after, shape[3]),
            conv.inner,
        )
        if grad.size:
            grad = grad.reshape(*grad.shape[:3], *weights.shape[2:])
            for images, rows in _blocks(shape[0], spec, grad[0, 0, 0].nbytes):
                part = grad[images, rows]
                for at in _positions(spec):
                    target = _shifted(padded, spec, at, images, rows)
                    product = part * weights[at]
                    target += product[..., 0] if weights.shape[3] == 1 else product.sum(axis=-1)
        out = padded[:, high.before : high.before + shape[1], wide.before : wide.before + shape[2]]
        return out.astype(conv.result, copy=False)

    return compute


@kernel("DepthwiseConv2dNativeBackpropFilter", T=dtypes.FLOAT, cost=_cost)
def depthwise_conv_2d_backprop_filter(c: OpKernelConstruction) -> Compute:
    """Gradient for the filter, whose shape is the second argument."""
    xp, conv, label = c.xp, _Depthwise(c), "DepthwiseConv2DBackpropFilter"

    def compute(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = _sizes(filter_sizes, "filter_sizes", label)
        spec = _check_gradient(conv, label, x.shape, shape, grad)
        out = xp.zeros(shape, conv.inner)
        if grad.size and out.size:
            x, grad = x.astype(conv.inner, copy=False), grad.astype(conv.inner, copy=False)
            x, grad = windowing.pad(xp, x, spec), grad.reshape(*grad.shape[:3], *shape[2:])
            for images, rows in _blocks(x.shape[0], spec, grad[0, 0, 0].nbytes):
                part = grad[images, rows]
                for at in _positions(spec):
                    pixels = _shifted(x, spec, at, images, rows)
                    out[at] += xp.einsum("nrkc,nrkcm->cm", pixels, part)
        return out.astype(conv.result, copy=False)

    return compute
