"""`IndexedSlices`: some rows of a tensor whose other rows are zero, as gathers have for a gradient."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ["IndexedSlices"]

T = TypeVar("T")


class IndexedSlices(NamedTuple, Generic[T]):
    """Rows of a tensor: `dense[indices[i]] = values[i]`; rows that are named twice are added.

    Attributes:
        values: the rows, [n, …].
        indices: [n], integers; where each row is.
        dense_shape: shape of the whole, a vector of integers; None if it is not known.
    """

    values: T
    indices: T
    dense_shape: T | None = None
