"""Kernels that take or set a rectangular part of a tensor: Slice, StridedSlice and their like.

`SliceSpec` turns the masks, begin, end and strides of a strided slice into a NumPy index; the assigning kernels of
`state_ops` and `resource_variable_ops` use it, too. A slice is a view of its input, so its cost does not depend on its
size.
Next to read: `gather_scatter_ops.py`, which takes rows by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import MAX_RANK, shape_text
from aexec.kernels.array.constant_inputs import is_frozen
from aexec.kernels.common.registration import on_host
from aexec.kernels.common.scattering import zeros_of

__all__ = ["SliceSpec", "assign_slice"]

_SLICE_TYPES = (
    *dtypes.POD,
    dtypes.string,
    dtypes.qint8,
    dtypes.quint8,
    dtypes.qint32,
    dtypes.float8_e5m2,
    dtypes.float8_e4m3fn,
)
_STRIDED_TYPES = (*_SLICE_TYPES, dtypes.resource, dtypes.variant)

# TensorFlow keeps the masks in 32-bit integers, one bit for each entry of begin.
_MAX_ENTRIES = 32


class SliceSpec:
    """The masks of a strided slice; makes a NumPy index of begin, end and strides.

    The rules are those of core/util/strided_slice_op.cc.  A bit of `ellipsis` stands for all dimensions that no other
    entry names.  A bit of `new_axis` inserts a dimension of size 1 and wins over `shrink`, which takes a single index.
    Bits of `begin` and `end` mean "from the edge".
    """

    __slots__ = ("begin", "ellipsis", "end", "new_axis", "shrink")

    def __init__(self, c: OpKernelConstruction) -> None:
        """Raises InvalidArgumentError if the ellipsis mask has more than one bit."""
        self.begin: int = c.attr("begin_mask")
        self.end: int = c.attr("end_mask")
        self.ellipsis: int = c.attr("ellipsis_mask")
        self.new_axis: int = c.attr("new_axis_mask")
        self.shrink: int = c.attr("shrink_axis_mask")

    def index(self, shape: Sequence[int], begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
        """The index that selects the slice from an array of this shape; it always gives a view.

        Bounds need no clamping: Python's slices treat them as TensorFlow does.

        Raises:
            InvalidArgumentError: begin, end and strides are not vectors of one length, have too many entries for the
                shape, a stride is zero, or a single index is out of bounds.
        """
        if not (begin.ndim == end.ndim == strides.ndim == 1 and begin.size == end.size == strides.size < _MAX_ENTRIES):
            self._refuse_shapes(begin, end, strides)
        count = begin.size
        ellipsis, new_axis, shrink = self.ellipsis, self.new_axis, self.shrink
        if ellipsis & (ellipsis - 1):
            raise errors.InvalidArgumentError("Multiple ellipses in slice spec not allowed")
        dims = count - ((ellipsis | new_axis) & ((1 << count) - 1)).bit_count()
        if dims > len(shape):
            self._refuse_rank(len(shape))
        begins, ends, bit, dim = self.begin, self.end, 1, 0
        index: list[Any] = []
        for first, last, stride in zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True):
            if ellipsis & bit:
                index.append(Ellipsis)
                dim += len(shape) - dims
            elif new_axis & bit:
                index.append(None)
            else:
                if stride == 0:
                    raise errors.InvalidArgumentError(f"strides[{dim}] must be non-zero")
                if shrink & bit:
                    index.append(self._single(dim, shape[dim], first, stride))
                else:
                    index.append(slice(None if begins & bit else first, None if ends & bit else last, stride))
                dim += 1
            bit <<= 1
        if not ellipsis & (bit - 1):
            index.append(Ellipsis)
        return tuple(index)

    @staticmethod
    def _single(dim: int, size: int, at: int, stride: int) -> int:
        if stride < 0:
            raise errors.InvalidArgumentError("only stride 1 allowed on non-range indexing.")
        if at < 0:
            at += size
        if not 0 <= at < size:
            raise errors.InvalidArgumentError(f"slice index {at} of dimension {dim} out of bounds.")
        return at

    @staticmethod
    def _refuse_rank(rank: int) -> None:
        if rank == 0:
            raise errors.InvalidArgumentError("Attempting to slice scalar input.")
        raise errors.InvalidArgumentError(f"Index out of range using input dim {rank}; input has only {rank} dims")

    @staticmethod
    def _refuse_shapes(begin: np.ndarray, end: np.ndarray, strides: np.ndarray) -> None:
        raise errors.InvalidArgumentError(
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes "
            f"{shape_text(begin.shape)}, {shape_text(end.shape)}, and {shape_text(strides.shape)} instead."
        )


def _slice_index(shape: tuple[int, ...], begin: Any, size: Any) -> tuple[slice, ...]:
    begin, size = np.asarray(begin), np.asarray(size)
    rank = len(shape)
    if not (begin.ndim == size.ndim == 1 and begin.size == size.size == rank):
        raise errors.InvalidArgumentError(
            f"Expected begin and size arguments to be 1-D tensors of size {rank}, but got shapes "
            f"{shape_text(begin.shape)} and {shape_text(size.shape)} instead."
        )
    index = []
    for i, (dim, first, count) in enumerate(zip(shape, begin.tolist(), size.tolist(), strict=True)):
        if count == -1:
            count = dim - first
        if dim == 0 and not first == count == 0:
            raise errors.InvalidArgumentError(
                f"Expected begin[{i}] == 0 (got {first}) and size[{i}] == 0 (got {count}) when input.dim_size({i}) == 0"
            )
        if not 0 <= first <= dim:
            raise errors.InvalidArgumentError(f"Expected begin[{i}] in [0, {dim}], but got {first}")
        if not 0 <= count <= dim - first:
            raise errors.InvalidArgumentError(f"Expected size[{i}] in [0, {dim - first}], but got {count}")
        index.append(slice(first, first + count))
    return tuple(index)


@kernel("Slice", T=_SLICE_TYPES, host_memory=("begin", "size"), cost=0)
def slice_(c: OpKernelConstruction) -> Compute:
    """begin and size are vectors with one entry per dimension; size -1 means "to the end"."""
    cached: tuple[Any, ...] = (None, None, None, None)

    def compute(x: Any, begin: Any, size: Any) -> Any:
        nonlocal cached
        b, s, shape, index = cached
        if begin is b and size is s and x.shape == shape:
            return x[index]
        index = _slice_index(x.shape, begin, size)
        if is_frozen(begin) and is_frozen(size):
            cached = (begin, size, x.shape, index)
        return x[index] if index else x

    return compute


# Slices of int32 tensors, which are mostly shapes, stay in host memory on any device.
kernel("Slice", device="DEFAULT", T=(dtypes.int32,), host_memory=("input", "begin", "size", "output"), cost=0)(
    on_host(slice_)
)


@kernel("StridedSlice", T=_STRIDED_TYPES, host_memory=("begin", "end", "strides"), cost=0)
def strided_slice(c: OpKernelConstruction) -> Compute:
    """A view of the input; see `SliceSpec`."""
    spec = SliceSpec(c)
    cached: tuple[Any, ...] = (None, None, None, None, None)

    def compute(x: Any, begin: Any, end: Any, strides: Any) -> Any:
        nonlocal cached
        b, e, s, shape, index = cached
        if begin is b and end is e and strides is s and x.shape == shape:
            return x[index]
        index = spec.index(x.shape, begin, end, strides)
        if is_frozen(begin) and is_frozen(end) and is_frozen(strides):
            cached = (begin, end, strides, x.shape, index)
        return x[index]

    return compute


@kernel("StridedSliceGrad", T=_STRIDED_TYPES, host_memory=("shape", "begin", "end", "strides"))
def strided_slice_grad(c: OpKernelConstruction) -> Compute:
    """Return zeros of the given shape, with `dy` in the slice."""
    spec, zeros = SliceSpec(c), zeros_of(c)

    def compute(shape: Any, begin: Any, end: Any, strides: Any, dy: Any) -> Any:
        if np.ndim(shape) != 1:
            raise errors.InvalidArgumentError(f"shape must be 1-D, got shape.shape = {shape_text(np.shape(shape))}")
        if len(shape) > MAX_RANK:  # before each size becomes a Python number
            raise errors.InvalidArgumentError(f"Too many dimensions: {len(shape)} > {MAX_RANK}")
        dims = tuple(np.asarray(shape).tolist())
        out = zeros(dims)
        index = spec.index(dims, begin, end, strides)
        part = out[index]
        if part.shape != dy.shape:
            raise errors.InvalidArgumentError(
                f"shape of dy was {shape_text(dy.shape)} instead of {shape_text(part.shape)}"
            )
        part[...] = dy
        return out

    return compute


@kernel("TensorStridedSliceUpdate", T=_STRIDED_TYPES, host_memory=("begin", "end", "strides"))
def tensor_strided_slice_update(c: OpKernelConstruction) -> Compute:
    """A copy of the input whose slice is replaced by `value`."""
    spec, xp = SliceSpec(c), c.xp

    def compute(x: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
        index = spec.index(x.shape, begin, end, strides)
        out = xp.array(x)
        assign_slice(out[index], value)
        return out

    return compute


def assign_slice(part: Any, value: Any) -> None:
    """Set a slice, given as a view, to `value`, which is broadcast to it.

    Raises:
        InvalidArgumentError: `value` does not broadcast to the slice's shape.
    """
    try:
        part[...] = value
    except ValueError:
        raise errors.InvalidArgumentError(
            f"Cannot broadcast input shape {shape_text(value.shape)} into final shape {shape_text(part.shape)}"
        ) from None
