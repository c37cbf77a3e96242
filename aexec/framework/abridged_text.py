"""Shortens text from clients before it goes into error messages.

A client may send an equation, pattern, name or shape of megabytes, which would otherwise be repeated in its answer, in
the log and in every trace span.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

__all__ = ["MAX_MESSAGE", "abridged", "abridged_list"]

# Most characters of one text within a message; of a whole message; most elements of a list.
_MOST = 200
MAX_MESSAGE = 16_000
_MOST_ELEMENTS = 16


def abridged(text: str | bytes, most: int = _MOST) -> str:
    """The text; if it has more than `most` characters, its beginning and end with its length between them."""
    if len(text) > most:
        half = most // 2
        return f"{_decoded(text[:half])}...({len(text)} long)...{_decoded(text[-half:])}"
    return _decoded(text)


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def abridged_list(elements: Sequence[Any], separator: str = ", ", most: int = _MOST_ELEMENTS) -> str:
    """The elements as text, joined; if there are more than `most`, the first ones and how many there are."""
    shown = separator.join(map(str, islice(elements, most)))
    return shown if len(elements) <= most else f"{shown}{separator}...({len(elements)} in all)"
