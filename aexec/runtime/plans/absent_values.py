"""What stands in the place of a value that is not there: of a dead fetch, and of a feed that is still to come."""

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


# A fetched value that is dead, and will not come.
NO_VALUE = _Mark("no value")
# A feed that is to come later, by `Executor.feed`.
UNFED = _Mark("not fed yet")

# Callback(position, value) for each fetch; NO_VALUE if the fetch is dead.
OnResult = Callable[[int, Any], None]
