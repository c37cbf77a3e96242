"""Ragged tensors."""

from aexec.framework import common_shape_fns as common
from aexec.framework.op_registry import register_op
from aexec.ops import _sparse_shapes as shapes

register_op(
    "CompositeTensorVariantFromComponents(components: Tcomponents) -> encoded: variant",
    "metadata: string", "Tcomponents: list(type) >= 0",
)
register_op(
    "CompositeTensorVariantToComponents(encoded: variant) -> components: Tcomponents",
    "metadata: string", "Tcomponents: list(type) >= 0",
)
register_op(
    "RaggedBincount(splits: int64, values: Tidx, size: Tidx, weights: T) -> output: T",
    "Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false",
    shape_fn=common.unknown_shape,
)
register_op(
    "RaggedCountSparseOutput(splits: int64, values: T, weights: output_type) -> output_indices: int64, "
    "output_values: output_type, output_dense_shape: int64",
    "T: {int32, int64}", "minlength: int >= -1 = -1", "maxlength: int >= -1 = -1", "binary_output: bool",
    "output_type: {int32, int64, float, double}", shape_fn=shapes.ragged_count,
)
register_op(
    "RaggedCross(ragged_values: ragged_values_types, ragged_row_splits: ragged_splits_types, sparse_indices: "
    "Nsparse * int64, sparse_values: sparse_values_types, sparse_shape: Nsparse * int64, dense_inputs: dense_types) "
    "-> output_values: out_values_type, output_row_splits: out_row_splits_type",
    "Nsparse: int >= 0", "input_order: string", "hashed_output: bool", "num_buckets: int >= 0", "hash_key: int",
    "ragged_values_types: list({int64, string}) >= 0", "ragged_splits_types: list({int32, int64}) >= 0",
    "sparse_values_types: list({int64, string}) >= 0", "dense_types: list({int64, string}) >= 0",
    "out_values_type: {int64, string}", "out_row_splits_type: {int32, int64}", shape_fn=common.unknown_shape,
)
register_op(
    "RaggedFillEmptyRows(value_rowids: int64, values: T, nrows: int64, default_value: T) -> output_value_rowids: "
    "int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    "T: type", shape_fn=shapes.ragged_fill_empty_rows,
)
register_op(
    "RaggedFillEmptyRowsGrad(reverse_index_map: int64, grad_values: T) -> d_values: T, d_default_value: T",
    "T: type", shape_fn=shapes.fill_empty_rows_grad,
)
register_op(
    "RaggedGather(params_nested_splits: PARAMS_RAGGED_RANK * Tsplits, params_dense_values: Tvalues, indices: "
    "Tindices) -> output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits, output_dense_values: Tvalues",
    "Tvalues: type", "Tindices: {int32, int64}", "Tsplits: {int32, int64} = int64", "PARAMS_RAGGED_RANK: int",
    "OUTPUT_RAGGED_RANK: int >= 0", shape_fn=shapes.ragged_gather,
)
register_op(
    "RaggedRange(starts: T, limits: T, deltas: T) -> rt_nested_splits: Tsplits, rt_dense_values: T",
    "T: {bfloat16, float, double, int32, int64} = int32", "Tsplits: {int32, int64} = int64",
    shape_fn=shapes.ragged_range,
)
register_op(
    "RaggedTensorFromVariant(encoded_ragged: variant) -> output_nested_splits: output_ragged_rank * Tsplits, "
    "output_dense_values: Tvalues",
    "input_ragged_rank: int >= -1", "output_ragged_rank: int >= 0", "Tvalues: type", "Tsplits: {int32, int64} = int64",
    shape_fn=shapes.ragged_from_variant,
)
register_op(
    "RaggedTensorToSparse(rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: T) -> sparse_indices: int64, "
    "sparse_values: T, sparse_dense_shape: int64",
    "RAGGED_RANK: int", "T: type", "Tsplits: {int32, int64} = int64", shape_fn=shapes.ragged_to_sparse,
)
register_op(
    "RaggedTensorToTensor(shape: Tshape, values: T, default_value: T, row_partition_tensors: "
    "num_row_partition_tensors * Tindex) -> result: T",
    "T: type", "Tindex: {int64, int32}", "Tshape: {int64, int32}", "num_row_partition_tensors: int",
    "row_partition_types: list(string)", shape_fn=shapes.ragged_to_tensor,
)
register_op(
    "RaggedTensorToVariant(rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: Tvalues) -> encoded_ragged: "
    "variant",
    "RAGGED_RANK: int >= 0", "Tvalues: type", "Tsplits: {int32, int64} = int64", "batched_input: bool",
    shape_fn=shapes.ragged_to_variant,
)
register_op(
    "RaggedTensorToVariantGradient(encoded_ragged_grad: variant, row_splits: Tsplits, dense_values_shape: int32) -> "
    "dense_values_grad: Tvalues",
    "Tvalues: type", "Tsplits: {int32, int64} = int64", shape_fn=shapes.ragged_to_variant_grad,
)
