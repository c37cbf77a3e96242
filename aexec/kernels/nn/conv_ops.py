"""Convolution kernels: Conv2D, its gradients, and their checks.

As in TensorFlow, the CPU kernels take channels-last tensors only.  The arithmetic is
in `convolution.py`, `winograd.py`, `winograd_rows.py` and `winograd_tiles.py`; half
precision and bfloat16 are computed in float32.
Next to read: `depthwise_conv_ops.py`, `pooling_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, of_shapes
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import MAX_RANK, shape_text
from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue
from aexec.kernels.common.fusions import Fusion
from aexec.kernels.nn import convolution, winograd, winograd_rows, winograd_tiles
from aexec.kernels.nn.convolution_geometry import Geometry, turned_around

__all__ = [
    "announce_wider_convolution",
    "check_extents",
    "conv_2d_then",
    "conv_cost",
    "explicit_pairs",
    "gradient_cost",
]

_CONV_TYPES = (*dtypes.FLOAT, dtypes.int32)
_NARROW = (dtypes.float16, dtypes.bfloat16)
# Operations that BLAS does in a nanosecond, roughly, on one core.
_FLOPS_PER_NS = 80.0


def announce_wider_convolution(inner: np.dtype[Any], result: np.dtype[Any], shape: Sequence[int], *inputs: Any) -> None:
    """Announce the inputs and the output in the type of the computation, if that differs from the result's type."""
    if inner != result:
        announce_scratch(inner.itemsize * (math.prod(shape) + sum([array.size for array in inputs])))


def explicit_pairs(c: OpKernelConstruction, rank: int, channels: int) -> tuple[tuple[int, int], ...]:
    """The attr explicit_paddings as (before, after) of each spatial dimension.

    Raises:
        InvalidArgumentError: a wrong number of values, a negative one, or padding of batch or depth.
    """
    values = c.attr("explicit_paddings") if "explicit_paddings" in c.attrs else []
    if c.text("padding") != "EXPLICIT":
        if values:
            raise errors.InvalidArgumentError(
                "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"
            )
        return ((0, 0),) * (rank - 2)
    if len(values) != 2 * rank:
        raise errors.InvalidArgumentError(
            f"explicit_paddings attribute must contain {2 * rank} values, but got: {len(values)}"
        )
    if min(values) < 0:
        raise errors.InvalidArgumentError("All elements of explicit_paddings must be nonnegative")
    pairs = list(zip(values[::2], values[1::2], strict=True))
    if any(pairs[0]) or any(pairs[channels]):
        raise errors.InvalidArgumentError("Nonzero explicit padding in the batch or depth dimensions is not supported")
    return tuple(p for i, p in enumerate(pairs) if i not in (0, channels))


def _per_dim(c: OpKernelConstruction, name: str, channels: int) -> tuple[int, ...]:
    """The spatial entries of strides or dilations of a 2-D convolution."""
    values: Sequence[int] = c.attr(name)
    if len(values) != 4:
        raise errors.InvalidArgumentError(f"Sliding window {name} field must specify 4 dimensions")
    if values[0] != 1 or values[channels] != 1:
        raise errors.UnimplementedError(
            f"Current implementation does not yet support {name} in the batch and depth dimensions."
        )
    spatial = tuple(v for i, v in enumerate(values) if i not in (0, channels))
    if min(spatial) <= 0:
        what = "Row and column strides" if name == "strides" else "Dilated rates"
        raise errors.InvalidArgumentError(f"{what} should be larger than 0.")
    return spatial


class _Conv2D:
    """The attrs of a 2-D convolution; makes its geometry for given shapes."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.op = c.op
        self.layout = c.text("data_format")
        channels = 1 if self.layout == "NCHW" else 3
        self.strides = _per_dim(c, "strides", channels)
        self.dilations = _per_dim(c, "dilations", channels)
        self.padding = c.text("padding")
        self.on_host = c.xp is np
        self.explicit = explicit_pairs(c, 4, channels)
        dtype = c.output_types[0]
        self.result = dtype.np
        self.inner = np.dtype(np.float32) if dtype in _NARROW else dtype.np
        # The last shapes, and the geometry for them.
        self._known: tuple[Any, Geometry | None] = (None, None)

    def geometry(self, shape: Sequence[int], filter_shape: Sequence[int]) -> Geometry:
        """The geometry for these shapes.

        Raises InvalidArgumentError for shapes that do not match, UnimplementedError for an unsupported layout.
        """
        seen, geometry = self._known
        if geometry is None or seen != (shape, filter_shape):
            geometry = self._geometry(shape, filter_shape)
            self._known = ((shape, filter_shape), geometry)
        return geometry

    def _geometry(self, shape: Sequence[int], filter_shape: Sequence[int]) -> Geometry:
        if len(shape) != 4:
            raise errors.InvalidArgumentError(f"convolution input must be 4-dimensional: {shape_text(shape)}")
        if len(filter_shape) != 4:
            raise errors.InvalidArgumentError(f"convolution filter must be 4-dimensional: {shape_text(filter_shape)}")
        depth, taps_depth, out_depth = shape[3], filter_shape[2], filter_shape[3]
        if self.layout != "NHWC":
            raise errors.UnimplementedError(
                f"The {self.op} op currently only supports the NHWC tensor format on the CPU. "
                f"The op was given the format: {self.layout}"
            )
        if taps_depth <= 0:
            raise errors.InvalidArgumentError(f"filter depth must be stricly positive, got {taps_depth}")
        if depth % taps_depth:
            raise errors.InvalidArgumentError(
                f"input depth must be evenly divisible by filter depth: {depth} vs {taps_depth}"
            )
        groups = depth // taps_depth
        if not groups:
            raise errors.InvalidArgumentError("number of groups must be positive, got 0")
        if out_depth % groups:
            raise errors.InvalidArgumentError(
                f"output depth must be evenly divisible by number of groups: {out_depth} vs {groups}"
            )
        spec = tuple(
            windowing.extent(shape[i + 1], filter_shape[i], stride, dilation, self.padding, explicit)
            for i, (stride, dilation, explicit) in enumerate(
                zip(self.strides, self.dilations, self.explicit, strict=True)
            )
        )
        return Geometry(tuple(shape), tuple(filter_shape), spec, self.on_host)


class _FewerProducts:
    """Decides how a convolution and its gradients use fewer products, if the node is marked for it.

    It uses `winograd` if the kernel is constant, else `winograd_tiles` or `winograd_rows`.  A read-only kernel may be
    the value of a variable: it counts as constant until another one comes, since `winograd` transforms each one.
    """

    def __init__(self, c: OpKernelConstruction) -> None:
        self._wanted = bool(c.attrs.get("_winograd")) and c.xp is np and c.output_types[0] is dtypes.float32
        # The last geometry, the loops that there were, and the result for them.
        self._way: tuple[Geometry | None, Any, Any] = (None, None, None)
        # The last geometry, whether Winograd pays off for it, and whether in panels; the last kernel, and its
        # transform.
        self._known: tuple[Geometry | None, bool, bool] = (None, False, False)
        self._kept: tuple[Any, bool, Any] = (None, False, None)
        self._changes = False

    def way(self, geometry: Geometry) -> Any:
        """The module that is to be called for a kernel that changes; None if neither is."""
        if not self._wanted:
            return None
        seen, loops, way = self._way
        if seen is not geometry or loops is not native.loops:
            way = next((module for module in (winograd_tiles, winograd_rows) if module.pays(geometry)), None)
            self._way = (geometry, native.loops, way)
        return way

    def kernel(self, weights: Any, geometry: Geometry) -> Any:
        """The kernel as `winograd.forward` takes it; None if that is not to be called."""
        if not self._wanted or self._changes or weights.flags.writeable:
            return None
        seen, pays, panels = self._known
        if seen is not geometry:
            pays, panels = winograd.pays(geometry), winograd.in_panels(geometry)
            self._known = (geometry, pays, panels)
        if not pays:
            return None
        of, in_panels, turned = self._kept
        if of is not None and of is not weights:
            self._changes, self._kept = True, (None, False, None)
            return None
        if of is None or in_panels != panels:
            turned = winograd.turned(weights, panels)
            self._kept = (weights, panels, turned)
        return turned


@of_shapes
def conv_cost(x: Any, filter: Any, *_: Any) -> float:
    """Nanoseconds of a convolution with stride 1."""
    depth = x.shape[-1] if x.ndim else 1
    steps: float = x.size * filter.size / max(1, depth)
    # The filter is converted also for a batch without elements.
    return 2.0 * steps / _FLOPS_PER_NS + float(x.size or filter.size)


@kernel("Conv2D", T=_CONV_TYPES, cost=conv_cost)
def conv_2d(c: OpKernelConstruction) -> Compute:
    """input [n, h, w, c] with filter [h, w, c / groups, f]."""
    return conv_2d_then(c, None)


def conv_2d_then(c: OpKernelConstruction, fusion: Fusion | None) -> Compute:
    """Conv2D, with the fused ops, if any, applied to its output; they take the extra inputs."""
    xp, conv, fewer = c.xp, _Conv2D(c), _FewerProducts(c)
    inner, result = conv.inner, conv.result

    def compute(x: Any, weights: Any, *args: Any) -> Any:
        geometry = conv.geometry(x.shape, weights.shape)
        if not weights.size and weights.shape[0] * weights.shape[1] * weights.shape[2] == 0:
            raise errors.InvalidArgumentError(
                "filter must not have zero elements (i.e. all dimensions must be non-zero)"
            )
        announce_wider_convolution(inner, result, geometry.output_shape, x, weights)
        x, weights = x.astype(inner, copy=False), weights.astype(inner, copy=False)

        turned = fewer.kernel(weights, geometry)

        def make(epilogue: Epilogue | None = None) -> Any:
            if turned is not None:
                return winograd.forward(x, turned, geometry, epilogue)
            way = fewer.way(geometry)
            if way is not None:
                return way.forward(x, weights, geometry, epilogue)
            return convolution.forward(xp, x, weights, geometry, epilogue)

        out = make() if fusion is None else fusion.of(geometry.output_shape, args, make)
        return out.astype(result, copy=False)

    return compute


# --------------------------------------------------------------- Gradients


def _sizes_vector(values: Any, text: str) -> list[int]:
    """A vector input that holds a shape; `text` begins the error's message if it is not one."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise errors.InvalidArgumentError(f"{text} input must be 1-dim, not {array.ndim}")
    if array.size > MAX_RANK:
        raise errors.InvalidArgumentError(f"{text}: {array.size} dimensions are too many")
    sizes: list[int] = array.tolist()
    if sizes and min(sizes) < 0:
        raise errors.InvalidArgumentError(f"Dimension {min(sizes)} must be >= 0")
    return sizes


def _check_gradient(
    conv: _Conv2D, label: str, shape: Sequence[int], filter_shape: Sequence[int], grad: Any
) -> Geometry:
    """The geometry, after checking that the output's gradient matches it.

    Unlike TensorFlow's CPU kernels, these take dilated and grouped convolutions.
    """
    if conv.layout != "NHWC":
        raise errors.InvalidArgumentError(f"{label}Op only supports NHWC.")
    for what, rank in (("input", len(shape)), ("filter", len(filter_shape)), ("out_backprop", grad.ndim)):
        if rank != 4:
            raise errors.InvalidArgumentError(f"{label}: {what} must be 4-dimensional")
    if shape[0] != grad.shape[0]:
        raise errors.InvalidArgumentError(
            f"{label}: input and out_backprop must have the same batch size. Input batch: {shape[0]}, "
            f"outbackprop batch: {grad.shape[0]}, batch_dim: 0"
        )
    if filter_shape[2] <= 0:
        raise errors.InvalidArgumentError(f"{label}: filter depth must be strictly greated than zero")
    if shape[3] % filter_shape[2]:
        raise errors.InvalidArgumentError(f"{label}: input depth must be evenly divisible by filter depth")
    if filter_shape[3] != grad.shape[3]:
        raise errors.InvalidArgumentError(f"{label}: filter and out_backprop must have the same out_depth")
    geometry = conv.geometry(shape, filter_shape)
    check_extents(label, geometry.spec, shape, grad)
    return geometry


def check_extents(label: str, spec: Sequence[windowing.Window], shape: Sequence[int], grad: Any) -> None:
    """Raise InvalidArgumentError unless the gradient has as many rows and columns as the input has windows."""
    for i, w in enumerate(spec, start=1):
        if grad.shape[i] != w.count:
            raise errors.InvalidArgumentError(
                f"{label}: Size of out_backprop doesn't match computed: actual = {grad.shape[i]}, "
                f"computed = {w.count} spatial_dim: {i} input: {shape[i]} filter: {w.size} "
                f"output: {grad.shape[i]} stride: {w.stride} dilation: {w.dilation}"
            )


def gradient_cost(a: Any, b: Any, grad: Any) -> float:
    """Nanoseconds of a convolution's gradient; one of the first two is a filter or a filter's shape."""
    filter_shape = b.shape if b.ndim > 3 else b.tolist() if b.ndim == 1 and b.size <= MAX_RANK else [1]
    depth = grad.shape[-1] if grad.ndim else 1
    steps: float = grad.size * math.prod(filter_shape) / max(1, depth)
    taps = math.prod(filter_shape[:-2])
    return 2.0 * steps / _FLOPS_PER_NS + float(grad.size) + convolution.TAP_NS * taps


def conv_2d_backprop_input(c: OpKernelConstruction) -> Compute:
    """Gradient for the input, whose shape (or height and width alone) is the first argument."""
    xp, conv, label = c.xp, _Conv2D(c), "Conv2DCustomBackpropInput"
    inner, result, fewer = conv.inner, conv.result, _FewerProducts(c)

    def compute(input_sizes: Any, weights: Any, grad: Any) -> Any:
        shape = _sizes_vector(input_sizes, "Conv2DBackpropInput: input_sizes")
        if len(shape) not in (2, 4):
            raise errors.InvalidArgumentError(
                f"Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {len(shape)}"
            )
        if len(shape) == 2 and grad.ndim == 4 and weights.ndim == 4:
            shape = [grad.shape[0], *shape, weights.shape[2]]
        geometry = _check_gradient(conv, label, shape, weights.shape, grad)
        mirrored = geometry.mirrored
        way = None if mirrored is None else fewer.way(mirrored)
        if way is not None:
            return way.forward(grad, turned_around(weights), mirrored)
        announce_wider_convolution(inner, result, shape, weights, grad)
        out = convolution.backprop_input(
            xp, weights.astype(inner, copy=False), grad.astype(inner, copy=False), geometry
        )
        return out.astype(result, copy=False)

    return compute


def conv_2d_backprop_filter(c: OpKernelConstruction) -> Compute:
    """Gradient for the filter, whose shape is the second argument."""
    xp, conv, label = c.xp, _Conv2D(c), "Conv2DCustomBackpropFilter"
    inner, result, fewer = conv.inner, conv.result, _FewerProducts(c)

    def compute(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = _sizes_vector(filter_sizes, f"{label}: filter_sizes")
        geometry = _check_gradient(conv, label, x.shape, shape, grad)
        way = fewer.way(geometry)
        if way is not None:
            return way.backprop_filter(x, grad, geometry)
        announce_wider_convolution(inner, result, shape, x, grad)
        out = convolution.backprop_filter(xp, x.astype(inner, copy=False), grad.astype(inner, copy=False), geometry)
        return out.astype(result, copy=False)

    return compute


# The labels select TensorFlow's alternative implementations; here all have the same.
for _label in ("", "custom", "eigen_tensor"):
    kernel("Conv2DBackpropInput", T=_CONV_TYPES, label=_label, cost=gradient_cost)(conv_2d_backprop_input)
    kernel("Conv2DBackpropFilter", T=dtypes.FLOAT, label=_label, cost=gradient_cost)(conv_2d_backprop_filter)
