"""The text of attr values, in TensorFlow's form (core/framework/attr_value_util.cc)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import shape_text
from aexec.framework.wire.attr_types import NameAttrList, Placeholder, TensorAttr

__all__ = ["float_text", "value_text"]

_LONG_STRING = 80
_LONG_LIST = 15
_TENSOR_ELEMENTS_SHOWN = 3
_TENSOR_BYTES_DECODED = 32 * 1024 * 1024
_ESCAPES = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}


def c_escape(value: bytes) -> str:
    """`value` with C escapes: `\\n`, `\\"`, octal for other bytes outside of printable ASCII."""
    return "".join(_ESCAPES.get(b) or (chr(b) if 0x20 <= b < 0x7F else f"\\{b:03o}") for b in value)


def value_text(value: Any, *, shorten: bool = True) -> str:
    """The text of a decoded value; see `attr_value.summarize`."""
    if isinstance(value, list | tuple):
        pieces = [value_text(v, shorten=shorten) for v in value]
        if shorten and len(pieces) >= _LONG_LIST:
            pieces = [*pieces[:5], "...", *pieces[-5:]]
        return "[" + ", ".join(pieces) + "]"
    if isinstance(value, bytes):
        text = c_escape(value)
        return f'"{text[:10]}...{text[-10:]}"' if len(text) >= _LONG_STRING else f'"{text}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, DType):
        return value.enum_name
    if isinstance(value, TensorAttr):
        return _tensor_text(value)
    if isinstance(value, NameAttrList):
        inside = sorted(f"{name}={value_text(v)}" for name, v in value.attrs.items())
        return f"{value.name}[{', '.join(inside)}]"
    if isinstance(value, Placeholder):
        return f"${value}"
    return "<Unknown AttrValue type>" if value is None else str(value)


def float_text(value: float, *, double: bool = False) -> str:
    """The number in 6 significant digits, or in 9 if 6 do not give back the float32; a double in 15 or 17."""
    if double:
        short = f"{value:.15g}"
        return short if math.isnan(value) or float(short) == value else f"{value:.17g}"
    short = f"{value:.6g}"
    with np.errstate(over="ignore"):
        return short if math.isnan(value) or np.float32(float(short)) == np.float32(value) else f"{value:.9g}"


def _tensor_text(tensor: TensorAttr) -> str:
    try:
        elements = tensor.shape.num_elements
        if elements is None or elements * max(tensor.dtype.size, 1) > _TENSOR_BYTES_DECODED:
            return f"<TensorProto: {tensor.dtype.enum_name} {tensor.shape}>"
        array = tensor.array
    except errors.OpError as e:
        return f"<Invalid TensorProto: {e.message}>"
    return f"Tensor<type: {tensor.dtype} shape: {shape_text(array.shape)} values: {_values_text(array)}>"


def _values_text(array: npt.NDArray[Any]) -> str:
    """The first elements with the brackets of their rows, as `[1 2][3...]...`."""
    more = "..." if array.size > _TENSOR_ELEMENTS_SHOWN else ""
    elements = iter(array.reshape(-1)[:_TENSOR_ELEMENTS_SHOWN])
    if array.ndim <= 1:
        return " ".join(map(_element_text, elements)) + more
    left = min(array.size, _TENSOR_ELEMENTS_SHOWN)
    return _rows_text(array.shape, elements, [left]) + more


def _rows_text(shape: tuple[int, ...], elements: Iterator[Any], left: list[int]) -> str:
    if len(shape) == 1:
        shown = min(shape[0], left[0])
        left[0] -= shown
        return " ".join(_element_text(next(elements)) for _ in range(shown)) + ("..." if shown < shape[0] else "")
    text = ""
    for _ in range(shape[0]):
        if not left[0]:
            break
        text += f"[{_rows_text(shape[1:], elements, left)}]"
    return text


def _element_text(element: Any) -> str:
    if isinstance(element, bytes):
        return c_escape(element)
    if isinstance(element, bool | np.bool_):
        return "1" if element else "0"
    if isinstance(element, np.complexfloating):
        return f"({_element_text(element.real)},{_element_text(element.imag)})"
    if isinstance(element, np.floating) or element.__class__.__module__ == "ml_dtypes":
        return float_text(float(element), double=isinstance(element, np.float64))
    return str(element)
