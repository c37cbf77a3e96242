"""`MultiDeviceIterator`: an iterator that distributes its elements to devices round robin."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import PartialTensorShape
from aexec.resources.datasets.dataset import Dataset, Element
from aexec.resources.datasets.iterator_resource import RunningPass, check_compatible

__all__ = ["MultiDeviceIterator"]

_Outcome = Element | errors.OpError


class _Deal:
    """A pass whose elements are distributed to shards round robin.

    A request for an element of one shard also takes elements of the other shards, and buffers up to `most` for each.
    """

    def __init__(self, running: RunningPass, shards: int, most: int) -> None:
        self._running = running
        self._most = most
        self._waiting: list[deque[_Outcome]] = [deque() for _ in range(shards)]
        self._next_shard = 0
        self._ended = False
        self._is_taking = False
        self._changed = asyncio.Event()

    async def next(self, context: OpKernelContext, shard: int) -> Element | None:
        mine = self._waiting[shard]
        while not mine:
            if self._ended:
                return None
            if self._is_taking or len(self._waiting[self._next_shard]) >= self._most:
                await self._changed.wait()
            else:
                await self._take(context)
        outcome = mine.popleft()
        self._notify()
        if isinstance(outcome, errors.OpError):
            raise outcome
        return outcome

    async def _take(self, context: OpKernelContext) -> None:
        self._is_taking = True
        try:
            outcome: _Outcome | None = await self._running.next(context)
        except errors.OpError as error:
            if context.cancellation.cancel_requested:
                raise
            outcome = error
        finally:
            self._is_taking = False
            self._notify()
        if outcome is None:
            self._ended = True
            return
        self._waiting[self._next_shard].append(outcome)
        self._next_shard = (self._next_shard + 1) % len(self._waiting)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        self._running.end()


class MultiDeviceIterator:
    """A named iterator with a shard of its elements for each device.

    Args:
        name: name for errors, tasks and queues.
        num_devices: number of shards.
        types, shapes: dtypes that elements must have, and shapes that they must be compatible with.

    Attributes:
        name, types, shapes: as given.
        kept: counts the bytes of the elements that the iterator holds; None if the session does not count.
    """

    def __init__(
        self, name: str, num_devices: int, types: Sequence[DType], shapes: Sequence[PartialTensorShape]
    ) -> None:
        self.name = name
        self.types = tuple(types)
        self.shapes = tuple(shapes)
        self.kept: KeptMemory | None = None
        self._shards = num_devices
        self._incarnation = 0
        self._deal: _Deal | None = None

    def begin(self, dataset: Dataset, context: OpKernelContext, most: int) -> int:
        """Begin a new pass; return its number, which `next` takes.

        Args:
            most: greatest number of buffered elements per shard.

        Raises:
            InvalidArgumentError: the dataset's elements do not have the iterator's dtypes or shapes.
        """
        check_compatible(self.types, self.shapes, dataset.types, dataset.shapes)
        before, self._deal = self._deal, _Deal(RunningPass(self.name, dataset, context), self._shards, most)
        if before is not None:
            before.end()
        self._incarnation += 1
        return self._incarnation

    async def next(self, context: OpKernelContext, shard: int, incarnation: int) -> Element | None:
        """Return the next element of a shard, or None at the end.

        Raises:
            FailedPreconditionError: no pass has begun.
            InvalidArgumentError: a later pass has begun, or there is no such shard.
            OpError: the element cannot be computed.
        """
        if self._deal is None:
            raise errors.FailedPreconditionError("The multi-device iterator has not been initialized.")
        if incarnation != self._incarnation:
            raise errors.InvalidArgumentError(
                f"Invalid incarnation id. Provided: {incarnation}; Expected: {self._incarnation}"
            )
        if not 0 <= shard < self._shards:
            raise errors.InvalidArgumentError(f"Invalid shard number: {shard} of {self._shards}")
        return await self._deal.next(context, shard)

    def close(self) -> None:
        """End the pass.  Called when the iterator is removed from its container."""
        deal, self._deal = self._deal, None
        if deal is not None:
            deal.end()

    def __repr__(self) -> str:
        return f"<MultiDeviceIterator {self.name} of {self._shards} shards>"
