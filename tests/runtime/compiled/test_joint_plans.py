"""Joint plans: partitions on devices that share memory are one compiled plan, and give the same as one by one.

What runs one by one is the reference: the interpreter of each partition, with values that travel.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.runtime.compiled import line_writer
from aexec.runtime.plans import compilation_policy
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, chain_over_devices, counting_loop
from tests.support.programs.line_programs import LineProgram
from tests.support.programs.line_runs import Interruptions, Outcome, batches, outcomes, program_of
from tests.support.stand_ins.socket_transport import SocketTransport
from tests.support.waiting import until

F = dtypes.float32
pytestmark = pytest.mark.usefixtures("always_compiled")

GRAPHS = 12
CPUS = {"CPU": 4}


@pytest.fixture
def travelled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys by which values were sent."""
    keys: list[str] = []
    original = Rendezvous.send

    def send(self: Rendezvous, key: str, value: Any, **rest: Any) -> None:
        keys.append(key)
        original(self, key, value, **rest)

    monkeypatch.setattr(Rendezvous, "send", send)
    return keys


def config(**settings: Any) -> aexec.SessionConfig:
    return aexec.SessionConfig(device_count=CPUS, graph_passes=(), **settings)


def over_devices(program: LineProgram, seed: int) -> LineProgram:
    """The same with each node on one of four devices."""
    drawn = random.Random(seed)
    for node in program.g.graph_def.node:
        node.device = f"/cpu:{drawn.randrange(4)}"
    return program


async def test_joint_plan_sends_nothing_between_host_devices(travelled: list[str]) -> None:
    async with aexec.Session(chain_over_devices(6).graph(), config=config()) as session:
        call = session.make_callable("last:0", ["x:0"])
        assert await call(2.0) == 2
        assert isinstance(call.plan, PartitionedPlan) and call.plan.compilation.compiled
        assert await call(3.0) == 3  # without a step of its own
        source = await session.plan_source(call)
        assert source.count("(Neg)") == 6 and "_Recv" not in source
    assert not travelled


async def test_joint_plan_is_compiled_after_several_runs(travelled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 3)
    async with aexec.Session(chain_over_devices(6).graph(), config=config()) as session:
        call = session.make_callable("last:0", ["x:0"])
        sent = [(await call(value), len(travelled)) for value in (1.0, 2.0, 3.0, 4.0)]
        assert sent == [(1, 6), (2, 12), (3, 12), (4, 12)]


async def test_watched_run_executes_partitions(travelled: list[str]) -> None:
    async with aexec.Session(chain_over_devices(6).graph(), config=config()) as session:
        call = session.make_callable("last:0", ["x:0"])
        assert await call(1.0) == 1
        metadata = aexec.RunMetadata()
        assert await call(2.0, options=aexec.RunOptions(trace=True), metadata=metadata) == 2
        assert metadata.step_stats is not None
        assert len([d for d in metadata.step_stats.dev_stats if "CPU" in d.device]) == 4
        assert len(travelled) == 6
        assert await call(3.0) == 3
        assert len(travelled) == 6
        setup = await session.partial_run_setup(["n3:0", "last:0"], ["x:0"])
        assert await session.partial_run(setup, "n3:0", {"x:0": 1.0}) == 1
        assert await session.partial_run(setup, "last:0") == 1
        assert len(travelled) > 6


async def test_values_travel_if_they_are_changed_or_brought_on_the_way(travelled: list[str]) -> None:
    x = np.float32(1 + 2**-20)
    async with aexec.Session(chain_over_devices(6).graph(), config=config(compress_transfers=True)) as session:
        call = session.make_callable("last:0", ["x:0"])
        assert [await call(x) for _ in range(3)] == [1, 1, 1]
        with pytest.raises(errors.UnimplementedError, match="values are compressed"):
            await session.plan_source(call)
    async with SocketTransport() as transport:
        async with aexec.Session(chain_over_devices(6).graph(), config=config(transport=transport)) as session:
            call = session.make_callable("last:0", ["x:0"])
            assert [await call(x) for _ in range(3)] == [x, x, x]
            with pytest.raises(errors.UnimplementedError, match="the session's transport brings"):
                await session.plan_source(call)
        assert len(transport.keys) == 18
    g = chain_over_devices(6)
    g.graph_def.node[2].device = "/device:SIM:0"
    with_memory = aexec.SessionConfig(device_count={**CPUS, "SIM": 1}, graph_passes=())
    async with aexec.Session(g.graph(), config=with_memory) as session:
        call = session.make_callable("last:0", ["x:0"])
        assert [await call(x) for _ in range(3)] == [x, x, x]
        with pytest.raises(errors.UnimplementedError, match="memory of their own"):
            await session.plan_source(call)


@pytest.mark.parametrize("iterations", [0, 1, 30])
async def test_joint_plan_runs_loops(iterations: int, travelled: list[str]) -> None:
    g = counting_loop(parallel_iterations=3)
    for number, node in enumerate(g.graph_def.node):
        node.device = f"/cpu:{number % 4}"
    async with aexec.Session(g.graph(), config=config()) as session:
        call = session.make_callable("result:0", ["n:0"])
        assert [await call(iterations) for _ in range(3)] == [iterations] * 3
        assert call.plan is not None and call.plan.compilation.compiled
    assert not travelled


@pytest.mark.parametrize("first", batches(5, GRAPHS, ordinary=2))
async def test_random_graphs_give_the_results_of_partitions(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the interpreter takes over, results, errors and the number of calls are those of partitions."""
    chances = random.Random(first)
    interruptions = Interruptions(chances)
    refused = 0
    for number in range(first, first + GRAPHS):
        monkeypatch.setattr(line_writer, "INTERRUPT", None)
        wanted, _ = await outcomes(over_devices(program_of(number), number), 1, device_count=CPUS, compile_plans=False)
        got, reason = await outcomes(over_devices(program_of(number), number), 2, device_count=CPUS)
        assert got == wanted * 2, number
        refused += bool(reason)
        monkeypatch.setattr(line_writer, "INTERRUPT", interruptions.at_a_call)
        interruptions.share = chances.choice([0.01, 0.05, 0.2])
        got, _ = await outcomes(over_devices(program_of(number), number), 3, device_count=CPUS)
        interruptions.share = 0.0
        assert got == wanted * 3, number
    assert refused <= 5


async def shuffled(number: int) -> list[Outcome]:
    program = over_devices(program_of(number), number)
    return (await outcomes(program, 1, device_count=CPUS, executor_type="SHUFFLED"))[0]


async def test_random_order_of_nodes_gives_the_same_results() -> None:
    """Partitions whose ready nodes are run in random order give the same."""
    for number in range(500, 520):
        wanted, _ = await outcomes(over_devices(program_of(number), number), 1, device_count=CPUS)
        assert await shuffled(number) == wanted, number


def names(step: aexec.Step) -> list[str]:
    """Names of the nodes that run."""
    return [] if step.execution is None else [running.node.name for running in step.execution.running()]


def waiting_at(position: int) -> GraphBuilder:
    """A chain over devices that dequeues a value at this position."""
    g = chain_over_devices(6)
    g("queue", "FIFOQueueV2", device="/cpu:2", component_types=[F], shapes=[()], capacity=9)
    g("put", "QueueEnqueueV2", "queue", "x", device="/cpu:2", Tcomponents=[F])
    after = g.graph_def.node[position + 1]
    g("get", "QueueDequeueV2", "queue", f"^{after.input[0]}", device="/cpu:2", component_types=[F])
    after.input.append("^get")
    return g


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("compile_plans", [True, False])
async def test_waiting_joint_plan_can_be_cancelled(position: int, compile_plans: bool) -> None:
    async with aexec.Session(waiting_at(position).graph(), config=config(compile_plans=compile_plans)) as session:
        call = session.make_callable("last:0", ["x:0"])
        put = session.make_callable([], ["x:0"], ["put"])
        for _ in range(3):
            step = call.start(2.0)
            await until(lambda step=step: "get" in names(step))
            assert step.cancel("enough")
            with pytest.raises(errors.CancelledError, match="enough"):
                await step
            assert not session.steps
            await put(0.0)
            assert await call(3.0) == 3
            step = call.start(4.0)
            await asyncio.sleep(0)
            await put(0.0)
            assert await step == 4


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("compile_plans", [True, False])
async def test_joint_plan_can_be_cancelled_in_any_iteration(at: int, compile_plans: bool) -> None:
    """Each iteration of a loop over devices takes a value from a queue, which has too few."""
    g = counting_loop(parallel_iterations=2)
    g("queue", "FIFOQueueV2", device="/cpu:2", component_types=[F], shapes=[()], capacity=9)
    g.placeholder("x")
    g("put", "QueueEnqueueV2", "queue", "x", device="/cpu:2", Tcomponents=[F])
    g("size", "QueueSizeV2", "queue", device="/cpu:2")
    g("enter_queue", "Enter", "queue", frame_name=b"loop", is_constant=True, T=dtypes.resource)
    g("get", "QueueDequeueV2", "enter_queue", "^body", component_types=[F])
    next(node for node in g.graph_def.node if node.name == "add").input.append("^get")
    for number, node in enumerate(g.graph_def.node):
        node.device = "/cpu:2" if "queue" in node.op.lower() or node.name == "enter_queue" else f"/cpu:{number % 4}"
    async with aexec.Session(g.graph(), config=config(compile_plans=compile_plans)) as session:
        call = session.make_callable("result:0", ["n:0"])
        put = session.make_callable([], ["x:0"], ["put"])
        for _ in range(3):
            for _ in range(at - 1):
                await put(0.0)
            step = call.start(4)
            await asyncio.sleep(0)
            while await session.run("size:0"):
                await asyncio.sleep(0)
            assert step.cancel("enough")
            with pytest.raises(errors.CancelledError, match="enough"):
                await step
            assert not session.steps
            for _ in range(4):
                await put(0.0)
            assert await call(4) == 4


async def test_kernels_go_on_where_the_partitions_left_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has one kernel, with one state, in both ways of running it."""
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 3)

    async def drawn(**settings: Any) -> list[Any]:
        g = GraphBuilder()
        g.const("shape", np.array([3], np.int32))
        g("drawn", "RandomUniform", "shape", device="/cpu:1", dtype=F, T=dtypes.int32, seed=7, seed2=3)
        g("last", "Neg", "drawn", device="/cpu:2", T=F)
        async with aexec.Session(g.graph(), config=aexec.SessionConfig(device_count=CPUS, **settings)) as session:
            call = session.make_callable("last:0")
            return [np.asarray(await call()).tolist() for _ in range(6)]

    found = await drawn()
    assert found == await drawn(compile_plans=False)
    assert len({str(each) for each in found}) == 6


async def test_waiting_call_leaves_the_line_and_an_error_ends_the_step() -> None:
    """A call that waits leaves the line; the error of another device's node ends the step meanwhile."""
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x")
    g("there", "Neg", "x", device="/cpu:1", T=F)
    g("queue", "FIFOQueueV2", device="/cpu:2", component_types=[F], shapes=[()], capacity=2)
    g("get", "QueueDequeueV2", "queue", device="/cpu:2", component_types=[F])
    g("put", "QueueEnqueueV2", "queue", "there", device="/cpu:2", Tcomponents=[F])
    g("last", "AddV2", "get", "there", device="/cpu:3", T=F)
    g("fails", "TestFail", "there", "^get", device="/cpu:3", T=F)
    assert not gate.open.is_set()
    async with aexec.Session(g.graph(), config=config()) as session:
        call = session.make_callable("last:0", ["x:0"])
        for _ in range(4):
            step = call.start(1.0)
            await asyncio.sleep(0)
            assert not step.done
            await session.run([], {"x:0": 2.0}, "put")
            assert await step == -3
        step = call.start(1.0)
        await asyncio.sleep(0)
        assert step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
        for _ in range(3):
            await session.run([], {"x:0": 2.0}, "put")
            with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
                await session.run("fails:0", {"x:0": 1.0})
            assert caught.value.node == "fails"
