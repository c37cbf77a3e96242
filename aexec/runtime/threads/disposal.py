"""Freeing what was large, in pieces: plans and graphs that nobody uses any more.

Their nodes refer to one another, so only the garbage collector would free them, and it stops every thread for as long
as that takes: seconds, for some hundred thousand nodes.  So they are taken apart instead, by a thread that gives the
interpreter's lock away between two pieces, in turns with other long work (`framework/waiting/long_work.py`).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from aexec.framework.memory.memory import return_freed_memory
from aexec.framework.waiting.long_work import LongWork, go_on
from aexec.framework.waiting.loop_budget import DEFAULT
from aexec.runtime.threads.worker_pool import start_in_turns

__all__ = ["Disposable", "dispose", "leave_undisposed"]

_under_way: dict[Future[Any], LongWork] = {}


class Disposable(Protocol):
    """What can be taken apart."""

    def take_apart(self) -> None:
        """Let go of its parts, with pauses as `long_work.drained` makes them.  It is of no use afterwards."""
        ...


def dispose(*remains: Disposable, nodes: int) -> None:
    """Have these taken apart, one after another.  From any thread.

    Args:
        nodes: that they have together.  If these are few it is done at once, else it is begun.
    """
    if nodes < DEFAULT.plan_nodes:
        _take_apart(list(remains))
        return
    work = LongWork()
    future = start_in_turns(partial(_take_large_apart, list(remains)), work)
    _under_way[future] = work
    future.add_done_callback(_under_way.pop)


def leave_undisposed() -> None:
    """Stop taking apart what is to be: the process ends, or has to be quick now.  The collector frees the rest."""
    for work in list(_under_way.values()):
        work.call_off()


def _take_apart(remains: list[Disposable]) -> None:
    while remains:
        remains.pop().take_apart()
        go_on()


def _take_large_apart(remains: list[Disposable]) -> None:
    _take_apart(remains)
    return_freed_memory()
