"""Strings of files without an array around each: a batch of them is one array, made of the bytes objects.

A dataset of strings, and those that choose or reorder its elements, can give the bytes objects in place of scalar
arrays.  `bare_strings_of` finds that out.  Next to read: `row_numbers.py`, which does so for rows of tensors, and
`aexec/kernels/datasets/batch_joins.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.shape import PartialTensorShape
from aexec.resources.datasets.dataset import Dataset, DatasetIterator, Elements, Pass
from aexec.resources.datasets.row_numbers import over_another, source_of

__all__ = ["Strings", "are_strings", "bare_strings_of", "begin_bare"]

_TYPES, _SHAPES = (dtypes.string,), (PartialTensorShape([]),)


class Strings(Elements):
    """Scalar strings.

    Args:
        name: the node.
        make: makes an iterator, given the pass.
        make_bare: the same for an iterator whose elements have a bytes object in place of the array, or some of them.

    Attributes:
        bare: the dataset of such elements.
    """

    __slots__ = ("bare",)

    def __init__(
        self,
        name: str,
        make: Callable[[Pass], DatasetIterator],
        make_bare: Callable[[Pass], DatasetIterator],
    ) -> None:
        super().__init__(name, _TYPES, _SHAPES, make)
        self.bare = Elements(name, _TYPES, _SHAPES, make_bare)


def bare_strings_of(dataset: Dataset, one: Pass) -> Dataset | None:
    """A dataset of the same strings as bytes objects, see `Strings`; None if there is none.

    None too if the session counts what the pass keeps, since it counts arrays.
    """
    source = source_of(dataset)
    if one.kept is not None or not isinstance(source, Strings):
        return None
    return over_another(dataset, source.bare)


def begin_bare(dataset: Dataset, one: Pass) -> DatasetIterator:
    """Begin a dataset in a pass, for a consumer that takes bytes objects as well as arrays."""
    return one.begin(bare_strings_of(dataset, one) or dataset)


def are_strings(types: Sequence[DType], shapes: Sequence[PartialTensorShape]) -> bool:
    """True if elements with these types and shapes are scalar strings."""
    return tuple(types) == _TYPES and shapes[0].dims == ()
