"""The loop budget: which work may be done on the event loop, which goes to a thread, and what work costs.

Everything follows from the *slice*, the time for which inline work may hold the event loop
(`SessionConfig.slice_seconds`).  The time of work is estimated before it begins, from its size and the cost of a unit
(`COPY_NS`, `OBJECT_NS`, …).  Code that finds the estimate too long calls `check_inline`, or asks the budget, and does
the work in a thread.  `inline_call.py` has the exceptions, `runtime/threads/worker_pool.py` the threads, and
`docs/event-loop.md` the measured figures.

A thread, too, holds up the loop while it has the interpreter's lock.  So threads cut their work under the lock into
pieces of at most a slice (`LoopBudget.pieces`), and release the lock between two pieces by `let_others_run`.

Costs are rounded nanoseconds on an ordinary core: they decide where work is done, not how long it takes.  The executor
corrects those of kernels by measurement.
"""

from __future__ import annotations

import sys
import threading
import time
from asyncio import _get_running_loop
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from aexec.framework.waiting.abandoned_calls import check_wanted

__all__ = [
    "CAST_NS",
    "COPY_NS",
    "CUT_NS",
    "DEFAULT",
    "HOP_NS",
    "IMPORT_NODE_NS",
    "INFLATE_NS",
    "JOIN_NS",
    "JSON_READ_NS",
    "JSON_WRITE_NS",
    "MEASURE_NS",
    "MOVE_NS",
    "NODE_BYTES",
    "OBJECT_NS",
    "SHORTEST_SLICE",
    "SLICE_SECONDS",
    "WIRE_NS",
    "LoopBudget",
    "Pace",
    "current_budget",
    "giving_way",
    "let_lock_go",
    "let_others_run",
    "update_in_pieces",
    "use_budget",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

# The length of a slice, unless a session's config gives another one.
SLICE_SECONDS = 1e-3
# A shorter slice would be over before its first node has begun.
SHORTEST_SLICE = 1e-5

# Shares of a slice

# One call may take this part of a slice.  So a slice lasts at most one and a half, if the call begins at its end.
_INLINE_SHARE = 0.5
# Calls shorter than this part of the longest inline call are not compared with their estimate, as that measures noise.
_MEASURED_SHARE = 0.1
# Work that is done once and remembered, such as planning a graph, may hold the loop for this many slices: a thread
# would cost several switches of the interpreter's lock, and errors of a request would come later.  If it takes this
# many times as long as expected by its nodes, it starts again in a thread.
_ONCE_SLICES = 4.0
_ONCE_AT_MOST = 4

# The costs of work

# A hop to a thread and back takes 60–100 µs: shorter work stays on the loop, however short the slices are.
HOP_NS = 100_000.0
# Per byte: copying into fresh memory; reading or writing binary tensors and messages.
COPY_NS = 0.25
WIRE_NS = 0.5
# Per element: converting numbers to another type, from array to array.
CAST_NS = 1.0
# Per Python object: looking at it, or making it an array's element.
OBJECT_NS = 30.0
# Per Python object: adding up the bytes of an array of strings.
MEASURE_NS = 100.0
# Per row: joining elements to a batch, besides the bytes; cutting a batch into rows.
JOIN_NS = 150.0
CUT_NS = 250.0
# Per element: moving it between a queue and an operation, in the slowest kind of queue (a heap).
MOVE_NS = 1_000.0
# Per byte of text, and per number: JSON.
JSON_READ_NS = 15.0
JSON_WRITE_NS = 400.0
# Per byte of output: inflating compressed data.
INFLATE_NS = 5.0
# Per node: importing it from its message; pruning, passes, building its kernel and laying it out.  And the least bytes
# of a node in a serialised graph.
IMPORT_NODE_NS = 20_000.0
PLAN_NODE_NS = 20_000.0
# Per node: choosing its device.
PLACE_NODE_NS = 5_000.0
NODE_BYTES = 50
# Per element, of the costliest kernels whose time grows with their inputs; see `small_elements`.
_SLOWEST_ELEMENT_NS = 30.0
# The number of units of work that a thread does before it has measured them, and the factor by which it grows.
_FIRST = 16
_GROWTH = 8


class LoopBudget:
    """What a slice of some length allows.

    Args:
        slice_seconds: the length of a slice; None for the usual one.

    Attributes:
        slice_seconds: the length of a slice.
        slice_ns: the same in nanoseconds.
        inline_ns: the longest call on the loop; longer ones go to a thread.
        measured_seconds: calls of at least this length are compared with their estimate.
        small_elements: the largest size of a small array: kernels run on such inline without being asked for the cost.
        plan_nodes, place_nodes: graphs of fewer nodes are planned, and placed, on the loop.
        once_seconds: planning or placing that takes longer than this is begun anew in a thread.
    """

    __slots__ = (
        "_usual_slices",
        "inline_ns",
        "measured_seconds",
        "once_seconds",
        "place_nodes",
        "plan_nodes",
        "slice_ns",
        "slice_seconds",
        "small_elements",
    )

    def __init__(self, slice_seconds: float | None = None) -> None:
        self.slice_seconds = slice_seconds = SLICE_SECONDS if slice_seconds is None else slice_seconds
        self.slice_ns = slice_seconds * 1e9
        self._usual_slices = max(1.0, slice_seconds / SLICE_SECONDS)
        self.inline_ns = max(HOP_NS, _INLINE_SHARE * self.slice_ns)
        self.measured_seconds = _MEASURED_SHARE * self.inline_ns * 1e-9
        self.small_elements = int(self.inline_ns / _SLOWEST_ELEMENT_NS)
        self.plan_nodes = max(1, int(_ONCE_SLICES * self.slice_ns / PLAN_NODE_NS))
        self.once_seconds = _ONCE_AT_MOST * max(HOP_NS, _ONCE_SLICES * self.slice_ns) * 1e-9
        self.place_nodes = max(1, int(_ONCE_SLICES * self.slice_ns / PLACE_NODE_NS))

    def allows(self, nanoseconds: float) -> bool:
        """True if work of this length may be done on the loop."""
        return nanoseconds <= self.inline_ns

    def as_usual(self, seconds: float) -> float:
        """The lateness in seconds, of a slice of the usual length, that means as much as this one of a longer slice.

        The last call of a slice may take a part of the slice's length, and makes it so much late.
        """
        return seconds / self._usual_slices

    def pieces(self, nanoseconds: float) -> int:
        """The number of units of this length in one piece of work: a slice's worth, at least one."""
        return max(1, int(self.slice_ns / nanoseconds))

    def __repr__(self) -> str:
        return f"<LoopBudget of slices of {self.slice_seconds * 1e3:g} ms>"


DEFAULT = LoopBudget()


class _Here(threading.local):
    """What belongs to a thread.

    Attributes:
        budget: see `current_budget`.
        rested: when the thread last let others run, by `time.perf_counter`.
    """

    budget = DEFAULT
    rested = 0.0


_here = _Here()


def current_budget() -> LoopBudget:
    """The budget of the session that last opened a slice on this thread's event loop; the default on other threads."""
    return _here.budget


def use_budget(budget: LoopBudget) -> None:
    """Use this budget for the work on this thread from now on."""
    _here.budget = budget


def let_others_run() -> None:
    """Release the interpreter's lock for others.  Threads call it between two pieces of their work.

    A loop that waits for the lock would otherwise get it only after the interpreter's switch interval (5 ms).
    Sleeping for 0 seconds would not help: this thread would take the lock again before another one wakes up.
    Does nothing on an event loop's own thread.  Raises AbandonedError if the thread's call was abandoned.
    """
    if _get_running_loop() is None:
        check_wanted()
        let_lock_go()


def let_lock_go() -> None:
    """Like `let_others_run` in a thread, for work that must be done even if its call was abandoned."""
    if len(sys._current_frames()) > 1:  # else no other thread runs Python, and none can wait for the lock
        time.sleep(1e-6)
    _here.rested = time.perf_counter()


class Pace:
    """The number of units of work in the next piece: a slice's worth, by the time of the last ones.

    Args:
        most: the most units in a piece; the first pieces are small, because some units take far longer than others.
    """

    __slots__ = ("_began", "_most", "size")

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = min(most, _FIRST)
        self._began = time.perf_counter()

    def rest(self) -> int:
        """Call `let_others_run` if others have waited for a part of a slice; return the number of units to do next."""
        now = time.perf_counter()
        few_enough = int(self.size * DEFAULT.slice_seconds / max(now - self._began, 1e-9))
        self.size = max(1, min(self._most, _GROWTH * self.size, few_enough))
        if 0 <= now - _here.rested < _INLINE_SHARE * DEFAULT.slice_seconds:
            check_wanted()
        else:
            let_others_run()
            now = time.perf_counter()
        self._began = now
        return self.size


def giving_way(items: Iterable[T], nanoseconds: float) -> Iterator[T]:
    """Yield the items, and call `let_others_run` once in a slice.

    On an event loop's own thread, where that does nothing, it adds no cost.

    Args:
        nanoseconds: the interpreter's time for an item, or less.
    """
    return _paced(items, nanoseconds) if _get_running_loop() is None else iter(items)


def _paced(items: Iterable[T], nanoseconds: float) -> Iterator[T]:
    pace = Pace(DEFAULT.pieces(nanoseconds))
    left = pace.size
    for item in items:
        if not left:
            left = pace.rest()
        left -= 1
        yield item


def update_in_pieces(target: dict[K, V], entries: Iterable[tuple[K, V]], at_once: int) -> None:
    """Do what `target.update(entries)` does, `at_once` entries at a time, so that other threads can run in between."""
    left = iter(entries)
    while some := dict(islice(left, at_once)):
        target.update(some)
