"""Convolutions by rows with fewer multiplications, and their gradients: for all sides and borders, in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework.waiting.intra_op import HelperThreads
from aexec.kernels.common import windowing
from aexec.kernels.nn import convolution, winograd_rows
from aexec.kernels.nn.convolution_geometry import Geometry

SIDES = st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def geometry_of(shape: Any, kernel: Any, pairs: Any = None, padding: str = "EXPLICIT") -> Geometry:
    pairs = pairs or ((kernel[0] // 2,) * 2,) * 2
    spec = tuple(
        windowing.extent(n, size, 1, 1, padding, pair) for n, size, pair in zip(shape[1:3], kernel, pairs, strict=False)
    )
    return Geometry(tuple(shape), tuple(kernel), spec)


def assert_as_exact(got: Any, exact: Any, magnitudes: Any, terms: int) -> None:
    """No further from the exact result than as many roundings of the largest sum of magnitudes as there are terms."""
    assert got.shape == exact.shape
    terms = max(terms, 64)  # the sums that are multiplied have some of their own
    assert abs(got - exact).max(initial=0) <= terms * np.finfo(np.float32).eps * magnitudes.max(initial=0)


def check(x: Any, kernel: Any, geometry: Geometry) -> None:
    wide, weights = x.astype(np.float64), kernel.astype(np.float64)
    exact = convolution.forward(np, wide, weights, geometry)
    magnitudes = convolution.forward(np, abs(wide), abs(weights), geometry)
    assert_as_exact(winograd_rows.forward(x, kernel, geometry), exact, magnitudes, geometry.taps)
    grad = normal(*geometry.output_shape, seed=2)
    exact = convolution.backprop_filter(np, wide, grad.astype(np.float64), geometry)
    magnitudes = convolution.backprop_filter(np, abs(wide), abs(grad.astype(np.float64)), geometry)
    terms = grad[..., 0].size
    assert_as_exact(winograd_rows.backprop_filter(x, grad, geometry), exact, magnitudes, terms)


@settings(deadline=None, max_examples=30)
@given(
    size=st.sampled_from((3, 5)),
    images=st.integers(1, 3),
    high=SIDES,
    wide=SIDES,
    depth=st.integers(1, 5),
    filters=st.integers(1, 5),
)
def test_all_sides_and_borders(size: int, images: int, high: Any, wide: Any, depth: int, filters: int) -> None:
    x = normal(images, high[0] + size - 1, wide[0] + size - 1, depth)
    kernel = normal(size, size, depth, filters, seed=1)
    check(x, kernel, geometry_of(x.shape, kernel.shape, (high[1:], wide[1:])))


@pytest.mark.parametrize(
    ("shape", "size", "filters", "parts"),
    [((16, 14, 14, 32), 5, 64, 3), ((2, 28, 28, 64), 5, 32, 2), ((1, 56, 56, 64), 3, 32, 2)],
)
def test_parts(shape: tuple[int, ...], size: int, filters: int, parts: int) -> None:
    """What follows is done once to each pixel, and threads change nothing."""
    x, kernel = normal(*shape), normal(size, size, shape[3], filters, seed=1)
    geometry = geometry_of(shape, kernel.shape)
    assert winograd_rows.pays(geometry)
    assert len(winograd_rows._parts(geometry)) == parts
    grad = normal(*geometry.output_shape, seed=2)
    plain, gradient = winograd_rows.forward(x, kernel, geometry), winograd_rows.backprop_filter(x, grad, geometry)
    np.testing.assert_allclose(plain, convolution.forward(np, x, kernel, geometry), atol=1e-3)
    numbers = np.arange(plain[..., 0].size, dtype=np.float32)[:, None]

    def epilogue(block: Any, where: slice) -> None:
        block += numbers[where]

    helpers = HelperThreads(3)
    try:
        with helpers.for_kernel():
            got = winograd_rows.forward(x, kernel, geometry, epilogue)
            assert np.array_equal(winograd_rows.backprop_filter(x, grad, geometry), gradient)
    finally:
        for thread in helpers.close():
            thread.join()
    assert np.array_equal(got, plain + numbers.reshape(*plain.shape[:3], 1))


@pytest.mark.parametrize(
    ("shape", "kernel", "padding"),
    [
        ((64, 28, 28, 1), (5, 5, 1, 32), "SAME"),  # few channels
        ((64, 28, 28, 32), (5, 5, 32, 16), "SAME"),  # few filters
        ((64, 28, 28, 64), (3, 5, 64, 64), "SAME"),
        ((64, 28, 28, 64), (7, 7, 64, 64), "SAME"),
        ((64, 5, 5, 64), (5, 5, 64, 64), "VALID"),  # of four outputs one is needed
        ((1, 7, 8, 32), (5, 5, 32, 32), "SAME"),  # little to do
        ((8, 28, 28, 1024), (3, 3, 1024, 1024), "SAME"),  # the sums of a filter's gradient are large
    ],
)
def test_winograd_is_not_used_where_it_does_not_pay(
    shape: tuple[int, ...], kernel: tuple[int, ...], padding: str
) -> None:
    assert not winograd_rows.pays(geometry_of(shape, kernel, ((0, 0), (0, 0)), padding))
