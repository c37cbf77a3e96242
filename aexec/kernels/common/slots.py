"""Lists of tensors: the bound on those whose length is an input, and what it takes to have a tensor row by row."""

from __future__ import annotations

from typing import Any

from aexec.framework import errors

__all__ = ["ROW_BYTES", "check_slots", "rows_scratch"]

# A slot takes 8 bytes even where nothing is in it, and a request of a few bytes may ask for billions.
_MAX_SLOTS = 1 << 27
# What an array needs besides its elements, which may be in another one.
ROW_BYTES = 120


def check_slots(count: int) -> None:
    """Raises ResourceExhaustedError if there are to be more slots than anything but an attack needs."""
    if count > _MAX_SLOTS:
        raise errors.ResourceExhaustedError(f"a list of {count} tensors is longer than the limit of {_MAX_SLOTS}")


def rows_scratch(of: Any) -> int:
    """What so many arrays take as the rows of this one, besides their elements."""
    return ROW_BYTES * (len(of) if of.ndim else 0)
