"""Code that the sparse kernels share: checks, keys that order entries, and groups of entries.

A sparse tensor is three arrays: indices int64 [entries, rank], values [entries] and a shape int64 [rank].  TensorFlow
checks it in one of two ways, each with its own messages: `check` with `check_bounds`, or `create` with `check_order`.
Which ops use which was found by experiment. Entries may be in a device's memory, as arrays of `xp`; shapes are on the
host.
Next to read: `math_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import check_max_rank, shape_text
from aexec.kernels.common.distinct import begins_run

__all__ = [
    "ascending",
    "check",
    "check_bounds",
    "check_lengths",
    "check_matrix_and_vectors",
    "check_order",
    "check_ranks",
    "check_shape",
    "create",
    "dims_of",
    "flat_positions",
    "group_starts",
    "matched_rows",
    "out_of_bounds",
    "row_keys",
]

_LIMIT = 2**63
# Bytes per entry: two copies of its position and a flag for the comparison; and, if entries are out of order, for
# finding the first wrong one.
_POSITION_BYTES, _KEY_BYTES = 17, 24


def dims_of(shape: Any) -> list[int]:
    """The numbers of a shape vector.  Raises InvalidArgumentError for more than the maximal rank, whose list takes
    long.
    """
    check_max_rank(shape.size)
    dims: list[int] = shape.tolist()
    return dims


def check_shape(dims: Sequence[int]) -> None:
    """Raise InvalidArgumentError for a negative dimension, or for more elements than int64 can count."""
    product = 1
    for size in dims:
        if size < 0:
            raise errors.InvalidArgumentError(f"Expected shape dimensions to be non-negative, got {size}")
        if product * size >= _LIMIT:
            raise errors.InvalidArgumentError(
                f"Encountered overflow when multiplying {product} with {size}, result: -1"
            )
        product *= size


def check(indices: Any, values: Any, shape: Any) -> None:
    """Raise InvalidArgumentError unless ranks and lengths match."""
    for array, rank, name in ((indices, 2, "indices"), (values, 1, "values"), (shape, 1, "shape")):
        if array.ndim != rank:
            raise errors.InvalidArgumentError(f"Sparse {name} must be rank {rank} but is rank {array.ndim}")
    check_lengths(indices, values, shape)


def check_lengths(indices: Any, values: Any, shape: Any) -> None:
    """The second half of `check`, for ops whose first half has other messages."""
    entries, rank = indices.shape
    if values.shape[0] != entries:
        raise errors.InvalidArgumentError(
            f"Number of elements in indices ({entries}) and values ({values.shape[0]}) do not match"
        )
    if shape.size != rank:
        raise errors.InvalidArgumentError(f"Index rank ({rank}) and shape rank ({shape.size}) do not match")
    check_max_rank(rank)


def out_of_bounds(indices: Any, shape: Any, xp: Any = np) -> Any:
    """The rows with an index outside the shape, ascending."""
    if not indices.size:
        return xp.empty(0, np.intp)
    return ((indices < 0) | (indices >= xp.asarray(shape))).any(axis=1).nonzero()[0]


def check_bounds(indices: Any, shape: Any, xp: Any = np) -> None:
    """Raise InvalidArgumentError unless every index is inside the shape."""
    wrong = out_of_bounds(indices, shape, xp)
    if wrong.size:
        row = ", ".join(map(str, indices[wrong[0]].tolist()))
        raise errors.InvalidArgumentError(f"Sparse index tuple indices[{wrong[0]}, :] = [{row}] is out of bounds")


def check_matrix_and_vectors(indices: Any, values: Any, shape: Any, names: Sequence[str]) -> None:
    """Raise InvalidArgumentError unless indices are a matrix and the other two vectors."""
    if indices.ndim != 2:
        raise errors.InvalidArgumentError(
            f"Input {names[0]} should be a matrix but received shape: {shape_text(indices.shape)}"
        )
    if values.ndim != 1 or shape.ndim != 1:
        raise errors.InvalidArgumentError(
            f"Inputs {names[1]} and {names[2]} should be vectors but received shapes: {shape_text(values.shape)}"
            f" and {shape_text(shape.shape)}"
        )


def check_ranks(indices: Any, values: Any, shape: Any) -> None:
    """Like `check_matrix_and_vectors`, with the messages of ops that slice and write."""
    if indices.ndim != 2:
        raise errors.InvalidArgumentError(
            f"Input indices should be a matrix but received shape {shape_text(indices.shape)}"
        )
    for array, name in ((values, "values"), (shape, "shape")):
        if array.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input {name} should be a vector but received shape {shape_text(array.shape)}"
            )


def create(indices: Any, values: Any, dims: Sequence[int]) -> None:
    """Raise InvalidArgumentError unless the arrays make a sparse tensor of this shape; index values are not checked."""
    check_shape(dims)
    if indices.ndim != 2:
        raise errors.InvalidArgumentError(f"indices must be a matrix, but got: {shape_text(indices.shape)}")
    if values.ndim != 1:
        raise errors.InvalidArgumentError(f"vals must be a vec, but got: {shape_text(values.shape)}")
    if indices.shape[0] != values.shape[0]:
        raise errors.InvalidArgumentError(
            "indices and values rows (indexing dimension) must match. "
            f"(indices = {indices.shape[0]}, values = {values.shape[0]})"
        )
    if indices.shape[1] != len(dims):
        raise errors.InvalidArgumentError("Order length must be SparseTensor rank.")
    check_max_rank(len(dims))


def flat_positions(indices: Any, dims: Sequence[int], xp: Any = np) -> Any | None:
    """Row-major positions in a dense tensor of this shape; None if an index is outside, or they are too large."""
    if math.prod(dims) >= _LIMIT:
        return None
    positions = None
    for column, size in zip(indices.T, dims, strict=True):
        # Converted to unsigned, a negative index is larger than all others.
        if column.size and column.view(f"u{column.itemsize}").max() >= size:
            return None
        positions = xp.array(column, np.int64) if positions is None else positions * size + column
    return xp.zeros(len(indices), np.int64) if positions is None else positions


def check_order(indices: Any, dims: Sequence[int], xp: Any = np) -> Any | None:
    """Raise InvalidArgumentError unless indices are inside the shape, ascending, and not repeated.

    Returns:
        Their `flat_positions`.
    """
    announce_scratch(_POSITION_BYTES * len(indices))
    positions = flat_positions(indices, dims, xp)
    if positions is not None and (positions[1:] > positions[:-1]).all():
        return positions
    announce_scratch(_KEY_BYTES * len(indices))
    bounds = np.array(dims, indices.dtype)
    wrong = out_of_bounds(indices, bounds, xp)
    first = int(wrong[0]) if wrong.size else len(indices)
    (keys,) = row_keys(indices[:first], xp=xp)
    falls = (keys[1:] <= keys[:-1]).nonzero()[0]
    if falls.size:
        at = int(falls[0]) + 1
        text = f"indices[{at}] = {shape_text(indices[at].tolist())}"
        if keys[at] == keys[at - 1]:
            raise errors.InvalidArgumentError(f"{text} is repeated")
        raise errors.InvalidArgumentError(
            f"{text} is out of order. Many sparse ops require sorted indices.\n"
            "    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n"
        )
    if wrong.size:
        raise errors.InvalidArgumentError(
            f"indices[{first}] = {shape_text(indices[first].tolist())} is out of bounds: "
            f"need 0 <= index < {shape_text(dims)}"
        )
    return positions


def row_keys(*matrices: Any, xp: Any = np) -> list[Any]:
    """An int64 key for each row of matrices of equal width: keys compare as rows do, across all matrices.

    Raises InvalidArgumentError for rows longer than the maximal rank.
    """
    check_max_rank(matrices[0].shape[1])
    rows = matrices[0] if len(matrices) == 1 else xp.concatenate(matrices)
    keys = xp.zeros(len(rows), np.int64)
    if rows.size:
        low = rows.min(axis=0)
        spans = [high - start + 1 for high, start in zip(rows.max(axis=0).tolist(), low.tolist(), strict=True)]
        if math.prod(spans) < _LIMIT:
            for column, span in enumerate(spans):
                keys *= span
                keys += rows[:, column] - low[column]
        else:
            order = xp.lexsort(rows.T[::-1])
            there = rows[order]
            keys[order[1:]] = (there[1:] != there[:-1]).any(axis=1).astype(np.int64).cumsum()
    if len(matrices) == 1:
        return [keys]
    return xp.split(keys, [*accumulate(len(m) for m in matrices[:-1])])  # type: ignore[no-any-return]


def ascending(keys: Any) -> Any:
    """Positions in ascending order of keys, stable; a slice if they are in order."""
    if (keys[1:] >= keys[:-1]).all():
        return slice(None)
    return keys.argsort(kind="stable")


def group_starts(keys: Any) -> Any:
    """The start of each run of equal keys."""
    return begins_run(keys).nonzero()[0]


def matched_rows(a: Any, b: Any, xp: Any = np) -> tuple[Any, Any]:
    """Match the rows of two index matrices, in ascending order.

    Returns:
        For each entry of the union, its row in `a` and its row in `b`; -1 if it has none.  If rows are repeated in a
            matrix, the first one matches the first of the other.
    """
    a_keys, b_keys = row_keys(a, b, xp=xp)
    keys = xp.concatenate((a_keys, b_keys))
    row = xp.concatenate((xp.arange(len(a)), xp.arange(len(b))))
    is_b = xp.arange(len(keys)) >= len(a)
    which = xp.concatenate((_occurrence(a_keys, xp), _occurrence(b_keys, xp)))
    order = xp.lexsort(xp.stack((is_b, which, keys))) if which.any() else keys.argsort(kind="stable")
    keys, row, is_b, which = keys[order], row[order], is_b[order], which[order]
    second = xp.zeros(len(keys), bool)  # entries of b that match the one of a before them
    second[1:] = is_b[1:] & ~is_b[:-1] & (keys[1:] == keys[:-1]) & (which[1:] == which[:-1])
    first = xp.flatnonzero(~second)
    a_rows = xp.where(is_b, -1, row)[first]
    met = xp.zeros(len(keys), bool)
    met[:-1] = second[1:]
    b_rows = xp.where(is_b, row, -1)[first + met[first]]
    return a_rows, b_rows


def _occurrence(keys: Any, xp: Any) -> Any:
    """The number of equal keys before each."""
    if (keys[1:] > keys[:-1]).all():
        return xp.zeros(len(keys), np.intp)
    order = keys.argsort(kind="stable")
    begins = begins_run(keys[order], xp)
    result = xp.empty(len(keys), np.intp)
    result[order] = xp.arange(len(keys)) - begins.nonzero()[0][begins.cumsum() - 1]
    return result
