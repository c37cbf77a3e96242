"""Text of a caller's in messages: what is long is cut, and its length said.

An equation, a pattern, a name or a shape that a client sent may be megabytes, and would come back to it, to the log and
to every span.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

__all__ = ["MAX_MESSAGE", "abridged", "abridged_list"]

# Characters of one text within a message, of a whole message, and elements of a list.
_MOST = 200
MAX_MESSAGE = 16_000
_MOST_ELEMENTS = 16


def abridged(text: str | bytes, most: int = _MOST) -> str:
    """The text; of a longer one its first and last characters, together so many, and between them its length."""
    if len(text) > most:
        half = most // 2
        return f"{_decoded(text[:half])}...({len(text)} long)...{_decoded(text[-half:])}"
    return _decoded(text)


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def abridged_list(elements: Sequence[Any], separator: str = ", ", most: int = _MOST_ELEMENTS) -> str:
    """The elements, joined; of more than so many the first ones, and how many there are."""
    shown = separator.join(map(str, islice(elements, most)))
    return shown if len(elements) <= most else f"{shown}{separator}...({len(elements)} in all)"
