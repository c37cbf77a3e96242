"""Linear algebra: identities on random batches, TensorFlow's answers for singular input and NaN, its messages."""

from __future__ import annotations

import subprocess
import sys
from time import process_time

import numpy as np
import pytest

from aexec.framework import dtypes
from aexec.kernels.linalg import solve_ops
from tests.kernels.harness import build, in_tensorflow, ops_of, registered
from tests.kernels.linalg_support import adjoint, assert_close, random, refused, run_op

TYPES = [np.float32, np.float64, np.complex64, np.complex128]
SQUARE_OPS = {
    "Cholesky": {},
    "MatrixDeterminant": {},
    "LogMatrixDeterminant": {},
    "Lu": {},
    "MatrixInverse": {},
    "MatrixSquareRoot": {},
    "SelfAdjointEigV2": {},
    "Eig": {"Tout": dtypes.complex64},
}
SINGULAR = np.float32([[1, 2], [2, 4]])
NAN = np.full((2, 2), np.nan, np.float32)


def positive(*shape, dtype=np.float64):
    """Random positive definite matrices."""
    x = random(*shape, dtype=dtype)
    return (x @ adjoint(x) + np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("op", ops_of("linalg.linalg_ops", "linalg.matrix_function_ops", "linalg.solve_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def test_scipy_is_not_imported_with_the_kernels():
    code = "import aexec, aexec.kernels.linalg.linalg_ops, sys; sys.exit('scipy.linalg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What all ops on square matrices check


@pytest.mark.parametrize("op", SQUARE_OPS)
def test_square_matrices_are_wanted(op):
    rank = "Input tensor must have rank >= 2, got 1" if op == "Lu" else "Input tensor 0 must have rank >= 2, got 1"
    assert refused(op, np.zeros(3, np.float32), **SQUARE_OPS[op]) == rank
    for shape in ((2, 3), (0, 2), (2, 0)):
        assert refused(op, np.zeros(shape, np.float32), **SQUARE_OPS[op]) == "Input matrix must be square."


@pytest.mark.parametrize("op", SQUARE_OPS)
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 2, 2), (2, 0, 3, 3)])
def test_matrices_without_elements(op, shape):
    batch, n = shape[:-2], shape[-1]
    got = run_op(op, np.zeros(shape, np.float32), **SQUARE_OPS[op])
    shapes = {
        "MatrixDeterminant": batch,
        "LogMatrixDeterminant": (batch, batch),
        "Lu": (shape, shape[:-1]),
        "SelfAdjointEigV2": (shape[:-1], shape),
        "Eig": (shape[:-1], shape),
    }.get(op, shape)
    assert (tuple(x.shape for x in got) if isinstance(got, tuple) else got.shape) == shapes
    if op == "MatrixDeterminant" and n == 0:
        assert (got == 1).all()


# Cholesky


@pytest.mark.parametrize("dtype", TYPES)
def test_cholesky(dtype):
    x = positive(2, 3, 4, 4, dtype=dtype)
    # Only the lower triangle is read.
    got = run_op("Cholesky", np.tril(x) + np.triu(np.full((4, 4), 99), 1).astype(dtype))
    assert_close(got @ adjoint(got), x)
    assert (np.triu(got, 1) == 0).all()


def test_cholesky_of_no_positive_definite_matrix_is_nan():
    batch = np.float32([[[4, 9], [2, 9]], [[1, 0], [0, -1]], [[0, 0], [0, 0]]])
    got = run_op("Cholesky", batch)
    assert_close(got[0], np.float32([[2, 0], [1, 8**0.5]]))
    assert np.isnan(got[1:][:, [0, 1, 1], [0, 0, 1]]).all()
    assert (got[1:, 0, 1] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cholesky_grad(dtype):
    got = run_op("CholeskyGrad", dtype([[2, 9], [1, 3]]), dtype([[1, 2], [3, 4]]))
    assert_close(got, dtype([[1 / 24, 5 / 12], [5 / 12, 2 / 3]]))


def test_cholesky_grad_is_the_derivative():
    x, grad = positive(2, 3, 3), random(2, 3, 3, seed=1)
    step = 1e-6
    got = run_op("CholeskyGrad", np.linalg.cholesky(x), grad)
    direction = random(2, 3, 3, seed=2)
    direction = direction + adjoint(direction)
    difference = (np.linalg.cholesky(x + step * direction) - np.linalg.cholesky(x - step * direction)) / (2 * step)
    np.testing.assert_allclose((got * direction).sum((1, 2)), (np.tril(grad) * difference).sum((1, 2)), rtol=1e-6)


def test_cholesky_grad_errors():
    def zeros(*shape):
        return np.zeros(shape, np.float32)

    assert refused("CholeskyGrad", zeros(2, 3), zeros(2, 3)) == "Inputs must be a square matrices."
    assert refused("CholeskyGrad", zeros(2, 2), zeros(3, 3)) == "Inputs (L and grad) must have the same shape."
    assert refused("CholeskyGrad", zeros(2, 2, 2), zeros(2, 2)) == "All input tensors must have the same rank."
    assert run_op("CholeskyGrad", zeros(2, 0, 0), zeros(2, 0, 0)).shape == (2, 0, 0)


# Determinants


@pytest.mark.parametrize("dtype", TYPES)
def test_determinants(dtype):
    x = random(3, 4, 4, dtype=dtype)
    want = np.linalg.det(x)
    assert_close(run_op("MatrixDeterminant", x), want)
    sign, log = run_op("LogMatrixDeterminant", x)
    assert sign.dtype == log.dtype == dtype
    assert_close(sign * np.exp(log), want)
    np.testing.assert_allclose(np.abs(sign), 1, rtol=1e-5)


def test_determinants_of_singular_matrices():
    assert run_op("MatrixDeterminant", SINGULAR) == 0
    sign, log = run_op("LogMatrixDeterminant", SINGULAR)
    assert (sign, log) == (0, -np.inf)
    assert np.isnan(run_op("MatrixDeterminant", NAN))
    assert np.isnan(run_op("LogMatrixDeterminant", NAN)).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_determinant_of_a_matrix_with_a_nan_is_nan(place, dtype):
    x = np.ones((2, 2, 2), dtype) + np.eye(2, dtype=dtype)
    x[(1, *place)] = np.nan
    assert_close(run_op("MatrixDeterminant", x), np.array([3, np.nan], dtype))
    sign, log = run_op("LogMatrixDeterminant", x)
    assert_close(sign[0] * np.exp(log[0]), dtype(3))
    assert np.isnan([sign[1], log[1]]).all()


def test_single_precision_determinants_do_not_go_by_logarithms():
    x = np.diag(np.float32([3, 5, 7, 11, 13, 17]))
    assert run_op("MatrixDeterminant", x) == np.float32(255255)


# LU and inverse


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", [dtypes.int32, dtypes.int64])
def test_lu(dtype, index):
    x = random(2, 6, 6, dtype=dtype)
    factors, order = run_op("Lu", x, output_idx_type=index)
    assert order.dtype == index.np
    lower, upper = np.tril(factors, -1) + np.eye(6, dtype=dtype), np.triu(factors)
    assert_close(lower @ upper, np.take_along_axis(x, order[..., None].astype(int), -2))
    assert (np.abs(lower) <= 1 + 1e-6).all()


def test_lu_permutes_rows():
    factors, order = run_op("Lu", np.float32([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    assert order.tolist() == [2, 0, 1]
    assert_close(factors, np.eye(3, dtype=np.float32))
    # By magnitude, though |re| + |im| is larger in the first row.
    factors, order = run_op("Lu", np.complex64([[1 + 1j, 0], [1.9, 1]]))
    assert order.tolist() == [1, 0]
    assert_close(factors, np.complex64([[1.9, 1], [(1 + 1j) / 1.9, -(1 + 1j) / 1.9]]))


@pytest.mark.parametrize("dtype", [*TYPES, np.float16])
def test_inverse(dtype):
    x = (random(2, 4, 4) + 4 * np.eye(4)).astype(dtype)
    want = np.linalg.inv(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
    tolerance = {"rtol": 4e-3, "atol": 4e-3} if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    for flag, inverse in ((False, want), (True, adjoint(want))):
        got = run_op("MatrixInverse", x, adjoint=flag)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, inverse, **tolerance)


@pytest.mark.parametrize("x", [SINGULAR, np.zeros((2, 2), np.float32), NAN, np.stack([np.eye(2), SINGULAR])])
def test_singular_matrices_are_refused(x):
    x = x.astype(np.float32)
    assert refused("MatrixInverse", x) == "Input is not invertible."
    assert refused("Lu", x) == "Input is not invertible."
    assert refused("MatrixSolve", x, np.ones_like(x)) == "Input matrix is not invertible."


def test_nan_behind_the_first_pivot_is_kept():
    x = np.float32([[1, 0], [0, np.nan]])
    assert np.isnan(run_op("MatrixInverse", x)).any()
    assert np.isnan(run_op("Lu", x)[0][1, 1])
    assert np.isnan(run_op("MatrixSolve", x, np.ones((2, 1), np.float32))[1])


# Functions of matrices


@pytest.mark.parametrize("dtype", TYPES)
def test_square_root(dtype):
    x = positive(2, 5, 5, dtype=dtype)
    root = run_op("MatrixSquareRoot", x)
    assert_close(root @ root, x)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 17])
def test_square_root_of_matrices_that_are_not_symmetric(size):
    x = random(size, size)
    root = run_op("MatrixSquareRoot", x @ x)
    np.testing.assert_allclose(root @ root, x @ x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "want"),
    [
        ([[0, -1], [1, 0]], np.array([[1, -1], [1, 1]]) * 0.5**0.5),
        ([[2, 1], [0, 3]], [[2**0.5, 3**0.5 - 2**0.5], [0, 3**0.5]]),
        ([[1, 2], [2, 4]], np.array([[1, 2], [2, 4]]) * 0.2**0.5),
        ([[4, 0], [0, 0]], [[2, 0], [0, 0]]),
        ([[0]], [[0]]),
        ([[-1, 0], [0, -4]], np.full((2, 2), np.nan)),
        ([[1, 2, 3], [0, -4, 5], [0, 0, 6]], np.full((3, 3), np.nan)),
        ([[0, 0], [0, 0]], np.full((2, 2), np.nan)),
        ([[np.nan, 0], [0, 1]], np.full((2, 2), np.nan)),
    ],
)
def test_known_square_roots(x, want):
    assert_close(run_op("MatrixSquareRoot", np.float32(x)), np.float32(want))


def test_complex_square_root_of_negative_numbers():
    assert_close(run_op("MatrixSquareRoot", np.complex64(np.diag([4, -1]))), np.complex64(np.diag([2, 1j])))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_logarithm(dtype):
    x = positive(2, 4, 4, dtype=dtype)
    log = run_op("MatrixLogarithm", x)
    values, vectors = np.linalg.eigh(x)
    assert_close(log, (vectors * np.log(values)[:, None, :] @ adjoint(vectors)).astype(dtype))


def test_known_logarithms():
    quarter_turn = np.complex64([[0, -1], [1, 0]])
    assert_close(run_op("MatrixLogarithm", quarter_turn), np.pi / 2 * quarter_turn)
    negative = run_op("MatrixLogarithm", np.complex128(np.diag([-1, -4])))
    assert_close(negative, np.diag([0, np.log(4)]) + np.pi * 1j * np.eye(2))
    for x in (np.zeros((2, 2)), np.diag([4, 0]), NAN, SINGULAR):
        assert np.isnan(run_op("MatrixLogarithm", x.astype(np.complex64))).all()
    assert run_op("MatrixLogarithm", np.zeros((2, 0, 0), np.complex64)).shape == (2, 0, 0)


@pytest.mark.parametrize("dtype", TYPES)
def test_exponential(dtype):
    x = np.array([[0, np.pi], [-np.pi, 0]], dtype)
    assert_close(run_op("MatrixExponential", np.stack([x, 0 * x])), np.stack([-np.eye(2), np.eye(2)]).astype(dtype))


# Orthogonal decompositions


@pytest.mark.parametrize("dtype", [*TYPES, np.float16])
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (0, 3), (3, 0)])
@pytest.mark.parametrize("full", [False, True])
def test_qr(dtype, shape, full):
    x = random(*shape, dtype=dtype)
    q, r = run_op("Qr", x, full_matrices=full)
    assert q.dtype == r.dtype == dtype
    m, n = shape[-2:]
    inner = m if full else min(m, n)
    assert q.shape == (*shape[:-2], m, inner)
    assert r.shape == (*shape[:-2], inner, n)
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    tolerance = {"rtol": 0, "atol": 1e-2 if dtype is np.float16 else 1e-5}
    q, r = q.astype(wide), r.astype(wide)
    np.testing.assert_allclose(q @ r, x, **tolerance)
    np.testing.assert_allclose(adjoint(q) @ q, np.broadcast_to(np.eye(inner), (*shape[:-2], inner, inner)), **tolerance)
    assert (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Qr", {"full_matrices": True}),
        ("Qr", {}),
        ("Svd", {"full_matrices": True}),
        ("Svd", {"compute_uv": False}),
        ("Eig", {"Tout": dtypes.complex64}),
        ("Eig", {"Tout": dtypes.complex64, "compute_v": False}),
        ("SelfAdjointEigV2", {"compute_v": False}),
        ("SelfAdjointEig", {}),
        ("Cholesky", {}),
        ("MatrixInverse", {"adjoint": True}),
        ("MatrixDeterminant", {}),
        ("LogMatrixDeterminant", {}),
        ("MatrixSolve", {"adjoint": True}),
    ],
)
def test_large_batches_are_worked_on_some_at_a_time(op, attrs, monkeypatch):
    square = random(3, 5, 4, 4)
    x = random(3, 5, 6, 2) if op in ("Qr", "Svd") else square @ adjoint(square)
    inputs = [x, x[..., :2]] if op == "MatrixSolve" else [x]
    whole = run_op(op, *inputs, **attrs)
    counts = []
    monkeypatch.setattr(solve_ops, "_FEW", 0)
    monkeypatch.setattr(solve_ops, "_TOGETHER", 2 * 36)
    monkeypatch.setattr(solve_ops, "check_wanted", lambda: counts.append(1))
    parts = run_op(op, *inputs, **attrs)
    assert len(counts) >= 4
    if not isinstance(whole, tuple):
        whole, parts = (whole,), (parts,)
    for part, wanted in zip(parts, whole, strict=True):
        assert part.shape == wanted.shape
        np.testing.assert_array_equal(part, wanted)


def test_full_matrices_cost_what_they_take():
    column, attrs = random(2, 1000, 1), {"T": dtypes.float32}
    costs = [build("Qr", [column], full_matrices=full, **attrs)[0].cost(column) for full in (False, True)]
    assert costs[0] < 1e6 < 1e8 < costs[1]


def test_signs_of_qr():
    q, r = run_op("Qr", np.float32([[0, 1, 2], [3, 4, 5]]))
    assert_close(q, np.float32([[0, -1], [-1, 0]]))
    assert_close(r, np.float32([[-3, -4, -5], [0, -1, -2]]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (0, 3), (3, 0), (0, 2, 2)])
@pytest.mark.parametrize("full", [False, True])
def test_svd(dtype, shape, full):
    x = random(*shape, dtype=dtype)
    s, u, v = run_op("Svd", x, full_matrices=full)
    assert s.dtype == u.dtype == v.dtype == dtype
    m, n = shape[-2:]
    rank = min(m, n)
    assert s.shape == (*shape[:-2], rank)
    assert u.shape == (*shape[:-2], m, m if full else rank)
    assert v.shape == (*shape[:-2], n, n if full else rank)
    assert_close(u[..., :rank] * s[..., None, :] @ adjoint(v[..., :rank]), x)
    alone, *unused = run_op("Svd", x, compute_uv=False, full_matrices=full)
    assert_close(alone, s)
    assert [x.shape for x in unused] == [(), ()]


@pytest.mark.parametrize("full", [False, True])
def test_svd_of_nan_is_nan(full):
    x = np.ones((2, 2, 3))
    x[1, 0, 0] = np.nan
    s, u, v = run_op("Svd", x, full_matrices=full)
    assert_close(s[0], np.array([6**0.5, 0]))
    assert u.shape == (2, 2, 2)
    assert v.shape == (2, 3, 3 if full else 2)
    for part in (s, u, v):
        assert np.isfinite(part[0]).all()
        assert np.isnan(part[1]).all()
    assert np.isnan(run_op("Svd", x, compute_uv=False)[0][1]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("place", [1, 6])
def test_svd_of_infinity_is_nan(dtype, place):
    """LAPACK would not return."""
    x = np.array([[[0.5, -1e15, -1], [0.5, 0.5, 1], [1, 2.5, 0.5]]] * 2, dtype)
    x[1].flat[place] = np.inf
    for vectors in (False, True):
        s, u, v = run_op("Svd", x, compute_uv=vectors)
        assert np.isfinite(s[0]).all()
        assert np.isnan(s[1]).all()
        if vectors:
            assert np.isfinite(u[0]).all() and np.isnan(u[1]).all() and np.isnan(v[1]).all()


# Eigenvalues


@pytest.mark.parametrize("dtype", TYPES)
def test_self_adjoint_eigenvalues(dtype):
    x = positive(2, 4, 4, dtype=dtype)
    values, vectors = run_op("SelfAdjointEigV2", np.tril(x))
    assert values.dtype == vectors.dtype == dtype
    assert (np.diff(values.real) >= 0).all()
    assert_close(x @ vectors, vectors * values[..., None, :])
    alone, unused = run_op("SelfAdjointEigV2", x, compute_v=False)
    assert_close(alone, values)
    assert unused.shape == ()
    if dtype in (np.float32, np.float64):
        rows = run_op("SelfAdjointEig", x)
        assert rows.shape == (2, 5, 4)
        assert_close(rows[:, 0], values)
        assert_close(np.abs(rows[:, 1:]), np.abs(vectors))


@pytest.mark.parametrize("dtype", TYPES)
def test_eigenvalues(dtype):
    x = random(2, 5, 5, dtype=dtype)
    out = dtypes.complex64 if dtype in (np.float32, np.complex64) else dtypes.complex128
    values, vectors = run_op("Eig", x, Tout=out)
    assert values.dtype == vectors.dtype == out.np
    assert_close((x @ vectors).astype(out.np), vectors * values[..., None, :])
    assert_close(run_op("Eig", x, Tout=out, compute_v=False)[0], values)
    if x.dtype.kind == "c":
        assert (np.diff(np.abs(values)) >= 0).all()


@pytest.mark.parametrize("x", [NAN, np.full((2, 2), np.inf, np.float32)])
def test_eigenvalues_of_what_is_not_finite(x):
    for attrs in ({}, {"compute_v": False}):
        message = refused("SelfAdjointEigV2", x, **attrs)
        assert message == "Self-adjoint eigen decomposition was not successful. The input might not be valid."
        message = refused("Eig", x, Tout=dtypes.complex64, **attrs)
        assert message == "Eigen decomposition was not successful. The input might not be valid."


@pytest.mark.parametrize("op", ["Cholesky", "MatrixInverse", "MatrixDeterminant", "SelfAdjointEigV2", "MatrixSolve"])
def test_matrices_without_elements_are_not_gone_through(op):
    """NumPy takes seconds for so many, and keeps the interpreter's lock."""
    count = 1_000_000 if op == "MatrixDeterminant" else 10**9
    x = np.zeros((count, 0, 0), np.float32)
    built, arrays, _ = build(op, [x, x] if op == "MatrixSolve" else [x])
    began = process_time()
    y = built.compute(*arrays)
    assert process_time() - began < 0.5
    first = y[0] if isinstance(y, tuple) else y
    assert first.shape == {"MatrixDeterminant": (count,), "SelfAdjointEigV2": (count, 0)}.get(op, x.shape)
    assert op != "MatrixDeterminant" or (first == 1).all()


def test_eigenvectors_that_are_not_wanted_are_a_scalar_of_empty_matrices_too():
    x = np.zeros((3, 0, 0), np.float32)
    for op, attrs in (("SelfAdjointEigV2", {}), ("Eig", {"Tout": dtypes.complex64})):
        of_none, of_one = (run_op(op, matrices, compute_v=False, **attrs)[1] for matrices in (x, SINGULAR))
        assert of_none.shape == of_one.shape
