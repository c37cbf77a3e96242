"""Prefetching: elements are made before they are asked for, and wait in a FIFO queue of the session."""

from __future__ import annotations

import asyncio
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import DEFAULT_CONTAINER
from aexec.kernels.datasets.arguments import Made, integer
from aexec.queues.attempts import Attempt, settled
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueBase, QueueSpec
from aexec.resources.datasets.dataset import NOT_YET, DatasetIterator, Element, NotYet, Pass, Turns, dataset_of

_AUTOTUNE = -1
# The capacity of a queue that finds its own, at first and at most.
_FIRST, _MOST = 2, 512


class _Prefetched(DatasetIterator):
    """Takes elements of the input in the background.

    The queue is closed when the input has ended or failed.  After a failure a new task goes on with the next element.
    """

    __slots__ = (
        "_capacity",
        "_error",
        "_is_taking",
        "_name",
        "_pass",
        "_paused",
        "_queue",
        "_source",
        "_task",
        "_turns",
        "_types",
        "_was_full",
    )

    def __init__(self, one: Pass, source: DatasetIterator, name: str, types: tuple[DType, ...], capacity: int) -> None:
        self._pass = one
        self._source = source
        self._types = types
        self._capacity = capacity
        number = one.number(name)
        self._name = f"{one.name}/{name}" + (f"_{number}" if number else "")
        self._queue: FIFOQueue | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._was_full = False
        self._is_taking = False
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        queue = self._open() if self._queue is None else self._queue
        if self._task is None:
            await self._begin(queue)
        if self._capacity == _AUTOTUNE:
            self._grow(queue)
        try:
            element: Element = await settled(queue.dequeue())
            return element
        except errors.OutOfRangeError:
            failed, self._error = self._error, None
        except asyncio.CancelledError:
            self._pause()
            raise
        if failed is None:
            return None
        self.close()
        raise failed

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        queue = self._queue
        if queue is None or self._task is None or not len(queue):
            return NOT_YET
        if self._capacity == _AUTOTUNE:
            self._grow(queue)
        taken: Element | Attempt = queue.dequeue()
        if isinstance(taken, Attempt):  # others wait for elements of the queue
            taken.cancel()
            return NOT_YET
        return taken

    def _open(self) -> FIFOQueue:
        capacity = _FIRST if self._capacity == _AUTOTUNE else self._capacity
        name, number = self._name, 0
        # Another pass may have a queue of this node: one that ends later, or that of another step.
        while self._pass.resources.find(DEFAULT_CONTAINER, name, QueueBase) is not None:
            number += 1
            name = f"{self._name}_{number}"
        queue = FIFOQueue(name, QueueSpec(self._types, capacity=capacity))
        self._pass.resources.create(DEFAULT_CONTAINER, name, queue, QueueBase)
        self._queue = queue
        return queue

    async def _begin(self, queue: FIFOQueue) -> None:
        if self._paused is not None:
            await asyncio.wait([self._paused])
        self._task = self._pass.start(self._fetch(queue, self._pass.context), f"prefetch {self._name}")

    def _pause(self) -> None:
        """Stop working for a step that was cancelled, until an element is asked for again.

        Without this, a function that never returns would run on when nobody waits for it.  A task that waits for room
        in the queue holds an element, and does nothing.
        """
        if self._task is not None and not self._task.done() and self._is_taking:
            self._task.cancel()
            self._paused, self._task = self._task, None

    async def _take(self, context: OpKernelContext) -> Element | None:
        self._is_taking = True
        await self._turns.take()
        element = await self._source.next(context)
        self._is_taking = False
        return element

    async def _fetch(self, queue: FIFOQueue, context: OpKernelContext) -> None:
        try:
            while (element := await self._take(context)) is not None:
                await settled(queue.enqueue(element))
        except Exception as error:
            self._error = error
        queue.request_close(cancel_pending_enqueues=True)

    def _grow(self, queue: FIFOQueue) -> None:
        """Double the capacity when the queue is found empty after it was full."""
        if len(queue) >= queue.capacity:
            self._was_full = True
        elif self._was_full and not len(queue) and queue.capacity < _MOST:
            queue.capacity *= 2
            self._was_full = False

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        queue, self._task, self._queue = self._queue, None, None
        # None of its own if the session has cleared its resources.
        if queue is not None and self._pass.resources.find(DEFAULT_CONTAINER, queue.name, QueueBase) is queue:
            self._pass.resources.delete(DEFAULT_CONTAINER, queue.name, QueueBase)


@kernel("PrefetchDataset", cost=0)
def prefetch_dataset(c: OpKernelConstruction) -> Compute:
    made, least = Made(c), c.attr("buffer_size_min")

    def compute(tensor: Any, buffer_size: Any) -> Any:
        source, capacity = dataset_of(tensor), integer(buffer_size, "buffer_size")
        if capacity < _AUTOTUNE:
            raise errors.InvalidArgumentError("buffer_size must be >= 0 or AUTOTUNE")
        if not capacity:
            return made.of(source.iterator, source.cardinality())
        capacity = max(capacity, least) if capacity != _AUTOTUNE else capacity
        return made.of(
            lambda one: _Prefetched(one, one.begin(source), c.name, source.types, capacity), source.cardinality()
        )

    return compute
