"""Conversions of a program's own classes to tensors.

Next to read: `op_functions.py`, whose `convert_to_tensor` asks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.graph.nodes.node import Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["register_conversion", "registered_conversion"]

Conversion = Callable[[Any, DType | None, str | None], Any]

# Priority, class, function; sorted by priority, and by the order of registration.
_conversions: list[tuple[int, type, Conversion]] = []
_BUILT_IN = (bool, int, float, complex, str, bytes, list, tuple, np.ndarray, np.generic, Tensor, TensorProxy)


def register_conversion(kind: type, convert: Conversion, priority: int = 100) -> None:
    """Have values of a class taken as tensors.

    Args:
        kind: the class; its subclasses count, too.
        convert: of a value, and the dtype and the name that are wanted or None; returns a tensor, or NotImplemented.
        priority: the smallest is asked first.

    Raises:
        InvalidArgumentError: it is not a class, or one that has a conversion of aexec's own.
    """
    if not isinstance(kind, type) or not callable(convert):
        raise errors.InvalidTypeError(f"base_type must be a type or a tuple of types, got {kind!r}")
    if issubclass(kind, _BUILT_IN):
        raise errors.InvalidTypeError(
            f"Cannot register conversions for Python numeric types and NumPy scalars and arrays: {kind!r}"
        )
    _conversions.append((priority, kind, convert))
    _conversions.sort(key=lambda entry: entry[0])


def registered_conversion(value: Any, dtype: DType | None, name: str | None) -> Tensor | None:
    """The tensor of a value whose class has a conversion; None if it has none.

    Raises:
        InvalidArgumentError: the conversion returned no tensor, or one of another type.
    """
    for _, kind, convert in _conversions:
        if isinstance(value, kind):
            found = convert(value, dtype, name)
            if found is NotImplemented:
                continue
            if not isinstance(found, Tensor | TensorProxy):
                raise errors.InvalidTypeError(f"the conversion of {kind!r} returned no tensor: {found!r:.100}")
            if dtype is not None and found.dtype.base is not dtype.base:
                raise errors.InvalidTypeError(f"the conversion of {kind!r} returned {found.dtype}, expected {dtype}")
            return found.as_tensor() if isinstance(found, TensorProxy) else found
    return None
