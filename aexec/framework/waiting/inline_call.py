"""Exceptions by which a kernel says that it must not go on on the event loop.

Cost estimates decide beforehand where a call runs.  Some facts are known only when it runs: a variable is being updated
in a thread, or a large array must be copied.  The executor catches the exception, keeps the inputs, and makes the same
call again; so a kernel must raise before it has changed anything.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable

from aexec.framework.waiting.loop_budget import current_budget

__all__ = ["InlineCallError", "NeedsThreadError", "PostponedError", "check_inline", "on_event_loop"]


class InlineCallError(Exception):
    """A call cannot go on on the event loop's thread; the subclasses say how it can."""


class NeedsThreadError(InlineCallError):
    """Run the call in a worker thread, because it takes long."""


class PostponedError(InlineCallError):
    """Run the call again later.

    Args:
        when_ready: calls its argument once, from any thread, when the call may succeed.
    """

    def __init__(self, when_ready: Callable[[Callable[[], object]], None]) -> None:
        super().__init__("the call was postponed")
        self.when_ready = when_ready


def on_event_loop() -> bool:
    """True if this thread runs an event loop."""
    return _get_running_loop() is not None


def check_inline(nanoseconds: float) -> None:
    """Raise NeedsThreadError if work of this length would hold up this thread's event loop.

    `loop_budget.py` has the limit, and the costs of work per byte, row or object.
    """
    if nanoseconds > current_budget().inline_ns and on_event_loop():
        raise NeedsThreadError("the call was to run in a thread")
