"""`Dataset`: a recipe for a sequence of elements.  `DatasetIterator`: one pass through it.

An element is a tuple of arrays, which nobody may write to.  A dataset flows through graphs as the element of a scalar
variant; it never changes, and each pass through it begins with a new iterator.  The iterator of a transformation takes
elements from the iterator of its input, so a pipeline is a chain of iterators, of which the last one is asked.

An iterator is asked for one element at a time, within some step.  When that step is cancelled, the call ends at once,
as a waiting dequeue does, and nothing may be lost by it: **an iterator keeps what it has taken in its attributes, not
in variables of a coroutine, before it awaits anything.**  The next call then goes on where the last one stopped.
After an error it goes on with the next element.

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
    """The type of `NOT_YET`, which stands for an element that has to be waited for."""

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
    """A recipe for elements.  It never changes.

    Args:
        name: the node that makes it, for errors and for the names of its queues.
        types: the types of an element's components.
        shapes: their shapes, as far as they are known.
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
        """An iterator that begins with the first element; it does no work before it is asked for one.

        Args:
            one: the pass that it is part of.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class DatasetIterator(ABC):
    """One pass through a dataset.  It is used by one caller at a time, on the thread of the event loop."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    async def next(self, context: OpKernelContext) -> Element | None:
        """The next element, or None at the end, and ever after.

        Args:
            context: of the kernel that asks; functions run within its step.

        Raises:
            OpError: the element cannot be made.  The next call goes on with the one after it.
            asyncio.CancelledError: the step was cancelled.  The next call goes on with the same element.
        """

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        """What `next` returns, if that needs little work and no waiting; else `NOT_YET`, and nothing is lost.

        Raises:
            OpError: as `next`.
        """
        return NOT_YET

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        """The next elements, as many of the first `most` as are there without waiting and with little work for each.

        Empty if the next one has to be waited for, or is an error, or if there is none: then `next` tells.
        """
        return []

    def close(self) -> None:  # noqa: B027 (most have nothing to do)
        """Stop what the iterator does in the background, and close its files.  Called once, when the pass is over."""


class Elements(Dataset):
    """A dataset whose iterator is made by a function.

    Args:
        make: makes an iterator, given the pass.
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
    """What the iterators of one pass have in common: what they do beyond the calls of steps, and what they count.

    Args:
        name: the name of the pass's iterator, for tasks and queues.
        context: of the kernel that begins the pass.

    Attributes:
        name: as given.
        resources: the session's resource manager.
        kept: counts the bytes of the elements that iterators keep, or None.
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
        """An iterator over `dataset`, which is closed with the pass, or by `end`.

        Raises:
            ResourceExhaustedError: the dataset is made of too many others, one on top of the other.
        """
        try:
            return self.adopt(dataset.iterator(self))
        except RecursionError:
            raise errors.ResourceExhaustedError(
                f"{dataset.name} is made of too many datasets, one on top of the other"
            ) from None

    def adopt(self, iterator: DatasetIterator) -> DatasetIterator:
        """Close the iterator with the pass, or by `end`; returns it.

        Raises:
            ResourceExhaustedError: the session's limit does not allow for one more iterator.
        """
        if self.kept is not None:
            self.kept.hold(iterator, _ITERATOR_BYTES)
        self._closers[id(iterator)] = iterator.close
        return iterator

    def end(self, iterator: DatasetIterator) -> None:
        """Close an iterator that is not used any more."""
        close = self._closers.pop(id(iterator), None)
        if close is not None:
            close()

    def state(self, of: object, make: Callable[[], T]) -> T:
        """What the iterators over one dataset share within this pass, such as its seeds; made for the first.

        Args:
            of: an object that stands for the dataset.
        """
        if id(of) not in self._states:
            self._states[id(of)] = of, make()
        found: T = self._states[id(of)][1]
        return found

    def number(self, name: str) -> int:
        """0, 1, 2, …: a number for the next of the iterators with one name."""
        number = self._numbers.get(name, 0)
        self._numbers[name] = number + 1
        return number

    def keep(self, element: Element) -> Element:
        """Count the element's bytes for the session until their memory is freed; returns it, as arrays.

        Raises:
            ResourceExhaustedError: the session's limit does not allow it.
        """
        if self.kept is None:
            return element
        arrays = tuple([np.asarray(component) for component in element])  # numbers without an array are not counted
        self.kept.keep(arrays)
        return arrays

    def count(self, keeper: DatasetIterator | Dataset, num_bytes: int) -> None:
        """Set the bytes that count for what an iterator or a dataset keeps besides elements.

        Raises:
            ResourceExhaustedError: the session's limit does not allow it.
        """
        if self.kept is not None:
            self.kept.hold(keeper, _ITERATOR_BYTES + num_bytes)

    @contextmanager
    def expecting(self, num_bytes: int) -> Iterator[None]:
        """Context manager: count bytes that are about to be used, until the block is left.

        Raises:
            ResourceExhaustedError: the session's limit does not allow it.
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
        """The context for what is done in the background."""
        if self._context is None:
            self._context = OpKernelContext(self._background.new_params())
        return self._context

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in the background; it is cancelled when the session closes, but not with the pass."""
        return self._background.start(work, f"iterator {self.name}: {name}")

    def finish(self, work: Callable[[OpKernelContext], Coroutine[Any, Any, None]], name: str) -> None:
        """Run what has to be done after the pass, in the background; not when the session closes.

        Args:
            work: given a context of its own, because that of the pass is cancelled with it.
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
        """End the pass: close its iterators, the last one first."""
        closers, self._closers = self._closers, {}
        for close in reversed(closers.values()):
            close()
        if self._context is not None:
            self._context.cancellation.start_cancel_with_status(errors.CancelledError("Iterator was closed"))
            self._context.cancellation.close()
            self._context = None
        self._states.clear()


class _Expected:
    """Stands for memory that is about to be used."""


class Turns:
    """Gives the event loop its turn in a loop that may go through many elements."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = perf_counter() + SLICE_SECONDS

    async def take(self) -> None:
        """Called for each element: let others run if this loop has held the event loop for a slice."""
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
