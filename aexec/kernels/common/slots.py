"""The bound on lists of tensors whose length is an input: tensor arrays and tensor lists."""

from __future__ import annotations

from aexec.framework import errors

__all__ = ["check_slots"]

# A slot takes 8 bytes even where nothing is in it, and a request of a few bytes may ask for billions.
_MAX_SLOTS = 1 << 27


def check_slots(count: int) -> None:
    """Raises ResourceExhaustedError if there are to be more slots than anything but an attack needs."""
    if count > _MAX_SLOTS:
        raise errors.ResourceExhaustedError(f"a list of {count} tensors is longer than the limit of {_MAX_SLOTS}")
