"""Gradients of slices, patches and blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import like_input, shape_of
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _masks(op: ForwardOp) -> dict[str, Any]:
    return op.attrs(*_MASKS)


@gradient("Slice")
def _slice(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, None]:
    """The gradient with zeros around it."""
    x, begin, _ = op.inputs
    after = like_input(shape_of(x), begin) - like_input(shape_of(op.outputs[0]), begin) - begin
    return ops.pad(grad, ops.pack([begin, after], axis=1)), None, None


@gradient("StridedSlice")
def _strided_slice(op: ForwardOp, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, begin, end, strides = op.inputs
    shape = like_input(shape_of(x), begin)
    return ops.strided_slice_grad(shape, begin, end, strides, grad, **_masks(op)), None, None, None


@gradient("StridedSliceGrad")
def _strided_slice_grad(op: ForwardOp, grad: Tensor) -> tuple[Tensor | None, ...]:
    _, begin, end, strides, _ = op.inputs
    return None, None, None, None, ops.strided_slice(grad, begin, end, strides, **_masks(op))


@gradient("TensorStridedSliceUpdate")
def _tensor_strided_slice_update(op: ForwardOp, grad: Tensor) -> tuple[Tensor | None, ...]:
    _, begin, end, strides, value = op.inputs
    kept = ops.tensor_strided_slice_update(grad, begin, end, strides, ops.zeros_like(value), **_masks(op))
    return kept, None, None, None, ops.strided_slice(grad, begin, end, strides, **_masks(op))


# Blocks, and the tensors over which they are spread


@gradient("SpaceToBatch")
def _space_to_batch(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None]:
    return ops.batch_to_space(grad, op.inputs[1], block_size=op.get_attr("block_size")), None


@gradient("BatchToSpace")
def _batch_to_space(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None]:
    return ops.space_to_batch(grad, op.inputs[1], block_size=op.get_attr("block_size")), None


@gradient("SpaceToBatchND")
def _space_to_batch_nd(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, None]:
    return ops.batch_to_space_nd(grad, op.inputs[1], op.inputs[2]), None, None


@gradient("BatchToSpaceND")
def _batch_to_space_nd(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, None]:
    return ops.space_to_batch_nd(grad, op.inputs[1], op.inputs[2]), None, None


@gradient("SpaceToDepth")
def _space_to_depth(op: ForwardOp, grad: Tensor) -> Tensor:
    return _block_op("DepthToSpace", op, grad)


@gradient("DepthToSpace")
def _depth_to_space(op: ForwardOp, grad: Tensor) -> Tensor:
    return _block_op("SpaceToDepth", op, grad)


def _block_op(name: str, op: ForwardOp, grad: Tensor) -> Tensor:
    return create_node(name, {"input": grad}, op.attrs("block_size", "data_format")).output(0)


# Patches: the gradient of an element is the sum over the patches that contain it


@gradient("ExtractImagePatches")
def _extract_image_patches(op: ForwardOp, grad: Tensor) -> Tensor:
    attrs = op.attrs("ksizes", "strides", "rates", "padding")
    return _of_patches(op, grad, "ExtractImagePatches", "images", attrs)


@gradient("ExtractVolumePatches")
def _extract_volume_patches(op: ForwardOp, grad: Tensor) -> Tensor:
    attrs = op.attrs("ksizes", "strides", "padding")
    return _of_patches(op, grad, "ExtractVolumePatches", "input", attrs)


def _of_patches(op: ForwardOp, grad: Tensor, name: str, argument: str, attrs: dict[str, Any]) -> Tensor:
    """Patches of an image of position numbers show the origin of each patch element; 0 is the border."""
    x = op.inputs[0]
    shape = shape_of(x)
    batch, space, depth = shape[0], shape[1:-1], shape[-1]
    places = ops.prod(space, [0])
    numbers = ops.cast(ops.range(1, places + 1, 1), DstT="float64")
    grid = ops.reshape(numbers, ops.concat_v2([np.array([1], np.int32), space, np.array([1], np.int32)], 0))
    found = create_node(name, {argument: grid}, attrs).output(0)
    origin = ops.reshape(ops.cast(found, DstT="int32"), [-1])
    # One row for each element of the patches' grid, with the batch and the depth inside.
    values = ops.reshape(grad, ops.pack([batch, -1, depth]))
    by_place = ops.unsorted_segment_sum(ops.transpose(values, [1, 0, 2]), origin, places + 1)
    inside = ops.slice(by_place, [1, 0, 0], [-1, -1, -1])
    return ops.reshape(ops.transpose(inside, [1, 0, 2]), shape)
