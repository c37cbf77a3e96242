"""Arrays of nested lists, made in pieces: NumPy reads a list with the interpreter's lock held.

A list of a million numbers takes it tens of milliseconds, in which no thread runs, so that making
the array in a thread would not help the event loop.  Next to read: `feeds.py`, the user.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework.waiting.loop_budget import DEFAULT, OBJECT_NS, let_others_run

__all__ = ["list_to_array", "num_leaves", "objects_to_numbers"]

# Values read at a stretch.
_AT_ONCE = DEFAULT.pieces(OBJECT_NS)


def num_leaves(value: Any) -> int:
    """How many values nested lists hold, if all lists of a level are as long as the first; 1 for anything else."""
    count = 1
    while isinstance(value, list | tuple):
        count *= len(value)
        value = value[0] if value else None
    return count * value.size if isinstance(value, np.ndarray) else count


def list_to_array(value: Any, dtype: Any = None) -> Any:
    """`np.asarray(value, dtype)`; raises what that raises.  Other threads get their turn meanwhile."""
    if num_leaves(value) <= _AT_ONCE or (dtype is None and isinstance(value, np.ndarray)):
        return np.asarray(value, dtype)
    try:
        array = _in_pieces(value, dtype)
    except (TypeError, ValueError):
        array = None
    if array is None:  # the pieces are no rows of one array: let NumPy say what is wrong, or what it makes of them
        return np.asarray(value, dtype)
    return array


def objects_to_numbers(array: Any, dtype: Any) -> Any:
    """An array of Python's numbers as one of NumPy's.  Other threads get their turn meanwhile.

    Raises:
        OverflowError: a whole number is beyond what the type holds.
    """
    flat, numbers = array.reshape(-1), np.empty(array.size, dtype)
    for start in range(0, len(flat), _AT_ONCE):
        if start:
            let_others_run()
        numbers[start : start + _AT_ONCE] = flat[start : start + _AT_ONCE]
    return numbers.reshape(array.shape)


def _in_pieces(value: Any, dtype: Any) -> Any:
    """None if the pieces do not fit one another."""
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
        return None  # a number becomes text as the list has it, not as its piece does
    array = np.empty((len(value), *inner), np.result_type(*dtypes))
    start = 0
    for piece in pieces:
        array[start : start + len(piece)] = piece
        start += len(piece)
    return array
