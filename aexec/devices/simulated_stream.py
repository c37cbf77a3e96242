"""`SimulatedStream`: work that a thread does in order, as a GPU's stream does; and its events.

What is queued on one stream is done in the order in which it was queued; streams know nothing of each other but by
events.  Next to read: `simulated_device.py`.
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
    """A point in a stream.  Whoever sees that it has passed, and is on the host, makes the checker know."""

    def __init__(self, checker: StreamChecker, stream: str = "no stream") -> None:
        super().__init__()
        self.stream = stream
        self.seen: dict[Clock, int] | None = None  # by whoever waits for it; None until it is recorded
        self._checker = checker
        self._kept: list[tuple[TrackedBuffer, object]] = []

    @property
    def done(self) -> bool:
        if not self._passed.is_set():
            return False
        self.observe()
        return True

    def keep(self, values: Iterable[tuple[TrackedBuffer, object]]) -> None:
        """Keep the values of buffers until it has passed; whoever sees that it has finds them gone."""
        self._kept.extend(values)
        if self._passed.is_set():
            self._let_go()

    def _let_go(self) -> None:
        while self._kept:
            buffer, _value = self._kept.pop()
            self._checker.passed(buffer, self.seen or {})

    def has_passed(self) -> bool:
        """As `done`, without the host's taking notice."""
        return self._passed.is_set()

    def wait_in_stream(self) -> None:
        """Wait in the thread of another stream."""
        self._passed.wait()

    def fire(self) -> None:
        """The stream got here."""
        self._let_go()
        super().fire()

    def _call_back(self) -> None:
        self._let_go()  # what came since
        super()._call_back()

    def observe(self) -> None:
        """The host takes notice that it has passed."""
        with self._checker.lock:
            if self.seen is not None:
                self._checker.host.learn(self.seen)


class AllEvents(DeviceEvent):
    """Passes when all of several events have."""

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
    """A thread that does what is queued.

    Args:
        name: of device and stream.

    Attributes:
        clock: what the checker knows of it.
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
        """Whatever is queued from now on comes after the event.

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
