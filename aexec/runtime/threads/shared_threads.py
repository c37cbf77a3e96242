"""`SharedThreads`: the threads that the kernels of all sessions of a process share.

Each session has a `ThreadShare`, which bounds how many of its calls run at once; all sessions together are bounded,
too. The more calls run, the fewer may belong to one session: its next call begins only while more places are free than
the session has taken (the dynamic thresholds of Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
packet switches", 1998).  So one session gets half of the threads at most, and a later one has a place for its first
call at once.  Waiting calls begin in turn, one of each session.

An abandoned call that runs to its end, because nothing can stop it, takes a place of its own session only, up to a
bound.  Sessions use all this through `worker_pool.py`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import WeakSet

__all__ = ["SharedThreads", "ThreadShare"]

# The most calls of a process at once, and the most abandoned ones beside them.
_MOST = max(64, 4 * (os.cpu_count() or 1))
_MOST_ABANDONED = 64

_Call = Callable[[], Any]


class ThreadShare:
    """The share of the threads of one session, or of several together.

    Args:
        workers: the most of its calls at once, as far as threads are free.

    Attributes:
        users: the pools that have it.
    """

    __slots__ = ("__weakref__", "running", "users", "waiting", "workers")

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.users: WeakSet[Any] = WeakSet()
        self.running = 0
        self.waiting: deque[tuple[Future[Any], _Call]] = deque()


class SharedThreads:
    """The worker threads of a process, which its sessions share within bounds.

    Args:
        begin: called first by each thread.
        most: the most calls at once.
        most_abandoned: the most abandoned calls beside them.
    """

    def __init__(self, begin: Callable[[], object], most: int = _MOST, most_abandoned: int = _MOST_ABANDONED) -> None:
        self._begin = begin
        self._most = most
        self._most_abandoned = most_abandoned
        self._lock = threading.Lock()
        self._shares: set[ThreadShare] = set()
        self._line: deque[ThreadShare] = deque()  # the shares with waiting calls, in turn
        self._running = 0
        self._abandoned: set[Future[Any]] = set()
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, share: ThreadShare, call: _Call) -> Future[Any]:
        """Run `call()` in a thread; return the future of its result, which can be cancelled until the call begins."""
        future: Future[Any] = Future()
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    self._most + self._most_abandoned, "aexec-worker", initializer=self._begin
                )
            self._shares.add(share)
            if not share.waiting:
                self._line.append(share)
            share.waiting.append((future, call))
            self._begin_calls(self._executor)
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Give the place of a running call whose result is no longer wanted to others."""
        with self._lock:
            if not future.done() and len(self._abandoned) < self._most_abandoned and future not in self._abandoned:
                self._abandoned.add(future)
                self._running -= 1
                if self._executor is not None:
                    self._begin_calls(self._executor)

    def leave(self, share: ThreadShare) -> set[threading.Thread]:
        """Remove a session without running or waiting calls; return the threads if they end with it."""
        with self._lock:
            self._shares.discard(share)
            executor = self._executor
            if self._shares or executor is None:
                return set()
            self._executor = None
        executor.shutdown(wait=False)
        return set(executor._threads)

    def _begin_calls(self, executor: ThreadPoolExecutor) -> None:
        while (taken := self._take()) is not None:
            executor.submit(self._work, [taken])

    def _take(self) -> tuple[ThreadShare, Future[Any], _Call] | None:
        """Take the next call that may begin, or None; the caller holds the lock."""
        for _ in range(len(self._line)):
            share = self._line.popleft()
            while share.waiting and share.waiting[0][0].cancelled():
                share.waiting.popleft()
            if not share.waiting:
                continue
            taken = None
            if share.running < min(share.workers, self._most - self._running):
                future, call = share.waiting.popleft()
                if future.set_running_or_notify_cancel():
                    share.running += 1
                    self._running += 1
                    taken = share, future, call
            if share.waiting:
                self._line.append(share)
            if taken is not None:
                return taken
        return None

    def _work(self, first: list[tuple[ThreadShare, Future[Any], _Call]]) -> None:
        """The body of a thread: makes a call, keeps nothing of it, then makes the calls that may begin after it."""
        taken: tuple[ThreadShare, Future[Any], _Call] | None = first.pop()
        while taken is not None:
            share, future, call = taken
            taken = None
            result, error = _outcome(call)
            with self._lock:
                share.running -= 1
                if future in self._abandoned:
                    self._abandoned.discard(future)
                else:
                    self._running -= 1
                taken = self._take()
                if self._line and self._executor is not None:
                    self._begin_calls(self._executor)
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
            del share, future, call, result, error


def _outcome(call: _Call) -> tuple[Any, BaseException | None]:
    """(result, None) of a call, or (None, error)."""
    try:
        return call(), None
    except BaseException as error:
        return None, error
    finally:
        del call  # the error's traceback refers to this frame
