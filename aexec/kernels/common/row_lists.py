"""The rows of a matrix as Python lists, made a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from aexec.framework.waiting.loop_budget import giving_way

__all__ = ["row_lists"]

_AT_ONCE = 1000


def row_lists(matrix: Any, nanoseconds: float) -> Iterator[list[Any]]:
    """Yield the rows; other threads get a turn between them.

    Args:
        matrix: [rows, columns].
        nanoseconds: the interpreter's time per row.
    """
    some = (matrix[start : start + _AT_ONCE].tolist() for start in range(0, len(matrix), _AT_ONCE))
    return giving_way(chain.from_iterable(some), nanoseconds)
