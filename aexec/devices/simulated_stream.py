"""`SimulatedStream`: a thread that does queued work in order, as a GPU's stream does; and its events.

The work of one stream is done in the order in which it was queued; streams are ordered with each other only by events.
Next to read: `simulated_device.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aexec.devices.host_event import HostEvent
from aexec.devices.serial_thread import SerialThread
from aexec.devices.stream_checker import Clock, StreamChecker, TrackedBuffer
from aexec.framework import errors
from aexec.framework.device_contract.device import DeviceEvent

__all__ = ["AllEvents", "SimulatedEvent", "SimulatedStream"]


class SimulatedEvent(HostEvent):
    """A point in a stream.  When the host sees that it has passed, the checker records it."""

    def __init__(self, checker: StreamChecker, stream: str = "no stream") -> None:
        super().__init__()
        self.stream = stream
        self.seen: dict[Clock, int] | None = None  # what its waiters learn; None until it is recorded
        self._checker = checker
        self._kept: list[tuple[TrackedBuffer, object]] = []

    @property
    def done(self) -> bool:
        if not self._passed.is_set():
            return False
        self.observe()
        return True

    def keep(self, values: Iterable[tuple[TrackedBuffer, object]]) -> None:
        """Keep the values of buffers until the event has passed.  They are dropped before that can be seen."""
        self._kept.extend(values)
        if self._passed.is_set():
            self._let_go()

    def _let_go(self) -> None:
        while self._kept:
            buffer, _value = self._kept.pop()
            self._checker.passed(buffer, self.seen or {})

    def has_passed(self) -> bool:
        """Like `done`, without recording that the host has seen it."""
        return self._passed.is_set()

    def wait_in_stream(self) -> None:
        """Wait in the thread of another stream."""
        self._passed.wait()

    def fire(self) -> None:
        """Make it pass: the stream has got here."""
        self._let_go()
        super().fire()

    def _call_back(self) -> None:
        self._let_go()  # values that were added since
        super()._call_back()

    def observe(self) -> None:
        """Record that the host has seen that the event has passed."""
        with self._checker.lock:
            if self.seen is not None:
                self._checker.host.learn(self.seen)


class AllEvents(DeviceEvent):
    """Passes when all of several events have passed."""

    def __init__(self, events: list[SimulatedEvent]) -> None:
        self._events = events

    @property
    def done(self) -> bool:
        return all(event.done for event in self._events)

    def when_done(self, callback: Callable[[], object]) -> None:
        left = iter(self._events)

        def next_one() -> None:
            event = next(left, None)
            if event is None:
                for passed in self._events:
                    passed.observe()
                callback()
            else:
                event.when_done(next_one)

        next_one()


class SimulatedStream(SerialThread):
    """A thread that does queued work.

    Args:
        name: of device and stream.

    Attributes:
        clock: the checker's clock of the stream.
        last: the last event that was recorded on it, or None.
    """

    def __init__(self, name: str, checker: StreamChecker) -> None:
        super().__init__(name)
        self.clock = checker.new_stream(name)
        self.last: SimulatedEvent | None = None
        self._checker = checker

    def record(self) -> SimulatedEvent:
        """An event that passes when all that was queued so far is done."""
        event = SimulatedEvent(self._checker, self.name)
        with self._checker.lock:
            self._checker.issue(self.clock)
            event.seen = dict(self.clock.seen)
            self.last = event
            self.submit(event.fire)
        return event

    def wait_for(self, event: SimulatedEvent, node: str) -> None:
        """Make all work that is queued from now on wait for the event.

        Raises:
            InternalError: it was never recorded.
        """
        with self._checker.lock:
            if event.seen is None:
                raise errors.InternalError(
                    f"{{{{node {node}}}}} makes {self.name} wait for an event of {event.stream}: it was never recorded",
                    node=node,
                )
            self.clock.learn(event.seen)
            if not event.has_passed():
                self.submit(event.wait_in_stream)
