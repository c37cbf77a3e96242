"""`LoopThread`: an event loop in a thread of its own, for callers who have none.

What a session needs to be used from plain threads: `aexec.SyncSession` waits through one, and so does
`aexec.embedding`.  Next to read: `aexec/remote/blocking.py`.
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

# So often who waits looks whether it was interrupted.
_LOOK_SECONDS = 0.2


class LoopThread:
    """An event loop in a thread of its own, for callers that have none.

    Its methods may be called from any thread but its own.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        # With a factory, as without one the runner makes its loop the current one of the calling thread.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = runner.get_loop()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=_serve, args=(runner,), name=name, daemon=True)
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives that runs on the loop.  Who is interrupted while waiting, by Ctrl-C say, cancels it.

        Raises:
            FailedPreconditionError: the loop has stopped, this is its own thread, or a forked child.
            BaseException: whatever the coroutine raises.
        """
        future: Future[T] = Future()
        try:
            self._submit(coroutine, future)  # in here, as an interrupt may come when the coroutine runs already
            return _result(future)
        except BaseException:
            future.cancel()  # of an interrupted wait; one that has ended does not mind
            raise

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
        """Call something on the loop, if it has not stopped."""
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
    """What it brings.  A signal in the instant before a thread falls asleep, or in another one, does not wake it."""
    while True:
        try:
            return future.result(_LOOK_SECONDS)
        except TimeoutError:
            if future.done():  # it may be its own error
                return future.result()


def _tell(future: Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return  # Whoever waited was interrupted.
    if error := task.exception():
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _serve(runner: asyncio.Runner) -> None:
    # A function, so that the thread does not keep the LoopThread that nobody else has.
    loop = runner.get_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        runner.close()
