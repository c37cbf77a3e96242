"""Convolutions fused with ops before or after them in one node, as converters and graph optimisers write them.

`_FusedConv2D` and similar ops apply a bias, a normalisation, a residual or an activation to their output block by block
(`fusions.py`).  Each of TensorFlow's CPU kernels takes only some lists of `fused_ops`; here each takes all lists that
make sense for it.  FusedPadConv2D and FusedResizeAndPadConv2D run the ops of their names one after the other.
Next to read: `aexec/kernels/math/fused_matmul_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.framework.shape import shape_text
from aexec.kernels.common.fusions import BATCH_NORM_THEN, BIAS_THEN, Fusion
from aexec.kernels.nn.conv3d_ops import conv_3d_then
from aexec.kernels.nn.conv_ops import conv_2d_then, conv_cost
from aexec.kernels.nn.depthwise_conv_ops import depthwise_conv_2d_then, depthwise_cost

__all__: list[str] = []

_THEN = BIAS_THEN | BATCH_NORM_THEN


@kernel("_FusedConv2D", T=dtypes.FLOAT, cost=conv_cost, scratch=4)
def fused_conv_2d(c: OpKernelConstruction) -> Compute:
    """Conv2D; the extra inputs are arrays of the output's type."""
    if c.text("filter_format") != "HWIO":
        raise errors.InvalidArgumentError(f"Only supports HWIO filter format on the CPU, got {c.text('filter_format')}")
    if c.attr("num_host_args"):
        raise errors.UnimplementedError("host_args scale 8-bit convolutions, and there is no kernel for these")
    if any(dtype is not c.output_types[0] for dtype in c.attr("TArgs")):
        raise errors.InvalidArgumentError(f"the args must be of type {c.output_types[0]}")
    return conv_2d_then(c, Fusion(c, "Conv2D", _THEN, len(c.attr("TArgs"))))


@kernel(
    "_FusedDepthwiseConv2dNative", T=(dtypes.bfloat16, dtypes.float16, dtypes.float32), cost=depthwise_cost, scratch=4
)
def fused_depthwise_conv_2d(c: OpKernelConstruction) -> Compute:
    """DepthwiseConv2dNative."""
    return depthwise_conv_2d_then(c, Fusion(c, "DepthwiseConv2D", _THEN, c.attr("num_args")))


@kernel("_FusedConv3D", T=(dtypes.bfloat16, dtypes.float16, dtypes.float32), cost=conv_cost, scratch=4)
def fused_conv_3d(c: OpKernelConstruction) -> Compute:
    """Conv3D."""
    return conv_3d_then(c, Fusion(c, "Conv3D", BIAS_THEN, c.attr("num_args")))


# --- before the convolution: mirrored borders, and another size


def _part(c: OpKernelConstruction, op: str, *names: str, **attrs: Any) -> Callable[..., Any]:
    """The compute callable of an op that does a part of the node's work, with the node's attrs of these names."""
    op_def = op_registry.global_registry.lookup(op).op_def
    given = {**op_def.defaults, **{name: c.attr(name) for name in ("T", *names)}, **attrs}
    construction = OpKernelConstruction(
        name=c.name,
        op_def=op_def,
        attrs=given,
        input_types=op_def.input_types(given),
        output_types=op_def.output_types(given),
        device=c.device,
        xp=c.xp,
        graph_version=c.graph_version,
    )
    kernel = kernel_registry.global_registry.lookup(op, c.device_type, given, node=c.name).build(construction)
    return kernel.compute


def _pad_cost(x: Any, paddings: Any, weights: Any) -> float:
    return 2 * _growth(x.shape, paddings) * conv_cost(x, weights)


def _growth(shape: Sequence[int], paddings: Any) -> float:
    """The growth of the elements by paddings, each of which mirrors at most the whole dimension."""
    if paddings.shape != (len(shape), 2):
        return 1.0
    more = [max(0, min(2 * n, int(both))) for n, both in zip(shape, paddings.sum(axis=1), strict=True)]
    return prod([1 + added / max(1, n) for n, added in zip(shape, more, strict=True)])


@kernel("FusedPadConv2D", T=dtypes.FLOAT, cost=_pad_cost)
def fused_pad_conv_2d(c: OpKernelConstruction) -> Compute:
    """MirrorPad, then Conv2D."""
    pad, convolve = _part(c, "MirrorPad", "mode"), _part(c, "Conv2D", "strides", "padding")

    def compute(x: Any, paddings: Any, weights: Any) -> Any:
        _check_image(x, paddings, weights)
        return convolve(pad(x, paddings), weights)

    return compute


def _resize_cost(x: Any, size: Any, paddings: Any, weights: Any) -> float:
    if x.ndim != 4 or size.shape != (2,):
        return 0.0
    shape = (x.shape[0], *size.tolist(), x.shape[3])
    pixels: float = prod(shape[:3]) * _growth(shape, paddings)
    steps: float = pixels * weights.size
    return steps / 5.0 + 10.0 * pixels * float(x.shape[3])


@kernel(
    "FusedResizeAndPadConv2D",
    T=(dtypes.float16, dtypes.float32, dtypes.float64),
    cost=_resize_cost,
)
def fused_resize_and_pad_conv_2d(c: OpKernelConstruction) -> Compute:
    """ResizeBilinear, then MirrorPad, then Conv2D."""
    resize = _part(c, "ResizeBilinear", align_corners=c.attr("resize_align_corners"))
    pad, convolve = _part(c, "MirrorPad", "mode"), _part(c, "Conv2D", "strides", "padding")
    result = c.output_types[0].np

    def compute(x: Any, size: Any, paddings: Any, weights: Any) -> Any:
        _check_image(x, paddings, weights)
        return convolve(pad(resize(x, size).astype(result, copy=False), paddings), weights)

    return compute


def _check_image(x: Any, paddings: Any, weights: Any) -> None:
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{shape_text(x.shape)}")
    if paddings.shape != (4, 2):
        raise errors.InvalidArgumentError(
            "The first dimension of paddings must be the rank of inputs: 4 "
            f"{shape_text(paddings.shape)} {shape_text(x.shape)}"
        )
    for axis, what in ((0, "batches"), (3, "channels")):
        if paddings[axis].any():
            raise errors.InvalidArgumentError(
                f"Fused mirror padding only support spatial padding, not {what}: {paddings.tolist()}"
            )
    if weights.ndim == 4 and weights.shape[2] != x.shape[3]:
        raise errors.InvalidArgumentError(
            f"input and filter must have the same depth: {x.shape[3]} vs {weights.shape[2]}"
        )
