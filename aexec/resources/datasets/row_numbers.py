"""Rows of tensors by number: a batch of shuffled rows then takes one NumPy call per tensor, not one per row.

A dataset of rows can yield row numbers in place of the rows, and so can datasets that choose or reorder its elements.
`row_numbers_of` finds such a form.  Next to read: `aexec/kernels/datasets/batch_dataset_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.resources.datasets.dataset import Dataset, DatasetIterator, Elements, Pass

__all__ = ["Rearranged", "RowNumbers", "Sliced", "over_another", "row_numbers_of", "source_of"]


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """A dataset of rows as tensors and row numbers.

    Attributes:
        components: the tensors.
        numbers: a dataset whose elements have one component, a row number.
    """

    components: tuple[Any, ...]
    numbers: Dataset


class Sliced(Elements):
    """A dataset of the rows of tensors, in order.

    Args:
        make, count: as in `Elements`.
        rows: the same dataset by row numbers.
    """

    __slots__ = ("rows",)

    def __init__(
        self,
        name: str,
        types: tuple[DType, ...],
        shapes: tuple[PartialTensorShape, ...],
        make: Callable[[Pass], DatasetIterator],
        count: int,
        rows: RowNumbers,
    ) -> None:
        super().__init__(name, types, shapes, make, count)
        self.rows = rows


class Rearranged(Dataset):
    """A dataset that chooses, reorders or repeats the elements of another one without changing them.

    Args:
        source: the other dataset.
        make: (pass, source) → iterator; `source` may be replaced by a dataset with as many elements.
        count: the cardinality.
    """

    __slots__ = ("_count", "_make", "source")

    def __init__(
        self,
        name: str,
        types: tuple[DType, ...],
        shapes: tuple[PartialTensorShape, ...],
        source: Dataset,
        make: Callable[[Pass, Dataset], DatasetIterator],
        count: int,
    ) -> None:
        super().__init__(name, types, shapes)
        self.source = source
        self._make = make
        self._count = count

    def cardinality(self) -> int:
        return self._count

    def iterator(self, one: Pass) -> DatasetIterator:
        return self._make(one, self.source)

    def over(self, source: Dataset) -> Rearranged:
        """The same arrangement of another dataset with as many elements."""
        return Rearranged(self.name, self.types, self.shapes, source, self._make, self._count)


def source_of(dataset: Dataset) -> Dataset:
    """The dataset at the start of a chain of `Rearranged` datasets; the dataset itself if it is not one."""
    while isinstance(dataset, Rearranged):
        dataset = dataset.source
    return dataset


def over_another(dataset: Dataset, source: Dataset) -> Dataset:
    """Apply the arrangements of `dataset` to `source` in place of `source_of(dataset)`."""
    between: list[Rearranged] = []
    while isinstance(dataset, Rearranged):
        between.append(dataset)
        dataset = dataset.source
    for one in reversed(between):
        source = one.over(source)
    return source


def row_numbers_of(dataset: Dataset) -> RowNumbers | None:
    """The dataset as tensors and row numbers, or None if its elements are not rows of tensors."""
    source = source_of(dataset)
    if not isinstance(source, Sliced):
        return None
    return RowNumbers(source.rows.components, over_another(dataset, source.rows.numbers))
