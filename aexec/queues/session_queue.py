"""`Queue`: a queue of a session, for Python programs.  `Session.queue` makes it.

::

    queue = session.queue("q")
    await queue.put((image, label))
    images, labels = await queue.get_many(32)
    async for image, label in queue:        # until it is closed and empty
        ...

Methods wait in the same lines as the graph's own operations.  Waiting ends when the session is
closed.  A cancelled call has taken nothing and put nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, CUT_NS
from aexec.framework.waiting.worker_threads import WorkerThreads
from aexec.queues.attempts import Attempt, settled
from aexec.queues.batching import Element, cut
from aexec.queues.joining import Joining
from aexec.queues.queue_base import QueueBase, QueueStatistics

__all__ = ["Queue"]


class Queue:
    """A queue of a session, for Python programs.

    An element is a value, or a tuple of values if it has several components.

    Args:
        resource: the queue itself.
        cancellation: the session's.
        convert: for each component, the function that converts a value to an array.
        pool: the session's threads, in which much data is copied.

    Attributes:
        resource: the queue itself, as kernels use it.
    """

    def __init__(
        self,
        resource: QueueBase,
        cancellation: CancellationManager,
        convert: Sequence[Callable[[Any], Any]],
        pool: WorkerThreads,
    ) -> None:
        self.resource = resource
        self._cancellation = cancellation
        self._convert = convert
        self._pool = pool

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def closed(self) -> bool:
        return self.resource.closed

    def __len__(self) -> int:
        """The number of elements."""
        return len(self.resource)

    def __bool__(self) -> bool:
        return True

    def statistics(self) -> QueueStatistics:
        return self.resource.statistics()

    async def put(self, element: Any, *, limit: int | None = None) -> None:
        """Put a copy of an element; waits until there is room.

        Args:
            limit: wait until fewer elements than this are there, if it is less than the capacity.

        Raises:
            InvalidArgumentError: another number of components, or values of another type or shape.
            CancelledError: the queue is closed, or closes with `cancel_pending`; or the session closes.
            asyncio.CancelledError: the element was not put, or was removed again if nothing had taken it.
        """
        components = await self._pool.run_here_or_in_thread(self._components, element)
        await self._wait(self.resource.enqueue(components, limit), "Enqueue operation was cancelled")

    async def put_many(self, components: Any) -> None:
        """Put the rows of an array (or of a tuple of arrays), in order, each as soon as there is room.

        If it is cancelled in between, the rows that were put stay.  Raises as `put` does.
        """
        elements = await self._pool.run_here_or_in_thread(self._elements, components)
        await self._wait(self.resource.enqueue_all(elements), "Enqueue operation was cancelled")

    async def get(self) -> Any:
        """Take an element; waits until there is one.

        Raises:
            OutOfRangeError: the queue is closed and empty.
            CancelledError: the session closes.
        """
        return self._unpacked(await self._wait(self.resource.dequeue()))

    async def get_many(self, count: int, *, up_to: bool = False) -> Any:
        """Take `count` elements, as one array per component; waits until there are enough.

        Args:
            up_to: once the queue is closed, take fewer, but at least one.

        Raises:
            InvalidArgumentError: a negative count, or the queue's shapes are not specified.
            OutOfRangeError: the queue is closed before there are enough.
            CancelledError: the session closes.
        """
        _, components = await self._take_many(count, up_to)
        return self._unpacked(components)

    @asynccontextmanager
    async def taking(self, count: int | None = None, *, up_to: bool = False) -> AsyncIterator[Element]:
        """Like `get`, or `get_many` if a count is given, in a context: if the block raises, the elements are put back.

        The context's value is a tuple of the components' arrays, even if there is only one.
        """
        if count is None:
            components = await self._wait(self.resource.dequeue())
            elements = [components]
        else:
            elements, components = await self._take_many(count, up_to)
        try:
            yield components
        except BaseException:
            self.resource.give_back(elements)
            raise

    async def _take_many(self, count: int, up_to: bool) -> tuple[list[Element], Element]:
        """The elements, and the batch of them."""
        queue = self.resource

        def join(elements: list[Element]) -> tuple[list[Element], Element]:
            return elements, queue.join(elements)

        found = queue.dequeue_many(count, up_to=up_to, finish=list)
        joining = Joining(queue, found, join, self._pool, asyncio.get_running_loop())
        taken: tuple[list[Element], Element] = await self._wait(joining)
        return taken

    async def close(self, *, cancel_pending: bool = False) -> None:
        """Close the queue: no element can be put any more; those in it can still be taken.

        Args:
            cancel_pending: fail the waiting puts.  Otherwise closing waits for them.

        Raises:
            CancelledError: it is closed already; never with `cancel_pending`.
        """
        attempt = self.resource.request_close(cancel_pending_enqueues=cancel_pending)
        await self._wait(attempt, "Close operation was cancelled")

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            try:
                element = await self.get()
            except errors.OutOfRangeError:
                return
            yield element

    async def _wait(self, outcome: Any, message: str = "Dequeue operation was cancelled") -> Any:
        if not isinstance(outcome, Attempt | Joining):
            return outcome
        manager, loop = self._cancellation, outcome.get_loop()
        token = manager.get_cancellation_token()

        def cancel() -> None:
            loop.call_soon_threadsafe(outcome.fail, errors.CancelledError(message))

        if not manager.register_callback(token, cancel):
            outcome.fail(errors.CancelledError(message))
        try:
            return await settled(outcome)
        finally:
            manager.try_deregister_callback(token)

    def _elements(self, components: Any) -> list[Element]:
        arrays = self._components(components)
        self.resource.check_rows(arrays)
        check_inline(CUT_NS * len(arrays[0]))
        return cut(arrays)

    def _components(self, element: Any) -> Element:
        if len(self._convert) == 1:
            values: Iterable[Any] = (element,)
        elif isinstance(element, tuple | list) and len(element) == len(self._convert):
            values = element
        else:
            raise errors.InvalidArgumentError(
                f"Wrong number of components in tuple. Expected {len(self._convert)}, got {element!r:.200}"
            )
        arrays = [convert(value) for convert, value in zip(self._convert, values, strict=True)]
        check_inline(COPY_NS * sum(array.nbytes for array in arrays))
        # Copied, since the caller may go on writing to its arrays.
        return tuple([np.array(array) for array in arrays])

    @staticmethod
    def _unpacked(element: Element) -> Any:
        values = tuple(value if value.ndim else value[()] for value in element)
        return values[0] if len(values) == 1 else values

    def _repr_html_(self) -> str:
        return self.resource._repr_html_()

    def __repr__(self) -> str:
        return f"<Queue of a session: {self.resource!r}>"
