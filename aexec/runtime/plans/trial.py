"""Trials: which is faster for a plan with heavy calls, the interpreter or a line that goes on in a thread?

In a thread, calls are made one after another; the interpreter makes several at once, where they do not wait for one
another.  Which is faster depends on the graph and the machine, so both run by turns and are timed.
Next to read: `compilation_policy.py`, which begins a trial and heeds its outcome.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Trial"]

# Runs of each of the two ways by which they are compared.
_TRIALS = 8
# Runs after which it is no longer waited for those.
_MOST_RUNS = 100
# So many times as long as the interpreter a line may take: what is measured is rough.
_SLOWER = 1.1


class Trial:
    """Times of runs of the two ways.

    Runs that are fed as much as the first are compared.  If few are, the line stays.

    Attributes:
        is_over: there were enough runs.
        runs: how many there were.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.runs = 0
        self._size: int | None = None
        self._interprets = False
        self._seconds: dict[bool, list[float]] = {False: [], True: []}  # by whether it was the interpreter

    def interprets_next(self) -> bool:
        """Is the next run the interpreter's?"""
        self._interprets = not self._interprets
        return self._interprets

    def took(self, size: int, seconds: float, interpreted: bool) -> None:
        """A run that was fed so many elements has succeeded."""
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
        """Has the line been slower, mostly?

        What else the machine does counts: cores that share one call's work wait for one another, and those that
        have a call each do not.
        """
        return self._is_known and bool(np.median(self._seconds[False]) > _SLOWER * np.median(self._seconds[True]))
