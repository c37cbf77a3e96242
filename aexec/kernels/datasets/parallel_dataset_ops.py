"""Datasets whose functions are called for several elements at once: parallel map, map and batch, parallel interleave.

The calls run in the background, a limited number of them ahead of the element that is asked for.  Results come in the
order of the input.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.waiting.processors import num_processors
from aexec.kernels.datasets.arguments import ONE_DATASET, Called, Made, flag, instead_of_end, integer
from aexec.kernels.datasets.batch_dataset_ops import Batched, MappedBatches, batch_size_of, num_batches
from aexec.kernels.datasets.batch_joins import PlainJoin
from aexec.kernels.datasets.function_dataset_ops import Call, Interleaved, mapped_dataset
from aexec.resources.datasets.dataset import UNKNOWN, Dataset, DatasetIterator, Element, Pass, Turns, dataset_of

__all__ = ["Ahead", "in_flight"]

_AUTOTUNE = -1
# The most calls at once of one dataset, and the most elements ahead of each dataset that is interleaved.
_MOST_CALLS = 1024
_MOST_AHEAD = 64

# An element, None for the end, or the error in place of an element.
_Outcome = Element | None | Exception


class _Place:
    """A place in the line of results.

    Attributes:
        element: what the function is called with.
        task: of the call; None while it is paused.
        outcome: the result.
        is_ready: whether there is an outcome.
    """

    __slots__ = ("element", "is_ready", "outcome", "task")

    def __init__(self, element: Element | None = None) -> None:
        self.element = element
        self.task: asyncio.Task[None] | None = None
        self.outcome: _Outcome = None
        self.is_ready = False


class Ahead(DatasetIterator):
    """Makes elements in the background before they are asked for.

    One task takes elements from the input; without a function they are the results, with one each call has a task.
    When a step that waits is cancelled, all of this pauses until an element is asked for again: otherwise a function
    that never returns would run on when nobody waits for it.

    Args:
        one: the pass.
        source: the input.
        limit: the most results that are ready or being made.
        call: the function, or None.
        preserves: an OutOfRangeError of the function is an error, and not the end.
    """

    __slots__ = ("_call", "_ended", "_limit", "_line", "_moved", "_pass", "_paused", "_preserves", "_source", "_task")

    def __init__(
        self, one: Pass, source: DatasetIterator, limit: int, call: Call | None = None, *, preserves: bool = False
    ) -> None:
        self._pass = one
        self._source = source
        self._limit = limit
        self._call = call
        self._preserves = preserves
        self._line: deque[_Place] = deque()
        self._ended = False  # the input has
        self._moved = asyncio.Condition()  # a result is ready, or there is room in the line
        self._task: asyncio.Task[None] | None = None
        self._paused: list[asyncio.Task[None]] = []

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._task is None:
            await self._begin()
        try:
            async with self._moved:
                while not self._line or not self._line[0].is_ready:
                    await self._moved.wait()
                outcome = self._line[0].outcome
                if outcome is None:
                    return None  # the end stays in the line
                self._line.popleft()
                self._moved.notify_all()
        except asyncio.CancelledError:
            self._pause()
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _begin(self) -> None:
        if self._paused:
            await asyncio.wait(self._paused)
            self._paused = []
        for place in self._line:
            if not place.is_ready:
                self._start(place)
        self._task = self._pass.start(self._take(self._pass.context), "take elements ahead")

    def _running(self) -> list[asyncio.Task[None]]:
        tasks = (self._task, *(place.task for place in self._line))
        return [task for task in tasks if task is not None and not task.done()]

    def _pause(self) -> None:
        self._paused += self._running()
        for task in self._paused:
            task.cancel()
        self._task = None

    async def _take(self, context: OpKernelContext) -> None:
        turns = Turns()
        while not self._ended:
            await turns.take()
            async with self._moved:
                while len(self._line) >= self._limit:
                    await self._moved.wait()
            outcome = await _outcome(self._source.next(context))
            self._ended = outcome is None
            if isinstance(outcome, tuple) and self._call is not None:
                place = _Place(outcome)
                self._line.append(place)
                self._start(place)
            else:
                place = _Place()
                self._line.append(place)
                self._put(place, outcome)
                async with self._moved:
                    self._moved.notify_all()

    def _start(self, place: _Place) -> None:
        place.task = self._pass.start(self._called(self._pass.context, place), "call ahead")

    def _put(self, place: _Place, outcome: _Outcome) -> None:
        if isinstance(outcome, tuple):
            try:
                outcome = self._pass.keep(outcome)
            except errors.ResourceExhaustedError as error:
                outcome = error
        place.outcome, place.is_ready, place.element = outcome, True, None

    async def _called(self, context: OpKernelContext, place: _Place) -> None:
        assert self._call is not None
        assert place.element is not None
        outcome = await _outcome(self._call(context, place.element))
        if isinstance(outcome, errors.OutOfRangeError):
            outcome = instead_of_end(outcome, preserves=self._preserves)
        self._put(place, outcome)
        async with self._moved:
            self._moved.notify_all()

    def close(self) -> None:
        for task in self._running():
            task.cancel()
        self._line.clear()
        self._pass.end(self._source)


async def _outcome(awaitable: Awaitable[Element | None]) -> _Outcome:
    try:
        return await awaitable
    except Exception as error:
        return error


def in_flight(tensor: Any) -> int:
    """The number of calls at once, a scalar argument."""
    number = integer(tensor, "num_parallel_calls")
    if number == _AUTOTUNE:
        return max(4, num_processors())
    if number <= 0:
        raise errors.InvalidArgumentError("num_parallel_calls must be greater than zero.")
    return min(number, _MOST_CALLS)


@kernel("ParallelMapDataset", "ParallelMapDatasetV2", cost=0)
def parallel_map_dataset(c: OpKernelConstruction) -> Compute:
    made, function, preserves = Made(c), Called(c, "f", c.attr("output_types")), c.attr("preserve_cardinality")

    def compute(tensor: Any, *others: Any) -> Any:
        *captured, num_parallel_calls = others
        source, limit = dataset_of(tensor), in_flight(num_parallel_calls)
        call = function.with_captured(source.types, captured)
        count = source.cardinality() if preserves else UNKNOWN

        def each(one: Pass, elements: DatasetIterator) -> DatasetIterator:
            return Ahead(one, elements, limit, call, preserves=preserves)

        return mapped_dataset(made, function, source, captured, each, count)

    return compute


@kernel("MapAndBatchDataset", "ExperimentalMapAndBatchDataset", cost=0)
def map_and_batch_dataset(c: OpKernelConstruction) -> Compute:
    made, function, preserves = Made(c), Called(c, "f", c.attr("output_types")), c.attr("preserve_cardinality")
    joined = PlainJoin(made.types)

    def compute(tensor: Any, *others: Any) -> Any:
        *captured, batch_size, num_parallel_calls, drop_remainder = others
        source, limit = dataset_of(tensor), in_flight(num_parallel_calls)
        size, drops = batch_size_of(batch_size), flag(drop_remainder, "drop_remainder")
        call = function.with_captured(source.types, captured)
        count = num_batches(source.cardinality(), size, drops_rest=drops) if preserves else UNKNOWN

        rows = function.for_rows(source, captured)

        def each(one: Pass, elements: DatasetIterator) -> DatasetIterator:
            return Ahead(one, elements, limit, call, preserves=preserves)

        def make(one: Pass) -> DatasetIterator:
            if rows is not None:
                return MappedBatches(one, source, rows, each, made.types, size, drops_rest=drops)
            mapped = one.adopt(each(one, one.begin(source)))
            return Batched(one, mapped, size, joined, drops_rest=drops)

        return made.of(make, count)

    return compute


def _beginning_ahead(one: Pass, limit: int) -> Callable[[Dataset], DatasetIterator]:
    """What begins a dataset whose elements are taken in the background, `limit` of them ahead."""
    return lambda dataset: one.adopt(Ahead(one, one.begin(dataset), limit))


def _parallel_interleave(number: int, *, says_calls: bool) -> Any:
    """The builder of an op whose last `number` inputs begin with cycle_length and block_length.

    Args:
        says_calls: the last one is num_parallel_calls.
    """

    def build(c: OpKernelConstruction) -> Compute:
        made, function = Made(c), Called(c, "f", ONE_DATASET)

        def compute(tensor: Any, *others: Any) -> Any:
            captured, settings = others[:-number], others[-number:]
            source = dataset_of(tensor)
            call = function.with_captured(source.types, captured)
            cycle, block = integer(settings[0], "cycle_length"), integer(settings[1], "block_length")
            calls = integer(settings[-1], "num_parallel_calls") if says_calls else _AUTOTUNE
            if cycle == _AUTOTUNE:
                cycle = calls if calls > 0 else max(4, num_processors())
            if cycle <= 0:
                raise errors.InvalidArgumentError("`cycle_length` must be > 0")
            if block <= 0:
                raise errors.InvalidArgumentError("`block_length` must be > 0")
            _check_calls(calls, cycle)
            limit = min(block, _MOST_AHEAD)

            def make(one: Pass) -> DatasetIterator:
                return Interleaved(one, one.begin(source), call, cycle, block, _beginning_ahead(one, limit))

            return made.of(make)

        return compute

    return build


def _check_calls(number: int, cycle: int) -> None:
    """Raise InvalidArgumentError for a number of calls at once that TensorFlow refuses."""
    if number != _AUTOTUNE and number <= 0:
        raise errors.InvalidArgumentError("num_parallel_calls must be greater than zero.")
    if number > cycle:
        raise errors.InvalidArgumentError(
            "`num_parallel_calls` must be either `tf.data.AUTOTUNE` or a value less than or equal to `cycle_length`. "
            f"However, `num_parallel_calls` is {number} and `cycle_length` is {cycle}"
        )


# cycle_length, block_length, num_parallel_calls
kernel("ParallelInterleaveDatasetV2", "ParallelInterleaveDatasetV3", cost=0)(_parallel_interleave(3, says_calls=True))
# and, before that, buffer_output_elements, prefetch_input_elements
kernel("ParallelInterleaveDatasetV4", cost=0)(_parallel_interleave(5, says_calls=True))
# cycle_length, block_length, sloppy (for some), buffer_output_elements, prefetch_input_elements
kernel("LegacyParallelInterleaveDatasetV2", cost=0)(_parallel_interleave(4, says_calls=False))
kernel("ParallelInterleaveDataset", "ExperimentalParallelInterleaveDataset", cost=0)(
    _parallel_interleave(5, says_calls=False)
)
