"""Datasets in random order, in TensorFlow's order for the same seeds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.kernels.common.handles import anonymous, delete_by_handle
from aexec.kernels.datasets.arguments import Made, flag, integer
from aexec.resources.datasets.dataset import (
    INFINITE,
    MANY,
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
from aexec.resources.datasets.random_seeds import SeedGenerator, Words, chosen_seeds

# Gives the seeds of an epoch.
NextSeeds = Callable[[], tuple[int, int]]


class _Shuffled(DatasetIterator):
    """Draws from a buffer of `size` elements, which is filled up before each draw.

    With several epochs the elements of the next one enter the buffer while those of the last one are drawn; an epoch's
    elements are drawn before those of the next.
    """

    __slots__ = (
        "_buffer",
        "_epochs",
        "_is_new",
        "_next_seeds",
        "_pass",
        "_size",
        "_slices",
        "_source",
        "_taken_from",
        "_turns",
        "_words",
    )

    def __init__(self, one: Pass, source: Dataset, size: int, next_seeds: NextSeeds, epochs: int) -> None:
        self._pass = one
        self._source = source
        self._next_seeds = next_seeds
        self._words = Words(*next_seeds())
        self._size = size
        # It grows as places are used for the first time, which is in their order, since the size may be anything.
        # A place without an element has None.
        self._buffer: list[Element | None] = []
        # The elements of each epoch that are in the buffer: [first, end), modulo its size.
        self._slices: deque[list[int]] = deque()
        self._epochs = epochs
        self._taken_from: DatasetIterator | None = None
        self._is_new = True
        self._turns = Turns()

    @property
    def _number(self) -> int:
        """The number of elements in the buffer."""
        return self._slices[-1][1] - self._slices[0][0] if self._slices else 0

    async def next(self, context: OpKernelContext) -> Element | None:
        while self._number < self._size and await self._fill(context):
            if not self._number:  # epochs may be empty without end
                self._drop_empty_epochs()
            await self._turns.take()
        return self._draw() if self._number else None

    def next_at_once(self, context: OpKernelContext) -> Element | NotYet | None:
        if self._number < self._size:
            if self._taken_from is None:
                return NOT_YET
            element = self._taken_from.next_at_once(context)
            if element is None or element is NOT_YET:
                return NOT_YET
            self._put(element)
        return self._draw() if self._number == self._size else NOT_YET

    def many_at_once(self, context: OpKernelContext, most: int) -> list[Element]:
        if len(self._slices) != 1 or self._pass.kept is not None:
            return []
        if self._taken_from is None:
            return self._drawn(most) if not self._epochs else []
        if self._number != self._size - 1:
            return []
        elements = self._taken_from.many_at_once(context, most)
        if elements:
            self._replace(elements)
        return elements

    def _replace(self, elements: list[Element]) -> None:
        """Put each element into the buffer, which lacks one, and draw one in place of it."""
        size, current = self._size, self._slices[0]
        if len(self._buffer) < size:
            self._buffer.append(None)
        buffer: list[Any] = self._buffer
        first, count = current[0] % size, len(elements)
        places = (first + np.arange(-1, count)) % size
        chosen = (places[1:] + self._words.take(count) % size) % size
        if native.records is not None:
            native.records.exchange(buffer, elements, places.item(0), places[1:], chosen)
        else:
            _exchange(buffer, elements, places.item(0), places[1:], chosen)
        current[0] += count
        current[1] = current[0] + size - 1

    def _drawn(self, most: int) -> list[Element]:
        """Draw up to `most` of the elements that are left."""
        current, buffer = self._slices[0], self._buffer
        first, left = current[0] % self._size, current[1] - current[0]
        steps = np.arange(min(most, left))
        places = (first + steps) % self._size
        chosen = (places + self._words.take(len(steps)) % (left - steps)) % self._size
        elements: list[Any] = []
        for place, other in zip(places.tolist(), chosen.tolist(), strict=True):
            elements.append(buffer[other])
            buffer[other] = buffer[place]
            buffer[place] = None
        current[0] += len(elements)
        return elements

    def _draw(self) -> Element:
        """Take an element out of the buffer."""
        size = self._size
        self._drop_empty_epochs()
        current = self._slices[0]
        first = current[0]
        chosen = (first + self._words.next() % (current[1] - first)) % size
        element = self._buffer[chosen]
        assert element is not None
        self._buffer[chosen] = self._buffer[first % size]
        self._buffer[first % size] = None
        current[0] += 1
        return element

    def _drop_empty_epochs(self) -> None:
        """Go on to the first epoch that has an element in the buffer, or else to the last."""
        while len(self._slices) > 1 and self._slices[0][0] == self._slices[0][1]:
            self._slices.popleft()
            self._words = Words(*self._next_seeds())

    async def _fill(self, context: OpKernelContext) -> bool:
        """Put one more element into the buffer, or begin another epoch; False if there is none."""
        if self._taken_from is None:
            if not self._epochs:
                return False
            self._taken_from = self._pass.begin(self._source)
            end = self._slices[-1][1] if self._slices else 0
            self._slices.append([end, end])
            self._is_new = True
        if self._pass.kept is None:
            many = self._taken_from.many_at_once(context, min(MANY, self._size - self._number))
            if many:
                self._is_new = False
                end = self._slices[-1][1]
                if end == len(self._buffer) < self._size:
                    self._buffer += many
                else:
                    for place, one in enumerate(many, end):
                        self._set(place, one)
                self._slices[-1][1] += len(many)
                return True
        element = self._taken_from.next_at_once(context)
        if element is NOT_YET:
            element = await self._taken_from.next(context)
        if element is None:
            self._pass.end(self._taken_from)
            self._taken_from = None
            # A dataset without elements is not repeated for ever.
            self._epochs = 0 if self._is_new and self._epochs < 0 else self._epochs - 1
            return True
        self._put(element)
        return True

    def _put(self, element: Element) -> None:
        self._is_new = False
        self._set(self._slices[-1][1], self._pass.keep(element))
        self._slices[-1][1] += 1

    def _set(self, place: int, element: Element) -> None:
        place %= self._size
        if place == len(self._buffer):
            self._buffer.append(element)
        else:
            self._buffer[place] = element


def _exchange(buffer: list[Any], elements: list[Any], empty: int, places: Any, chosen: Any) -> None:
    """Put each element into the empty place of the buffer, and take the one at `chosen` in place of it.

    The one at `places` then takes that place, so that its own one is empty for the next element, and None in the end.
    """
    for index, (place, other) in enumerate(zip(places.tolist(), chosen.tolist(), strict=True)):
        buffer[empty] = elements[index]
        elements[index] = buffer[other]
        buffer[other] = buffer[place]
        empty = place
    buffer[empty] = None


def _shuffled(made: Made, source: Dataset, buffer_size: Any, seeds: Callable[[Pass], NextSeeds], count: int = 1) -> Any:
    size = integer(buffer_size, "buffer_size")
    elements = source.cardinality()
    if size == UNKNOWN:  # all elements
        size = elements
        if size < 0:
            raise errors.InvalidArgumentError("A full shuffle needs a dataset of known and finite size")
        size = max(1, size)
    if size <= 0:
        raise errors.InvalidArgumentError("buffer_size must be greater than zero or UNKNOWN_CARDINALITY")
    room = min(size, elements * abs(count)) if elements >= 0 else size
    total = (
        elements * count if min(elements, count) >= 0 else (0 if not elements else INFINITE if count < 0 else elements)
    )

    def make(one: Pass, source: Dataset) -> DatasetIterator:
        return _Shuffled(one, source, max(1, min(size, room)), seeds(one), count)

    return made.rearranged(source, make, total)


def _seeds_of_pass(seed: Any, seed2: Any, *, reshuffles: bool) -> Callable[[Pass], NextSeeds]:
    """What gives the seeds to the iterators of a pass: a `SeedGenerator` of that pass."""
    given = integer(seed, "seed"), integer(seed2, "seed2")
    key = object()

    def make() -> SeedGenerator:
        return SeedGenerator(*chosen_seeds(*given), reshuffles=reshuffles)

    return lambda one: one.state(key, make).next_seeds


@kernel("ShuffleDataset", cost=0)
def shuffle_dataset(c: OpKernelConstruction) -> Compute:
    made, reshuffles = Made(c), c.attr("reshuffle_each_iteration")

    def compute(tensor: Any, buffer_size: Any, seed: Any, seed2: Any) -> Any:
        source = dataset_of(tensor)
        return _shuffled(made, source, buffer_size, _seeds_of_pass(seed, seed2, reshuffles=reshuffles))

    return compute


@kernel("ShuffleAndRepeatDataset", cost=0)
def shuffle_and_repeat_dataset(c: OpKernelConstruction) -> Compute:
    made, reshuffles = Made(c), c.attr("reshuffle_each_iteration")

    def compute(tensor: Any, buffer_size: Any, seed: Any, seed2: Any, count: Any) -> Any:
        source = dataset_of(tensor)
        seeds = _seeds_of_pass(seed, seed2, reshuffles=reshuffles)
        return _shuffled(made, source, buffer_size, seeds, integer(count, "count"))

    return compute


# Seed generators that are resources


def _generator(context: OpKernelContext, handle: Any) -> SeedGenerator:
    return context.resources.lookup_handle(handle_from_tensor(handle, SeedGenerator), SeedGenerator)


@kernel("ShuffleDatasetV2", "ShuffleDatasetV3", cost=0)
def shuffle_dataset_of_generator(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    c.need_context()

    def compute(context: OpKernelContext, tensor: Any, buffer_size: Any, *others: Any) -> Any:
        generator = _generator(context, others[-1])
        return _shuffled(made, dataset_of(tensor), buffer_size, lambda _: generator.next_seeds)

    return compute


@kernel("ShuffleAndRepeatDatasetV2", cost=0)
def shuffle_and_repeat_dataset_of_generator(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    c.need_context()

    def compute(context: OpKernelContext, tensor: Any, buffer_size: Any, *others: Any) -> Any:
        generator, count = _generator(context, others[-1]), integer(others[-2], "count")
        return _shuffled(made, dataset_of(tensor), buffer_size, lambda _: generator.next_seeds, count)

    return compute


@kernel("AnonymousSeedGenerator", "AnonymousRandomSeedGenerator", "DummySeedGenerator", cost=0)
def anonymous_seed_generator(c: OpKernelConstruction) -> Compute:
    def make(*arguments: Any) -> SeedGenerator:
        seeds = [integer(seed, name) for seed, name in zip(arguments, ("seed", "seed2"), strict=False)] or [0, 0]
        reshuffles = len(arguments) < 3 or flag(arguments[2], "reshuffle")
        return SeedGenerator(*chosen_seeds(*seeds), reshuffles=reshuffles)

    return anonymous(c, SeedGenerator, make)


@kernel("DeleteSeedGenerator", "DeleteRandomSeedGenerator", cost=0)
def delete_seed_generator(c: OpKernelConstruction) -> Compute:
    return delete_by_handle(c, SeedGenerator)


class _Random(DatasetIterator):
    """Numbers of 32 bits, without end."""

    __slots__ = ("_words",)

    def __init__(self, seeds: tuple[int, int]) -> None:
        self._words = Words(*seeds)

    async def next(self, context: OpKernelContext) -> Element | None:
        return (np.int64(self._words.next()),)


@kernel("RandomDataset", "ExperimentalRandomDataset", cost=0)
def random_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(seed: Any, seed2: Any) -> Any:
        seeds = chosen_seeds(integer(seed, "seed"), integer(seed2, "seed2"))
        return made.of(lambda _: _Random(seeds), INFINITE)

    return compute


@kernel("RandomDatasetV2", cost=0)
def random_dataset_of_generator(c: OpKernelConstruction) -> Compute:
    """Each pass has the generator's next seeds if the node says so, or else the same."""
    made, rerandomizes = Made(c), c.attr("rerandomize_each_iteration")
    c.need_context()

    def compute(context: OpKernelContext, seed: Any, seed2: Any, handle: Any) -> Any:
        generator = _generator(context, handle)
        seeds = chosen_seeds(integer(seed, "seed"), integer(seed2, "seed2"))
        return made.of(lambda _: _Random(generator.next_seeds() if rerandomizes else seeds), INFINITE)

    return compute
