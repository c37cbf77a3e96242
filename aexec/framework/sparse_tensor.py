"""`SparseTensor`: the elements of a tensor that are not zero, and their positions.

Next to read: `indexed_slices.py`, which has whole rows.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ["SparseTensor"]

T = TypeVar("T")


class SparseTensor(NamedTuple, Generic[T]):
    """Elements of a tensor: `dense[indices[i]] = values[i]`, zero elsewhere.

    Attributes:
        indices: [n, rank], int64, in row-major order.
        values: [n].
        dense_shape: shape of the whole tensor, [rank], int64.
    """

    indices: T
    values: T
    dense_shape: T
