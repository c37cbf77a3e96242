"""Lists of tensors: the bound on lists whose length is an input, and the memory of a tensor's rows."""

from __future__ import annotations

from typing import Any

from aexec.framework import errors

__all__ = ["ROW_BYTES", "check_slots", "rows_scratch"]

# An empty slot takes 8 bytes, and a request of a few bytes may ask for billions.
_MAX_SLOTS = 1 << 27
# Bytes of an array besides its elements, which may belong to another one.
ROW_BYTES = 120


def check_slots(count: int) -> None:
    """Raise ResourceExhaustedError if there are more slots than any honest request needs."""
    if count > _MAX_SLOTS:
        raise errors.ResourceExhaustedError(f"a list of {count} tensors is longer than the limit of {_MAX_SLOTS}")


def rows_scratch(of: Any) -> int:
    """Bytes that the rows of this array need as separate arrays, besides their elements."""
    return ROW_BYTES * (len(of) if of.ndim else 0)
