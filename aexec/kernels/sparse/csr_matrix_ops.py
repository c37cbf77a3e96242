"""Sparse matrices in compressed rows, or batches of them, in variants; the arithmetic is SciPy's.

Where TensorFlow has kernels for GPUs only (sums, products by a scalar, softmax, zeros), these run here as well.
Next to read: `csr_matrix.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.files import blocking
from aexec.kernels.common.variants import boxed
from aexec.kernels.sparse.csr_matrix import CSRSparseMatrix, csr_from_entries, csr_of, csr_of_parts

__all__: list[str] = []

Array = Any
_TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
_SCIPY = ("scipy.sparse",)
# Rows of a sparse matrix that are multiplied at a time: their entries times the columns of the other.
_PIECE = 1 << 16
# Bytes per entry of a product, and of a factor.
_ENTRY_BYTES = 24


# ---------------------------------------------------------------- To and from tensors


@kernel("SparseTensorToCSRSparseMatrix", T=_TYPES, cost=blocking)
def from_sparse_tensor(c: OpKernelConstruction) -> Compute:
    """Return the matrix, or batch of matrices, of a sparse tensor of rank 2 or 3."""

    def compute(indices: Array, values: Array, dense_shape: Array) -> Any:
        if indices.ndim != 2 or values.ndim != 1 or dense_shape.ndim != 1:
            raise errors.InvalidArgumentError("indices must be a matrix, values and dense_shape vectors")
        if dense_shape.size not in (2, 3) or indices.shape[1] != dense_shape.size:
            raise errors.InvalidArgumentError(
                f"SparseTensor must have rank 2 or 3; but indices has rank: {indices.shape[1]}"
            )
        if len(indices) != len(values):
            raise errors.InvalidArgumentError(
                f"Number of elements in indices ({len(indices)}) and values ({len(values)}) do not match"
            )
        return boxed(csr_from_entries(indices, values, tuple(dense_shape.tolist())))

    return compute


@kernel("DenseToCSRSparseMatrix", T=_TYPES, cost=blocking)
def from_dense(c: OpKernelConstruction) -> Compute:
    """Return the matrix of those elements of a dense matrix, or batch, that the indices name."""

    def compute(dense: Array, indices: Array) -> Any:
        if dense.ndim not in (2, 3):
            raise errors.InvalidArgumentError(
                f"params must have rank == 2 or 3; but saw shape: {shape_text(dense.shape)}"
            )
        if indices.ndim != 2 or indices.shape[1] != dense.ndim:
            raise errors.InvalidArgumentError(
                f"indices must be a matrix of {dense.ndim} columns; but saw shape: {shape_text(indices.shape)}"
            )
        announce_scratch(4 * indices.nbytes)
        inside = ((indices >= 0) & (indices < np.array(dense.shape))).all(axis=1)
        if not inside.all():
            at = int(inside.argmin())
            raise errors.InvalidArgumentError(
                f"indices[{at}] = {shape_text(indices[at].tolist())} does not index into param shape "
                f"{shape_text(dense.shape)}"
            )
        return boxed(csr_from_entries(indices, dense[tuple(indices.T)], dense.shape))

    return compute


@kernel("CSRSparseMatrixComponents", type=_TYPES, host_memory=("index",), cost=0)
def components(c: OpKernelConstruction) -> Compute:
    """Return row pointers, columns and values of one matrix of a batch."""
    wanted = c.attr("type").np

    def compute(matrix: Array, index: Array) -> Any:
        found = csr_of(matrix, wanted)
        if index.ndim:
            raise errors.InvalidArgumentError(f"index should be a scalar, but saw: {shape_text(index.shape)}")
        if not 0 <= index < found.batch:
            raise errors.InvalidArgumentError(f"index ({index}) not in [0, {found.batch})")
        return found.parts(int(index))

    return compute


@kernel("CSRSparseMatrixToDense", type=_TYPES, cost=blocking)
def to_dense(c: OpKernelConstruction) -> Compute:
    """Return the matrix, or batch, with zeros where it has no entry; the last of several entries counts."""
    wanted, allocate = c.attr("type").np, allocator(c)

    def compute(matrix: Array) -> Any:
        found = csr_of(matrix, wanted)
        out = allocate(found.shape, np.zeros)
        indices = found.indices()
        out[tuple(indices.T)] = found.values
        return out

    return compute


@kernel("CSRSparseMatrixToSparseTensor", type=_TYPES, cost=blocking)
def to_sparse_tensor(c: OpKernelConstruction) -> Compute:
    """Return indices, values and shape."""
    wanted = c.attr("type").np

    def compute(matrix: Array) -> Any:
        found = csr_of(matrix, wanted)
        return found.indices(), found.values, np.array(found.shape, np.int64)

    return compute


@kernel("SparseMatrixNNZ", host_memory=("nnz",), cost=0)
def entry_count(c: OpKernelConstruction) -> Compute:
    """Return how many entries a matrix has, or each one of a batch."""

    def compute(matrix: Array) -> Any:
        found = csr_of(matrix)
        counts = np.diff(found.batch_pointers)
        return counts if len(found.shape) == 3 else counts[0]

    return compute


@kernel("SparseMatrixZeros", type=_TYPES, cost=blocking)
def zeros(c: OpKernelConstruction) -> Compute:
    """Return a matrix, or batch of matrices, without entries."""
    wanted = c.attr("type").np

    def compute(dense_shape: Array) -> Any:
        if dense_shape.ndim != 1 or dense_shape.size not in (2, 3):
            raise errors.InvalidArgumentError(
                f"dense_shape must be a vector of 2 or 3 elements, got shape {shape_text(dense_shape.shape)}"
            )
        empty = np.zeros((0, dense_shape.size), np.int64)
        return boxed(csr_from_entries(empty, np.zeros(0, wanted), tuple(dense_shape.tolist())))

    return compute


# ---------------------------------------------------------------- Products


def _flags(c: OpKernelConstruction, side: str) -> tuple[bool, bool]:
    """Return (is the operand transposed, is it conjugated)."""
    transpose, adjoint = c.attr(f"transpose_{side}"), c.attr(f"adjoint_{side}")
    if transpose and adjoint:
        raise errors.InvalidArgumentError(f"Only one of adjoint_{side} and transpose_{side} may be true.")
    return transpose or adjoint, adjoint


def _operand(matrix: Any, transposed: bool, conjugated: bool) -> Any:
    if not transposed:
        return matrix
    return (matrix.conj() if conjugated else matrix).T.tocsr()


def _check_inner(a: tuple[int, ...], b: tuple[int, ...], left: bool, right: bool) -> None:
    inner_a, inner_b = a[-2 if left else -1], b[-1 if right else -2]
    if inner_a != inner_b or len(a) != len(b):
        raise errors.InvalidArgumentError(
            f"Inner product dimensions of A and B do not agree.  Shapes are: {shape_text(a)} vs. {shape_text(b)}"
        )


@kernel("SparseMatrixMatMul", T=_TYPES, cost=blocking, needs=_SCIPY)
def dense_product(c: OpKernelConstruction) -> Compute:
    """Return the product of a sparse matrix and a dense one, for each of a batch."""
    (left, left_conj), (right, right_conj), allocate = _flags(c, "a"), _flags(c, "b"), allocator(c)
    transpose_output, conjugate_output = c.attr("transpose_output"), c.attr("conjugate_output")

    def compute(a: Array, b: Array) -> Any:
        matrix = csr_of(a)
        if matrix.values.dtype != b.dtype:
            raise errors.InvalidArgumentError(
                f"Input types don't match.  a.dtype == {matrix.type_text} vs. b.dtype == {dtypes.from_numpy(b.dtype)}"
            )
        if len(matrix.shape) != b.ndim:
            raise errors.InvalidArgumentError(f"Ranks of a and b must match, saw: {len(matrix.shape)} vs. {b.ndim}.")
        batches = b if b.ndim == 3 else b[None]
        if matrix.batch != len(batches):
            raise errors.InvalidArgumentError(
                f"Batch sizes of a and b must match, saw: {matrix.batch} vs. {len(batches)}."
            )
        _check_inner(matrix.shape, b.shape, left, right)
        rows, columns = matrix.shape[-1 if left else -2], b.shape[-2 if right else -1]
        out = allocate((len(batches), *((columns, rows) if transpose_output else (rows, columns))), np.zeros)
        announce_scratch(_ENTRY_BYTES * matrix.values.size)
        for number, dense in enumerate(batches):
            sparse = _operand(matrix.scipy(number), left, left_conj)
            other = dense.T if right else dense
            _multiply(sparse, other.conj() if right_conj else other, out[number].T if transpose_output else out[number])
        if conjugate_output:
            np.conj(out, out=out)
        return out if b.ndim == 3 else out[0]

    return compute


def _multiply(sparse: Any, dense: Array, out: Array) -> None:
    """Write the product into `out`, some rows at a time, since SciPy keeps the interpreter to itself."""
    work = np.add(1, sparse.indptr, dtype=np.int64) * max(dense.shape[1], 1)
    start = 0
    while start < len(out):
        check_wanted()
        end = max(int(np.searchsorted(work, work[start] + _PIECE)), start + 1)
        out[start:end] = sparse[start:end] @ dense
        start = end


@kernel("SparseMatrixSparseMatMul", type=_TYPES, cost=blocking, needs=_SCIPY)
def sparse_product(c: OpKernelConstruction) -> Compute:
    """Return the product of two sparse matrices, for each of a batch."""
    wanted, (left, left_conj), (right, right_conj) = c.attr("type").np, _flags(c, "a"), _flags(c, "b")

    def compute(a: Array, b: Array) -> Any:
        first, second = csr_of(a, wanted, "dtype of a"), csr_of(b, wanted, "dtype of b")
        _check_inner(first.shape, second.shape, left, right)
        if first.batch != second.batch:
            raise errors.InvalidArgumentError(
                f"Batch sizes of A and B do not agree.  Batch sizes are: {first.batch} vs. {second.batch}"
            )
        shape = (*first.shape[:-2], first.shape[-1 if left else -2], second.shape[-2 if right else -1])
        parts = []
        for number in range(first.batch):
            x = _operand(first.scipy(number), left, left_conj)
            y = _operand(second.scipy(number), right, right_conj)
            announce_scratch(_ENTRY_BYTES * int(np.diff(y.indptr)[x.indices].sum(dtype=np.int64)))
            parts.append(_product_by_rows(x, y))
        return boxed(csr_of_parts(parts, shape, wanted))

    return compute


def _product_by_rows(x: Any, y: Any) -> Any:
    from scipy import sparse

    # The products that each row needs, and one for the row itself.
    work = np.concatenate([[0], np.cumsum(np.diff(y.indptr)[x.indices], dtype=np.int64)])[x.indptr]
    work = work + np.arange(len(work))
    pieces, start = [], 0
    while start < x.shape[0]:
        check_wanted()
        end = max(int(np.searchsorted(work, work[start] + _PIECE)), start + 1)
        piece = x[start:end] @ y
        piece.sort_indices()  # SciPy leaves the columns of a row in any order
        pieces.append(piece)
        start = end
    return sparse.vstack(pieces, format="csr") if pieces else sparse.csr_array((0, y.shape[1]), dtype=x.dtype)


# ---------------------------------------------------------------- Elementwise


@kernel("SparseMatrixTranspose", type=_TYPES, cost=blocking, needs=_SCIPY)
def transposed(c: OpKernelConstruction) -> Compute:
    """Return the transpose of a matrix, or of each one of a batch, conjugated if the attr says so."""
    wanted, conjugate = c.attr("type").np, c.attr("conjugate")

    def compute(matrix: Array) -> Any:
        found = csr_of(matrix, wanted, "dtype of input")
        announce_scratch(_ENTRY_BYTES * found.values.size)
        parts = [_operand(found.scipy(number), True, conjugate) for number in range(found.batch)]
        return boxed(csr_of_parts(parts, (*found.shape[:-2], found.shape[-1], found.shape[-2]), wanted))

    return compute


@kernel("SparseMatrixAdd", T=_TYPES, cost=blocking, needs=_SCIPY)
def weighted_sum(c: OpKernelConstruction) -> Compute:
    """Return alpha a + beta b."""
    wanted = c.attr("T").np

    def compute(a: Array, b: Array, alpha: Array, beta: Array) -> Any:
        first, second = csr_of(a, wanted, "dtype of a"), csr_of(b, wanted, "dtype of b")
        if alpha.ndim or beta.ndim:
            raise errors.InvalidArgumentError("alpha and beta must be scalars")
        if first.shape != second.shape:
            raise errors.InvalidArgumentError(
                f"Shapes of a and b must match, saw: {shape_text(first.shape)} vs. {shape_text(second.shape)}"
            )
        announce_scratch(2 * _ENTRY_BYTES * (first.values.size + second.values.size))
        parts = [first.scipy(n) * alpha + second.scipy(n) * beta for n in range(first.batch)]
        return boxed(csr_of_parts(parts, first.shape, wanted))

    return compute


@kernel("SparseMatrixMul", T=_TYPES, cost=blocking)
def scaled(c: OpKernelConstruction) -> Compute:
    """Return a matrix times a scalar, or a batch times a tensor [batch, 1, 1]."""
    wanted = c.attr("T").np

    def compute(a: Array, b: Array) -> Any:
        found = csr_of(a, wanted, "dtype of a")
        if b.ndim and b.shape != (found.batch, 1, 1):
            raise errors.UnimplementedError(
                f"b must be a scalar or of shape [{found.batch},1,1], saw: {shape_text(b.shape)}"
            )
        factors = np.repeat(b.reshape(-1), np.diff(found.batch_pointers)) if b.ndim else b
        return boxed(found.with_values(found.values * factors))

    return compute


def _row_numbers(found: CSRSparseMatrix) -> Array:
    """int64 [entries]: the row that each entry is in, counted through the batch."""
    return np.repeat(np.arange(found.batch * found.shape[-2]), found.row_lengths())


@kernel("SparseMatrixSoftmax", type=(dtypes.float32, dtypes.float64), cost=blocking, scratch=0)
def softmax(c: OpKernelConstruction) -> Compute:
    """Return the softmax of the entries of each row; what has no entry stays without."""
    wanted = c.attr("type").np

    def compute(logits: Array) -> Any:
        found = csr_of(logits, wanted, "dtype of logits")
        announce_scratch(_ENTRY_BYTES * (found.values.size + found.row_pointers.size))
        row, count = _row_numbers(found), found.batch * found.shape[-2]
        largest = np.full(count, -np.inf, wanted)
        with np.errstate(all="ignore"):
            np.maximum.at(largest, row, found.values)
            powers = np.exp(found.values - largest[row])
            sums = np.bincount(row, powers, count).astype(wanted)
            return boxed(found.with_values(powers / sums[row]))

    return compute


@kernel("SparseMatrixSoftmaxGrad", type=(dtypes.float32, dtypes.float64), cost=blocking)
def softmax_grad(c: OpKernelConstruction) -> Compute:
    """Return softmax (grad - the sum of softmax grad over its row); both have the same entries."""
    wanted = c.attr("type").np

    def compute(output: Array, grad: Array) -> Any:
        y, dy = csr_of(output, wanted, "dtype of softmax"), csr_of(grad, wanted, "dtype of grad_softmax")
        if y.shape != dy.shape:
            raise errors.InvalidArgumentError(
                f"Shapes of softmax and grad_softmax must match, saw: {shape_text(y.shape)} vs. {shape_text(dy.shape)}"
            )
        if not np.array_equal(y.row_pointers, dy.row_pointers) or not np.array_equal(y.columns, dy.columns):
            raise errors.InvalidArgumentError("softmax and grad_softmax must have entries at the same places")
        announce_scratch(_ENTRY_BYTES * (y.values.size + y.row_pointers.size))
        row, count = _row_numbers(y), y.batch * y.shape[-2]
        with np.errstate(all="ignore"):
            sums = np.bincount(row, y.values * dy.values, count).astype(wanted)
            return boxed(y.with_values(y.values * (dy.values - sums[row])))

    return compute
