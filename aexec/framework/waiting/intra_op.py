"""`in_pieces`: several threads work on one kernel call.

A kernel cuts its work into pieces.  The calling thread, a worker or the event loop's, does them one after another, and
helper threads of the session take some of them while other kernels leave cores free.  BLAS is limited to one thread, so
that pieces which call it do not wait for each other; see `runtime/threads/worker_pool.py`, which owns the helpers.
Without a session there are no helpers.

The pieces must follow from shapes alone, so that no result depends on the number of threads.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np

from aexec.framework.waiting.abandoned_calls import check_wanted, current_call

__all__ = ["HelperThreads", "at_once", "in_pieces", "use_helpers"]

# The most helpers of all sessions together; and the seconds after which an idle one ends, so that others may have one.
_MOST_HELPERS = max(32, 4 * (os.cpu_count() or 1))
_IDLE_SECONDS = 5.0


class _Here(threading.local):
    # The helpers of the session whose kernels this thread runs; and whether it is a worker that was counted.
    helpers: HelperThreads | None = None
    counted = False


_here = _Here()


def in_pieces(pieces: int, work: Callable[[int], None]) -> None:
    """Call `work(i)` for each i below `pieces`, in any order, on this thread and on free helpers.

    Returns when all have ended.  If a piece raises, or this thread's call is abandoned, no further piece begins, and
    the error is raised.
    """
    helpers = _here.helpers
    if helpers is None or pieces < 2:
        for i in range(pieces):
            check_wanted()
            work(i)
    else:
        helpers.share(pieces, work)


def at_once(pieces: int) -> int:
    """How many of `pieces` pieces may be under way at the same time, to estimate their memory."""
    helpers = _here.helpers
    return max(1, min(pieces, 1 if helpers is None else helpers.threads))


def use_helpers(helpers: HelperThreads | None) -> None:
    """Use these helpers for the kernels that run on this event loop's thread from now on."""
    _here.helpers = helpers


class _Job:
    """The pieces of one call, which several threads take.

    Attributes:
        helping: the number of helpers that have begun and not ended.
        waited_for: True if the last of them has to release `ended`.
    """

    __slots__ = ("_call", "_failure", "_numbers", "_pieces", "_work", "ended", "helping", "waited_for")

    def __init__(self, pieces: int, work: Callable[[int], None]) -> None:
        self._pieces, self._work, self._call = pieces, work, current_call()
        self._numbers = count()
        self._failure: BaseException | None = None
        self.helping, self.waited_for = 0, False
        self.ended = threading.Lock()
        self.ended.acquire()

    def take(self) -> None:
        """Do pieces until none is left or one has failed."""
        pieces, work, numbers = self._pieces, self._work, self._numbers
        try:
            while self._failure is None and (i := next(numbers)) < pieces:
                check_wanted()
                work(i)
        except BaseException as failure:
            self._failure = failure

    def help(self) -> None:
        """Take pieces on a helper thread; it stops if the job's call is abandoned."""
        if self._call is None:
            self.take()
        else:
            with self._call.running():
                self.take()

    def result(self) -> None:
        """Raise the error of a piece, if there is one, and drop it, because it refers to frames."""
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure


class _Helper:
    """A helper thread; `job` is the job that it was asked to help with, until it begins."""

    def __init__(self, owner: HelperThreads, begin: Callable[[], None] | None) -> None:
        self.job: _Job | None = None
        self._begin = begin
        self._owner = weakref.ref(owner)
        self._bell, self._rung = threading.Lock(), False
        self._bell.acquire()
        # A daemon, as it works only while another thread waits: nothing is lost if the interpreter ends.
        self.thread = threading.Thread(target=self._run, name="aexec-helper", daemon=True)
        self.thread.start()

    def ring(self) -> None:
        """Wake the thread; the caller holds the owner's lock."""
        if not self._rung:
            self._rung = True
            self._bell.release()

    @property
    def rings(self) -> bool:
        """True if it was woken and has not noticed yet; the caller holds the owner's lock."""
        return self._rung

    def heard(self) -> _Job | None:
        """Take the job that it was asked to help with, if it is still wanted; the caller holds the owner's lock."""
        self._rung = False
        job, self.job = self.job, None
        return job

    def _run(self) -> None:
        if self._begin is not None:
            self._begin()
        with np.errstate(all="ignore"):
            while True:
                rung = self._bell.acquire(timeout=_IDLE_SECONDS)
                owner = self._owner()
                if owner is None or not (owner.help(self) if rung else owner.keeps(self)):
                    _helper_count.drop()
                    return
                del owner


class _HelperCount:
    """The number of helpers in the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0

    def add(self, of_session: int) -> bool:
        """Count one more for a session that has `of_session`; return False, and counts none, if fewer are left."""
        with self._lock:
            if of_session >= _MOST_HELPERS - self._number:
                return False
            self._number += 1
            return True

    def drop(self) -> None:
        with self._lock:
            self._number -= 1


_helper_count = _HelperCount()


class HelperThreads:
    """The threads that help the kernels of one session.

    An executor of the standard library would be too slow: sharing a product of a tenth of a millisecond pays off only
    if waking a thread and waiting for it take a fraction of that.

    The number of helpers of a process is bounded: a session gets another one only while more are left than it has.

    Args:
        threads: the most threads at work on kernels at once, including those that called the kernels.
        begin: called first by each helper.
    """

    def __init__(self, threads: int, begin: Callable[[], None] | None = None) -> None:
        self.threads = threads
        self._begin = begin
        self._at_work = 0
        self._lock = threading.Lock()
        self._helpers: list[_Helper] = []
        self._idle: list[_Helper] = []
        self._closed = False

    @contextmanager
    def for_kernel(self) -> Iterator[None]:
        """Context manager for a worker thread: inside it runs a kernel, which helpers may help."""
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
        """The implementation of `in_pieces`."""
        job = _Job(pieces, work)
        asked = self._ask(pieces - 1, job)
        job.take()
        if asked:
            self._wait(job, asked)
        job.result()

    def _ask(self, wanted: int, job: _Job) -> list[_Helper]:
        """Ask up to `wanted` free helpers to help with a job; return those asked."""
        with self._lock:
            free = min(wanted, self.threads - self._at_work - (not _here.counted))
            if free <= 0 or self._closed:
                return []
            asked = [self._idle.pop() for _ in range(min(free, len(self._idle)))]
            while len(asked) < free and _helper_count.add(len(self._helpers)):
                try:
                    asked.append(_Helper(self, self._begin))
                except RuntimeError:  # the interpreter ends, or the system has no more threads
                    _helper_count.drop()
                    break
                self._helpers.append(asked[-1])
            self._at_work += len(asked)
            for helper in asked:
                helper.job = job
                helper.ring()
        return asked

    def help(self, helper: _Helper) -> bool:
        """Run on a helper that was woken: help with its job.  Returns False if the helper has to end."""
        with self._lock:
            job = helper.heard()
            if job is None:  # it came too late, or is closed
                return not self._closed
            job.helping += 1
        job.help()
        with self._lock:
            self._leave(helper)
            job.helping -= 1
            if job.waited_for and not job.helping:
                job.ended.release()
        return True

    def keeps(self, helper: _Helper) -> bool:
        """True if a helper that was idle for long should stay."""
        with self._lock:
            if helper.rings or self._closed or helper not in self._idle:
                return True  # it is being woken right now
            self._idle.remove(helper)
            self._helpers.remove(helper)
            return False

    def _wait(self, job: _Job, asked: list[_Helper]) -> None:
        """Wait for helpers that have begun, and release the others."""
        with self._lock:
            for helper in asked:
                if helper.job is job:
                    helper.job = None
                    self._leave(helper)
            job.waited_for = job.helping > 0
        if job.waited_for:
            job.ended.acquire()

    def _leave(self, helper: _Helper) -> None:
        self._idle.append(helper)
        self._at_work -= 1

    def close(self) -> list[threading.Thread]:
        """End all helpers, when no kernel runs; return the threads that are about to end."""
        with self._lock:
            helpers, self._helpers, self._closed = self._helpers, [], True
            for helper in helpers:
                helper.ring()
        return [helper.thread for helper in helpers]

    def __del__(self) -> None:
        if hasattr(self, "_lock"):  # `__init__` may not have run, as after a failed copy
            self.close()
