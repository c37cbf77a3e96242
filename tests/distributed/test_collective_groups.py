"""Collectives among tasks: what each member gets, to the last bit as in one process, and how many bytes that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.training import GradientDescentOptimizer
from tests.distributed.clusters import check_idle, cluster_session
from tests.support import gates  # noqa: F401  defines TestFail
from tests.support.programs.graphs import GraphBuilder

KEYS = {"group_size": 3, "group_key": 1, "instance_key": 2}
REDUCE = {"merge_op": b"Add", "final_op": b"Id", "subdiv_offsets": [0]}
TASKS = [f"/job:worker/task:{task}" for task in range(3)]
# Two of one task.
DEVICES = ["/job:worker/task:0/device:CPU:1", "/job:worker/task:1/device:CPU:0", "/job:worker/task:0/device:CPU:0"]


def members(op: str, count: int, devices: Sequence[str], **attrs: Any) -> GraphBuilder:
    """A member `m0`, `m1`, … on each device, of values that are fed."""
    g = GraphBuilder()
    for number in range(count):
        g.placeholder(f"v{number}")
        of_op = {"T": dtypes.float32, **KEYS, "group_size": count, **attrs}
        g(f"m{number}", op, f"v{number}", device=devices[number], **of_op)
    return g


@pytest.mark.parametrize("devices", [TASKS, DEVICES])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (5000,), (70, 41)])
@pytest.mark.parametrize(("merge_op", "final_op"), [(b"Add", b"Div"), (b"Max", b"Id"), (b"Mul", b"Id")])
async def test_reduction_is_that_of_one_process(
    devices: list[str], shape: tuple[int, ...], merge_op: bytes, final_op: bytes
) -> None:
    values = np.random.default_rng(0).standard_normal((3, *shape)).astype(np.float32)
    feeds = {f"v{number}:0": value for number, value in enumerate(values)}
    fetches = ["m0:0", "m1:0", "m2:0"]
    attrs = {**REDUCE, "merge_op": merge_op, "final_op": final_op}
    in_one = sorted(range(3), key=devices.__getitem__)
    alone = [f"/device:CPU:{in_one.index(number)}" for number in range(3)]
    async with aexec.Session(
        members("CollectiveReduce", 3, alone, **attrs).graph(), config=aexec.SessionConfig(device_count={"CPU": 3})
    ) as session:
        (expected, *_) = await session.run(fetches, feeds)
    graph = members("CollectiveReduce", 3, devices, **attrs).graph()
    async with cluster_session(graph, device_count={"CPU": 2}) as (session, cluster):
        for got in await session.run(fetches, feeds):
            np.testing.assert_array_equal(got, expected)
        await check_idle(cluster)


async def test_each_member_sends_twice_its_value_at_most() -> None:
    value = np.ones(1 << 18, np.float32)
    async with cluster_session(members("CollectiveReduce", 3, TASKS, **REDUCE).graph()) as (session, cluster):
        feeds = {f"v{number}:0": value for number in range(3)}
        before = cluster.network.sent_bytes
        assert (await session.run("m0:0", feeds, ["m1", "m2"]))[0] == 3
        fed_and_fetched = 4 * value.nbytes
        moved = cluster.network.sent_bytes - before - fed_and_fetched
        around_a_ring = 3 * 2 * 2 / 3 * value.nbytes
        assert around_a_ring <= moved < 1.01 * around_a_ring


async def test_gather_and_broadcast() -> None:
    g = members("CollectiveGather", 3, DEVICES, shape=PartialTensorShape([None, 2]))
    g.placeholder("x")
    attrs = {"T": dtypes.float32, **KEYS, "instance_key": 3, "shape": PartialTensorShape([2])}
    g("s", "CollectiveBcastSend", "x", device=TASKS[1], **attrs)
    for number in (0, 2):
        g(f"r{number}", "CollectiveBcastRecv", device=TASKS[number], **attrs)
    async with cluster_session(g.graph(), device_count={"CPU": 2}) as (session, cluster):
        feeds = {f"v{number}:0": np.full((number + 1, 2), number, np.float32) for number in range(3)}
        for got in await session.run(["m0:0", "m1:0", "m2:0"], feeds):
            np.testing.assert_array_equal(got[:, 0], [2, 2, 2, 0, 1, 1])
        for got in await session.run(["s:0", "r0:0", "r2:0"], {"x:0": [1.0, 2.0]}):
            np.testing.assert_array_equal(got, [1, 2])
        await check_idle(cluster)


async def test_gradients_reduced_by_all_are_those_of_one_big_batch() -> None:
    with aexec.Graph() as graph:
        trains, variables = [], []
        for task, device in enumerate(TASKS):
            with aexec.device(device):
                x = aexec.placeholder("float32", [None, 4], name=f"x{task}")
                w = aexec.get_variable(f"w{task}", [4], use_resource=True, initializer=aexec.initializers.Zeros())
                loss = ops.mean(ops.square(ops.sum(x * w, [1]) - 1.0), [0])
                (gradient,) = aexec.gradients(loss, [w])
                mean = ops.collective_reduce(gradient, 3, 1, 1, "Add", "Div", [0])
                trains.append(GradientDescentOptimizer(0.1).apply_gradients([(mean, w)]))
                variables.append(w)
        init = aexec.global_variables_initializer()
    random, expected = np.random.default_rng(0), np.zeros(4)
    async with cluster_session(graph) as (session, _):
        await session.run([], targets=[init])
        for _ in range(5):
            parts = random.standard_normal((3, 6, 4)).astype(np.float32)
            await session.run([], {f"x{task}:0": part for task, part in enumerate(parts)}, trains)
            x = parts.reshape(-1, 4).astype(np.float64)
            expected -= 0.1 * 2 * x.T @ (x @ expected - 1) / len(x)
        for trained in await session.run([w.element for w in variables]):
            np.testing.assert_allclose(trained, expected, rtol=1e-5, atol=1e-6)


async def test_invalid_group_is_refused() -> None:
    g = members("CollectiveReduce", 3, TASKS, **REDUCE)
    feeds = {f"v{number}:0": np.ones((40, 50), np.float32) for number in range(3)}
    async with cluster_session(g.graph()) as (session, cluster):
        with pytest.raises(errors.InvalidArgumentError, match="has group_size 3, and 2 nodes in this step"):
            await session.run(["m0:0", "m1:0"], feeds)
        with pytest.raises(errors.InvalidArgumentError, match=r"have shapes .*50, 40.*: expected one shape"):
            await session.run(["m0:0", "m1:0", "m2:0"], {**feeds, "v2:0": np.ones((50, 40), np.float32)})
        await check_idle(cluster)
    for attrs, why in (({"merge_op": b"Max"}, "differ in merge_op"), ({"T": dtypes.float64}, "differ in T")):
        g = members("CollectiveReduce", 2, TASKS, **REDUCE)
        g.placeholder("other", attrs.get("T", dtypes.float32))
        g("m2", "CollectiveReduce", "other", device=TASKS[2], **{"T": dtypes.float32, **KEYS, **REDUCE, **attrs})
        for node in g.graph_def.node:
            if node.op == "CollectiveReduce":
                node.attr["group_size"].i = 3
        async with cluster_session(g.graph()) as (session, _):
            with pytest.raises(errors.InvalidArgumentError, match=why):
                await session.run(["m0:0", "m1:0", "m2:0"], {"v0:0": 1.0, "v1:0": 1.0, "other:0": 1.0})


async def test_member_whose_task_fails_stops_the_others() -> None:
    g = members("CollectiveReduce", 3, TASKS, **REDUCE)
    g("fails", "TestFail", "v2", device=TASKS[2], T=dtypes.float32)
    for node in g.graph_def.node:
        if node.name == "m2":
            node.input[0] = "fails"
    async with cluster_session(g.graph()) as (session, cluster):
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
            await session.run(["m0:0", "m1:0", "m2:0"], {f"v{number}:0": [1.0] for number in range(3)})
        await check_idle(cluster)
