"""Arithmetic on sparse tensors: sums and extrema of two, reductions over dimensions, softmax over rows.

Two tensors are added by matching their entries (`sparse_tensors.matched_rows`); one is reduced by sorting the entries
by the dimensions that stay, and reducing each run.  Inputs that are not in row-major order are sorted first; TensorFlow
would merge them as they are.
Next to read: `array_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import MAX_RANK, check_max_rank, shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.math.reduction_ops import accumulation_type
from aexec.kernels.sparse import sparse_tensors as sparse

__all__: list[str] = []

_SUMMED = (*dtypes.COMPLEX, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
# Nanoseconds per input element of sorting entries.
_SORTED = 20.0


# ---- Two sparse tensors


def _check_same_shape(a_shape: Any, b_shape: Any) -> None:
    for shape in (a_shape, b_shape):
        check_max_rank(shape.size)
    if a_shape.size != b_shape.size:
        texts = [" ".join(map(str, shape.tolist())) for shape in (a_shape, b_shape)]
        raise errors.InvalidArgumentError(f"Operands do not have the same ranks; got shapes: {texts[0]} and {texts[1]}")
    for i, (a, b) in enumerate(zip(a_shape.tolist(), b_shape.tolist(), strict=True)):
        if a != b:
            raise errors.InvalidArgumentError(f"Operands' shapes do not match: got {a} and {b} for dimension {i}")


def _check_addends(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> None:
    """Raise InvalidArgumentError, with SparseAdd's messages, unless both are sparse tensors of one shape."""
    texts = [(shape_text(x.shape), shape_text(y.shape)) for x, y in zip(a, b, strict=True)]
    if not a[0].ndim == b[0].ndim == 2:
        raise errors.InvalidArgumentError(
            f"Input indices should be matrices but received shapes: {texts[0][0]} and {texts[0][1]}"
        )
    if not a[1].ndim == b[1].ndim == 1:
        raise errors.InvalidArgumentError(
            f"Input values should be vectors but received shapes: {texts[1][0]} and {texts[1][1]}"
        )
    entries = (len(a[0]), len(b[0]))
    if (a[1].size, b[1].size) != entries:
        raise errors.InvalidArgumentError(
            f"Expected {entries[0]} and {entries[1]} non-empty input values, got {a[1].size} and {b[1].size}"
        )
    if a[0].shape[1] != b[0].shape[1]:
        raise errors.InvalidArgumentError(
            f"Input indices must have the same dimension, got {a[0].shape[1]} and {b[0].shape[1]}"
        )
    if not a[2].ndim == b[2].ndim == 1:
        raise errors.InvalidArgumentError(
            f"Input shapes should be a vector but received shapes {texts[2][0]} and {texts[2][1]}"
        )
    if a[2].size != a[0].shape[1]:
        raise errors.InvalidArgumentError(
            f"Second dimension of a_indices and length of a_shape must match, got {a[0].shape[1]} and {a[2].size}"
        )
    _check_same_shape(a[2], b[2])


def _values_at(values: Any, rows: Any) -> Any:
    """The values in these rows; zero for row -1."""
    if not values.size:
        return np.zeros(rows.size, values.dtype)
    found = values[rows]
    found[rows < 0] = 0
    return found


def _indices_at(a: Any, b: Any, a_rows: Any, b_rows: Any) -> Any:
    """The index rows that `matched_rows` found."""
    return np.concatenate((a, b))[np.where(a_rows >= 0, a_rows, len(a) + b_rows)]


@kernel("SparseAdd", T=_SUMMED, cost=_SORTED, scratch=24)
def sparse_add(c: OpKernelConstruction) -> Compute:
    """Return the sum, without entries of both tensors whose sum is smaller than a threshold."""

    def compute(*inputs: Any) -> Any:
        a, b, threshold = inputs[:3], inputs[3:6], inputs[6]
        _check_addends(a, b)
        if threshold.ndim:
            raise errors.InvalidArgumentError(
                f"The magnitude threshold must be a scalar: got shape {shape_text(threshold.shape)}"
            )
        a_rows, b_rows = sparse.matched_rows(a[0], b[0])
        values = _values_at(a[1], a_rows) + _values_at(b[1], b_rows)
        kept = (a_rows < 0) | (b_rows < 0) | (np.abs(values) >= threshold)
        if not kept.all():
            a_rows, b_rows, values = a_rows[kept], b_rows[kept], values[kept]
        return _indices_at(a[0], b[0], a_rows, b_rows), values, a[2]

    return compute


@kernel("SparseAddGrad", T=_SUMMED, cost=_SORTED, scratch=24)
def sparse_add_grad(c: OpKernelConstruction) -> Compute:
    """Return for each entry of the addends the gradient of the sum's entry at its position; zero if there is none."""

    def check(gradient: Any, a: Any, b: Any, total: Any) -> None:
        if not a.ndim == b.ndim == total.ndim == 2:
            texts = " and ".join(shape_text(x.shape) for x in (a, b, total))
            raise errors.InvalidArgumentError(f"Input indices should be matrices but received shapes: {texts}")
        if gradient.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input backprop_val_grad should be a vector but received shape: {shape_text(gradient.shape)}"
            )
        if not a.shape[1] == b.shape[1] == total.shape[1]:
            raise errors.InvalidArgumentError(
                "The densified operands should have the same ndims; for A, B, sum got: "
                f"{a.shape[1]}{b.shape[1]}{total.shape[1]}"
            )
        if gradient.size != len(total):
            raise errors.InvalidArgumentError(
                "# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): "
                f"got {gradient.size} and {len(total)}"
            )

    def compute(gradient: Any, a: Any, b: Any, total: Any) -> Any:
        check(gradient, a, b, total)
        *operands, places = sparse.row_keys(a, b, total)
        order = sparse.ascending(places)
        places, ordered = places[order], gradient[order]
        return tuple(_looked_up(keys, places, ordered) for keys in operands)

    return compute


def _looked_up(keys: Any, places: Any, values: Any) -> Any:
    """For each key the value at its position among the ascending `places`; zero if it is not there."""
    if not places.size:
        return np.zeros(keys.size, values.dtype)
    at = np.minimum(places.searchsorted(keys), places.size - 1)
    return np.where(places[at] == keys, values[at], values.dtype.type(0))


@kernel("SparseSparseMaximum", "SparseSparseMinimum", T=dtypes.REAL_NUMBER, cost=_SORTED, scratch=24)
def sparse_extremum(c: OpKernelConstruction) -> Compute:
    """Return the larger or smaller value at each position that either tensor has; a missing entry counts as zero."""
    choose = np.maximum if c.op == "SparseSparseMaximum" else np.minimum

    def compute(*inputs: Any) -> Any:
        (a, a_values, a_shape), (b, b_values, b_shape) = inputs[:3], inputs[3:]
        for indices, values, shape in (inputs[:3], inputs[3:]):
            sparse.check(indices, values, shape)
            sparse.check_bounds(indices, shape)
        _check_same_shape(a_shape, b_shape)
        a_rows, b_rows = sparse.matched_rows(a, b)
        values = choose(_values_at(a_values, a_rows), _values_at(b_values, b_rows))
        return _indices_at(a, b, a_rows, b_rows), values

    return compute


# ---- Reductions


def _axes(shape: Any, axes: Any) -> set[int]:
    if shape.ndim != 1:
        raise errors.InvalidArgumentError(f"Expected input_shape to be a vector; got shape: {shape_text(shape.shape)}")
    if axes.ndim > 1:
        raise errors.InvalidArgumentError(
            f"Expected reduction_axes to be a scalar or a vector; got shape: {shape_text(axes.shape)}"
        )
    rank = shape.size
    if axes.size > MAX_RANK:  # some are repeated, or the first or the last one is wrong
        announce_scratch(2 * axes.nbytes)
        axes = np.unique(axes)
        axes = axes if axes.size <= 2 * MAX_RANK else axes[[0, -1]]
    for axis in axes.reshape(-1).tolist():
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(f"Invalid reduction dimension {axis}, for input with {rank} dimensions.")
    return {axis % rank for axis in axes.reshape(-1).tolist()}


@kernel("SparseReduceSum", "SparseReduceSumSparse", T=dtypes.NUMBER, cost=_SORTED, scratch=24)
@kernel("SparseReduceMax", "SparseReduceMaxSparse", T=dtypes.REAL_NUMBER, cost=_SORTED, scratch=24)
def sparse_reduce(c: OpKernelConstruction) -> Compute:
    """Return sums or maxima of the entries along some axes; without entries, zero or (Sparse) no entry."""
    out, work = c.attr("T").np, accumulation_type(c.attr("T"))
    ufunc: Any = np.add if "Sum" in c.op else np.maximum
    keep, to_sparse = c.attr("keep_dims"), c.op.endswith("Sparse")
    allocate = None if to_sparse else allocator(c)

    def compute(indices: Any, values: Any, shape: Any, axes: Any) -> Any:
        reduced = _axes(shape, axes)
        dims = sparse.dims_of(shape)
        sparse.create(indices, values, dims)
        stay = [i for i in range(len(dims)) if i not in reduced]
        (keys,) = sparse.row_keys(indices[:, stay])
        order = sparse.ascending(keys)
        starts = sparse.group_starts(keys[order])
        totals = np.empty(0, out)
        if starts.size:
            totals = ufunc.reduceat(values[order].astype(work, copy=False), starts, dtype=work).astype(out, copy=False)
        groups = indices[order][starts][:, stay]
        kept_dims = [dims[i] for i in stay]
        out_dims = [1 if i in reduced else size for i, size in enumerate(dims)] if keep else kept_dims
        if allocate is None:
            return _spread(groups, stay, len(out_dims)), totals, np.array(out_dims, np.int64)
        result = allocate(out_dims, np.zeros)
        result.reshape(-1)[_flat_positions(groups, kept_dims)] = totals
        return result

    return compute


def _spread(groups: Any, columns: list[int], rank: int) -> Any:
    """The index rows with zeros for the reduced axes that are kept with size 1."""
    if groups.shape[1] == rank:
        return groups
    result = np.zeros((len(groups), rank), np.int64)
    result[:, columns] = groups
    return result


def _flat_positions(groups: Any, dims: list[int]) -> Any:
    """Row-major positions.  Raises InvalidArgumentError for one outside an array of this shape."""
    positions, size = np.zeros(len(groups), np.int64), 1
    for column in reversed(range(len(dims))):
        positions += groups[:, column] * size
        size *= dims[column]
    wrong = (positions < 0) | (positions >= size)
    if wrong.any():
        raise errors.InvalidArgumentError(
            f"Obtained a write index of {positions[wrong][0]} which is outside of bounds of [0, {size})"
        )
    return positions


@kernel("SparseSoftmax", T=(dtypes.float16, dtypes.float32, dtypes.float64), cost=2 * _SORTED, scratch=24)
def sparse_softmax(c: OpKernelConstruction) -> Compute:
    """Return the softmax over the entries of each row, the last dimension; in the order of the input."""
    out, work = c.attr("T").np, accumulation_type(c.attr("T"))

    def compute(indices: Any, values: Any, shape: Any) -> Any:
        sparse.check_matrix_and_vectors(indices, values, shape, ("sp_indices", "sp_values", "sp_shape"))
        dims = sparse.dims_of(shape)
        if len(dims) < 2:
            raise errors.InvalidArgumentError(
                f"Input should have rank >= 2, but received shape: {' '.join(map(str, dims))}"
            )
        sparse.create(indices, values, dims)
        if not values.size:
            return values
        (keys,) = sparse.row_keys(indices[:, :-1])
        order = sparse.ascending(keys)
        starts = sparse.group_starts(keys[order])
        sizes = np.diff(starts, append=keys.size)
        x = values[order].astype(work, copy=False)
        powers = np.exp(x - np.maximum.reduceat(x, starts).repeat(sizes))
        powers /= np.add.reduceat(powers, starts).repeat(sizes)
        result = np.empty(values.shape, out)
        result[order] = powers
        return result

    return compute
