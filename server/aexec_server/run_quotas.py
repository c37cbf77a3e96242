"""`RunQuotas`: how many runs each caller has in flight, of those that may not have as many as they like."""

from __future__ import annotations

from collections import Counter

from aexec import errors
from aexec_server.callers import Caller

__all__ = ["RunQuotas"]


class RunQuotas:
    """See the module's head.

    Attributes:
        in_flight: runs by name of the caller.
    """

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()

    def begin(self, caller: Caller) -> None:
        """One more, until `end`.  Raises ResourceExhaustedError if the caller has as many as it may have."""
        most = caller.quotas.runs
        if most is None:
            return
        if self.in_flight[caller.name] >= most:
            raise errors.ResourceExhaustedError(
                f"The token of '{caller.name}' has as many runs in flight as it may have: try again later"
            )
        self.in_flight[caller.name] += 1

    def end(self, caller: Caller) -> None:
        """One has ended."""
        if caller.quotas.runs is not None:
            self.in_flight[caller.name] -= 1
            if not self.in_flight[caller.name]:
                del self.in_flight[caller.name]
