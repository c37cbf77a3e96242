"""Soaks over many seeds, in parts: selects the seeds of a part, shows progress, and collects failures.

    AEXEC_SEEDS=20000:30000 scripts/test --soak tests/server/handlers/test_mutants.py -k more -s

Parts may run in parallel, one per core; to repeat a failing seed, use `AEXEC_SEEDS=20017:20018`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

__all__ = ["Seeds"]

_VARIABLE = "AEXEC_SEEDS"
# Seconds between two lines of progress; number of failures after which a part ends.
_EVERY = 10.0
_ENOUGH = 20


class Seeds:
    """The seeds of this part: `AEXEC_SEEDS`, `first:end`, or else `most` seeds from 0 on.

    seeds = Seeds(100_000)
    for seed in seeds:
        with seeds.trying(seed):
            ...
    seeds.check()
    """

    def __init__(self, most: int) -> None:
        first, _, end = os.environ.get(_VARIABLE, f"0:{most}").partition(":")
        self._seeds = range(int(first), int(end))
        self._failures: list[str] = []

    def __iter__(self) -> Iterator[int]:
        began = told = time.monotonic()
        for done, seed in enumerate(self._seeds, 1):
            yield seed
            now = time.monotonic()
            if now - told > _EVERY or done == len(self._seeds):
                told = now
                rate = done / (now - began)
                self._say(f"{done} of {len(self._seeds)}, {rate:.0f} a second, {len(self._failures)} failed")
            if len(self._failures) == _ENOUGH:
                return

    @contextlib.contextmanager
    def trying(self, seed: int) -> Iterator[None]:
        """Context manager: record a failure inside."""
        try:
            yield
        except Exception as error:
            self._failures.append(f"seed {seed}: {type(error).__name__}: {error}")
            self._say(self._failures[-1][:2000])

    def check(self) -> None:
        """Raise AssertionError with all failures."""
        assert not self._failures, "\n".join(self._failures)

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
