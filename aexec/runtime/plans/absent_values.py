"""What stands in the place of a value that is not there: of a dead fetch, and of a feed that is still to come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["NO_VALUE", "UNFED", "OnResult"]


class _Mark:
    """Stands where a tensor would."""

    __slots__ = ("meaning",)

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning

    def __repr__(self) -> str:
        return f"<{self.meaning}>"


# A fetched value that is dead, and will not come.
NO_VALUE = _Mark("no value")
# A feed that is to come later, by `Executor.feed`.
UNFED = _Mark("not fed yet")

# Told the position and value of each fetch as it comes, `NO_VALUE` for a dead one.
OnResult = Callable[[int, Any], None]
