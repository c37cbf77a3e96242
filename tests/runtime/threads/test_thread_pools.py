"""Several pools of threads in a session: which runs use which, and pools that sessions share by name."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.runtime.config import ThreadPool
from aexec.runtime.threads.thread_pools import ThreadPools
from tests.support.gates import ThreadGate
from tests.support.programs.graphs import GraphBuilder

F = aexec.framework.dtypes.float32


def held() -> tuple[aexec.Graph, ThreadGate]:
    """y waits in a thread."""
    gate = ThreadGate()
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g("y", "TestThreadGate", "x", key=gate.key, T=F)
    return g.graph(), gate


def config(*pools: tuple[int, str]) -> aexec.SessionConfig:
    message = proto.ConfigProto()
    for threads, name in pools:
        message.session_inter_op_thread_pool.add(num_threads=threads, global_name=name)
    return aexec.SessionConfig.from_proto(message)


def in_pool(index: int) -> aexec.RunOptions:
    return aexec.RunOptions.from_proto(proto.RunOptions(inter_op_thread_pool=index))


async def test_runs_in_one_pool_leave_the_threads_of_another() -> None:
    gates = [ThreadGate() for _ in range(3)]
    g = GraphBuilder()
    g.placeholder("x", F, [])
    for number, gate in enumerate(gates):
        g(f"y{number}", "TestThreadGate", "x", key=gate.key, T=F)
    async with aexec.Session(g.graph(), config=config((1, ""), (1, ""))) as session:
        assert session.statistics().pool.workers == 2
        runs = []
        for number, pool in enumerate((0, 0, 1)):
            runs.append(session.start(f"y{number}:0", {"x": np.float32(number)}, options=in_pool(pool)))
        await asyncio.to_thread(gates[2].entered.wait)
        await asyncio.to_thread(gates[0].entered.wait)
        assert session.statistics().pool.outstanding == 3
        assert not gates[1].entered.is_set()
        for gate in gates:
            gate.open.set()
        assert await asyncio.gather(*runs) == [0, 1, 2]


@pytest.mark.parametrize("index", [-2, 1, 2, 2**31 - 1])
async def test_missing_pool_is_refused(index: int) -> None:
    g = GraphBuilder()
    g.const("c", 1.0, F)
    async with aexec.Session(g.graph()) as session:
        assert await session.run("c:0", options=in_pool(0)) == await session.run("c:0", options=in_pool(-1)) == 1
        with pytest.raises(errors.InvalidArgumentError, match=f"Invalid inter_op_thread_pool: {index}"):
            await session.run("c:0", options=in_pool(index))
        with pytest.raises(errors.InvalidArgumentError, match=f"Invalid inter_op_thread_pool: {index}"):
            await session.make_callable("c:0", options=in_pool(index))()


async def test_sessions_share_a_pool_by_its_name() -> None:
    """Both sessions share one thread: the second kernel begins when the first has ended."""
    graph, gate = held()
    other_graph, other_gate = held()
    async with aexec.Session(graph, config=config((1, "p"))) as one:
        async with aexec.Session(other_graph, config=config((1, "p"))) as two:
            first = one.start("y:0", {"x": np.float32(1)})
            await asyncio.to_thread(gate.entered.wait)
            second = two.start("y:0", {"x": np.float32(2)})
            while not two.statistics().pool.outstanding:
                await asyncio.sleep(0)
            assert not other_gate.entered.is_set()
            other_gate.open.set()
            gate.open.set()
            assert await first == 1 and await second == 2
        # The pool goes on for the one that is left.
        assert await one.run("y:0", {"x": np.float32(3)}) == 3


async def test_sessions_that_share_a_pool_agree_on_its_threads() -> None:
    g = GraphBuilder()
    g.const("c", 1.0, F)
    async with aexec.Session(g.graph(), config=config((2, "q"))):
        words = "Pool q configured previously with num_threads=2; cannot re-configure with num_threads=3"
        with pytest.raises(errors.InvalidArgumentError, match=words):
            aexec.Session(g.graph(), config=config((3, "q")))


def test_pools_are_few_and_not_negative() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="cannot have -1 threads"):
        ThreadPools([ThreadPool(-1)], 0, 0)
    with pytest.raises(errors.InvalidArgumentError, match="may have 64 thread pools, got 65"):
        ThreadPools([ThreadPool()] * 65, 0, 0)


def test_name_of_a_pool_is_free_when_no_session_has_it() -> None:
    ThreadPools([ThreadPool(2, "r")], 0, 0)
    assert ThreadPools([ThreadPool(3, "r")], 0, 0).first.statistics().workers == 3
