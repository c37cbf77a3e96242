"""Sparse matrices in compressed rows, in variants."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.sparse import csr_matrix_shapes as shapes

FLOATS_AND_COMPLEX = "{float, double, complex64, complex128}"

register_op(
    "CSRSparseMatrixComponents(csr_sparse_matrix: variant, index: int32) -> row_ptrs: int32, col_inds: int32, "
    "values: type",
    f"type: {FLOATS_AND_COMPLEX}", shape_fn=shapes.components,
)
register_op(
    "CSRSparseMatrixToDense(sparse_input: variant) -> dense_output: type", f"type: {FLOATS_AND_COMPLEX}",
    shape_fn=common.unknown_shape,
)
register_op(
    "CSRSparseMatrixToSparseTensor(sparse_matrix: variant) -> indices: int64, values: type, dense_shape: int64",
    f"type: {FLOATS_AND_COMPLEX}", shape_fn=shapes.to_sparse_tensor,
)
register_op(
    "DenseToCSRSparseMatrix(dense_input: T, indices: int64) -> sparse_output: variant",
    f"T: {FLOATS_AND_COMPLEX}", shape_fn=shapes.from_dense,
)
register_op(
    "SparseMatrixAdd(a: variant, b: variant, alpha: T, beta: T) -> c: variant", f"T: {FLOATS_AND_COMPLEX}",
    shape_fn=shapes.matrix_to_matrix,
)
register_op(
    "SparseMatrixMatMul(a: variant, b: T) -> output: T",
    "T: type", "transpose_a: bool = false", "transpose_b: bool = false", "adjoint_a: bool = false",
    "adjoint_b: bool = false", "transpose_output: bool = false", "conjugate_output: bool = false",
    shape_fn=shapes.dense_product,
)
register_op("SparseMatrixMul(a: variant, b: T) -> output: variant", "T: type", shape_fn=shapes.matrix_to_matrix)
register_op("SparseMatrixNNZ(sparse_matrix: variant) -> nnz: int32", shape_fn=common.unknown_shape)
register_op("SparseMatrixOrderingAMD(input: variant) -> output: int32", shape_fn=common.unknown_shape)
register_op(
    "SparseMatrixSoftmax(logits: variant) -> softmax: variant", "type: {float, double}",
    shape_fn=shapes.matrix_to_matrix,
)
register_op(
    "SparseMatrixSoftmaxGrad(softmax: variant, grad_softmax: variant) -> gradient: variant",
    "type: {float, double}", shape_fn=shapes.matrix_to_matrix,
)
register_op(
    "SparseMatrixSparseCholesky(input: variant, permutation: int32) -> output: variant",
    f"type: {FLOATS_AND_COMPLEX}", shape_fn=shapes.matrix_to_matrix,
)
register_op(
    "SparseMatrixSparseMatMul(a: variant, b: variant) -> c: variant",
    f"type: {FLOATS_AND_COMPLEX}", "transpose_a: bool = false", "transpose_b: bool = false", "adjoint_a: bool = false",
    "adjoint_b: bool = false", shape_fn=shapes.matrix_to_matrix,
)
register_op(
    "SparseMatrixTranspose(input: variant) -> output: variant",
    "conjugate: bool = false", f"type: {FLOATS_AND_COMPLEX}", shape_fn=shapes.matrix_to_matrix,
)
register_op(
    "SparseMatrixZeros(dense_shape: int64) -> sparse_matrix: variant", f"type: {FLOATS_AND_COMPLEX}",
    shape_fn=common.scalar,
)
register_op(
    "SparseTensorToCSRSparseMatrix(indices: int64, values: T, dense_shape: int64) -> sparse_matrix: variant",
    f"T: {FLOATS_AND_COMPLEX}", shape_fn=shapes.from_sparse_tensor,
)
