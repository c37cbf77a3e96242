"""`LoopThread`: an event loop in a thread of its own, for callers who have none.

Plain threads use sessions through one: `aexec.SyncSession` waits on it, and so does `aexec.embedding`.  Next to read:
`aexec/remote/blocking.py`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from aexec.framework import errors

__all__ = ["LoopThread"]

T = TypeVar("T")

# A waiting thread looks for an interrupt this often.
_LOOK_SECONDS = 0.2


class LoopThread:
    """An event loop in a thread of its own, for callers that have none.

    Its methods may be called from any thread but its own.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        # Without a factory the runner would make its loop the current one of the calling thread.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = runner.get_loop()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._stopped = False
        self._callers = 0
        self._thread = threading.Thread(target=_serve, args=(runner,), name=name, daemon=True)
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result.  An interrupt of the wait, such as Ctrl-C, cancels it.

        Raises:
            FailedPreconditionError: the loop has stopped, this is its own thread, or a forked child.
            BaseException: whatever the coroutine raises.
        """
        future: Future[T] = Future()
        with self._lock:
            self._callers += 1
        try:
            self._submit(coroutine, future)  # inside `try`, as an interrupt may come when the coroutine runs already
            return _result(future)
        except BaseException:
            future.cancel()  # if the wait was interrupted; has no effect on an ended one
            raise
        finally:
            with self._lock:
                self._callers -= 1

    def has_one_caller(self) -> bool:
        """True if no more than one thread waits for the loop."""
        return self._callers <= 1

    def _submit(self, coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
        with self._lock:
            if self._stopped or threading.current_thread() is self._thread or os.getpid() != self._process:
                coroutine.close()
                raise errors.FailedPreconditionError(
                    f"The event loop of {self._thread.name} cannot be waited for: it has stopped, this is its own "
                    "thread, or a process forked from its own"
                )
            self._loop.call_soon_threadsafe(self._begin, coroutine, future)

    def _begin(self, coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
        task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda task: _tell(future, task))
        future.add_done_callback(lambda future: self.call_soon(task.cancel) if future.cancelled() else None)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, unless that has stopped."""
        with self._lock:
            if not self._stopped:
                self._loop.call_soon_threadsafe(callback, *arguments)

    def stop(self) -> None:
        """Cancel what still runs on the loop, and wait until its thread has ended.  Idempotent."""
        self._begin_to_stop()
        if os.getpid() == self._process:
            self._thread.join()

    def _begin_to_stop(self) -> None:
        with self._lock:
            if not self._stopped:
                self._stopped = True
                if os.getpid() == self._process:
                    self._loop.call_soon_threadsafe(self._loop.stop)

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._begin_to_stop()


def _result(future: Future[T]) -> T:
    """The future's result.  Looks up now and then, as a signal just before a thread sleeps does not wake it."""
    while True:
        try:
            return future.result(_LOOK_SECONDS)
        except TimeoutError:
            if future.done():  # the timeout may be the coroutine's own error
                return future.result()


def _tell(future: Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return  # the wait was interrupted
    if error := task.exception():
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _serve(runner: asyncio.Runner) -> None:
    # A function and no method, so that the thread does not keep the LoopThread alive.
    loop = runner.get_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        runner.close()
