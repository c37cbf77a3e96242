"""Datasets that call functions: map, filter, flat_map, interleave, scan, take_while.

A function runs within the step that asks for the element.  If that step is cancelled meanwhile, the function is called
again, with the same element, by the next one.  Next to read: `parallel_dataset_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.waiting.processors import num_processors
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import ONE_DATASET, Called, Made, instead_of_end, integer, was_cancelled
from aexec.kernels.datasets.row_functions import RowFunction
from aexec.resources.datasets.bare_strings import Strings, are_strings, begin_bare
from aexec.resources.datasets.dataset import (
    UNKNOWN,
    Dataset,
    DatasetIterator,
    Element,
    Elements,
    Pass,
    Turns,
    dataset_of,
)

__all__ = ["Call", "Interleaved", "MapEach", "MappedDataset", "OneByOne", "mapped_dataset"]

Call = Callable[[OpKernelContext, Element], Any]

# A cycle_length that is chosen here.
_AUTOTUNE = -1


class OneByOne(DatasetIterator):
    """Calls a function with each element of the input, and keeps the element until the call has succeeded or failed."""

    __slots__ = ("_call", "_source", "_taken")

    def __init__(self, source: DatasetIterator, call: Call) -> None:
        self._source = source
        self._call = call
        self._taken: Element | None = None

    async def take(self, context: OpKernelContext) -> Element | None:
        """The element that the function is to be called with; None at the end."""
        if self._taken is None:
            self._taken = await self._source.next(context)
        return self._taken

    async def called(self, context: OpKernelContext, arguments: Element) -> Element:
        """The results for the element taken, which is used up, unless the step is cancelled."""
        try:
            results: Element = tuple(await self._call(context, arguments))
        except BaseException as error:
            if not was_cancelled(context, error):
                self._taken = None
            raise
        self._taken = None
        return results


class _Mapped(OneByOne):
    """The results of a function for each element.

    Args:
        preserves: an OutOfRangeError of the function is an error, and not the end.
    """

    __slots__ = ("_preserves",)

    def __init__(self, source: DatasetIterator, call: Call, *, preserves: bool) -> None:
        super().__init__(source, call)
        self._preserves = preserves

    async def next(self, context: OpKernelContext) -> Element | None:
        element = await self.take(context)
        if element is None:
            return None
        try:
            return await self.called(context, element)
        except errors.OutOfRangeError as error:
            if (failed := instead_of_end(error, preserves=self._preserves)) is not None:
                raise failed from error
            return None


@kernel("MapDataset", "ExperimentalMapDataset", cost=0)
def map_dataset(c: OpKernelConstruction) -> Compute:
    made, function, preserves = Made(c), Called(c, "f", c.attr("output_types")), c.attr("preserve_cardinality")

    def compute(tensor: Any, *captured: Any) -> Any:
        source = dataset_of(tensor)
        call = function.with_captured(source.types, captured)
        count = source.cardinality() if preserves else UNKNOWN
        return mapped_dataset(
            made, function, source, captured, lambda _, elements: _Mapped(elements, call, preserves=preserves), count
        )

    return compute


# Makes the iterator that calls the function with each element of an iterator.
MapEach = Callable[[Pass, DatasetIterator], DatasetIterator]


class MappedDataset(Elements):
    """A dataset whose function may be called with a batch of its input's elements as well.

    Attributes:
        source: the input.
        function: in the form for batches.
        each: maps element by element.
    """

    __slots__ = ("each", "function", "source")

    def __init__(self, made: Made, source: Dataset, function: RowFunction, each: MapEach, count: int) -> None:
        super().__init__(made.name, made.types, made.shapes, lambda one: each(one, one.begin(source)), count)
        self.source = source
        self.function = function
        self.each = each


def mapped_dataset(
    made: Made, function: Called, source: Dataset, captured: Sequence[Any], each: MapEach, count: int
) -> Any:
    """The output of a node that maps a function: a `MappedDataset` if the function may allow for batches."""
    rows = function.for_rows(source, captured)
    if rows is None:
        return made.of(lambda one: each(one, one.begin(source)), count)
    return boxed(MappedDataset(made, source, rows, each, count))


def _truth(results: Sequence[Any], role: str) -> bool:
    if len(results) != 1 or np.ndim(results[0]) or np.asarray(results[0]).dtype != np.bool_:
        raise errors.InvalidArgumentError(f"`{role}` must return a scalar bool.")
    return bool(results[0])


class _Filtered(OneByOne):
    """The elements for which the function gives true."""

    __slots__ = ("_turns",)

    def __init__(self, source: DatasetIterator, call: Call) -> None:
        super().__init__(source, call)
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            element = await self.take(context)
            if element is None:
                return None
            if _truth(await self.called(context, element), "predicate"):
                return element
            await self._turns.take()


@kernel("FilterDataset", "ParallelFilterDataset", cost=0)
def filter_dataset(c: OpKernelConstruction) -> Compute:
    made, function = Made(c), Called(c, "predicate", (dtypes.bool_,))
    last = -1 if c.op == "ParallelFilterDataset" else None  # num_parallel_calls

    def compute(tensor: Any, *captured: Any) -> Any:
        source = dataset_of(tensor)
        made.check(source)
        call = function.with_captured(source.types, captured[:last])
        return made.of(lambda one: _Filtered(one.begin(source), call))

    return compute


class _TakenWhile(OneByOne):
    """The elements before the first for which the function gives false."""

    __slots__ = ("_ended",)

    def __init__(self, source: DatasetIterator, call: Call) -> None:
        super().__init__(source, call)
        self._ended = False

    async def next(self, context: OpKernelContext) -> Element | None:
        element = None if self._ended else await self.take(context)
        if element is None:
            return None
        if _truth(await self.called(context, element), "predicate"):
            return element
        self._ended = True
        return None


@kernel("TakeWhileDataset", "ExperimentalTakeWhileDataset", cost=0)
def take_while_dataset(c: OpKernelConstruction) -> Compute:
    made, function = Made(c), Called(c, "predicate", (dtypes.bool_,))

    def compute(tensor: Any, *captured: Any) -> Any:
        source = dataset_of(tensor)
        made.check(source)
        call = function.with_captured(source.types, captured)
        return made.of(lambda one: _TakenWhile(one.begin(source), call))

    return compute


class _Scanned(OneByOne):
    """Gives the function its state before the element, and takes its next state from the results."""

    __slots__ = ("_ended", "_preserves", "_state")

    def __init__(self, source: DatasetIterator, call: Call, state: Element, *, preserves: bool) -> None:
        super().__init__(source, call)
        self._state = state
        self._preserves = preserves
        self._ended = False

    async def next(self, context: OpKernelContext) -> Element | None:
        element = None if self._ended else await self.take(context)
        if element is None:
            return None
        try:
            results = await self.called(context, (*self._state, *element))
        except errors.OutOfRangeError as error:
            if (failed := instead_of_end(error, preserves=self._preserves)) is not None:
                raise failed from error
            self._ended = True
            return None
        self._state, given = results[: len(self._state)], results[len(self._state) :]
        return given


@kernel("ScanDataset", "ExperimentalScanDataset", cost=0)
def scan_dataset(c: OpKernelConstruction) -> Compute:
    made, state_types = Made(c), tuple(c.attr("Tstate"))
    function = Called(c, "f", (*state_types, *c.attr("output_types")))
    preserves = c.attr("preserve_cardinality")

    def compute(tensor: Any, *others: Any) -> Any:
        source = dataset_of(tensor)
        state, captured = others[: len(state_types)], others[len(state_types) :]
        call = function.with_captured((*state_types, *source.types), captured)
        count = source.cardinality() if preserves else UNKNOWN
        return made.of(lambda one: _Scanned(one.begin(source), call, state, preserves=preserves), count)

    return compute


class Interleaved(OneByOne):
    """Makes a dataset of each element of the input, and takes elements from `cycle` of these in turn, `block` at a
    time.

    The order is that of TensorFlow's InterleaveDataset; with one dataset at a time it is that of FlatMapDataset.

    Args:
        begin: makes an iterator over a dataset that the function gave; `one.begin` if None.
    """

    __slots__ = (
        "_begin",
        "_block",
        "_cycle",
        "_datasets",
        "_ended",
        "_in_block",
        "_one",
        "_open",
        "_position",
        "_turns",
    )

    def __init__(
        self,
        one: Pass,
        source: DatasetIterator,
        call: Call,
        cycle: int,
        block: int,
        begin: Callable[[Dataset], DatasetIterator] | None = None,
    ) -> None:
        super().__init__(source, call)
        self._one = one
        self._begin = begin or one.begin
        self._block = block
        self._cycle = cycle
        # As many as were in use until now, since `cycle` may be anything.
        self._datasets: list[DatasetIterator | None] = [None]
        self._open = self._position = self._in_block = 0
        self._ended = False
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while self._open or not self._ended:
            current = self._datasets[self._position]
            if current is not None:
                element = await current.next(context)
                if element is not None:
                    self._in_block += 1
                    if self._in_block == self._block:
                        self._go_on()
                    return element
                self._one.end(current)
                self._datasets[self._position] = None
                self._open -= 1
                self._go_on()
            elif self._ended:
                self._go_on()
            else:
                await self._open_next(context)
            await self._turns.take()
        return None

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        current = self._datasets[self._position]
        if current is None:
            return []
        is_alone = self._cycle == 1
        elements = current.many_at_once(context, most if is_alone else min(most, self._block - self._in_block))
        self._in_block += len(elements)
        if is_alone:
            self._in_block %= self._block
        elif self._in_block == self._block:
            self._go_on()
        return elements

    async def _open_next(self, context: OpKernelContext) -> None:
        taken = await self.take(context)
        if taken is None:
            self._ended = True
            return
        (tensor,) = await self.called(context, taken)
        self._datasets[self._position] = self._begin(dataset_of(tensor))
        self._open += 1

    def _go_on(self) -> None:
        self._in_block = 0
        self._position = (self._position + 1) % self._cycle
        if self._position == len(self._datasets):
            if self._ended:
                self._position = 0
            else:
                self._datasets.append(None)


def _interleaved(made: Made, source: Dataset, call: Call, cycle: int, block: int) -> Any:
    """The output of a node that interleaves datasets, which may be those of files' strings."""

    def make(one: Pass) -> DatasetIterator:
        return Interleaved(one, one.begin(source), call, cycle, block)

    def make_bare(one: Pass) -> DatasetIterator:
        return Interleaved(one, one.begin(source), call, cycle, block, lambda dataset: begin_bare(dataset, one))

    return boxed(Strings(made.name, make, make_bare)) if are_strings(made.types, made.shapes) else made.of(make)


@kernel("FlatMapDataset", cost=0)
def flat_map_dataset(c: OpKernelConstruction) -> Compute:
    made, function = Made(c), Called(c, "f", ONE_DATASET)

    def compute(tensor: Any, *captured: Any) -> Any:
        source = dataset_of(tensor)
        call = function.with_captured(source.types, captured)
        return _interleaved(made, source, call, 1, 1)

    return compute


@kernel("InterleaveDataset", cost=0)
def interleave_dataset(c: OpKernelConstruction) -> Compute:
    made, function = Made(c), Called(c, "f", ONE_DATASET)

    def compute(tensor: Any, *others: Any) -> Any:
        *captured, cycle_length, block_length = others
        source = dataset_of(tensor)
        call = function.with_captured(source.types, captured)
        cycle, block = integer(cycle_length, "cycle_length"), integer(block_length, "block_length")
        if cycle == _AUTOTUNE:
            cycle = num_processors()
        if cycle <= 0:
            raise errors.InvalidArgumentError("cycle_length must be greater than zero.")
        if block <= 0:
            raise errors.InvalidArgumentError("block_length must be greater than zero.")
        return _interleaved(made, source, call, cycle, block)

    return compute
