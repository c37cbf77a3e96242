"""`EarlyCancels`: cancellations by run id that came when no run of that id was in flight, kept for the next one.

A client cancels a run from another connection, and that request may overtake the run's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from aexec import errors

__all__ = ["REMEMBER_SECONDS", "EarlyCancels"]

# A run that begins within this time after its cancellation is cancelled.
REMEMBER_SECONDS = 60.0
_MOST = 1024


class EarlyCancels:
    """The cancellations that wait for their runs.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, tuple[float, str]] = OrderedDict()  # key → when it came and why; oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def remember(self, key: str, reason: str) -> None:
        """Keep a cancellation for `REMEMBER_SECONDS` from now on; one of the same key is replaced.

        Raises:
            ResourceExhaustedError: too many wait already.  None of these is dropped: their senders rely on them.
        """
        self._drop_old()
        if key not in self._waiting and len(self._waiting) >= _MOST:
            raise errors.ResourceExhaustedError(
                f"{_MOST} cancellations wait for runs of this session that have not begun: try again later"
            )
        self._waiting[key] = self._clock(), reason
        self._waiting.move_to_end(key)

    def take(self, key: str) -> str | None:
        """The reason of the cancellation that waits for a run of this key, which is then spent; None without one."""
        came, reason = self._waiting.pop(key, (None, ""))
        return None if came is None or self._is_old(came) else reason

    def _drop_old(self) -> None:
        while self._waiting and self._is_old(next(iter(self._waiting.values()))[0]):
            self._waiting.popitem(last=False)

    def _is_old(self, came: float) -> bool:
        return self._clock() - came > REMEMBER_SECONDS
