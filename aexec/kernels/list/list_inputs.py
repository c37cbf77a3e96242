"""Inputs of list ops: lists, element shapes, sizes.  They are checked here, with TensorFlow's messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape, check_max_rank, shape_text
from aexec.kernels.common.variants import variant_text
from aexec.resources.tensor_list import TensorList

__all__ = ["ELEMENT_TYPES", "scalar", "shape_input", "the_list"]

ELEMENT_TYPES = tuple(d for d in (*dtypes.ALL, *dtypes.QUANTIZED) if d is not dtypes.resource)


def the_list(tensor: Any, dtype: DType | None = None) -> TensorList:
    """The list in a tensor; its elements must have the type.  Raises InvalidArgumentError otherwise."""
    if tensor.ndim:
        raise errors.InvalidArgumentError(f"Input list must be a scalar saw: {shape_text(tensor.shape)}")
    value = tensor[()]
    if not isinstance(value, TensorList):
        raise errors.InvalidArgumentError(f"Input handle is not a list. Saw: '{variant_text(value)}'")
    if dtype is not None:
        value.check_dtype(dtype)
    return value


def shape_input(tensor: Any) -> PartialTensorShape:
    """An element shape given as a tensor: a scalar -1 is unknown rank, -1 in a vector an unknown dimension.

    Raises InvalidArgumentError if it is not a shape.
    """
    array = np.asarray(tensor)
    if array.ndim > 1:
        raise errors.InvalidArgumentError(f"Shape must be at most rank 1 but is rank {array.ndim}")
    if array.ndim == 0:
        if array != -1:
            raise errors.InvalidArgumentError(
                f"The only valid scalar shape tensor is the fully unknown shape specified as -1. Got: {array}"
            )
        return UNKNOWN_RANK
    check_max_rank(array.size)
    dims = array.tolist()
    if dims and min(dims) < -1:
        raise errors.InvalidArgumentError(f"Dimension {min(dims)} must be >= -1")
    return PartialTensorShape(dims)


def scalar(tensor: Any, complaint: str) -> int:
    """The number in a scalar.  Raises InvalidArgumentError with `complaint`, formatted with the shape, for other
    shapes.
    """
    if np.ndim(tensor):
        raise errors.InvalidArgumentError(complaint.format(shape_text(np.shape(tensor))))
    return int(tensor)
