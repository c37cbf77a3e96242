"""What a kernel raises when it finds, on the event loop, that it must not go on there.

Cost estimates decide beforehand where a call runs.  Some things are known only once it
runs: that a variable is being updated in a thread, or that a large array must be copied.
The executor catches these, keeps the inputs, and runs the same call again; so a kernel
raises them before it has changed anything.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable

from aexec.framework.waiting.loop_budget import current_budget

__all__ = ["InlineCallError", "NeedsThreadError", "PostponedError", "check_inline", "on_event_loop"]


class InlineCallError(Exception):
    """A call cannot go on on the event loop's thread.  Base of the two ways in which it can go on."""


class NeedsThreadError(InlineCallError):
    """Run the call in a worker thread: it takes long."""


class PostponedError(InlineCallError):
    """Run the call again later.

    Args:
        when_ready: calls its argument once, from any thread, when that may succeed.
    """

    def __init__(self, when_ready: Callable[[Callable[[], object]], None]) -> None:
        super().__init__("the call was postponed")
        self.when_ready = when_ready


def on_event_loop() -> bool:
    """Does this thread run an event loop?"""
    return _get_running_loop() is not None


def check_inline(nanoseconds: float) -> None:
    """Raise NeedsThreadError if work that takes so long would hold up the event loop of this thread.

    What is allowed, and what work takes per byte, row or object: `loop_budget.py`.
    """
    if nanoseconds > current_budget().inline_ns and on_event_loop():
        raise NeedsThreadError("the call was to run in a thread")
