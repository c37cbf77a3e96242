"""Sums over many short rows: as exact as plain ones, by the ops that make them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.kernels.common.row_sums import MANY, sum_of_rows
from tests.kernels.harness import run_op

SHAPES = [(MANY, 1), (MANY // 8 + 7, 9), (MANY // 200, 200), (300, 300), (300, 150), (5, 3), (MANY // 32 + 1, 32)]


def matrix(rows: int, columns: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).standard_normal((rows, columns)).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_row_sums_of_all_shapes(shape: tuple[int, int], dtype: Any) -> None:
    x = matrix(*shape, dtype)
    exact = x.astype(np.complex128).sum(0)
    found = sum_of_rows(x, np.dtype(dtype))
    assert found.dtype == dtype and found.shape == exact.shape
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * np.sqrt(shape[0]))


def test_rows_of_non_contiguous_arrays_are_summed() -> None:
    x = matrix(40, MANY // 20).T
    np.testing.assert_allclose(sum_of_rows(x, x.dtype), x.sum(0), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("keep", [False, True])
def test_ops(keep: bool) -> None:
    x = matrix(MANY // 8, 32).reshape(4, -1, 4, 8)
    exact = x.astype(np.float64).sum((0, 1), keepdims=keep)
    found = run_op("Sum", [x, np.array([0, 1], np.int32)], keep_dims=keep)
    assert found.shape == exact.shape
    np.testing.assert_allclose(found, exact, atol=1e-3)
    of_all = run_op("Sum", [x, np.array([0, 1, 2, 3], np.int32)])
    np.testing.assert_allclose(of_all, x.astype(np.float64).sum(), atol=1e-2)
    np.testing.assert_allclose(run_op("BiasAddGrad", [x]), x.astype(np.float64).sum((0, 1, 2)), atol=1e-3)
    whole = np.arange(2 * MANY, dtype=np.int32).reshape(-1, 2)
    assert np.array_equal(run_op("Sum", [whole, np.array([0], np.int32)]), whole.sum(0, dtype=np.int32))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64])
def test_sums_and_means_over_dimensions_in_the_middle(dtype: Any, keep: bool) -> None:
    """Also if their order is not that of the dimensions; other choices of dimensions are summed as ever."""
    x = matrix(3 * 67 * 41, 7, dtype).reshape(3, 67, 41, 7) + dtype(3)
    for axes in ([1, 2], [2, 1], [1], [2], [0, 2], [1, 3], [-1]):
        for op, wanted in (("Sum", np.sum), ("Mean", np.mean)):
            exact = wanted(x.astype(np.complex128), axis=tuple(axes), keepdims=keep)
            found = run_op(op, [x, np.array(axes, np.int32)], keep_dims=keep)
            assert found.shape == exact.shape and found.dtype == dtype
            np.testing.assert_allclose(found, exact, rtol=1e-3 if dtype == np.float16 else 1e-5)


def test_infinite_numbers_stay_in_their_column() -> None:
    x = matrix(MANY // 8, 8)
    x[5, 1], x[-1, 2], x[0, 3], x[1, 3] = np.inf, np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        found = sum_of_rows(x, x.dtype)
    assert found[1] == np.inf and np.isnan(found[[2, 3]]).all() and np.isfinite(found[[0, 4, 5, 6, 7]]).all()


def test_a_long_sum_is_as_exact_as_its_blocks() -> None:
    x = np.abs(matrix(200_000, 4)) + np.float32(0.5)
    np.testing.assert_allclose(sum_of_rows(x, x.dtype), x.astype(np.float64).sum(0), rtol=1e-6)
