"""`Session.reset` ends steps and clears containers; the session stays usable."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


def counter(container: str) -> GraphBuilder:
    """`add` counts from where `init` has begun."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=dtypes.float32, shape=[], container=container, shared_name="v")
    g.const("one", 1, dtypes.float32)
    g("init", "AssignVariableOp", "v", "one", dtype=dtypes.float32)
    g("add", "AssignAddVariableOp", "v", "one", dtype=dtypes.float32)
    g("read", "ReadVariableOp", "v", dtype=dtypes.float32)
    return g


@pytest.mark.parametrize(("container", "dropped"), [("", []), ("", ["localhost"]), ("mine", ["mine", "none"])])
async def test_reset_clears_the_named_containers(container: str, dropped: list[str]) -> None:
    async with aexec.Session(counter(container).graph()) as session:
        for _ in range(2):
            await session.run([], targets=["init"])
            for _ in range(4):
                await session.run([], targets=["add"])
            assert await session.run("read:0") == 5
            await session.reset(dropped)
            with pytest.raises(errors.FailedPreconditionError, match="Could not find variable"):
                await session.run("read:0")


async def test_reset_keeps_other_containers() -> None:
    async with aexec.Session(counter("mine").graph()) as session:
        await session.run([], targets=["init"])
        await session.reset()
        assert await session.run("read:0") == 1
        with pytest.raises(errors.InvalidArgumentError, match="invalid characters"):
            await session.reset(["a b"])


async def test_steps_are_cancelled_first() -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.const("c", 1.5, dtypes.float32)
    g("y", "TestGate", "c", key=gate.key, T=dtypes.float32)
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]])
    g("taken", "QueueDequeueV2", "q", component_types=[dtypes.float32])
    async with aexec.Session(g.graph()) as session:
        awaited = asyncio.create_task(session.run("y:0"))
        started = session.start("taken:0")
        await gate.entered.wait()
        await session.reset()
        assert (gate.cancelled, session.steps) == (1, ())
        for ended in (awaited, started):
            with pytest.raises(errors.CancelledError, match="reset"):
                await ended
        assert session.queues() == {}
        await session.queue("q").put(np.float32(2))
        assert await session.run("taken:0") == 2


async def test_queues_by_the_names_that_find_them() -> None:
    g = GraphBuilder()
    for name, attrs in {
        "own": {},
        "node": {"shared_name": "shared"},
        "a": {"shared_name": "twice", "container": "a"},
        "b": {"shared_name": "twice", "container": "b"},
    }.items():
        g(name, "FIFOQueueV2", component_types=[dtypes.int32], shapes=[[]], **attrs)
    async with aexec.Session(g.graph()) as session:
        assert session.queues() == {}
        queues = {name: session.queue(name) for name in ("own", "node", "a", "b")}
        found = session.queues()
        assert sorted(found) == ["b/twice", "own", "shared", "twice"]
        for name, queue in found.items():
            assert session.queue(name).resource is queue.resource
        assert {id(q.resource) for q in found.values()} == {id(q.resource) for q in queues.values()}
        await found["own"].put(3)
        async with found["own"].taking() as taken:
            assert taken == (3,)
        assert len(found["own"]) == 0
        await found["own"].put_many([1, 2, 3])
        with contextlib.suppress(ZeroDivisionError):
            async with found["own"].taking(2) as taken:
                assert taken[0].tolist() == [1, 2]
                raise ZeroDivisionError
        assert (await found["own"].get_many(3)).tolist() == [1, 2, 3]
