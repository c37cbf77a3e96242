"""Zeros for a missing gradient; for a handle, in the shape of the variable behind it."""

from __future__ import annotations

from aexec import ops
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.graph.nodes.node import Tensor

__all__ = ["gradient_dtype", "zeros_for"]


def gradient_dtype(tensor: Tensor) -> DType:
    """The type of a tensor's gradient; for a handle, the type of the variable behind it.

    Raises:
        UnimplementedError: the graph does not say the type behind the handle.
    """
    if tensor.dtype.base is not dtypes.resource:
        return tensor.dtype.base
    data = tensor.node.handle_data
    if data is None or not data[tensor.index] or data[tensor.index][0].dtype is None:
        raise errors.UnsupportedError(f"the gradient of '{tensor.name}': nothing is known of what the handle refers to")
    found: DType = data[tensor.index][0].dtype
    return found


def zeros_for(tensor: Tensor, dtype: DType | None = None) -> Tensor:
    """Zeros for the gradient of a tensor.

    Args:
        dtype: for a handle, the type of its variable; by default as the graph says.
    """
    if tensor.dtype.base is not dtypes.resource:
        return ops.zeros_like(tensor)
    return ops.fill(ops.variable_shape(tensor), ops.cast(0, DstT=dtype or gradient_dtype(tensor)))
