"""Replicas of a model over parameter servers and workers: in one graph, in one each; at will, and in rounds."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

import aexec
from aexec import layers, ops
from aexec.distributed.memory_engine import MemoryCluster
from aexec.training import AdamOptimizer, GradientDescentOptimizer, replica_device_setter
from tests.distributed.clusters import check_idle, cluster_session

CLUSTER = {"ps": 2, "worker": 2}
WEIGHTS = np.array([[2.0], [-1.0], [0.5]], np.float32)


def batch(seed: int, rows: int = 16) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    x = np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)
    return x, x @ WEIGHTS + 0.25


def loss_of(number: int = 0) -> tuple[aexec.Tensor, list[aexec.Variable]]:
    """The loss of a regression for `x<number>` and `y<number>`; its variables are made, or found."""
    x = aexec.placeholder("float32", [None, 3], name=f"x{number}")
    y = aexec.placeholder("float32", [None, 1], name=f"y{number}")
    with aexec.variable_scope("model", reuse=aexec.AUTO_REUSE):
        w = aexec.get_variable("w", [3, 1], use_resource=True, initializer=aexec.initializers.Zeros())
        b = aexec.get_variable("b", [1], use_resource=True, initializer=aexec.initializers.Zeros())
    return ops.mean(ops.square(x @ w + b - y), [0, 1]), [w, b]


def replica(task: int) -> tuple[aexec.Graph, aexec.Tensor, aexec.Node]:
    """A graph of one replica: between-graph replication."""
    setter = replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")
    with aexec.Graph() as graph, aexec.device(setter):
        loss, _ = loss_of()
        train = GradientDescentOptimizer(0.1).minimize(loss)
        aexec.group(aexec.global_variables_initializer(), name="init")
    return graph, loss, train


async def test_graph_for_each_replica_asynchronous() -> None:
    """Their variables are the same, as they share the container; a replica that has gone hinders no other."""
    config = aexec.SessionConfig(cluster=CLUSTER, share=("localhost",))
    async with MemoryCluster("test", 4, lease=60) as cluster:

        async def train(task: int, steps: int) -> float:
            graph, loss, step = replica(task)
            async with aexec.Session(graph, "memory://test", config) as session:
                if task == 0:
                    await session.run([], targets=["init"])
                    ready.set()
                await ready.wait()
                losses = []
                for number in range(steps):
                    x, y = batch(2 * number + task)
                    losses.append((await session.run([loss, step], {"x0:0": x, "y0:0": y}))[0])
                return float(losses[-1])

        ready = asyncio.Event()
        last, _ = await asyncio.gather(train(0, 60), train(1, 20))
        assert last < 1e-3
        await check_idle(cluster)


async def test_one_graph_of_all_replicas_asynchronous() -> None:
    with aexec.Graph() as graph:
        trains, losses = [], []
        for task in range(2):
            setter = replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")
            with aexec.device(setter):
                loss, _ = loss_of(task)
                trains.append(GradientDescentOptimizer(0.1).minimize(loss))
                losses.append(loss)
        init = aexec.global_variables_initializer()
    places = {node.device for node in graph.nodes if node.op == "VarHandleOp"}
    assert places == {"/job:ps/task:0", "/job:ps/task:1"}
    async with cluster_session(graph, 4, cluster=CLUSTER) as (session, cluster):
        await session.run([], targets=[init])

        async def train(task: int) -> float:
            for number in range(40):
                x, y = batch(2 * number + task)
                value, _ = await session.run([losses[task], trains[task]], {f"x{task}:0": x, f"y{task}:0": y})
            return float(value)

        assert max(await asyncio.gather(train(0), train(1))) < 1e-2
        await check_idle(cluster)


async def test_synchronous_replicas_have_the_losses_of_one_big_batch() -> None:
    """Gradients are gathered in accumulators on the parameter servers; a late one, of an older step, is dropped."""
    with aexec.Graph() as graph:
        gives = []
        step = aexec.placeholder("int64", [], name="step")
        sums: list[aexec.Tensor] = []
        for task in range(2):
            setter = replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")
            with aexec.device(setter):
                loss, variables = loss_of(task)
                gradients = aexec.gradients(loss, variables)
                if not sums:
                    sums = [
                        ops.resource_conditional_accumulator("float32", v.shape, shared_name=f"sum_{v.op.name}")
                        for v in variables
                    ]
                pairs = zip(sums, gradients, strict=True)
                gives.append(aexec.group(*(ops.resource_accumulator_apply_gradient(s, step, g) for s, g in pairs)))
        with aexec.device(replica_device_setter(cluster=CLUSTER)):
            means = [ops.resource_accumulator_take_gradient(s, aexec.constant(2), "float32") for s in sums]
            applied = GradientDescentOptimizer(0.1).apply_gradients(list(zip(means, variables, strict=True)))
            next_step = step + 1
            with aexec.control_dependencies([applied]):
                set_steps = aexec.group(
                    *(ops.resource_accumulator_set_global_step(s, next_step) for s in sums), name="chief"
                )
        init = aexec.global_variables_initializer()
    async with cluster_session(graph, 4, cluster=CLUSTER) as (session, cluster):
        await session.run([], targets=[init])
        expected = np.zeros((4, 1))
        for number in range(10):
            parts = [batch(2 * number + task) for task in range(2)]
            feeds: dict[str, Any] = {"step:0": np.int64(number)}
            for task, (x, y) in enumerate(parts):
                feeds |= {f"x{task}:0": x, f"y{task}:0": y}
            await session.run([], feeds, [gives[0]])
            late = session.run([], {**feeds, "step:0": np.int64(number - 1)}, [gives[1]])
            await asyncio.gather(late, session.run([], feeds, [gives[1]]))
            await session.run([], feeds, [set_steps])
            x, y = (np.concatenate(each).astype(np.float64) for each in zip(*parts, strict=True))
            x = np.concatenate([x, np.ones((len(x), 1))], 1)
            expected -= 0.1 * 2 * x.T @ (x @ expected - y) / len(x)
            trained = await session.run([variables[0].element, variables[1].element])
            np.testing.assert_allclose(np.concatenate([trained[0], trained[1][None]]), expected, rtol=1e-5, atol=1e-6)
        await check_idle(cluster)


async def test_asynchronous_replicas_of_a_network_converge() -> None:
    """Each replica applies its gradients to whatever the weights are then."""

    def network(number: int) -> aexec.Tensor:
        x = aexec.placeholder("float32", [None, 3], name=f"x{number}")
        y = aexec.placeholder("float32", [None, 1], name=f"y{number}")
        with aexec.variable_scope("network", reuse=aexec.AUTO_REUSE):
            hidden = layers.dense(x, 8, activation=ops.tanh, name="hidden")
            made = layers.dense(hidden, 1, name="made")
        return ops.mean(ops.square(made - y), [0, 1])

    with aexec.Graph() as graph:
        aexec.set_random_seed(1)
        losses, trains = [], []
        for task in range(2):
            with aexec.device(replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")):
                losses.append(network(task))
                trains.append(AdamOptimizer(0.03).minimize(losses[-1]))
        init = aexec.global_variables_initializer()
    async with cluster_session(graph, 4, cluster=CLUSTER) as (session, cluster):
        await session.run([], targets=[init])

        async def train(task: int) -> list[float]:
            found = []
            for number in range(60):
                x, y = batch(2 * number + task)
                feeds = {f"x{task}:0": x, f"y{task}:0": np.tanh(y)}
                found.append(float((await session.run([losses[task], trains[task]], feeds))[0]))
            return found

        for found in await asyncio.gather(train(0), train(1)):
            assert np.mean(found[-5:]) < np.mean(found[:5]) / 10
        await check_idle(cluster)


async def test_embedding_sends_rows_and_not_its_table() -> None:
    rows, width = 10_000, 16
    with aexec.Graph() as graph, aexec.device(replica_device_setter(cluster=CLUSTER)):
        tables = [
            aexec.get_variable(
                f"part{part}", [rows // 2, width], use_resource=True, initializer=aexec.initializers.Ones()
            )
            for part in range(2)
        ]
        ids = aexec.placeholder("int32", [None], name="ids")
        found = aexec.nn.embedding_lookup(tables, ids)
        train = GradientDescentOptimizer(1.0).minimize(ops.sum(found, [0, 1]))
        init = aexec.global_variables_initializer()
    async with cluster_session(graph, 4, cluster=CLUSTER) as (session, cluster):
        await session.run([], targets=[init])
        asked = np.arange(8, dtype=np.int32)
        await session.run([found, train], {"ids:0": asked})
        before = cluster.network.sent_bytes
        got, _ = await session.run([found, train], {"ids:0": asked})
        np.testing.assert_array_equal(got, np.zeros((8, width), np.float32))
        moved, of_rows = cluster.network.sent_bytes - before, got.nbytes
        assert of_rows < moved < 8 * of_rows < rows * width, moved
