"""`tensorflow.python.framework.tensor_util`: values that the graph determines, and messages of tensors.

Next to read: `aexec/compat/v1/values/static_values.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.functions.conversions import make_ndarray, make_tensor_proto
from aexec.compat.v1.values.framework_ops import is_tensor
from aexec.compat.v1.values.static_values import get_static_value, shape_of_vector

__all__ = ["MakeNdarray", "constant_value", "constant_value_as_shape", "is_tensor", "make_ndarray", "make_tensor_proto"]

MakeNdarray = make_ndarray


def constant_value(tensor: Any, partial: bool = False) -> Any:
    """An array; None if the value depends on the run."""
    return get_static_value(tensor, partial)


def constant_value_as_shape(tensor: Any) -> Any:
    """The known part of the shape whose sizes a vector holds."""
    return shape_of_vector(tensor)
