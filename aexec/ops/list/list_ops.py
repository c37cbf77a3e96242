"""Lists and maps of tensors in variants."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.list import list_shapes as shapes

register_op(
    "EmptyTensorList(element_shape: shape_type, max_num_elements: int32) -> handle: variant",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.empty_list,
)
register_op("EmptyTensorMap() -> handle: variant", shape_fn=common.scalar)
register_op(
    "TensorListConcat(input_handle: variant) -> tensor: element_dtype, lengths: int64",
    "element_dtype: type", "element_shape: shape = {unknown_rank: true}", shape_fn=shapes.concat,
)
register_op(
    "TensorListConcatLists(input_a: variant, input_b: variant) -> output: variant",
    "element_dtype: type", shape_fn=shapes.concat_lists,
)
register_op(
    "TensorListConcatV2(input_handle: variant, element_shape: shape_type, leading_dims: int64) -> tensor: "
    "element_dtype, lengths: int64",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.concat_v2,
)
register_op(
    "TensorListElementShape(input_handle: variant) -> element_shape: shape_type",
    "shape_type: {int32, int64}", shape_fn=shapes.element_shape,
)
register_op(
    "TensorListFromTensor(tensor: element_dtype, element_shape: shape_type) -> output_handle: variant",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.from_tensor,
)
register_op(
    "TensorListGather(input_handle: variant, indices: int32, element_shape: int32) -> values: element_dtype",
    "element_dtype: type", shape_fn=shapes.gather,
)
register_op(
    "TensorListGetItem(input_handle: variant, index: int32, element_shape: Tshape) -> item: element_dtype",
    "element_dtype: type", "Tshape: {int32, int64} = int32", shape_fn=shapes.get_item,
)
register_op("TensorListLength(input_handle: variant) -> length: int32", shape_fn=common.scalar)
register_op(
    "TensorListPopBack(input_handle: variant, element_shape: int32) -> output_handle: variant, tensor: element_dtype",
    "element_dtype: type", shape_fn=shapes.pop_back,
)
register_op(
    "TensorListPushBack(input_handle: variant, tensor: element_dtype) -> output_handle: variant",
    "element_dtype: type", shape_fn=shapes.push_back,
)
register_op(
    "TensorListPushBackBatch(input_handles: variant, tensor: element_dtype) -> output_handles: variant",
    "element_dtype: type", shape_fn=shapes.push_back_batch,
)
register_op(
    "TensorListReserve(element_shape: shape_type, num_elements: int32) -> handle: variant",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.empty_list,
)
register_op("TensorListResize(input_handle: variant, size: int32) -> output_handle: variant", shape_fn=shapes.resize)
register_op(
    "TensorListScatter(tensor: element_dtype, indices: int32, element_shape: shape_type) -> output_handle: variant",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.scatter,
)
register_op(
    "TensorListScatterIntoExistingList(input_handle: variant, tensor: element_dtype, indices: int32) -> "
    "output_handle: variant",
    "element_dtype: type", shape_fn=shapes.scatter_into_existing,
)
register_op(
    "TensorListScatterV2(tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32) -> "
    "output_handle: variant",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.scatter,
)
register_op(
    "TensorListSetItem(input_handle: variant, index: int32, item: element_dtype) -> output_handle: variant",
    "element_dtype: type", "resize_if_index_out_of_bounds: bool = false", shape_fn=shapes.set_item,
)
register_op(
    "TensorListSplit(tensor: element_dtype, element_shape: shape_type, lengths: int64) -> output_handle: variant",
    "element_dtype: type", "shape_type: {int32, int64}", shape_fn=shapes.split,
)
register_op(
    "TensorListStack(input_handle: variant, element_shape: int32) -> tensor: element_dtype",
    "element_dtype: type", "num_elements: int = -1", shape_fn=shapes.stack,
)
register_op(
    "TensorMapErase(input_handle: variant, key: key_dtype) -> output_handle: variant",
    "key_dtype: type", "value_dtype: type", shape_fn=common.scalar,
)
register_op(
    "TensorMapHasKey(input_handle: variant, key: key_dtype) -> has_key: bool",
    "key_dtype: type", shape_fn=common.scalar,
)
register_op(
    "TensorMapInsert(input_handle: variant, key: key_dtype, value: value_dtype) -> output_handle: variant",
    "key_dtype: type", "value_dtype: type", shape_fn=common.scalar,
)
register_op(
    "TensorMapLookup(input_handle: variant, key: key_dtype) -> value: value_dtype",
    "key_dtype: type", "value_dtype: type", shape_fn=common.unknown_shape,
)
register_op("TensorMapSize(input_handle: variant) -> size: int32", shape_fn=common.scalar)
register_op(
    "TensorMapStackKeys(input_handle: variant) -> keys: key_dtype",
    "key_dtype: type", shape_fn=common.unknown_shape,
)
