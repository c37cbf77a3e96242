"""Memory that a thread keeps for arrays that live only during a kernel's call, or a piece of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

__all__ = ["scratch"]

# The most bytes that a thread keeps for one purpose.
_KEPT_BYTES = 1 << 23


class _Scratch(threading.local):
    """Arrays that a thread reuses: fresh memory of some hundred kilobytes causes page faults, which take longer than
    writing.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def empty(self, xp: Any, what: str, shape: Sequence[int], dtype: Any) -> Any:
        """An array to write to, valid until the thread calls this for `what` again."""
        size = prod(shape) * dtype.itemsize
        if xp is not np or size > _KEPT_BYTES:
            return xp.empty(shape, dtype)
        kept = self._kept.get(what)
        if kept is None or kept.size < size:
            kept = self._kept[what] = np.empty(size, np.uint8)
        return kept[:size].view(dtype).reshape(shape)


scratch = _Scratch()
