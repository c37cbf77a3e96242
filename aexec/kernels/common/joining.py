"""Concatenation in pieces, since NumPy holds the interpreter's lock for the whole of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework.waiting.loop_budget import DEFAULT, giving_way, let_others_run

__all__ = ["ROW_NS", "joined", "stacked"]

# Nanoseconds that joining an element takes, besides its bytes.
ROW_NS = 200.0
_AT_ONCE = DEFAULT.pieces(ROW_NS)


def joined(parts: Sequence[Any], out: Any) -> Any:
    """Concatenate the parts along the first axis into `out`; return it."""
    if len(parts) <= _AT_ONCE:
        return np.concatenate(parts, out=out)
    start = 0
    for first in range(0, len(parts), _AT_ONCE):
        few = parts[first : first + _AT_ONCE]
        end = start + sum(map(len, few))
        np.concatenate(few, out=out[start:end])
        start = end
        let_others_run()
    return out


def stacked(elements: Sequence[Any], out: Any, *, all_set: bool = True) -> Any:
    """Write these elements to the rows of `out`, which have their shape; return it.

    Args:
        all_set: there is an element for each row; if False, rows whose element is missing or None stay as they are.
    """
    if all_set and out.ndim > 1 and elements:
        joined(elements, out.reshape(-1, *out.shape[2:]))
        return out
    for index, element in enumerate(giving_way(elements, ROW_NS)):
        if element is not None:
            out[index] = element[()]
    return out
