"""Convolutions and pooling: TensorFlow's values, gradients and names, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import nn, ops
from aexec.framework import errors
from tests.support.marks import mark

# Of TensorFlow 2.21, in graph mode: name, shape, values, and what stands for the gradient of each input.
RECORDED = json.loads((Path(__file__).parent / "data" / "windows.json").read_text())

_rng = np.random.default_rng(5)


def _normal(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype(np.float32)


WORDS, W1 = _normal(2, 7, 3), _normal(3, 3, 2)
IMAGES, W2, FLAT = _normal(2, 5, 6, 3), _normal(3, 2, 3, 2), _normal(3, 3, 3)
VOLUMES, W3 = _normal(2, 3, 4, 5, 2), _normal(2, 2, 2, 2, 3)
DEEP, MIXING = _normal(3, 3, 3, 2), _normal(1, 1, 6, 4)
BACK1, BACK2, BACK3 = _normal(2, 3, 2), _normal(2, 3, 3, 2), _normal(2, 2, 3, 4, 3)

# name: (function of tensors, their values).
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "conv1d": (lambda x, w: nn.conv1d(x, w, 2, "SAME"), (WORDS, W1)),
    "conv1d apart": (lambda x, w: nn.conv1d(x, w, 1, "VALID", dilations=2), (WORDS, W1)),
    "conv2d": (lambda x, w: nn.conv2d(x, w, (1, 2), [[0, 0], [1, 0], [0, 2], [0, 0]]), (IMAGES, W2)),
    "conv3d": (lambda x, w: nn.conv3d(x, w, [1, 2, 1], "SAME"), (VOLUMES, W3)),
    "convolution of words": (lambda x, w: nn.convolution(x, w, "SAME"), (WORDS, W1)),
    "convolution of images": (lambda x, w: nn.convolution(x, w, "VALID", dilations=[1, 2]), (IMAGES, W2)),
    "convolution of volumes": (lambda x, w: nn.convolution(x, w, "VALID", 2), (VOLUMES, W3)),
    "atrous": (lambda x, w: nn.atrous_conv2d(x, w, 2, "SAME"), (IMAGES, W2)),
    "depthwise": (lambda x, w: nn.depthwise_conv2d(x, w, 1, "SAME"), (IMAGES, DEEP)),
    "depthwise apart": (lambda x, w: nn.depthwise_conv2d(x, w, 1, "VALID", dilations=2), (IMAGES, DEEP)),
    "separable": (lambda x, w, m: nn.separable_conv2d(x, w, m, 2, "SAME"), (IMAGES, DEEP, MIXING)),
    "conv1d transposed": (lambda x, w: nn.conv1d_transpose(x, w, [2, 6, 3], 2), (BACK1, W1)),
    "conv2d transposed": (lambda x, w: nn.conv2d_transpose(x, w, [2, 5, 6, 3], 2), (BACK2, W2)),
    "conv3d transposed": (lambda x, w: nn.conv3d_transpose(x, w, [2, 3, 4, 5, 2], 1, "VALID"), (BACK3, W3)),
    "any transposed": (lambda x, w: nn.conv_transpose(x, w, [2, 5, 6, 3], 2), (BACK2, W2)),
    "atrous transposed": (
        lambda x, w: nn.atrous_conv2d_transpose(x, w, [2, 7, 5, 3], 2, "VALID"),
        (BACK2, W2),
    ),
    "backprop to the input": (
        lambda w, y: nn.conv2d_backprop_input([2, 5, 6, 3], w, y, [1, 2, 2, 1], "SAME"),
        (W2, BACK2),
    ),
    "backprop to the filter": (
        lambda x, y: nn.conv2d_backprop_filter(x, [3, 2, 3, 2], y, [1, 2, 2, 1], "SAME"),
        (IMAGES, BACK2),
    ),
    "backprop to the filter of volumes": (
        lambda x, y: nn.conv3d_backprop_filter(x, [2, 2, 2, 2, 3], y, [1, 1, 1, 1, 1], "VALID"),
        (VOLUMES, BACK3),
    ),
    "depthwise backprop to the input": (
        lambda w, y: nn.depthwise_conv2d_backprop_input([2, 5, 6, 3], w, y, [1, 1, 1, 1], "SAME"),
        (DEEP, np.tile(IMAGES, 2)),
    ),
    "depthwise backprop to the filter": (
        lambda x, y: nn.depthwise_conv2d_backprop_filter(x, [3, 3, 3, 2], y, [1, 1, 1, 1], "SAME"),
        (IMAGES, np.tile(IMAGES, 2)),
    ),
    "dilation": (lambda x, w: nn.dilation2d(x, w, 1, 2, "SAME"), (IMAGES, FLAT)),
    "erosion": (lambda x, w: nn.erosion2d(x, w, 2, 1, "VALID"), (IMAGES, FLAT)),
    "in pieces": (
        lambda x, w: nn.with_space_to_batch(
            x, [2, 3], "SAME", lambda part, _, padding: nn.conv2d(part, w, 1, padding), [3, 2]
        ),
        (IMAGES, W2),
    ),
    "max1d": (lambda x: nn.max_pool1d(x, 2, 2, "SAME"), (WORDS,)),
    "avg1d": (lambda x: nn.avg_pool1d(x, 3, 1, "VALID"), (WORDS,)),
    "max2d": (lambda x: nn.max_pool(x, 2, 1, [[0, 0], [1, 0], [0, 1], [0, 0]]), (IMAGES,)),
    "max3d": (lambda x: nn.max_pool3d(x, 2, 2, "SAME"), (VOLUMES,)),
    "avg3d": (lambda x: nn.avg_pool3d(x, 2, 1, "VALID"), (VOLUMES,)),
    "largest": (lambda x: nn.max_pool_with_argmax(x, 2, 2, "SAME")[0], (IMAGES,)),
    "pool of words": (lambda x: nn.pool(x, [2], "MAX", "SAME"), (WORDS,)),
    "pool of images": (lambda x: nn.pool(x, [2, 3], "AVG", "VALID", strides=[2, 1]), (IMAGES,)),
    "pool of images apart": (lambda x: nn.pool(x, [2, 2], "MAX", "VALID", dilations=[2, 1]), (IMAGES,)),
    "pool of volumes": (lambda x: nn.pool(x, [2, 2, 2], "AVG", "SAME"), (VOLUMES,)),
}


DILATED = ("convolution of images", "atrous", "depthwise apart", "atrous transposed")


def test_every_recorded_case_is_compared() -> None:
    assert CASES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", CASES)
async def test_convolutions_agree_with_tensorflow(name: str) -> None:
    build, arguments = CASES[name]
    recorded = RECORDED[name]
    with aexec.Graph() as graph:
        xs = [aexec.placeholder("float32", value.shape) for value in arguments]
        y = build(*xs)
        slopes = aexec.gradients(ops.sum(ops.sin(y), list(range(y.shape.rank))), xs)
    # Where TensorFlow puts a dilated convolution together of several nodes, here it is one.
    expected = recorded["name"] if name not in DILATED else recorded["name"].replace("/BatchToSpaceND", "")
    assert (y.name, list(y.shape)) == (expected, recorded["shape"])
    async with aexec.Session(graph) as session:
        value, gradients = await session.run([y, slopes], dict(zip(xs, arguments, strict=True)))
    np.testing.assert_allclose(value.ravel(), recorded["values"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([mark(slope) for slope in gradients], recorded["slopes"], rtol=1e-3, atol=1e-3)


async def test_argmax_of_pooling_is_the_position() -> None:
    with aexec.Graph() as graph:
        made = nn.max_pool_with_argmax(IMAGES, 2, 2, "VALID", include_batch_in_index=True)
    async with aexec.Session(graph) as session:
        largest, places = await session.run(made)
    np.testing.assert_array_equal(IMAGES.ravel()[places], largest)


def test_invalid_arguments_are_refused() -> None:
    unknown = "the rank of input or filter must be known"
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("expected 1, 2 or 4 sizes", lambda: nn.conv2d(IMAGES, W2, (1, 2, 3))),
        (unknown, lambda: nn.convolution(aexec.placeholder("float32"), aexec.placeholder("float32"))),
        (unknown, lambda: nn.conv_transpose(FLAT[0], FLAT[0], [1], 1)),
        ("filter_shape must be given", lambda: nn.with_space_to_batch(IMAGES, [2, 2], "SAME", nn.max_pool)),
        (
            "sizes of the input must be known",
            lambda: nn.pool(aexec.placeholder("float32"), [2], "MAX", "SAME", dilations=[2]),
        ),
        ("no pooling 'MIN' over 2 axes", lambda: nn.pool(IMAGES, [2, 2], "MIN", "SAME")),
        (
            "strides > 1 not supported in conjunction with",
            lambda: nn.pool(IMAGES, [2, 2], "MAX", "SAME", dilations=[2, 2], strides=[2, 2]),
        ),
    ]
    for message, build in refused:
        with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match=message):
            build()
