"""Tensors as readable text: Print and Assert use TensorFlow's older form, PrintV2 and StringFormat its newer one.

The forms are those of `Tensor::SummarizeValue`: the older shows the first elements, the newer the first and last of
each dimension, laid out like NumPy's. Bytes that are not UTF-8 become surrogate escapes; `encoded` turns them back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework.memory.allocator import announce
from aexec.framework.waiting.loop_budget import giving_way
from aexec.framework.wire.attr_text import float_text

__all__ = ["edges_text", "encoded", "head_text", "text_ns"]

# Nanoseconds that the text of an element takes, and bytes.
_ELEMENT_NS = 2000.0
_ELEMENT_BYTES = 64
# Elements whose text is made before other threads get a turn.
_FEW = 500
_ESCAPED = re.compile("[\x00-\x1f\x7f\"'\\\\]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def encoded(text: str) -> bytes:
    """The bytes of a text that this module made."""
    return text.encode("utf-8", "surrogateescape")


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _NAMED.get(char) or f"\\{ord(char):03o}"


def _element(value: Any) -> str:
    if isinstance(value, bytes):
        return _ESCAPED.sub(_escape, value.decode("utf-8", "surrogateescape"))
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, complex | np.complexfloating):
        return "?"  # TensorFlow has no text for these types
    if isinstance(value, np.floating) or value.__class__.__module__ == "ml_dtypes":
        double = isinstance(value, np.float64)
        tiny = np.finfo(np.float64 if double else np.float32).tiny
        return float_text(0.0 if abs(value) < tiny and value != 0 else float(value), double=double)
    return str(value)


def _shown(array: Any, limit: int) -> int:
    return int(array.size if limit < 0 else min(limit, array.size))


def text_ns(arrays: Sequence[Any], limit: int) -> float:
    """Estimated nanoseconds of `head_text` for these arrays."""
    return _ELEMENT_NS * sum(_shown(array, limit) for array in arrays)


def head_text(array: Any, limit: int) -> str:
    """The first `limit` elements (all, if negative), rows of inner dimensions in brackets: `[1 2][3...]...`."""
    array = np.asarray(array)
    shown = _shown(array, limit)
    announce(_ELEMENT_BYTES * shown)
    elements = [_element(v) for v in giving_way(array.reshape(-1)[:shown], _ELEMENT_NS)]
    more = "..." if shown < array.size else ""
    if array.ndim < 2:
        return " ".join(elements) + more
    return _rows(array.shape, elements) + more


def _rows(shape: tuple[int, ...], elements: list[str]) -> str:
    """Text of the dimensions of `shape`, for the elements given."""
    if len(shape) == 1:
        return " ".join(elements) + ("..." if len(elements) < shape[0] else "")
    size = prod(shape[1:])
    starts = range(0, min(len(elements), shape[0] * size), size) if size else ()
    return "".join(f"[{_rows(shape[1:], elements[at : at + size])}]" for at in starts)


def edges_text(array: Any, limit: int) -> str:
    """Up to `limit` elements at both ends of every dimension (all, if negative), in nested brackets."""
    array = np.asarray(array)
    ends = _shown(array, limit)
    announce(_ELEMENT_BYTES * prod([min(2 * ends, size) for size in array.shape]))
    return _block(array, 0, array.ndim, ends)


def _block(array: Any, depth: int, rank: int, ends: int) -> str:
    if not array.ndim:
        value = array[()]
        return f'"{_element(value)}"' if isinstance(value, bytes) else _element(value)
    count = array.shape[0]
    gap = " " if depth == rank - 1 else "\n" * (rank - depth - 1) + " " * (depth + 1)
    front: Iterable[int] = range(min(ends, count))
    back: Iterable[int] = range(max(ends, count - ends), count)
    if array.size > _FEW:
        front, back = giving_way(front, _ELEMENT_NS), giving_way(back, _ELEMENT_NS)
    head = [_block(array[i, ...], depth + 1, rank, ends) for i in front]
    tail = [_block(array[i, ...], depth + 1, rank, ends) for i in back]
    text = gap.join(head)
    if count > 2 * ends:
        text += gap + "..."
    return "[" + text + "".join(gap + t for t in tail) + "]"
