"""The loop's time: what may be done on the event loop unasked, what goes to a thread, and what work costs.

Everything is derived from the *slice*, the time for which inline work may hold the event loop at a stretch
(`SessionConfig.slice_seconds`).  How long work will take is judged before it begins, by its size and by what a unit
of its kind costs (`COPY_NS`, `OBJECT_NS`, …); whoever finds that it is more than the loop can spare
calls `check_inline`, or asks the budget, and does it in a thread.  `inline_call.py` has what is raised then,
`runtime/threads/worker_pool.py` the threads, `docs/event-loop.md` the measured figures.

A thread holds the loop as well for as long as it has the interpreter's lock.  So what threads do under the lock is
cut into pieces of at most a slice (`LoopBudget.pieces`), and between two of them `let_others_run` gives the
lock away.

Costs are of an ordinary core, in nanoseconds, and rounded: they decide where work is done, not how long it takes.
The executor corrects those of kernels by what it measures.
"""

from __future__ import annotations

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

# How long inline work may hold the loop at a stretch, unless a session's config says otherwise.
SLICE_SECONDS = 1e-3
# A slice that is shorter would be over before its first node has begun.
SHORTEST_SLICE = 1e-5

# Shares of a slice

# One call may take so much of a slice unasked.  A slice that is all but over when the call begins lasts one and a half.
_INLINE_SHARE = 0.5
# Calls of less than this part of what may run inline are not compared with their estimate: that measures noise.
_MEASURED_SHARE = 0.1
# What is done once and remembered (planning a graph) may hold the loop for so many slices: a thread costs it several
# switches of the interpreter's lock, and what is wrong with a request would be known only later.  Where it takes so
# many times as long as its nodes let expect, it is begun anew in a thread.
_ONCE_SLICES = 4.0
_ONCE_AT_MOST = 8

# What work costs

# A hop to a thread and back takes 60–100 µs, so work of less is never worth one, however short the slices.
HOP_NS = 100_000.0
# Per byte: copying into fresh memory; reading or writing binary tensors and messages.
COPY_NS = 0.25
WIRE_NS = 0.5
# Per element: converting numbers to another type, from array to array.
CAST_NS = 1.0
# Per Python object: looking at it, or making an array's element of it.
OBJECT_NS = 30.0
# Per Python object: adding up the bytes of an array of strings.
MEASURE_NS = 100.0
# Per row: joining elements to a batch, besides its bytes; cutting a batch into its rows.
JOIN_NS = 150.0
CUT_NS = 250.0
# Per element: moving it between a queue and an operation, in the slowest kind of queue (a heap).
MOVE_NS = 1_000.0
# Per byte of text, and per number: JSON.
JSON_READ_NS = 15.0
JSON_WRITE_NS = 400.0
# Per byte that comes out: inflating what was compressed.
INFLATE_NS = 5.0
# Per node: making a node of its message; pruning, passes, building its kernel and laying it out.  And the bytes of
# one in a serialised graph, at least.
IMPORT_NODE_NS = 20_000.0
PLAN_NODE_NS = 20_000.0
# Per node: choosing its device.
PLACE_NODE_NS = 5_000.0
NODE_BYTES = 50
# Per element, of the costliest kernels whose time grows with their inputs; see `small_elements`.
_SLOWEST_ELEMENT_NS = 30.0
# Units of work that a thread does before it has seen how long they take, and how fast they become more.
_FIRST = 16
_GROWTH = 8


class LoopBudget:
    """What a slice of some length allows.

    Args:
        slice_seconds: how long inline work may hold the loop at a stretch.

    Attributes:
        slice_seconds: as given.
        slice_ns: the same in nanoseconds.
        inline_ns: what one call may take on the loop; what takes longer goes to a thread.
        measured_seconds: calls of at least so many seconds are compared with what they were expected to take.
        small_elements: arrays up to this size are small: kernels run on them inline without being asked for their cost.
        plan_nodes, place_nodes: graphs of fewer nodes are planned, and placed, on the loop,
        once_seconds: unless that turns out to take longer than this.
    """

    __slots__ = (
        "inline_ns",
        "measured_seconds",
        "once_seconds",
        "place_nodes",
        "plan_nodes",
        "slice_ns",
        "slice_seconds",
        "small_elements",
    )

    def __init__(self, slice_seconds: float = SLICE_SECONDS) -> None:
        self.slice_seconds = slice_seconds
        self.slice_ns = slice_seconds * 1e9
        self.inline_ns = max(HOP_NS, _INLINE_SHARE * self.slice_ns)
        self.measured_seconds = _MEASURED_SHARE * self.inline_ns * 1e-9
        self.small_elements = int(self.inline_ns / _SLOWEST_ELEMENT_NS)
        self.plan_nodes = max(1, int(_ONCE_SLICES * self.slice_ns / PLAN_NODE_NS))
        self.once_seconds = _ONCE_AT_MOST * max(HOP_NS, _ONCE_SLICES * self.slice_ns) * 1e-9
        self.place_nodes = max(1, int(_ONCE_SLICES * self.slice_ns / PLACE_NODE_NS))

    def allows(self, nanoseconds: float) -> bool:
        """May work that takes so long be done on the loop?"""
        return nanoseconds <= self.inline_ns

    def pieces(self, nanoseconds: float) -> int:
        """How many units of work that take so long each are done at a stretch: a slice's worth, at least one."""
        return max(1, int(self.slice_ns / nanoseconds))

    def __repr__(self) -> str:
        return f"<LoopBudget of slices of {self.slice_seconds * 1e3:g} ms>"


DEFAULT = LoopBudget()


class _Here(threading.local):
    budget = DEFAULT


_here = _Here()


def current_budget() -> LoopBudget:
    """The budget of the session that last opened a slice on this thread's event loop; elsewhere the default."""
    return _here.budget


def use_budget(budget: LoopBudget) -> None:
    """What runs on this thread from now on belongs to a session with this budget."""
    _here.budget = budget


def let_others_run() -> None:
    """Give the interpreter's lock to whoever waits for it.  Called by threads, between two pieces of their work.

    A loop that waits for the lock would otherwise get it only after the interpreter's switch interval (5 ms).
    Sleeping for no time at all would not do: this thread would have the lock again before another one woke up.
    On an event loop's own thread it does nothing.  Raises AbandonedError if nobody waits for that work any more.
    """
    if _get_running_loop() is None:
        check_wanted()
        let_lock_go()


def let_lock_go() -> None:
    """The same in a thread, for what is to be done although nobody waits for it any more."""
    time.sleep(1e-6)


class Pace:
    """How many units of work to do at a stretch: a slice's worth, judged by what the last ones took.

    Args:
        most: at most so many; few at first, as some units take far longer than others of their kind.
    """

    __slots__ = ("_began", "_most", "size")

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = min(most, _FIRST)
        self._began = time.perf_counter()

    def rest(self) -> int:
        """`let_others_run`; returns how many units to do next."""
        took = time.perf_counter() - self._began
        few_enough = int(self.size * DEFAULT.slice_seconds / max(took, 1e-9))
        self.size = max(1, min(self._most, _GROWTH * self.size, few_enough))
        let_others_run()
        self._began = time.perf_counter()
        return self.size


def giving_way(items: Iterable[T], nanoseconds: float) -> Iterator[T]:
    """Yield the items, and call `let_others_run` once in a slice.

    On an event loop's own thread, where that does nothing, it costs nothing either.

    Args:
        nanoseconds: what the interpreter takes for an item, or less than that.
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
