"""Datasets whose elements are made of several others: windows, groups by a key, reductions; and datasets mixed from
several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.memory.tensor_buffer import memory_bytes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, OBJECT_NS
from aexec.kernels.common.variants import boxed
from aexec.kernels.datasets.arguments import ONE_DATASET, Called, Made, flag, integer, was_cancelled
from aexec.kernels.datasets.batch_dataset_ops import joined_rows
from aexec.kernels.datasets.batch_joins import PlainJoin
from aexec.kernels.datasets.function_dataset_ops import Call
from aexec.kernels.datasets.source_dataset_ops import Listed
from aexec.resources.datasets.dataset import (
    INFINITE,
    UNKNOWN,
    Dataset,
    DatasetIterator,
    Element,
    Elements,
    Pass,
    Turns,
    dataset_of,
)

# Bytes of a key that an iterator has seen, with what it keeps for it.
_KEY_BYTES = 300


def _dataset_of_elements(
    name: str, types: tuple[DType, ...], shapes: tuple[PartialTensorShape, ...], elements: Sequence[Element]
) -> Elements:
    return Elements(name, types, shapes, lambda _: Listed(iter(elements)), len(elements))


# Windows

# The most elements that are moved before others get their turn.
_AT_ONCE = 4096
_POINTER_BYTES = 8


def _dataset_of_component(
    name: str, dtype: DType, shape: PartialTensorShape, rows: Sequence[Element], index: int
) -> Elements:
    """A dataset of one component of the rows."""
    return Elements(name, (dtype,), (shape,), lambda _: Listed((row[index],) for row in rows), len(rows))


class _Windows(DatasetIterator):
    """Datasets of `size` elements of the input, each `shift` elements after the one before, of every `stride`-th
    element; one dataset for each component.
    """

    __slots__ = (
        "_buffer",
        "_drop",
        "_drops_rest",
        "_ended",
        "_pass",
        "_shift",
        "_size",
        "_source",
        "_stride",
        "_turns",
        "_window",
    )

    def __init__(
        self, one: Pass, source: DatasetIterator, window: Any, size: int, shift: int, stride: int, *, drops_rest: bool
    ) -> None:
        self._pass = one
        self._source = source
        self._window = window
        self._size = size
        self._shift = shift
        self._stride = stride
        self._drops_rest = drops_rest
        self._buffer: deque[Element] = deque()
        self._drop = 0  # elements to skip before the next window, first of the buffer and then of the input
        self._ended = False
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        target = (self._size - 1) * self._stride + 1
        while self._drop and self._buffer:
            for _ in range(min(self._drop, len(self._buffer), _AT_ONCE)):
                self._buffer.popleft()
                self._drop -= 1
            await self._turns.take()
        while not self._ended and len(self._buffer) < target:
            element = await self._source.next(context)
            if element is None:
                self._ended = True
            elif self._drop:
                self._drop -= 1
            else:
                self._buffer.append(self._pass.keep(element))
            await self._turns.take()
        if not self._buffer or (self._drops_rest and len(self._buffer) < target):
            return None
        try:
            result: Element = await self._window(context, self._pass, await self._rows(target))
        except BaseException as error:
            if not was_cancelled(context, error):
                self._drop = self._shift
            raise
        self._drop = self._shift
        return result

    async def _rows(self, target: int) -> list[Element]:
        number = len(self._buffer)
        chosen = islice(self._buffer, 0, min(target, number), min(self._stride, number))
        rows: list[Element] = []
        while some := list(islice(chosen, max(1, _AT_ONCE // self._stride))):
            rows += some
            await self._turns.take()
        return rows


@kernel("WindowDataset", cost=0)
def window_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, *settings: Any) -> Any:
        source = dataset_of(tensor)
        size, shift, stride = (
            _positive(setting, f"Window {name}")
            for setting, name in zip(settings[:3], ("size", "shift", "stride"), strict=True)
        )
        drops = flag(settings[3], "drop_remainder")

        async def window(_: OpKernelContext, one: Pass, rows: list[Element]) -> Element:
            datasets = [
                _dataset_of_component(made.name, dtype, shape, rows, index)
                for index, (dtype, shape) in enumerate(zip(source.types, source.shapes, strict=True))
            ]
            one.count(datasets[0], _POINTER_BYTES * len(rows))
            return tuple([boxed(dataset) for dataset in datasets])

        count = _windows(source.cardinality(), size, shift, stride, drops_rest=drops)
        return made.of(
            lambda one: _Windows(one, one.begin(source), window, size, shift, stride, drops_rest=drops), count
        )

    return compute


def _positive(tensor: Any, what: str) -> int:
    value = integer(tensor, what)
    if value <= 0:
        raise errors.InvalidArgumentError(f"{what} must be greater than zero.")
    return value


def _windows(count: int, size: int, shift: int, stride: int, *, drops_rest: bool) -> int:
    if count < 0 or not drops_rest:
        return count if count < 0 else -(-count // shift)
    target = (size - 1) * stride + 1
    return 0 if count < target else (count - target) // shift + 1


@kernel("SlidingWindowDataset", "ExperimentalSlidingWindowDataset", cost=0)
def sliding_window_dataset(c: OpKernelConstruction) -> Compute:
    """Batches of windows; the last ones, which are not full, are left out if the node says so."""
    made = Made(c)
    join = PlainJoin(made.types)

    async def joined(context: OpKernelContext, one: Pass, rows: list[Element]) -> Element:
        return await joined_rows(context, one, rows, join)

    drops = c.attrs.get("drop_remainder", True)

    def compute(tensor: Any, window_size: Any, window_shift: Any, window_stride: Any) -> Any:
        source = dataset_of(tensor)
        size, shift = _positive(window_size, "Window size"), _positive(window_shift, "Window shift")
        stride = _positive(window_stride, "Window stride")
        count = _windows(source.cardinality(), size, shift, stride, drops_rest=drops)
        return made.of(
            lambda one: _Windows(one, one.begin(source), joined, size, shift, stride, drops_rest=drops), count
        )

    return compute


# Groups


class _Calls:
    """Calls the functions of groups one at a time, and keeps what each was called with until it has returned."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: dict[str, Any] = {}

    async def call(self, what: str, context: OpKernelContext, call: Call, arguments: Element) -> Element:
        """The results of a call, which is not made again if a later one is cancelled."""
        if what not in self.done:
            self.done[what] = tuple(await call(context, arguments))
        found: Element = self.done[what]
        return found


def _key(results: Element) -> int:
    if len(results) != 1 or np.ndim(results[0]) or np.asarray(results[0]).dtype != np.int64:
        raise errors.InvalidArgumentError("`key_func` must return a scalar int64.")
    return int(results[0])


class _GroupedByWindow(DatasetIterator):
    """Collects elements with equal keys; when a group is full, or the input has ended, a function makes a dataset of
    it.
    """

    __slots__ = (
        "_calls",
        "_current",
        "_ended",
        "_full_key",
        "_groups",
        "_key",
        "_keys",
        "_pass",
        "_reduce",
        "_size",
        "_sizes",
        "_source",
        "_taken",
        "_turns",
        "_window",
    )

    def __init__(self, one: Pass, source: DatasetIterator, key: Call, reduce: Call, size: Call, window: Any) -> None:
        self._pass = one
        self._source = source
        self._key = key
        self._reduce = reduce
        self._size = size
        self._window = window
        self._groups: dict[int, list[Element]] = {}
        self._sizes: dict[int, int] = {}
        self._keys: list[int] = []  # a heap of all keys
        self._full_key: int | None = None
        self._current: DatasetIterator | None = None
        self._taken: Element | None = None
        self._ended = False
        self._calls = _Calls()
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            if self._current is not None:
                element = await self._current.next(context)
                if element is not None:
                    return element
                self._pass.end(self._current)
                self._current = None
                await self._turns.take()
            full = await self._full(context)
            if full is None:
                return None
            try:
                (tensor,) = await self._reduce(context, (np.int64(full), boxed(self._window(self._groups[full]))))
            except BaseException as error:
                if not was_cancelled(context, error):
                    self._drop(full)
                raise
            self._drop(full)
            self._current = self._pass.begin(dataset_of(tensor))

    def _drop(self, key: int) -> None:
        del self._groups[key]
        self._full_key = None

    async def _full(self, context: OpKernelContext) -> int | None:
        """The key of a group that is to be reduced now; None if none is left."""
        while not self._ended and self._full_key is None:
            if self._taken is None:
                self._taken = await self._source.next(context)
            if self._taken is None:
                self._ended = True
                break
            await self._sort_in(context, self._taken)
            await self._turns.take()
        while self._full_key is None and self._keys:
            key = heappop(self._keys)
            self._full_key = key if key in self._groups else None
        return self._full_key

    async def _sort_in(self, context: OpKernelContext, element: Element) -> None:
        try:
            key = _key(await self._calls.call("key", context, self._key, element))
            if key not in self._sizes:
                (size,) = await self._calls.call("size", context, self._size, (np.int64(key),))
                if size <= 0:
                    raise errors.InvalidArgumentError(f"Window size must be greater than zero, but got {int(size)}.")
                self._pass.count(self, _KEY_BYTES * (len(self._sizes) + 1))
                self._sizes[key] = int(size)
                heappush(self._keys, key)
        except BaseException as error:
            if not was_cancelled(context, error):
                self._taken = None
                self._calls.done.clear()
            raise
        self._calls.done.clear()
        self._taken = None
        kept = self._pass.keep(element)
        group = self._groups.setdefault(key, [])
        group.append(kept)
        if len(group) == self._sizes[key]:
            self._full_key = key


@kernel("GroupByWindowDataset", "ExperimentalGroupByWindowDataset", cost=0)
def group_by_window_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    key = Called(c, "key_func", (dtypes.int64,))
    reduce = Called(c, "reduce_func", ONE_DATASET)
    size = Called(c, "window_size_func", (dtypes.int64,))
    ranges = [c.input_range(f"{role}_func_other_arguments") for role in ("key", "reduce", "window_size")]

    def compute(*inputs: Any) -> Any:
        source = dataset_of(inputs[0])
        captured = [inputs[start:stop] for start, stop in ranges]
        calls = (
            key.with_captured(source.types, captured[0]),
            reduce.with_captured((dtypes.int64, dtypes.variant), captured[1]),
            size.with_captured((dtypes.int64,), captured[2]),
        )

        def window(elements: list[Element]) -> Dataset:
            return _dataset_of_elements(made.name, source.types, source.shapes, elements)

        return made.of(lambda one: _GroupedByWindow(one, one.begin(source), *calls, window))

    return compute


class _GroupedByReducer(DatasetIterator):
    """Reduces the elements with equal keys, and gives the result of each key, in the order of the keys."""

    __slots__ = (
        "_calls",
        "_ended",
        "_finalize",
        "_init",
        "_key",
        "_keys",
        "_pass",
        "_reduce",
        "_source",
        "_states",
        "_taken",
        "_turns",
    )

    def __init__(self, one: Pass, source: DatasetIterator, key: Call, init: Call, reduce: Call, finalize: Call) -> None:
        self._pass = one
        self._source = source
        self._key = key
        self._init = init
        self._reduce = reduce
        self._finalize = finalize
        self._states: dict[int, Element] = {}
        self._keys: list[int] = []
        self._taken: Element | None = None
        self._ended = False
        self._calls = _Calls()
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while not self._ended:
            if self._taken is None:
                self._taken = await self._source.next(context)
            if self._taken is None:
                self._ended = True
                self._keys = sorted(self._states, reverse=True)
            else:
                await self._reduced(context, self._taken)
                await self._turns.take()
        if not self._keys:
            return None
        try:
            results = tuple(await self._finalize(context, self._states[self._keys[-1]]))
        except BaseException as error:
            if not was_cancelled(context, error):
                del self._states[self._keys.pop()]
            raise
        del self._states[self._keys.pop()]
        return results

    async def _reduced(self, context: OpKernelContext, element: Element) -> None:
        try:
            key = _key(await self._calls.call("key", context, self._key, element))
            if key not in self._states:
                self._pass.count(self, _KEY_BYTES * (len(self._states) + 1))
                self._states[key] = await self._calls.call("init", context, self._init, (np.int64(key),))
            self._states[key] = self._pass.keep(tuple(await self._reduce(context, (*self._states[key], *element))))
        except BaseException as error:
            if not was_cancelled(context, error):
                self._taken = None
                self._calls.done.clear()
            raise
        self._calls.done.clear()
        self._taken = None


@kernel("GroupByReducerDataset", "ExperimentalGroupByReducerDataset", cost=0)
def group_by_reducer_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    key, init = Called(c, "key_func", (dtypes.int64,)), Called(c, "init_func")
    reduce, finalize = Called(c, "reduce_func", init.gives), Called(c, "finalize_func", made.types)
    ranges = [c.input_range(f"{role}_func_other_arguments") for role in ("key", "init", "reduce", "finalize")]

    def compute(*inputs: Any) -> Any:
        source = dataset_of(inputs[0])
        captured = [inputs[start:stop] for start, stop in ranges]
        calls = (
            key.with_captured(source.types, captured[0]),
            init.with_captured((dtypes.int64,), captured[1]),
            reduce.with_captured((*init.gives, *source.types), captured[2]),
            finalize.with_captured(init.gives, captured[3]),
        )
        return made.of(lambda one: _GroupedByReducer(one, one.begin(source), *calls))

    return compute


@kernel("ReduceDataset", cost=0)
def reduce_dataset(c: OpKernelConstruction) -> Compute:
    """The state after a function was given all elements, one after another."""
    state_types = tuple(c.attr("Tstate"))
    function = Called(c, "f", state_types)
    c.need_context()

    async def compute(context: OpKernelContext, tensor: Any, *others: Any) -> Any:
        source = dataset_of(tensor)
        state, captured = others[: len(state_types)], others[len(state_types) :]
        call = function.with_captured((*state_types, *source.types), captured)
        one, turns = Pass(c.name, context), Turns()
        try:
            elements = one.begin(source)
            while (element := await elements.next(context)) is not None:
                state = tuple(await call(context, (*state, *element)))
                await turns.take()
        finally:
            one.close()
        return state if len(state) != 1 else state[0]

    return compute


# Mixed from several


class _Directed(DatasetIterator):
    """Takes each element from the input that a dataset of numbers selects."""

    __slots__ = ("_begun", "_chosen", "_pass", "_selector", "_sources", "_stops", "_turns")

    def __init__(self, one: Pass, selector: DatasetIterator, sources: list[Dataset], *, stops: bool) -> None:
        self._pass = one
        self._selector = selector
        self._sources: list[Dataset | None] = [*sources]
        self._begun: dict[int, DatasetIterator] = {}
        self._stops = stops
        self._chosen: int | None = None
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while any(source is not None for source in self._sources):
            if self._chosen is None:
                selected = await self._selector.next(context)
                if selected is None:
                    self._sources = []
                    return None
                self._chosen = self._checked(selected)
            source = self._sources[self._chosen]
            if source is not None:
                if self._chosen not in self._begun:
                    self._begun[self._chosen] = self._pass.begin(source)
                element = await self._begun[self._chosen].next(context)
                if element is not None:
                    self._chosen = None
                    return element
                self._sources[self._chosen] = None
                if self._stops:
                    self._sources = []
                    return None
            self._chosen = None
            await self._turns.take()
        return None

    def _checked(self, selected: Element) -> int:
        number = int(selected[0])
        if not 0 <= number < len(self._sources):
            raise errors.InvalidArgumentError(f"Selector index out of range: {number} >= {len(self._sources)}")
        return number


@kernel("DirectedInterleaveDataset", "ExperimentalDirectedInterleaveDataset", cost=0)
def directed_interleave_dataset(c: OpKernelConstruction) -> Compute:
    made, stops = Made(c), c.attrs.get("stop_on_empty_dataset", False)

    def compute(selector_tensor: Any, *tensors: Any) -> Any:
        selector, sources = dataset_of(selector_tensor), [dataset_of(tensor) for tensor in tensors]
        if selector.types != (dtypes.int64,):
            raise errors.InvalidArgumentError("The selector dataset must have a single scalar int64 component")
        for source in sources:
            made.check(source)
        counts = [source.cardinality() for source in sources]
        total = INFINITE if counts and set(counts) == {INFINITE} and selector.cardinality() == INFINITE else UNKNOWN
        return made.of(lambda one: _Directed(one, one.begin(selector), sources, stops=stops), total)

    return compute


class _Content:
    """The content of an array, as a key."""

    __slots__ = ("_content", "_hash")

    def __init__(self, array: Any) -> None:
        values = tuple(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()
        self._content = array.shape, values
        self._hash = hash(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self._hash == other._hash and self._content == other._content


def _hashed(array: Any) -> _Content:
    check_inline(2 * COPY_NS * array.nbytes + OBJECT_NS * (array.size if array.dtype.hasobject else 0))
    return _Content(array)


class _Unique(DatasetIterator):
    """The first of all equal elements."""

    __slots__ = ("_bytes", "_pass", "_seen", "_source", "_taken", "_turns")

    def __init__(self, one: Pass, source: DatasetIterator) -> None:
        self._pass = one
        self._source = source
        self._bytes = 0
        self._taken: Element | None = None
        self._seen: set[Any] = set()
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            if self._taken is None:
                self._taken = await self._source.next(context)
            element = self._taken
            if element is None:
                return None
            (component,) = element
            key = await context.params.worker_pool.run_here_or_in_thread(_hashed, component)
            self._taken = None
            if key not in self._seen:
                size = _KEY_BYTES + memory_bytes(component)
                self._pass.count(self, self._bytes + size)
                self._bytes += size
                self._seen.add(key)
                return element
            await self._turns.take()


@kernel("UniqueDataset", "ExperimentalUniqueDataset", cost=0)
def unique_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any) -> Any:
        source = dataset_of(tensor)
        if len(source.types) != 1:
            raise errors.InvalidArgumentError("UniqueDataset only supports inputs with a single component.")
        return made.of(lambda one: _Unique(one, one.begin(source)))

    return compute


class _WithoutErrors(DatasetIterator):
    """The elements of the input that can be made."""

    __slots__ = ("_source",)

    def __init__(self, source: DatasetIterator) -> None:
        self._source = source

    async def next(self, context: OpKernelContext) -> Element | None:
        turns = Turns()
        while True:
            try:
                return await self._source.next(context)
            except errors.OpError as error:
                if was_cancelled(context, error):
                    raise
            await turns.take()


@kernel("IgnoreErrorsDataset", "ExperimentalIgnoreErrorsDataset", cost=0)
def ignore_errors_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any) -> Any:
        source = dataset_of(tensor)
        count = source.cardinality()
        return made.of(lambda one: _WithoutErrors(one.begin(source)), count if count == INFINITE else UNKNOWN)

    return compute
