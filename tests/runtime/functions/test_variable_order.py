"""Steps whose reads and updates have no order by edges: training, branches, loops, queues, partial runs, functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors, ops
from aexec.framework import dtypes
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder

pytestmark = pytest.mark.both_executors

F = dtypes.float32


def config(**settings: Any) -> aexec.SessionConfig:
    return aexec.SessionConfig(**settings)


def variables(**values: float) -> GraphBuilder:
    """Reference variables, and `init`."""
    g = GraphBuilder()
    for name, value in values.items():
        g(name, "VariableV2", dtype=F, shape=[])
        g.const(f"{name}/first", np.float32(value))
        g(f"{name}/init", "Assign", name, f"{name}/first", T=F)
    g("init", "NoOp", *(f"^{name}/init" for name in values))
    g.const("one", np.float32(1))
    g.placeholder("x", F, [])
    return g


async def runs(g: GraphBuilder, fetches: list[str], count: int = 4, **settings: Any) -> list[list[float]]:
    """The results of this many runs."""
    targets = settings.pop("targets", [])
    async with aexec.Session(g.graph(), config=config(**settings)) as session:
        await session.run([], targets=["init"])
        call = session.make_callable(fetches, targets=targets)
        return [[float(value) for value in await call()] for _ in range(count)]


@pytest.mark.parametrize("use_resource", [False, True])
def test_gradients_are_those_of_the_weights_before_the_step(use_resource: bool) -> None:
    """The model has three layers; its optimiser does not wait for all gradients."""
    drawn = np.random.RandomState(0)
    first = [drawn.randn(4, 5), drawn.randn(5, 5), drawn.randn(5, 2)]
    x = drawn.rand(8, 4)
    with tf.Graph().as_default():
        w = [tf.Variable(v, dtype=tf.float64, use_resource=use_resource) for v in first]
        h = tf.constant(x)
        for v in w:
            h = tf.matmul(h, v)
        gradients = tf.gradients(tf.reduce_sum(h), w)
        train = tf.train.GradientDescentOptimizer(0.01).apply_gradients(list(zip(gradients, w, strict=True)))
        a, b, c = first
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(4):
                session.run(train)
                d = np.ones((8, 2))
                steps = (x.T @ d @ c.T @ b.T, (x @ a).T @ d @ c.T, (x @ a @ b).T @ d)
                a, b, c = (v - 0.01 * s for v, s in zip((a, b, c), steps, strict=True))
            for got, wanted in zip(session.run(w), (a, b, c), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_fetched_step_number_is_that_of_the_step() -> None:
    with tf.Graph().as_default():
        w = tf.Variable(3.0)
        number = tf.Variable(0, trainable=False)
        loss = tf.square(w)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=number)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert [int(session.run([train, number, loss])[1]) for _ in range(6)] == [1, 2, 3, 4, 5, 6]


async def test_fetched_reference_shows_the_end_of_the_step_and_a_read_its_beginning() -> None:
    g = variables(v=1)
    g("read", "Identity", "v", T=F)
    g("r", "Neg", "v", T=F)
    g("u1", "AssignAdd", "v", "one", T=F)
    g("u2", "AssignAdd", "v", "one", T=F)
    found = await runs(g, ["v:0", "read:0", "r:0", "u1:0", "u2:0"])
    assert found == [[3, 3, -1, 3, 3], [5, 5, -3, 5, 5], [7, 7, -5, 7, 7], [9, 9, -7, 9, 9]]


async def test_read_in_an_untaken_branch_delays_no_update() -> None:
    g = variables(v=1)
    g.placeholder("p", dtypes.bool_, [])
    g("branch", "RefSwitch", "v", "p", T=F)
    g("r", "Neg", "branch:1", T=F)
    g("other", "Switch", "one", "p", T=F)
    g("y", "Merge", "other:0", "r", T=F, N=2)
    g("u", "AssignAdd", "v", "one", T=F)
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["init"])
        call = session.make_callable(["y:0", "v:0"], ["p:0"], ["u"])
        assert [[float(v) for v in await call(p)] for p in (True, False, False, True)] == [
            [-1, 2],
            [1, 3],
            [1, 4],
            [-4, 5],
        ]


async def test_read_behind_a_merge_follows_the_update() -> None:
    """The Merge takes the input that does not depend on the update."""
    g = variables(v=1)
    g.placeholder("p", dtypes.bool_, [])
    g("u", "AssignAdd", "v", "one", T=F)
    g("late", "Identity", "one", "^u", T=F)
    g("side", "Switch", "late", "p", T=F)
    g("early", "Switch", "one", "p", T=F)
    g("both", "Merge", "early:0", "side:1", T=F, N=2)
    g("r", "AddV2", "both", "v", T=F)
    async with aexec.Session(g.graph(), config=config(executor_type="SHUFFLED")) as session:
        await session.run([], targets=["init"])
        call = session.make_callable(["r:0"], ["p:0"], ["u"])
        assert [float((await call(False))[0]) for _ in range(8)] == [3, 4, 5, 6, 7, 8, 9, 10]


async def test_read_behind_a_queue_does_not_deadlock() -> None:
    """The read waits for a queue that is filled behind the update."""
    g = variables(v=1)
    g("queue", "FIFOQueueV2", component_types=[F], shapes=[()], capacity=9)
    g("get", "QueueDequeueV2", "queue", component_types=[F])
    g("r", "AddV2", "v", "get", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    g("value", "Identity", "one", "^u", T=F)
    g("put", "QueueEnqueueV2", "queue", "value", Tcomponents=[F])
    assert await runs(g, ["r:0"], targets=["put"]) == [[3], [4], [5], [6]]


async def test_update_behind_a_queue_follows_reads_behind_it() -> None:
    g = variables(v=1)
    g("queue", "FIFOQueueV2", component_types=[F], shapes=[()], capacity=9)
    g("put", "QueueEnqueueV2", "queue", "one", Tcomponents=[F])
    g("get", "QueueDequeueV2", "queue", "^put", component_types=[F])
    g("u", "AssignAdd", "v", "get", T=F)
    g("r", "AddV2", "v", "get", T=F)
    assert await runs(g, ["r:0"], targets=["u"]) == [[2], [3], [4], [5]]


async def test_partial_run_does_not_wait_for_later_feeds() -> None:
    g = variables(v=1)
    g("r", "AddV2", "v", "x", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    g("value", "Neg", "u", T=F)
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["init"])
        handle = await session.partial_run_setup(["value:0", "r:0"], ["x:0"])
        assert await session.partial_run(handle, "value:0") == -2
        assert await session.partial_run(handle, "r:0", {"x:0": 1.0}) == 3


async def test_read_beside_the_initializer_finds_no_value() -> None:
    g = variables(v=1)
    g("r", "Neg", "v", T=F)
    g("is", "IsVariableInitialized", "v", dtype=F)
    async with aexec.Session(g.graph()) as session:
        assert not await session.run("is:0", targets=["init"])
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
            await session.run("r:0", targets=["init"])
        await session.run([], targets=["init"])
        assert await session.run("r:0", targets=["init"]) == -1


@pytest.mark.parametrize("parallel_iterations", [1, 10])
async def test_updating_loop_runs_its_iterations_in_turn(parallel_iterations: int) -> None:
    """In each iteration a node without other inputs reads the variable before the update."""
    g = variables(v=1)
    for name, value in (("zero", 0), ("three", 3)):
        g.const(name, np.float32(value))
    frame = {"frame_name": b"loop", "parallel_iterations": parallel_iterations, "T": F}
    g("i", "Enter", "zero", **frame)
    g("sum", "Enter", "zero", **frame)
    g("end", "Enter", "three", is_constant=True, **frame)
    g("step", "Enter", "one", is_constant=True, **frame)
    g("at", "RefEnter", "v", is_constant=True, **frame)
    g("i/merge", "Merge", "i", "i/next", T=F, N=2)
    g("sum/merge", "Merge", "sum", "sum/next", T=F, N=2)
    g("cond", "LoopCond", g("less", "Less", "i/merge", "end", T=F))
    g("i/switch", "Switch", "i/merge", "cond", T=F)
    g("sum/switch", "Switch", "sum/merge", "cond", T=F)
    g("body", "Identity", "sum/switch:1", T=F)
    g("negative", "Neg", "at", "^body", T=F)
    g("minus", "Sub", "body", "negative", T=F)
    g("u", "AssignAdd", "at", "step", "^body", T=F)
    g("sum/next", "NextIteration", "minus", T=F)
    g("i/next", "NextIteration", g("more", "AddV2", "i/switch:1", "step", "^u", T=F), T=F)
    g("y", "Exit", "sum/switch:0", T=F)
    g("r", "Neg", "v", T=F)
    assert await runs(g, ["y:0", "r:0", "v:0"], 3) == [[6, -1, 4], [15, -4, 7], [24, -7, 10]]


async def test_variable_is_read_in_every_iteration() -> None:
    """A compiled loop computes loop invariants only once; a read of a variable is none."""
    g = variables(v=1)
    g.const("zero", np.float32(0))
    g.const("three", np.float32(3))
    frame = {"frame_name": b"loop", "T": F}
    g("sum", "Enter", "zero", **frame)
    g("end", "Enter", "three", is_constant=True, **frame)
    g("step", "Enter", "one", is_constant=True, **frame)
    g("at", "RefEnter", "v", is_constant=True, **frame)
    g("merge", "Merge", "sum", "next", T=F, N=2)
    g("cond", "LoopCond", g("less", "Less", "merge", "end", T=F))
    g("switch", "Switch", "merge", "cond", T=F)
    g("body", "Identity", "switch:1", T=F)
    g("positive", "Abs", "at", T=F)
    g("total", "AddV2", "body", "positive", T=F)
    g("u", "AssignAdd", "at", "step", "^total", T=F)
    g("next", "NextIteration", g("both", "Identity", "total", "^u", T=F), T=F)
    g("y", "Exit", "switch:0", T=F)
    assert await runs(g, ["y:0", "v:0"], 3) == [[3, 3], [3, 4], [4, 5]]


TWICE = function_def(
    "OrderTwice(x: float) -> y: float", body=[("n", "AddV2", ["x", "x"], {"T": F})], ret={"y": "n:z:0"}
)
SECOND = function_def(
    "OrderSecond(x: float, y: float) -> z: float", body=[("n", "Neg", ["x"], {"T": F})], ret={"z": "n:y:0"}
)


@pytest.mark.parametrize("graph_passes", [(), ("function_inlining",)])
async def test_call_takes_the_value_of_a_reference(graph_passes: tuple[str, ...]) -> None:
    g = variables(v=1)
    g.graph_def.library.function.extend([TWICE, SECOND])
    g("r", "PartitionedCall", "v", Tin=[F], Tout=[F], f=calls("OrderTwice"))
    g("u", "AssignAdd", "v", "one", T=F)
    g("late", "PartitionedCall", "v", "u", Tin=[F, F], Tout=[F], f=calls("OrderSecond"))
    found = await runs(g, ["r:0", "late:0"], graph_passes=graph_passes)
    assert found == [[2, -2], [4, -3], [6, -4], [8, -5]]


async def test_fused_node_reads_when_its_parts_would() -> None:
    """The product reads the weights before their update; the sum comes after it."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2, 2], name="x")
        w = aexec.Variable(np.eye(2, dtype=np.float32), name="w")
        product = ops.bias_add(x @ w, np.zeros(2, np.float32))
        update = w.assign_add(np.ones((2, 2), np.float32))
        with aexec.control_dependencies([update.op]):
            other = ops.identity(x)
        ops.relu(product + other, name="y")
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        x_value = np.ones((2, 2), np.float32)
        assert [float((await session.run("y:0", {"x:0": x_value}))[0, 0]) for _ in range(4)] == [2, 4, 6, 8]


@pytest.mark.parametrize("kind", ["reference", "handle"])
async def test_order_holds_across_devices(kind: str) -> None:
    g = GraphBuilder()
    at = "/device:SIM:0"
    g.const("one", np.float32(1))
    if kind == "reference":
        g("v", "VariableV2", device=at, dtype=F, shape=[])
        g("init", "Assign", "v", "one", device=at, T=F)
        g("r", "Neg", "v", T=F)
        g("u", "AssignAdd", "v", "one", device=at, T=F)
    else:
        g("v", "VarHandleOp", device=at, dtype=F, shape=[], shared_name="v")
        g("init", "AssignVariableOp", "v", "one", device=at, dtype=F)
        g("r", "Neg", g("read", "ReadVariableOp", "v", device=at, dtype=F), T=F)
        g("u", "AssignAddVariableOp", "v", "one", device=at, dtype=F)
    fetches = ["r:0", "v:0"] if kind == "reference" else ["r:0"]
    found = await runs(g, fetches, targets=["u"], device_count={"SIM": 1})
    assert found == [[-k, k + 1][: len(fetches)] for k in range(1, 5)]
