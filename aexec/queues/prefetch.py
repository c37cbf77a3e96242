"""`prefetch`: fills a queue from a Python iterator while steps compute.

::

    async with aexec.prefetch(read_images(), session.queue("input"), depth=4):
        while True:
            await session.run("train")      # OutOfRangeError at the end of the input
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from time import perf_counter
from types import TracebackType
from typing import Any

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.queues.session_queue import Queue
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["Prefetch", "PrefetchStatistics", "prefetch"]

_END = object()


@dataclass(frozen=True, slots=True)
class PrefetchStatistics:
    """A snapshot of a prefetch.

    Attributes:
        items: elements that the source has yielded.
        source_seconds: seconds that the source took for them.
        stalled_seconds: the part of these seconds in which a dequeue waited at the empty queue.
    """

    items: int
    source_seconds: float
    stalled_seconds: float

    @property
    def overlap(self) -> float:
        """The fraction of the source's time that was hidden behind other work: 1 is all of it."""
        return 1.0 - self.stalled_seconds / self.source_seconds if self.source_seconds else 1.0


class Prefetch:
    """Reads a source ahead into a queue.  Made by `prefetch`; an asynchronous context manager."""

    def __init__(self, source: Iterable[Any] | AsyncIterable[Any], queue: Queue, depth: int) -> None:
        if depth < 1:
            raise errors.InvalidArgumentError(f"depth must be at least 1, got {depth}")
        self._source = source
        self._queue = queue
        self._depth = depth
        self._task: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Any] | None = None
        self._ending = False
        self._items = 0
        self._source_seconds = 0.0
        self._stalled_seconds = 0.0

    def statistics(self) -> PrefetchStatistics:
        return PrefetchStatistics(self._items, self._source_seconds, self._stalled_seconds)

    async def __aenter__(self) -> Prefetch:
        self._task = asyncio.create_task(self._fill(), name=f"prefetch into {self._queue.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop reading and close the queue; raises the source's error, if it had one."""
        task = self._task
        assert task is not None
        if not self._ending:
            task.cancel()
        await asyncio.wait([task])
        if not self._ending:  # cancelled before its first turn
            await self._end()
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure from error

    async def _fill(self) -> None:
        try:
            items = self._iterate()
            while True:
                began = perf_counter()
                item = await anext(items, _END)
                self._account(began, perf_counter())
                if item is _END:
                    break
                self._items += 1
                await self._queue.put(item, limit=self._depth)
            if not self._queue.closed:
                await self._queue.close()
        finally:
            await self._end()

    async def _end(self) -> None:
        """Close the queue however reading ended, so that nothing waits for elements that will not come."""
        self._ending = True
        self._queue.resource.request_close(cancel_pending_enqueues=True)
        await self._close_source()

    def _account(self, began: float, ended: float) -> None:
        self._source_seconds += ended - began
        since = self._queue.resource.waiting_since()
        if since is not None:
            self._stalled_seconds += ended - max(began, since)

    def _iterate(self) -> AsyncIterator[Any]:
        if isinstance(self._source, AsyncIterable):
            return aiter(self._source)
        return self._iterate_in_thread(iter(self._source))

    async def _iterate_in_thread(self, items: Any) -> AsyncIterator[Any]:
        """Yield the items of an iterator that may block; each call is made in a thread."""
        while True:
            self._call = asyncio.ensure_future(run_in_thread(next, items, _END, on_cancel=OnCancel.WAIT))
            item = await asyncio.shield(self._call)
            if item is _END:
                return
            yield item

    async def _close_source(self) -> None:
        """Close the source, so that a generator runs its `finally` blocks."""
        if self._call is not None and not self._call.done():
            await asyncio.wait([self._call])  # a thread cannot be interrupted
        source: Any = self._source
        if hasattr(source, "aclose"):
            await source.aclose()
        elif hasattr(source, "close"):
            await run_in_thread(source.close, on_cancel=OnCancel.WAIT)


def prefetch(source: Iterable[Any] | AsyncIterable[Any], queue: Queue, depth: int = 2) -> Prefetch:
    """Read elements from a source into a queue, before they are needed.

    Args:
        source: an iterator or asynchronous iterator of elements, as `Queue.put` takes them.  A plain iterator may
            block: it is advanced in a thread.
        queue: from `Session.queue`.  It is closed at the end of the source, and when the block is left.
        depth: read on while fewer than this many elements are in the queue; at most its capacity.

    Returns:
        an asynchronous context manager, whose `statistics().overlap` says how well it works.

    Raises:
        InvalidArgumentError: a depth less than 1.  Leaving the block raises the source's error.
    """
    return Prefetch(source, queue, depth)
