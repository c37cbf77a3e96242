"""Mutexes in graphs: one holder at a time, in order of arrival, given back whatever happens."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.state.resource_manager import ResourceHandle, make_handle_tensor
from aexec.kernels.state.mutex_ops import Mutex
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def guarded() -> tuple[aexec.Graph, gates.Gate]:
    """`inside` waits in the gate while its step holds the mutex; `consume` lets go of it."""
    g, gate = GraphBuilder(), gates.Gate()
    g.placeholder("x")
    g("m", "MutexV2", shared_name=b"m")
    g("lock", "MutexLock", "m")
    g("start", "Identity", "x", "^lock", T=F)
    g("inside", "TestGate", "start", key=gate.key, T=F)
    g("consume", "ConsumeMutexLock", "lock", "^inside")
    return g.graph(), gate


async def test_mutex_admits_one_step_at_a_time() -> None:
    graph, gate = guarded()
    async with aexec.Session(graph) as session:
        steps = [session.start("inside:0", {"x:0": i}, ["consume"]) for i in range(5)]
        await gate.entered.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert gate.count == 1
        mutex = session.resources.lookup("localhost", "m", Mutex)
        assert repr(mutex) == "<Mutex held, 4 waiting>"
        steps[1].cancel()  # who waits
        gate.open.set()
        done = await asyncio.gather(*steps, return_exceptions=True)
        assert isinstance(done.pop(1), errors.CancelledError)
        assert done == [0, 2, 3, 4]
        assert repr(mutex) == "<Mutex free, 0 waiting>"


async def test_step_that_is_cancelled_gives_it_back() -> None:
    graph, gate = guarded()
    async with aexec.Session(graph) as session:
        holder = session.start("inside:0", {"x:0": 1}, ["consume"])
        await gate.entered.wait()
        waiter = session.start("inside:0", {"x:0": 2}, ["consume"])
        holder.cancel()
        with pytest.raises(errors.CancelledError):
            await holder
        gate.open.set()
        assert await waiter == 2


async def test_handed_over_and_cancelled_at_once() -> None:
    mutex = Mutex()
    first = await mutex.acquire()
    second, third = asyncio.create_task(mutex.acquire()), asyncio.create_task(mutex.acquire())
    await asyncio.sleep(0)
    del first  # the second has it now, and has not yet run
    second.cancel()
    await third
    assert second.cancelled()


async def test_released_by_another_thread() -> None:
    mutex = Mutex()
    held = [await mutex.acquire()]
    waiter = asyncio.create_task(mutex.acquire())
    await asyncio.sleep(0)
    thread = threading.Thread(target=held.clear)
    thread.start()
    assert repr(await waiter).startswith("<MutexLock of <Mutex held")
    thread.join()


async def test_refusals() -> None:
    g = GraphBuilder()
    g.placeholder("h", dtypes.resource)
    g("lock", "MutexLock", "h")
    g.placeholder("v", dtypes.variant)
    g("consume", "ConsumeMutexLock", "v")
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.NotFoundError, match="does not exist"):
            await session.run("lock:0", {"h:0": make_handle_tensor(ResourceHandle(container="c", name="m"))})
        other = np.empty((), object)
        other[()] = 5
        with pytest.raises(errors.InvalidArgumentError, match="Expected input to contain a SharedLockReleaser"):
            await session.run([], {"v:0": other}, targets=["consume"])
