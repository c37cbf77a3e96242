"""Operations on the last dimension as sets."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.sparse import sparse_shapes as shapes

SET_TYPES = "{int8, int16, int32, int64, uint8, uint16, string}"

register_op(
    "DenseToDenseSetOperation(set1: T, set2: T) -> result_indices: int64, result_values: T, result_shape: int64",
    "set_operation: string", "validate_indices: bool = true", f"T: {SET_TYPES}", shape_fn=shapes.dense_to_dense,
)
register_op(
    "DenseToSparseSetOperation(set1: T, set2_indices: int64, set2_values: T, set2_shape: int64) -> result_indices: "
    "int64, result_values: T, result_shape: int64",
    "set_operation: string", "validate_indices: bool = true", f"T: {SET_TYPES}", shape_fn=shapes.dense_to_sparse,
)
register_op(
    "SetSize(set_indices: int64, set_values: T, set_shape: int64) -> size: int32",
    "validate_indices: bool = true", f"T: {SET_TYPES}", shape_fn=shapes.set_size,
)
register_op(
    "SparseToSparseSetOperation(set1_indices: int64, set1_values: T, set1_shape: int64, set2_indices: int64, "
    "set2_values: T, set2_shape: int64) -> result_indices: int64, result_values: T, result_shape: int64",
    "set_operation: string", "validate_indices: bool = true", f"T: {SET_TYPES}", shape_fn=shapes.sparse_to_sparse,
)
