"""The strict checker finds planted bugs of devices and of those who use them, each time and with both nodes' names.

None of them depends on how the threads happen to run: a device with the bug gives right results mostly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.devices.simulated_device import SimulatedArray, SimulatedDevice
from aexec.devices.simulated_stream import SimulatedEvent, SimulatedStream
from aexec.devices.stream_checker import StreamChecker
from aexec.framework.device_contract.device import QueuedWork
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.dtypes import float32

NAME = "/job:localhost/replica:0/task:0/device:SIM:{}"


def device(kind: type[SimulatedDevice] = SimulatedDevice, number: int = 0, beside: Any = None) -> SimulatedDevice:
    made.append(kind(NAME.format(number), beside.checker if beside else StreamChecker()))
    return made[-1]


made: list[SimulatedDevice] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Devices are closed, whatever else is found."""
    yield
    for each in made:
        with contextlib.suppress(errors.InternalError):
            asyncio.run(each.close())
    made.clear()


def work_of(of: SimulatedDevice) -> QueuedWork:
    return of.begin_work(lambda kernel, error: None)


def call(work: QueuedWork, name: str, *inputs: Any) -> Any:
    """Queue a node that adds its inputs up."""
    (output,) = work.enqueue(QueuedKernel(name, "AddN", lambda *xs: sum(xs) + np.float32(1), (float32,)), inputs)
    return output


def ones() -> Any:
    return np.ones(3, np.float32)


# Each planted bug: a device that does one thing wrong, or a wrong use of a right one.  `scenario` gives what the same
# calls are on a device; it may be run on the right one too, which has nothing to say.


class NothingWaits(SimulatedDevice):
    """No stream waits for another."""

    def _issue(self, stream: SimulatedStream, node: str, values: Sequence[SimulatedArray]) -> None:
        super()._issue(stream, node, [])


class ComputeDoesNotWait(SimulatedDevice):
    """The compute stream does not wait for copies."""

    def _issue(self, stream: SimulatedStream, node: str, values: Sequence[SimulatedArray]) -> None:
        super()._issue(stream, node, [] if stream is self.compute_stream else values)


class EventTooEarly(SimulatedDevice):
    """The event behind a call was recorded before it."""

    def _issue(self, stream: SimulatedStream, node: str, values: Sequence[SimulatedArray]) -> None:
        self.early = stream.record()
        super()._issue(stream, node, values)

    def _finish(
        self, stream: SimulatedStream, read: Sequence[SimulatedArray], written: Sequence[SimulatedArray]
    ) -> SimulatedEvent:
        event = super()._finish(stream, read, written)
        for value in written:
            value._buffer.ready = self.early
        return event


class NeverRecorded(SimulatedDevice):
    """The event that says when a value is there was made and not recorded."""

    def _finish(
        self, stream: SimulatedStream, read: Sequence[SimulatedArray], written: Sequence[SimulatedArray]
    ) -> SimulatedEvent:
        event = super()._finish(stream, read, written)
        for value in written:
            value._buffer.ready = SimulatedEvent(self.checker)
        return event


class KeepsNothing(SimulatedDevice):
    """Nothing keeps what is queued."""

    def _keep(self, event: SimulatedEvent, values: Sequence[SimulatedArray]) -> None:
        pass


class KeepsInputsOnly(SimulatedDevice):
    """Outputs that nobody wants are not kept until they are written."""

    def _finish(
        self, stream: SimulatedStream, read: Sequence[SimulatedArray], written: Sequence[SimulatedArray]
    ) -> SimulatedEvent:
        event = super()._finish(stream, read, [])
        for value in written:
            value._buffer.ready, value._buffer.filled_by = event, stream
        return event


class KeepsUntilAnotherEvent(SimulatedDevice):
    """What a call uses is kept until another stream has come to an event."""

    def _keep(self, event: SimulatedEvent, values: Sequence[SimulatedArray]) -> None:
        super()._keep(self._in.record(), values)


class HandsOverTooEarly(SimulatedDevice):
    """The host gets the result of a copy without waiting for it."""

    def hand_over(self, event: SimulatedEvent, *others: Any) -> None:
        unrecorded = SimulatedEvent(self.checker)
        unrecorded.fire()
        super().hand_over(unrecorded, *others)


def copied_in_and_used(d: SimulatedDevice) -> None:
    call(work_of(d), "user", d.copy_in(ones(), node="maker"))


def made_and_copied_out(d: SimulatedDevice) -> None:
    d.copy_out(call(work_of(d), "maker"), node="user").result(60)


def made_and_copied_across(d: SimulatedDevice) -> None:
    other = device(type(d), 1, d)
    d.copy_across(call(work_of(d), "maker"), other, node="user")


def copied_across_and_used(d: SimulatedDevice) -> None:
    other = device(type(d), 1, d)
    call(work_of(other), "user", d.copy_across(call(work_of(d), "first"), other, node="maker"))


def stalled(d: SimulatedDevice, use: Callable[[QueuedWork], object]) -> None:
    """Use a device whose compute stream is held meanwhile."""
    stall, work = d.faults.stall(node="held"), work_of(d)
    held = call(work, "held")
    try:
        used = use(work)
        if d._in.last is not None:
            d._in.last.wait_in_stream()
    finally:
        stall.release()
        d.compute_stream.last.wait_in_stream()
    del held, used
    d.record_event()


def input_dropped(d: SimulatedDevice) -> None:
    def use(work: QueuedWork) -> Any:
        x = call(work, "maker")
        return call(work, "user", x)

    stalled(d, use)


def output_dropped(d: SimulatedDevice) -> None:
    stalled(d, lambda work: bool(call(work, "user")))


def freed_and_used(d: SimulatedDevice) -> None:
    work = work_of(d)
    x = call(work, "maker")
    d.copy_out(x, node="out").result(60)
    d.free(x)
    call(work, "user", x)


def of_another_device(d: SimulatedDevice) -> None:
    other = device(SimulatedDevice, 1, d)
    call(work_of(d), "user", call(work_of(other), "maker"))


def nobody_wrote_it(d: SimulatedDevice) -> None:
    call(work_of(d), "user", d.allocate("maker", float32))


def overwritten_while_copied_out(d: SimulatedDevice) -> None:
    """A kernel writes over its input, which another stream may still be reading."""
    x = call(work_of(d), "maker")
    d.copy_out(x, node="reader")
    with d.checker.lock:
        d._issue(d.compute_stream, "user", [x])
        d.checker.write(x._buffer, d.compute_stream.clock, "user")


def written_twice(d: SimulatedDevice) -> None:
    """Two streams write one buffer."""
    x = d.copy_in(ones(), node="maker")
    with d.checker.lock:
        d.checker.issue(d.compute_stream.clock)
        d.checker.write(x._buffer, d.compute_stream.clock, "user")


def asked_for_its_shape(d: SimulatedDevice) -> None:
    print(call(work_of(d), "maker").shape)


def looked_into(d: SimulatedDevice) -> None:
    value = call(work_of(d), "maker")
    assert not hasattr(value, "shape")
    try:
        np.asarray(value)
    except errors.InternalError as error:
        error.attach_node("user", "Add")
        raise


PLANTED: list[tuple[str, type[SimulatedDevice], Callable[[SimulatedDevice], None], str]] = [
    (
        "a kernel does not wait for a copy",
        ComputeDoesNotWait,
        copied_in_and_used,
        "user.* reads .*maker.*compute",
    ),
    ("a copy does not wait for a kernel", NothingWaits, made_and_copied_out, "user.* reads .*maker.*device-to-host"),
    ("a copy across does not wait", NothingWaits, made_and_copied_across, "user.* reads .*maker.*SIM:1 host-to-device"),
    ("what was copied across is not waited for", ComputeDoesNotWait, copied_across_and_used, "user.* reads .*maker"),
    (
        "an event recorded before the call",
        EventTooEarly,
        made_and_copied_out,
        "user.* reads .*maker.*expected",
    ),
    ("an event that was never recorded", NeverRecorded, made_and_copied_out, "user.* was never recorded"),
    ("an input freed before its kernel ran", KeepsNothing, input_dropped, "user.* reads .*maker.*freed before"),
    ("an output freed before its kernel ran", KeepsInputsOnly, output_dropped, "user.* writes .*user.*freed before"),
    ("kept until the wrong event", KeepsUntilAnotherEvent, input_dropped, "user.* reads .*maker.*freed before"),
    ("used after it was freed", SimulatedDevice, freed_and_used, "user.* uses .*maker.*which was freed"),
    ("a value of another device", SimulatedDevice, of_another_device, "user.*maker.*SIM:1: expected a copy"),
    ("nobody has written it", SimulatedDevice, nobody_wrote_it, "user.* reads .*maker.*nobody has written"),
    ("written while it is read", SimulatedDevice, overwritten_while_copied_out, "user.* writes .*maker.*reader.* read"),
    ("written by two streams", SimulatedDevice, written_twice, "user.* writes .*maker.*has written"),
    ("the host looks into it", SimulatedDevice, looked_into, "the host looks into .*maker.*expected a copy"),
    (
        "the host asks for its shape",
        SimulatedDevice,
        asked_for_its_shape,
        "the host looks into .*maker.*expected a copy",
    ),
    ("the host takes a result too early", HandsOverTooEarly, made_and_copied_out, "user.*the host.*expected an event"),
]


@pytest.mark.parametrize(("kind", "scenario", "message"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED])
def test_planted_bug_is_found(
    kind: type[SimulatedDevice], scenario: Callable[[SimulatedDevice], None], message: str
) -> None:
    with pytest.raises(errors.InternalError, match=f"(?s){message}"):
        scenario(device(kind))


RIGHT = [
    copied_in_and_used,
    made_and_copied_out,
    made_and_copied_across,
    copied_across_and_used,
    input_dropped,
    output_dropped,
]


@pytest.mark.parametrize("scenario", RIGHT, ids=lambda scenario: scenario.__name__)
def test_correct_use_is_not_flagged(scenario: Callable[[SimulatedDevice], None]) -> None:
    right = device()
    scenario(right)
    right.checker.check()
