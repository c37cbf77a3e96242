"""The strict checker: does each user of a buffer know that its last user is done with it?

It follows what happens before what by the order that streams were given, not by the order in which threads happen to
run, so that a missing event is found each time.  Each stream has a clock, which records how far the others had come
when the stream was last made to wait for one of their events.  The host is a stream too; all work that it queues comes
after what it knows.  An access to a buffer has to come after the last write, a write after all accesses, and freeing a
buffer after all uses, as far as the host or the buffer's keeper knows.
Next to read: `simulated_stream.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakSet

from aexec.framework import errors

__all__ = ["Access", "Clock", "StreamChecker", "TrackedBuffer"]


class Clock:
    """A vector clock: a stream's progress, and the progress of other streams that it is ordered after.

    Attributes:
        name: the stream's name, for errors.
        seen: stream → number of its last operation that happens before the next operation here.
        ended: True if all operations of the stream have happened and it is closed, so that clocks need not remember it.
    """

    __slots__ = ("__weakref__", "ended", "name", "seen")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self.seen: dict[Clock, int] = {}

    def tick(self) -> int:
        """Count the stream's next operation; return its number."""
        now = self.seen[self] = self.seen.get(self, 0) + 1
        return now

    def knows(self, access: Access) -> bool:
        """True if the access happens before the next operation here."""
        return access.clock.ended or self.seen.get(access.clock, 0) >= access.time

    def learn(self, seen: dict[Clock, int]) -> None:
        """Record that the next operation here happens after all of `seen`."""
        own = self.seen
        for clock, time in seen.items():
            if not clock.ended and own.get(clock, 0) < time:
                own[clock] = time


@dataclass(frozen=True, slots=True)
class Access:
    """A read or a write of a buffer: the node, and the operation of the stream."""

    node: str
    clock: Clock
    time: int


@dataclass(slots=True, eq=False)
class TrackedBuffer:
    """The checker's record of a buffer.

    Attributes:
        made_by: the node that it was made for.
        written: the last write, None before the first.
        reads: stream → its last read since then.
        passed: the progress of the streams that used the buffer and kept it alive.
        freed: True if its memory was freed.
    """

    made_by: str
    written: Access | None = None
    reads: dict[Clock, Access] = field(default_factory=dict)
    passed: Clock = field(default_factory=lambda: Clock("its keeper"))
    freed: bool = False

    def accesses(self) -> Iterator[Access]:
        """Yield the last write, and the reads since."""
        if self.written is not None:
            yield self.written
        yield from self.reads.values()


class StreamChecker:
    """Checks the streams of devices that are made together, and of their host.

    The methods that check raise InternalError, naming the node that is wrong and the one whose buffer it is.  An error
    that is found where nothing can be raised is raised by the next `check`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.host = Clock("the host")
        self._streams: WeakSet[Clock] = WeakSet()
        self._found: list[errors.OpError] = []
        self._freed: deque[TrackedBuffer] = deque()

    def check(self) -> None:
        """Raise an error that was found where nothing could be raised."""
        with self.lock:
            self._check_freed()
            if self._found:
                raise self._found.pop(0)

    def new_stream(self, name: str) -> Clock:
        """The clock of another stream."""
        clock = Clock(name)
        with self.lock:
            self._streams.add(clock)
        return clock

    def end_stream(self, clock: Clock) -> None:
        """Called when a stream is closed and its thread has ended."""
        with self.lock:
            clock.ended = True
            for other in (self.host, *self._streams):
                other.seen.pop(clock, None)

    def issue(self, clock: Clock) -> None:
        """Called when the host queues an operation: it comes after all that the host knows."""
        clock.learn(self.host.seen)
        clock.tick()

    def read(self, buffer: TrackedBuffer, clock: Clock, node: str) -> None:
        """Check that a node may read a buffer."""
        self._check_usable(buffer, clock, node)
        if buffer.written is None:
            raise _error(node, f"reads {_of(buffer)}, which nobody has written")
        if not clock.knows(buffer.written):
            raise _error(node, f"reads {_of(buffer)} on {clock.name}, {_unordered(buffer.written, 'written')}")
        buffer.reads[clock] = Access(node, clock, clock.seen.get(clock, 0))

    def write(self, buffer: TrackedBuffer, clock: Clock, node: str) -> None:
        """Check that a node may write a buffer."""
        self._check_usable(buffer, clock, node)
        for access in buffer.accesses():
            if not clock.knows(access):
                what = "written" if access is buffer.written else "read"
                raise _error(node, f"writes {_of(buffer)} on {clock.name}, {_unordered(access, what)}")
        buffer.reads.clear()
        buffer.written = Access(node, clock, clock.seen.get(clock, 0))

    def passed(self, buffer: TrackedBuffer, seen: dict[Clock, int]) -> None:
        """Record that a buffer was kept until all of `seen` has happened."""
        with self.lock:
            buffer.passed.learn(seen)

    def taken(self, buffer: TrackedBuffer, seen: dict[Clock, int] | None, node: str) -> None:
        """Check that the host may take the value written for a node, after waiting for `seen`."""
        with self.lock:
            taker = Clock(self.host.name)
            taker.learn(self.host.seen)
            taker.learn(seen or {})
            self.read(buffer, taker, node)

    def free(self, buffer: TrackedBuffer) -> None:
        """Called when the host frees a buffer's memory.

        The last reference to a value may be dropped anywhere, by the garbage collector too, so this does not wait: if
        another thread is checking, the next check looks at it.
        """
        buffer.freed = True
        self._freed.append(buffer)
        if self.lock.acquire(blocking=False):
            try:
                self._check_freed()
            finally:
                self.lock.release()

    def _check_freed(self) -> None:
        while self._freed:
            buffer = self._freed.popleft()
            for access in reversed(list(buffer.accesses())):
                if not (buffer.passed.knows(access) or self.host.knows(access)):
                    what = "writes" if access is buffer.written else "reads"
                    text = f"{what} {_of(buffer)} on {access.clock.name}, and it was freed before that stream got there"
                    self._found.append(_error(access.node, text))
                    break

    def _check_usable(self, buffer: TrackedBuffer, clock: Clock, node: str) -> None:
        if buffer.freed:
            raise _error(node, f"uses {_of(buffer)} on {clock.name}, which was freed")


def _of(buffer: TrackedBuffer) -> str:
    return f"the buffer of {{{{node {buffer.made_by}}}}}"


def _unordered(access: Access, what: str) -> str:
    return (
        f"which {{{{node {access.node}}}}} has {what} on {access.clock.name}: "
        "expected an event between them, there is none"
    )


def _error(node: str, text: str) -> errors.OpError:
    return errors.InternalError(f"{{{{node {node}}}}} {text}", node=node)
