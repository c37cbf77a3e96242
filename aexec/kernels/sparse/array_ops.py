"""Sparse tensors joined, cut and rearranged; none of these kernels reads the values.

Next to read: `serialize_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import check_max_rank, shape_text
from aexec.kernels.sparse import sparse_tensors as sparse

__all__: list[str] = []

# Nanoseconds per input element.
_MASKED = 5.0
_SORTED = 20.0


# ---- Concat


def _check_parts(indices: Sequence[Any], values: Sequence[Any], shapes: Sequence[Any], axis: int) -> int:
    """The axis counted from 0.  Raises InvalidArgumentError for tensors that cannot be joined along it."""
    for parts, rank, text in ((indices, 2, "indices should be a matrix"), (values, 1, "values should be a vector")):
        _check_each(parts, rank, text)
    _check_each(shapes, 1, "shapes should be a vector")
    for shape in shapes:
        check_max_rank(shape.size)
        if _overflows(shape.tolist()):
            raise errors.InvalidArgumentError("Encountered overflow from large input shape.")
    rank = shapes[0].size
    if not -rank <= axis < rank:
        raise errors.InvalidArgumentError(f"Concat dimension must be in range [{-rank}, {rank}), got {axis}")
    axis %= rank
    for i, shape in enumerate(shapes):
        if shape.size != rank:
            raise errors.InvalidArgumentError(
                f"Ranks of all input tensors must match: expected {rank} but got {shape.size} at position {i}"
            )
        for j, (first, size) in enumerate(zip(shapes[0].tolist(), shape.tolist(), strict=True)):
            if j != axis and first != size:
                raise errors.InvalidArgumentError(
                    f"Input shapes must match: expected {first} for dimension {j} but got {size} at position {i}"
                )
    return axis


def _overflows(dims: Sequence[int]) -> bool:
    return min(dims, default=0) < 0 or math.prod(dims) >= 2**63


def _check_each(parts: Sequence[Any], rank: int, text: str) -> None:
    for i, part in enumerate(parts):
        if part.ndim != rank:
            raise errors.InvalidArgumentError(
                f"Input {text} but received shape {shape_text(part.shape)} at position {i}"
            )


@kernel("SparseConcat", T=dtypes.ALL, cost=_SORTED, scratch=16)
def sparse_concat(c: OpKernelConstruction) -> Compute:
    """Concatenates tensors along an axis, with entries in row-major order."""
    xp, count, wanted_axis = c.xp, c.attr("N"), c.attr("concat_dim")

    def compute(*inputs: Any) -> Any:
        indices, values, shapes = inputs[:count], inputs[count : 2 * count], inputs[2 * count :]
        axis = _check_parts(indices, values, shapes, wanted_axis)
        dims = shapes[0].tolist()
        dims[axis] = sum(int(shape[axis]) for shape in shapes)
        if _overflows(dims):
            raise errors.InvalidArgumentError("Encountered overflow from large input shape.")
        moved, offset = [], 0
        for part, part_values, shape in zip(indices, values, shapes, strict=True):
            sparse.create(part, part_values, shape.tolist())
            moved.append(part.copy())
            moved[-1][:, axis] += offset
            offset += int(shape[axis])
        joined = xp.concatenate(moved)
        (keys,) = sparse.row_keys(joined, xp=xp)
        order = sparse.ascending(keys)
        return joined[order], xp.concatenate(values)[order], np.array(dims, np.int64)

    return compute


# ---- Split and slice


@kernel("SparseSplit", T=dtypes.ALL, cost=_MASKED, scratch=16)
def sparse_split(c: OpKernelConstruction) -> Compute:
    """Splits along an axis into equal parts; if that does not divide evenly, the first ones are one longer."""
    xp, count = c.xp, c.attr("num_split")

    def check(axis: Any, indices: Any, values: Any, shape: Any) -> int:
        if axis.ndim:
            raise errors.InvalidArgumentError(
                f"Input axis should be a scalar but received shape {shape_text(axis.shape)}"
            )
        sparse.check_ranks(indices, values, shape)
        rank: int = shape.size
        if not -rank <= axis < rank:
            raise errors.InvalidArgumentError(f"Input axis should be in range [{-rank}, {rank}), got {axis}")
        sparse.check_lengths(indices, values, shape)
        sparse.check_bounds(indices, shape, xp)
        sparse.check_shape(shape.tolist())
        size = int(shape[int(axis)])
        if not 1 <= count <= size:
            raise errors.InvalidArgumentError(
                f"Input num_split should be between 1 and the splitting dimension size ({size}), got {count}"
            )
        return int(axis) % rank

    def compute(axis: Any, indices: Any, values: Any, shape: Any) -> Any:
        where = check(axis, indices, values, shape)
        length, longer = divmod(int(shape[where]), count)
        sizes = np.full(count, length)
        sizes[:longer] += 1
        starts = np.cumsum(sizes) - sizes
        part = xp.searchsorted(xp.asarray(starts), indices[:, where], "right") - 1
        pieces: list[list[Any]] = [[], [], []]
        order = part.argsort(kind="stable")
        for i, rows in enumerate(xp.split(order, xp.searchsorted(part[order], xp.arange(1, count)).tolist())):
            places, dims = indices[rows], shape.copy()
            places[:, where] -= int(starts[i])
            dims[where] = sizes[i]
            for outputs, output in zip(pieces, (places, values[rows], dims), strict=True):
                outputs.append(output)
        return (*pieces[0], *pieces[1], *pieces[2])

    return compute


@kernel("SparseSlice", T=dtypes.ALL, cost=_MASKED, scratch=16)
def sparse_slice(c: OpKernelConstruction) -> Compute:
    """Return the entries in a box, which is clipped to the tensor's shape."""
    xp = c.xp

    def check(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> None:
        sparse.check(indices, values, shape)
        sparse.check_shape(shape.tolist())
        for array, name in ((start, "start"), (size, "size")):
            if array.ndim != 1:
                raise errors.InvalidArgumentError(
                    f"Input {name} should be a vector but received shape {shape_text(array.shape)}"
                )
            if array.size != shape.size:
                raise errors.InvalidArgumentError(
                    f"Expected {name} to be a vector of length {shape.size} but got length {array.size}"
                )
        for length in size.tolist():
            if length < 0:
                raise errors.InvalidArgumentError(f"Expected a non-negative size, got {length}")

    def compute(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> Any:
        check(indices, values, shape, start, size)
        lows, lengths = start.tolist(), size.tolist()
        dims = [
            min(length, max(whole - low, 0)) for low, length, whole in zip(lows, lengths, shape.tolist(), strict=True)
        ]
        inside = xp.ones(len(indices), bool)
        for column, (low, length) in enumerate(zip(lows, lengths, strict=True)):
            inside &= (indices[:, column] >= low) & (indices[:, column] < min(low + length, 2**63 - 1))
        rows = indices[inside]
        return rows - xp.asarray(start), values[inside], np.array(dims, np.int64)

    return compute


@kernel("SparseSliceGrad", T=dtypes.NUMBER, cost=_SORTED, scratch=44)
def sparse_slice_grad(c: OpKernelConstruction) -> Compute:
    """Return the gradient of each entry that was in the slice, zero for the others."""
    xp = c.xp

    def check(gradient: Any, indices: Any, start: Any, cut: Any) -> None:
        if not indices.ndim == cut.ndim == 2:
            raise errors.InvalidArgumentError(
                "Input and output indices should be matrices but received shapes: "
                f"{shape_text(indices.shape)} and {shape_text(cut.shape)}"
            )
        if gradient.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input backprop_val_grad should be a vector but received shape: {shape_text(gradient.shape)}"
            )
        if start.ndim != 1:
            raise errors.InvalidArgumentError(
                f"The input_start should be a vector but received shape {shape_text(start.shape)}"
            )
        if indices.shape[1] != cut.shape[1]:
            raise errors.InvalidArgumentError(
                f"The input and output should have the same ndims: got: {indices.shape[1]} and {cut.shape[1]}"
            )
        if gradient.size != len(cut):
            raise errors.InvalidArgumentError(
                "# elements of backprop_val_grad and # rows of output_indices should match (#nnz of sum): "
                f"got {gradient.size} and {len(cut)}"
            )
        if start.size != indices.shape[1]:
            raise errors.InvalidArgumentError(
                f"Expected input_start to be a vector of length {indices.shape[1]} but got length {start.size}"
            )

    def compute(gradient: Any, indices: Any, start: Any, cut: Any) -> Any:
        check(gradient, indices, start, cut)
        result = xp.zeros(len(indices), gradient.dtype)
        mine, theirs = sparse.matched_rows(indices, cut + xp.asarray(start), xp)
        met = (mine >= 0) & (theirs >= 0)
        result[mine[met]] = gradient[theirs[met]]
        used = int(met.sum())
        if used != gradient.size:
            raise errors.InvalidArgumentError(
                f"Elements of backprop_val_grad aren't all propagated. Num elements:{gradient.size}, used: {used}"
            )
        return result

    return compute


# ---- Order and shape


@kernel("SparseReorder", T=dtypes.ALL, cost=_SORTED, scratch=16)
def sparse_reorder(c: OpKernelConstruction) -> Compute:
    """Return the entries in row-major order."""
    xp = c.xp

    def compute(indices: Any, values: Any, shape: Any) -> Any:
        sparse.check(indices, values, shape)
        (keys,) = sparse.row_keys(indices, xp=xp)
        order = sparse.ascending(keys)
        return indices[order], values[order]

    return compute


def _target_dims(dims: Sequence[int], target: Sequence[int]) -> list[int]:
    """The new shape with its -1 replaced.  Raises InvalidArgumentError if it does not match."""
    sparse.check_shape(dims)
    check_max_rank(len(target))
    size, known, unknown = math.prod(dims), 1, -1
    for i, length in enumerate(target):
        if length == -1:
            if unknown >= 0:
                raise errors.InvalidArgumentError(f"only one output dimension may be -1, not both {unknown} and {i}")
            unknown = i
        elif length < 0:
            raise errors.InvalidArgumentError(f"size {i} must be non-negative, not {length}")
        else:
            known *= length
    result = list(target)
    if unknown >= 0:
        if known <= 0:
            raise errors.InvalidArgumentError(
                "reshape cannot infer the missing input size for an empty tensor unless "
                "all specified input sizes are non-zero"
            )
        result[unknown] = 1 if size % known else size // known
    sparse.check_shape([length for i, length in enumerate(result) if i != unknown])
    shapes = f"input_shape={shape_text(dims)} output_shape={shape_text(result)}"
    if unknown >= 0 and result[unknown] * known != size:
        raise errors.InvalidArgumentError(
            f"Input to reshape is a SparseTensor with {size} dense values, but the requested shape requires "
            f"a multiple of {known}. {shapes}"
        )
    if math.prod(result) != size:
        raise errors.InvalidArgumentError(
            f"Input to reshape is a tensor with {size} dense values, but the requested shape has "
            f"{math.prod(result)}. {shapes}"
        )
    return result


def _positions_scratch(indices: Any, shape: Any, new_shape: Any) -> int:
    """Bytes of the entries' positions, and of the remainder of each division."""
    return len(indices) * (24 if new_shape.size > 1 else 8)


@kernel("SparseReshape", cost=10.0, scratch=_positions_scratch)
def sparse_reshape(c: OpKernelConstruction) -> Compute:
    """Return the indices of the same entries in a shape with as many elements, one dimension of which may be -1."""
    xp = c.xp

    def compute(indices: Any, shape: Any, new_shape: Any) -> Any:
        if indices.ndim != 2:
            raise errors.InvalidArgumentError("Input must be a matrix.")
        if shape.ndim != 1:
            raise errors.InvalidArgumentError("Input shape must be a vector.")
        if indices.shape[1] != shape.size:
            raise errors.InvalidArgumentError("Input tensor rank must match input shape length.")
        if new_shape.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Target shape should be a vector but received shape {shape_text(new_shape.shape)}"
            )
        dims = sparse.dims_of(shape)
        target = _target_dims(dims, sparse.dims_of(new_shape))
        if len(indices) and (0 in dims or 0 in target):
            raise errors.InvalidArgumentError(
                f"Input tensor has {len(indices)} non zero elements but input shape ({shape_text(dims)}) "
                f"or output shape ({shape_text(target)}) is empty"
            )
        out_shape = np.array(target, np.int64)
        if dims == target:
            return indices, out_shape
        positions = xp.zeros(len(indices), np.int64)
        for column, size in enumerate(dims):
            positions *= size
            positions += indices[:, column]
        result = xp.empty((len(indices), len(target)), np.int64)
        for column in reversed(range(1, len(target))):
            if len(indices):
                positions, result[:, column] = xp.divmod(positions, target[column])
        if target:
            result[:, 0] = positions
        return result, out_shape

    return compute
