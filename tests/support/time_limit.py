"""A limit on the time of each test: a test that hangs fails, with its name and with everything that is in flight.

Each phase of a test (setup, call, teardown) may take `LIMIT` seconds, a phase of a soak test `SOAK_LIMIT`; the marker
`time_limit(seconds)` sets another limit for a test.  A shared fixture's setup counts for the test that needs it first.

Time is counted in ticks of a timer.  A process that is stopped for minutes, or its machine, gets one tick for all of
them, so it does not fail.  From the limit on, each tick interrupts the test: the first ones cancel all tasks of the
running event loop; later ones, or if no loop runs, raise `KeyboardInterrupt` in the main thread, which neither event
loops nor hypothesis keep to themselves.  A phase that reached its limit fails, however it ends.

A signal handler in Python cannot interrupt C code that never returns.  For that `faulthandler` ends the process after
`LAST_RESORT` limits, with the stacks of all its threads; pytest-xdist then names the test.  Its timer, a thread, is set
anew once a minute: pytest's own `faulthandler_timeout` does so for each test, which takes milliseconds of it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from aexec.runtime.session.session import Session

__all__ = ["LIMIT", "SOAK_LIMIT", "in_flight", "limited_time"]

LIMIT = 120.0
SOAK_LIMIT = 3600.0
LAST_RESORT = 15.0  # of a test's limit

_TICKS = 8  # number of ticks up to the limit
_CANCELLING = 2  # ticks after the limit that cancel tasks, if an event loop runs
_PATIENCE = 1.0  # least seconds between ticks after the limit: a test may need them to end
_FRAMES = 30  # innermost frames shown of a thread's stack

_EARLIER = 60.0  # seconds by which the process may be ended before its last resort

_reached: list[str] = []  # what exceeded its limit in this process
_end = 0.0  # when the process is ended, by the monotonic clock


class _Timer:
    """Counts ticks, and interrupts the main thread from the limit on.

    Attributes:
        patience: seconds between interruptions, in which the test may end.
        report: what was in flight at the limit; None before it.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.report: str | None = None
        self._ticks = 0

    def tick(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        self._ticks += 1
        if self._ticks < _TICKS:
            return
        if self.report is None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.report = in_flight()
            signal.setitimer(signal.ITIMER_REAL, self.patience, self.patience)
        loop = asyncio._get_running_loop()
        if loop is None or self._ticks >= _TICKS + _CANCELLING:
            raise KeyboardInterrupt("the test reached its time limit")
        for task in asyncio.all_tasks(loop):
            loop.call_soon_threadsafe(task.cancel, "the test reached its time limit")


@contextmanager
def limited_time(seconds: float, name: str) -> Iterator[None]:
    """Context manager: fail if the block takes longer; may be nested, and must be used in the main thread."""
    interval = seconds / _TICKS
    timer = _Timer(max(interval, _PATIENCE))
    handler = signal.signal(signal.SIGALRM, timer.tick)
    outer = signal.setitimer(signal.ITIMER_REAL, interval, interval)
    try:
        yield
    except BaseException:
        if timer.report is None:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)
    if timer.report is not None:
        _reached.append(name)
        message = f"{name} took longer than {seconds:g} s.  In flight were:\n{timer.report}"
        raise pytest.fail.Exception(message, pytrace=False) from None


# What is in flight


def in_flight() -> str:
    """Return steps of all sessions of this process, tasks of all event loops, and threads, with their stacks."""
    steps = "\n".join(step.dump() for session in Session.live() for step in session.steps)
    # Reading source lines here must not count as blocking the test's event loop.
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return "\n".join([f"steps:\n{steps}", "tasks:", *_tasks(), "threads:", *_threads()])
    finally:
        asyncio._set_running_loop(loop)


def _tasks() -> Iterator[str]:
    for task in gc.get_objects():
        if isinstance(task, asyncio.Task) and not task.done():
            yield f"{task.get_name()}, at\n{_stack(task)}"


def _stack(task: asyncio.Task[Any]) -> str:
    """Iterate from the task's coroutine to what it finally awaits."""
    frames, awaited = [], task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "".join(traceback.StackSummary.extract(iter(frames)).format())


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"{names.get(ident, ident)}, at\n{''.join(traceback.format_stack(frame)[-_FRAMES:])}"


# Hooks of pytest, for which `tests/conftest.py` registers this module


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("time_limit")
    if marker is not None:
        return float(marker.args[0])
    return LIMIT if item.get_closest_marker("soak") is None else SOAK_LIMIT


def _end_process(item: pytest.Item) -> None:
    """Set the time at which the process is ended, because this test must be stuck in C by then."""
    global _end
    seconds = LAST_RESORT * _limit(item)
    end = time.monotonic() + seconds
    if not _end <= end < _end + min(_EARLIER, seconds):
        stderr = item.config.stash[fault_handler_stderr_fd_key]  # during a test, pytest replaces stderr
        faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
        _end = end


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _end_process(item)
    with limited_time(_limit(item), f"setup of {item.nodeid}"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with limited_time(_limit(item), item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with limited_time(_limit(item), f"teardown of {item.nodeid}"):
        return (yield)


def pytest_enter_pdb() -> None:
    """Suspend the limit: debugging takes time."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()


def pytest_unconfigure() -> None:
    """Let the process end even if a test left threads waiting."""
    faulthandler.cancel_dump_traceback_later()
    if _reached:
        faulthandler.dump_traceback_later(LIMIT, exit=True, file=2)
