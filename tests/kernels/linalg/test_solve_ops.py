"""Systems of equations: they are solved; what singular ones give; TensorFlow's messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.linalg_support import adjoint, assert_close, random, refused, run_op

TYPES = [np.float32, np.float64, np.complex64, np.complex128]
A = np.float32([[2, 1], [1, 3]])


def ones(*shape):
    return np.ones(shape, np.float32)


def zeros(*shape):
    return np.zeros(shape, np.float32)


# MatrixSolve


@pytest.mark.parametrize(
    ("op", "dtype"), [*(("MatrixSolve", t) for t in TYPES), *(("BatchMatrixSolve", t) for t in TYPES[:2])]
)
def test_solve(op, dtype):
    a, x = random(2, 3, 4, 4, dtype=dtype) + 4 * np.eye(4, dtype=dtype), random(2, 3, 4, 2, dtype=dtype)
    assert_close(run_op(op, a, a @ x), x)
    assert_close(run_op(op, a, adjoint(a) @ x, adjoint=True), x)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (ones(2, 3), ones(2, 1), "First input (lhs) must be a square matrix."),
        (A, ones(3, 1), "Input matrix and rhs are incompatible."),
        (A, ones(2), "All input tensors must have the same rank."),
        (ones(2), ones(2, 1), "Input tensor 0 must have rank >= 2, got 1"),
        (np.stack([A, A]), ones(3, 2, 1), "All input tensors must have the same outer dimensions."),
        (A[None], ones(3, 2, 1), "All input tensors must have the same outer dimensions."),
    ],
)
def test_solve_errors(a, b, message):
    assert refused("MatrixSolve", a, b) == message


@pytest.mark.parametrize("op", ["MatrixSolve", "MatrixTriangularSolve"])
@pytest.mark.parametrize(
    ("a", "b"), [((0, 0), (0, 2)), ((2, 2), (2, 0)), ((0, 2, 2), (0, 2, 1)), ((2, 0, 0), (2, 0, 1))]
)
def test_empty_systems_have_empty_solutions(op, a, b):
    identity = np.broadcast_to(np.eye(a[-1], dtype=np.float32), a)
    assert run_op(op, identity, zeros(*b)).shape == b


# MatrixSolveLs


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (3, 3), (2, 3, 5)])
@pytest.mark.parametrize("fast", [False, True])
def test_least_squares(dtype, shape, fast):
    a, b = random(*shape, dtype=dtype), random(*shape[:-1], 2, dtype=dtype, seed=1)
    assert_close(run_op("MatrixSolveLs", a, b, 0.0, fast=fast), np.linalg.pinv(a) @ b)


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5)])
def test_regularized_least_squares(shape):
    a, b = random(*shape, dtype=np.complex128), random(*shape[:-1], 2, dtype=np.complex128, seed=1)
    want = np.linalg.solve(adjoint(a) @ a + 0.5 * np.eye(shape[-1]), adjoint(a) @ b)
    assert_close(run_op("MatrixSolveLs", a, b, 0.5), want)
    # The slow way has no use for the regularizer.
    assert_close(run_op("MatrixSolveLs", a, b, 0.5, fast=False), np.linalg.pinv(a) @ b)


def test_rank_deficient_least_squares():
    advice = (
        "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide {} l2_regularizer > 0."
    )
    assert refused("MatrixSolveLs", ones(3, 2), ones(3, 1), 0.0) == advice.format("a larger")
    assert refused("MatrixSolveLs", ones(2, 3), ones(2, 1), 0.0) == advice.format("an")
    assert_close(run_op("MatrixSolveLs", ones(2, 3), ones(2, 1), 0.0, fast=False), np.full((3, 1), 1 / 3, np.float32))
    assert_close(run_op("MatrixSolveLs", zeros(2, 2), ones(2, 1), 0.0, fast=False), zeros(2, 1))


def test_least_squares_with_nan():
    nan = np.float32([[1, 2], [3, np.nan]])
    assert np.isnan(run_op("MatrixSolveLs", nan, ones(2, 1), 0.0)).all()
    assert_close(run_op("MatrixSolveLs", nan, ones(2, 1), 0.0, fast=False), zeros(2, 1))


def test_least_squares_errors():
    assert refused("MatrixSolveLs", A, ones(3, 1), 0.0) == "Input matrix and rhs are incompatible."
    assert refused("MatrixSolveLs", A, ones(2, 1), [0.0]) == "l2_regularizer must be scalar, got shape [1]"
    for wrong in (-1.0, np.nan):
        assert refused("MatrixSolveLs", A, ones(2, 1), wrong) == "l2_regularizer must be >= 0."
    assert run_op("MatrixSolveLs", zeros(0, 3), zeros(0, 2), 0.0).tolist() == [[0, 0]] * 3
    assert run_op("MatrixSolveLs", zeros(3, 0), zeros(3, 2), 0.0).shape == (0, 2)


# Triangular systems


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("adjointed", [False, True])
@pytest.mark.parametrize(("batch_a", "batch_b"), [((), ()), ((2,), (2,)), ((), (3,)), ((3,), ()), ((2, 1), (1, 3))])
def test_triangular_solve(dtype, lower, adjointed, batch_a, batch_b):
    a = random(*batch_a, 4, 4, dtype=dtype) + 3 * np.eye(4, dtype=dtype)
    b = random(*batch_b, 4, 2, dtype=dtype, seed=1)
    x = run_op("MatrixTriangularSolve", a, b, lower=lower, adjoint=adjointed)
    triangle = np.tril(a) if lower else np.triu(a)
    product = (adjoint(triangle) if adjointed else triangle) @ x
    assert_close(product, np.broadcast_to(b, product.shape))


def test_triangular_solve_with_zero_on_the_diagonal():
    assert not np.isfinite(run_op("MatrixTriangularSolve", zeros(2, 2), ones(2, 1))).any()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (2, 1), "In[0] matrices in the last dimensions must be square (3 =/= 2)"),
        ((2, 2), (3, 1), "In[0] mismatch In[1] shape: 2 vs. 3: [2,2] [3,1] 1 0"),
        ((2, 2), (2,), "In[1] ndims must be >= 2: 1"),
        ((2,), (2, 1), "In[0] ndims must be >= 2: 1"),
        ((2, 2, 2), (3, 2, 1), "In[0] and In[1] must have compatible batch dimensions: [2,2,2] vs. [3,2,1]"),
    ],
)
def test_triangular_solve_errors(a, b, message):
    assert refused("MatrixTriangularSolve", zeros(*a), zeros(*b)) == message


def from_bands(bands, lower):
    """The matrix of bands whose entries stand in the column of their row."""
    count, n = bands.shape
    matrix = np.zeros((n, n), bands.dtype)
    for i in range(count):
        for row in range(n):
            column = row - i if lower else row + count - 1 - i
            if 0 <= column < n:
                matrix[row, column] = bands[i, row]
    return matrix


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.sampled_from(TYPES),
    st.sampled_from([((), ()), ((2,), ()), ((), (2,)), ((2, 1), (3,))]),
)
def test_banded_triangular_solve(count, n, lower, adjointed, dtype, batches):
    bands = random(*batches[0], count, n, dtype=dtype) * dtype(0.3) + dtype(2)
    rhs = random(*batches[1], n, 2, dtype=dtype, seed=1)
    x = run_op("BandedTriangularSolve", bands, rhs, lower=lower, adjoint=adjointed)
    matrix = np.stack([from_bands(b, lower) for b in bands.reshape(-1, count, n)]).reshape(*batches[0], n, n)
    product = (adjoint(matrix) if adjointed else matrix) @ x
    assert_close(product, np.broadcast_to(rhs, product.shape))


def test_banded_triangular_solve_errors():
    op = "BandedTriangularSolve"
    assert refused(op, zeros(2, 2), ones(2, 1)) == "Input matrix is not invertible."
    assert refused(op, np.full((1, 2), np.nan, np.float32), ones(2, 1)) == "Input matrix is not invertible."
    assert refused(op, ones(2, 3), ones(4, 1), lower=False) == "In[0] mismatch In[1] shape: 3 vs. 4: [2,3] [4,1] 0 0"
    assert refused(op, ones(2, 2, 3), ones(3, 3, 1)).startswith("In[0] and In[1] must have compatible batch dimensions")
    assert refused(op, ones(2), ones(2, 1)) == "In[0] ndims must be >= 2: 1"
    assert refused(op, zeros(0, 3), ones(3, 1)) == (
        "In[0] must not be an empty tensor: Tensor<type: float shape: [0,3] values: >"
    )
    assert refused(op, ones(2, 2), zeros(2, 0)).startswith("In[1] must not be an empty tensor")


# Tridiagonal systems


def tridiagonal(diagonals):
    upper, main, lower = diagonals
    return np.diag(upper[:-1], 1) + np.diag(main) + np.diag(lower[1:], -1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_tridiagonal_mat_mul(dtype, n):
    diagonals, rhs = random(2, 3, n, dtype=dtype), random(2, n, 2, dtype=dtype)
    want = np.stack([tridiagonal(d) @ r for d, r in zip(diagonals, rhs, strict=True)])
    assert_close(run_op("TridiagonalMatMul", *(diagonals[:, i : i + 1] for i in range(3)), rhs), want)


def test_tridiagonal_mat_mul_errors():
    right, wrong, rhs = ones(1, 3), ones(1, 4), ones(3, 2)
    assert refused("TridiagonalMatMul", wrong, right, right, rhs) == "Invalid superdiagonal shape."
    assert refused("TridiagonalMatMul", right, wrong, right, rhs) == "Invalid main diagonal shape."
    assert refused("TridiagonalMatMul", right, right, wrong, rhs) == "Invalid subdiagonal shape."
    assert refused("TridiagonalMatMul", ones(3), right, right, rhs) == "Input tensor 0 must have rank >= 2, got 1"
    assert run_op("TridiagonalMatMul", zeros(1, 0), zeros(1, 0), zeros(1, 0), zeros(0, 2)).shape == (0, 2)


MODES = [{}, {"partial_pivoting": False}, {"perturb_singular": True}]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_tridiagonal_solve(dtype, mode, n):
    diagonals, x = random(2, 2, 3, n, dtype=dtype), random(2, 2, n, 3, dtype=dtype, seed=1)
    diagonals[..., 1, :] += dtype(3)
    matrices = np.stack([tridiagonal(d) for d in diagonals.reshape(4, 3, n)]).reshape(2, 2, n, n)
    assert_close(run_op("TridiagonalSolve", diagonals, matrices @ x, **mode), x)


@pytest.mark.parametrize("mode", [MODES[0], MODES[2]])
def test_tridiagonal_solve_exchanges_rows(mode):
    diagonals = np.float32([[2, 1, 9], [0, 0, 6], [9, 7, 8]])
    x = np.float32([[1], [2], [3]])
    assert_close(run_op("TridiagonalSolve", diagonals, tridiagonal(diagonals) @ x, **mode), x)
    assert np.isnan(run_op("TridiagonalSolve", diagonals, x, partial_pivoting=False)).all()


def test_singular_tridiagonal_matrices():
    singular = np.float32([[1, 1, 9], [1, 1, 0], [9, 0, 0]])
    batch, rhs = np.stack([singular, singular + np.float32([[0], [3], [0]])]), ones(2, 3, 1)
    for mode in MODES[:2]:
        got = run_op("TridiagonalSolve", batch, rhs, **mode)
        assert np.isnan(got[0]).all()
        assert np.isfinite(got[1]).all()
    for n in (1, 3):
        assert np.isnan(run_op("TridiagonalSolve", zeros(3, n), ones(n, 2))).all()
    # The last pivot becomes epsilon.
    got = run_op("TridiagonalSolve", singular, ones(3, 1), perturb_singular=True)
    assert got.tolist() == [[2.0**23], [1 - 2.0**23], [2.0**23]]
    assert np.isfinite(run_op("TridiagonalSolve", zeros(3, 3), ones(3, 1), perturb_singular=True)).all()


def test_pivots_so_small_that_they_are_scaled():
    tiny = np.float32([[0], [1e-39], [0]])
    got = run_op("TridiagonalSolve", tiny, np.full((1, 1), 1e-39, np.float32), perturb_singular=True)
    np.testing.assert_allclose(got, 1, rtol=1e-3)


def test_tridiagonal_solve_errors():
    op = "TridiagonalSolve"
    assert refused(op, ones(3), ones(3, 1)) == "Input tensor 0 must have rank >= 2, got 1"
    assert refused(op, ones(2, 3), ones(3, 1)) == (
        "Expected diagonals to be provided as a matrix with 3 rows, got 2 rows."
    )
    assert refused(op, ones(3, 3), ones(4, 1)) == (
        "Expected the same number of left-hand sides and right-hand sides, got 3 and 4."
    )
    assert refused(op, ones(3, 3), ones(3, 1), partial_pivoting=False, perturb_singular=True) == (
        "Setting perturb_singular requires also setting partial_pivoting."
    )
    for n, k in ((0, 1), (3, 0)):
        assert run_op(op, ones(3, n), zeros(n, k)).shape == (n, k)
