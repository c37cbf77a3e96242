"""DepthwiseConv2dNative and its gradients.  The arithmetic of the forward op is in `depthwise.py`.

Next to read: `pooling_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.fusions import Fusion
from aexec.kernels.common.gpu.depthwise_code import depthwise_kernel
from aexec.kernels.nn import depthwise
from aexec.kernels.nn.conv_ops import announce_wider_convolution, explicit_pairs
from aexec.kernels.nn.convolution_geometry import mirrored

__all__ = ["depthwise_conv_2d_then", "depthwise_cost"]

_NARROW = (dtypes.float16, dtypes.bfloat16)


class _Depthwise:
    """The attrs of a depthwise convolution; makes its windows for given shapes."""

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


def _dilated(cost: Callable[..., float]) -> AttrCost:
    """The cost of a kernel whose dilated windows may reach far beyond the image: the padding is computed with, too."""

    def of_attrs(attrs: Mapping[str, Any]) -> Callable[..., float]:
        dilations = attrs["dilations"][1:3]
        if max(dilations, default=1) <= 1:
            return cost

        def dilated_cost(*inputs: Any) -> float:
            image, filter_shape = inputs[2 if len(inputs) > 2 and inputs[2].ndim == 4 else 0], _filter_shape(inputs[1])
            sides = zip(image.shape[1:3], filter_shape, dilations, strict=False)
            growth: float = math.prod([1 + (size - 1) * by / max(1, n) for n, size, by in sides])
            return cost(*inputs) + growth * float(image.size)

        return dilated_cost

    return AttrCost(of_attrs)


def _filter_shape(filter_or_shape: Any) -> Sequence[int]:
    of_filter: Sequence[int] = filter_or_shape.shape if filter_or_shape.ndim > 1 else filter_or_shape[:4].tolist()
    return of_filter


def _forward_cost(x: Any, weights: Any, *_: Any) -> float:
    """Nanoseconds of a forward convolution with stride 1."""
    steps: float = x.size * weights.size / max(1, x.shape[-1]) if x.ndim else 0.0
    return 0.3 * steps + float(x.size)


def _gradient_cost(a: Any, b: Any, grad: Any) -> float:
    """Nanoseconds of a gradient; one of the first two inputs is a shape: of the input, or of the filter."""
    size: int = max(a.size, grad.size)
    return (depthwise.POSITION_NS + 0.5 * size) * math.prod(_filter_shape(b)[:2])


depthwise_cost, _of_gradient = _dilated(_forward_cost), _dilated(_gradient_cost)


@kernel("DepthwiseConv2dNative", T=dtypes.FLOAT, cost=depthwise_cost)
def depthwise_conv_2d(c: OpKernelConstruction) -> Compute:
    """Convolves input [n, h, w, c] with filter [h, w, c, m] to c × m channels.  Dilations are supported."""
    return depthwise_conv_2d_then(c, None)


def depthwise_conv_2d_then(c: OpKernelConstruction, fusion: Fusion | None) -> Compute:
    """DepthwiseConv2dNative, with the fused ops, if any, applied to its output; they take the extra inputs."""
    xp, conv = c.xp, _Depthwise(c)
    in_one_launch = depthwise_kernel(xp, dtypes.as_dtype(conv.inner))

    def compute(x: Any, weights: Any, *args: Any) -> Any:
        if x.ndim != 4:
            raise errors.InvalidArgumentError(f"input must be 4-dimensional{shape_text(x.shape)}")
        if weights.ndim != 4:
            raise errors.InvalidArgumentError(f"filter must be 4-dimensional: {shape_text(weights.shape)}")
        depth, times = weights.shape[2:]
        if conv.layout == "NHWC" and x.shape[3] != depth:
            raise errors.InvalidArgumentError(f"input and filter must have the same depth: {x.shape[3]} vs {depth}")
        spec = conv.spec(x.shape, weights.shape)
        shape = (len(x), *[w.count for w in spec], depth * times)
        announce_wider_convolution(conv.inner, conv.result, shape, x, weights)
        x, weights = x.astype(conv.inner, copy=False), weights.astype(conv.inner, copy=False)

        def make(epilogue: Epilogue | None = None) -> Any:
            if in_one_launch is None:
                return depthwise.forward(xp, x, weights, spec, epilogue)
            made = in_one_launch(x, weights, spec, xp.empty(shape, conv.inner))
            apply_in_blocks(made, epilogue)
            return made

        out = make() if fusion is None else fusion.of(shape, args, make)
        return out.astype(conv.result, copy=False)

    return compute


def _sizes(values: Any, what: str, label: str) -> tuple[int, ...]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise errors.InvalidArgumentError(f"Conv2DBackpropInput: {what} input must be 1-dim, not {array.ndim}")
    if array.size != 4:
        raise errors.InvalidArgumentError(f"{label}: {what.partition('_')[0]} must be 4-dimensional")
    sizes = tuple(array.tolist())
    for i, size in enumerate(sizes):
        if size < 0:
            raise errors.InvalidArgumentError(f"Dimension {i} of {what} must be >= 0")
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


@kernel("DepthwiseConv2dNativeBackpropInput", T=dtypes.FLOAT, cost=_of_gradient)
def depthwise_conv_2d_backprop_input(c: OpKernelConstruction) -> Compute:
    """Gradient for the input, whose shape is the first argument."""
    xp, conv, label = c.xp, _Depthwise(c), "DepthwiseConv2DBackpropInput"

    def compute(input_sizes: Any, weights: Any, grad: Any) -> Any:
        shape = _sizes(input_sizes, "input_sizes", label)
        spec = _check_gradient(conv, label, shape, weights.shape, grad)
        high, wide = spec
        announce_wider_convolution(conv.inner, conv.result, (0,), weights, grad)  # the output is announced below
        weights, grad = weights.astype(conv.inner, copy=False), grad.astype(conv.inner, copy=False)
        turned = mirrored(spec, shape[1:3]) if xp is np and weights.shape[3] == 1 else None
        if turned is not None and grad.size:
            flipped = np.ascontiguousarray(weights[::-1, ::-1])
            return depthwise.forward(np, grad, flipped, turned).astype(conv.result, copy=False)
        widened = (shape[0], shape[1] + high.before + high.after, shape[2] + wide.before + wide.after, shape[3])
        announce_scratch(math.prod(widened) * conv.inner.itemsize)
        padded = xp.zeros(widened, conv.inner)
        if grad.size:
            announce_scratch(2 * wide.count * grad[0, 0, 0].nbytes)  # the products of at least one row
            grad = grad.reshape(*grad.shape[:3], *weights.shape[2:])
            for images, rows in depthwise.blocks(shape[0], spec, grad[0, 0, 0].nbytes):
                part = grad[images, rows]
                for at in depthwise.positions(spec):
                    target = depthwise.shifted(padded, spec, at, images, rows)
                    product = part * weights[at]
                    target += product[..., 0] if weights.shape[3] == 1 else product.sum(axis=-1)
        out = padded[:, high.before : high.before + shape[1], wide.before : wide.before + shape[2]]
        return out.astype(conv.result, copy=False)

    return compute


@kernel("DepthwiseConv2dNativeBackpropFilter", T=dtypes.FLOAT, cost=_of_gradient)
def depthwise_conv_2d_backprop_filter(c: OpKernelConstruction) -> Compute:
    """Gradient for the filter, whose shape is the second argument."""
    xp, conv, label = c.xp, _Depthwise(c), "DepthwiseConv2DBackpropFilter"

    def compute(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = _sizes(filter_sizes, "filter_sizes", label)
        spec = _check_gradient(conv, label, x.shape, shape, grad)
        out = xp.zeros(shape, conv.inner)
        if grad.size and out.size:
            announce_wider_convolution(conv.inner, conv.result, out.shape, x, grad)
            x, grad = x.astype(conv.inner, copy=False), grad.astype(conv.inner, copy=False)
            made = depthwise.backprop_filter(x, grad, shape, spec) if xp is np else None
            if made is not None:
                return made.astype(conv.result, copy=False)
            x, grad = windowing.pad(xp, x, spec), grad.reshape(*grad.shape[:3], *shape[2:])
            for images, rows in depthwise.blocks(x.shape[0], spec, grad[0, 0, 0].nbytes):
                part = grad[images, rows]
                for at in depthwise.positions(spec):
                    pixels = depthwise.shifted(x, spec, at, images, rows)
                    out[at] += xp.einsum("nrkc,nrkcm->cm", pixels, part)
        return out.astype(conv.result, copy=False)

    return compute
