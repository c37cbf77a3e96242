"""The distinct elements of a vector, the position of each element among them, and the starts of runs of equal elements.

`distinct` is `numpy.unique` with `return_inverse`, except that NumPy's running sum of booleans holds the interpreter's
lock, and so the event loop, for its whole time; and `distinct` announces the memory that it needs.  Next to read:
`array_module.py`, for other functions that hold the lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework.memory.allocator import announce_scratch

__all__ = ["begins_run", "distinct"]


def begins_run(ordered: Any, xp: Any = np) -> Any:
    """For each element of a vector, whether it differs from the one before it; True for the first."""
    begins = xp.ones(len(ordered), bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    return begins


def distinct(values: Any) -> tuple[Any, Any]:
    """Return (the distinct elements, sorted; for each element its index among them, int64) of a vector.  No NaN equals
    another.

    Raises:
        ResourceExhaustedError: sorting it needs more memory than is allowed.
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
