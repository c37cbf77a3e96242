"""What follows a convolution or a product is done to every number of the output once, in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.kernels.common import epilogue, windowing
from aexec.kernels.common.products import matrix_product
from aexec.kernels.nn import convolution, depthwise
from aexec.kernels.nn.convolution_geometry import Geometry


class _Add:
    """Adds another number to each element, so that a block in a wrong place, or done twice, is seen."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.numbers = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        self.blocks = 0

    def __call__(self, block: Any, pixels: slice) -> None:
        assert block.flags.c_contiguous
        block += self.numbers.reshape(-1, self.numbers.shape[-1])[pixels]
        self.blocks += 1


def _window(length: int, size: int, stride: int = 1) -> windowing.Window:
    return windowing.extent(length, size, stride, 1, "SAME")


def _image(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("shape", "filter_shape", "strides"),
    [
        ((2, 9, 8, 3), (3, 3, 3, 5), (1, 1)),
        ((2, 9, 8, 3), (3, 3, 3, 5), (2, 2)),
        ((1, 9, 8, 6), (1, 1, 6, 5), (1, 1)),  # a product
        ((2, 9, 8, 6), (3, 3, 3, 4), (1, 1)),  # two groups
        ((1, 40, 40, 64), (3, 3, 64, 8), (1, 1)),  # rows of windows are shared
        ((2, 120, 120, 64), (3, 3, 64, 8), (1, 1)),  # in several blocks an image
        ((2, 90, 90, 64), (3, 3, 64, 8), (2, 2)),
    ],
)
def test_convolution(shape: tuple[int, ...], filter_shape: tuple[int, ...], strides: tuple[int, int]) -> None:
    spec = tuple(_window(n, k, s) for n, k, s in zip(shape[1:-1], filter_shape, strides, strict=False))
    geometry = Geometry(shape, filter_shape, spec)
    x, weights = _image(*shape), _image(*filter_shape)
    plain = convolution.forward(np, x, weights, geometry)
    add = _Add(geometry.output_shape)
    done = convolution.forward(np, x, weights, geometry, add)
    np.testing.assert_array_equal(done, plain + add.numbers)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(2, 9, 8, 5), (2, 70, 70, 40)])
def test_depthwise_convolution(shape: tuple[int, ...], stride: int, times: int) -> None:
    spec = tuple(_window(n, 3, stride) for n in shape[1:-1])
    x, weights = _image(*shape), _image(3, 3, shape[-1], times)
    plain = depthwise.forward(np, x, weights, spec)
    add = _Add(plain.shape)
    np.testing.assert_array_equal(depthwise.forward(np, x, weights, spec, add), plain + add.numbers)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 4, 5), (700, 8, 300), (0, 4, 5)])
def test_product(rows: int, inner: int, columns: int) -> None:
    a, b = _image(rows, inner), _image(inner, columns)
    add = _Add((rows, columns))
    np.testing.assert_array_equal(matrix_product(np, a, b, add), a @ b + add.numbers)


def test_large_outputs_come_in_blocks_that_fit_a_cache() -> None:
    shape = (1, 300, 300, 16)
    add = _Add(shape)
    epilogue.apply_in_blocks(np.zeros(shape, np.float32), add)
    assert add.blocks == -(-add.numbers.nbytes // epilogue.BLOCK_BYTES)


def test_convolution_over_no_channels_is_finished_too() -> None:
    geometry = Geometry((1, 4, 4, 0), (1, 1, 0, 2), (_window(4, 1), _window(4, 1)))
    add = _Add(geometry.output_shape)
    out = convolution.forward(np, np.zeros((1, 4, 4, 0), np.float32), np.zeros((1, 1, 0, 2), np.float32), geometry, add)
    np.testing.assert_array_equal(out, add.numbers)
