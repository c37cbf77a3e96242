"""Feature crosses of ragged, sparse and dense columns, in any order, as a ragged matrix.

Next to read: `aexec/kernels/sparse/cross_ops.py`, which computes the crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.registration import INDEX
from aexec.kernels.sparse import cross_ops as crosses

__all__: list[str] = []

_COST = 500.0
_RANK = "tf.ragged.cross only supports inputs with rank=2."
_KINDS = {"R": "ragged", "S": "sparse", "D": "dense"}


def _check_splits(splits: Any, count: int) -> None:
    if not splits.size:
        raise errors.InvalidArgumentError(
            "Invalid ragged splits: ragged splits must have at least one splits, but is empty"
        )
    if splits[0] != 0:
        raise errors.InvalidArgumentError(
            f"Invalid ragged splits: first element of ragged splits  must be 0 but is {splits[0]}"
        )
    falls = np.flatnonzero(splits[1:] < splits[:-1])
    if falls.size:
        i = int(falls[0])
        raise errors.InvalidArgumentError(
            "Invalid ragged splits: ragged splits must be monotonically increasing, but "
            f"ragged_splits[{i + 1}]={splits[i + 1]} is smaller than row_splits[{i}]={splits[i]}"
        )
    if splits[-1] != count:
        raise errors.InvalidArgumentError(
            "Invalid ragged splits: last element of ragged splits must be the number of ragged "
            f"values({count}) but is {splits[-1]}"
        )


def _ragged_column(values: Any, splits: Any) -> tuple[crosses.Column, int]:
    if values.ndim != 1 or splits.ndim != 1:
        raise errors.InvalidArgumentError(_RANK)
    _check_splits(splits, values.size)
    counts = np.diff(splits)
    rows = np.flatnonzero(counts)
    return crosses.Column(values, rows, splits[rows], counts[rows], is_dense=False), splits.size - 1


def _sparse_column(i: int, indices: Any, values: Any, shape: Any) -> tuple[crosses.Column, int]:
    if indices.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or len(indices) != values.size:
        raise errors.InvalidArgumentError(f"Invalid SparseTensor {i}")
    if indices.shape[1] != 2 or shape.size != 2:
        raise errors.InvalidArgumentError(_RANK)
    batch = int(shape[0])
    if batch < 0:
        raise errors.InvalidArgumentError(f"Invalid SparseTensor {i}")
    return crosses.sparse_column(indices, values, batch), batch


def _dense_column(matrix: Any) -> tuple[crosses.Column, int]:
    if matrix.ndim != 2:
        raise errors.InvalidArgumentError(_RANK)
    return crosses.dense_column(matrix), matrix.shape[0]


def _in_order(order: str, columns: dict[str, list[Any]]) -> list[Any]:
    """The columns, in the order in which the letters name their kinds."""
    taken = dict.fromkeys(_KINDS, 0)
    found = []
    for letter in order:
        if letter not in _KINDS:
            raise errors.InvalidArgumentError("Unexpected input_order value.")
        if taken[letter] == len(columns[letter]):
            raise errors.InvalidArgumentError(
                f'input_order "{order}" specifies reading a {_KINDS[letter]} tensor at index {taken[letter]} '
                f"from a list of {len(columns[letter])} tensors."
            )
        found.append(columns[letter][taken[letter]])
        taken[letter] += 1
    return found


@kernel("RaggedCross", out_row_splits_type=INDEX, cost=_COST)
def ragged_cross(c: OpKernelConstruction) -> Compute:
    """Return for each row all combinations of one feature of every column, as texts or as hashes."""
    order, to_hash = c.text("input_order"), c.attr("hashed_output")
    buckets, key, splits_type = c.attr("num_buckets"), c.attr("hash_key"), c.attr("out_row_splits_type")
    if to_hash != (c.attr("out_values_type") is dtypes.int64):
        raise errors.InvalidArgumentError("hashed_output gives values of type int64, and no others do")
    names = ("ragged_values", "ragged_row_splits", "sparse_indices", "sparse_values", "sparse_shape", "dense_inputs")
    ranges = [c.input_range(name) for name in names]
    allocate, allocate_splits = allocator(c), allocator(c, 1)

    def columns_of(inputs: Sequence[Any]) -> list[tuple[crosses.Column, int]]:
        ragged, splits, indices, values, shapes, dense = (inputs[start:stop] for start, stop in ranges)
        if len({len(indices), len(values), len(shapes)}) > 1 or len(ragged) != len(splits):
            raise errors.InvalidArgumentError("sparse or ragged inputs are not of equal number")
        kinds = {
            "R": [_ragged_column(*pair) for pair in zip(ragged, splits, strict=True)],
            "S": [_sparse_column(i, *parts) for i, parts in enumerate(zip(indices, values, shapes, strict=True))],
            "D": [_dense_column(matrix) for matrix in dense],
        }
        if len({batch for group in kinds.values() for _, batch in group}) > 1:
            raise errors.InvalidArgumentError("inputs must all have the same batch dimension size.")
        if len(order) != sum(map(len, kinds.values())):
            raise errors.InvalidArgumentError("Invalid length for input_order")
        return _in_order(order, kinds)

    def compute(*inputs: Any) -> Any:
        found = columns_of(inputs)
        if not found:
            return np.empty(0, c.output_types[0].np), np.zeros(1, splits_type.np)
        columns = [column for column, _ in found]
        splits = allocate_splits(found[0][1] + 1, np.zeros)
        rows, _, features = crosses.crossings(columns, lambda count: allocate((count, 2 + len(columns))))
        if rows.size > splits_type.max:
            raise errors.InvalidArgumentError(f"{rows.size} crosses are too many for row splits of {splits_type}")
        np.add.at(splits, rows + 1, 1)
        np.cumsum(splits, out=splits)
        if to_hash:
            words = [crosses.words_of(column.values) for column in columns]
            return crosses.hashed(key, words, features, buckets), splits
        return crosses.joined(columns, features, crosses.SEPARATOR), splits

    return compute
