"""3×3 convolutions with fewer multiplications: as exact as plain ones, for all sides and borders, in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework.waiting.intra_op import HelperThreads
from aexec.kernels.common import windowing
from aexec.kernels.nn import convolution, winograd
from aexec.kernels.nn.convolution_geometry import Geometry

SIDES = st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def geometry_of(x: Any, kernel: Any, pairs: Any = ((1, 1), (1, 1))) -> Geometry:
    spec = tuple(windowing.extent(n, 3, 1, 1, "EXPLICIT", pair) for n, pair in zip(x.shape[1:3], pairs, strict=True))
    return Geometry(x.shape, kernel.shape, spec)


def assert_as_exact(x: Any, kernel: Any, geometry: Geometry, got: Any) -> None:
    """No further from the exact result than as many roundings of the largest sum of magnitudes as there are terms."""
    exact = convolution.forward(np, x.astype(np.float64), kernel.astype(np.float64), geometry)
    magnitudes = convolution.forward(np, abs(x), abs(kernel), geometry)
    assert got.shape == exact.shape
    assert abs(got - exact).max(initial=0) <= geometry.taps * np.finfo(np.float32).eps * magnitudes.max(initial=0)


@settings(deadline=None)
@given(images=st.integers(1, 3), high=SIDES, wide=SIDES, depth=st.integers(1, 5), filters=st.integers(1, 5))
def test_all_sides_and_borders(images: int, high: Any, wide: Any, depth: int, filters: int) -> None:
    x, kernel = normal(images, high[0] + 2, wide[0] + 2, depth), normal(3, 3, depth, filters, seed=1)
    geometry = geometry_of(x, kernel, (high[1:], wide[1:]))
    assert_as_exact(x, kernel, geometry, winograd.forward(x, winograd.turned(kernel, False), geometry))


@pytest.mark.parametrize(
    ("shape", "filters", "parts", "panels"),
    [
        ((1, 56, 56, 64), 64, 4, False),
        ((1, 28, 28, 128), 128, 2, False),
        ((1, 14, 14, 256), 256, 1, True),
        ((1, 14, 14, 256), 255, 1, False),
        ((1, 7, 7, 512), 128, 1, True),
        ((9, 15, 16, 32), 40, 2, False),
    ],
)
def test_parts(shape: tuple[int, ...], filters: int, parts: int, panels: bool) -> None:
    """What follows is done once to each pixel, and threads change nothing."""
    x, kernel = normal(*shape), normal(3, 3, shape[3], filters, seed=1)
    geometry = geometry_of(x, kernel)
    turned = winograd.turned(kernel, panels)
    assert winograd.pays(geometry)
    assert winograd.in_panels(geometry) == panels
    assert len(winograd._parts(geometry)) == parts
    plain = winograd.forward(x, turned, geometry)
    assert_as_exact(x, kernel, geometry, plain)
    number = np.arange(plain.size // filters, dtype=np.float32)[:, None]

    def epilogue(block: Any, pixels: slice) -> None:
        block += number[pixels]

    helpers = HelperThreads(2)
    with helpers.for_kernel():
        got = winograd.forward(x, turned, geometry, epilogue)
    for thread in helpers.close():
        thread.join()
    np.testing.assert_array_equal(got, plain + number.reshape(*plain.shape[:3], 1))


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "dilation"),
    [
        ((1, 56, 56, 31), (3, 3, 31, 64), 1, 1),  # few channels
        ((1, 56, 56, 64), (3, 3, 64, 31), 1, 1),
        ((1, 56, 56, 64), (3, 3, 32, 64), 1, 1),  # groups
        ((1, 56, 56, 64), (5, 5, 64, 64), 1, 1),
        ((1, 56, 56, 64), (3, 3, 64, 64), 2, 1),
        ((1, 56, 56, 64), (3, 3, 64, 64), 1, 2),
        ((1, 12, 12, 64), (3, 3, 64, 64), 1, 1),  # few multiplications
        ((1, 6, 6, 512), (3, 3, 512, 512), 1, 1),  # few squares
        ((1, 8, 8, 512), (3, 3, 512, 520), 1, 1),
        ((9, 5, 5, 256), (3, 3, 256, 256), 1, 1),  # half of each last square is dropped
        ((0, 56, 56, 64), (3, 3, 64, 64), 1, 1),
    ],
)
def test_winograd_is_not_used_where_it_does_not_pay(shape: Any, kernel: Any, stride: int, dilation: int) -> None:
    spec = tuple(
        windowing.extent(n, size, stride, dilation, "SAME") for n, size in zip(shape[1:3], kernel, strict=False)
    )
    assert not winograd.pays(Geometry(shape, kernel, spec))
