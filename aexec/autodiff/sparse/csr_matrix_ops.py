"""Gradients of sparse matrices by rows (CSR).

The gradient of a matrix has the matrix's own places: what other places would get is left out, as they are no variables.
A matrix that several ops use has several gradients, which are refused as in TensorFlow: AddN does not add matrices.
Next to read: `aexec/kernels/sparse/csr_matrix_ops.py`.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.dtypes import DType
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Any, ...]

no_gradient("SparseMatrixNNZ", "SparseMatrixOrderingAMD", "SparseMatrixZeros")


def _places(matrix: Tensor, dtype: DType) -> tuple[Tensor, Tensor, Tensor]:
    """Indices [n, 2 or 3], values and shape of a matrix, or of a batch of them."""
    return ops.csr_sparse_matrix_to_sparse_tensor(matrix, type=dtype)


def _conj(x: Tensor, dtype: DType) -> Tensor:
    return ops.conj(x) if dtype.is_complex else x


def _turned(x: Tensor, dtype: DType, *, adjoint: bool) -> Tensor:
    """The transpose of the matrices in a dense tensor, or its conjugate."""
    rank = ops.rank(x)
    order = ops.concat_v2([ops.range(0, rank - 2, 1), ops.pack([rank - 1, rank - 2])], 0)
    return _conj(ops.transpose(x, order), dtype) if adjoint else ops.transpose(x, order)


@gradient("DenseToCSRSparseMatrix")
def _from_dense(op: ForwardOp, grad: Tensor) -> Grads:
    return ops.csr_sparse_matrix_to_dense(grad, type=op.get_attr("T")), None


@gradient("CSRSparseMatrixToDense")
def _to_dense(op: ForwardOp, grad: Tensor) -> Grads:
    indices, _, shape = _places(op.inputs[0], op.get_attr("type"))
    return (ops.sparse_tensor_to_csr_sparse_matrix(indices, ops.gather_nd(grad, indices), shape),)


@gradient("SparseTensorToCSRSparseMatrix")
def _from_sparse_tensor(op: ForwardOp, grad: Tensor) -> Grads:
    return None, _places(grad, op.get_attr("T"))[1], None


@gradient("CSRSparseMatrixToSparseTensor")
def _to_sparse_tensor(op: ForwardOp, *grads: Any) -> Grads:
    if grads[1] is None:
        return (None,)
    return (ops.sparse_tensor_to_csr_sparse_matrix(op.outputs[0], grads[1], op.outputs[2]),)


@gradient("SparseMatrixTranspose")
def _transpose(op: ForwardOp, grad: Tensor) -> Grads:
    return (_sparse_turned(grad, op.get_attr("type"), adjoint=op.get_attr("conjugate")),)


@gradient("SparseMatrixSoftmax")
def _softmax(op: ForwardOp, grad: Tensor) -> Grads:
    return (ops.sparse_matrix_softmax_grad(op.outputs[0], grad, type=op.get_attr("type")),)


def _sparse_turned(matrix: Tensor, dtype: DType, *, adjoint: bool) -> Tensor:
    return ops.sparse_matrix_transpose(matrix, type=dtype, conjugate=adjoint)


def _values_at(grad: Tensor, indices: Tensor, shape: Tensor, dtype: DType) -> Tensor:
    """The values of a sparse matrix at the places of another of the same shape; 0 where it has none."""
    strides = ops.cumprod(shape, 0, exclusive=True, reverse=True)
    own, values, _ = _places(grad, dtype)
    wanted = ops.sum(indices * strides, [1])
    # The places of a matrix are sorted; one that is behind all others is no place.
    given = ops.concat_v2([ops.sum(own * strides, [1]), ops.cast([-1], DstT="int64")], 0)
    values = ops.concat_v2([values, ops.cast([0], DstT=dtype)], 0)
    found = ops.lower_bound(ops.expand_dims(given[:-1], 0), ops.expand_dims(wanted, 0))[0]
    same = ops.equal(ops.gather_v2(given, found, 0), wanted)
    return ops.select_v2(same, ops.gather_v2(values, found, 0), ops.zeros_like(ops.gather_v2(values, found, 0)))


def _at_places_of(matrix: Tensor, grad: Tensor, dtype: DType) -> Tensor:
    """A sparse matrix with the places of `matrix` and the values of `grad`."""
    indices, _, shape = _places(matrix, dtype)
    return ops.sparse_tensor_to_csr_sparse_matrix(indices, _values_at(grad, indices, shape, dtype), shape)


@gradient("SparseMatrixAdd")
def _add(op: ForwardOp, grad: Tensor) -> Grads:
    """The factors have gradients, too, which TensorFlow does not have."""
    dtype = op.get_attr("T")
    of_matrices, of_factors = [], []
    for matrix, factor in zip(op.inputs[:2], op.inputs[2:], strict=True):
        indices, values, shape = _places(matrix, dtype)
        at = _values_at(grad, indices, shape, dtype)
        scaled = at * _conj(factor, dtype)
        of_matrices.append(ops.sparse_tensor_to_csr_sparse_matrix(indices, scaled, shape))
        of_factors.append(ops.sum(_conj(values, dtype) * at, [0]))
    return *of_matrices, *of_factors


def _how(op: ForwardOp, side: str) -> tuple[bool, bool]:
    """Whether a factor is transposed, and whether it is conjugated at that."""
    adjoint = op.get_attr(f"adjoint_{side}")
    return op.get_attr(f"transpose_{side}") or adjoint, adjoint


@gradient("SparseMatrixMatMul")
def _dense_product(op: ForwardOp, grad: Tensor) -> Grads:
    a, b = op.inputs
    dtype = op.get_attr("T")
    turns_a, adjoint_a = _how(op, "a")
    turns_b, adjoint_b = _how(op, "b")
    if op.get_attr("conjugate_output"):
        grad = _conj(grad, dtype)
    if op.get_attr("transpose_output"):
        grad = _turned(grad, dtype, adjoint=False)
    factor = _turned(b, dtype, adjoint=adjoint_b) if turns_b else b
    return (
        _of_places(a, (turns_a, adjoint_a), grad, factor, dtype),
        _of_dense_factor(a, (turns_a, adjoint_a), grad, (turns_b, adjoint_b), dtype),
    )


def _of_places(a: Tensor, how: tuple[bool, bool], grad: Tensor, factor: Tensor, dtype: DType) -> Tensor:
    """The gradient of the sparse factor: each place is a row of `grad` times a row of the other factor."""
    turns, adjoint = how
    indices, _, shape = _places(a, dtype)
    batch, row, column = indices[:, :-2], indices[:, -2:-1], indices[:, -1:]
    if turns:
        row, column = column, row
    left = ops.gather_nd(grad, ops.concat_v2([batch, row], 1))
    right = ops.gather_nd(factor, ops.concat_v2([batch, column], 1))
    values = ops.sum(left * _conj(right, dtype), [1])
    return ops.sparse_tensor_to_csr_sparse_matrix(indices, _conj(values, dtype) if adjoint else values, shape)


def _of_dense_factor(a: Tensor, how: tuple[bool, bool], grad: Tensor, how_b: tuple[bool, bool], dtype: DType) -> Tensor:
    turns, adjoint = how
    if not turns:
        found = ops.sparse_matrix_mat_mul(a, grad, adjoint_a=True)
    elif adjoint:
        found = ops.sparse_matrix_mat_mul(a, grad)
    else:
        found = _conj(ops.sparse_matrix_mat_mul(a, _conj(grad, dtype)), dtype)
    turns_b, adjoint_b = how_b
    return _turned(found, dtype, adjoint=adjoint_b) if turns_b else found


@gradient("SparseMatrixSparseMatMul")
def _sparse_product(op: ForwardOp, grad: Tensor) -> Grads:
    a, b = op.inputs
    dtype = op.get_attr("type")
    how_a, how_b = _how(op, "a"), _how(op, "b")
    of_a = ops.sparse_matrix_sparse_mat_mul(grad, _adjoint_of_factor(b, how_b, dtype), type=dtype)
    of_b = ops.sparse_matrix_sparse_mat_mul(_adjoint_of_factor(a, how_a, dtype), grad, type=dtype)
    return tuple(
        _at_places_of(matrix, _sparse_turned(found, dtype, adjoint=how[1]) if how[0] else found, dtype)
        for matrix, found, how in ((a, of_a, how_a), (b, of_b, how_b))
    )


def _adjoint_of_factor(matrix: Tensor, how: tuple[bool, bool], dtype: DType) -> Tensor:
    """The adjoint of a factor as it is multiplied."""
    turns, adjoint = how
    if adjoint:
        return matrix
    turned = _sparse_turned(matrix, dtype, adjoint=True)
    return _sparse_turned(turned, dtype, adjoint=False) if turns else turned
