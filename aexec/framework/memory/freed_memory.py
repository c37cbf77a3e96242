"""Freed memory: how much of it the C library keeps for the next arrays.

glibc returns freed memory to the system, and the kernel fills the pages of the next array with zeros, which takes ten
times as long as an addition.  Its two limits follow the largest array that was returned so far, unless the user has set
them: it keeps arrays of up to that size, and twice as much at the end of each heap.  Each thread may have a heap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

if sys.platform != "win32":
    import resource

__all__ = ["FREED_MEMORY", "FreedMemory", "page_faults"]

# Bytes of the largest arrays whose memory is kept when it is freed: at first, and at most.  With 4 MiB from the start a
# server that refuses large bodies would keep 40 MB more.
_LEAST_KEPT, _MOST_KEPT = 1 << 20, 1 << 24
# One run in this many is looked at.
_LOOK_AT = 8
# A run for which the system has to fill more pages than this, 2 MiB, would be quicker if more memory were kept.
_MANY_FAULTS = 512


def page_faults() -> int:
    """The number of pages that the system has filled for this process so far; 0 if it does not tell."""
    return 0 if sys.platform == "win32" else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class FreedMemory:
    """Lets glibc keep more freed memory as long as runs make the system fill pages again and again.

    Its methods may be called in any thread.

    Args:
        faults: see `page_faults`.

    Attributes:
        kept_bytes: the size of the largest arrays whose memory is kept; 0 before `keep`.
    """

    def __init__(self, faults: Callable[[], int] = page_faults) -> None:
        self.kept_bytes = 0
        self._faults = faults
        self._runs = 0

    def keep(self) -> None:
        """Have glibc keep some freed memory; more than once has no effect."""
        if not self.kept_bytes:
            self._keep(_LEAST_KEPT)

    def begin(self) -> int | None:
        """Report that a run of many calls begins; return what `end` takes."""
        self._runs += 1
        return self._faults() if not self._runs % _LOOK_AT and self.kept_bytes < _MOST_KEPT else None

    def end(self, begun: int | None) -> None:
        """Report the end of a run for which `begin` has returned `begun`.  Runs that overlap count for each other."""
        if begun is not None and self._faults() - begun > _MANY_FAULTS:
            self._keep(min(_MOST_KEPT, 2 * self.kept_bytes))

    def _keep(self, num_bytes: int) -> None:
        self.kept_bytes = num_bytes
        np.empty(num_bytes, np.uint8)  # freed at once, and its pages are never touched


FREED_MEMORY = FreedMemory()
