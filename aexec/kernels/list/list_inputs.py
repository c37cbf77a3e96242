"""Inputs of list ops: lists, element shapes, sizes.  They are checked here, in TensorFlow's words."""

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
    """The list that a tensor is, whose elements have to be of a type.  Raises InvalidArgumentError for another."""
    if tensor.ndim:
        raise errors.InvalidArgumentError(f"Input list must be a scalar saw: {shape_text(tensor.shape)}")
    value = tensor[()]
    if not isinstance(value, TensorList):
        raise errors.InvalidArgumentError(f"Input handle is not a list. Saw: '{variant_text(value)}'")
    if dtype is not None:
        value.check_dtype(dtype)
    return value


def shape_input(tensor: Any) -> PartialTensorShape:
    """An element shape given as tensor: -1 alone is unknown rank, -1 in a vector an unknown dimension.

    Raises InvalidArgumentError for what is no shape.
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
    """A number.  Raises InvalidArgumentError with `complaint`, which has a place for the shape, for more of them."""
    if np.ndim(tensor):
        raise errors.InvalidArgumentError(complaint.format(shape_text(np.shape(tensor))))
    return int(tensor)
