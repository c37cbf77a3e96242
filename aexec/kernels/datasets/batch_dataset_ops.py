"""Datasets of batches, plain and padded, and of what batches are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, let_others_run
from aexec.framework.zeros import zeros_of_type
from aexec.kernels.datasets.arguments import Made, flag, integer, was_cancelled
from aexec.kernels.datasets.batch_joins import CalledJoin, Join, PlainJoin, bytes_of, without_arrays
from aexec.kernels.datasets.function_dataset_ops import MapEach, MappedDataset
from aexec.kernels.datasets.row_functions import RowFunction
from aexec.queues.batching import cut
from aexec.resources.datasets.dataset import MANY, NOT_YET, Dataset, DatasetIterator, Element, Pass, Turns, dataset_of

__all__ = ["Batched", "MappedBatches", "batch_size_of", "joined_rows", "num_batches"]

# Nanoseconds to look for the bytes of one component of a row.
_SIZE_NS = 200
# Bytes of a row besides its arrays, and of an array besides its elements.
_ROW_BYTES, _ARRAY_BYTES = 100, 200
# The bytes of rows that are counted at a time, and the rows that are freed at a time.
_COUNTED_AT_ONCE, _FREED_AT_ONCE = 1 << 14, 1000
# The rows that are packed at a time, and their most bytes.
_PACKED_AT_ONCE, _SMALL_ROW = 1024, 64
# From this many bytes of an element and its results on, calls of kernels take longer than what comes with a call.
_LARGE_ROW = 1 << 18


async def joined_rows(
    context: OpKernelContext,
    one: Pass,
    rows: list[Element],
    join: Join,
) -> Element:
    """The batch of the rows, made in a thread if that takes long.

    Raises:
        ResourceExhaustedError: the session's limit does not allow it.
    """

    def size() -> int:
        check_inline(_SIZE_NS * len(rows) * len(rows[0]))
        return join.size_of(rows)

    def joined() -> Element:
        check_inline(join.ns(rows) + COPY_NS * num_bytes)
        return join(rows)

    pool = context.params.worker_pool
    num_bytes: int = await pool.run_here_or_in_thread(size)
    with one.expecting(num_bytes):
        batch: Element = await pool.run_here_or_in_thread(joined)
    return batch


def _release(rows: list[Element]) -> None:
    """Runs in a thread: free rows, as freeing many at once would hold the interpreter's lock."""
    while rows:
        del rows[-_FREED_AT_ONCE:]
        let_others_run()


class _Rows:
    """The rows of the next batch, counted for the session some kilobytes at a time.

    Many small rows are packed: joined to parts of the batch, because a million objects would take a hundred times the
    memory of their numbers, and freeing and collecting them would hold the event loop.

    Args:
        keeper: the iterator that has them.
        join: joins rows to a part of the batch; None to pack none.

    Attributes:
        list: the rows that are not packed, the last ones.
    """

    __slots__ = ("_counted", "_join", "_keeper", "_num_bytes", "_packed", "_packed_bytes", "_pass", "list")

    def __init__(self, one: Pass, keeper: DatasetIterator, join: Join | None = None) -> None:
        self._pass = one
        self._keeper = keeper
        self._num_bytes = self._packed_bytes = self._counted = 0
        # None once rows could not be joined: then the batch fails, and which row it fails at is found in the end.
        self._join = join
        self._packed: list[Element] = []
        self.list: list[Element] = []

    def __len__(self) -> int:
        return len(self.list) + sum([len(part[0]) for part in self._packed])

    def append(self, row: Element) -> None:
        """Raises ResourceExhaustedError if the session's limit does not allow for the row."""
        if self._pass.kept is None:
            self.list.append(row)
            return
        num_bytes = _ROW_BYTES
        for component in row:
            if type(component) is not np.ndarray:
                continue
            if component.base is None and component.dtype != object:
                num_bytes += _ARRAY_BYTES + component.nbytes
            else:  # memory that it may share with others, which is counted once
                self._pass.keep((component,))
        self._num_bytes += num_bytes
        if self._num_bytes - self._counted > _COUNTED_AT_ONCE:
            self._pass.count(self._keeper, self._num_bytes)
            self._counted = self._num_bytes
        self.list.append(row)

    def extend(self, rows: Sequence[Element]) -> None:
        """As `append`, for each of the rows."""
        if self._pass.kept is None:
            self.list += rows
            return
        for row in rows:
            self.append(row)

    @property
    def are_full(self) -> bool:
        """True if the list has enough rows to pack them, and the last one is small."""
        rows = self.list
        return len(rows) >= _PACKED_AT_ONCE and self._join is not None and bytes_of(rows[-1:]) <= _SMALL_ROW

    def pack(self) -> None:
        """Join the rows of the list to a part of the batch, unless they do not fit together."""
        if self._join is None or not self.list:
            return
        try:
            part = self._join(self.list)
        except errors.InvalidArgumentError:
            self._join = None
            return
        if self._packed and [one.shape[1:] for one in part] != [one.shape[1:] for one in self._packed[0]]:
            self._join = None
            return
        self._packed.append(part)
        self._packed_bytes += sum([one.nbytes for one in part])
        self.list = []
        self._num_bytes = self._counted = self._packed_bytes
        self._pass.count(self._keeper, self._num_bytes)

    async def joined(self, context: OpKernelContext, join: Join) -> Element:
        """The batch of all rows.  Raises OpError if they do not fit together, or memory does not suffice."""
        if self._packed:
            self.pack()
        if not self._packed or self.list:
            return await joined_rows(context, self._pass, await self.unpacked(context), join)
        num_bytes = self._packed_bytes

        def concatenated() -> Element:
            check_inline(COPY_NS * num_bytes)
            return tuple([np.concatenate(column) for column in zip(*self._packed, strict=True)])

        with self._pass.expecting(num_bytes):
            batch: Element = await context.params.worker_pool.run_here_or_in_thread(concatenated)
        return batch

    async def unpacked(self, context: OpKernelContext) -> list[Element]:
        """Unpack the packed rows, and return all rows."""
        if self._packed:

            def rows() -> list[Element]:
                return [row for part in self._packed for row in cut(part)] + self.list

            self.list = await context.params.worker_pool.run(rows)
            self._packed, self._packed_bytes, self._join = [], 0, None
        return self.list

    def clear(self, context: OpKernelContext, join: Join | None = None) -> None:
        """Free the rows, many of them in a thread; `join` as for a new object."""
        rows, self.list = self.list, []
        self._packed, self._join = [], join
        self._num_bytes = self._packed_bytes = 0
        if self._counted:
            self._counted = 0
            self._pass.count(self._keeper, 0)
        if len(rows) > _FREED_AT_ONCE:
            context.worker_pool.start(_release, rows)


class Batched(DatasetIterator):
    """Joins `size` elements of the input, the last ones too unless `drops_rest`.

    Args:
        join: makes a batch.
    """

    __slots__ = ("_drops_rest", "_ended", "_join", "_packs", "_pass", "_rows", "_size", "_source", "_turns")

    def __init__(
        self,
        one: Pass,
        source: DatasetIterator,
        size: int,
        join: Join,
        *,
        drops_rest: bool,
    ) -> None:
        self._pass = one
        self._source = source
        self._size = size
        self._join = join
        self._drops_rest = drops_rest
        self._packs = join if join.packs else None
        self._rows = _Rows(one, self, self._packs)
        self._ended = False
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        try:
            self._ended = self._ended or await collect(self._source, self._rows, self._size, self._turns, context)
            if len(self._rows) < (self._size if self._drops_rest else 1):
                self._rows.clear(context)
                return None
            batch = await self._rows.joined(context, self._join)
        except BaseException as error:
            if not was_cancelled(context, error):
                self._rows.clear(context, self._packs)
            raise
        self._rows.clear(context, self._packs)
        return batch


async def collect(source: DatasetIterator, rows: _Rows, size: int, turns: Turns, context: OpKernelContext) -> bool:
    """Take elements until there are `size` rows; returns True if the source has ended."""
    left = size - len(rows)
    while left:
        if elements := source.many_at_once(context, min(left, MANY)):
            rows.extend(elements)
            left -= len(elements)
        else:
            element = source.next_at_once(context)
            if element is NOT_YET:
                element = await source.next(context)
            if element is None:
                return True
            rows.append(element)
            left -= 1
        if rows.are_full:
            rows.pack()
        await turns.take()
    return False


class _Replayed(DatasetIterator):
    """Elements that were taken from the input, and then the rest of the input."""

    __slots__ = ("_rows", "_source")

    def __init__(self, rows: list[Element], source: DatasetIterator) -> None:
        self._rows = rows[::-1]
        self._source = source

    async def next(self, context: OpKernelContext) -> Element | None:
        return self._rows.pop() if self._rows else await self._source.next(context)


class MappedBatches(DatasetIterator):
    """Calls a function with batches of the input, which is the same as to call it with the elements first.

    When a batch fails, its elements and all later ones go through the function one by one, so that the right element
    is an error.  So do those of a function that has no form for batches, and large ones, with which calls take long
    anyway.

    Args:
        source: the input.
        function: in the form for batches.
        each: maps element by element.
        types: of the function's results.
    """

    __slots__ = (
        "_drops_rest",
        "_each",
        "_ended",
        "_function",
        "_join",
        "_one_by_one",
        "_packs",
        "_pass",
        "_rows",
        "_size",
        "_source",
        "_turns",
        "_types",
    )

    def __init__(
        self,
        one: Pass,
        source: Dataset,
        function: RowFunction,
        each: MapEach,
        types: Sequence[DType],
        size: int,
        *,
        drops_rest: bool,
    ) -> None:
        rows, self._join = without_arrays(source, source.types, one)
        self._pass = one
        self._source = one.begin(rows)
        self._function = function
        self._each = each
        self._types = types
        self._size = size
        self._drops_rest = drops_rest
        self._packs = self._join if self._join.packs else None
        self._rows = _Rows(one, self, self._packs)
        self._ended = False
        self._turns = Turns()
        self._one_by_one: DatasetIterator | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._one_by_one is None and not await self._function.prepare(context):
            self._begin_one_by_one([])
        if self._one_by_one is None:
            try:
                self._ended = self._ended or await collect(self._source, self._rows, self._size, self._turns, context)
            except BaseException as error:
                if not was_cancelled(context, error):
                    self._rows.clear(context, self._packs)
                raise
            if len(self._rows) < (self._size if self._drops_rest else 1):
                self._rows.clear(context)
                return None
            try:
                batch = await self._mapped(context)
            except errors.OpError as error:
                if was_cancelled(context, error):
                    raise
                self._begin_one_by_one(await self._rows.unpacked(context))
            else:
                self._rows.clear(context, self._packs)
                return batch
        assert self._one_by_one is not None
        return await self._one_by_one.next(context)

    async def _mapped(self, context: OpKernelContext) -> Element:
        batch = await self._rows.joined(context, self._join)
        results = await self._function(context, batch)
        if not self._ended and bytes_of([batch, results]) > _LARGE_ROW * len(self._rows):
            self._begin_one_by_one([])
        return results

    def _begin_one_by_one(self, rows: list[Element]) -> None:
        source = self._join.elements(_Replayed(rows, self._source))
        mapped = self._pass.adopt(self._each(self._pass, source))
        join = PlainJoin(self._types)
        self._one_by_one = Batched(self._pass, mapped, self._size, join, drops_rest=self._drops_rest)
        self._rows.list = []  # they stay counted, as they are still there


def batch_size_of(tensor: Any, name: str = "batch_size") -> int:
    """The number of elements of a batch, a scalar argument.  Raises InvalidArgumentError unless it is positive."""
    size = integer(tensor, name)
    if size <= 0:
        raise errors.InvalidArgumentError("Batch size must be greater than zero.")
    return size


def num_batches(count: int, size: int, *, drops_rest: bool) -> int:
    """The cardinality of a dataset of batches, from that of its input."""
    if count < 0:
        return count
    return count // size if drops_rest else -(-count // size)


@kernel("BatchDataset", "BatchDatasetV2", "ParallelBatchDataset", cost=0)
def batch_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, batch_size: Any, *others: Any) -> Any:
        source, size = dataset_of(tensor), batch_size_of(batch_size)
        drops = bool(others) and flag(others[-1], "drop_remainder")
        count = num_batches(source.cardinality(), size, drops_rest=drops)

        def make(one: Pass) -> DatasetIterator:
            if isinstance(source, MappedDataset):
                return MappedBatches(
                    one, source.source, source.function, source.each, source.types, size, drops_rest=drops
                )
            rows, join = without_arrays(source, made.types, one)
            return Batched(one, one.begin(rows), size, join, drops_rest=drops)

        return made.of(make, count)

    return compute


@kernel("PaddedBatchDataset", "PaddedBatchDatasetV2", cost=0)
def padded_batch_dataset(c: OpKernelConstruction) -> Compute:
    made, number = Made(c, "Toutput_types"), c.attr("N")

    def compute(tensor: Any, batch_size: Any, *others: Any) -> Any:
        source, size = dataset_of(tensor), batch_size_of(batch_size)
        drops = c.op == "PaddedBatchDatasetV2" and flag(others[-1], "drop_remainder")
        shapes = [_padded_shape(shape) for shape in others[:number]]
        values = [_padding(value, dtype) for value, dtype in zip(others[number : 2 * number], made.types, strict=True)]
        count = num_batches(source.cardinality(), size, drops_rest=drops)

        def joined(rows: list[Element]) -> Element:
            columns = zip(zip(*rows, strict=True), made.types, shapes, values, strict=True)
            return tuple([_join_padded(*column) for column in columns])

        def size_of(rows: list[Element]) -> int:
            columns = zip(zip(*rows, strict=True), made.types, shapes, strict=True)
            return sum(math.prod(_padded_to(*column)) * column[1].np.itemsize for column in columns)

        def make(one: Pass) -> DatasetIterator:
            return Batched(one, one.begin(source), size, CalledJoin(joined, size_of), drops_rest=drops)

        return made.of(make, count)

    return compute


def _padded_shape(tensor: Any) -> list[int]:
    """Sizes, -1 for the largest of the batch."""
    if tensor.ndim != 1:
        raise errors.InvalidArgumentError("All padded shapes must be vectors")
    return [int(size) for size in tensor]


def _padding(value: Any, dtype: DType) -> Any:
    if np.ndim(value):
        raise errors.InvalidArgumentError("All padding values must be scalars")
    return value


def _padded_to(rows: Sequence[Any], dtype: DType, wanted: Sequence[int]) -> tuple[int, ...]:
    """The shape of a batch of these rows, padded to `wanted` sizes.

    Raises:
        InvalidArgumentError: a row has another rank.
        DataLossError: a row is larger.
    """
    for row in rows:
        if row.ndim != len(wanted):
            raise errors.InvalidArgumentError(
                "All elements in a batch must have the same rank as the padded shape for component: expected rank "
                f"{len(wanted)} but got element with rank {row.ndim}"
            )
    largest = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    shape = [size if size >= 0 else most for size, most in zip(wanted, largest, strict=True)]
    for dimension, (most, size) in enumerate(zip(largest, shape, strict=True)):
        if most > size:
            raise errors.DataLossError(
                f"Attempted to pad to a smaller size than the input element: dimension {dimension} has {most} "
                f"elements, and shall have {size}."
            )
    return (len(rows), *shape)


def _join_padded(rows: Sequence[Any], dtype: DType, wanted: Sequence[int], value: Any) -> Any:
    batch = zeros_of_type(_padded_to(rows, dtype, wanted), dtype)
    if not _is_zero(value, dtype):
        batch[...] = value
    for index, row in enumerate(rows):
        batch[(index, *map(slice, row.shape))] = row
    return batch


def _is_zero(value: Any, dtype: DType) -> bool:
    return not dtype.np.hasobject and not np.asarray(value).any()


class _Unbatched(DatasetIterator):
    """The rows of each element of the input."""

    __slots__ = ("_batch", "_next", "_source", "_turns")

    def __init__(self, source: DatasetIterator) -> None:
        self._source = source
        self._batch: Element = ()
        self._next = 0
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while not self._batch or self._next == len(self._batch[0]):
            batch = await self._source.next(context)
            if batch is None:
                self._batch = ()
                return None
            self._begin(batch)
            await self._turns.take()
        row = tuple([component[self._next, ...] for component in self._batch])
        self._next += 1
        return row

    def _begin(self, batch: Element) -> None:
        for component in batch:
            if not component.ndim:
                raise errors.InvalidArgumentError("Input element must have a non-scalar value in each component.")
            if len(component) != len(batch[0]):
                raise errors.InvalidArgumentError(
                    "Input element must have the same batch size in each component. Component 0 had size "
                    f"{len(batch[0])} but another has size {len(component)}"
                )
        self._batch = batch
        self._next = 0


@kernel("UnbatchDataset", "ExperimentalUnbatchDataset", cost=0)
def unbatch_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any) -> Any:
        source = dataset_of(tensor)
        return made.of(lambda one: _Unbatched(one.begin(source)))

    return compute
