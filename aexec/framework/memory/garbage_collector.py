"""Large graphs, and Python's cyclic garbage collector, which stops every thread while it looks at objects.

A graph of 100 000 nodes is a million objects that live as long as their session.  The collector would look through
them again and again while they are made (`collector_paused`), once more as soon as they are there, because they are
young, and from then on with every full collection: so it is out of the collector's sight while it lives (`keep_large`,
`drop_large`), as all is that programs have loaded that do little else than run graphs (`freeze_heap`).
Python knows no way back but for all of it: where a program has called `gc.freeze` itself, which that would undo,
nothing is put out of sight, and what is large is collected as Python does it.
What is large is not left to the collector when it ends, either: see `runtime/threads/disposal.py`.
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

# So many young objects take the collector a few milliseconds to look through.
_MANY = 20_000

# A collection may call what takes it, in the thread that has it.
_lock = threading.RLock()
_pauses = 0
_program_frozen = False
_large = 0  # things that are out of the collector's sight while they live
_frozen_by_program = False  # the program had called gc.freeze itself when the first of them came
_program_freezes = False  # the program was once seen to have called gc.freeze itself
_was_enabled = False

# By Python's own schedule a full collection may come after so many of the two younger generations.
_DUE_AFTER = 10
_NEVER = 2**30
# Seconds after which a full collection that is due does not wait for an idle moment any more.
_PATIENCE = 60.0
_when_asked = False
_due_since: float | None = None


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
    """Let the collector look at nothing of what there is when it looks for young garbage."""
    if _program_frozen or (_large and not _frozen_by_program):
        gc.freeze()
    elif not _is_frozen_by_program():
        gc.freeze()
        gc.unfreeze()  # what is unfrozen counts as old


def _is_frozen_by_program() -> bool:
    """Whether the program calls gc.freeze itself; to be asked while nothing is frozen here.

    Once it was seen to, it is not looked at again: Python counts what is frozen one by one, which takes as long as a
    collection.
    """
    global _program_freezes
    _program_freezes = _program_freezes or gc.get_freeze_count() > 0
    return _program_freezes


def freeze_heap() -> None:
    """What there is now is here to stay: the collector does not look at it any more.

    Cyclic garbage that is there already stays too, so this is for a program that has just begun or been cleaned up.
    """
    global _program_frozen
    _program_frozen = True
    gc.freeze()


def unfreeze_heap() -> None:
    """Let the collector look at everything again, but for what is large."""
    global _program_frozen
    _program_frozen = False
    if not _large:
        gc.unfreeze()


def keep_large() -> None:
    """Something large was made and is here to stay: the collector does not look at it until `drop_large`."""
    global _large, _frozen_by_program
    with _lock:
        if not _large:
            _frozen_by_program = not _program_frozen and _is_frozen_by_program()
        _large += 1
        if not _frozen_by_program:
            gc.freeze()


def drop_large() -> None:
    """Something large is gone, of what `keep_large` was called for.  Whoever calls it has freed what was in cycles."""
    global _large
    with _lock:
        _large -= 1
        if not (_large or _program_frozen or _frozen_by_program):
            gc.unfreeze()


def collect_garbage() -> bool:
    """Free what cyclic garbage was frozen with large things.

    It holds every thread while the collector looks at all that there is, for some 0.05 s where little is loaded but
    this package: call it when nobody waits.  Nothing is done, and False returned, while something large lives.
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
    """Python makes no full collection by itself meanwhile: the program calls `collect_if_due` every now and then."""
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
    """The full collection that Python's schedule would have made, if nobody waits, or if it has been due for a minute.

    Nothing is done outside of `collecting_when_asked`.
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
