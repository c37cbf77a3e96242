"""`QueueSizes`: the numbers of elements in the queues of all sessions, for the metrics.

Clients may make very many queues, so they are looked at one by one: on the event loop for a slice, and the rest in a
thread.  Looking at many takes processor time; the longer it took, the longer it is not done again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from aexec.hosting import OnCancel, each_queue, loop_budget, run_in_thread
from aexec_server.sessions.store import SessionStore

__all__ = ["QueueSizes"]

# The queues of models with a metric of their own.
_MAX_LABELS = 100
# The time of looking at a queue, and the number of queues after which the time is looked at.
_QUEUE_NS = 500.0
_AT_ONCE = 64
# Looking at queues in a thread takes at most one part in this many of the time.
_REST = 50

Sizes = Mapping[tuple[str, ...], float]


class QueueSizes:
    """Looks at the queues of sessions, which may be very many, without holding the event loop.

    Args:
        sessions: the sessions.
        in_background: starts work that outlives a request.

    Attributes:
        latest: number of elements by label, as of the last look that has ended: that of each model's queue has the
            label `model/queue`; those of all clients' queues, whose names could be anything, are added up under "".
    """

    def __init__(
        self, sessions: SessionStore, in_background: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    ) -> None:
        self.latest: Sizes = {}
        self._sessions = sessions
        self._in_background = in_background
        self._looking: asyncio.Task[None] | None = None
        self._next_look = 0.0

    def look(self) -> None:
        """Bring `latest` up to date, if that takes less than a slice; else begin to do so in a thread, if it is due."""
        if self._looking is not None or time.monotonic() < self._next_look:
            return
        sizes: dict[tuple[str, ...], float] = {}
        walk = self._walk(sizes)
        began = time.perf_counter()
        for number, _ in enumerate(walk, 1):
            if not number % _AT_ONCE and time.perf_counter() - began > loop_budget.SLICE_SECONDS:
                self._looking = self._in_background(self._go_on(walk, sizes), "sizes of queues")
                return
        self.latest = sizes

    async def wait(self) -> None:
        """Bring `latest` up to date, however long that takes, if it is due."""
        self.look()
        if self._looking is not None:
            await asyncio.shield(self._looking)

    async def _go_on(self, walk: Iterator[None], sizes: Sizes) -> None:
        try:
            began = time.perf_counter()
            await run_in_thread(lambda: _exhaust(walk), on_cancel=OnCancel.ABANDON)
            self._next_look = time.monotonic() + _REST * (time.perf_counter() - began)
            self.latest = sizes
        finally:
            self._looking = None

    def _walk(self, sizes: dict[tuple[str, ...], float]) -> Iterator[None]:
        """Add up the sizes, and yield after each queue."""
        for hosted in self._sessions:
            model = hosted.model
            for name, queue in each_queue(hosted.session):
                label = f"{model}/{name}" if model and len(sizes) < _MAX_LABELS else ""
                sizes[label,] = sizes.get((label,), 0) + len(queue)
                yield


def _exhaust(walk: Iterator[None]) -> None:
    for _ in loop_budget.giving_way(walk, _QUEUE_NS):
        pass
