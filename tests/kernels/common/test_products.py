"""Products in pieces are the products, whatever is cut."""

from __future__ import annotations

from functools import partial
from time import process_time
from typing import Any

import numpy as np
import pytest

from aexec.framework.memory.allocator import tracking_allocations
from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread, check_wanted
from aexec.framework.waiting.intra_op import HelperThreads
from aexec.kernels.common import products
from aexec.kernels.common.products import batch_product, matrix_product


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _with_help(call: Any, *args: Any) -> Any:
    helpers = HelperThreads(3)
    with helpers.for_kernel():
        result = call(*args)
    for thread in helpers.close():
        thread.join()
    return result


@pytest.mark.parametrize(
    ("m", "k", "n"), [(3, 4, 5), (1000, 300, 70), (70, 300, 1000), (129, 1000, 129), (1, 4000, 4000), (4000, 4000, 1)]
)
def test_matrices(m: int, k: int, n: int) -> None:
    a, b = _random(m, k), _random(k, n)
    found = matrix_product(np, a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-3)
    # The cuts are the same however many threads there are, and so is every bit.
    np.testing.assert_array_equal(_with_help(matrix_product, np, a, b), found)
    np.testing.assert_allclose(matrix_product(np, _random(k, m).T, b), _random(k, m).T @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((1, 7, 128, 128), (1, 7, 128, 128)),
        ((7, 300, 200), (200, 100)),
        ((7, 300, 200), (1, 200, 100)),
        ((300, 200), (7, 200, 100)),
        ((2, 1, 300, 200), (5, 200, 100)),
        ((1, 300, 200), (1, 200, 300)),
        ((0, 3000, 2000), (2000, 3)),
        ((3, 1), (1, 4)),
    ],
)
def test_stacks_of_matrices(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = _random(*left), _random(*right)
    found = batch_product(a, b)
    assert found.shape == (a @ b).shape
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(_with_help(batch_product, a, b), found)
    transposed = np.swapaxes(np.ascontiguousarray(np.swapaxes(b, -1, -2)), -1, -2)
    np.testing.assert_allclose(batch_product(a, transposed), a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("left", "right"), [((3000, 3000), (30, 3000)), ((2, 3000, 3000), (30, 3000))])
def test_sizes_that_do_not_fit(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = np.zeros(left, np.float32), np.zeros(right, np.float32)
    with pytest.raises(ValueError, match="mismatch"):
        batch_product(a, b)
    with pytest.raises(ValueError, match="mismatch"):
        matrix_product(np, a[0] if a.ndim > 2 else a, b)


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ((10**9, 0, 3), (3, 0), (10**9, 0, 0)),
        ((10**9, 2, 0), (0, 0), (10**9, 2, 0)),
        ((5, 1, 2, 0), (4, 0, 3), (5, 4, 2, 3)),
    ],
)
def test_products_without_terms_are_zeros_at_once(a, b, shape):
    began = process_time()
    product = batch_product(np.zeros(a, np.float32), np.zeros(b, np.float32))
    assert process_time() - began < 0.5
    assert product.shape == shape and not product.any()


@pytest.mark.parametrize("kind", ["rows", "columns", "repeated", "gaps"])
def test_factors_that_numpy_copies_are_announced(kind: str) -> None:
    rows = np.ones((2000, 1000), np.float32)
    left = {
        "rows": rows,
        "columns": np.asfortranarray(rows),
        "repeated": np.broadcast_to(np.float32(1), rows.shape),
        "gaps": np.ones((2000, 2000), np.float32)[:, ::2],
    }[kind]
    right = np.ones((1000, 2), np.float32)
    for product in (partial(matrix_product, np), batch_product):
        with tracking_allocations() as tracked:
            product(left, right)
        assert tracked.temp_bytes == (rows.nbytes if kind in ("repeated", "gaps") else 0)


def test_product_ends_within_a_block_when_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # A piece of 128 rows has seven blocks.
    monkeypatch.setattr(products, "_BLOCK", 10_000_000)
    call, looked = CallInThread(), 0

    def look() -> None:
        nonlocal looked
        looked += 1
        if looked == 3:
            call.abandon()
        check_wanted()

    monkeypatch.setattr(products, "check_wanted", look)
    out = np.full((1024, 1024), np.nan, np.float32)
    with pytest.raises(AbandonedError), call.running():
        matrix_product(np, _random(1024, 512), _random(512, 1024), out=out)
    assert np.isfinite(out[:128, :288]).all() and np.isnan(out[:128, 288:]).all() and np.isnan(out[128:]).all()


@pytest.mark.parametrize(
    ("left", "right"), [((256, 512), (512, 1024)), ((1024, 512), (512, 256)), ((1, 2, 300, 300), (2, 300, 300))]
)
def test_products_in_blocks(monkeypatch: pytest.MonkeyPatch, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    monkeypatch.setattr(products, "_BLOCK", 10_000_000)
    a, b = _random(*left), _random(*right)
    np.testing.assert_allclose(batch_product(a, b), a @ b, rtol=1e-4, atol=1e-3)
