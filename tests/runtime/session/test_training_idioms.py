"""Replicas that train one variable, asynchronously and synchronously."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aexec
from aexec import ops

pytestmark = pytest.mark.both_executors


def model() -> tuple[aexec.Tensor, aexec.Tensor, aexec.Tensor]:
    """(variable, what it was read as, gradient) of `w * x = y`."""
    w = ops.var_handle_op("float32", [], shared_name="w", name="w")
    ops.assign_variable_op(w, aexec.constant(0.0), name="init")
    x = aexec.placeholder("float32", [None], name="x")
    y = aexec.placeholder("float32", [None], name="y")
    value = ops.read_variable_op(w, "float32", name="value")
    return w, value, ops.mean((value * x - y) * x, [0]) * 2.0


async def test_asynchronous_replicas_lose_no_update() -> None:
    """Each replica adds one to the variable a hundred times, concurrently with the others."""
    with aexec.Graph() as graph:
        w = ops.var_handle_op("float32", [], shared_name="w", name="w")
        ops.assign_variable_op(w, aexec.constant(0.0), name="init")
        ops.resource_apply_gradient_descent(w, aexec.constant(1.0), aexec.constant(-1.0), name="train")
        ops.read_variable_op(w, "float32", name="value")

    async def replica(session: aexec.Session) -> None:
        for _ in range(100):
            await session.run([], targets=["train"])
            await asyncio.sleep(0)

    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        await asyncio.gather(*(replica(session) for _ in range(4)))
        assert await session.run("value:0") == 400


async def test_synchronous_replicas_take_the_steps_of_one_with_their_batches_together() -> None:
    replicas, rounds = 4, 5
    with aexec.Graph() as graph:
        w, _, gradient = model()
        step = aexec.placeholder("int64", [], name="step")
        sums = ops.resource_conditional_accumulator("float32", [], shared_name="sums")
        tokens = ops.fifo_queue_v2(["int64"], shared_name="tokens")
        give = ops.resource_accumulator_apply_gradient(sums, step, gradient, name="give")
        with aexec.control_dependencies([give]):
            ops.queue_dequeue_v2(tokens, ["int64"], name="next_step")
        mean = ops.resource_accumulator_take_gradient(sums, aexec.constant(replicas), "float32")
        train = ops.resource_apply_gradient_descent(w, aexec.constant(0.1), mean)
        with aexec.control_dependencies([train]):
            ops.queue_enqueue_many_v2(tokens, [ops.fill([replicas], step)], name="chief")

    batches = np.random.default_rng(0).standard_normal((rounds, replicas, 8)).astype(np.float32)

    # A replica that went on at once could take a second token of the round, and leave another one without.
    all_have_their_token = asyncio.Barrier(replicas)

    async def replica(session: aexec.Session, number: int) -> None:
        step = np.int64(0)
        for batch in batches[:, number]:
            step = await session.run("next_step:0", {"x:0": batch, "y:0": 3 * batch, "step:0": step})
            await all_have_their_token.wait()

    async def chief(session: aexec.Session) -> None:
        for step in range(1, rounds + 1):
            await session.run([], {"step:0": step}, ["chief"])

    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        await asyncio.gather(chief(session), *(replica(session, number) for number in range(replicas)))
        trained = await session.run("value:0")

    expected = 0.0
    for batch in batches.reshape(rounds, -1).astype(np.float64):
        expected -= 0.1 * 2 * np.mean((expected * batch - 3 * batch) * batch)
    np.testing.assert_allclose(trained, expected, rtol=1e-5)
