"""Marks for values that are absent: a dead fetch, and a feed that comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["NO_VALUE", "UNFED", "OnResult"]


class _Mark:
    """A marker in place of a tensor."""

    __slots__ = ("meaning",)

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning

    def __repr__(self) -> str:
        return f"<{self.meaning}>"


# In place of a fetched value that is dead.
NO_VALUE = _Mark("no value")
# In place of a feed that comes later, by `Executor.feed`.
UNFED = _Mark("not fed yet")

# Callback(position, value) for each fetch; NO_VALUE if the fetch is dead.
OnResult = Callable[[int, Any], None]
