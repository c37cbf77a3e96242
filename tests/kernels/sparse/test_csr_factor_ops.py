"""Cholesky factors of sparse matrices: TensorFlow's answers, complex numbers, orderings, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.answer_tables import INVALID
from tests.kernels.array_support import F32, I32, I64, assert_refuses
from tests.kernels.harness import run_op

LOWER = F32([[4, 0, 0, 0], [0, 2, 0, 0], [0, 1, 10, 0], [0.5, 0, 0, 1]])
FAILED = "Sparse Cholesky factorization failed for batch index 0. The input might not be valid."


def csr(dense):
    return run_op("DenseToCSRSparseMatrix", [dense, np.argwhere(dense)])


def factor(dense, order):
    kind = str(np.dtype(dense.dtype))
    made = run_op("SparseMatrixSparseCholesky", [csr(dense), I32(order)], type=kind)
    return run_op("CSRSparseMatrixToDense", [made], type=kind)


def test_factor_is_tensorflows():
    lower = LOWER.copy()
    lower[3, 0] = 0
    want = [[2, 0, 0, 0], [0, 1.4142135, 0, 0], [0, 0.70710677, 3.082207, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(factor(lower, range(4)), want, rtol=1e-6)
    want = [[2, 0, 0, 0], [0.25, 0.96824586, 0, 0], [0, 0, 3.1622777, 0], [0, 0, 0.31622776, 1.3784049]]
    np.testing.assert_allclose(factor(LOWER, [0, 3, 2, 1]), want, rtol=1e-6)


def test_factors_of_a_batch_of_complex_matrices():
    random = np.random.default_rng(5)
    x = random.normal(size=(2, 6, 6)) + 1j * random.normal(size=(2, 6, 6))
    x[:, :2, 3:] = 0
    full = x @ x.conj().swapaxes(1, 2) + np.eye(6)
    orders = run_op("SparseMatrixOrderingAMD", [csr(full)])
    assert orders.dtype == np.int32 and np.sort(orders, axis=1).tolist() == [list(range(6))] * 2
    for matrix, order, made in zip(full, orders, factor(np.tril(full), orders), strict=True):
        np.testing.assert_allclose(made, np.linalg.cholesky(matrix[order][:, order]), rtol=1e-9, atol=1e-9)


def test_ordering_keeps_a_factor_sparse():
    """A matrix of a chain, whose rows are mixed: in the order of the chain no entries are added."""
    count, random = 50, np.random.default_rng(2)
    mixed = random.permutation(count)
    chain = 4 * np.eye(count) + np.diag(np.ones(count - 1), 1) + np.diag(np.ones(count - 1), -1)
    matrix = csr(chain[mixed][:, mixed])
    order = run_op("SparseMatrixOrderingAMD", [matrix])
    made = run_op("SparseMatrixSparseCholesky", [matrix, order], type="double")
    assert np.count_nonzero(run_op("CSRSparseMatrixToDense", [made], type="double")) == 2 * count - 1


@pytest.mark.parametrize(
    ("dense", "order", "message"),
    [
        (F32([[4, 0], [0, -2]]), [0, 1], FAILED),
        (F32([[4, 0], [0, 0]]), [0, 1], FAILED),
        (F32([[4, 0], [9, 1]]), [0, 1], FAILED),
        (F32([[4, 0], [0, np.nan]]), [0, 1], FAILED),
        (F32([[4, 0], [0, 2]]), [0, 5], FAILED),
        (F32([[4, 0], [0, 2]]), [0, 0], FAILED),
        (F32([[4, 0, 1], [0, 2, 0]]), [0, 1], "sparse matrix must be square; got: 2 != 3"),
        (F32([[4, 0], [0, 2]]), [[0, 1]], "permutation must have rank 1; got: 2"),
        (
            F32([[4, 0], [0, 2]]),
            [0],
            "permutation must have the same number of elements in each batch as the number of rows in sparse matrix; "
            "got: 1 != 2",
        ),
    ],
)
def test_refused(dense, order, message):
    assert_refuses("SparseMatrixSparseCholesky", [csr(dense), I32(order)], message, INVALID, type="float32")


def test_empty_matrix():
    empty = run_op("SparseTensorToCSRSparseMatrix", [I64(np.zeros((0, 2))), F32([]), I64([0, 0])])
    assert run_op("SparseMatrixOrderingAMD", [empty]).tolist() == []
    made = run_op("SparseMatrixSparseCholesky", [empty, I32([])], type="float32")
    assert run_op("CSRSparseMatrixToDense", [made], type="float32").shape == (0, 0)
