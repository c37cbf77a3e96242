"""Gradients of batch normalisation, and of its own gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import like_input, summed_to
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Grads = tuple[Tensor | None, ...]

# Version → op of the gradient.
_GRADIENT_OPS = {
    "FusedBatchNorm": "FusedBatchNormGrad",
    "FusedBatchNormV2": "FusedBatchNormGradV2",
    "FusedBatchNormV3": "FusedBatchNormGradV3",
}


@gradient(*_GRADIENT_OPS)
def _fused_batch_norm(op: ForwardOp, grad: Tensor, *_: Tensor) -> Grads:
    """By x, scale and offset; with the statistics of the batch in training, else with the given ones."""
    x, scale, _offset, mean, variance = op.inputs
    training = op.get_attr("is_training")
    inputs = {"y_backprop": grad, "x": x, "scale": scale}
    inputs["reserve_space_1"] = op.outputs[3] if training else mean
    inputs["reserve_space_2"] = op.outputs[4] if training else variance
    if op.type == "FusedBatchNormV3":
        inputs["reserve_space_3"] = op.outputs[5]
    if op.type != "FusedBatchNorm":
        inputs["scale"] = like_input(scale, inputs["reserve_space_1"])
    attrs = op.attrs("epsilon", "data_format", "is_training")
    node = create_node(_GRADIENT_OPS[op.type], inputs, attrs)
    return (*node.outputs[:3], None, None)


@gradient("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def _fused_batch_norm_grad(op: ForwardOp, *grads: Tensor) -> Grads:
    """Second order: the gradient of the formula that the op computes, written in plain ops."""
    by_y, by_x, by_scale = _second_order(op, *grads[:3])
    return (by_y, by_x, by_scale, *[None] * (len(op.inputs) - 3))


def _second_order(op: ForwardOp, grad_x: Tensor, grad_scale: Tensor, grad_offset: Tensor) -> tuple[Tensor, ...]:
    """Products of `grad_x`, `grad_scale`, `grad_offset` with the derivatives of the op's first three outputs.

    With z = (x - mean) / deviation the op computes scale' = sum(dy z), offset' = sum(dy) and, in training, x' = scale /
    deviation * (dy - mean(dy) - z mean(dy z)); in inference x' = scale / deviation * dy.
    """
    dy, x, scale, mean, variance = op.inputs[:5]
    dtype = scale.dtype.base
    layout = _Layout(op, x)
    dy, x, grad_x = (layout.channels_last(ops.cast(part, DstT=dtype)) for part in (dy, x, grad_x))
    epsilon = op.get_attr("epsilon")
    if not op.get_attr("is_training"):
        root = ops.rsqrt(variance + epsilon)
        z = (x - mean) * root
        factor = scale * root
        by_y = grad_x * factor + grad_scale * z + grad_offset
        by_x = grad_scale * dy * root
        by_scale = layout.total(grad_x * dy) * root
        return layout.back(by_y, op.inputs[0]), layout.back(by_x, op.inputs[1]), by_scale
    mean, variance = layout.mean(x), layout.mean(ops.square(x - layout.mean(x)))
    root = ops.rsqrt(variance + epsilon)
    z = (x - mean) * root
    centered = grad_x - layout.mean(grad_x) - z * layout.mean(grad_x * z)
    by_y = scale * root * centered + grad_scale * z + grad_offset
    by_scale = root * layout.total(centered * dy)
    # By x: through z, and through the deviation that divides everything.
    mean_dz, mean_gz = layout.mean(dy * z), layout.mean(grad_x * z)
    inner = layout.mean(grad_x * dy) - layout.mean(grad_x) * layout.mean(dy) - 3.0 * mean_gz * mean_dz
    centered_dy, centered_g = dy - layout.mean(dy), grad_x - layout.mean(grad_x)
    by_x = -scale * ops.square(root) * (z * inner + centered_g * mean_dz + centered_dy * mean_gz)
    by_x = by_x + grad_scale * root * (dy - layout.mean(dy) - z * mean_dz)
    return layout.back(by_y, op.inputs[0]), layout.back(by_x, op.inputs[1]), by_scale


class _Layout:
    """Moves the channels to the last axis, and back."""

    def __init__(self, op: ForwardOp, x: Tensor) -> None:
        rank = x.static_shape.rank or len(op.get_attr("data_format"))
        self._first = op.get_attr("data_format").startswith("NC")
        self._to_last = np.array([0, *range(2, rank), 1], np.int32)
        self._to_first = np.array([0, rank - 1, *range(1, rank - 1)], np.int32)
        self._axes = np.arange(rank - 1, dtype=np.int32)

    def channels_last(self, x: Tensor) -> Any:
        return ops.transpose(x, self._to_last) if self._first else x

    def back(self, x: Tensor, like: Tensor) -> Tensor:
        return like_input(ops.transpose(x, self._to_first) if self._first else x, like)

    def mean(self, x: Tensor) -> Any:
        return ops.mean(x, self._axes)

    def total(self, x: Tensor) -> Any:
        return ops.sum(x, self._axes)


@gradient("BatchNormWithGlobalNormalization")
def _batch_norm_with_global_normalization(op: ForwardOp, grad: Tensor) -> Grads:
    """(t - mean) / deviation, scaled by gamma if requested, plus beta; the last axis has the channels."""
    t, mean, variance, beta, gamma = op.inputs
    root = ops.rsqrt(variance + op.get_attr("variance_epsilon"))
    scaled = op.get_attr("scale_after_normalization")
    by_normal = grad * gamma if scaled else grad
    by_t = by_normal * root
    centered = t - mean
    by_variance = summed_to(by_t * centered * -0.5 * ops.square(root), variance)
    by_gamma = summed_to(grad * centered * root, gamma) if scaled else ops.zeros_like(gamma)
    return by_t, summed_to(-by_t, mean), by_variance, summed_to(grad, beta), by_gamma
