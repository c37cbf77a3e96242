"""Convolutions in tiles with fewer multiplications, and their gradients: for all sides and borders, in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec import native
from aexec.framework.waiting.intra_op import HelperThreads
from aexec.kernels.nn import convolution, convolution_geometry, winograd_rows, winograd_tiles
from tests.kernels.nn.test_winograd_rows import SIDES, assert_as_exact, geometry_of, normal

pytestmark = pytest.mark.skipif(native.loops is None, reason="aexec was installed without a C compiler")


@settings(deadline=None, max_examples=60)
@given(
    size=st.sampled_from((3, 5)),
    images=st.integers(1, 3),
    high=SIDES,
    wide=SIDES,
    depth=st.integers(1, 40),
    filters=st.integers(1, 70),
)
def test_all_sides_and_borders(size: int, images: int, high: Any, wide: Any, depth: int, filters: int) -> None:
    x = normal(images, high[0] + size - 1, wide[0] + size - 1, depth)
    kernel = normal(size, size, depth, filters, seed=1)
    before = [(min(one, size - 1), other) for one, other in (high[1:], wide[1:])]
    geometry = geometry_of(x.shape, kernel.shape, before)
    exact = convolution.forward(np, x.astype(np.float64), kernel.astype(np.float64), geometry)
    magnitudes = convolution.forward(np, abs(x).astype(np.float64), abs(kernel).astype(np.float64), geometry)
    assert_as_exact(winograd_tiles.forward(x, kernel, geometry), exact, magnitudes, geometry.taps)
    grad = normal(*geometry.output_shape, seed=2)
    exact = convolution.backprop_filter(np, x.astype(np.float64), grad.astype(np.float64), geometry)
    magnitudes = convolution.backprop_filter(np, abs(x).astype(np.float64), abs(grad).astype(np.float64), geometry)
    assert_as_exact(winograd_tiles.backprop_filter(x, grad, geometry), exact, magnitudes, grad[..., 0].size)


@pytest.mark.parametrize(
    ("shape", "size", "filters", "pieces"),
    [((16, 14, 14, 32), 5, 64, 11), ((2, 30, 29, 64), 5, 32, 6), ((1, 56, 56, 64), 3, 32, 14)],
)
def test_pieces(shape: tuple[int, ...], size: int, filters: int, pieces: int) -> None:
    """What follows is done once to each pixel, and threads change nothing."""
    x, kernel = normal(*shape), normal(size, size, shape[3], filters, seed=1)
    geometry = geometry_of(shape, kernel.shape)
    assert winograd_tiles.pays(geometry)
    assert len(winograd_tiles._pieces(geometry)) == pieces
    grad = normal(*geometry.output_shape, seed=2)
    plain, gradient = winograd_tiles.forward(x, kernel, geometry), winograd_tiles.backprop_filter(x, grad, geometry)
    np.testing.assert_allclose(plain, winograd_rows.forward(x, kernel, geometry), atol=2e-3)
    np.testing.assert_allclose(gradient, winograd_rows.backprop_filter(x, grad, geometry), atol=1e-2)
    numbers = np.arange(plain[..., 0].size, dtype=np.float32)[:, None]

    def epilogue(block: Any, where: slice) -> None:
        block += numbers[where]

    helpers = HelperThreads(3)
    try:
        with helpers.for_kernel():
            got = winograd_tiles.forward(x, kernel, geometry, epilogue)
            assert np.array_equal(winograd_tiles.backprop_filter(x, grad, geometry), gradient)
    finally:
        for thread in helpers.close():
            thread.join()
    assert np.array_equal(got, plain + numbers.reshape(*plain.shape[:3], 1))


def test_kernel_and_gradient_may_be_views() -> None:
    x, geometry = normal(2, 28, 28, 32), geometry_of((2, 28, 28, 32), (5, 5, 32, 16))
    turned, grad = convolution_geometry.turned_around(normal(5, 5, 16, 32)), normal(16, 28, 28, 2).transpose(3, 1, 2, 0)
    assert np.array_equal(
        winograd_tiles.forward(x[:, ::-1], turned, geometry),
        winograd_tiles.forward(x[:, ::-1].copy(), turned.copy(), geometry),
    )
    assert np.array_equal(
        winograd_tiles.backprop_filter(x, grad, geometry), winograd_tiles.backprop_filter(x, grad.copy(), geometry)
    )


@pytest.mark.parametrize(
    ("shape", "kernel", "padding"),
    [
        ((64, 28, 28, 8), (5, 5, 8, 32), "SAME"),  # few channels
        ((64, 28, 28, 32), (5, 5, 32, 8), "SAME"),  # few filters
        ((64, 28, 28, 64), (3, 5, 64, 64), "SAME"),
        ((64, 28, 28, 64), (7, 7, 64, 64), "SAME"),
        ((64, 5, 5, 64), (5, 5, 64, 64), "VALID"),  # of sixteen outputs one is needed
        ((1, 8, 8, 256), (3, 3, 256, 256), "SAME"),  # few tiles
        ((1, 3, 4000, 32), (3, 3, 32, 32), "SAME"),  # many in a row
        ((8, 28, 28, 1024), (3, 3, 1024, 1024), "SAME"),  # the sums of the kernel are large
    ],
)
def test_tiles_are_not_used_where_they_do_not_pay(
    shape: tuple[int, ...], kernel: tuple[int, ...], padding: str
) -> None:
    assert not winograd_tiles.pays(geometry_of(shape, kernel, ((0, 0), (0, 0)), padding))


def test_tiles_are_not_used_without_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = geometry_of((16, 14, 14, 32), (5, 5, 32, 64))
    assert winograd_tiles.pays(geometry)
    monkeypatch.setattr(native, "loops", None)
    assert not winograd_tiles.pays(geometry)
