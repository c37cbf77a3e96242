"""Kernels that read and write rows by index: Gather, ScatterNd, DynamicStitch and their like.

Every index is checked, as TensorFlow does on a CPU: an index outside the tensor is an error, never a wrap-around.
Index arithmetic is in `scattering.py`.
Next to read: `slice_ops.py`, which takes rectangular parts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce, announce_scratch
from aexec.framework.shape import check_max_rank, shape_text
from aexec.kernels.common import scattering
from aexec.kernels.common.registration import on_host

__all__ = ["gather_cost", "gather_nd", "gather_v2"]

Combine = Callable[[Any, Any, Any], None]

_INDEX_TYPES = (dtypes.int32, dtypes.int64)
_GATHER_INDEX_TYPES = (dtypes.int16, *_INDEX_TYPES)
_GATHER_ND_TYPES = (
    *dtypes.ALL,
    dtypes.qint8,
    dtypes.quint8,
    dtypes.qint32,
    dtypes.float8_e5m2,
    dtypes.float8_e4m3fn,
)
_GATHER_TYPES = (*_GATHER_ND_TYPES, dtypes.qint16, dtypes.quint16)
_STITCH_TYPES = (*dtypes.POD, dtypes.string, dtypes.variant, dtypes.qint8, dtypes.quint8, dtypes.qint32)
# A comparison of int32 indices as unsigned catches negative ones, for tensors with fewer rows than this.
_MAX_UNSIGNED = 2**31
_FEW = 16
# Tensors with more elements than this are not copied to take a few of their rows.
_LARGE = 1 << 14


def _empty_value(dtype: dtypes.DType) -> Any:
    return b"" if dtype is dtypes.string else None if dtype.np.kind == "O" else 0


def gather_cost(params: Any, indices: Any, *axis: Any) -> float:
    """Nanoseconds to take the rows of `params` along an axis, by default the first."""
    at = int(axis[0]) if axis and np.ndim(axis[0]) == 0 else 0
    rows = params.size // max(1, params.shape[at]) if -params.ndim <= at < params.ndim else 1
    return float(indices.size * (2 + rows))


# ------------------------------------------------------------------ Gather


def _taker(c: OpKernelConstruction) -> Callable[[Any, Any, int], Any]:
    """A function (params, indices, axis) -> rows, for indices of this node's type."""
    xp, index_type = c.xp, c.input_types[1].base
    bare = c.output_types[0].np.kind != "O"
    large = _LARGE if xp is np else inf

    def pick(params: Any, index: Any, axis: int) -> Any:
        at = int(index)
        if not 0 <= at < params.shape[axis]:
            return _no_rows(xp, params, index, axis)
        if axis:
            return params[(slice(None),) * axis + (at,)]
        return params[at] if bare else params[at, ...]

    def take_unsigned(params: Any, indices: Any, axis: int) -> Any:
        if not indices.ndim:
            return pick(params, indices, axis)
        if params.shape[axis] >= _MAX_UNSIGNED:
            return take(params, indices, axis)
        try:
            if params.size > large and not params.flags.c_contiguous:
                return _picked(params, indices, axis)
            return params.take(indices.view(np.uint32), axis)
        except IndexError:
            return _no_rows(xp, params, indices, axis)

    def take(params: Any, indices: Any, axis: int) -> Any:
        if not indices.ndim:
            return pick(params, indices, axis)
        size = indices.size
        if size and (min(indices.ravel().tolist()) if size < _FEW else indices.min()) < 0:
            return _no_rows(xp, params, indices, axis)
        try:
            if params.size > large and not params.flags.c_contiguous:
                return _picked(params, indices, axis)
            return params.take(indices, axis)
        except IndexError:
            return _no_rows(xp, params, indices, axis)

    def take_on_device(params: Any, indices: Any, axis: int) -> Any:
        if not indices.ndim:
            return pick(params, indices, axis)
        # CuPy would wrap them around.
        if indices.size and bool(((indices < 0) | (indices >= params.shape[axis])).any()):
            return _no_rows(xp, params, indices, axis)
        return params.take(indices, axis)

    if xp is not np:
        return take_on_device
    return take_unsigned if index_type is dtypes.int32 else take


def _picked(params: Any, indices: Any, axis: int) -> Any:
    """Like `take`, which would first copy a whole array that is not contiguous."""
    if indices.size and int(indices.min()) < 0:
        raise IndexError
    if indices.size >= params.shape[axis] and all(params.strides):
        announce_scratch(params.nbytes)
        return params.take(indices, axis)  # faster if most rows are taken
    return params[(slice(None),) * axis + (indices,)]


def _no_rows(xp: Any, params: Any, indices: Any, axis: int) -> Any:
    # Indices into a tensor without elements are not checked.
    shape = params.shape[:axis] + indices.shape + params.shape[axis + 1 :]
    if prod(shape):
        scattering.refuse_index(indices, params.shape[axis], xp=xp)
    return xp.empty(shape, params.dtype)


@kernel("Gather", Tparams=_GATHER_TYPES, Tindices=_GATHER_INDEX_TYPES, cost=gather_cost)
def gather(c: OpKernelConstruction) -> Compute:
    """Rows of `params`: result shape is indices.shape + params.shape[1:]."""
    take = _taker(c)

    def compute(params: Any, indices: Any) -> Any:
        if not params.ndim:
            raise errors.InvalidArgumentError("params must be at least 1 dimensional")
        return take(params, indices, 0)

    return compute


@kernel("GatherV2", Tparams=_GATHER_TYPES, Tindices=_GATHER_INDEX_TYPES, host_memory=("axis",), cost=gather_cost)
def gather_v2(c: OpKernelConstruction) -> Compute:
    """Takes slices along `axis`; the first `batch_dims` dimensions of params and indices correspond."""
    xp, take, batch_dims = c.xp, _taker(c), c.attr("batch_dims")

    def compute(params: Any, indices: Any, axis: Any) -> Any:
        if axis.ndim:
            raise errors.InvalidArgumentError("axis must be scalar")
        rank = params.ndim
        if not rank:
            raise errors.InvalidArgumentError("params must be at least 1 dimensional")
        at = int(axis)
        if not -rank <= at < rank:
            least = at + 1 if at >= 0 else -at
            raise errors.InvalidArgumentError(f"Shape must be at least rank {least} but is rank {rank}")
        if at < 0:
            at += rank
        if batch_dims:
            return _batch_gather(xp, params, indices, at, batch_dims)
        return take(params, indices, at)

    return compute


def _reshaped(xp: Any, array: Any, shape: tuple[int, ...]) -> Any:
    """The array in another shape; if it must be copied, the copy is counted."""
    reshaped = array.reshape(shape)
    if xp is np and not np.may_share_memory(array, reshaped):
        announce_scratch(reshaped.nbytes)
    return reshaped


def _batch_gather(xp: Any, params: Any, indices: Any, axis: int, batch_dims: int) -> Any:
    rank = indices.ndim
    if not -rank <= batch_dims <= rank:
        raise errors.InvalidArgumentError(f"Expected batch_dims in the range [{-rank}, {rank}], but got {batch_dims}")
    batch = batch_dims + rank if batch_dims < 0 else batch_dims
    if batch >= params.ndim:
        raise errors.InvalidArgumentError(f"batch_dims ({batch}) must be less than rank(params) ({params.ndim}).")
    if axis < batch:
        raise errors.InvalidArgumentError(f"batch_dims ({batch}) must be less than or equal to axis ({axis}).")
    for i in range(batch):
        if params.shape[i] != indices.shape[i]:
            raise errors.InvalidArgumentError(
                f"params.shape[{i}]: {params.shape[i]} should be equal to indices.shape[{i}]: {indices.shape[i]}"
            )
    limit, inner = params.shape[axis], params.shape[axis + 1 :]
    shape = params.shape[:axis] + indices.shape[batch:] + inner
    if not prod(shape):
        return xp.empty(shape, params.dtype)
    scattering.refuse_index(indices, limit, xp=xp)
    batches, outer = prod(params.shape[:batch]), prod(params.shape[batch:axis])
    starts = xp.arange(batches * outer).reshape(batches, outer, 1) * limit
    rows = starts + indices.reshape(batches, 1, -1)
    flat = _reshaped(xp, params, (batches * outer * limit, *inner))
    picked = flat.take(rows, axis=0) if flat.flags.c_contiguous else flat[rows]
    return picked.reshape(shape)


@kernel("GatherNd", Tparams=_GATHER_ND_TYPES, Tindices=_GATHER_INDEX_TYPES, cost=gather_cost)
def gather_nd(c: OpKernelConstruction) -> Compute:
    """Elements or slices of `params` at the index tuples in the last dimension of `indices`."""
    ignore = scattering.ignores_bad_indices(c)
    xp, name, empty = c.xp, c.name, _empty_value(c.output_types[0])
    large = _LARGE if xp is np else inf

    def compute(params: Any, indices: Any) -> Any:
        params, indices = xp.asarray(params), xp.asarray(indices)
        _check_gather_nd(params, indices)
        depth = indices.shape[-1]
        dims, inner = params.shape[:depth], params.shape[depth:]
        shape = indices.shape[:-1] + inner
        if depth == 0:
            return xp.broadcast_to(params, shape)
        try:
            flat = scattering.flat_index(xp, indices, dims)
        except ValueError:
            entries = indices.reshape(-1, depth)
            good = scattering.in_bounds(xp, entries, dims)
            if not ignore:
                first = int(xp.flatnonzero(~good)[0])
                raise errors.InvalidArgumentError(
                    f"indices{scattering.position(indices.shape[:-1], first)} = {entries[first].tolist()} "
                    f"does not index into param shape {shape_text(params.shape)}, node name: {name}"
                ) from None
            announce_scratch(entries.nbytes)
            out = xp.full((len(entries), *inner), empty, params.dtype)
            out[good] = params[tuple(entries[good].T)]
            return out.reshape(shape)
        if params.size > large and not params.flags.c_contiguous:
            return params[tuple(indices[..., i] for i in range(depth))]
        return params.reshape(prod(dims), *inner).take(flat, axis=0).reshape(shape)

    return compute


def _check_gather_nd(params: Any, indices: Any) -> None:
    if params.ndim < 1:
        raise errors.InvalidArgumentError("params must be at least a vector")
    if indices.ndim < 1:
        raise errors.InvalidArgumentError("indices must be at least a vector")
    if indices.shape[-1] > params.ndim:
        raise errors.InvalidArgumentError(
            f"index innermost dimension length must be <= params rank; saw: {indices.shape[-1]} vs. {params.ndim}"
        )
    wanted = prod(indices.shape[:-1])
    if wanted and not params.size:
        raise errors.InvalidArgumentError(
            f"Requested more than 0 entries, but params is empty.  Params shape: {shape_text(params.shape)}"
        )


# ----------------------------------------------------------------- Scatter


@kernel("ScatterNd", T=(*dtypes.POD, dtypes.string), Tindices=_INDEX_TYPES, host_memory=("shape",))
def scatter_nd(c: OpKernelConstruction) -> Compute:
    """Adds rows into zeros; strings are joined if an index repeats."""
    xp, scatter, zeros = (
        c.xp,
        scattering.NdScatter(c, scattering.combiner(c.xp, "add")),
        scattering.zeros_of(c),
    )

    def compute(indices: Any, updates: Any, shape: Any) -> Any:
        indices, updates, shape = xp.asarray(indices), xp.asarray(updates), np.asarray(shape)
        if shape.ndim != 1:
            raise errors.InvalidArgumentError("Shape must be a vector")
        check_max_rank(shape.size)
        scattering.check_ranks(indices, updates)
        dims = tuple(shape.tolist())
        if dims and min(dims) < 0:
            raise errors.InvalidArgumentError(f"Dimension {min(dims)} must be >= 0")
        if not prod(dims) and indices.size and updates.size:
            raise errors.InvalidArgumentError(
                f"Indices and updates specified for empty output.  indices shape: {shape_text(indices.shape)}"
            )
        if not dims:
            raise errors.InvalidArgumentError(
                "Indices and updates specified for empty output shape"
                if indices.size or updates.size
                else "Output must be at least 1-D, got shape: []"
            )
        scattering.check_scatter_nd(dims, indices, updates)
        out = zeros(dims)
        scatter(out, indices, updates)
        return out

    return compute


def _check_tensor_scatter(tensor: Any, indices: Any, updates: Any) -> None:
    outer, depth = indices.ndim - 1, indices.shape[-1]
    if not tensor.size and (indices.size or updates.size):
        raise errors.InvalidArgumentError("Indices and updates specified for empty output shape")
    if indices.shape[:-1] != updates.shape[:outer]:
        raise errors.InvalidArgumentError(
            f"Outer dimensions of indices and update must match. Indices shape: {shape_text(indices.shape)}, "
            f"updates shape:{shape_text(updates.shape)}"
        )
    inner = updates.ndim - outer
    if tensor.ndim - depth != inner:
        raise errors.InvalidArgumentError(
            "Inner dimensions of output shape must match inner dimensions of updates shape. "
            f"Output: {shape_text(tensor.shape)} updates: {shape_text(updates.shape)}"
        )
    if tensor.shape[depth:] != updates.shape[outer:]:
        raise errors.InvalidArgumentError(
            f"The inner {inner} dimensions of output.shape={shape_text(tensor.shape)} must match the inner "
            f"{inner} dimensions of updates.shape={shape_text(updates.shape)}"
        )


def _tensor_scatter(combiner: Callable[[Any], Combine]) -> Builder:
    """Builder of kernels that copy the tensor and combine rows into it; `combiner` makes the function for an array
    module.
    """

    def builder(c: OpKernelConstruction) -> Compute:
        scatter, xp = scattering.NdScatter(c, combiner(c.xp)), c.xp

        def compute(tensor: Any, indices: Any, updates: Any) -> Any:
            tensor, indices, updates = xp.asarray(tensor), xp.asarray(indices), xp.asarray(updates)
            scattering.check_ranks(indices, updates)
            _check_tensor_scatter(tensor, indices, updates)
            out = xp.array(tensor, order="C")
            scatter(out, indices, updates)
            return out

        return compute

    return builder


_add = _tensor_scatter(lambda xp: scattering.combiner(xp, "add"))
kernel("TensorScatterAdd", T=dtypes.NUMBER, Tindices=_INDEX_TYPES)(_add)
kernel("ScatterNdNonAliasingAdd", T=dtypes.POD, Tindices=_INDEX_TYPES)(_add)
kernel("TensorScatterSub", T=dtypes.NUMBER, Tindices=_INDEX_TYPES)(
    _tensor_scatter(lambda xp: scattering.combiner(xp, "subtract"))
)
kernel("TensorScatterMax", T=dtypes.REAL_NUMBER, Tindices=_INDEX_TYPES)(
    _tensor_scatter(lambda xp: scattering.extremum(xp, "maximum", -np.inf))
)
kernel("TensorScatterMin", T=dtypes.REAL_NUMBER, Tindices=_INDEX_TYPES)(
    _tensor_scatter(lambda xp: scattering.extremum(xp, "minimum", np.inf))
)
kernel("TensorScatterUpdate", T=(*dtypes.POD, dtypes.string), Tindices=_INDEX_TYPES)(
    _tensor_scatter(lambda _: scattering.replace)
)


# ---------------------------------------------------- partition and stitch


def _partition_scratch(data: Any, partitions: Any) -> int:
    """Bytes for the order of the rows, for sorting, and for a copy of data that are not contiguous."""
    return 24 * int(partitions.size) + (0 if data.flags.c_contiguous else int(data.nbytes))


@kernel("DynamicPartition", T=dtypes.ALL, cost=4.0, scratch=_partition_scratch)
def dynamic_partition(c: OpKernelConstruction) -> Compute:
    """Distributes the rows of `data` to `num_partitions` tensors, in order."""
    xp, count = c.xp, c.attr("num_partitions")

    def compute(data: Any, partitions: Any) -> Any:
        data, partitions = xp.asarray(data), xp.asarray(partitions)
        rank = partitions.ndim
        if data.shape[:rank] != partitions.shape:
            raise errors.InvalidArgumentError(
                f"data.shape must start with partitions.shape, got data.shape = {shape_text(data.shape)}, "
                f"partitions.shape = {shape_text(partitions.shape)}"
            )
        scattering.refuse_index(partitions, count, "partitions", xp)
        rows, which = data.reshape(partitions.size, *data.shape[rank:]), partitions.ravel()
        if xp is np:
            announce(rows.nbytes)
        order = which.argsort(kind="stable")
        ends = xp.bincount(which, minlength=count).cumsum().tolist()
        ordered = rows.take(order, axis=0)
        return tuple(ordered[start:end] for start, end in zip([0, *ends], ends, strict=False))

    return compute


def _check_stitch(indices: tuple[Any, ...], data: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of one row.  Raises InvalidArgumentError if indices and data do not match."""
    for i, (index, rows) in enumerate(zip(indices, data, strict=True)):
        if rows.shape[: index.ndim] != index.shape:
            raise errors.InvalidArgumentError(
                f"data[{i}].shape = {shape_text(rows.shape)} does not start with "
                f"indices[{i}].shape = {shape_text(index.shape)}"
            )
        if rows.shape[index.ndim :] != data[0].shape[indices[0].ndim :]:
            raise errors.InvalidArgumentError(
                f"Need data[0].shape[{indices[0].ndim}:] = data[{i}].shape[{index.ndim}:], "
                f"got data[0].shape = {shape_text(data[0].shape)}, data[{i}].shape = {shape_text(rows.shape)}, "
                f"indices[0].shape = {shape_text(indices[0].shape)}, indices[{i}].shape = {shape_text(index.shape)}"
            )
    return tuple(data[0].shape[indices[0].ndim :])


def _negative_index(indices: tuple[Any, ...]) -> errors.InvalidArgumentError:
    index = next(i for i in indices if (i < 0).any())
    return errors.InvalidArgumentError(
        f"indices{scattering.position(index.shape, int((index < 0).argmax()))} is out of range"
    )


def dynamic_stitch(c: OpKernelConstruction) -> Compute:
    """Interleaves rows: data[m][i] goes to row indices[m][i]; of two rows for one index the later one stays.

    Rows that no index names are zeros; TensorFlow leaves them undefined.
    """
    count, zeros = c.attr("N"), scattering.zeros_of(c)

    def compute(*inputs: Any) -> Any:
        indices, data = inputs[:count], inputs[count:]
        inner = _check_stitch(indices, data)
        # Converted to unsigned, a negative index is larger than all others.
        size = 1 + max((int(i.view(np.uint32).max()) for i in indices if i.size), default=-1)
        if size > 2**31:
            raise _negative_index(indices)
        out = zeros((size, *inner))
        for index, rows in zip(indices, data, strict=True):
            out[index.reshape(-1)] = rows.reshape(index.size, *inner)
        return out

    return compute


def _stitch_scratch(*inputs: Any) -> int:
    """Bytes of the row indices, as NumPy's integers."""
    return 8 * max([int(index.size) for index in inputs[: len(inputs) // 2]], default=0)


kernel("DynamicStitch", "ParallelDynamicStitch", T=_STITCH_TYPES, host_memory=("indices",), scratch=_stitch_scratch)(
    dynamic_stitch
)
kernel(
    "ParallelDynamicStitch",
    device="DEFAULT",
    T=(
        dtypes.bfloat16,
        dtypes.float16,
        dtypes.float32,
        dtypes.float64,
        dtypes.complex64,
        dtypes.complex128,
        dtypes.int32,
        dtypes.int64,
    ),
    host_memory=("indices", "data", "merged"),
)(on_host(dynamic_stitch))
