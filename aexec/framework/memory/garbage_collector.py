"""Keeps large graphs out of Python's cyclic garbage collector, which stops all threads while it examines objects.

A graph of 100 000 nodes has a million objects that live as long as their session.  The collector would examine them
several times while they are made (`collector_paused` prevents it), once more as young objects, and then in every full
collection.  So they are frozen (`gc.freeze`) while they live: see `keep_large` and `drop_large`.  `freeze_heap` freezes
all objects of a program that does little else than run graphs.
Python can only unfreeze all objects at once.  If the program has called `gc.freeze` itself, unfreezing would undo that,
so nothing is frozen here, and large graphs are collected as any object is.
`runtime/threads/disposal.py` frees large graphs at their end without the collector.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

__all__ = [
    "collect_garbage",
    "collect_if_due",
    "collecting_when_asked",
    "collector_paused",
    "drop_large",
    "freeze_heap",
    "keep_large",
    "unfreeze_heap",
]

# The collector examines this many young objects in a few milliseconds.
_MANY = 20_000

# Reentrant: a collection may run finalizers that take the lock, in the thread that holds it.
_lock = threading.RLock()
_pauses = 0
_program_frozen = False
_large = 0  # number of large objects that are frozen while they live
_frozen_by_program = False  # the program had called gc.freeze itself before the first of them
_program_freezes = False  # the program has been seen to call gc.freeze itself
_was_enabled = False

# By Python's schedule, the number of middle-generation collections after which a full one is due.
_DUE_AFTER = 10
_NEVER = 2**30
# Seconds after which a full collection that is due no longer waits for an idle moment.
_PATIENCE = 60.0
_when_asked = False
_due_since: float | None = None


@contextmanager
def collector_paused() -> Iterator[None]:
    """Context manager: pause the collector in the whole process.  Several threads may be inside at once.

    If many objects were made meanwhile they count as old afterwards, so that the next young collection is short.
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
    """Make all existing objects old, so that young collections do not examine them."""
    if _program_frozen or (_large and not _frozen_by_program):
        gc.freeze()
    elif not _is_frozen_by_program():
        gc.freeze()
        gc.unfreeze()  # unfrozen objects count as old


def _is_frozen_by_program() -> bool:
    """Return whether the program calls gc.freeze itself; call this only while nothing is frozen here.

    A True result is remembered, as Python counts the frozen objects one by one, which takes as long as a collection.
    """
    global _program_freezes
    _program_freezes = _program_freezes or gc.get_freeze_count() > 0
    return _program_freezes


def freeze_heap() -> None:
    """Keep the collector from examining any object that exists now.

    Existing cyclic garbage is kept too, so call this in a program that has just started, or after a collection.
    """
    global _program_frozen
    _program_frozen = True
    gc.freeze()


def unfreeze_heap() -> None:
    """Let the collector examine all objects again, except large graphs."""
    global _program_frozen
    _program_frozen = False
    if not _large:
        gc.unfreeze()


def keep_large() -> None:
    """Note that a large graph was made: the collector does not examine it until `drop_large`."""
    global _large, _frozen_by_program
    with _lock:
        if not _large:
            _frozen_by_program = not _program_frozen and _is_frozen_by_program()
        _large += 1
        if not _frozen_by_program:
            gc.freeze()


def drop_large() -> None:
    """Note that a large graph of a `keep_large` call is gone.  The caller has freed its objects that were in cycles."""
    global _large
    with _lock:
        _large -= 1
        if not (_large or _program_frozen or _frozen_by_program):
            gc.unfreeze()


def collect_garbage() -> bool:
    """Free the cyclic garbage that was frozen with large graphs.

    All threads stop while the collector examines all objects, for some 0.05 s if little but this package is loaded, so
    call it when nothing waits.  Does nothing, and returns False, while a large graph lives.
    """
    with _lock:
        if _large:
            return False
        if _program_frozen:
            gc.unfreeze()
        gc.collect()
        if _program_frozen:
            gc.freeze()
        return True


@contextmanager
def collecting_when_asked() -> Iterator[None]:
    """Context manager: Python starts no full collection; the program calls `collect_if_due` regularly."""
    global _when_asked
    schedule = gc.get_threshold()
    _when_asked = True
    gc.set_threshold(*schedule[:2], _NEVER)
    try:
        yield
    finally:
        _when_asked = False
        gc.set_threshold(*schedule)


def collect_if_due(*, idle: bool) -> None:
    """Make the full collection that is due by Python's schedule if the program is idle, or if it is a minute late.

    Does nothing outside of `collecting_when_asked`.
    """
    global _due_since
    if not _when_asked or gc.get_count()[2] < _DUE_AFTER:
        _due_since = None
        return
    if _due_since is None:
        _due_since = monotonic()
    if idle or monotonic() - _due_since >= _PATIENCE:
        _due_since = None
        gc.collect()
