"""Ragged tensors."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.ragged import ragged_shapes as shapes

register_op(
    "CompositeTensorVariantFromComponents(components: Tcomponents) -> encoded: variant",
    "metadata: string", "Tcomponents: list(type) >= 0",
)
register_op(
    "CompositeTensorVariantToComponents(encoded: variant) -> components: Tcomponents",
    "metadata: string", "Tcomponents: list(type) >= 0",
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
