"""Helpers for kernels on string tensors: object arrays of bytes, element by element.

A call that makes a list of an array, or fills an array from one, holds the interpreter's lock to its end.  So all such
work is done in pieces, and threads that wait for the lock get it between two of them.
Next to read: `aexec/kernels/string/string_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.memory.allocator import WATCHED_CALLS, Growth, announce_scratch
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import shape_text
from aexec.framework.waiting import loop_budget

__all__ = [
    "JOINED_BYTES",
    "array_of",
    "characters",
    "elements_of",
    "joining",
    "lists_of",
    "made",
    "map_strings",
    "scalar_string",
    "string_array",
    "string_cost",
    "values_of",
]

# Nanoseconds per element of a Python call on a short string.
_ELEMENT_NS = 200.0
# Bytes that Python needs temporarily for each of the strings that it joins.
JOINED_BYTES = 100
# Bytes of an element in a list: of a string, which exists already, and of a number with its object.
_STRING_PLACE, _NUMBER_BYTES = 8, 40
# Elements that are made into Python objects and used at a time.
_FEW = 100
_OBJECTS = loop_budget.DEFAULT.pieces(loop_budget.OBJECT_NS)
_PIECE = loop_budget.DEFAULT.pieces(_ELEMENT_NS)


def string_cost(element_ns: float = _ELEMENT_NS, byte_ns: float = 0.5) -> Callable[..., float]:
    """Return the cost of a kernel whose first input is strings, by their number and length.

    If there are enough strings to offload the call anyway, the length is estimated from a sample.
    """

    def cost(strings: Any, *_: Any) -> float:
        count = strings.size
        if count == 1:  # as for each element of a dataset
            return float(element_ns + byte_ns * len(strings.item()))
        every = 1 if loop_budget.current_budget().allows(count * element_ns) else max(1, count // _FEW)
        some = (strings.ravel() if every == 1 else strings.flat[::every]).tolist()
        return float(count * element_ns + byte_ns * sum(map(len, some)) * every)

    return cost


def joining(separator: bytes) -> Callable[[Sequence[bytes]], bytes]:
    """`separator.join`, for one call of a kernel.

    It announces a string before it makes it, so that one that is too large is refused.
    """
    if not WATCHED_CALLS[0]:
        return separator.join
    growth = Growth()

    def join(parts: Sequence[bytes]) -> bytes:
        growth.add(sum(map(len, parts)) + len(separator) * len(parts) + STRING_BYTES)
        return separator.join(parts)

    return join


def made(strings: Iterable[bytes]) -> list[bytes]:
    """A list of strings that are made one by one.  Raises ResourceExhaustedError if there is no memory for them."""
    if not WATCHED_CALLS[0]:
        return list(strings)
    growth, found = Growth(), []
    for string in strings:
        growth.add(len(string) + STRING_BYTES)
        found.append(string)
    return found


def values_of(array: Any) -> list[Any]:
    """The elements in row-major order, also of a scalar.

    A long list is announced as scratch memory.  Use `elements_of` to go through the elements once: it takes none.

    Raises:
        ResourceExhaustedError: the memory is refused.
    """
    array = np.asarray(array)
    if array.size <= _OBJECTS:
        values: list[Any] = array.ravel().tolist()
        return values
    announce_scratch(array.size * (_STRING_PLACE if array.dtype.hasobject else _NUMBER_BYTES))
    return [value for piece in lists_of(array) for value in piece]


def elements_of(array: Any) -> Iterable[Any]:
    """The elements in row-major order, also of a scalar; many are taken in pieces, so that other threads get a turn."""
    return array.ravel().tolist() if array.size <= _FEW else chain.from_iterable(lists_of(array))


def lists_of(array: Any, size: int = _OBJECTS) -> Iterator[list[Any]]:
    """The elements in row-major order, also of a scalar, in lists of `size`; pass a smaller one if using them takes
    long.
    """
    array = np.asarray(array)
    # A view of few elements may repeat them many times: do not copy it.
    flat = array.ravel() if array.flags.c_contiguous else array.flat
    pace, start = loop_budget.Pace(size), 0
    while start < array.size:
        few = pace.rest() if start else pace.size
        yield flat[start : start + few].tolist()
        start += few


def array_of(values: Sequence[Any], dtype: Any) -> Any:
    """A vector of these elements."""
    out = np.empty(len(values), dtype)
    if len(values) <= _OBJECTS:
        out[:] = values
        return out
    for start in range(0, len(values), _OBJECTS):
        loop_budget.let_others_run()
        out[start : start + _OBJECTS] = values[start : start + _OBJECTS]
    return out


def string_array(values: Sequence[Any], shape: Sequence[int] | None = None) -> Any:
    """An object array of these elements; a vector if no shape is given."""
    out = array_of(values, object)
    return out if shape is None else out.reshape(shape)


def map_strings(function: Callable[[bytes], Any], array: Any, dtype: Any = object) -> Any:
    """`function` of every element, as an array of the same shape."""
    out, start = np.empty(array.size, dtype), 0
    if dtype is object and WATCHED_CALLS[0]:
        function = _announcing(function)
    for piece in lists_of(array, _PIECE):
        out[start : start + len(piece)] = [function(s) for s in piece]
        start += len(piece)
    return out.reshape(array.shape)


def _announcing(function: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    growth = Growth()

    def announced(string: bytes) -> bytes:
        result = function(string)
        growth.add(len(result) + STRING_BYTES)
        return result

    return announced


def scalar_string(array: Any, what: str) -> bytes:
    """The bytes of a string scalar.  Raises InvalidArgumentError, naming `what`, for another shape."""
    if array.ndim:
        raise errors.InvalidArgumentError(f"{what} must be scalar, but received {shape_text(array.shape)}")
    value: bytes = array.item()
    return value


def characters(s: bytes) -> list[int]:
    """The start of each UTF-8 character of `s`, and its length at the end.

    A byte of the form 10xxxxxx belongs to the character before it, even if that is not valid.
    """
    starts = [i for i, byte in enumerate(s) if i == 0 or byte & 0xC0 != 0x80]
    starts.append(len(s))
    return starts
