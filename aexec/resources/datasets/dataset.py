"""`Dataset`: an immutable description of a sequence of elements.  `DatasetIterator`: one pass through it.

An element is a tuple of read-only arrays.  In a graph, a dataset is the element of a scalar variant.  Each pass creates
a new iterator.  The iterator of a transformation takes elements from the iterator of its input: a pipeline is a chain
of iterators, and the consumer calls the last one.

An iterator is called for one element at a time, within some step.  If that step is cancelled, the call ends at once,
like a waiting dequeue, and must lose nothing: **before an iterator awaits, it stores what it has taken in attributes,
not in local variables of a coroutine.**  The next call continues where the cancelled one stopped.  After an error, the
next call continues with the next element.

Next to read: `iterator_resource.py`, then `aexec/kernels/datasets/counted_dataset_ops.py`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from time import perf_counter
from typing import Any, Final, TypeVar

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.loop_budget import SLICE_SECONDS

__all__ = [
    "INFINITE",
    "MANY",
    "NOT_YET",
    "UNKNOWN",
    "Dataset",
    "DatasetIterator",
    "Element",
    "Elements",
    "NotYet",
    "Pass",
    "Turns",
    "dataset_of",
]

T = TypeVar("T")
Element = tuple[Any, ...]


class NotYet(Enum):
    """The type of `NOT_YET`, returned in place of an element that is not available without waiting."""

    NOT_YET = "not yet"


NOT_YET: Final = NotYet.NOT_YET

INFINITE: Final = -1
"""The cardinality of a dataset without end."""
UNKNOWN: Final = -2
"""The cardinality of a dataset whose elements have to be counted."""


MANY: Final = 250
"""The most elements to ask `DatasetIterator.many_at_once` for, so that the event loop gets its turn."""


# Bytes of an iterator, with its entry in its pass.
_ITERATOR_BYTES: Final = 1000


class Dataset(ABC):
    """An immutable description of a sequence of elements.

    Args:
        name: name of the node that makes it, for errors and for the names of its queues.
        types: dtypes of an element's components.
        shapes: static shapes of the components.
    """

    __slots__ = ("__weakref__", "name", "shapes", "types")

    def __init__(self, name: str, types: tuple[DType, ...], shapes: tuple[PartialTensorShape, ...]) -> None:
        self.name = name
        self.types = types
        self.shapes = shapes

    def cardinality(self) -> int:
        """The number of its elements, `INFINITE` or `UNKNOWN`."""
        return UNKNOWN

    @abstractmethod
    def iterator(self, one: Pass) -> DatasetIterator:
        """Create an iterator at the first element; it does no work before its first call.

        Args:
            one: the pass that the iterator belongs to.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class DatasetIterator(ABC):
    """One pass through a dataset.  It is used by one caller at a time, on the thread of the event loop."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    async def next(self, context: OpKernelContext) -> Element | None:
        """Return the next element; None at the end, and in every later call.

        Args:
            context: context of the calling kernel; functions run within its step.

        Raises:
            OpError: the element cannot be computed.  The next call continues with the element after it.
            asyncio.CancelledError: the step was cancelled.  The next call continues with the same element.
        """

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        """Return the result of `next` if that takes little work and no waiting; else `NOT_YET`, without any effect.

        Raises:
            OpError: as `next`.
        """
        return NOT_YET

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        """Return up to `most` next elements that are available without waiting and with little work each.

        Empty if the next element must be waited for, is an error, or does not exist; `next` tells which.
        """
        return []

    def close(self) -> None:  # noqa: B027 (most have nothing to do)
        """Stop background work, and close files.  Called once, when the pass is over."""


class Elements(Dataset):
    """A dataset whose iterators a function creates.

    Args:
        make: pass → iterator.
        count: the cardinality.
    """

    __slots__ = ("_count", "_make")

    def __init__(
        self,
        name: str,
        types: tuple[DType, ...],
        shapes: tuple[PartialTensorShape, ...],
        make: Callable[[Pass], DatasetIterator],
        count: int = UNKNOWN,
    ) -> None:
        super().__init__(name, types, shapes)
        self._make = make
        self._count = count

    def cardinality(self) -> int:
        return self._count

    def iterator(self, one: Pass) -> DatasetIterator:
        return self._make(one)


class Pass:
    """The state that the iterators of one pass share: background work, memory accounting, and seeds.

    Args:
        name: the name of the pass's iterator, for tasks and queues.
        context: context of the kernel that begins the pass.

    Attributes:
        name: as given.
        resources: the session's resource manager.
        kept: counts the bytes of the elements that iterators hold; None if the session does not count.
    """

    __slots__ = (
        "_background",
        "_closers",
        "_context",
        "_numbers",
        "_states",
        "kept",
        "name",
        "resources",
    )

    def __init__(self, name: str, context: OpKernelContext) -> None:
        self.name = name
        self.resources = context.resources
        self._background = context.background
        self.kept: KeptMemory | None = self._background.kept
        self._context: OpKernelContext | None = None
        self._closers: dict[int, Callable[[], object]] = {}
        self._states: dict[int, tuple[Any, Any]] = {}
        self._numbers: dict[str, int] = {}

    def begin(self, dataset: Dataset) -> DatasetIterator:
        """Create an iterator over `dataset`, which is closed with the pass, or earlier by `end`.

        Raises:
            ResourceExhaustedError: the chain of datasets is too deep.
        """
        try:
            return self.adopt(dataset.iterator(self))
        except RecursionError:
            raise errors.ResourceExhaustedError(
                f"{dataset.name} is made of too many datasets, one on top of the other"
            ) from None

    def adopt(self, iterator: DatasetIterator) -> DatasetIterator:
        """Register an iterator to be closed with the pass, or earlier by `end`; return it.

        Raises:
            ResourceExhaustedError: the session's limit does not allow another iterator.
        """
        if self.kept is not None:
            self.kept.hold(iterator, _ITERATOR_BYTES)
        self._closers[id(iterator)] = iterator.close
        return iterator

    def end(self, iterator: DatasetIterator) -> None:
        """Close an iterator before the pass is over."""
        close = self._closers.pop(id(iterator), None)
        if close is not None:
            close()

    def state(self, of: object, make: Callable[[], T]) -> T:
        """The state that all iterators over one dataset share within this pass, such as seeds; created on first use.

        Args:
            of: an object that identifies the dataset.
        """
        if id(of) not in self._states:
            self._states[id(of)] = of, make()
        found: T = self._states[id(of)][1]
        return found

    def number(self, name: str) -> int:
        """The next of the numbers 0, 1, 2, …, which tell iterators with the same name apart."""
        number = self._numbers.get(name, 0)
        self._numbers[name] = number + 1
        return number

    def keep(self, element: Element) -> Element:
        """Charge an element's bytes to the session until their memory is freed; return the element, as arrays.

        Raises:
            ResourceExhaustedError: the session's limit is exceeded.
        """
        if self.kept is None:
            return element
        arrays = tuple([np.asarray(component) for component in element])  # numbers without an array are not counted
        self.kept.keep(arrays)
        return arrays

    def count(self, keeper: DatasetIterator | Dataset, num_bytes: int) -> None:
        """Set the bytes to charge for data that an iterator or a dataset holds besides elements.

        Raises:
            ResourceExhaustedError: the session's limit is exceeded.
        """
        if self.kept is not None:
            self.kept.hold(keeper, _ITERATOR_BYTES + num_bytes)

    @contextmanager
    def expecting(self, num_bytes: int) -> Iterator[None]:
        """Context manager: charge bytes that are about to be allocated, until the block is left.

        Raises:
            ResourceExhaustedError: the session's limit is exceeded.
        """
        if self.kept is None:
            yield
            return
        expected = _Expected()
        self.kept.hold(expected, num_bytes)
        try:
            yield
        finally:
            self.kept.hold(expected, 0)

    @property
    def context(self) -> OpKernelContext:
        """The context of background work."""
        if self._context is None:
            self._context = OpKernelContext(self._background.new_params())
        return self._context

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in the background.  It is cancelled when the session closes, not at the end of the pass."""
        return self._background.start(work, f"iterator {self.name}: {name}")

    def finish(self, work: Callable[[OpKernelContext], Coroutine[Any, Any, None]], name: str) -> None:
        """Run work in the background after the pass, unless the session closes.

        Args:
            work: called with a new context, because that of the pass is cancelled.
        """
        context = OpKernelContext(self._background.new_params())

        async def finished() -> None:
            try:
                await work(context)
            finally:
                context.cancellation.close()

        if context.cancellation.cancel_requested:
            context.cancellation.close()
        else:
            self.start(finished(), name)

    def close(self) -> None:
        """End the pass: close its iterators in reverse order."""
        closers, self._closers = self._closers, {}
        for close in reversed(closers.values()):
            close()
        if self._context is not None:
            self._context.cancellation.start_cancel_with_status(errors.CancelledError("Iterator was closed"))
            self._context.cancellation.close()
            self._context = None
        self._states.clear()


class _Expected:
    """Represents memory that is about to be allocated, for accounting."""


class Turns:
    """Yields to the event loop from a loop over many elements."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = perf_counter() + SLICE_SECONDS

    async def take(self) -> None:
        """Call it for each element: yields to other tasks if this one has held the event loop for a time slice."""
        if perf_counter() >= self._end:
            await asyncio.sleep(0)
            self._end = perf_counter() + SLICE_SECONDS


def dataset_of(tensor: Any) -> Dataset:
    """The dataset in a scalar variant.

    Raises:
        InvalidArgumentError: the tensor has another shape, or holds something else.
    """
    value = tensor[()] if isinstance(tensor, np.ndarray) and not tensor.ndim else None
    if not isinstance(value, Dataset):
        raise errors.InvalidArgumentError("Tensor must be a Dataset object.")
    return value
