"""`Join`: how a dataset joins rows to a batch, and what that takes.

Next to read: `batch_dataset_ops.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.op_kernel import OpKernelContext
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import OBJECT_NS, giving_way, let_others_run
from aexec.queues.batching import join, join_ns
from aexec.resources.datasets.bare_strings import bare_strings_of
from aexec.resources.datasets.dataset import Dataset, DatasetIterator, Element, Pass
from aexec.resources.datasets.row_numbers import row_numbers_of

__all__ = ["BareJoin", "CalledJoin", "Join", "PlainJoin", "RowsByNumbers", "bytes_of", "without_arrays"]

# Nanoseconds to add a row to a list of numbers, and take it.
_NUMBER_NS = 100
# Bytes of an element of an array of objects.
_REFERENCE_BYTES = 8
# The rows that a thread checks or takes before others run.
_CHECKED_AT_ONCE = 4096


def bytes_of(rows: Sequence[Element]) -> int:
    """The bytes of a batch of these elements."""
    return sum([component.nbytes for row in rows for component in row])


class Join(ABC):
    """Joins rows to a batch.

    Attributes:
        packs: True if a batch may be joined from batches of some rows each.
    """

    __slots__ = ()

    packs = False

    @abstractmethod
    def __call__(self, rows: list[Element]) -> Element:
        """The batch.  Raises InvalidArgumentError if the rows do not fit together."""

    def ns(self, rows: list[Element]) -> float:
        """Estimated nanoseconds to join the rows, without the copying of their bytes."""
        return join_ns(rows)

    def size_of(self, rows: list[Element]) -> int:
        """The bytes of the batch."""
        return bytes_of(rows)

    def elements(self, source: DatasetIterator) -> DatasetIterator:
        """The elements that the rows of `source` stand for: the rows themselves, unless they are numbers."""
        return source


class CalledJoin(Join):
    """Joins rows by a function.

    Args:
        function: makes the batch.
        size_of: returns the batch's bytes.
    """

    __slots__ = ("_function", "_size_of")

    def __init__(self, function: Callable[[list[Element]], Element], size_of: Callable[[list[Element]], int]) -> None:
        self._function = function
        self._size_of = size_of

    def __call__(self, rows: list[Element]) -> Element:
        return self._function(rows)

    def size_of(self, rows: list[Element]) -> int:
        return self._size_of(rows)


class PlainJoin(Join):
    """Joins elements of equal shapes and these types."""

    __slots__ = ("_types", "packs")

    def __init__(self, types: Sequence[DType]) -> None:
        self._types = types
        self.packs = not any(dtype.np.hasobject for dtype in types)

    def __call__(self, rows: list[Element]) -> Element:
        _check_equal_shapes(rows)
        return join(rows, self._types)


class BareJoin(Join):
    """Joins bytes objects, which stand for scalar strings, and arrays of strings among them."""

    __slots__ = ()

    def ns(self, rows: list[Element]) -> float:
        return len(rows) * OBJECT_NS

    def size_of(self, rows: list[Element]) -> int:
        return _REFERENCE_BYTES * len(rows)

    def elements(self, source: DatasetIterator) -> DatasetIterator:
        return _ArraysOf(source)

    def __call__(self, rows: list[Element]) -> Element:
        batch = np.empty(len(rows), object)
        for start in range(0, len(rows), _CHECKED_AT_ONCE):
            if start:
                let_others_run()
            strings = [string for (string,) in rows[start : start + _CHECKED_AT_ONCE]]
            if set(map(type, strings)) != {bytes}:
                return PlainJoin([dtypes.string])([_with_array(row) for row in giving_way(rows, _NUMBER_NS)])
            batch[start : start + _CHECKED_AT_ONCE] = strings
        return (batch,)


def _with_array(row: Element) -> Element:
    (string,) = row
    return (np.array(string, object),) if type(string) is bytes else row


class RowsByNumbers(Join):
    """Joins rows of tensors, given their numbers.

    Args:
        components: the tensors.
    """

    __slots__ = ("_components", "_row_bytes")

    def __init__(self, components: Sequence[Any]) -> None:
        self._components = components
        self._row_bytes = sum([component[:1].nbytes for component in components])

    def ns(self, rows: list[Element]) -> float:
        strings = sum([component[:1].size for component in self._components if component.dtype.hasobject])
        return float(len(rows) * (_NUMBER_NS + OBJECT_NS * strings))

    def size_of(self, rows: list[Element]) -> int:
        return int(self._row_bytes) * len(rows)

    def elements(self, source: DatasetIterator) -> DatasetIterator:
        return _RowsOf(source, self)

    def row(self, number: Element) -> Element:
        """A row as an element."""
        return tuple([component[int(number[0]), ...] for component in self._components])

    def __call__(self, rows: list[Element]) -> Element:
        index = np.array([number for (number,) in rows], np.intp)
        return tuple([_taken(component, index) for component in self._components])


def _taken(component: Any, index: Any) -> Any:
    if len(index) <= _CHECKED_AT_ONCE:
        return component.take(index, 0)
    rows = np.empty((len(index), *component.shape[1:]), component.dtype)
    for start in range(0, len(index), _CHECKED_AT_ONCE):
        let_others_run()
        rows[start : start + _CHECKED_AT_ONCE] = component.take(index[start : start + _CHECKED_AT_ONCE], 0)
    return rows


def _check_equal_shapes(rows: Sequence[Element]) -> None:
    for index, first in enumerate(rows[0]):
        shape = first.shape
        for number, row in enumerate(rows):
            if not number % _CHECKED_AT_ONCE:
                let_others_run()
            if row[index].shape != shape:
                raise errors.InvalidArgumentError(
                    f"Cannot batch tensors with different shapes in component {index}. First element had shape "
                    f"{shape_text(first.shape)} and element {number} had shape {shape_text(row[index].shape)}."
                )


def without_arrays(source: Dataset, types: Sequence[DType], one: Pass) -> tuple[Dataset, Join]:
    """A dataset whose elements stand for those of `source` and take less time, if there is one, and how to join them.

    Args:
        types: of the elements of `source`.
        one: the pass that the batches are part of.
    """
    if (rows := row_numbers_of(source)) is not None:
        return rows.numbers, RowsByNumbers(rows.components)
    if (strings := bare_strings_of(source, one)) is not None:
        return strings, BareJoin()
    return source, PlainJoin(types)


class _ArraysOf(DatasetIterator):
    """The strings as arrays."""

    __slots__ = ("_source",)

    def __init__(self, source: DatasetIterator) -> None:
        self._source = source

    async def next(self, context: OpKernelContext) -> Element | None:
        element = await self._source.next(context)
        return None if element is None else _with_array(element)


class _RowsOf(DatasetIterator):
    """The rows with the numbers that the input gives."""

    __slots__ = ("_join", "_source")

    def __init__(self, source: DatasetIterator, join: RowsByNumbers) -> None:
        self._source = source
        self._join = join

    async def next(self, context: OpKernelContext) -> Element | None:
        number = await self._source.next(context)
        return None if number is None else self._join.row(number)
