"""`IndexedSlices`: some rows of a tensor whose other rows are zero, such as the gradient of a gather."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ["IndexedSlices"]

T = TypeVar("T")


class IndexedSlices(NamedTuple, Generic[T]):
    """Rows of a tensor: `dense[indices[i]] = values[i]`; rows with the same index are added.

    Attributes:
        values: the rows, [n, …].
        indices: the index of each row, [n], integers.
        dense_shape: shape of the whole tensor, a vector of integers; None if unknown.
    """

    values: T
    indices: T
    dense_shape: T | None = None
