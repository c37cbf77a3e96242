"""Large amounts of objects, and Python's cyclic garbage collector.

Decoding a large body or importing a large graph makes millions of objects that stay, and the
collector looks through all of them again and again, with every thread stopped for as long as
that takes.  So it is paused meanwhile; and the objects of a large graph, which live as long as
their session, are put out of its sight until a session is closed.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["collect", "paused", "settle", "unsettle"]

T = TypeVar("T")

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


def paused(work: Callable[[], T]) -> T:
    """Do work without garbage collection.  Several threads may do so at a time."""
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        return work()
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()


def settle() -> None:
    """What there is now is here to stay: the collector need not look at it any more."""
    gc.freeze()


def unsettle() -> None:
    """Let the collector look at everything again."""
    gc.unfreeze()


def collect() -> None:
    """Something large was closed: free it now, as its size is unknown to the collector's own schedule."""
    gc.unfreeze()
    gc.collect()
