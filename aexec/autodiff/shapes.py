"""Helpers of gradient functions: undoing a broadcast, and shapes that are constants if they are known."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import constant
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

__all__ = [
    "conjugated",
    "constant_value",
    "like_input",
    "real_type",
    "reshaped_like",
    "shape_of",
    "size_along",
    "summed_to",
    "transposed",
    "unbroadcast",
]


def constant_value(tensor: Tensor) -> Any:
    """The array of a Const node, or None for other tensors."""
    return tensor.node.attrs["value"].array if tensor.node.op == "Const" else None


def conjugated(tensor: Tensor) -> Tensor:
    """The conjugate of a tensor; the tensor itself if it is real."""
    return ops.conj(tensor) if tensor.dtype.is_complex else tensor


def shape_of(tensor: Tensor, dtype: Any = dtypes.int32) -> Tensor:
    """The shape as a vector; a constant if the static shape is complete."""
    if tensor.static_shape.is_fully_defined:
        return constant(np.array(tensor.static_shape.as_tuple(), dtype.np), name="shape")
    return ops.shape(tensor, out_type=dtype)


def size_along(tensor: Tensor, axis: int) -> Any:
    """The size of a dimension: an int if it is known, else a scalar int32 tensor."""
    size = None if tensor.static_shape.rank is None else tensor.static_shape[axis]
    return shape_of(tensor)[axis] if size is None else size


def reshaped_like(tensor: Tensor, other: Tensor) -> Tensor:
    """`tensor` in the shape of `other`."""
    if tensor.static_shape.is_fully_defined and tensor.static_shape == other.static_shape:
        return tensor
    return ops.reshape(tensor, shape_of(other))


def like_input(tensor: Tensor, other: Tensor) -> Tensor:
    """`tensor` in the type of `other`."""
    if tensor.dtype.base is other.dtype.base:
        return tensor
    return ops.cast(tensor, DstT=other.dtype.base)


def unbroadcast(grad_x: Tensor, x: Tensor, grad_y: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a broadcast result for its two operands, each summed to the shape of its operand."""
    axes_x, axes_y = _static_axes(x, y), _static_axes(y, x)
    if axes_x is None or axes_y is None:
        found_x, found_y = ops.broadcast_gradient_args(shape_of(x), shape_of(y))
        axes_x = found_x if axes_x is None else axes_x
        axes_y = found_y if axes_y is None else axes_y
    return _summed_over(grad_x, axes_x, x), _summed_over(grad_y, axes_y, y)


def summed_to(grad: Tensor, x: Tensor) -> Tensor:
    """`grad`, of a shape that `x` was broadcast to, summed to the shape of `x`."""
    axes = _static_axes(x, grad)
    if axes is None:
        axes, _ = ops.broadcast_gradient_args(shape_of(x), shape_of(grad))
    return _summed_over(grad, axes, x)


def _static_axes(x: Tensor, other: Tensor) -> Any:
    """The axes of the result of a broadcast with `other` along which `x` was repeated; None if unknown."""
    if x.static_shape.rank is None or other.static_shape.rank is None:
        return None
    rank = max(x.static_shape.rank, other.static_shape.rank)
    axes = []
    mine = [0] * (rank - x.static_shape.rank) + list(x.static_shape)
    theirs = [1] * (rank - other.static_shape.rank) + list(other.static_shape)
    for axis, (size, beside) in enumerate(zip(mine, theirs, strict=True)):
        if size == 0 and axis < rank - x.static_shape.rank:
            axes.append(axis)
        elif beside == 1 or (size is not None and size != 1):
            continue
        elif size == 1:
            axes.append(axis)  # if the other's size is 1, too, summing changes nothing
        else:
            return None
    return np.array(axes, np.int32)


def _summed_over(grad: Tensor, axes: Any, x: Tensor) -> Tensor:
    if isinstance(axes, np.ndarray):
        if not axes.size:
            return grad
        added = len(x.static_shape) - (grad.static_shape.rank or 0) + axes.size
        if added == 0 and list(axes) == list(range(axes.size)):
            return ops.sum(grad, axes)
    return reshaped_like(ops.sum(grad, axes), x)


def real_type(dtype: DType) -> DType:
    """The type of the parts of a complex type."""
    return dtypes.float64 if dtype.base is dtypes.complex128 else dtypes.float32


def transposed(tensor: Tensor) -> Tensor:
    """The last two axes swapped; conjugated if complex."""
    op = "ConjugateTranspose" if tensor.dtype.is_complex else "Transpose"
    known = tensor.static_shape.rank
    permutation: Any
    if known is not None:
        permutation = np.array([*range(known - 2), known - 1, known - 2], np.int32)
    else:
        rank = ops.rank(tensor)
        permutation = ops.concat_v2([ops.range(0, rank - 2, 1), ops.pack([rank - 1, rank - 2])], 0)
    return create_node(op, {"x": tensor, "perm": permutation}, {}).output(0)
