"""Slices, strided slices, patches, and moves between space, batch and depth."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.array import slice_shapes as shapes

register_op(
    "BatchToSpace(input: T, crops: Tidx) -> output: T",
    "T: type", "block_size: int >= 2", "Tidx: {int32, int64} = int32", shape_fn=shapes.batch_to_space,
)
register_op(
    "BatchToSpaceND(input: T, block_shape: Tblock_shape, crops: Tcrops) -> output: T",
    "T: type", "Tblock_shape: {int32, int64} = int32", "Tcrops: {int32, int64} = int32",
    shape_fn=shapes.batch_to_space_nd,
)
register_op(
    "DepthToSpace(input: T) -> output: T",
    "T: type", "block_size: int >= 2", "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
    shape_fn=shapes.depth_to_space,
)
register_op(
    "ExtractImagePatches(images: T) -> patches: T",
    "ksizes: list(int) >= 4", "strides: list(int) >= 4", "rates: list(int) >= 4",
    "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, "
    "complex128, bool}",
    "padding: {'SAME', 'VALID'}", shape_fn=shapes.extract_image_patches,
)
register_op(
    "ExtractVolumePatches(input: T) -> patches: T",
    "ksizes: list(int) >= 5", "strides: list(int) >= 5", "T: realnumbertype", "padding: {'SAME', 'VALID'}",
    shape_fn=shapes.extract_volume_patches,
)
register_op(
    "Slice(input: T, begin: Index, size: Index) -> output: T",
    "T: type", "Index: {int32, int64}", shape_fn=common.slice_shape,
)
register_op(
    "SpaceToBatch(input: T, paddings: Tpaddings) -> output: T",
    "T: type", "Tpaddings: {int32, int64} = int32", "block_size: int >= 2", shape_fn=shapes.space_to_batch,
)
register_op(
    "SpaceToBatchND(input: T, block_shape: Tblock_shape, paddings: Tpaddings) -> output: T",
    "T: type", "Tblock_shape: {int32, int64} = int32", "Tpaddings: {int32, int64} = int32",
    shape_fn=shapes.space_to_batch_nd,
)
register_op(
    "SpaceToDepth(input: T) -> output: T",
    "T: type", "block_size: int >= 2", "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
    shape_fn=shapes.space_to_depth,
)
register_op(
    "StridedSlice(input: T, begin: Index, end: Index, strides: Index) -> output: T",
    "T: type", "Index: {int16, int32, int64}", "begin_mask: int = 0", "end_mask: int = 0", "ellipsis_mask: int = 0",
    "new_axis_mask: int = 0", "shrink_axis_mask: int = 0", shape_fn=shapes.strided_slice,
)
register_op(
    "StridedSliceGrad(shape: Index, begin: Index, end: Index, strides: Index, dy: T) -> output: T",
    "T: type", "Index: {int32, int64}", "begin_mask: int = 0", "end_mask: int = 0", "ellipsis_mask: int = 0",
    "new_axis_mask: int = 0", "shrink_axis_mask: int = 0", shape_fn=shapes.strided_slice_grad,
)
register_op(
    "TensorStridedSliceUpdate(input: T, begin: Index, end: Index, strides: Index, value: T) -> output: T",
    "T: type", "Index: {int32, int64}", "begin_mask: int = 0", "end_mask: int = 0", "ellipsis_mask: int = 0",
    "new_axis_mask: int = 0", "shrink_axis_mask: int = 0", shape_fn=common.unchanged_shape,
)
