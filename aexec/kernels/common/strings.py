"""Helpers for kernels on string tensors: object arrays of bytes, element by element.

Next to read: `aexec/kernels/string/string_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.shape import shape_text

__all__ = ["characters", "map_strings", "scalar_string", "string_array", "string_cost", "values_of"]

# Nanoseconds per element of a Python call on a short string.
_ELEMENT_NS = 200.0


def string_cost(element_ns: float = _ELEMENT_NS, byte_ns: float = 0.5) -> Callable[..., float]:
    """The cost of a kernel whose first input are strings: by their number and length, which the first one tells."""

    def cost(strings: Any, *_: Any) -> float:
        if not strings.size:
            return 0.0
        first = strings.item(0)
        return float(strings.size * (element_ns + byte_ns * len(first))) if isinstance(first, bytes) else 0.0

    return cost


def values_of(array: Any) -> list[Any]:
    """The elements in row-major order, scalars too."""
    values: list[Any] = np.asarray(array).ravel().tolist()
    return values


def string_array(values: Sequence[Any], shape: Sequence[int] | None = None) -> Any:
    """An object array of these elements; a vector if no shape is given."""
    out = np.empty(len(values), object)
    out[:] = values
    return out if shape is None else out.reshape(shape)


def map_strings(function: Callable[[bytes], Any], array: Any, dtype: Any = object) -> Any:
    """`function` of every element, as an array of the same shape."""
    if dtype is object:
        return string_array([function(s) for s in values_of(array)], array.shape)
    results: Iterable[Any] = (function(s) for s in values_of(array))
    return np.fromiter(results, dtype, array.size).reshape(array.shape)


def scalar_string(array: Any, what: str) -> bytes:
    """The bytes of a string scalar.  Raises InvalidArgumentError, naming `what`, for another shape."""
    if array.ndim:
        raise errors.InvalidArgumentError(f"{what} must be scalar, but received {shape_text(array.shape)}")
    value: bytes = array.item()
    return value


def characters(s: bytes) -> list[int]:
    """Where the UTF-8 characters of `s` begin, and its length at the end.

    A byte of the form 10xxxxxx belongs to the character before it, whatever that is.
    """
    starts = [i for i, byte in enumerate(s) if i == 0 or byte & 0xC0 != 0x80]
    starts.append(len(s))
    return starts
