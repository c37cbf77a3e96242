"""The rendezvous: where a tensor sent by one partition of a step meets its receiver.

It is a table of channels, one per key.  A channel holds values that have not been received, or waiting receivers, never
both; both in order of arrival.  Either side may come first: `send` never blocks, `recv` waits.  Each step has a
rendezvous of its own, which is aborted with the first error of the step; waiting receivers get that error.

A `Transport` fetches values that were sent in another process; a receiver waits for these as for any.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.futures import complete_on_loop

__all__ = [
    "Done",
    "ParsedKey",
    "Received",
    "Rendezvous",
    "RendezvousStatistics",
    "Transport",
    "TransportFactory",
    "create_key",
    "parse_key",
]

_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def create_key(
    src_device: str, src_incarnation: int, dst_device: str, edge_name: str, frame_iter: tuple[int, int] = (0, 0)
) -> str:
    """The key under which a value of an edge is sent.

    Args:
        src_device, dst_device: full names of the devices at the edge's ends.
        src_incarnation: of the sending device, so that a restarted one is not mistaken for the old.
        edge_name: attr `tensor_name` of the Send and the Recv.
        frame_iter: loop frame and iteration.
    """
    return f"{src_device};{src_incarnation:016x};{dst_device};{edge_name};{frame_iter[0]}:{frame_iter[1]}"


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """The parts of a key; see `create_key`."""

    src_device: str
    src: DeviceName
    src_incarnation: int
    dst_device: str
    dst: DeviceName
    edge_name: str
    frame_iter: str


@lru_cache(maxsize=1024)
def parse_key(key: str) -> ParsedKey:
    """The parts of a key.

    Raises:
        InvalidArgumentError: it has not five non-empty parts, a device name cannot be parsed, or the incarnation is not
            hexadecimal.
    """
    parts = key.split(";")
    if len(parts) != 5 or not all(parts) or not _HEX_DIGITS.issuperset(parts[1]):
        raise errors.InvalidArgumentError(f"Invalid rendezvous key: {key}")
    src_device, incarnation, dst_device, edge_name, frame_iter = parts
    try:
        src, dst = DeviceName.parse(src_device), DeviceName.parse(dst_device)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"Invalid rendezvous key: {key} ({error.message})") from None
    return ParsedKey(src_device, src, int(incarnation, 16), dst_device, dst, edge_name, frame_iter)


class Received(NamedTuple):
    """A value that a receiver gets.

    Attributes:
        value: the array; meaningless if dead.
        is_dead: True if the value is dead; dead values are sent like live ones.
        send_args: where the value is, by the sender (device context, allocator attributes).
    """

    value: Any
    is_dead: bool = False
    send_args: Any = None


_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class RendezvousStatistics:
    """Open channels, values and receivers waiting in them, values sent and received so far, and whether it was
    aborted.
    """

    channels: int
    values: int
    receivers: int
    sent: int
    received: int
    aborted: bool


# Callback with the received value, or with the error that ended the wait.
Done = Callable[[Received | errors.OpError], object]


class Transport(Protocol):
    """Fetches values for the rendezvous of one step that are sent to the same step's rendezvous in another process."""

    def brings(self, key: str) -> bool:
        """True if values of this key are sent in another process."""
        ...

    def receive(self, key: str, done: Done) -> None:
        """Request the next value of a key, as `recv_local` does there; `done` is called once, in any thread."""
        ...

    def close(self) -> None:
        """Called when the step has ended and nothing waits any more."""
        ...


class _Cancellable:
    """A receiver's callback that a cancellation manager may call in place of the sender."""

    __slots__ = ("_manager", "done", "token")

    def __init__(self, done: Done, manager: CancellationManager) -> None:
        self.done = done
        self._manager = manager
        self.token = manager.get_cancellation_token()

    def __call__(self, outcome: Received | errors.OpError) -> None:
        self.deregister()
        self.done(outcome)

    def deregister(self) -> None:
        self._manager.try_deregister_callback(self.token)


# Makes the transport of a step from the step's id and its rendezvous.
TransportFactory = Callable[[int, "Rendezvous"], Transport]


class Rendezvous:
    """The channels of one step.  All methods may be called from any thread; `recv` needs an event loop."""

    def __init__(self) -> None:
        # Guards everything below.  Re-entrant, because a finaliser may run at any allocation. # Callbacks are called
        # without it.
        self._lock = threading.RLock()
        # No channel is empty.  The thread that removes a receiver calls it, so that each is called once.
        self._values: dict[str, deque[Received]] = {}
        self._waiters: dict[str, deque[Done]] = {}
        self._status: errors.OpError | None = None
        self._sent = 0
        self._received = 0
        self._transport: Transport | None = None

    def plug_in(self, transport: Transport) -> None:
        """Receive values through a transport, too.  Called before anything is received."""
        self._transport = transport

    def abort_when_cancelled(self, cancellation: CancellationManager, token: int) -> None:
        """Abort with the manager's error when it is cancelled, or now if it is.

        Args:
            token: a token of that manager, to deregister with.
        """

        def abort() -> None:
            status = cancellation.status
            self.start_abort(errors.CancelledError("Run call was cancelled") if status is None else status)

        if not cancellation.register_callback(token, abort):
            abort()

    @property
    def status(self) -> errors.OpError | None:
        """The error that it was aborted with, or None."""
        return self._status

    @property
    def is_local(self) -> bool:
        """True if values come only from sends in this process."""
        return self._transport is None

    @property
    def keys_awaited(self) -> int:
        """The number of keys with a waiting receiver."""
        return len(self._waiters)

    def send(self, key: str, value: Any, *, is_dead: bool = False, send_args: Any = None) -> None:
        """Hand a value to the oldest waiting receiver, or keep it for the next.  Never blocks.

        Raises:
            OpError: the rendezvous was aborted with this error.
        """
        received = _new_tuple(Received, (value, is_dead, send_args))  # half the time of `Received(...)`
        with self._lock:
            if self._status is not None:
                raise _derived(self._status)
            self._sent += 1
            waiters = self._waiters.get(key)
            if waiters is None:
                channel = self._values.get(key)
                if channel is None:
                    self._values[key] = deque((received,))
                else:
                    channel.append(received)
                return
            self._received += 1
            waiter = waiters.popleft()
            if not waiters:
                del self._waiters[key]
        waiter(received)

    def recv_nowait(self, key: str) -> Received | None:
        """Take the oldest value; None if there is none.

        Raises:
            OpError: the rendezvous was aborted with this error.
        """
        if self._transport is not None:
            key = self._channel(key)
        with self._lock:
            if self._status is not None:
                raise _derived(self._status)
            return self._take_value(key) if self._values else None

    def recv_or_wait(self, key: str, done: Done) -> Received | None:
        """Take the oldest value; if there is none, return None and call `done` later, as `recv_async` does.

        Raises:
            OpError: the rendezvous was aborted with this error.
        """
        if self._transport is None:
            with self._lock:
                if self._status is not None:
                    raise _derived(self._status)
                received = self._take_value(key) if key in self._values else None
                if received is None:
                    self._wait(key, done)
                return received
        received = self.recv_nowait(key)
        if received is None:
            self.recv_async(key, done)
        return received

    def recv_async(self, key: str, done: Done, cancellation: CancellationManager | None = None) -> None:
        """Call `done` once: with the next value, or with the error that ends the wait.

        It is called in the thread that sends, aborts or cancels; or before this method returns if a value or an error
        is there.
        """
        if self._transport is None:
            self.recv_local(key, done, cancellation)
            return
        channel = self._channel(key)
        self.recv_local(channel, done, cancellation)
        if channel is not key:
            self._transport.receive(key, partial(self._came, channel))

    def _channel(self, key: str) -> str:
        """The channel to receive a key from: fetched values are kept apart from those that are sent here."""
        if self._transport is None or not self._transport.brings(key):
            return key
        return f"{key};brought"

    def _came(self, channel: str, outcome: Received | errors.OpError) -> None:
        if isinstance(outcome, Received):
            with suppress(errors.OpError):  # aborted meanwhile
                self.send(channel, outcome.value, is_dead=outcome.is_dead, send_args=outcome.send_args)
            return
        with self._lock:
            waiter = self._take_waiter(channel)
        if waiter is not None:
            waiter(outcome)

    def recv_local(self, key: str, done: Done, cancellation: CancellationManager | None = None) -> None:
        """Like `recv_async`, for values sent in this process; called for transports of other processes."""
        outcome: Received | errors.OpError | None
        with self._lock:
            outcome = self._take_value(key) if self._status is None else _derived(self._status)
            if outcome is None:
                if cancellation is None:
                    self._wait(key, done)
                    return
                waiter = _Cancellable(done, cancellation)
                if cancellation.register_callback(waiter.token, lambda: self._cancel(key, waiter)):
                    self._wait(key, waiter)
                    return
                outcome = _cancelled()
        done(outcome)

    async def recv(self, key: str, cancellation: CancellationManager | None = None) -> Received:
        """Wait for the next value.  If the waiting task is cancelled, no value is lost.

        Raises:
            OpError: the rendezvous was aborted with this error.
            CancelledError: `cancellation` is or was cancelled; the error is derived.
        """
        future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        channel = self._channel(key)

        def done(outcome: Received | errors.OpError) -> None:
            if isinstance(outcome, Received):
                complete_on_loop(future, lambda f: f.set_result(outcome), lambda: self._give_back(channel, outcome))
            else:
                complete_on_loop(future, lambda f: f.set_exception(outcome))

        self.recv_async(key, done, cancellation)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(channel, future.result())
            else:
                self._forget(channel, done)
            raise

    def recv_blocking(self, key: str, timeout: float | None = None) -> Received:
        """Wait for the next value in a thread that runs no event loop.

        Args:
            key: the key of the channel.
            timeout: seconds; None waits for ever.

        Raises:
            DeadlineExceededError: nothing came in time.
            OpError: the rendezvous was aborted with this error.
        """
        arrived = threading.Event()
        outcomes: list[Received | errors.OpError] = []

        def done(outcome: Received | errors.OpError) -> None:
            outcomes.append(outcome)
            arrived.set()

        self.recv_async(key, done)
        if not arrived.wait(timeout) and self._forget(self._channel(key), done):
            raise errors.DeadlineExceededError(f"Timed out waiting for notification: nothing was sent as {key}")
        arrived.wait()
        outcome = outcomes[0]
        if isinstance(outcome, errors.OpError):
            raise outcome
        return outcome

    def start_abort(self, status: errors.OpError) -> None:
        """End all waits with `status`, drop all values, and refuse all later calls.  Only the first abort has an
        effect.
        """
        with self._lock:
            if self._status is not None:
                return
            self._status = status
            waiters = [waiter for channel in self._waiters.values() for waiter in channel]
            self._waiters.clear()
            self._values.clear()
        for waiter in waiters:
            waiter(_derived(status))

    def close(self) -> None:
        """End the step: abort all remaining waits with CANCELLED."""
        if self._transport is not None:
            self._transport.close()
        if self._values or self._waiters:
            self.start_abort(errors.CancelledError("Rendezvous is closed: its step has ended"))

    def statistics(self) -> RendezvousStatistics:
        with self._lock:
            return RendezvousStatistics(
                channels=len(self._values) + len(self._waiters),
                values=sum(map(len, self._values.values())),
                receivers=sum(map(len, self._waiters.values())),
                sent=self._sent,
                received=self._received,
                aborted=self._status is not None,
            )

    def _take_value(self, key: str) -> Received | None:
        channel = self._values.get(key)
        if channel is None:
            return None
        value = channel.popleft()
        if not channel:
            del self._values[key]
        self._received += 1
        return value

    def _wait(self, key: str, waiter: Done) -> None:
        channel = self._waiters.get(key)
        if channel is None:
            self._waiters[key] = deque((waiter,))
        else:
            channel.append(waiter)

    def _take_waiter(self, key: str) -> Done | None:
        channel = self._waiters.get(key)
        if channel is None:
            return None
        waiter = channel.popleft()
        if not channel:
            del self._waiters[key]
        return waiter

    def _remove(self, key: str, is_it: Callable[[Done], bool]) -> Done | None:
        with self._lock:
            channel = self._waiters.get(key, ())
            for waiter in channel:
                if is_it(waiter):
                    self._waiters[key].remove(waiter)
                    if not self._waiters[key]:
                        del self._waiters[key]
                    return waiter
        return None

    def _cancel(self, key: str, waiter: _Cancellable) -> None:
        if self._remove(key, lambda other: other is waiter) is not None:
            waiter.done(_cancelled())

    def _forget(self, key: str, done: Done) -> bool:
        """Remove a receiver that does not wait any more; False if it was completed."""
        waiter = self._remove(key, lambda other: done in (other, getattr(other, "done", None)))
        if isinstance(waiter, _Cancellable):
            waiter.deregister()
        return waiter is not None

    def _give_back(self, key: str, received: Received) -> None:
        """Put back a value whose receiver was cancelled before it could take it."""
        with self._lock:
            if self._status is not None:
                return
            waiter = self._take_waiter(key)
            if waiter is None:
                self._received -= 1
                self._values.setdefault(key, deque()).appendleft(received)
                return
        waiter(received)

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        s = self.statistics()
        state = f"aborted: {self._status}" if s.aborted else f"{s.values} values, {s.receivers} receivers waiting"
        return f"<Rendezvous {state}>"


def _cancelled() -> errors.OpError:
    return errors.CancelledError("RecvAsync is cancelled.", derived=True)


def _derived(status: errors.OpError) -> errors.OpError:
    """A derived copy for one receiver: each that raises an exception adds to its traceback."""
    error = copy.copy(status)
    error.derived = True
    return error
