"""Trials: compare the interpreter with a line that continues in a thread, for a plan with heavy calls.

A thread makes calls one after another; the interpreter makes independent calls at once.  Which is faster depends on the
graph and the machine, so both run in turn and are timed.
Next to read: `compilation_policy.py`, which begins a trial and heeds its outcome.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Trial"]

# The number of timed runs of each way.
_TRIALS = 8
# A trial ends after this many runs even without enough timed ones.
_MOST_RUNS = 100
# A line loses only if it takes this many times as long as the interpreter, because the times are rough.
_SLOWER = 1.1


class Trial:
    """The times of runs of both ways.

    Only runs that are fed as many elements as the first are compared.  If few are, the line stays.

    Attributes:
        is_over: True when there were enough runs.
        runs: the number of runs.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.runs = 0
        self._size: int | None = None
        self._interprets = False
        self._seconds: dict[bool, list[float]] = {False: [], True: []}  # by `interpreted`

    def interprets_next(self) -> bool:
        """True if the next run is to be interpreted."""
        self._interprets = not self._interprets
        return self._interprets

    def took(self, size: int, seconds: float, interpreted: bool) -> None:
        """Record a successful run that was fed `size` elements."""
        if self._size is None:
            self._size = size
        if size == self._size:
            self._seconds[interpreted].append(seconds)
        self.runs += 1
        self.is_over = self._is_known or self.runs >= _MOST_RUNS

    @property
    def _is_known(self) -> bool:
        return all(len(runs) >= _TRIALS for runs in self._seconds.values())

    @property
    def is_lost(self) -> bool:
        """True if the line's median time is clearly the longer one.

        Other load on the machine matters: cores that share the work of one call wait for each other; cores with a call
        each do not.
        """
        return self._is_known and bool(np.median(self._seconds[False]) > _SLOWER * np.median(self._seconds[True]))
