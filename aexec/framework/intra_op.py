"""Several threads for one kernel: `in_pieces`.

A kernel cuts its work into pieces; the thread that it is called on, a worker or the event loop's, does them one after
the other, and helper threads of the session take some of them while there are cores that no other kernel keeps busy.
BLAS itself is held to one thread, so that pieces that call it do not wait for each other: see
`runtime/worker_pool.py`, which owns the helpers.  Where no session calls a kernel, pieces are done one after another.

What the pieces are must follow from shapes alone, so that a result does not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import numpy as np

__all__ = ["HelperThreads", "in_pieces", "use_helpers"]


class _Here(threading.local):
    # Of the session whose kernels this thread runs; is it a worker, that has been counted?
    helpers: HelperThreads | None = None
    counted = False


_here = _Here()


def in_pieces(pieces: int, work: Callable[[int], None]) -> None:
    """Call `work(i)` for each i below `pieces`, in any order, on this thread and on helpers that are free.

    Returns when all have ended.  If one raises, no further one begins, and what it raised is raised.
    """
    helpers = _here.helpers
    if helpers is None or pieces < 2:
        for i in range(pieces):
            work(i)
    else:
        helpers.share(pieces, work)


def use_helpers(helpers: HelperThreads | None) -> None:
    """What runs on this thread, an event loop's, from now on belongs to a session with these helpers."""
    _here.helpers = helpers


class HelperThreads:
    """The threads that help the kernels of one session.

    Args:
        threads: how many threads may be at work at once, those that the kernels were called on included.
        begin: what a helper does first.
    """

    def __init__(self, threads: int, begin: Callable[[], None] | None = None) -> None:
        self._threads = threads
        self._begin = begin
        self._at_work = 0
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    @contextmanager
    def for_kernel(self) -> Iterator[None]:
        """What this thread, a worker, does in this context is a kernel, and may have help."""
        _here.helpers, _here.counted = self, True
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            _here.helpers, _here.counted = None, False
            with self._lock:
                self._at_work -= 1

    def share(self, pieces: int, work: Callable[[int], None]) -> None:
        """As `in_pieces`."""
        numbers, failed = count(), False

        def take() -> None:
            nonlocal failed
            try:
                while not failed and (i := next(numbers)) < pieces:
                    work(i)
            except BaseException:
                failed = True
                raise

        helping = self._ask(pieces - 1, take)
        try:
            take()
        finally:
            # A helper that has not begun is not needed any more.
            begun = [future for future in helping if not self._withdraw(future)]
            failures = [future.exception() for future in begun]
        try:
            for failure in failures:
                if failure is not None:
                    raise failure
        finally:
            del helping, begun, failures  # what was raised refers to this frame

    def _ask(self, wanted: int, take: Callable[[], None]) -> list[Future[None]]:
        """Let so many helpers, or as many as are free, call `take`."""
        with self._lock:
            free = min(wanted, self._threads - self._at_work - (not _here.counted))
            if free <= 0 or self._closed:
                return []
            self._at_work += free
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    self._threads - 1, thread_name_prefix="aexec-helper", initializer=self._begin
                )
            executor = self._executor
        return [future for _ in range(free) if (future := self._submit(executor, take)) is not None]

    def _submit(self, executor: ThreadPoolExecutor, take: Callable[[], None]) -> Future[None] | None:
        try:
            return executor.submit(self._help, take)
        except RuntimeError:  # the interpreter ends, and threads begin nothing any more
            self._leave(1)
            return None

    def _help(self, take: Callable[[], None]) -> None:
        try:
            with np.errstate(all="ignore"):
                take()
        finally:
            self._leave(1)

    def _withdraw(self, future: Future[None]) -> bool:
        withdrawn = future.cancel()
        if withdrawn:
            self._leave(1)
        return withdrawn

    def _leave(self, threads: int) -> None:
        with self._lock:
            self._at_work -= threads

    def close(self) -> list[threading.Thread]:
        """End the threads, once no kernel runs: returns those that are about to end.  There is no help any more."""
        with self._lock:
            executor, self._executor, self._closed = self._executor, None, True
        if executor is None:
            return []
        executor.shutdown(wait=False)
        return list(executor._threads)
