"""Views of tensors by rank: flat, scalar, vector, matrix, and regrouped dimensions.

They have the names and checks of TensorFlow's Tensor (core/framework/tensor.h).  Arrays are row-major, and a view
shares the memory of its array, NumPy's or CuPy's: an array that is not row-major is refused rather than copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.shape import shape_text

__all__ = [
    "bit_casted_shaped",
    "flat",
    "flat_inner_dims",
    "flat_inner_outer_dims",
    "flat_outer_dims",
    "matrix",
    "scalar",
    "shaped",
    "slice_outer",
    "sub_slice",
    "tensor",
    "vec",
]


def tensor(array: Any, dtype: Any, rank: int) -> Any:
    """The array itself, once checked.

    Raises:
        InvalidArgumentError: its type is not `dtype`, or it does not have `rank` dimensions.
    """
    wanted = dtypes.as_dtype(dtype).base
    if array.dtype != wanted.np:
        raise errors.InvalidArgumentError(f"Expected a tensor of type {wanted}, got {array.dtype}")
    if array.ndim != rank:
        raise errors.InvalidArgumentError(f"Expected a tensor of rank {rank}, got shape {shape_text(array.shape)}")
    return array


def vec(array: Any, dtype: Any) -> Any:
    """`tensor` of rank 1."""
    return tensor(array, dtype, 1)


def matrix(array: Any, dtype: Any) -> Any:
    """`tensor` of rank 2."""
    return tensor(array, dtype, 2)


def scalar(array: Any, dtype: Any) -> Any:
    """A tensor with one element, of any rank, as one of rank 0.

    Raises:
        InvalidArgumentError: another type, or another number of elements.
    """
    if array.size != 1:
        raise errors.InvalidArgumentError(f"Expected a tensor of one element, got shape {shape_text(array.shape)}")
    return shaped(array, dtype, ())


def shaped(array: Any, dtype: Any, sizes: Sequence[int]) -> Any:
    """Return a view of the same elements in another shape.

    Raises:
        InvalidArgumentError: another type, another number of elements, or the array is not row-major.
    """
    tensor(array, dtype, array.ndim)
    if math.prod(sizes) != array.size or any(size < 0 for size in sizes):
        raise errors.InvalidArgumentError(
            f"A tensor of shape {shape_text(array.shape)} has no view of shape {shape_text(sizes)}"
        )
    if not array.flags.c_contiguous:
        raise errors.InvalidArgumentError("Only a row-major array can be seen in another shape: copy it first")
    return array.reshape(tuple(sizes))


def flat(array: Any, dtype: Any) -> Any:
    """All elements in row-major order, as a vector."""
    return shaped(array, dtype, (array.size,))


def flat_inner_dims(array: Any, dtype: Any, rank: int = 2) -> Any:
    """`rank` dimensions: the last ones unchanged, all before them joined to one.  Missing ones of size 1 are put
    first.
    """
    return shaped(array, dtype, _inner(array.shape, rank))


def flat_outer_dims(array: Any, dtype: Any, rank: int = 2) -> Any:
    """`rank` dimensions: the first ones unchanged, all after them joined to one.  Missing ones of size 1 are put
    last.
    """
    shape = tuple(array.shape) + (1,) * (rank - array.ndim)
    return shaped(array, dtype, (*shape[: rank - 1], math.prod(shape[rank - 1 :])))


def flat_inner_outer_dims(array: Any, dtype: Any, begin: int, rank: int) -> Any:
    """`rank` dimensions: those up to `begin` joined to the first, those from begin + rank - 1 on joined to the last."""
    outer = flat_outer_dims(array, dtype, begin + rank)
    return shaped(array, dtype, _inner(outer.shape, rank))


def _inner(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    padded = (1,) * (rank - len(shape)) + tuple(shape)
    kept = len(padded) - rank + 1
    return (math.prod(padded[:kept]), *padded[kept:])


def bit_casted_shaped(array: Any, dtype: Any, sizes: Sequence[int]) -> Any:
    """Return a view of the same bytes as elements of another type, in another shape.

    Raises:
        InvalidArgumentError: strings, handles and variants; another number of bytes; not row-major.
    """
    wanted = dtypes.as_dtype(dtype).base
    if array.dtype.hasobject or wanted.np.hasobject:
        raise errors.InvalidArgumentError(f"{array.dtype} cannot be seen as {wanted}: its elements are no plain bytes")
    if math.prod(sizes) * wanted.np.itemsize != array.nbytes:
        raise errors.InvalidArgumentError(
            f"{array.nbytes} bytes cannot be seen as {wanted} of shape {shape_text(sizes)}"
        )
    return shaped(array, dtypes.from_numpy(array.dtype), (array.size,)).view(wanted.np).reshape(tuple(sizes))


def slice_outer(array: Any, start: int, limit: int) -> Any:
    """Rows `start` to `limit` along dimension 0.

    Raises:
        InvalidArgumentError: a scalar, or a range that is not within dimension 0.
    """
    if array.ndim == 0 or not 0 <= start <= limit <= array.shape[0]:
        raise errors.InvalidArgumentError(
            f"A tensor of shape {shape_text(array.shape)} has no slice from {start} to {limit}"
        )
    return array[start:limit]


def sub_slice(array: Any, index: int) -> Any:
    """Row `index` along dimension 0, with one dimension less.  Raises InvalidArgumentError if there is none."""
    if array.ndim == 0 or not 0 <= index < array.shape[0]:
        raise errors.InvalidArgumentError(f"A tensor of shape {shape_text(array.shape)} has no row {index}")
    return array[index, ...]
