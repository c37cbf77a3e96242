"""Datasets of some of the elements of others: repeat, take, skip, shard, concatenate, zip; and those that change
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.kernels.datasets.arguments import Made, integer, was_cancelled
from aexec.resources.datasets.dataset import (
    INFINITE,
    NOT_YET,
    UNKNOWN,
    Dataset,
    DatasetIterator,
    Element,
    NotYet,
    Pass,
    Turns,
    dataset_of,
)

__all__ = ["sharded"]


class _Repeated(DatasetIterator):
    """Begins anew when the input has ended, `count` times, or for ever if that is negative.

    A dataset that is empty from its beginning is not repeated for ever.
    """

    __slots__ = ("_is_new", "_iterator", "_left", "_pass", "_source", "_turns")

    def __init__(self, one: Pass, source: Dataset, count: int) -> None:
        self._pass = one
        self._source = source
        self._left = count
        self._iterator: DatasetIterator | None = None
        self._is_new = True
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while self._left:
            if self._iterator is None:
                self._iterator = self._pass.begin(self._source)
                self._is_new = True
            element = await self._iterator.next(context)
            if element is not None:
                self._is_new = False
                return element
            self._pass.end(self._iterator)
            self._iterator = None
            self._left = 0 if self._is_new and self._left < 0 else self._left - 1
            await self._turns.take()
        return None

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        if self._iterator is None or self._is_new:
            return NOT_YET
        element = self._iterator.next_at_once(context)
        return NOT_YET if element is None else element  # `next` finds the end again

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        return [] if self._iterator is None or self._is_new else self._iterator.many_at_once(context, most)


@kernel("RepeatDataset", cost=0)
def repeat_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, count: Any) -> Any:
        source, times = dataset_of(tensor), integer(count, "count")
        elements = source.cardinality()
        if times >= 0:
            total = elements * times if elements >= 0 else elements if times else 0
        else:
            total = INFINITE if elements else 0
            total = UNKNOWN if elements == UNKNOWN else total
        return made.rearranged(source, lambda one, source: _Repeated(one, source, times), total)

    return compute


class _Taken(DatasetIterator):
    """The first elements of the input; all if `count` is negative."""

    __slots__ = ("_left", "_source")

    def __init__(self, source: DatasetIterator, count: int) -> None:
        self._source = source
        self._left = count

    async def next(self, context: OpKernelContext) -> Element | None:
        if not self._left:
            return None
        element = await self._source.next(context)
        self._left = 0 if element is None else self._left - 1
        return element

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        if not self._left:
            return None
        element = self._source.next_at_once(context)
        if element is not NOT_YET:
            self._left = 0 if element is None else self._left - 1
        return element

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        elements = self._source.many_at_once(context, most if self._left < 0 else min(most, self._left))
        self._left -= len(elements)
        return elements


@kernel("TakeDataset", cost=0)
def take_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, count: Any) -> Any:
        source, most = dataset_of(tensor), integer(count, "count")
        elements = source.cardinality()
        if most < 0 or elements == UNKNOWN:
            total = elements if most else 0
        else:
            total = most if elements == INFINITE else min(most, elements)
        return made.rearranged(source, lambda one, source: _Taken(one.begin(source), most), total)

    return compute


class _Skipped(DatasetIterator):
    """What comes after the first `count` elements of the input."""

    __slots__ = ("_left", "_source", "_turns")

    def __init__(self, source: DatasetIterator, count: int) -> None:
        self._source = source
        self._left = count
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while self._left:
            if await self._source.next(context) is None:
                self._left = 0
                return None
            self._left -= 1
            await self._turns.take()
        return await self._source.next(context)


@kernel("SkipDataset", cost=0)
def skip_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, count: Any) -> Any:
        source, number = dataset_of(tensor), integer(count, "count")
        elements = source.cardinality()
        if number < 0:
            return made.rearranged(source, lambda one, source: _Taken(one.begin(source), 0), 0)
        total = elements if elements < 0 else max(0, elements - number)
        return made.rearranged(source, lambda one, source: _Skipped(one.begin(source), number), total)

    return compute


class _Shard(DatasetIterator):
    """Each `shards`-th element of the input, beginning with number `index`."""

    __slots__ = ("_required", "_shards", "_skip", "_source", "_turns")

    def __init__(self, source: DatasetIterator, shards: int, index: int, *, required: bool) -> None:
        self._source = source
        self._shards = shards
        self._skip = index
        self._required = required
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            element = await self._source.next(context)
            if element is None:
                if self._required:
                    raise errors.InvalidArgumentError(
                        "Could not apply FILE based sharding: the dataset only has fewer elements than there are "
                        f"shards ({self._shards})"
                    )
                return None
            if not self._skip:
                self._required = False
                self._skip = self._shards - 1
                return element
            self._skip -= 1
            await self._turns.take()


@kernel("ShardDataset", cost=0)
def shard_dataset(c: OpKernelConstruction) -> Compute:
    made, required = Made(c), c.attr("require_non_empty")

    def compute(tensor: Any, num_shards: Any, index: Any) -> Any:
        source, shards, number = dataset_of(tensor), integer(num_shards, "num_shards"), integer(index, "index")
        if shards <= 0:
            raise errors.InvalidArgumentError(
                f"Number of shards must be greater than zero (currently num_shards = {shards})."
            )
        if not 0 <= number < shards:
            raise errors.InvalidArgumentError(f"Index must be between 0 and {shards - 1} (currently index = {number}).")
        return sharded(made, source, shards, number, required=required)

    return compute


def sharded(made: Made, source: Dataset, shards: int, number: int, *, required: bool = False) -> Any:
    """A node's output: each `shards`-th element, beginning with the one of this number.

    Args:
        required: a dataset without any is an error.
    """
    elements = source.cardinality()
    total = elements if elements < 0 else max(0, -((number - elements) // shards))

    def make(one: Pass, source: Dataset) -> DatasetIterator:
        return _Shard(one.begin(source), shards, number, required=required)

    return made.rearranged(source, make, total)


class _Concatenated(DatasetIterator):
    """The elements of one dataset after another."""

    __slots__ = ("_current", "_pass", "_sources", "_turns")

    def __init__(self, one: Pass, sources: Sequence[Dataset]) -> None:
        self._pass = one
        self._sources = list(sources)
        self._current: DatasetIterator | None = None
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            if self._current is None:
                if not self._sources:
                    return None
                self._current = self._pass.begin(self._sources.pop(0))
            element = await self._current.next(context)
            if element is not None:
                return element
            self._pass.end(self._current)
            self._current = None
            await self._turns.take()


@kernel("ConcatenateDataset", cost=0)
def concatenate_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(first: Any, second: Any) -> Any:
        sources = dataset_of(first), dataset_of(second)
        if sources[0].types != sources[1].types:
            raise errors.InvalidArgumentError(
                "input dataset and dataset to concatenate have different output_types "
                f"{', '.join(map(str, sources[0].types))} and {', '.join(map(str, sources[1].types))}"
            )
        counts = [source.cardinality() for source in sources]
        total = INFINITE if INFINITE in counts else UNKNOWN if UNKNOWN in counts else sum(counts)
        return made.of(lambda one: _Concatenated(one, sources), total)

    return compute


class _Zipped(DatasetIterator):
    """An element of each input, side by side, until one of them ends.

    An input begins when its first element is asked for: one that is zipped with itself, again and again, has a number
    of iterators that doubles each time.
    """

    __slots__ = ("_begun", "_error", "_pass", "_sources", "_taken", "_turns")

    def __init__(self, one: Pass, sources: Sequence[Dataset]) -> None:
        self._pass = one
        self._sources = sources
        self._begun: list[DatasetIterator] = []
        self._turns = Turns()
        self._taken: list[Element] = []
        self._error: errors.OpError | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        while len(self._taken) < len(self._sources):
            number = len(self._taken)
            if number == len(self._begun):
                self._begun.append(self._pass.begin(self._sources[number]))
                await self._turns.take()
            try:
                element = await self._begun[number].next(context)
            except errors.OpError as error:
                if was_cancelled(context, error):
                    raise
                # The others go on too, so that the next elements belong together.
                self._error = self._error or error
                element = ()
            if element is None:
                self._taken = []
                self._error = None
                return None
            self._taken.append(element)
        taken, self._taken = self._taken, []
        failed, self._error = self._error, None
        if failed is not None:
            raise failed
        return tuple([component for element in taken for component in element])


@kernel("ZipDataset", cost=0)
def zip_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(*tensors: Any) -> Any:
        sources = [dataset_of(tensor) for tensor in tensors]
        counts = [source.cardinality() for source in sources]
        finite = [count for count in counts if count != INFINITE]
        total = UNKNOWN if UNKNOWN in counts else min(finite, default=INFINITE)
        return made.of(lambda one: _Zipped(one, sources), total)

    return compute


# Those that change nothing: they advise TensorFlow's runtime how to execute what is before them.


def _same(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, *_: Any) -> Any:
        source = dataset_of(tensor)
        return made.rearranged(source, lambda one, source: source.iterator(one), source.cardinality())

    return compute


for _op in (
    *(
        "ModelDataset",
        "RewriteDataset",
        "OptimizeDataset",
        "OptimizeDatasetV2",
        "OptionsDataset",
        "FinalizeDataset",
        "AssertNextDataset",
    ),
    *("ExperimentalAssertNextDataset", "AssertPrevDataset", "NonSerializableDataset"),
    *("ExperimentalNonSerializableDataset", "MaxIntraOpParallelismDataset", "PrivateThreadPoolDataset"),
    *("ExperimentalMaxIntraOpParallelismDataset", "ExperimentalPrivateThreadPoolDataset"),
    *("ThreadPoolDataset", "ExperimentalThreadPoolDataset", "LatencyStatsDataset", "ExperimentalLatencyStatsDataset"),
    *("BytesProducedStatsDataset", "ExperimentalBytesProducedStatsDataset"),
):
    kernel(_op, cost=0)(_same)


class _Counted(DatasetIterator):
    """The input's elements, which must be as many as was promised."""

    __slots__ = ("_count", "_number", "_source")

    def __init__(self, source: DatasetIterator, count: int) -> None:
        self._source = source
        self._count = count
        self._number = 0

    async def next(self, context: OpKernelContext) -> Element | None:
        element = await self._source.next(context)
        if element is None:
            if self._count != UNKNOWN and self._number != self._count:
                raise errors.FailedPreconditionError(
                    f"Input dataset was expected to contain {_elements(self._count)} but contained only "
                    f"{_elements(self._number)}."
                )
            return None
        self._number += 1
        if 0 <= self._count < self._number:
            raise errors.FailedPreconditionError(
                f"Input dataset was expected to contain {_elements(self._count)} but contained at least "
                f"{_elements(self._number)}."
            )
        return element


def _elements(count: int) -> str:
    if count == INFINITE:
        return "an infinite number of elements"
    return "1 element" if count == 1 else f"{count} elements"


@kernel("AssertCardinalityDataset", cost=0)
def assert_cardinality_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, cardinality: Any) -> Any:
        source, count = dataset_of(tensor), integer(cardinality, "cardinality")
        return made.of(lambda one: _Counted(one.begin(source), count), count)

    return compute
