"""Frees large plans and graphs that are not used any more, in pieces.

Their nodes refer to one another, so only the garbage collector would free them, and it stops all threads meanwhile: for
seconds, with some hundred thousand nodes.  So a thread takes them apart.  It releases the interpreter's lock between
two pieces, and takes turns with other long work (`framework/waiting/long_work.py`).
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
    """An object that can be taken apart."""

    def take_apart(self) -> None:
        """Release its parts, with pauses as in `long_work.drained`.  It is unusable afterwards."""
        ...


def dispose(*remains: Disposable, nodes: int) -> None:
    """Take objects apart, one after another.  May be called in any thread.

    Args:
        nodes: the number of nodes of all together.  Few are taken apart at once, many by a thread.
    """
    if nodes < DEFAULT.plan_nodes:
        _take_apart(list(remains))
        return
    work = LongWork()
    future = start_in_turns(partial(_take_large_apart, list(remains)), work)
    _under_way[future] = work
    future.add_done_callback(_under_way.pop)


def leave_undisposed() -> None:
    """Stop taking objects apart, as the process ends or must be quick now; the collector frees the rest."""
    for work in list(_under_way.values()):
        work.call_off()


def _take_apart(remains: list[Disposable]) -> None:
    while remains:
        remains.pop().take_apart()
        go_on()


def _take_large_apart(remains: list[Disposable]) -> None:
    _take_apart(remains)
    return_freed_memory()
