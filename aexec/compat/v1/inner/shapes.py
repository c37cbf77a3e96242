"""`tensorflow.python.framework.tensor_shape`: shapes by their ranks.

Next to read: `aexec/compat/v1/values/shapes.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.values.shapes import TensorShape

__all__ = ["as_shape", "matrix", "scalar", "unknown_shape", "vector"]


def as_shape(shape: Any) -> TensorShape:
    """A TensorShape of anything that can be one."""
    return shape if isinstance(shape, TensorShape) else TensorShape(shape)


def unknown_shape(rank: int | None = None, **kwargs: Any) -> TensorShape:
    """A shape of unknown sizes, and of unknown rank if none is given; also as `ndims`."""
    ndims = kwargs.pop("ndims", rank)
    if kwargs:
        raise TypeError(f"Unknown argument: {', '.join(kwargs)}")
    return TensorShape(None if ndims is None else [None] * ndims)


def scalar() -> TensorShape:
    """`[]`."""
    return TensorShape([])


def vector(length: Any) -> TensorShape:
    """`[length]`."""
    return TensorShape([length])


def matrix(rows: Any, cols: Any) -> TensorShape:
    """`[rows, cols]`."""
    return TensorShape([rows, cols])
