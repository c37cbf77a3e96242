"""Partitioners: the number of parts in which a variable is kept, for each of its axes.

A partitioner is a function of a shape and a type, `partitioner(shape, dtype)`; `get_variable` and `variable_scope` take
one. A variable is split along one axis at most.
Next to read: `partitioned_variable.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, floor, prod

from aexec.framework import errors
from aexec.framework.dtypes import DType

__all__ = [
    "Partitioner",
    "fixed_size_partitioner",
    "min_max_variable_partitioner",
    "parts_of",
    "variable_axis_size_partitioner",
]

# (shape, type) → the number of parts along each axis.
Partitioner = Callable[[Sequence[int], DType], Sequence[int]]


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """`num_shards` parts along an axis, or as many as it is long."""

    def partitioner(shape: Sequence[int], dtype: DType) -> list[int]:
        return _along(shape, axis, min(num_shards, shape[axis]))

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Partitioner:
    """Return a partitioner into the fewest parts along an axis of at most `max_shard_bytes` bytes each, or one row.

    Args:
        bytes_per_string_element: assumed size of a string.
        max_shards: most parts, however large they are.

    Raises:
        InvalidArgumentError: sizes that are not positive.
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise errors.InvalidValueError("max_shard_bytes and bytes_per_string_element must be positive")
    if max_shards is not None and max_shards < 1:
        raise errors.InvalidValueError(f"max_shards must be positive, got {max_shards}")

    def partitioner(shape: Sequence[int], dtype: DType) -> list[int]:
        size = bytes_per_string_element if dtype.name == "string" else dtype.size
        row = size * prod(shape) // max(shape[axis], 1)
        rows = max(1, floor(max_shard_bytes / row)) if row else shape[axis]
        count = min(ceil(shape[axis] / max(rows, 1)), max_shards or shape[axis])
        return _along(shape, axis, count)

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10, bytes_per_string_element: int = 16
) -> Partitioner:
    """Return a partitioner into at most `max_partitions` parts along an axis of at least `min_slice_size` bytes each.

    Raises:
        InvalidArgumentError: sizes that are not positive.
    """
    if max_partitions < 1 or min_slice_size < 1 or bytes_per_string_element < 1:
        raise errors.InvalidValueError("max_partitions, min_slice_size and bytes_per_string_element must be positive")

    def partitioner(shape: Sequence[int], dtype: DType) -> list[int]:
        size = bytes_per_string_element if dtype.name == "string" else dtype.size
        wanted = max(1, ceil(prod(shape) * size / min_slice_size))
        return _along(shape, axis, min(wanted, max_partitions, shape[axis]))

    return partitioner


def _along(shape: Sequence[int], axis: int, count: int) -> list[int]:
    parts = [1] * len(shape)
    parts[axis] = max(count, 1)
    return parts


def parts_of(shape: Sequence[int], partitions: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Offset and shape of each part; if the size cannot be divided evenly, the first parts have one row more.

    Raises:
        InvalidArgumentError: not one number for each axis, a number is not positive, or more than one axis is split.
    """
    if len(partitions) != len(shape) or any(count < 1 for count in partitions):
        raise errors.InvalidValueError(
            f"Partitioner returned {list(partitions)} for shape {list(shape)}; expected a positive number for each axis"
        )
    cut = [axis for axis, count in enumerate(partitions) if count > 1]
    if len(cut) > 1:
        raise errors.InvalidValueError(
            f"Can only slice a variable along one dimension: shape: {list(shape)}, partitioning: {list(partitions)}"
        )
    axis = cut[0] if cut else 0
    each, extra = divmod(shape[axis], partitions[axis])
    start = 0
    for number in range(partitions[axis]):
        offset, size = [0] * len(shape), list(shape)
        offset[axis], size[axis] = start, each + (number < extra)
        start += size[axis]
        yield offset, size
