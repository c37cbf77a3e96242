"""Loss scaling: TensorFlow's scales and variables after steps that overflow and others; and what it is for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops, training
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices

# Of TensorFlow 2.21, in graph mode: after each step, variable, global step, scale and good steps.
RECORDED = json.loads((Path(__file__).parent / "data" / "loss_scales.json").read_text())

# The third one overflows in float16.
FEEDS = [1.0, 1.0, 500.0, 1.0, 0.5, 0.001, 1.0, 2.0]

CASES: dict[str, tuple[Callable[[], Any], list[float], bool]] = {
    "fixed": (lambda: 128.0, [1.0, 0.5, 2.0], False),
    "dynamic": (lambda: training.DynamicLossScale(2.0**8, increment_period=2), FEEDS, False),
    "dynamic, resource": (lambda: training.DynamicLossScale(2.0**8, increment_period=2), FEEDS, True),
    "dynamic, large": (lambda: training.DynamicLossScale(2.0**15, increment_period=3, multiplier=4.0), FEEDS, False),
}


def model(scale: Any, use_resource: bool = False) -> tuple[Any, Any, Any]:
    """(x, w, step): the loss is computed in float16."""
    w = aexec.get_variable("w", initializer=np.array([1, -2, 3], np.float32), use_resource=use_resource)
    x = aexec.placeholder("float32", [])
    half = ops.cast(w, DstT="float16") * ops.cast(x, DstT="float16")
    loss = ops.cast(ops.sum(half * half, [0]), DstT="float32")
    optimizer = training.LossScaleOptimizer(training.AdamOptimizer(0.1), scale)
    return x, w, optimizer.minimize(loss, global_step=training.get_or_create_global_step())


@pytest.mark.parametrize("name", CASES)
async def test_steps_are_those_of_tensorflow(name: str) -> None:
    make, feeds, use_resource = CASES[name]
    with aexec.Graph() as graph:
        x, w, step = model(make(), use_resource)
        init = aexec.global_variables_initializer()
        variables = {variable.name: variable for variable in aexec.global_variables()}
    kept = [variables[f"{key}:0"] for key in ("current_loss_scale", "good_steps") if f"{key}:0" in variables]
    assert RECORDED[name]["names"] == list(variables)
    async with aexec.Session(graph) as session:
        await session.run(init)
        for feed, (value, count, *scales) in zip(feeds, RECORDED[name]["steps"], strict=True):
            await session.run(step, {x: feed})
            found = await session.run([w, variables["global_step:0"], kept])
            np.testing.assert_allclose(found[0], value, rtol=2e-6)
            assert found[1] == count and found[2] == scales


@pytest.mark.parametrize("rows", [False, True], ids=["whole", "rows"])
async def test_small_gradients_do_not_vanish(rows: bool) -> None:
    """A gradient of 1e-10 is nothing in float16; with a scale it is kept."""
    found = []
    for scale in (1, 2**15):
        with aexec.Graph() as graph:
            w = aexec.Variable(np.ones((3, 2), np.float32), name="w")
            tiny = aexec.constant(np.float16(1e-5))
            half = ops.cast(w.sparse_read([1, 1]) if rows else w, DstT="float16") * tiny * tiny
            optimizer = training.LossScaleOptimizer(training.GradientDescentOptimizer(1.0), scale)
            pairs = optimizer.compute_gradients(ops.sum(ops.cast(half, DstT="float32"), [0, 1]))
            init = aexec.global_variables_initializer()
            gradient = pairs[0][0].values if isinstance(pairs[0][0], IndexedSlices) else pairs[0][0]
        async with aexec.Session(graph) as session:
            await session.run(init)
            found.append(await session.run(gradient))
    assert not found[0].any()
    np.testing.assert_allclose(found[1], 1e-10, rtol=0.05)


async def test_infinite_scale_is_not_taken() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(1.0, name="v")
        scale = training.DynamicLossScale(3e38, increment_period=1)
        step = training.LossScaleOptimizer(training.GradientDescentOptimizer(0.5), scale).apply_gradients(
            [(aexec.constant(1.0), v)]
        )
        now = scale.value()
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        await session.run(step)
        assert await session.run([v, now]) == [0.5, np.float32(3e38)]


def test_invalid_loss_scales_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"at least 1, got 0\.5"):
        training.FixedLossScale(0.5)
    with pytest.raises(errors.InvalidArgumentError, match="must be at least 1"):
        training.DynamicLossScale(multiplier=0.5)
    scale = training.DynamicLossScale()
    optimizer = training.LossScaleOptimizer(training.GradientDescentOptimizer(1.0), scale)
    assert repr(optimizer) == "<LossScaleOptimizer of <GradientDescentOptimizer 'GradientDescent' learning_rate=1.0>>"
    with aexec.Graph():
        scale.value()
        with pytest.raises(errors.InvalidArgumentError, match="No gradients provided"):
            optimizer.apply_gradients([(None, aexec.Variable(1.0))])
    with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match="is of another graph"):
        scale.value()
