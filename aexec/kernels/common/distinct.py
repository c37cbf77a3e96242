"""The distinct elements of a vector, which of them each element is, and where runs of equal ones begin.

`distinct` is as `numpy.unique` with `return_inverse`, whose running sum of booleans keeps the interpreter's lock for as
long as it takes, and so the event loop; and what it needs of memory is announced.  Next to read: `array_module.py`, for
what else keeps the lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework.memory.allocator import announce_scratch

__all__ = ["begins_run", "distinct"]


def begins_run(ordered: Any, xp: Any = np) -> Any:
    """Of each element of a vector, is it unlike the one before it?  So is the first."""
    begins = xp.ones(len(ordered), bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    return begins


def distinct(values: Any) -> tuple[Any, Any]:
    """(the distinct elements, sorted; for each element its number among them, int64) of a vector.  No NaN equals any.

    Raises:
        ResourceExhaustedError: sorting it needs more memory than there may be.
    """
    announce_scratch(values.size * (values.itemsize + 3 * np.dtype(np.intp).itemsize + 1))
    order = values.argsort()
    ordered = values[order]
    is_new = begins_run(ordered)
    found = ordered[is_new]
    del ordered
    numbers = is_new.astype(np.intp)
    np.cumsum(numbers, out=numbers)
    numbers -= 1
    which = np.empty_like(numbers)
    which[order] = numbers
    return found, which
