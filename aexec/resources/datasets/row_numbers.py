"""Rows of tensors by their numbers: a batch of shuffled rows is one call of NumPy for each tensor, and not one a row.

A dataset of the rows of tensors, and those that choose or reorder its elements, can make the rows' numbers in place of
the rows.  `row_numbers_of` finds that out.  Next to read: `aexec/kernels/datasets/batch_dataset_ops.py`.
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
    """A dataset of rows of tensors, in two parts.

    Attributes:
        components: the tensors.
        numbers: a dataset whose elements have one component, the number of a row.
    """

    components: tuple[Any, ...]
    numbers: Dataset


class Sliced(Elements):
    """The rows of tensors, one after another.

    Args:
        make, count: as for `Elements`.
        rows: the same by numbers.
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
    """Elements of another dataset as they are: some of them, or in another order, or again.

    Args:
        source: the other dataset.
        make: makes an iterator, given the pass and `source`, or another dataset in place of it.
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
        """The same of another dataset, which has as many elements."""
        return Rearranged(self.name, self.types, self.shapes, source, self._make, self._count)


def source_of(dataset: Dataset) -> Dataset:
    """The dataset whose elements these are, rearranged or not."""
    while isinstance(dataset, Rearranged):
        dataset = dataset.source
    return dataset


def over_another(dataset: Dataset, source: Dataset) -> Dataset:
    """The dataset with the elements of `source` in place of those of `source_of(dataset)`, in the same order."""
    between: list[Rearranged] = []
    while isinstance(dataset, Rearranged):
        between.append(dataset)
        dataset = dataset.source
    for one in reversed(between):
        source = one.over(source)
    return source


def row_numbers_of(dataset: Dataset) -> RowNumbers | None:
    """The rows that are the dataset's elements, by numbers; None if they are something else."""
    source = source_of(dataset)
    if not isinstance(source, Sliced):
        return None
    return RowNumbers(source.rows.components, over_another(dataset, source.rows.numbers))
