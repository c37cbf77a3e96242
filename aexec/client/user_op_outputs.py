"""Converts the return value of a user op's function to arrays of the types that the op's signature declares.

An op with one output returns its value, one with several a tuple or a list of them, one with none None.  A value with
its own type, such as an array, a NumPy scalar or another library's array, must have exactly the declared type.  A value
without one, that is Python numbers and lists of them, is converted if the type can represent it: an int or a float for
a float type, an int in range for an integer type, a bool for bool.  Strings are bytes or str, alone, in lists or in
arrays.  A resource or a variant is any object. Any other value is an error of the op, whose message has the expected
and the actual type.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.graph.op_functions import constant_array

__all__ = ["OutputConverter"]


class OutputConverter:
    """Converts the outputs of one node of a user's op."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self._op = c.op
        self._types = c.output_types
        ranges = c.op_def.output_ranges(c.attrs)
        # For messages: `y: float`, and `ys[1]: int32` for a list.
        self._names = [
            f"{name}[{i - start}]" if stop - start > 1 else name
            for name, (start, stop) in ranges.items()
            for i in range(start, stop)
        ]

    def convert(self, result: Any) -> tuple[Any, ...] | None:
        """The outputs of a node.

        Raises:
            InternalError: the result does not match the signature.
        """
        types = self._types
        if len(types) == 1 and type(result) is np.ndarray and result.dtype == types[0].np and types[0].np.kind != "O":
            return (result,)
        if not types:
            if result is None or (isinstance(result, tuple) and not result):
                return None
            raise self._error("nothing", result)
        if result is None:
            raise self._error(self._signature(), result, "is a `return` missing?")
        values = self._split(result)
        return tuple(self._array(value, slot) for slot, value in enumerate(values))

    def _split(self, result: Any) -> tuple[Any, ...] | list[Any]:
        several = len(self._types) > 1
        if not isinstance(result, tuple) and not (several and isinstance(result, list)):
            if several:
                raise self._error(self._signature(), result)
            return (result,)
        if len(result) != len(self._types):
            raise self._error(self._signature(), result, f"{len(result)} values, not {len(self._types)}")
        return result

    def _array(self, value: Any, slot: int) -> Any:
        dtype = self._types[slot]
        if value is None:
            raise self._error(self._output(slot), value)
        if dtype is dtypes.string:
            return self._strings(value, slot)
        if dtype.np.kind == "O":
            return value if isinstance(value, np.ndarray) and value.dtype.kind == "O" else _boxed(value)
        if isinstance(value, bool | int | float | complex | list | tuple | range) and not isinstance(value, np.generic):
            return self._converted(value, slot)
        array = np.asarray(value)
        if array.dtype == dtype.np:
            return array
        hint = f"use `.astype({str(dtype.np)!r})`, or declare that type" if array.dtype.kind in "biufc" else ""
        raise self._error(self._output(slot), value, hint)

    def _converted(self, value: Any, slot: int) -> Any:
        """Python numbers, and lists of them, as arrays; arrays and NumPy scalars in lists keep their types."""
        dtype = self._types[slot]
        if type(value) is float and dtype.is_floating:
            with np.errstate(over="ignore"):
                return np.array(value, dtype.np)
        typed = [item for item in _flat(value) if hasattr(item, "__array__")]
        for item in typed:
            if np.asarray(item).dtype != dtype.np:
                raise self._error(self._output(slot), value, f"there is {_described(item)} in it")
        try:
            return np.asarray(value, dtype.np) if typed else constant_array(value, dtype)[0]
        except (errors.InvalidArgumentError, ValueError, TypeError) as error:
            raise self._error(self._output(slot), value, str(error).partition(": ")[2]) from None

    def _strings(self, value: Any, slot: int) -> Any:
        array = np.array(bytes(value) if isinstance(value, bytearray | memoryview) else value, object)
        encoded = np.empty(array.shape, object)
        try:
            encoded[...] = _encode(array)
        except _NotTextError as error:
            hint = f"there is {_described(error.args[0])} in it" if array.ndim else ""
            raise self._error(self._output(slot), value, hint) from None
        return encoded

    # Messages

    def _output(self, slot: int) -> str:
        return f"{self._names[slot]}: {self._types[slot]}"

    def _signature(self) -> str:
        return ", ".join(self._output(slot) for slot in range(len(self._types)))

    def _error(self, expected: str, got: Any, hint: str = "") -> errors.InternalError:
        if inspect.isawaitable(got):
            hint = "a function that awaits is an `async def`"
            if inspect.iscoroutine(got):
                got.close()
        why = f"; {hint}" if hint else ""
        return errors.InternalError(
            f"op '{self._op}': its function has to return {expected}, and returned {_described(got)}{why}"
        )


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of {_type_name(value.dtype)} of shape {list(value.shape)}"
    if isinstance(value, np.generic):
        return f"a value of {_type_name(value.dtype)}"
    text = repr(value)
    return f"{text} of type {type(value).__name__}" if len(text) <= 40 else f"a value of type {type(value).__name__}"


def _type_name(dtype: np.dtype[Any]) -> str:
    return "objects" if dtype.kind == "O" else str(dtype)


def _flat(value: Any) -> Iterator[Any]:
    """The items of nested lists."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


class _NotTextError(Exception):
    """An item of a string output that is neither bytes nor str; it is the only argument."""


def _to_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise _NotTextError(item)


_encode = np.frompyfunc(_to_bytes, 1, 1)


def _boxed(value: Any) -> Any:
    boxed = np.empty((), object)
    boxed[()] = value
    return boxed
