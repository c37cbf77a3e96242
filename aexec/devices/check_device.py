"""`check_device`: the suite that every device passes; run it on yours.

It checks the promises of `aexec/framework/device_contract/device.py`, through that interface alone: copies are exact,
queued work is done in order and keeps what it needs, a failure is reported once and affects only what depends on it,
and nothing is left behind.  `CHECKS` are its parts, for a test each.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from aexec.devices.cpu_device import CpuDevice
from aexec.framework import errors
from aexec.framework.device_contract.device import Device, OnError, QueuedWork, copy_between
from aexec.framework.device_contract.device_name import LOCAL_CPU, DeviceName
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.dtypes import DType, float32, int32

__all__ = ["CHECKS", "check_device"]

Check = Callable[[Callable[[], Device]], Awaitable[None]]

# Seconds after which an awaited result is considered lost.
_PATIENCE = 60.0
_TYPES = "?bhilqBHILQefdFD"


async def check_device(make_device: Callable[[], Device]) -> None:
    """Check a kind of device.

    Args:
        make_device: makes a device, with another number each time; several may be in use at once.

    Raises:
        AssertionError: the device breaks a promise of `Device`; its notes name the check.
    """
    for check in CHECKS:
        try:
            await check(make_device)
        except BaseException as error:
            error.add_note(f"{check.__name__}: {inspect.getdoc(check)}")
            raise


# Helpers of the checks


def _told(kernel: QueuedKernel, error: BaseException) -> None:
    """Ignores failures: they are found when the result is fetched."""


class _Caller:
    """Queues functions of one float array each."""

    def __init__(self, device: Device, on_error: OnError = _told) -> None:
        self.device = device
        self.work: QueuedWork = device.begin_work(on_error)
        self._count = 0

    def call(self, compute: Callable[..., Any], *arguments: Any, types: Sequence[DType] = (float32,)) -> Any:
        """The only output, or all of several."""
        self._count += 1
        kernel = QueuedKernel(f"call_{self._count}", "Call", compute, types)
        outputs = self.work.enqueue(kernel, arguments)
        return outputs[0] if len(types) == 1 else outputs


async def _got(outcome: Any) -> Any:
    """A value, or the result of a future of it."""
    return await asyncio.wait_for(asyncio.wrap_future(outcome), _PATIENCE) if isinstance(outcome, Future) else outcome


async def _fetch(device: Device, value: Any) -> Any:
    return await _got(device.copy_out(value, node="fetch"))


def _floats(*values: float) -> Any:
    return np.array(values, np.float32)


async def _settled(device: Device) -> None:
    await asyncio.wait_for(device.synchronise(), _PATIENCE)


# The checks


async def says_what_it_is(make_device: Callable[[], Device]) -> None:
    """The name is complete and of the device's type; each device has its own; the message agrees."""
    device, other = make_device(), make_device()
    name = DeviceName.parse(device.name)
    assert str(name) == device.name, f"expected a full name, got {device.name!r}"
    assert name.type == device.type, (device.name, device.type)
    assert device.name != other.name, "expected a name of its own for each device"
    message = device.to_proto()
    assert (message.name, message.device_type) == (device.name, device.type)
    assert message.incarnation > 0, "expected a positive incarnation"
    assert device.memory_limit >= 0, "expected bytes, or 0 if they are not known"
    await device.close()
    await other.close()


async def copies_are_true(make_device: Callable[[], Device]) -> None:
    """A copied array comes back unchanged, for all plain types and shapes; the host's array is unchanged."""
    device = make_device()
    for code in _TYPES:
        array = np.arange(6).astype(code).reshape(2, 3)
        for each in (array, array[:, ::2], array[:, :0], array[0, 1, ...], array.T):
            before = each.copy()
            value = device.copy_in(each, node="x")
            assert value.dtype == each.dtype, (code, value.dtype)
            out = await _fetch(device, value)
            assert out.dtype == each.dtype, (code, out.dtype)
            np.testing.assert_array_equal(out, before)
            np.testing.assert_array_equal(each, before)
    await device.close()


async def strings_stay_on_the_host(make_device: Callable[[], Device]) -> None:
    """Values that are not plain bytes are not copied to a device's own memory."""
    device = make_device()
    strings = np.array([b"a", b"b"], object)
    if device.is_host:
        assert device.copy_in(strings, node="x") is strings
    else:
        try:
            device.copy_in(strings, node="x")
        except errors.InvalidArgumentError:
            pass
        else:
            raise AssertionError("expected InvalidArgumentError for strings")
    await device.close()


async def calls_follow_each_other(make_device: Callable[[], Device]) -> None:
    """A call sees the outputs of calls before it, without waiting for them."""
    device = make_device()
    caller = _Caller(device)
    value = device.copy_in(_floats(0, 1), node="x")
    for _ in range(200):
        value = caller.call(lambda x: x + 1, value)
    np.testing.assert_array_equal(await _fetch(device, value), [200, 201])
    await device.close()


async def what_is_dropped_is_kept_until_it_is_used(make_device: Callable[[], Device]) -> None:
    """Arguments and outputs may be dropped as soon as the call is queued, and their memory is reused safely."""
    device = make_device()
    caller = _Caller(device)
    kept = []
    for number in range(50):
        x = device.copy_in(np.full(1000, number, np.float32), node="x")
        y = caller.call(lambda x: x * 2, x)
        del x
        caller.call(lambda y: y - 1, y)
        kept.append(caller.call(lambda y: y + 1, y))
        del y
    for number, value in enumerate(kept):
        np.testing.assert_array_equal(await _fetch(device, value), np.full(1000, 2 * number + 1))
    await device.close()


async def outputs_are_as_many_as_there_are(make_device: Callable[[], Device]) -> None:
    """A kernel returns none, one or several values; inputs may be a list; other objects are passed on unchanged."""
    device = make_device()
    caller, seen = _Caller(device), []
    x = device.copy_in(_floats(1, 2), node="x")
    twice, thrice = caller.call(lambda x: (x * 2, x * 3), x, types=(float32, float32))
    context = object()

    def join(passed: object, values: list[Any]) -> Any:
        seen.append(passed)
        return values[0] + values[1]

    joined = caller.call(join, context, [twice, thrice])
    assert caller.call(lambda x: None, x, types=()) == ()
    (single,) = (caller.call(lambda x: (x,), x),)
    np.testing.assert_array_equal(await _fetch(device, joined), [5, 10])
    np.testing.assert_array_equal(await _fetch(device, single), [1, 2])
    assert seen == [context]
    await device.close()


async def arrays_of_the_host_are_taken_in(make_device: Callable[[], Device]) -> None:
    """An input in host memory is a NumPy array to the kernel, and a NumPy array that it returns is copied to the
    device.
    """
    device = make_device()
    caller, kinds = _Caller(device), []
    made = caller.call(lambda: _floats(1, 2, 3))

    def add(x: Any, number: Any) -> Any:
        kinds.append(type(number))
        return x + float(number)

    more = caller.call(add, made, np.array(2, np.int32))
    np.testing.assert_array_equal(await _fetch(device, more), [3, 4, 5])
    assert kinds == [np.ndarray]
    await device.close()


async def outputs_for_the_host_come_to_it(make_device: Callable[[], Device]) -> None:
    """An output in host memory is a NumPy array, at once or through a future."""
    device = make_device()
    work = device.begin_work(_told)
    x = device.copy_in(np.zeros((2, 5), np.float32), node="x")

    def more_and_shape(x: Any) -> Any:
        return x + 1, np.array(x.shape, np.int32)

    kernel = QueuedKernel("shape", "Shape", more_and_shape, (float32, int32), frozenset({1}))
    more, shape = work.enqueue(kernel, [x])
    shape = await _got(shape)
    assert type(shape) is np.ndarray
    np.testing.assert_array_equal(shape, [2, 5])
    np.testing.assert_array_equal(await _fetch(device, more), np.ones((2, 5)))
    await device.close()


async def a_failure_is_told_once(make_device: Callable[[], Device]) -> None:
    """A kernel's error is raised or reported, once; what is computed from its outputs fails too; all else goes on."""
    device = make_device()
    told: list[tuple[str, BaseException]] = []
    caller = _Caller(device, lambda kernel, error: told.append((kernel.name, error)))
    x = device.copy_in(_floats(1), node="x")

    def fail(_x: Any) -> Any:
        raise errors.OutOfRangeError("as was wanted")

    try:
        y = caller.call(fail, x)
    except errors.OutOfRangeError as error:
        told.append(("call_1", error))
    else:
        z = caller.call(lambda y: y + 1, y)
        try:
            await _fetch(device, z)
        except errors.OutOfRangeError:
            pass
        else:
            raise AssertionError("expected what is computed from a failed call to fail")
    event = caller.work.record_event()
    await asyncio.wait_for(event.wait(), _PATIENCE)
    assert [(name, type(error)) for name, error in told] == [("call_1", errors.OutOfRangeError)], told
    np.testing.assert_array_equal(await _fetch(device, _Caller(device).call(lambda x: x + 1, x)), [2])
    await device.close()


async def events_pass_in_order(make_device: Callable[[], Device]) -> None:
    """An event passes after the work queued before it, and calls back once, also if asked after it has passed."""
    device = make_device()
    done: list[int] = []
    caller, called = _Caller(device), []
    x = device.copy_in(_floats(1), node="x")

    def note(x: Any, number: int) -> Any:
        done.append(number)
        return x

    def called_back(number: int) -> None:
        called.append((number, len(done) > number))

    event = device.record_event()
    for number in range(5):
        caller.call(note, x, number)
        event = caller.work.record_event()
        event.when_done(partial(called_back, number))
    await asyncio.wait_for(event.wait(), _PATIENCE)
    whole = device.record_event()
    await asyncio.wait_for(whole.wait(), _PATIENCE)
    assert event.done, "expected an event that was waited for to be done"
    assert whole.done, "expected an event that was waited for to be done"
    event.when_done(lambda: called.append((5, True)))
    assert called == [(number, True) for number in range(6)], called
    await device.close()


async def works_stand_alone(make_device: Callable[[], Device]) -> None:
    """Two executions take turns on a device; stopping one does not affect the other."""
    device = make_device()
    one, other = _Caller(device, lambda kernel, error: None), _Caller(device)
    x = y = device.copy_in(_floats(0), node="x")
    for _ in range(20):
        x, y = one.call(lambda x: x + 1, x), other.call(lambda x: x + 2, y)
    one.work.stop()
    y = other.call(lambda x: x + 2, y)
    np.testing.assert_array_equal(await _fetch(device, y), [42])
    await asyncio.wait_for(one.work.record_event().wait(), _PATIENCE)
    await device.close()


async def values_go_to_other_devices_and_back(make_device: Callable[[], Device]) -> None:
    """A queued value is copied to the host, and to another device, and used there."""
    host, device, other = CpuDevice(LOCAL_CPU), make_device(), make_device()
    here = await _got(copy_between(host, _floats(1, 2), device, node="in"))
    here = _Caller(device).call(lambda x: x * 2, here)
    there = await _got(copy_between(device, here, other, node="across"))
    del here
    there = _Caller(other).call(lambda x: x + 1, there)
    np.testing.assert_array_equal(await _got(copy_between(other, there, host, node="out")), [3, 5])
    await device.close()
    await other.close()


async def what_users_hold_leaves_and_enters(make_device: Callable[[], Device]) -> None:
    """The device holds what it hands out, and takes it in again; it does not hold arrays of the host or of other
    devices.
    """
    device, other = make_device(), make_device()
    on_host = _floats(1, 2)
    assert device.is_host or not device.holds(on_host), "what is in host memory is not in its own"
    caller = _Caller(device, lambda kernel, error: None)
    before = caller.call(lambda x: x + 1, device.copy_in(on_host, node="in"))
    given = (await _got(device.hand_out(before, node="out")))()
    if device.holds(given):
        if other.holds(given):  # two devices of one GPU
            np.testing.assert_array_equal(await _fetch(other, other.take_in(given, node="other")), [2, 3])
        for _ in range(2):  # as often as its owner likes
            taken = device.take_in(given, node="user")
            assert taken.dtype == on_host.dtype, taken.dtype
            np.testing.assert_array_equal(await _fetch(device, caller.call(lambda x: x * 2, taken)), [4, 6])
        np.testing.assert_array_equal(await _fetch(device, device.take_in(given, node="user")), [2, 3])
        await _fails_where_its_maker_did(device, caller)
    np.testing.assert_array_equal(await _fetch(device, before), [2, 3])
    await device.close()
    await other.close()


async def _fails_where_its_maker_did(device: Device, caller: _Caller) -> None:
    def fail() -> Any:
        raise errors.DataLossError("no such value")

    lost = caller.call(fail)
    try:
        given = (await _got(device.hand_out(lost, node="out")))()
        await _fetch(device, device.take_in(given, node="user"))
    except errors.DataLossError:
        return
    raise AssertionError("expected the error of the call that was to make the value")


async def memory_is_given_back(make_device: Callable[[], Device]) -> None:
    """When nothing is kept any more, as much memory is in use as before."""
    device = make_device()
    await _settled(device)
    before = device.stats().bytes_in_use
    caller = _Caller(device)
    value = device.copy_in(np.ones(1000, np.float32), node="x")
    for _ in range(10):
        value = caller.call(lambda x: x + 1, value)
    await _fetch(device, value)
    del value
    await _settled(device)
    assert device.stats().bytes_in_use == before, (device.stats().bytes_in_use, before)
    await device.close()


async def too_much_memory_is_refused(make_device: Callable[[], Device]) -> None:
    """What does not fit raises or reports ResourceExhaustedError, and the device survives it."""
    device = make_device()
    limit = device.memory_limit
    if limit and not device.is_host:
        told: list[BaseException] = []
        caller = _Caller(device, lambda kernel, error: told.append(error))
        xp = device.xp
        try:
            caller.call(lambda: xp.zeros(limit // 4 + 1, np.float32))
            await asyncio.wait_for(caller.work.record_event().wait(), _PATIENCE)
        except errors.ResourceExhaustedError as error:
            told.append(error)
        assert [type(error) for error in told] == [errors.ResourceExhaustedError], told
        np.testing.assert_array_equal(await _fetch(device, caller.call(lambda: xp.ones(3, np.float32))), [1, 1, 1])
    await device.close()


CHECKS: tuple[Check, ...] = (
    says_what_it_is,
    copies_are_true,
    strings_stay_on_the_host,
    calls_follow_each_other,
    what_is_dropped_is_kept_until_it_is_used,
    outputs_are_as_many_as_there_are,
    arrays_of_the_host_are_taken_in,
    outputs_for_the_host_come_to_it,
    a_failure_is_told_once,
    events_pass_in_order,
    works_stand_alone,
    values_go_to_other_devices_and_back,
    what_users_hold_leaves_and_enters,
    memory_is_given_back,
    too_much_memory_is_refused,
)
