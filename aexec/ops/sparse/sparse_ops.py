"""Sparse tensors: indices, values, shape."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.sparse import sparse_shapes as shapes

register_op(
    "AddManySparseToTensorsMap(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> sparse_handles: int64",
    "T: type", "container: string = ''", "shared_name: string = ''", stateful=True,
    shape_fn=shapes.add_many_sparse_to_map,
)
register_op(
    "AddSparseToTensorsMap(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> sparse_handle: int64",
    "T: type", "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=shapes.add_sparse_to_map,
)
register_op(
    "DenseCountSparseOutput(values: T, weights: output_type) -> output_indices: int64, output_values: output_type, "
    "output_dense_shape: int64",
    "T: {int32, int64}", "minlength: int >= -1 = -1", "maxlength: int >= -1 = -1", "binary_output: bool",
    "output_type: {int32, int64, float, double}", shape_fn=shapes.dense_count,
)
register_op(
    "DeserializeManySparse(serialized_sparse: string) -> sparse_indices: int64, sparse_values: dtype, sparse_shape: "
    "int64",
    "dtype: type", shape_fn=shapes.deserialize_many_sparse,
)
register_op(
    "DeserializeSparse(serialized_sparse: Tserialized) -> sparse_indices: int64, sparse_values: dtype, "
    "sparse_shape: int64",
    "dtype: type", "Tserialized: {string, variant} = string", shape_fn=shapes.deserialize_sparse,
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
    "RaggedFillEmptyRows(value_rowids: int64, values: T, nrows: int64, default_value: T) -> output_value_rowids: "
    "int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    "T: type", shape_fn=shapes.ragged_fill_empty_rows,
)
register_op(
    "RaggedFillEmptyRowsGrad(reverse_index_map: int64, grad_values: T) -> d_values: T, d_default_value: T",
    "T: type", shape_fn=shapes.fill_empty_rows_grad,
)
register_op(
    "SerializeManySparse(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> serialized_sparse: out_type",
    "T: type", "out_type: {string, variant} = string", shape_fn=shapes.serialize_many_sparse,
)
register_op(
    "SerializeSparse(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> serialized_sparse: out_type",
    "T: type", "out_type: {string, variant} = string", shape_fn=shapes.serialize_sparse,
)
register_op(
    "SparseAdd(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64, "
    "thresh: Treal) -> sum_indices: int64, sum_values: T, sum_shape: int64",
    "T: numbertype", "Treal: realnumbertype", shape_fn=shapes.sparse_add,
)
register_op(
    "SparseAddGrad(backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64) -> a_val_grad: T, "
    "b_val_grad: T",
    "T: numbertype", shape_fn=shapes.sparse_add_grad,
)
register_op(
    "SparseBincount(indices: int64, values: Tidx, dense_shape: int64, size: Tidx, weights: T) -> output: T",
    "Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false",
    shape_fn=shapes.sparse_bincount,
)
register_op(
    "SparseConcat(indices: N * int64, values: N * T, shapes: N * int64) -> output_indices: int64, output_values: T, "
    "output_shape: int64",
    "concat_dim: int", "N: int >= 2", "T: type", shape_fn=shapes.concat,
)
register_op(
    "SparseCountSparseOutput(indices: int64, values: T, dense_shape: int64, weights: output_type) -> "
    "output_indices: int64, output_values: output_type, output_dense_shape: int64",
    "T: {int32, int64}", "minlength: int >= -1 = -1", "maxlength: int >= -1 = -1", "binary_output: bool",
    "output_type: {int32, int64, float, double}", shape_fn=shapes.sparse_count,
)
register_op(
    "SparseCross(indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types) -> "
    "output_indices: int64, output_values: out_type, output_shape: int64",
    "N: int >= 0", "hashed_output: bool", "num_buckets: int >= 0", "hash_key: int",
    "sparse_types: list({int64, string}) >= 0", "dense_types: list({int64, string}) >= 0", "out_type: {int64, string}",
    "internal_type: {int64, string}", shape_fn=shapes.cross,
)
register_op(
    "SparseCrossHashed(indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types, "
    "num_buckets: int64, strong_hash: bool, salt: int64) -> output_indices: int64, output_values: int64, "
    "output_shape: int64",
    "N: int >= 0", "sparse_types: list({int64, string}) >= 0", "dense_types: list({int64, string}) >= 0",
    shape_fn=shapes.cross,
)
register_op(
    "SparseCrossV2(indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types, sep: "
    "string) -> output_indices: int64, output_values: string, output_shape: int64",
    "N: int >= 0", "sparse_types: list({int64, string}) >= 0", "dense_types: list({int64, string}) >= 0",
    shape_fn=shapes.cross,
)
register_op(
    "SparseDenseCwiseAdd(sp_indices: int64, sp_values: T, sp_shape: int64, dense: T) -> output: T",
    "T: numbertype", shape_fn=shapes.dense_cwise,
)
register_op(
    "SparseDenseCwiseDiv(sp_indices: int64, sp_values: T, sp_shape: int64, dense: T) -> output: T",
    "T: numbertype", shape_fn=shapes.dense_cwise,
)
register_op(
    "SparseDenseCwiseMul(sp_indices: int64, sp_values: T, sp_shape: int64, dense: T) -> output: T",
    "T: numbertype", shape_fn=shapes.dense_cwise,
)
register_op(
    "SparseFillEmptyRows(indices: int64, values: T, dense_shape: int64, default_value: T) -> output_indices: int64, "
    "output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    "T: type", shape_fn=shapes.fill_empty_rows,
)
register_op(
    "SparseFillEmptyRowsGrad(reverse_index_map: int64, grad_values: T) -> d_values: T, d_default_value: T",
    "T: type", shape_fn=shapes.fill_empty_rows_grad,
)
register_op(
    "SparseReduceMax(input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32) -> output: T",
    "keep_dims: bool = false", "T: realnumbertype", shape_fn=shapes.reduce_dense,
)
register_op(
    "SparseReduceMaxSparse(input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32) -> "
    "output_indices: int64, output_values: T, output_shape: int64",
    "keep_dims: bool = false", "T: realnumbertype", shape_fn=common.unknown_shape,
)
register_op(
    "SparseReduceSum(input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32) -> output: T",
    "keep_dims: bool = false", "T: numbertype", shape_fn=shapes.reduce_dense,
)
register_op(
    "SparseReduceSumSparse(input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32) -> "
    "output_indices: int64, output_values: T, output_shape: int64",
    "keep_dims: bool = false", "T: numbertype", shape_fn=common.unknown_shape,
)
register_op(
    "SparseReorder(input_indices: int64, input_values: T, input_shape: int64) -> output_indices: int64, "
    "output_values: T",
    "T: type", shape_fn=shapes.reorder,
)
register_op(
    "SparseReshape(input_indices: int64, input_shape: int64, new_shape: int64) -> output_indices: int64, "
    "output_shape: int64",
    shape_fn=shapes.reshape,
)
register_op(
    "SparseSlice(indices: int64, values: T, shape: int64, start: int64, size: int64) -> output_indices: int64, "
    "output_values: T, output_shape: int64",
    "T: type", shape_fn=shapes.slice_sparse,
)
register_op(
    "SparseSliceGrad(backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64) -> "
    "val_grad: T",
    "T: numbertype", shape_fn=shapes.slice_grad,
)
register_op(
    "SparseSoftmax(sp_indices: int64, sp_values: T, sp_shape: int64) -> output: T",
    "T: {half, float, double}", shape_fn=shapes.softmax,
)
register_op(
    "SparseSparseMaximum(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: "
    "int64) -> output_indices: int64, output_values: T",
    "T: realnumbertype", shape_fn=shapes.sparse_sparse,
)
register_op(
    "SparseSparseMinimum(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: "
    "int64) -> output_indices: int64, output_values: T",
    "T: numbertype", shape_fn=shapes.sparse_sparse,
)
register_op(
    "SparseSplit(split_dim: int64, indices: int64, values: T, shape: int64) -> output_indices: num_split * int64, "
    "output_values: num_split * T, output_shape: num_split * int64",
    "num_split: int", "T: type", shape_fn=shapes.split,
)
register_op(
    "SparseTensorDenseAdd(a_indices: Tindices, a_values: T, a_shape: Tindices, b: T) -> output: T",
    "T: numbertype", "Tindices: {int32, int64}", shape_fn=shapes.dense_add,
)
register_op(
    "SparseTensorDenseMatMul(a_indices: Tindices, a_values: T, a_shape: int64, b: T) -> product: T",
    "T: type", "Tindices: {int32, int64} = int64", "adjoint_a: bool = false", "adjoint_b: bool = false",
    shape_fn=shapes.dense_mat_mul,
)
register_op(
    "SparseToDense(sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T) -> dense: T",
    "validate_indices: bool = true", "T: type", "Tindices: {int32, int64}", shape_fn=shapes.to_dense,
)
register_op(
    "TakeManySparseFromTensorsMap(sparse_handles: int64) -> sparse_indices: int64, sparse_values: dtype, "
    "sparse_shape: int64",
    "dtype: type", "container: string = ''", "shared_name: string = ''", stateful=True,
    shape_fn=shapes.sparse_from_handles,
)
