"""Ragged tensors: row splits, outermost first, over a vector (or more) of values.

There are no loops over rows: `_positions` lists the positions of all rows at once.
Next to read: `variant_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import ReusedScratch, announce_scratch
from aexec.framework.shape import check_max_rank, shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import repeated
from aexec.kernels.common.registration import INDEX

__all__ = ["VALUE_TYPES"]

VALUE_TYPES = (*dtypes.POD, dtypes.string, *dtypes.QUANTIZED)

_COST = 10.0
# Nanoseconds for a row of which a function of NumPy makes something.
_ROW_NS = 1000.0
# Bytes of a range's length and start in arrays and lists.
_RANGE_BYTES = 100
# Bytes per number of a partition for its row and position, and per value for its target.
_PARTITION_BYTES, _TARGET_BYTES = 40, 32
# The most ranges from which a cost is estimated; more are offloaded anyway.
_LOOKED_AT = 1 << 12
_INT64_MAX = 2**63 - 1


def _positions(starts: Any, lengths: Any) -> Any:
    """start, start + 1, … of each row, one row after the other."""
    ends = lengths.cumsum()
    total = int(ends[-1]) if ends.size else 0
    announce_scratch(16 * total)
    return np.arange(total) + repeated(starts - (ends - lengths), lengths)


def _splits_of(lengths: Any, dtype: Any) -> Any:
    """Row splits for rows of these lengths."""
    splits = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=splits[1:])
    return splits


# ---- RaggedRange


def _range_lengths(starts: Any, limits: Any, deltas: Any) -> Any:
    """The number of elements of each range, int64.  Raises InvalidArgumentError if int64 cannot hold it."""
    runs = np.where(deltas > 0, starts < limits, limits < starts)
    if starts.dtype.kind == "i":
        # Differences of unsigned numbers cannot overflow.
        low, high = np.minimum(starts, limits), np.maximum(starts, limits)
        distance = high.astype(np.uint64) - low.astype(np.uint64)
        step = np.where(deltas > 0, deltas.astype(np.uint64), np.uint64(0) - deltas.astype(np.uint64))
        count, rest = np.divmod(distance, step)
        lengths = np.where(runs, count + (rest > 0), np.uint64(0))
        too_long = lengths > _INT64_MAX
    else:
        lengths = np.ceil(np.abs((limits.astype(np.float64) - starts) / deltas))
        runs |= np.isnan(lengths)
        too_long = runs & ~(lengths < float(_INT64_MAX))
        lengths = np.where(runs & ~too_long, lengths, 0)
    if too_long.any():
        raise errors.InvalidArgumentError(f"Requires ((limit - start) / delta) <= {_INT64_MAX}")
    return lengths.astype(np.int64)


def _range_cost(attrs: Mapping[str, Any]) -> Callable[..., float]:
    """By elements, and by rows, which are summed one by one if the type rounds."""
    row_ns = _ROW_NS if attrs["T"].is_floating else _COST

    def cost(starts: Any, limits: Any, deltas: Any) -> float:
        rows = max(starts.size, limits.size, deltas.size)
        if rows > _LOOKED_AT:
            return float(_ROW_NS * rows)
        return float(row_ns * rows + _COST * np.abs((limits - starts) / deltas).sum())

    return cost


@kernel("RaggedRange", T=(dtypes.float32, dtypes.float64, *INDEX), Tsplits=INDEX, cost=AttrCost(_range_cost))
def ragged_range(c: OpKernelConstruction) -> Compute:
    """Return one range for each start, limit and delta; scalars stand for all ranges."""
    splits_type, allocate = c.attr("Tsplits"), allocator(c, 1)
    exact = not c.attr("T").is_floating

    def compute(starts: Any, limits: Any, deltas: Any) -> Any:
        vectors = (("starts", starts), ("limits", limits), ("deltas", deltas))
        for name, vector in vectors:
            if vector.ndim > 1:
                raise errors.InvalidArgumentError(f"{name} must be a scalar or vector")
        if len({vector.shape for _, vector in vectors if vector.ndim}) > 1:
            raise errors.InvalidArgumentError("starts, limits, and deltas must have the same shape")
        starts, limits, deltas = np.broadcast_arrays(np.atleast_1d(starts), limits, deltas)
        announce_scratch(_RANGE_BYTES * starts.size)
        if not deltas.all():
            raise errors.InvalidArgumentError("Requires delta != 0")
        lengths = _range_lengths(starts, limits, deltas)
        total = sum(lengths.tolist())
        if total > splits_type.max:
            raise errors.InvalidArgumentError(
                "The total range size overflowed. Consider using int64 instead of int32 for row_splits_dtype."
            )
        values, splits = allocate(total), _splits_of(lengths, splits_type.np)
        if exact:
            steps = _positions(np.zeros_like(lengths), lengths)
            values[...] = repeated(starts, lengths) + steps * repeated(deltas, lengths)
            return splits, values
        # TensorFlow adds up the steps, and with them rounding errors.
        values[...] = repeated(deltas, lengths)
        first = splits[:-1][lengths > 0]
        values[first] = starts[lengths > 0]
        for start, stop in giving_way(pairwise([*first.tolist(), total]), _ROW_NS):
            np.add.accumulate(values[start:stop], out=values[start:stop])
        return splits, values

    return compute


# ---- RaggedGather


def _check_splits(splits: Sequence[Any], value_count: int) -> None:
    counts = [*(max(s.size - 1, 0) for s in splits[1:]), value_count]
    for vector, count in zip(splits, counts, strict=True):
        if not vector.size:
            continue
        if vector[0] < 0:
            raise errors.InvalidArgumentError("Ragged splits must be non-negative")
        if (vector[1:] < vector[:-1]).any():
            raise errors.InvalidArgumentError("Ragged splits must be sorted")
        if vector[-1] > count:
            raise errors.InvalidArgumentError("Ragged splits must not point past values")


@kernel("RaggedGather", Tindices=INDEX, Tvalues=VALUE_TYPES, Tsplits=INDEX, cost=_COST, scratch=24)
def ragged_gather(c: OpKernelConstruction) -> Compute:
    """Return the rows that the indices name, in the indices' shape."""
    levels, out_levels, splits_type = c.attr("PARAMS_RAGGED_RANK"), c.attr("OUTPUT_RAGGED_RANK"), c.attr("Tsplits")
    allocates = [allocator(c, i) for i in range(out_levels + 1)]

    def outer_splits(shape: Sequence[int]) -> list[Any]:
        rows, result = 1, []
        for size, width in pairwise(shape):
            rows *= size
            announce_scratch(2 * (rows + 1) * splits_type.size)
            result.append(np.arange(rows + 1, dtype=splits_type.np) * width)
        return result

    def compute(*inputs: Any) -> Any:
        splits, values, indices = [s.reshape(-1) for s in inputs[:levels]], inputs[levels], inputs[-1]
        if not values.ndim:
            raise errors.InvalidArgumentError("params.rank must be nonzero")
        rows, limit = indices.reshape(-1), splits[0].size - 1
        wrong = np.flatnonzero((rows < 0) | (rows >= limit))
        if wrong.size:
            raise errors.InvalidArgumentError(f"indices[{wrong[0]}] = {rows[wrong[0]]} is not in [0, {limit})")
        if out_levels != levels + indices.ndim - 1:
            raise errors.InvalidArgumentError(
                f"OUTPUT_RAGGED_RANK {out_levels} does not fit {levels} row splits and indices of rank {indices.ndim}"
            )
        _check_splits(splits, values.shape[0])
        outputs = outer_splits(indices.shape)
        for level, vector in enumerate(splits):
            starts, lengths = vector[rows].astype(np.int64), (vector[1:] - vector[:-1])[rows].astype(np.int64)
            total = int(lengths.sum())
            if indices.ndim or level:
                outputs.append(_splits_of(lengths, splits_type.np))
            shape = (total, *values.shape[1:]) if level == levels - 1 else (total + 1,)
            allocates[min(len(outputs), out_levels)](shape)  # only to check the memory
            rows = _positions(starts, lengths)
        return (*outputs, values[rows])

    return compute


# ---- RaggedTensorToSparse


@kernel("RaggedTensorToSparse", Tsplits=INDEX, cost=_COST, scratch=48)
def ragged_to_sparse(c: OpKernelConstruction) -> Compute:
    """Return a sparse tensor with a dimension for each row split, and those of the values."""
    levels = c.attr("RAGGED_RANK")

    def check(splits: Sequence[Any], values: Any) -> None:
        sizes = [*(s.size - 1 for s in splits[1:]), values.shape[0] if values.ndim else 0]
        for vector, size in zip(splits, sizes, strict=True):
            if not vector.size:
                raise errors.InvalidArgumentError("ragged splits may not be empty.")
            if vector[0] != 0:
                raise errors.InvalidArgumentError("First value of ragged splits must be 0.")
            falls = np.flatnonzero(vector[1:] < vector[:-1])
            if falls.size:
                i = int(falls[0])
                raise errors.InvalidArgumentError(
                    f"Ragged splits should be non decreasing, but we got {vector[i]} followed by {vector[i + 1]}"
                )
            if vector[-1] != size:
                raise errors.InvalidArgumentError(
                    "Final value of ragged splits must match the length the corresponding ragged values."
                )

    def compute(*inputs: Any) -> Any:
        splits, values = [s.reshape(-1).astype(np.int64, copy=False) for s in inputs[:levels]], inputs[levels]
        check(splits, values)
        columns = [np.arange(splits[0].size - 1)]
        widths = [splits[0].size - 1]
        for vector in splits:
            lengths = np.diff(vector)
            columns = [repeated(column, lengths) for column in columns]
            columns.append(_positions(np.zeros_like(lengths), lengths))
            widths.append(int(lengths.max(initial=0)))
        inner = values.shape[1:]
        if inner and not values.size:  # its rows may have any number of positions
            columns = [np.zeros(0, np.int64)] * (len(columns) + len(inner))
        elif inner:
            size = int(np.prod(inner))
            columns = [np.repeat(column, size) for column in columns]
            places = np.unravel_index(np.arange(size), inner)
            columns += [np.tile(place, values.shape[0]) for place in places]
        return np.stack(columns, axis=1), values.reshape(-1), np.array([*widths, *inner], np.int64)

    return compute


# ---- RaggedTensorToTensor

_FIRST_SIZE, _ROW_IDS, _SPLITS = b"FIRST_DIM_SIZE", b"VALUE_ROWIDS", b"ROW_SPLITS"
_PARTITIONS = (_FIRST_SIZE, _ROW_IDS, b"ROW_LENGTHS", _SPLITS, b"ROW_LIMITS", b"ROW_STARTS")


def _rows_and_places(
    kind: bytes, partition: Any, row_count: int, most: float, scratch: ReusedScratch
) -> tuple[Any, Any]:
    """For each value of a level, which has at most `most`, its row, and its position in that."""
    scratch.announce(_PARTITION_BYTES * partition.size)
    flat = partition.reshape(-1).astype(np.int64, copy=False)
    if kind == _SPLITS:
        lengths = np.diff(flat)
        if lengths.size != row_count or (flat.size and flat[0] != 0) or (lengths < 0).any():
            raise errors.InvalidArgumentError("Invalid row split size.")
        total = int(flat[-1]) if flat.size else 0
        if total > most:
            raise errors.InvalidArgumentError("Invalid row split size.")
        check_inline(_COST * total)
        return repeated(np.arange(row_count), lengths), _positions(np.zeros_like(lengths), lengths)
    wrong = np.flatnonzero((flat < 0) | (flat >= row_count))
    if wrong.size:
        which = "next" if wrong[0] else "current"
        raise errors.InvalidArgumentError(
            f"Got {which}_value_rowid={flat[wrong[0]]} which is not less than {row_count}"
        )
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(starts, append=flat.size)
    return flat, _positions(np.zeros_like(lengths), lengths)


def _wanted_shape(shape: Any, rank: int, inner: Sequence[int]) -> list[int]:
    """The requested shape, -1 for unknown sizes.  Raises InvalidArgumentError if it does not match."""
    if shape.ndim > 1:
        raise errors.InvalidArgumentError(f"Shape must be at most rank 1 but is rank {shape.ndim}")
    if not shape.ndim:
        if shape != -1:
            raise errors.InvalidArgumentError(
                "The only valid scalar shape tensor is the fully unknown shape specified as -1."
            )
        return [-1] * rank
    check_max_rank(shape.size)
    dims: list[int] = shape.tolist()
    for size in dims:
        if size < -1:
            raise errors.InvalidArgumentError(f"Dimension {size} must be >= -1")
    text = shape_text("?" if size < 0 else size for size in dims)
    problem = f"rt_input.shape and shape={text} are incompatible: "
    if len(dims) != rank:
        raise errors.InvalidArgumentError(f"{problem}rt_input.rank = {rank} but shape.rank = {len(dims)}")
    for i, have in enumerate(inner, rank - len(inner)):
        if dims[i] not in (-1, have):
            raise errors.InvalidArgumentError(f"{problem}rt_input.shape[{i}] = {have} but shape[{i}] = {dims[i]}")
    return dims


def _check_default(default: Any, values: Any) -> None:
    problem = (
        f"default_value.shape={shape_text(default.shape)} and rt_input.flat_values.shape={shape_text(values.shape)} "
        "are incompatible: "
    )
    if default.ndim >= values.ndim:
        raise errors.InvalidArgumentError(
            f"{problem}default_value.rank = {default.ndim}  must be less than rt_input.flat_values.rank = {values.ndim}"
        )
    for i in range(1, default.ndim + 1):
        if default.shape[-i] not in (1, values.shape[-i]):
            raise errors.InvalidArgumentError(
                f"{problem}default_value.shape[-{i}] = {default.shape[-i]} but "
                f"rt_input.flat_values.shape[-{i}] = {values.shape[-i]}"
            )


@kernel("RaggedTensorToTensor", T=VALUE_TYPES, Tindex=INDEX, cost=_COST)
def ragged_to_tensor(c: OpKernelConstruction) -> Compute:
    """Return a dense tensor with the rows cut or padded with a default to the given shape."""
    kinds: list[bytes] = c.attr("row_partition_types")
    for kind in kinds:
        if kind not in _PARTITIONS:
            raise errors.InvalidArgumentError(f"Unknown string for partition info type: {abridged(kind)}")
    if c.attr("num_row_partition_tensors") != len(kinds):
        raise errors.InvalidArgumentError("There are not as many row partitions as row_partition_types")
    levels = [i for i, kind in enumerate(kinds) if kind != _FIRST_SIZE]
    allocate = allocator(c)

    def first_size(partitions: Sequence[Any]) -> int:
        if not kinds or not partitions[0].size:
            raise errors.InvalidArgumentError("Invalid first partition input. Tensor requires at least one element.")
        if kinds[0] == _ROW_IDS:
            raise errors.InvalidArgumentError("Cannot handle VALUE_ROWIDS in first dimension.")
        for i, kind in enumerate(kinds):
            if kind not in (_SPLITS, _ROW_IDS) and (i or kind != _FIRST_SIZE):
                raise errors.InvalidArgumentError(f"Cannot handle type {kind.decode()}")
        if kinds[0] == _SPLITS:
            return int(partitions[0].size) - 1
        size = int(partitions[0].reshape(-1)[0])
        if size < 0:
            raise errors.InvalidArgumentError(f"Dimension {size} must be >= 0")
        return size

    def most_values(values: Any, partitions: Sequence[Any], depth: int) -> float:
        """The most values of the level above `depth`; rows without values may be any number above row ids."""
        if depth == len(levels):
            return int(values.shape[0])
        below = levels[depth]
        return float(partitions[below].size) - 1 if kinds[below] == _SPLITS else math.inf

    def compute(shape: Any, values: Any, default: Any, *partitions: Any) -> Any:
        target: Any
        _check_default(default, values)
        inner = values.shape[1:]
        rows = first_size(partitions)
        wanted = _wanted_shape(shape, len(levels) + 1 + len(inner), inner)
        out_rows = rows if wanted[0] < 0 else wanted[0]
        sizes = [out_rows]
        # The position of each row, or value, of a level in the output; -1 if it is cut off.  In the first level, whose
        # size may be any number, only rows with values are considered.
        target = None if levels else np.arange(min(rows, out_rows, values.shape[0]))
        count, partition_scratch, scratch = rows, ReusedScratch(), ReusedScratch()
        for depth, i in enumerate(levels, 1):
            most = most_values(values, partitions, depth)
            row, place = _rows_and_places(kinds[i], partitions[i], count, most, partition_scratch)
            scratch.announce(_TARGET_BYTES * row.size + (0 if target is None else target.nbytes))
            size = wanted[depth] if wanted[depth] >= 0 else int(place.max(initial=-1)) + 1
            sizes.append(size)
            above = np.where(row < out_rows, row, -1) if target is None else target[row]
            target = np.where((place < size) & (above >= 0), above * size + place, -1)
            count = target.size
        if count > values.shape[0]:
            raise errors.InvalidArgumentError("Invalid row split size.")
        result = allocate((*sizes, *inner))
        result[...] = default
        kept = target >= 0
        result.reshape(-1, *inner)[target[kept]] = values[: target.size][kept]
        return result

    return compute
