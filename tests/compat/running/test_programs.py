"""The programs in `examples/` run; deterministic ones have TensorFlow's losses at each of a hundred steps."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import aexec.compat.v1 as tf

HERE = Path(__file__).parents[1]
EXAMPLES = HERE.parent.parent / "examples"
# Of TensorFlow 2.21, in graph mode; `record.py` wrote them.
RECORDED: dict[str, list[float]] = json.loads((HERE / "data" / "program_losses.json").read_text())

# Steps after which last bits matter: they have made another choice, or a small difference has grown.
LUCK = {"bert_optimizer": 80, "dcgan": 80, "policy_gradient": 40, "wgan": 40}


def test_each_program_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert len(RECORDED) == 26


@pytest.mark.parametrize("program", RECORDED)
def test_program(program: str) -> None:
    steps = LUCK.get(program, 100)
    losses = runpy.run_path(str(EXAMPLES / f"{program}.py"))["train"](steps)
    np.testing.assert_allclose(losses, RECORDED[program][:steps], rtol=1e-4, atol=1e-4)


async def test_program_that_awaits_run() -> None:
    """Linear regression again, on the event loop."""
    rng = np.random.RandomState(0)
    xs = rng.uniform(-1, 1, 64).astype(np.float32)
    ys = 3 * xs - 1 + 0.1 * rng.randn(64).astype(np.float32)
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    w, b = tf.Variable(0.5), tf.Variable(0.0)
    cost = tf.reduce_sum(tf.pow(x * w + b - y, 2)) / (2 * 64)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(cost)
    losses = []
    async with tf.AsyncSession() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(20):
            _, loss = await sess.run([step, cost], feed_dict={x: xs, y: ys})
            losses.append(loss)
            await asyncio.sleep(0)
    np.testing.assert_allclose(losses, RECORDED["linear_regression"][:20], atol=1e-5)
