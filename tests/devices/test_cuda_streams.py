"""Leaving the streams of a stopped step: what waits for what then, on a stand-in that checks it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.devices import device_registry
from aexec.devices.cuda_copies import SMALL
from aexec.devices.cuda_device import _MOST_STREAMS, CudaDevice
from aexec.devices.cuda_streams import CudaStreams
from aexec.framework import dtypes, errors
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.types import DEVICE_GPU
from tests.support.stand_ins.fake_cupy import fake_cupy
from tests.support.waiting import until

NAME = "/job:localhost/replica:0/task:0/device:GPU:0"
Make = Callable[..., CudaDevice]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[CudaDevice] = []

    def make_device(number: int = 0, *, cupy: Any = None) -> CudaDevice:
        made.append(CudaDevice(f"{NAME[:-1]}{number}", number, cupy=cupy or fake_cupy()))
        return made[-1]

    yield make_device
    for device in made:
        for stream in device.cupy.gpus.streams:
            stream.release()
        await device.close()
        device.cupy.gpus.checker.check()


def kernel(compute: Callable[..., Any], name: str = "n", **more: Any) -> QueuedKernel:
    return QueuedKernel(name, "N", compute, (dtypes.float32,), **more)


def not_told(kernel: QueuedKernel, error: BaseException) -> None:
    raise AssertionError(f"{kernel.name}: {error}")


async def host(device: CudaDevice, value: Any) -> Any:
    return await asyncio.wrap_future(device.copy_out(value, node="out"))


async def issued(streams: CudaStreams) -> None:
    reached: Future[None] = Future()
    streams.issue(lambda: reached.set_result(None))
    await asyncio.wrap_future(reached)


async def one(device: CudaDevice) -> Any:
    """A value of a step that has ended."""
    work = device.begin_work(not_told)
    (value,) = work.enqueue(kernel(lambda: device.xp.ones(3, "float32"), "one"), [])
    await work.record_event().wait()
    return value


async def stop_with_work(device: CudaDevice, *arguments: Any) -> Any:
    """Stop a step whose work takes until the compute stream is released; returns a value that it makes."""
    work = device.begin_work(not_told)
    streams = device.streams
    streams.issue(lambda: streams.compute.hold())
    (value,) = work.enqueue(kernel(lambda *arrays: sum(arrays, device.xp.ones(3, "float32")), "stopped"), arguments)
    await issued(streams)
    work.stop()
    return value


async def test_next_step_does_not_wait_for_what_was_launched(make: Make) -> None:
    device = make()
    variable, constant = await one(device), device.copy_in(np.full(3, 2, np.float32), node="constant")
    np.testing.assert_array_equal(await host(device, constant), [2, 2, 2])
    before = device.streams
    await stop_with_work(device, variable, constant)
    assert device.streams is not before
    work = device.begin_work(not_told)
    fed = device.copy_in(np.full(3, 3, np.float32), node="fed")
    (sum_,) = work.enqueue(kernel(lambda a, b, c: a + b + c), [variable, constant, fed])
    np.testing.assert_array_equal(await host(device, sum_), [6, 6, 6])
    np.testing.assert_array_equal(await host(device, variable), [1, 1, 1])
    await work.record_event().wait()
    assert not before.record_event().done
    assert not device.streams.compute.waited_for[2:], "the copies of the constant and of what was fed, and no more"


async def test_values_of_a_stopped_step_are_waited_for(make: Make) -> None:
    device = make()
    before = device.streams
    made = await stop_with_work(device)
    work = device.begin_work(not_told)
    (twice,) = work.enqueue(kernel(lambda a: a + a), [made])
    (again,) = work.enqueue(kernel(lambda a, b: a + b), [made, twice])
    ended = work.record_event()
    await issued(device.streams)
    assert not ended.done
    assert len(device.streams.compute.waited_for) == 1
    before.compute.release()
    await ended.wait()
    np.testing.assert_array_equal(await host(device, again), [3, 3, 3])


async def test_stream_checker_finds_a_missing_wait_for_a_stopped_step(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = make()
    monkeypatch.setattr(CudaStreams, "_come_after", lambda *_: None)
    made = await stop_with_work(device)
    told: list[BaseException] = []
    work = device.begin_work(lambda _, error: told.append(error))
    work.enqueue(kernel(lambda a: a + a), [made])
    await work.record_event().wait()
    assert "expected an event between them" in str(told[0])


@pytest.mark.parametrize("keep", [True, False])
async def test_memory_of_the_left_streams_is_kept_for_those_who_use_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    device = make()
    variable = await one(device)
    before = device.streams
    await stop_with_work(device)
    now = device.streams
    if not keep:
        monkeypatch.setattr(now, "let_go", now._kept.clear)
    now.issue(lambda: now.compute.hold())
    work = device.begin_work(not_told)
    work.enqueue(kernel(lambda a: a + a), [variable])
    del variable
    ended = work.record_event()
    await issued(now)
    gc.collect()
    if keep:
        device.cupy.gpus.checker.check()
    else:
        with pytest.raises(errors.InternalError, match="freed before that stream got there"):
            device.cupy.gpus.checker.check()
    now.compute.release()
    await ended.wait()
    before.compute.release()


async def test_views_of_what_was_copied_in_are_kept_as_that_is(make: Make) -> None:
    device = make()
    work, streams = device.begin_work(not_told), device.streams
    (view,) = work.enqueue(kernel(lambda a: a.reshape(3, 1)), [device.copy_in(np.ones(3, np.float32), node="fed")])
    await work.record_event().wait()
    streams.issue(lambda: streams.compute.hold())
    work.enqueue(kernel(lambda a: a + a), [view])
    del view
    await issued(streams)
    gc.collect()
    device.cupy.gpus.checker.check()


async def test_streams_that_are_through_are_used_again(make: Make) -> None:
    device = make()
    first = device.streams
    await stop_with_work(device)
    second = device.streams
    first.compute.release()
    await first.record_event().wait()
    await stop_with_work(device)
    assert device.streams is first
    second.compute.release()


async def test_step_that_was_stopped_and_is_done_leaves_nothing(make: Make) -> None:
    device = make()
    streams, work = device.streams, device.begin_work(not_told)
    work.enqueue(kernel(lambda: device.xp.ones(3, "float32")), [])
    work.stop()
    await device.synchronise()
    assert device.streams is streams


async def test_number_of_streams_is_bounded(make: Make) -> None:
    device = make()
    seen = [device.streams]
    for _ in range(_MOST_STREAMS - 1):
        await stop_with_work(device)
        seen.append(device.streams)
    assert len(set(seen)) == _MOST_STREAMS
    await stop_with_work(device)
    assert device.streams is seen[0]
    value = device.begin_work(not_told).enqueue(kernel(lambda: device.xp.ones(3, "float32")), [])[0]
    for streams in seen:
        await issued(streams)
        streams.compute.release()
    np.testing.assert_array_equal(await host(device, value), [1, 1, 1])


async def test_step_goes_on_where_it_began(make: Make) -> None:
    device = make()
    other = device.begin_work(not_told)
    (mine,) = other.enqueue(kernel(lambda: device.xp.ones(3, "float32")), [])
    before = device.streams
    await stop_with_work(device)
    fed = device.copy_in(np.full(3, 2, np.float32), node="fed")
    (sum_,) = other.enqueue(kernel(lambda a, b: a + b), [mine, fed])
    fetched = device.copy_out(sum_, node="out")
    assert device.streams is not before
    assert sum_.streams is before
    before.compute.release()
    np.testing.assert_array_equal(await asyncio.wrap_future(fetched), [3, 3, 3])


async def test_streams_wait_for_values_that_others_have_not_issued(make: Make) -> None:
    device = make()
    other, gate = device.begin_work(not_told), threading.Event()
    (late,) = other.enqueue(kernel(lambda: gate.wait() and device.xp.ones(3, "float32")), [])
    stopped = device.begin_work(not_told)
    stopped.enqueue(kernel(lambda: device.xp.ones(3, "float32")), [])
    stopped.stop()
    work = device.begin_work(not_told)
    assert device.streams is not late.streams
    (twice,) = work.enqueue(kernel(lambda a: a + a), [late])
    gate.set()
    np.testing.assert_array_equal(await host(device, twice), [2, 2, 2])


async def test_issuer_that_looks_at_values_is_left_as_well(make: Make) -> None:
    device = make()
    before = device.streams
    before.issue(lambda: before.compute.hold())
    work = device.begin_work(not_told)
    work.enqueue(kernel(lambda: device.xp.ones(3, "float32")[device.xp.ones(3, "float32") > 0]), [])
    work.stop()
    (value,) = device.begin_work(not_told).enqueue(kernel(lambda: device.xp.ones(3, "float32")), [])
    np.testing.assert_array_equal(await host(device, value), [1, 1, 1])
    large = np.ones(SMALL, np.float32)
    np.testing.assert_array_equal(await host(device, device.copy_in(large, node="large")), large)
    before.compute.release()


async def test_limit_is_of_the_device_and_free_memory_of_other_streams_goes_back_first() -> None:
    cupy = fake_cupy(2)
    device = CudaDevice(f"{NAME[:-1]}1", 1, memory_limit=10_000, cupy=cupy)
    array = np.ones(1500, np.float32)
    np.testing.assert_array_equal(await host(device, device.copy_in(array, node="x")), array)
    await device.synchronise()
    work = device.begin_work(not_told)
    (value,) = work.enqueue(kernel(lambda: device.xp.ones(1500, "float32")), [])  # of another stream's arena
    np.testing.assert_array_equal(await host(device, value), array)
    with pytest.raises(errors.ResourceExhaustedError, match="OOM"):
        await host(device, device.copy_in(array, node="more"))
    assert device.stats().bytes_in_use == 6144
    await device.close()
    cupy.gpus.checker.check()


class TestSessions:
    @pytest.fixture
    def cupy(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        cupy, registered = fake_cupy(), dict(device_registry._factories)
        device_registry.unregister_device_factory("GPU")
        device_registry.register_device_factory(
            "GPU",
            lambda task, count: [] if count == 0 else [CudaDevice(f"{task}/device:GPU:0", cupy=cupy)],
            priority=DEVICE_GPU.priority,
        )
        yield cupy
        device_registry._factories.clear()
        device_registry._factories.update(registered)

    async def test_cancelling_ends_at_once_and_so_does_the_next_step(self, cupy: Any) -> None:
        with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
            x = aexec.placeholder("float32", [None], name="x")
            variable = aexec.ops.var_handle_op(dtype=aexec.float32, shape=[3], name="variable")
            aexec.ops.assign_variable_op(variable, x, name="assign")
            value = aexec.ops.read_variable_op(variable, dtype=aexec.float32)
            aexec.ops.add(value, x, name="y")
        feed = {"x:0": np.ones(3, np.float32)}
        async with aexec.Session(graph) as session:
            await session.run([], feed, targets=["assign"])
            await session.run("y:0", feed)
            (device,) = [each for each in session.devices() if isinstance(each, CudaDevice)]
            times = []
            try:
                for _ in range(_MOST_STREAMS - 2):
                    held = device.streams
                    held.compute.hold()
                    step = session.start("y:0", feed)
                    await until(lambda compute=held.compute: not compute.done)
                    began = time.perf_counter()
                    step.cancel()
                    with suppress(errors.CancelledError):
                        await step
                    times.append(time.perf_counter() - began)
                    np.testing.assert_array_equal(await session.run("y:0", feed), [2, 2, 2])
                    assert device.streams is not held
            finally:  # else the session's end would wait for them
                for stream in cupy.gpus.streams:
                    stream.release()
            assert min(times) <= 0.5
        cupy.gpus.checker.check()
