"""Convolutions over three spatial dimensions, and their gradients.

Channels last only, as in TensorFlow's CPU kernels.  With SAME padding the forward op centres its windows if strides
leave elements over; see `windowing.extent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import MAX_RANK, shape_text
from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue
from aexec.kernels.common.fusions import Fusion
from aexec.kernels.nn import convolution
from aexec.kernels.nn.conv_ops import announce_wider_convolution, check_extents, conv_cost, gradient_cost
from aexec.kernels.nn.convolution_geometry import Geometry

__all__ = ["conv_3d_then"]

_NARROW = (dtypes.float16, dtypes.bfloat16)


def _inner(c: OpKernelConstruction) -> np.dtype[Any]:
    """The type to compute in."""
    dtype = c.output_types[0]
    return np.dtype(np.float32) if dtype in _NARROW else dtype.np


class _Conv3D:
    """The attrs of a 3-D convolution."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.layout = c.text("data_format") if "data_format" in c.attrs else "NDHWC"
        channels = 1 if self.layout == "NCDHW" else 4
        self.strides = self._spatial(c, "strides", "strides", "Spatial strides", channels)
        self.dilations: tuple[int, ...] = (1, 1, 1)
        if "dilations" in c.attrs:
            self.dilations = self._spatial(c, "dilations", "dilation rates", "Dilated rates", channels)
        self.padding = c.text("padding")
        self.on_host = c.xp is np
        self.inner, self.result = _inner(c), c.output_types[0].np

    @staticmethod
    def _spatial(c: OpKernelConstruction, name: str, word: str, what: str, channels: int) -> tuple[int, ...]:
        values: Sequence[int] = c.attr(name)
        if len(values) != 5:
            raise errors.InvalidArgumentError(f"Sliding window {name} field must specify 5 dimensions")
        if values[0] != 1 or values[channels] != 1:
            raise errors.InvalidArgumentError(
                f"Current implementation does not yet support {word} in the batch and depth dimensions."
            )
        spatial = tuple(v for i, v in enumerate(values) if i not in (0, channels))
        if min(spatial) <= 0:
            raise errors.InvalidArgumentError(f"{what} should be larger than 0.")
        return spatial

    def geometry(self, shape: Sequence[int], filter_shape: Sequence[int], *, centred: bool) -> Geometry:
        spec = tuple(
            windowing.extent(n, k, s, d, self.padding, centred=centred)
            for n, k, s, d in zip(shape[1:-1], filter_shape[:-2], self.strides, self.dilations, strict=True)
        )
        return Geometry(tuple(shape), tuple(filter_shape), spec, self.on_host)


@kernel("Conv3D", T=dtypes.FLOAT, cost=conv_cost)
def conv_3d(c: OpKernelConstruction) -> Compute:
    """input [n, d, h, w, c] with filter [d, h, w, c, f].  Dilations are supported."""
    return conv_3d_then(c, None)


def conv_3d_then(c: OpKernelConstruction, fusion: Fusion | None) -> Compute:
    """Conv3D, with the fused ops, if any, applied to its output; they take the extra inputs."""
    xp, conv = c.xp, _Conv3D(c)

    def compute(x: Any, weights: Any, *args: Any) -> Any:
        if x.ndim != 5:
            raise errors.InvalidArgumentError("input must be 5-dimensional")
        if weights.ndim != 5:
            raise errors.InvalidArgumentError("filter must be 5-dimensional")
        if not weights.size:
            raise errors.InvalidArgumentError(
                "filter must not have zero elements (i.e. all dimensions must be non-zero)"
            )
        depth, taps_depth = x.shape[1 if conv.layout == "NCDHW" else 4], weights.shape[3]
        if depth % taps_depth:
            raise errors.InvalidArgumentError(
                f"Input depth must be evenly divisible by filter depth: {depth} vs {taps_depth}"
            )
        if conv.layout != "NDHWC":
            raise errors.UnimplementedError("The Conv3D op currently only supports the NDHWC tensor format on the CPU.")
        if depth != taps_depth:
            raise errors.InvalidArgumentError(
                f"Number of channels in filter ({taps_depth}) must match last dimension of input ({depth})"
            )
        geometry = conv.geometry(x.shape, weights.shape, centred=True)
        announce_wider_convolution(conv.inner, conv.result, geometry.output_shape, x, weights)
        x, weights = x.astype(conv.inner, copy=False), weights.astype(conv.inner, copy=False)

        def make(epilogue: Epilogue | None = None) -> Any:
            return convolution.forward(xp, x, weights, geometry, epilogue)

        out = make() if fusion is None else fusion.of(geometry.output_shape, args, make)
        return out.astype(conv.result, copy=False)

    return compute


# --------------------------------------------------------------- Gradients


def _shape_of(values: Any) -> list[int]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise errors.InvalidArgumentError(
            f"shape must be a vector of {{int32,int64}}, got shape {shape_text(array.shape)}"
        )
    if array.size and array.min() < 0:
        raise errors.InvalidArgumentError(f"Dimension {array.min()} must be >= 0")
    sizes: list[int] = array[: MAX_RANK + 1].tolist()  # more would be too many
    return sizes


def _check_gradient(
    conv: _Conv3D, label: str, shape: Sequence[int], filter_shape: Sequence[int], grad: Any
) -> Geometry:
    for what, rank in (("input", len(shape)), ("filter_sizes", len(filter_shape)), ("out_backprop", grad.ndim)):
        if rank != 5:
            raise errors.InvalidArgumentError(f"{what} tensor must have 5 dimensions")
    if shape[4] != filter_shape[3]:
        raise errors.InvalidArgumentError(
            "input and filter_sizes must have the same number of channels. "
            f"Got {shape[4]} for input and {filter_shape[3]} for filter_sizes"
        )
    if grad.shape[4] != filter_shape[4]:
        raise errors.InvalidArgumentError(
            "out_backprop and filter_sizes must have the same number of channels. "
            f"Got {grad.shape[4]} for out_backprop and {filter_shape[4]} for filter_sizes"
        )
    if shape[0] != grad.shape[0]:
        raise errors.InvalidArgumentError(
            f"{label}: input and out_backprop must have the same batch size. Input batch: {shape[0]}, "
            f"outbackprop batch: {grad.shape[0]}, batch_dim: 0"
        )
    geometry = conv.geometry(shape, filter_shape, centred=False)
    check_extents(label, geometry.spec, shape, grad)
    return geometry


def _gradient_conv(c: OpKernelConstruction) -> _Conv3D:
    conv = _Conv3D(c)
    if conv.layout != "NDHWC":
        kind = "Input" if "Input" in c.op else "Filter"
        raise errors.InvalidArgumentError(f"Conv3DBackprop{kind}OpV2 only supports NDHWC on the CPU.")
    return conv


def conv_3d_backprop_input(c: OpKernelConstruction) -> Compute:
    """Gradient for the input; the first argument is its shape, or in the older op the input itself."""
    xp, conv, by_shape = c.xp, _gradient_conv(c), c.op.endswith("V2")
    inner = conv.inner

    def compute(input_sizes: Any, weights: Any, grad: Any) -> Any:
        shape = _shape_of(input_sizes) if by_shape else list(input_sizes.shape)
        geometry = _check_gradient(conv, "Conv3DBackpropInputOp", shape, weights.shape, grad)
        announce_wider_convolution(inner, conv.result, shape, weights, grad)
        out = convolution.backprop_input(
            xp, weights.astype(inner, copy=False), grad.astype(inner, copy=False), geometry
        )
        return out.astype(conv.result, copy=False)

    return compute


def conv_3d_backprop_filter(c: OpKernelConstruction) -> Compute:
    """Gradient for the filter; the second argument is its shape, or in the older op the filter itself."""
    xp, conv, by_shape = c.xp, _gradient_conv(c), c.op.endswith("V2")
    inner = conv.inner

    def compute(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = _shape_of(filter_sizes) if by_shape else list(filter_sizes.shape)
        geometry = _check_gradient(conv, "Conv3DBackpropFilterOp", x.shape, shape, grad)
        announce_wider_convolution(inner, conv.result, shape, x, grad)
        out = convolution.backprop_filter(xp, x.astype(inner, copy=False), grad.astype(inner, copy=False), geometry)
        return out.astype(conv.result, copy=False)

    return compute


_HALF_AND_UP = (dtypes.float16, dtypes.float32, dtypes.float64)
_WITH_BFLOAT = (dtypes.bfloat16, dtypes.float32, dtypes.float64)
_FULL = (dtypes.float32, dtypes.float64)
# The labels select TensorFlow's alternative implementations; here all have the same.
for _label, _filter_types, _filter_types_v2 in (
    ("", _HALF_AND_UP, dtypes.FLOAT),
    ("custom", _FULL, _WITH_BFLOAT),
    ("eigen_tensor", _FULL, _WITH_BFLOAT),
):
    kernel("Conv3DBackpropInput", T=_HALF_AND_UP, label=_label, cost=gradient_cost)(conv_3d_backprop_input)
    kernel("Conv3DBackpropInputV2", T=dtypes.FLOAT, label=_label, cost=gradient_cost)(conv_3d_backprop_input)
    kernel("Conv3DBackpropFilter", T=_filter_types, label=_label, cost=gradient_cost)(conv_3d_backprop_filter)
    kernel("Conv3DBackpropFilterV2", T=_filter_types_v2, label=_label, cost=gradient_cost)(conv_3d_backprop_filter)
