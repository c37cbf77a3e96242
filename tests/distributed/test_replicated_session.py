"""A session with its graph on every worker: who runs a step, who comes and goes, and what each replica has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import aexec
from aexec import errors
from aexec.distributed import cluster_session
from aexec.distributed.memory_engine import MemoryCluster
from aexec.distributed.replicated_session import ReplicatedSession
from aexec.framework import dtypes
from aexec.graph.signature import Signature
from aexec.saved_model import save_saved_model
from tests.distributed.clusters import chain, check_idle
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual

F = dtypes.float32
REPLICATED = aexec.SessionConfig(replicated=True)


def gated(key: int) -> aexec.Graph:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    if key:
        g("held", "TestGate", "x", key=key, T=F)
    g("free", "Neg", "x", T=F)
    return g.graph()


def negation() -> aexec.Graph:
    return gated(0)


def in_use(session: aexec.Session) -> dict[str, int]:
    """Address of each replica → steps of this session that are there."""
    assert isinstance(session, ReplicatedSession)
    return {task.address: task.in_flight for task in session.tasks.values()}


@pytest.fixture(autouse=True)
def _steps_are_known_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `ran` finds them on a busy machine, too."""
    monkeypatch.setattr(cluster_session, "_TELL_SECONDS", 1.0)


def ran(cluster: MemoryCluster, handle: str) -> dict[str, list[int]]:
    """Address of each worker → the steps of a session that it knows of, until it is told that they are over."""
    found = {}
    for address, worker in cluster.workers.items():
        if handle in worker.sessions:
            found[address] = [step["step"] for step in worker.sessions[handle].describe()["steps"]]
    return found


async def saved_model(folder: Path) -> str:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        v = aexec.get_variable("v", [], use_resource=True, initializer=aexec.initializers.Constant(3.0))
        y = aexec.ops.mul(x, v.read_value(), name="y")
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run([], targets=[init])
        signature = Signature.of({"x": x}, {"y": y})
        await save_saved_model(session, folder / "model", {"serving_default": signature})
    return str(folder / "model")


async def test_steps_go_to_all_workers_in_turn() -> None:
    async with (
        MemoryCluster("test", 3) as cluster,
        aexec.Session(negation(), "memory://test", REPLICATED) as session,
    ):
        assert [device.name for device in session.devices()] == ["/job:localhost/replica:0/task:0/device:CPU:0"]
        for number in range(3):
            assert await session.run("free:0", {"x:0": float(number)}) == -number
        assert isinstance(session, ReplicatedSession)
        assert ran(cluster, session.handle) == {"worker-0": [1], "worker-1": [2], "worker-2": [3]}
        await check_idle(cluster)
    assert not any(worker.sessions for worker in cluster.workers.values())


async def test_step_goes_to_the_least_busy_also_of_others() -> None:
    gate = gates.Gate()
    graph = gated(gate.key)
    async with (
        MemoryCluster("test", 3, lease=0.2) as cluster,
        aexec.Session(graph, "memory://test", REPLICATED) as one,
        aexec.Session(graph, "memory://test", REPLICATED) as other,
    ):
        assert isinstance(one, ReplicatedSession) and isinstance(other, ReplicatedSession)
        held = [one.start("held:0", {"x:0": 1.0}) for _ in range(2)]
        async with asyncio.timeout(100):
            await until(lambda: sum(in_use(one).values()) == 2)
            while sum(task.others for task in other.tasks.values()) < 2:
                await asyncio.sleep(0.01)  # its pings
        (free,) = [address for address, steps in in_use(one).items() if not steps]
        for session in (one, other):
            for _ in range(3):
                await session.run("free:0", {"x:0": 1.0})
            found = ran(cluster, session.handle)
            assert found.pop(free) and sum(map(len, found.values())) == (2 if session is one else 0)
        gate.open.set()
        assert await asyncio.gather(*held) == [1.0, 1.0]


@pytest.mark.parametrize("replicated", [False, True])
async def test_model_has_its_variables(tmp_path: Path, replicated: bool) -> None:
    model = await saved_model(tmp_path)
    async with MemoryCluster("test", 2) as cluster:
        config = aexec.SessionConfig(replicated=replicated)
        async with aexec.Session(model, "memory://test", config) as session:
            for _ in range(2):
                assert await session.call(x=2.0) == {"y": 6.0}
        broken = [path for path in (tmp_path / "model" / "variables").iterdir() if ".data-" in path.name]
        broken[0].unlink()
        with pytest.raises(errors.OpError, match=r"variables\.data"):
            await aexec.Session(model, "memory://test", config)
        await check_idle(cluster)


def test_workers_go_and_come(tmp_path: Path) -> None:
    """What is lost fails the steps that are there; who comes is made ready, and gets steps."""

    async def main() -> None:
        model = await saved_model(tmp_path)
        async with MemoryCluster("test", 2) as cluster, aexec.Session(model, "memory://test", REPLICATED) as session:
            assert isinstance(session, ReplicatedSession)

            async def served_by() -> set[str]:
                assert [await session.call(x=2.0) for _ in range(2)] == [{"y": 6.0}] * 2
                return {address for address, steps in ran(cluster, session.handle).items() if steps}

            assert await served_by() == {"worker-0", "worker-1"}
            cluster.kill("worker-0")
            await asyncio.sleep(0.2)
            assert await served_by() == {"worker-1"}
            cluster.add_worker("worker-0")
            cluster.kill("worker-1")
            with pytest.raises(errors.UnavailableError, match="None of the workers"):
                await session.call(x=2.0)
            await asyncio.sleep(2)
            assert await served_by() == {"worker-0"}
            cluster.add_worker()
            assert await session.recover() == ["/job:worker/replica:3/task:0"]
            assert await session.recover() == []
            assert len(await served_by()) == 2
            await check_idle(cluster)

    run_virtual(main())


def test_worker_that_dies_or_differs_while_it_is_made_ready_gets_no_steps() -> None:
    gate = gates.Gate()

    async def ready(session: aexec.Session) -> None:
        await session.run("held:0", {"x:0": 1.0})

    async def main() -> None:
        gate.open.set()
        async with (
            MemoryCluster("test", 1) as cluster,
            aexec.Session(gated(gate.key), "memory://test", REPLICATED) as session,
        ):
            assert isinstance(session, ReplicatedSession)
            session._ready = ready
            gate.open.clear()
            gate.entered.clear()
            cluster.add_worker()
            recovering = asyncio.create_task(session.recover())
            await gate.entered.wait()
            cluster.kill("worker-1")
            assert await recovering == []
            gate.open.set()
            assert list(in_use(session)) == ["worker-0"]
            session._devices *= 2
            cluster.add_worker()
            assert await session.recover() == [] and len(session.tasks) == 1
            assert await session.run("free:0", {"x:0": 1.0}) == -1
            await check_idle(cluster)

    run_virtual(main())


def test_workers_are_listed_again_periodically(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with (
            MemoryCluster("test", 1) as cluster,
            aexec.Session(negation(), "memory://test", REPLICATED) as session,
        ):
            assert isinstance(session, ReplicatedSession)
            workers = session.engine.workers

            async def silent() -> list[str]:
                raise errors.UnavailableError("the scheduler does not answer")

            session.engine.workers = silent  # type: ignore[method-assign]
            cluster.add_worker()
            await asyncio.sleep(5)
            assert len(session.tasks) == 1 and caplog.text.count("scheduler does not answer") == 1
            session.engine.workers = workers  # type: ignore[method-assign]
            await asyncio.sleep(2)
            assert len(session.tasks) == 2

    run_virtual(main())


def test_step_on_a_lost_replica_fails_and_others_go_on() -> None:
    async def main() -> None:
        gate = gates.Gate()
        async with (
            MemoryCluster("test", 2) as cluster,
            aexec.Session(gated(gate.key), "memory://test", REPLICATED) as session,
        ):
            held = [session.start("held:0", {"x:0": 1.0}) for _ in range(2)]
            await until(lambda: sum(in_use(session).values()) == 2)
            await gate.entered.wait()
            cluster.kill("worker-0")
            outcomes = await asyncio.gather(held[0], until_open(held[1], gate), return_exceptions=True)
            lost, done = outcomes
            assert isinstance(lost, errors.UnavailableError) and "replica:0/task:0 is lost" in str(lost)
            assert done == 1.0
            await check_idle(cluster)

    run_virtual(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def until_open(step: aexec.Step, gate: gates.Gate) -> object:
    gate.open.set()
    return await step


async def test_partial_run_stays_on_its_replica_and_jobs_are_refused() -> None:
    async with MemoryCluster("test", 3):
        async with aexec.Session(negation(), "memory://test", REPLICATED) as session:
            setup = await session.partial_run_setup(["free:0"], ["x:0"])
            assert await session.partial_run(setup, "free:0", {"x:0": 3.0}) == -3
            assert "3 tasks" in session._repr_html_()
        for config in ({"cluster": {"worker": 3}}, {"log_memory": True}):
            with pytest.raises(errors.OpError, match=next(iter(config))):
                await aexec.Session(negation(), "memory://test", aexec.SessionConfig(replicated=True, **config))
    async with MemoryCluster("test", 0):
        with pytest.raises(errors.UnavailableError, match="no workers"):
            await aexec.Session(negation(), "memory://test", REPLICATED)


async def test_graph_that_asks_for_a_task_is_refused() -> None:
    g = chain(2)
    async with MemoryCluster("test", 2):
        with pytest.raises(errors.InvalidArgumentError, match="explicitly assigned to /job:worker"):
            async with aexec.Session(g.graph(), "memory://test", REPLICATED):
                pass
