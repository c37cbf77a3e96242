"""Layers: TensorFlow's names, first values, outputs, gradients, costs and moving averages; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import layers, nn, ops
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from tests.layers.layer_cases import CASES, INPUTS
from tests.support.marks import mark

# Of TensorFlow 2.21, in graph mode with variables in reference form.
RECORDED = json.loads((Path(__file__).parent / "data" / "layers.json").read_text())


def test_every_recorded_case_is_compared() -> None:
    assert CASES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", CASES)
async def test_layers_agree_with_tensorflow(name: str) -> None:
    recorded = RECORDED[name]
    with aexec.Graph() as graph:
        aexec.set_random_seed(3)
        xs = {key: aexec.placeholder("float32", [None, *value.shape[1:]]) for key, value in INPUTS.items()}
        training = aexec.placeholder("bool", [])
        y = CASES[name](layers, xs, nn.relu, nn.l2_loss, training)
        costs = aexec.get_collection(GraphKeys.REGULARIZATION_LOSSES)
        loss = ops.add_n([ops.sum(ops.sin(y), list(range(y.shape.rank or 0))), *costs])
        variables, trainable = aexec.global_variables(), aexec.trainable_variables()
        slopes = [slope for slope in aexec.gradients(loss, [*trainable, *xs.values()]) if slope is not None]
        updates = aexec.get_collection(GraphKeys.UPDATE_OPS)
        init = aexec.global_variables_initializer()
    assert {variable.name: list(variable.shape) for variable in variables} == recorded["variables"]
    assert [variable.name for variable in trainable] == recorded["trainable"]
    assert (y.name, list(y.shape)) == (recorded["name"], recorded["shape"])
    assert [cost.name for cost in costs] == recorded["costs"]
    assert [update.name for update in updates] == recorded["updates"]
    feeds = {xs[key]: value for key, value in INPUTS.items()} | {training: True}
    async with aexec.Session(graph) as session:
        await session.run(init)
        first = await session.run(variables)
        outputs, cost, gradients = await session.run([y, loss, slopes], feeds)
        await session.run([], feeds, updates)
        after = await session.run([variable for variable in variables if "moving" in variable.name])
    np.testing.assert_allclose([mark(value) for value in first], recorded["initial"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(outputs.ravel(), recorded["outputs"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(cost, recorded["loss"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([mark(slope) for slope in gradients], recorded["slopes"], rtol=1e-3, atol=1e-4)
    for value, expected in zip(after, recorded["after"], strict=True):
        np.testing.assert_allclose(value, np.reshape(expected, value.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("of", ["rows", "images"])
async def test_averages_move_in_training_alone(of: str, use_resource: bool) -> None:
    value = INPUTS[of]
    with aexec.Graph() as graph:
        training = aexec.placeholder("bool", [])
        with aexec.variable_scope("model", use_resource=use_resource):
            y = layers.batch_normalization(aexec.constant(value), training=training, momentum=0.5)
        moving = [v for v in aexec.global_variables() if "moving" in v.name]
        with aexec.control_dependencies(aexec.get_collection(GraphKeys.UPDATE_OPS)):
            step = aexec.identity(y)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        plain = await session.run(step, {training: False})
        assert [v.tolist() for v in await session.run(moving)] == [[0, 0, 0], [1, 1, 1]]
        np.testing.assert_allclose(plain, value / np.sqrt(1 + 1e-3), rtol=1e-5)
        normal = await session.run(step, {training: True})
        mean, variance = await session.run(moving)
    rows = value.reshape(-1, 3)
    np.testing.assert_allclose(normal.reshape(-1, 3).mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(mean, rows.mean(0) / 2, rtol=1e-4, atol=1e-6)
    # One op for images gives the variance of a sample.
    np.testing.assert_allclose(variance, 0.5 + rows.var(0, ddof=of == "images") / 2, rtol=1e-4)


async def test_variable_scope_around_speaks_for_weights() -> None:
    def model(x: Any) -> Any:
        return layers.dense(layers.dense(x, 2), 2)

    with aexec.Graph() as graph:
        x = aexec.constant(INPUTS["rows"])
        with aexec.variable_scope("model", initializer=aexec.initializers.Ones()):
            once = model(x)
        with aexec.variable_scope("model", reuse=True):
            again = model(x)
        frozen = layers.dense(x, 2, trainable=False, name="frozen")
        names = [v.name for v in aexec.trainable_variables()]
        init = aexec.global_variables_initializer()
    assert names == [f"model/dense{mark}/{weight}:0" for mark in ("", "_1") for weight in ("kernel", "bias")]
    assert (again.name, frozen.name) == ("model_1/dense_1/BiasAdd:0", "frozen/BiasAdd:0")
    async with aexec.Session(graph) as session:
        await session.run(init)
        one, other = await session.run([once, again])
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, np.repeat(2 * INPUTS["rows"].sum(1, keepdims=True), 2, 1), rtol=1e-5)


async def test_sizes_that_are_not_known() -> None:
    """Those that weights do not need may come with each run."""
    with aexec.Graph() as graph:
        words = aexec.placeholder("float32", [None, None, 3])
        images = aexec.placeholder("float32", [None, None, None, 3])
        made = [
            layers.dense(words, 2),
            layers.flatten(words),
            layers.conv2d_transpose(images, 2, 3, strides=2),
            layers.conv1d(words, 2, 2),
        ]
        init = aexec.global_variables_initializer()
    assert [str(y.shape) for y in made] == ["[?,?,2]", "[?,?]", "[?,?,?,2]", "[?,?,2]"]
    async with aexec.Session(graph) as session:
        await session.run(init)
        found = await session.run(made, {words: INPUTS["words"], images: INPUTS["images"]})
    assert [y.shape for y in found] == [(2, 5, 2), (2, 15), (2, 11, 13, 2), (2, 4, 2)]


async def test_half_precision_is_normalised_in_single() -> None:
    with aexec.Graph() as graph:
        rows = aexec.constant(INPUTS["rows"].astype(np.float16))
        y = layers.batch_normalization(rows, training=True)
        init = aexec.global_variables_initializer()
        assert {v.dtype for v in aexec.global_variables()} == {aexec.float32}
    assert y.dtype is aexec.float16
    async with aexec.Session(graph) as session:
        await session.run(init)
        np.testing.assert_allclose((await session.run(y)).astype(np.float64).std(0), 1, atol=1e-2)


async def test_channels_first() -> None:
    """Weights and shapes are those of channels last; on the CPU, as in TensorFlow, convolutions want them last."""
    with aexec.Graph() as graph:
        first = aexec.constant(INPUTS["first"])
        made = [
            layers.conv2d(first, 2, 3, data_format="channels_first"),
            layers.conv2d_transpose(first, 2, 3, data_format="channels_first"),
            layers.conv1d(first[:, :, 0], 2, 3, data_format="channels_first"),
            layers.separable_conv1d(first[:, :, 0], 2, 3, data_format="channels_first"),
            layers.separable_conv2d(first, 2, 3, data_format="channels_first"),
        ]
        init = aexec.global_variables_initializer()
        shapes = [list(v.shape) for v in aexec.trainable_variables() if "bias" not in v.name]
    assert [list(y.shape) for y in made] == [[2, 2, 3, 4], [2, 2, 7, 8], [2, 2, 4], [2, 2, 4], [2, 2, 3, 4]]
    assert shapes == [[3, 3, 3, 2], [3, 3, 2, 3], [3, 3, 2], [3, 3, 1], [1, 3, 2], [3, 3, 3, 1], [1, 1, 3, 2]]
    async with aexec.Session(graph) as session:
        await session.run(init)
        with pytest.raises(errors.UnimplementedError, match="only supports the NHWC tensor format on the CPU"):
            await session.run(made[0])


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("last dimension of the inputs must be known", lambda: layers.dense(aexec.placeholder("float32", [2, None]), 2)),
    ("inputs of rank 4 were expected", lambda: layers.conv2d(INPUTS["words"], 2, 3)),
    ("kernel_size must be one integer or 2", lambda: layers.conv2d(INPUTS["images"], 2, (3, 3, 3))),
    ("data_format must be", lambda: layers.conv2d(INPUTS["images"], 2, 3, data_format="NCHW")),
    ("reuse cannot be set without a name", lambda: layers.dense(INPUTS["rows"], 2, reuse=True)),
    ("does not exist, or was not created", lambda: layers.dense(INPUTS["rows"], 2, name="d", reuse=True)),
    (r"Invalid axis: \[2\]", lambda: layers.batch_normalization(INPUTS["rows"], axis=2)),
    ("for one axis of channels of images", lambda: layers.batch_normalization(INPUTS["rows"], fused=True)),
    ("the rank of the inputs must be known", lambda: layers.batch_normalization(aexec.placeholder("float32"))),
    ("strides must be one integer or 3", lambda: layers.max_pooling3d(INPUTS["volumes"], 2, (1, 2))),
]


@pytest.mark.parametrize(("message", "build"), REFUSED)
def test_invalid_arguments_are_refused(message: str, build: Callable[[], Any]) -> None:
    with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match=message):
        build()
