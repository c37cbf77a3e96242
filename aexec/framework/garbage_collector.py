"""Large graphs, and Python's cyclic garbage collector, which stops every thread while it looks at objects.

A graph of 100 000 nodes is a million objects that live as long as their session.  The collector would look through
them again and again while they are made (`collector_paused`), once more as soon as they are there, because they are
young, and from then on with every full collection (`freeze_heap`, for programs that do little else than run graphs).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_garbage", "collector_paused", "freeze_heap", "unfreeze_heap"]

# So many young objects take the collector a few milliseconds to look through.
_MANY = 20_000

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection meanwhile, in the whole process.  Several threads may ask for it at a time.

    What was made counts as old afterwards, if it is much: the next collection of young objects is a quick one.
    """
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                if gc.get_count()[0] > _MANY:
                    _age()
                gc.enable()


def _age() -> None:
    """Make all objects old ones, without looking at any: what is unfrozen counts as old."""
    if not gc.get_freeze_count():  # else somebody wants what is frozen to stay so
        gc.freeze()
        gc.unfreeze()


def freeze_heap() -> None:
    """What there is now is here to stay: the collector does not look at it any more.

    Cyclic garbage that is there already stays too, so this is for a program that has just begun or been cleaned up.
    """
    gc.freeze()


def unfreeze_heap() -> None:
    """Let the collector look at everything again."""
    gc.unfreeze()


def collect_garbage() -> None:
    """Something large was closed: free it now, as its size is unknown to the collector's own schedule."""
    gc.unfreeze()
    gc.collect()
