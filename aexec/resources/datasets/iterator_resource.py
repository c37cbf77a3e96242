"""`IteratorResource`: a named iterator from which steps take elements.

Concurrent steps wait in FIFO order.  A new pass may begin at any time; steps that wait for an element of the old pass
still get it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import PartialTensorShape
from aexec.resources.datasets.dataset import NOT_YET, Dataset, Element, NotYet, Pass, Turns
from aexec.resources.datasets.iterator_position import IteratorPosition

__all__ = ["IteratorResource", "RunningPass", "check_compatible"]


class RunningPass:
    """A pass with its queue of waiting steps.

    Attributes:
        dataset: as given.
        number: number of elements taken so far; an error in place of an element counts.
        over: True once the pass is to end as soon as no step waits for it.
    """

    __slots__ = ("_begun", "_iterator", "_line", "_users", "dataset", "number", "over")

    def __init__(self, name: str, dataset: Dataset, context: OpKernelContext) -> None:
        self.dataset = dataset
        self._begun = Pass(name, context)
        self._iterator = self._begun.begin(dataset)
        self._line = asyncio.Lock()
        self._users = 0
        self.number = 0
        self.over = False

    async def next(self, context: OpKernelContext) -> Element | None:
        """Return the next element, or None at the end, to waiting steps in FIFO order."""
        self._users += 1
        try:
            async with self._line:
                return await self._next(context)
        finally:
            self._users -= 1
            if self.over:
                self.end()

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        """What `next` returns, if the element is there and nobody else waits; else `NOT_YET`."""
        if self._users:
            return NOT_YET
        try:
            element = self._iterator.next_at_once(context)
        except errors.OpError:
            self.number += 1
            raise
        self.number += element is not None and element is not NOT_YET
        return element

    async def _next(self, context: OpKernelContext) -> Element | None:
        try:
            element = await self._iterator.next(context)
        except errors.OpError:
            self.number += not context.cancellation.cancel_requested
            raise
        self.number += element is not None
        return element

    async def skip(self, context: OpKernelContext, number: int) -> None:
        """Take and drop as many elements as another pass has taken; errors in place of elements count."""
        turns = Turns()
        while self.number < number:
            try:
                if await self.next(context) is None:
                    return
            except errors.OpError:
                if context.cancellation.cancel_requested:
                    raise
            await turns.take()

    def end(self) -> None:
        """Close the pass as soon as no step waits for its elements."""
        self.over = True
        if not self._users:
            self._begun.close()


class IteratorResource:
    """A named iterator.

    Args:
        name: name for errors, tasks and queues.
        types: dtypes that elements must have.
        shapes: shapes that elements must be compatible with.

    Attributes:
        name, types, shapes: as given.
        kept: counts the bytes of the elements that the iterator holds; None if the session does not count.
    """

    def __init__(self, name: str, types: Sequence[DType], shapes: Sequence[PartialTensorShape]) -> None:
        self.name = name
        self.types = tuple(types)
        self.shapes = tuple(shapes)
        self.kept: KeptMemory | None = None
        self._running: RunningPass | None = None

    def begin(self, dataset: Dataset, context: OpKernelContext) -> None:
        """Begin a new pass through a dataset.

        Raises:
            InvalidArgumentError: the dataset's elements do not have the iterator's dtypes or shapes.
        """
        check_compatible(self.types, self.shapes, dataset.types, dataset.shapes)
        before, self._running = self._running, RunningPass(self.name, dataset, context)
        if before is not None:
            before.end()

    @property
    def has_begun(self) -> bool:
        """True if a pass has begun."""
        return self._running is not None

    def position(self) -> IteratorPosition:
        """The position of the current pass.  Raises FailedPreconditionError if no pass has begun."""
        return IteratorPosition(self._begun("saving", "Save()").number)

    async def restore(self, position: IteratorPosition, context: OpKernelContext) -> None:
        """Begin a new pass through the current dataset, and advance it to a position.

        Raises:
            FailedPreconditionError: no pass has begun.
        """
        dataset = self._begun("restoring", "Restore").dataset
        new = RunningPass(self.name, dataset, context)
        try:
            await new.skip(context, position.number)
        except BaseException:
            new.end()
            raise
        before, self._running = self._running, new
        if before is not None:
            before.end()

    def _begun(self, doing: str, what: str) -> RunningPass:
        if self._running is None:
            raise errors.FailedPreconditionError(
                f"{what} failed because the iterator has not been initialized. Ensure that you have run the "
                f"initializer operation for this iterator before {doing} it."
            )
        return self._running

    async def next(self, context: OpKernelContext) -> Element | None:
        """Return the next element, or None at the end.

        Raises:
            FailedPreconditionError: no pass has begun.
            OpError: the element cannot be computed.
        """
        return await self._pass().next(context)

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        """What `next` returns, if the element is there and nobody else waits; else `NOT_YET`.  Raises as `next`."""
        return self._pass().next_at_once(context)

    def _pass(self) -> RunningPass:
        if self._running is None:
            raise errors.FailedPreconditionError(
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                "initializer operation for this iterator before getting the next element."
            )
        return self._running

    def close(self) -> None:
        """End the pass.  Called when the iterator is removed from its container."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def __repr__(self) -> str:
        state = "not begun" if self._running is None else f"after {self._running.number} elements"
        return f"<IteratorResource {self.name}, {state}>"


def check_compatible(
    types: Sequence[DType],
    shapes: Sequence[PartialTensorShape],
    given_types: Sequence[DType],
    given_shapes: Sequence[PartialTensorShape],
) -> None:
    """Raise InvalidArgumentError unless elements have the iterator's dtypes and compatible shapes.

    An iterator without dtypes accepts any elements.
    """
    if not types:
        return
    if len(types) != len(given_types):
        raise errors.InvalidArgumentError(
            f"Number of components does not match: expected {len(types)} types but got {len(given_types)}."
        )
    for index, (expected, given) in enumerate(zip(types, given_types, strict=True)):
        if expected is not given:
            raise errors.InvalidArgumentError(
                f"Data type mismatch at component {index}: expected {expected} but got {given}."
            )
    for index, (wanted, shape) in enumerate(zip(shapes, given_shapes, strict=False)):
        if not wanted.is_compatible_with(shape):
            raise errors.InvalidArgumentError(
                f"Incompatible shapes at component {index}: expected {wanted} but got {shape}."
            )
