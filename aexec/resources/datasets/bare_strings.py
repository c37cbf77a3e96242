"""Scalar strings as bare bytes objects: batching these is faster than batching scalar arrays.

A dataset of strings can yield bytes objects in place of scalar arrays, and so can datasets that choose or reorder its
elements.  `bare_strings_of` finds such a form.  Next to read: `row_numbers.py`, its counterpart for rows of tensors;
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
    """A dataset of scalar strings.

    Args:
        name: name of the node.
        make: pass → iterator over scalar arrays.
        make_bare: pass → iterator over bytes objects, or over bytes objects and scalar arrays.

    Attributes:
        bare: the dataset of the bare form.
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
    """The bare form of a dataset of strings (see `Strings`), or None if it has none.

    Also None if the session accounts for the memory of the pass, which it does by array.
    """
    source = source_of(dataset)
    if one.kept is not None or not isinstance(source, Strings):
        return None
    return over_another(dataset, source.bare)


def begin_bare(dataset: Dataset, one: Pass) -> DatasetIterator:
    """Begin a pass over a dataset, in its bare form if it has one.  The consumer must accept both forms of strings."""
    return one.begin(bare_strings_of(dataset, one) or dataset)


def are_strings(types: Sequence[DType], shapes: Sequence[PartialTensorShape]) -> bool:
    """True if elements with these types and shapes are scalar strings."""
    return tuple(types) == _TYPES and shapes[0].dims == ()
