"""How far long work is: the work says it, and a listener shows it (`aexec/client/progress_bars.py`).

    with progress.of("restoring model.ckpt", lambda: size, "B") as advance:
        for part in parts:
            ...
            advance(len(part))

Without a listener this costs nothing.  Listeners are of the process: the work is done in threads of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

__all__ = ["Advance", "Listener", "WorkBar", "counted", "listening", "of", "unheard"]

T = TypeVar("T")

# Adds what was done since the last call, in the unit of the work.
Advance = Callable[[int], object]
# Items between two calls of `Advance`.
_TOGETHER = 256


class WorkBar(Protocol):
    """Shows one piece of work; called from the thread that does the work."""

    def advance(self, amount: int, /) -> object:
        """Add what was done since the last call."""

    def close(self) -> object:
        """End it: the work is done, or has failed."""


class Listener(Protocol):
    """Shows work."""

    def open(self, what: str, total: int, unit: str) -> WorkBar:
        """A bar for work that has begun.

        Args:
            what: the work, such as "restoring model.ckpt".
            total: how much there is to do.
            unit: in which that is counted: "B" for bytes, or the plural of things.
        """
        ...


_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Context manager: the listener hears of work that begins inside, in any thread; the innermost one does."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def of(what: str, total: Callable[[], int], unit: str) -> Iterator[Advance]:
    """Context manager: work that is done inside; yields what to call as it goes on.

    Args:
        total: returns how much there is to do; called only if somebody listens.
        what, unit: as of `Listener.open`.
    """
    if not _listeners:
        yield unheard
        return
    bar = _listeners[-1].open(what, total(), unit)
    try:
        yield bar.advance
    finally:
        bar.close()


def unheard(_: int) -> None:
    """The `Advance` of work that nobody listens to."""


def counted(items: Iterable[T], advance: Advance) -> Iterable[T]:
    """The items, which are counted as they are taken."""
    return items if advance is unheard else _counted(items, advance)


def _counted(items: Iterable[T], advance: Advance) -> Iterator[T]:
    number = 0
    for item in items:
        yield item
        number += 1
        if number == _TOGETHER:
            advance(number)
            number = 0
    advance(number)
