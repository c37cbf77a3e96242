"""`CudaDevice` on a stand-in for CuPy: order, copies, what is kept until when, errors, memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from itertools import count
from time import perf_counter_ns
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aexec
from aexec.devices import cuda_device, device_registry
from aexec.devices.check_device import CHECKS
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.cuda_signals import SIGNALS
from aexec.devices.cuda_value import CudaValue
from aexec.framework import dtypes, errors
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from tests.support.stand_ins.fake_cupy import fake_cupy

NAME = "/job:localhost/replica:0/task:0/device:GPU:0"
# More than goes through one block of pinned memory, and not a multiple of it.
LARGE = 3 * (4 << 20) // 8 + 1001

Make = Callable[..., CudaDevice]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[CudaDevice] = []

    def make_device(number: int = 0, *, cupy: Any = None, **options: Any) -> CudaDevice:
        name = f"{NAME[:-1]}{number}"
        device = CudaDevice(name, number, cupy=fake_cupy() if cupy is None else cupy, **options)
        made.append(device)
        return device

    yield make_device
    for device in made:
        for stream in device.cupy.gpus.streams:
            stream.release()
        await device.close()
        device.cupy.gpus.checker.check()


def kernel(compute: Callable[..., Any], name: str = "n", types: Any = (dtypes.float32,), **more: Any) -> QueuedKernel:
    return QueuedKernel(name, "N", compute, types, **more)


def not_told(kernel: QueuedKernel, error: BaseException) -> None:
    raise AssertionError(f"{kernel.name}: {error}")


async def host(device: CudaDevice, value: Any) -> Any:
    return await asyncio.wrap_future(device.copy_out(value, node="out"))


@pytest.mark.parametrize("signals", SIGNALS)
async def test_kernels_run_in_order_on_what_was_copied_in(make: Make, signals: str) -> None:
    device = make(signals=signals)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    work = device.begin_work(not_told)
    a = device.copy_in(x, node="x")
    (b,) = work.enqueue(kernel(lambda v: device.xp.multiply(v, 2.0)), [a])
    (c,) = work.enqueue(kernel(lambda v, w: v + w), [a, b])
    np.testing.assert_array_equal(await host(device, c), 3 * x)
    await work.record_event().wait()
    assert isinstance(c, CudaValue)
    assert repr(c) == f"<CudaValue of 'n' float32 [2, 3] on {NAME}>"


@pytest.mark.parametrize("size", [0, 1, LARGE])
@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, bool])
async def test_copies_there_and_back_bring_the_same_bytes(make: Make, size: int, dtype: Any) -> None:
    device = make()
    x = np.random.default_rng(0).integers(0, 2, size).astype(dtype)
    y = await host(device, device.copy_in(x, node="x"))
    assert y.dtype == x.dtype
    assert y.tobytes() == x.tobytes()


async def test_view_is_copied_as_it_looks(make: Make) -> None:
    device = make()
    x = np.arange(12, dtype=np.int32).reshape(3, 4).T
    np.testing.assert_array_equal(await host(device, device.copy_in(x, node="x")), x)
    (y,) = device.begin_work(not_told).enqueue(kernel(lambda v: v.T), [device.copy_in(x, node="x")])
    np.testing.assert_array_equal(await host(device, y), x.T)
    scalar = await host(device, device.copy_in(np.array(3.0), node="x"))
    assert scalar.shape == ()
    large = np.arange(2 * LARGE, dtype=np.float64)[::2]
    np.testing.assert_array_equal(await host(device, device.copy_in(large, node="x")), large)


@pytest.mark.parametrize("dtype", [object, ml_dtypes.float8_e4m3fn])
async def test_values_of_host_types_are_refused(make: Make, dtype: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"node s.*lives in host memory"):
        make().copy_in(np.zeros(1, dtype), node="s")


async def test_compute_stream_waits_for_a_copy_once_and_only_where_it_is_used(make: Make) -> None:
    device = make()
    work = device.begin_work(not_told)
    a = device.copy_in(np.ones(3, np.float32), node="a")
    (b,) = work.enqueue(kernel(lambda: device.xp.zeros(3, "float32")), [])
    await work.record_event().wait()
    compute = device.streams.compute
    assert compute.waited_for == []
    (c,) = work.enqueue(kernel(lambda v, w: v + w), [a, b])
    (d,) = work.enqueue(kernel(lambda v, w: v + w), [a, c])
    np.testing.assert_array_equal(await host(device, d), np.full(3, 2, np.float32))
    assert len(compute.waited_for) == 1


async def test_copied_value_is_kept_until_the_compute_stream_has_used_it(make: Make) -> None:
    device = make()
    work = device.begin_work(not_told)
    a = device.copy_in(np.ones(3, np.float32), node="a")
    await device.synchronise()
    array = weakref.ref(a.array._host)
    device.streams.compute.hold()
    work.enqueue(kernel(lambda v: v + 1), [a])
    del a
    event = work.record_event()
    await asyncio.wrap_future(issued(device))
    assert array() is not None
    assert not event.done
    device.streams.compute.release()
    await event.wait()
    await asyncio.wrap_future(issued(device))
    gc.collect()
    assert array() is None


def issued(device: CudaDevice) -> Future[None]:
    """Completed when the issuer has got here."""
    reached: Future[None] = Future()
    device.issue(lambda: reached.set_result(None))
    return reached


async def test_loop_goes_on_while_a_kernel_is_being_issued(make: Make) -> None:
    device = make()
    work = device.begin_work(not_told)
    gate = threading.Event()
    (a,) = work.enqueue(kernel(lambda: gate.wait() and device.xp.ones(2, "float32")), [])
    (b,) = work.enqueue(kernel(lambda v: v + 1), [a])
    assert (a.array, a.size, repr(b)) == (None, 1, f"<CudaValue of 'n' float32 to come on {NAME}>")
    gate.set()
    np.testing.assert_array_equal(await host(device, b), [2, 2])


async def test_host_outputs_are_futures_of_arrays(make: Make) -> None:
    device = make()
    work = device.begin_work(not_told)
    a = device.copy_in(np.ones((2, 5), np.float32), node="a")
    shape, total = work.enqueue(
        kernel(
            lambda v: (np.array(v.shape, np.int32), v.sum()),
            types=(dtypes.int32, dtypes.float32),
            host_outputs=frozenset({0, 1}),
        ),
        [a],
    )
    np.testing.assert_array_equal(await asyncio.wrap_future(shape), [2, 5])
    assert await asyncio.wrap_future(total) == 10


async def test_lists_of_inputs_and_no_outputs(make: Make) -> None:
    device = make()
    work = device.begin_work(not_told)
    values = [device.copy_in(np.full(2, i, np.float32), node="a") for i in range(3)]
    seen: list[Any] = []
    assert work.enqueue(kernel(lambda _, vs: seen.extend(vs), types=(), takes_list=True), ["context", values]) == ()
    await work.record_event().wait()
    assert [float(v[0]) for v in seen] == [0, 1, 2]


async def test_failure_is_told_once_and_travels_on(make: Make) -> None:
    device = make()
    told: list[tuple[str, str]] = []
    work = device.begin_work(lambda kernel, error: told.append((kernel.name, str(error))))

    def fail(_: Any) -> None:
        raise ValueError("no")

    a = device.copy_in(np.ones(2, np.float32), node="a")
    (b,) = work.enqueue(kernel(fail, "bad"), [a])
    (c,) = work.enqueue(kernel(lambda v: v, "next"), [b])
    with pytest.raises(ValueError, match="no"):
        await host(device, c)
    await work.record_event().wait()
    assert told == [("bad", "no")]
    assert "failed: no" in repr(c)


async def test_copy_that_fails_is_told_by_the_first_who_uses_it(make: Make) -> None:
    device = make(memory_limit=100)
    told: list[tuple[str, type[BaseException]]] = []
    work = device.begin_work(lambda kernel, error: told.append((kernel.name, type(error))))
    a = device.copy_in(np.ones(1000, np.float32), node="a")
    (b,) = work.enqueue(kernel(lambda v: v, "first"), [a])
    work.enqueue(kernel(lambda v: v, "second"), [b])
    await work.record_event().wait()
    assert told == [("first", errors.ResourceExhaustedError)]


@pytest.mark.parametrize("check", CHECKS)
async def test_cuda_device_passes_check_device(check: Callable[[Callable[[], Any]], Awaitable[None]]) -> None:
    cupy, numbers = fake_cupy(4), count()
    await check(lambda: CudaDevice(f"{NAME[:-1]}{(number := next(numbers))}", number, cupy=cupy))


async def test_error_of_the_device_names_the_last_node(make: Make) -> None:
    device = make()
    told: list[tuple[str, BaseException]] = []
    work = device.begin_work(lambda kernel, error: told.append((kernel.name, error)))
    work.enqueue(kernel(lambda: device.xp.ones(2, "float32"), "faulty"), [])
    await asyncio.wrap_future(issued(device))
    device.streams.compute.fail(700)
    await work.record_event().wait()
    (name, error) = told[0]
    assert name == "faulty"
    assert isinstance(error, errors.InternalError)
    assert "GPU:0 failed at {{node faulty}} or before it: cudaError700" in str(error)


async def test_stopping_withdraws_what_was_not_issued(make: Make) -> None:
    device = make()
    work, other = device.begin_work(not_told), device.begin_work(not_told)
    gate, calls = threading.Event(), list[str]()
    other.enqueue(kernel(lambda: gate.wait() and None, types=()), [])
    work.enqueue(kernel(lambda: calls.append("withdrawn"), types=()), [])
    work.stop()
    other.enqueue(kernel(lambda: calls.append("other"), types=()), [])
    gate.set()
    await device.synchronise()
    assert calls == ["other"]


async def test_out_of_memory_names_the_largest_values_and_the_device_goes_on(make: Make) -> None:
    device = make(memory_limit=5000)
    told: list[BaseException] = []
    work = device.begin_work(lambda _, error: told.append(error))
    large = device.copy_in(np.ones(1000, np.float32), node="large")
    small = device.copy_in(np.ones(10, np.float32), node="small")
    (failed,) = work.enqueue(kernel(lambda v: device.xp.empty((1000,), "float32"), "more"), [small])
    with pytest.raises(errors.ResourceExhaustedError) as raised:
        await host(device, failed)
    lines = str(raised.value).splitlines()
    assert "OOM on" in lines[0]
    assert "{{node more}}" in lines[0]
    assert lines[2].startswith("Largest live values")
    assert "float32[1000] of {{node large}}" in lines[3]
    assert "float32[10] of {{node small}}" in lines[4]
    assert [type(error) for error in told] == [errors.ResourceExhaustedError]
    with pytest.raises(errors.ResourceExhaustedError, match="node third"):
        await host(device, device.copy_in(np.ones(1000, np.float32), node="third"))
    told.clear()
    del large, raised
    (b,) = work.enqueue(kernel(lambda v: v + 1), [small])
    np.testing.assert_array_equal(await host(device, b), np.full(10, 2, np.float32))
    await device.synchronise()
    assert device.stats().bytes_limit == 5000
    assert device.stats().peak_bytes_in_use == 4096 + 512


async def test_values_of_one_gpu_are_copied_to_another(make: Make) -> None:
    cupy = fake_cupy(2)
    first, second = make(0, cupy=cupy), make(1, cupy=cupy)
    a = first.copy_in(np.arange(5, dtype=np.int64), node="a")
    moved = first.copy_across(a, second, node="b")
    assert moved.device is second
    np.testing.assert_array_equal(await host(second, moved), np.arange(5))


async def test_arrays_that_are_on_the_gpu_are_taken_as_they_are(make: Make) -> None:
    device = make()
    array = device.xp.ones(3, "float32")
    value = device.copy_in(array, node="x")
    assert value.array is array
    np.testing.assert_array_equal(await host(device, value), np.ones(3))
    (waited,) = device.streams.compute.waited_for
    assert waited.done


async def test_gpu_that_there_is_not_is_refused() -> None:
    with pytest.raises(errors.NotFoundError, match="no CUDA device 1 of 1"):
        CudaDevice(NAME, 1, cupy=fake_cupy())
    with pytest.raises(errors.NotFoundError, match="no CUDA device 0 of 0"):
        CudaDevice(NAME, 0, cupy=fake_cupy(0))


async def test_closed_device_takes_nothing(make: Make) -> None:
    device = make()
    await device.synchronise()
    await device.close()
    await device.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        device.copy_in(np.ones(1), node="x")


async def test_allocator_makes_tensors_on_the_gpu(make: Make) -> None:
    device = make(memory_limit=1000)
    made = device.allocator.allocate_tensor([2, 3], dtypes.float32, device.name, zeros=True)
    assert isinstance(made, device.xp.ndarray)
    np.testing.assert_array_equal(made.get(), np.zeros((2, 3), np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="tensors of string live in host memory"):
        device.allocator.allocate_tensor([2], dtypes.string)
    with pytest.raises(errors.ResourceExhaustedError, match=r"shape\[300\] and type float .*GPU:0"):
        device.allocator.allocate_tensor([300], dtypes.float32, device.name)
    device.allocator.clear_stats()
    assert device.stats().num_allocs == 0


class TestTimes:
    async def test_times_are_reported_when_the_stream_has_ended_the_call(self, make: Make) -> None:
        device = make()
        told: list[tuple[int, int]] = []
        measured = threading.Event()
        begun = threading.Event()

        def compute(x: Any) -> Any:
            timer = device.stream_timer()
            out = x + x
            timer.stop(lambda begin, end: (told.append((begin, end)), measured.set()))
            begun.set()
            return out

        before = perf_counter_ns()
        work = device.begin_work(not_told)
        value = device.copy_in(np.ones(3, np.float32), node="in")
        work.enqueue(kernel(compute), [value])
        await asyncio.to_thread(begun.wait)
        await asyncio.to_thread(measured.wait)
        ((begin, end),) = told
        assert before <= begin <= end <= perf_counter_ns()

    async def test_times_of_a_failed_stream_are_not_reported(self, make: Make) -> None:
        device = make()
        told: list[Any] = []

        def compute(x: Any) -> Any:
            timer = device.stream_timer()
            device.streams.compute.fail(700)
            timer.stop(lambda begin, end: told.append((begin, end)))
            return x

        errors_told: list[BaseException] = []
        work = device.begin_work(lambda kernel, error: errors_told.append(error))
        work.enqueue(kernel(compute), [device.copy_in(np.ones(3, np.float32), node="in")])
        await work.record_event().wait()
        assert errors_told
        assert told == []

    async def test_traced_step_has_the_streams_times(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cupy = fake_cupy()
        monkeypatch.setattr(cuda_device, "_cupy", lambda: cupy)
        monkeypatch.setattr(device_registry, "_has_cupy", lambda: True)
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [None], name="x")
            with aexec.device("/device:GPU:0"):
                y = aexec.ops.square(x, name="y")
            aexec.ops.neg(y, name="z")
        metadata = aexec.RunMetadata()
        async with aexec.Session(graph, config=aexec.SessionConfig(device_count={"GPU": 1})) as session:
            options = aexec.RunOptions(trace=True)
            out = await session.run("z:0", {"x:0": np.full(3, 2, np.float32)}, options=options, metadata=metadata)
        assert out.tolist() == [-4, -4, -4]
        assert metadata.step_stats is not None
        gpu = next(device for device in metadata.step_stats.dev_stats if device.device.endswith("GPU:0"))
        (stats,) = [stats for stats in gpu.node_stats if stats.node_name == "y"]
        assert gpu.thread_names[stats.thread_id] == "aexec-GPU:0 compute stream"
        assert next(entry.where for entry in metadata.profile().entries if entry.name == "Square") == {"stream": 1}
        assert stats.scheduled_nanos <= stats.all_start_nanos
        assert stats.op_end_rel_nanos == stats.all_end_rel_nanos >= stats.op_start_rel_nanos > 0
