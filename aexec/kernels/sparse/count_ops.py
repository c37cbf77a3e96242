"""Counting small integers row by row: Bincount of sparse and ragged tensors, and counts as sparse tensors.

`Bincount` of dense tensors is in `aexec/kernels/math/math_ops.py`.
Next to read: `math_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common import scattering
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.registration import INDEX
from aexec.kernels.math.math_ops import number_of_bins
from aexec.kernels.math.reduction_ops import accumulation_type
from aexec.kernels.sparse import sparse_tensors as sparse

__all__: list[str] = []

_COUNTED = tuple(t for t in dtypes.REAL_NUMBER if t not in (dtypes.float16, dtypes.bfloat16))
_MAX_BATCHES = 2**31 - 1
_INT64_MAX = 2**63 - 1
_COST = 30.0
# Bytes per value for its sort keys and the values sorted with them.
_SCRATCH = 60


# ---- Into bins: a dense vector or matrix


class _Bins:
    """Counts values in the bins of their rows."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self._out, self._work = c.attr("T").np, accumulation_type(c.attr("T"))
        self._binary, self._allocate = c.attr("binary_output"), allocator(c)

    def fill(self, shape: tuple[int, ...], rows: Any, values: Any, weights: Any) -> Any:
        """Return counts, or sums of weights, of the values in [0, last dimension of the shape)."""
        result = self._allocate(shape, np.zeros)
        inside = (values >= 0) & (values < shape[-1])
        positions = rows[inside].astype(np.intp) * shape[-1] + values[inside]
        flat = result.reshape(-1)
        if self._binary:
            flat[positions] = 1
            return result
        # Values beyond the weights count nothing: TensorFlow would read memory behind them.
        added = weights.reshape(-1)[: inside.size] if weights.size else np.ones(inside.size, self._work)
        if added.size < inside.size:
            added = np.concatenate((added, np.zeros(inside.size - added.size, added.dtype)))
        if self._work == self._out:
            scattering.accumulate(np.add, flat, positions, added[inside].astype(self._work, copy=False))
            return result
        wide = np.zeros(flat.size, self._work)
        scattering.accumulate(np.add, wide, positions, added[inside].astype(self._work, copy=False))
        return wide.astype(self._out).reshape(shape)


@kernel("SparseBincount", T=dtypes.NUMBER, Tidx=INDEX, cost=_COST)
def sparse_bincount(c: OpKernelConstruction) -> Compute:
    """Return a vector of bins for a sparse vector, else a row of bins for each index in the first dimension."""
    bins = _Bins(c)

    def compute(indices: Any, values: Any, shape: Any, size: Any, weights: Any) -> Any:
        count = number_of_bins(size)
        sparse.check(indices, values, shape)
        sparse.check_bounds(indices, shape)
        if not shape.size:
            raise errors.InvalidArgumentError("The shape argument requires at least one element.")
        if shape.size == 1:
            return bins.fill((count,), np.zeros(values.size, np.intp), values, weights)
        sparse.check_shape(shape[:1].tolist())
        return bins.fill((int(shape[0]), count), indices[:, 0], values, weights)

    return compute


def _row_of_each(splits: Any, count: int) -> Any:
    """The row of each of `count` values; splits that decrease are treated as equal."""
    if splits[0] != 0:
        raise errors.InvalidArgumentError(f"Splits must start with 0, not with {splits[0]}")
    if splits[-1] != count:
        raise errors.InvalidArgumentError(
            f"Splits must end with the number of values, got {splits[-1]} instead of {count}"
        )
    return np.maximum.accumulate(splits).searchsorted(np.arange(count), "right") - 1


@kernel("RaggedBincount", T=dtypes.NUMBER, Tidx=INDEX, cost=_COST)
def ragged_bincount(c: OpKernelConstruction) -> Compute:
    """Return a row of bins for each row of a ragged matrix."""
    bins = _Bins(c)

    def compute(splits: Any, values: Any, size: Any, weights: Any) -> Any:
        count = number_of_bins(size)
        splits, values = splits.reshape(-1), values.reshape(-1)
        if not splits.size:
            raise errors.InvalidArgumentError("Splits must be non-empty")
        rows = _row_of_each(splits, values.size)
        if (values < 0).any():
            raise errors.InvalidArgumentError("Input must be non-negative")
        return bins.fill((splits.size - 1, count), rows, values, weights)

    return compute


# ---- As a sparse tensor


class _Counter:
    """Makes the sparse tensor of counts."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self._out = c.attr("output_type").np
        self._least, self._most = c.attr("minlength"), c.attr("maxlength")
        self._binary = c.attr("binary_output")

    def check_weights(self, weights: Any, values: Any, name: str) -> None:
        if weights.size and weights.shape != values.shape:
            raise errors.InvalidArgumentError(
                f"Weights and {name} must have the same shape. Weight shape: {shape_text(weights.shape)}; "
                f"{name} shape: {shape_text(values.shape)}"
            )

    def count(self, rows: Any, row_count: int | None, values: Any, weights: Any) -> Any:
        """Return indices, values and shape; `row_count` is None for a vector of counts."""
        values = values.reshape(-1)
        if (values < 0).any():
            raise errors.InvalidArgumentError("Input values must all be non-negative")
        added = weights.reshape(-1) if weights.size else np.ones(values.size, self._out)
        if self._most >= 0:
            inside = values < self._most
            rows, values, added = rows[inside], values[inside], added[inside]
        entries = np.stack((rows, values.astype(np.int64, copy=False)), axis=1).astype(np.int64, copy=False)
        (keys,) = sparse.row_keys(entries)
        order = sparse.ascending(keys)
        starts = sparse.group_starts(keys[order])
        found = entries[order][starts]
        if self._binary or not starts.size:
            totals = np.ones(starts.size, self._out)
        else:
            totals = np.add.reduceat(added[order], starts, dtype=self._out)
        largest = int(values.max()) if values.size else 0
        length = self._most if self._most >= 0 else min(max(largest + 1, self._least), _INT64_MAX)
        if row_count is None:
            return found[:, 1:], totals, np.array([length], np.int64)
        return found, totals, np.array([row_count, length], np.int64)


@kernel("DenseCountSparseOutput", T=INDEX, output_type=_COUNTED, cost=_COST, scratch=_SCRATCH)
def dense_count(c: OpKernelConstruction) -> Compute:
    """Return counts of each value in a vector, or in each row of a matrix."""
    counter = _Counter(c)

    def compute(data: Any, weights: Any) -> Any:
        if data.ndim not in (1, 2):
            raise errors.InvalidArgumentError(
                f"Input must be a 1 or 2-dimensional tensor. Got: {shape_text(data.shape)}"
            )
        counter.check_weights(weights, data, "data")
        if data.ndim == 1:
            return counter.count(np.zeros(data.size, np.int64), None, data, weights)
        if not data.shape[0]:
            raise errors.InvalidArgumentError("Invalid input: Shapes dimension cannot be 0.")
        return counter.count(np.arange(data.size) // max(1, data.shape[1]), len(data), data, weights)

    return compute


def _check_counted(indices: Any, values: Any, shape: Any) -> None:
    if indices.ndim != 2:
        raise errors.InvalidArgumentError(
            f"Input indices must be a 2-dimensional tensor. Got: {shape_text(indices.shape)}"
        )
    for array, name in ((values, "values"), (shape, "shape")):
        if array.ndim != 1:
            raise errors.InvalidArgumentError(f"Input {name} must be a vector. Got: {shape_text(array.shape)}")
    if values.size != len(indices):
        raise errors.InvalidArgumentError(
            "Number of values must match first dimension of indices."
            f"Got {values.size} values, indices shape: {shape_text(indices.shape)}"
        )
    if shape.size != indices.shape[1]:
        raise errors.InvalidArgumentError(
            "Number of dimensions must match second dimension of indices."
            f"Got {shape.size} dimensions, indices shape: {shape_text(indices.shape)}"
        )
    if not shape.size:
        raise errors.InvalidArgumentError("The shape argument requires at least one element.")
    wrong = sparse.out_of_bounds(indices, shape)
    if wrong.size:
        at = int(wrong[0])
        j, index, size = next(
            (j, x, n)
            for j, (x, n) in enumerate(zip(indices[at].tolist(), shape.tolist(), strict=True))
            if not 0 <= x < n
        )
        raise errors.InvalidArgumentError(
            f"Invalid index value at {at}: dimension {j} has value {index} which is not in [0, {size}) (as given by "
            f"dense shape Tensor<type: int64 shape: [{shape.size}] values: {' '.join(map(str, shape.tolist()))}>"
        )


@kernel("SparseCountSparseOutput", T=INDEX, output_type=_COUNTED, cost=_COST, scratch=_SCRATCH)
def sparse_count(c: OpKernelConstruction) -> Compute:
    """Return counts of each value in a sparse vector, or for each index in the first dimension."""
    counter = _Counter(c)

    def compute(indices: Any, values: Any, shape: Any, weights: Any) -> Any:
        _check_counted(indices, values, shape)
        counter.check_weights(weights, values, "values")
        if shape.size == 1:
            return counter.count(np.zeros(values.size, np.int64), None, values, weights)
        batches = int(shape[0])
        if not 0 < batches < _MAX_BATCHES:
            raise errors.InvalidArgumentError(f"Cannot allocate {batches} batches, is the dense shape too wide?")
        return counter.count(indices[:, 0], batches, values, weights)

    return compute


@kernel("RaggedCountSparseOutput", T=INDEX, output_type=_COUNTED, cost=_COST, scratch=_SCRATCH)
def ragged_count(c: OpKernelConstruction) -> Compute:
    """Return counts of each value in each row of a ragged matrix."""
    counter = _Counter(c)

    def compute(splits: Any, values: Any, weights: Any) -> Any:
        counter.check_weights(weights, values, "values")
        splits, values = splits.reshape(-1), values.reshape(-1)
        if splits.size < 2:
            raise errors.InvalidArgumentError("Must provide at least 2 elements for the splits argument")
        return counter.count(_row_of_each(splits, values.size), splits.size - 1, values, weights)

    return compute
