"""The simulated device: what goes wrong on it as planned, how long it takes, and what it says of its memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.devices.device_registry import make_devices
from aexec.devices.simulated_device import SimulatedDevice, make_simulated_devices, simulated_devices
from aexec.devices.simulated_faults import SimulatedTiming
from aexec.framework.device_contract.device import QueuedWork
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.dtypes import float32

TASK = "/job:localhost/replica:0/task:0"
Told = list[tuple[str, BaseException]]


class Node:
    """Queues calls of named nodes, and notes what it is told."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.told: Told = []
        self.work: QueuedWork = device.begin_work(lambda kernel, error: self.told.append((kernel.name, error)))

    def __call__(self, name: str, compute: Callable[..., Any], *inputs: Any) -> Any:
        (output,) = self.work.enqueue(QueuedKernel(name, "Test", compute, (float32,)), inputs)
        return output


@pytest.fixture
async def sim() -> AsyncIterator[SimulatedDevice]:
    (device,) = make_simulated_devices(TASK, 1)
    yield device
    await device.close()


def floats(count: int) -> Any:
    return np.ones(count, np.float32)


async def fetch(device: SimulatedDevice, value: Any) -> Any:
    return await asyncio.wrap_future(device.copy_out(value, node="fetch"))


class TestFaults:
    async def test_nth_call_fails(self, sim: SimulatedDevice) -> None:
        node = Node(sim)
        sim.faults.fail(2)
        kept = [node(f"n{i}", lambda: floats(1)) for i in range(3)]
        await sim.synchronise()
        assert [(name, str(error)) for name, error in node.told] == [("n1", "a fault that was planned")]
        assert await fetch(sim, kept[2]) == 1

    async def test_call_of_a_node_fails_as_it_is_told(self, sim: SimulatedDevice) -> None:
        node = Node(sim)
        sim.faults.fail(node="b", error=ValueError("no"))
        a = node("a", lambda: floats(1))
        b = node("b", lambda x: x, a)
        c = node("c", lambda x: x, b)
        with pytest.raises(ValueError, match="no"):
            await fetch(sim, c)
        assert [name for name, _ in node.told] == ["b"]

    async def test_copy_that_fails_is_told_to_who_uses_it(self, sim: SimulatedDevice) -> None:
        """Nobody has asked for its outcome, and the step must not succeed without it."""
        sim.faults.run_out_of_memory(node="x")
        x = sim.copy_in(floats(3), node="x")
        node = Node(sim)
        for name in ("y", "z"):
            node(name, lambda x: x, x)
        await sim.synchronise()
        ((name, error),) = node.told
        assert name == "y"
        assert isinstance(error, errors.ResourceExhaustedError)

    async def test_stalled_call_holds_what_comes_after(self, sim: SimulatedDevice) -> None:
        node, stall = Node(sim), sim.faults.stall(node="a")
        y = node("b", lambda x: x + 1, node("a", lambda: floats(1)))
        await asyncio.to_thread(stall.reached.wait)
        event = node.work.record_event()
        assert not event.done
        stall.release()
        await event.wait()
        assert await fetch(sim, y) == 2


class TestMemory:
    async def test_error_lists_the_largest_that_live(self) -> None:
        with simulated_devices(memory_limit=1000) as made:
            make_simulated_devices(TASK, 1)
        sim = made[0]
        node = Node(sim)
        kept = [node(f"n{size}", lambda size=size: floats(size)) for size in (10, 100, 20)]
        node("gone", lambda: floats(30))
        await sim.synchronise()
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            await fetch(sim, node("big", lambda: floats(200)))
        first, *listed = str(caught.value).splitlines()[:5]
        assert "OOM when allocating tensor with shape[200] and type float on /job:localhost" in first
        assert "800 bytes wanted, 520 of 1000 bytes in use" in first
        assert listed == [
            f"The largest of 3 live allocations on {TASK}/device:SIM:0:",
            "  400 bytes of {{node n100}}",
            "  80 bytes of {{node n20}}",
            "  40 bytes of {{node n10}}",
        ]
        assert await fetch(sim, node("small", lambda: floats(100))) is not None
        del kept
        await sim.close()

    async def test_inputs_cannot_be_written(self, sim: SimulatedDevice) -> None:
        node = Node(sim)

        def write(x: Any) -> Any:
            x[0] = 3
            return x

        with pytest.raises(ValueError, match="read-only"):
            await fetch(sim, node("w", write, sim.copy_in(floats(2), node="x")))

    async def test_type_that_was_not_declared(self, sim: SimulatedDevice) -> None:
        with pytest.raises(errors.InternalError, match="type float64 does not match declared output type float"):
            await fetch(sim, Node(sim)("n", lambda: np.ones(2)))


class TestStopping:
    async def test_later_work_does_not_wait_for_stopped_work(self, sim: SimulatedDevice) -> None:
        """What was begun goes on by itself; what was not begun never is; and another's work overtakes it."""
        stopped, other, ran = Node(sim), Node(sim), []
        stall = sim.faults.stall(node="a")
        y = stopped("b", lambda x: ran.append("b") or x, stopped("a", lambda: floats(1)))
        await asyncio.to_thread(stall.reached.wait)
        stopped.work.stop()
        assert await fetch(sim, other("c", lambda: floats(1))) == 1
        assert not stopped.work.record_event().done
        stall.release()
        with pytest.raises(errors.CancelledError, match="stopped before this call began"):
            await fetch(sim, y)
        assert (ran, stopped.told) == ([], [])

    async def test_closed_device_takes_nothing(self, sim: SimulatedDevice) -> None:
        node = Node(sim)
        node("a", lambda: floats(1))
        await sim.close()
        with pytest.raises(errors.FailedPreconditionError, match="SIM:0 compute stream is closed"):
            node("b", lambda: floats(1))


class TestTiming:
    async def test_calls_and_copies_take_as_long_as_they_are_told(self) -> None:
        slept: list[float] = []
        timing = SimulatedTiming(kernel_seconds=2.0, copy_seconds=1.0, bytes_per_second=8.0, sleep=slept.append)
        sim = SimulatedDevice(f"{TASK}/device:SIM:0", timing=timing)
        await fetch(sim, Node(sim)("n", lambda x: x, sim.copy_in(floats(4), node="x")))
        await sim.close()
        assert slept == [3.0, 2.0, 3.0]


class TestMaking:
    def test_sessions_get_as_many_as_they_ask_for(self) -> None:
        assert [d.type for d in make_devices({})] == ["CPU"]
        timing = SimulatedTiming()
        with simulated_devices(memory_limit=5, timing=timing) as made:
            devices = make_devices({"SIM": 2})
        assert [d.name for d in devices] == [f"{TASK}/device:{d}" for d in ("CPU:0", "SIM:0", "SIM:1")]
        assert made == list(devices[1:])
        assert all(d.memory_limit == 5 and d.timing is timing for d in made)
        assert len({d.incarnation for d in made}) == 2

    async def test_devices_of_two_sessions_know_nothing_of_each_other(self, sim: SimulatedDevice) -> None:
        (other,) = make_simulated_devices(TASK, 1)
        with pytest.raises(errors.InvalidArgumentError, match="expected a device made together with it"):
            sim.copy_across(sim.copy_in(floats(1), node="x"), other, node="y")

    async def test_session_closes_its_devices(self) -> None:
        with aexec.Graph() as graph:
            aexec.constant(1.0, name="c")
        async with aexec.Session(graph, config=aexec.SessionConfig(device_count={"SIM": 1})) as session:
            sim = session.devices()[1]
            sim.copy_in(floats(1), node="x")
            assert await session.run("c:0") == 1
        with pytest.raises(errors.FailedPreconditionError, match="is closed"):
            sim.copy_in(floats(1), node="x")


async def test_streams_that_stopped_steps_have_left_are_forgotten(sim: SimulatedDevice) -> None:
    """Else each operation would take longer, by every step that was ever stopped."""
    for _ in range(50):
        stopped = Node(sim)
        stall = sim.faults.stall(node="stalls")
        kept = [sim.copy_in(floats(1), node="copy")]
        kept.append(stopped("stalls", lambda x: x, kept[0]))
        await asyncio.to_thread(stall.reached.wait)
        streams = list(sim._streams)
        stopped.work.stop()
        stall.release()
        while any(stream.running for stream in streams):
            await asyncio.sleep(0)
        await fetch(sim, Node(sim)("next", lambda x: x, kept[1]))  # what was left can still be used
    assert len(sim.checker.host.seen) < 20
    assert len(sim.compute_stream.clock.seen) < 20
