"""BLAS and LAPACK by pointers, and functions of matrices, give what SciPy's functions give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg

from aexec.kernels.linalg import lapack
from tests.kernels.harness import run_op

TYPES = [np.float32, np.float64, np.complex64, np.complex128]
SIZES = [1, 2, 5, 40]


def random(*shape: int, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def assert_near(x: Any, y: Any, digits: float = 0.75) -> None:
    """Equal but for the last quarter of the digits of their type."""
    assert x.dtype == y.dtype
    scale = max(1.0, float(np.abs(y).max(initial=0)))
    np.testing.assert_allclose(x, y, rtol=0, atol=scale * float(np.finfo(x.dtype).eps) ** digits)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_triangles_are_solved(dtype: Any, n: int, lower: bool, adjoint: bool) -> None:
    a, b = random(n, n, dtype=dtype) + dtype(n) * np.eye(n, dtype=dtype), random(n, 3, dtype=dtype)
    given = b.copy()
    x = lapack.solve_triangle(a, b, lower=lower, adjoint=adjoint)
    assert_near(x, linalg.solve_triangular(a, b, lower=lower, trans="C" if adjoint else "N"))
    assert np.array_equal(b, given)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", SIZES)
def test_factors_are_those_of_scipy(dtype: Any, n: int) -> None:
    a = random(n, n, dtype=dtype)
    for found, wanted in zip(lapack.lu_factors(a), linalg.lu_factor(a), strict=True):
        assert np.allclose(found, wanted)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5), (40, 40)])
@pytest.mark.parametrize("rank", [None, 1])
def test_least_squares_are_the_shortest(dtype: Any, shape: tuple[int, int], rank: int | None) -> None:
    a, b = random(*shape, dtype=dtype), random(shape[0], 2, dtype=dtype)
    if rank is not None:
        a = a[:, :rank] @ a[:rank]
    cutoff = float(np.finfo(dtype).eps) * min(shape)
    wanted = linalg.lstsq(a, b, cond=cutoff, lapack_driver="gelsy")[0]
    assert_near(lapack.shortest_least_squares(a, b, cutoff), wanted, 0.5)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", SIZES)
def test_schur_forms_make_the_matrix(dtype: Any, n: int) -> None:
    a = random(n, n, dtype=dtype)
    form = lapack.schur_form(a)
    assert form is not None
    t, z = form
    assert_near(np.ascontiguousarray(z @ t @ z.conj().T), a)
    assert_near(np.ascontiguousarray(z @ z.conj().T), np.eye(n, dtype=dtype))
    assert not np.tril(t, -2).any()


@pytest.mark.parametrize("n", SIZES)
def test_sylvester_equations_are_solved(n: int) -> None:
    a, b = (np.triu(random(m, m, dtype=np.complex128)) + 2 * n * np.eye(m) for m in (n, n + 1))
    c = random(n, n + 1, dtype=np.complex128)
    x = lapack.solve_sylvester(a, b, c)
    assert x is not None
    assert_near(np.ascontiguousarray(a @ x + x @ b), c)
    assert (
        lapack.solve_sylvester(np.zeros((1, 1), complex), np.zeros((1, 1), complex), np.ones((1, 1), complex)) is None
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("size", [0.01, 1.0, 20.0])
def test_exponential_is_that_of_scipy(dtype: Any, n: int, size: float) -> None:
    x = (random(n, n, dtype=dtype) * size / n).astype(dtype)
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    assert_near(run_op("MatrixExponential", [x]), linalg.expm(x.astype(wide)).astype(dtype))


def test_exponential_of_what_is_not_finite_is_nan() -> None:
    for bad in (np.nan, np.inf):
        x = np.stack([np.full((2, 2), bad), np.zeros((2, 2))])
        found = run_op("MatrixExponential", [x])
        assert np.isnan(found[0]).all() and np.array_equal(found[1], np.eye(2))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", SIZES)
def test_root_is_that_of_scipy(dtype: Any, n: int) -> None:
    x = (random(n, n, dtype=dtype) + 3 * n * np.eye(n)).astype(dtype)
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    assert_near(run_op("MatrixSquareRoot", [x]), linalg.sqrtm(x.astype(wide)).astype(dtype))


@pytest.mark.filterwarnings("ignore:logm result may be inaccurate")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("real", [True, False])
def test_logarithm_is_that_of_scipy(dtype: Any, n: int, size: float, real: bool) -> None:
    x = random(n, n, dtype=np.float64 if real else dtype)
    x = (size * (x + 2 * np.eye(n))).astype(dtype)
    wanted = linalg.logm(x.real.astype(np.float64) if real else x.astype(np.complex128))
    assert_near(run_op("MatrixLogarithm", [x]), wanted.astype(dtype), 0.6)
