"""Makes arrays of nested lists in pieces, because NumPy holds the interpreter's lock while it reads a list.

A list of a million numbers takes tens of milliseconds, in which no other thread runs.  So making the array in a thread
would not help the event loop.  Next to read: `feeds.py`, the user.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework.waiting.loop_budget import DEFAULT, OBJECT_NS, let_others_run

__all__ = ["first_leaf", "list_to_array", "num_leaves", "objects_to_numbers"]

# The number of values in a piece.
_AT_ONCE = DEFAULT.pieces(OBJECT_NS)


def num_leaves(value: Any) -> int:
    """The number of values in nested lists, if all lists of a level are as long as the first; 1 for anything else."""
    count = 1
    while isinstance(value, list | tuple):
        count *= len(value)
        value = value[0] if value else None
    return count * value.size if isinstance(value, np.ndarray) else count


def first_leaf(value: Any) -> Any:
    """The first value in nested lists; None if there is none; anything else itself."""
    while isinstance(value, list | tuple):
        value = value[0] if value else None
    return value


def list_to_array(value: Any, dtype: Any = None) -> Any:
    """`np.asarray(value, dtype)`, between whose pieces other threads run; raises what that raises."""
    if num_leaves(value) <= _AT_ONCE or (dtype is None and isinstance(value, np.ndarray)):
        return np.asarray(value, dtype)
    try:
        array = _in_pieces(value, dtype)
    except (TypeError, ValueError):
        array = None
    if array is None:  # the pieces do not fit together: let NumPy convert it, or say what is wrong
        return np.asarray(value, dtype)
    return array


def objects_to_numbers(array: Any, dtype: Any) -> Any:
    """An object array of Python's numbers in a NumPy type; other threads run between its pieces.

    Raises:
        OverflowError: an integer is beyond the range of the type.
    """
    flat, numbers = array.reshape(-1), np.empty(array.size, dtype)
    for start in range(0, len(flat), _AT_ONCE):
        if start:
            let_others_run()
        numbers[start : start + _AT_ONCE] = flat[start : start + _AT_ONCE]
    return numbers.reshape(array.shape)


def _in_pieces(value: Any, dtype: Any) -> Any:
    """The array, made in pieces; None if the pieces do not fit together."""
    row = num_leaves(value[0])
    if row > _AT_ONCE:
        pieces = [list_to_array(item, dtype)[None] for item in value]
    else:
        step = max(1, _AT_ONCE // max(1, row))
        pieces = []
        for start in range(0, len(value), step):
            if start:
                let_others_run()
            pieces.append(np.asarray(value[start : start + step], dtype))
    inner = pieces[0].shape[1:]
    if any(piece.shape[1:] != inner for piece in pieces):
        return None
    dtypes = {piece.dtype for piece in pieces}
    if len(kinds := {one.kind for one in dtypes}) > 1 and not kinds.isdisjoint("SU"):
        return None  # how a number becomes text depends on the whole list
    array = np.empty((len(value), *inner), np.result_type(*dtypes))
    start = 0
    for piece in pieces:
        array[start : start + len(piece)] = piece
        start += len(piece)
    return array
