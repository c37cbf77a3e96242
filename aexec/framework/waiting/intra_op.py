"""Several threads for one kernel: `in_pieces`.

A kernel cuts its work into pieces; the thread that it is called on, a worker or the event loop's, does them one after
the other, and helper threads of the session take some of them while there are cores that no other kernel keeps busy.
BLAS itself is held to one thread, so that pieces that call it do not wait for each other: see
`runtime/threads/worker_pool.py`, which owns the helpers.  Where no session calls a kernel, pieces are done one after
another.

What the pieces are must follow from shapes alone, so that a result does not depend on the number of threads.
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

# Helpers of all sessions together; and after how many seconds one that nobody asks ends, so that others may have one.
_MOST_HELPERS = max(32, 4 * (os.cpu_count() or 1))
_IDLE_SECONDS = 5.0


class _Here(threading.local):
    # Of the session whose kernels this thread runs; is it a worker, that has been counted?
    helpers: HelperThreads | None = None
    counted = False


_here = _Here()


def in_pieces(pieces: int, work: Callable[[int], None]) -> None:
    """Call `work(i)` for each i below `pieces`, in any order, on this thread and on helpers that are free.

    Returns when all have ended.  If one raises, no further one begins, and what it raised is raised; so it is if
    nobody waits for this thread's call any more.
    """
    helpers = _here.helpers
    if helpers is None or pieces < 2:
        for i in range(pieces):
            check_wanted()
            work(i)
    else:
        helpers.share(pieces, work)


def at_once(pieces: int) -> int:
    """How many pieces, of so many, may be in work at a time: for what each of them needs."""
    helpers = _here.helpers
    return max(1, min(pieces, 1 if helpers is None else helpers.threads))


def use_helpers(helpers: HelperThreads | None) -> None:
    """What runs on this thread, an event loop's, from now on belongs to a session with these helpers."""
    _here.helpers = helpers


class _Job:
    """Pieces that several threads take, one after the other.

    Attributes:
        helping: how many helpers have begun and not ended; `waited_for` if the last one is to release `ended`.
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
        """Do pieces until none is left, or one has failed."""
        pieces, work, numbers = self._pieces, self._work, self._numbers
        try:
            while self._failure is None and (i := next(numbers)) < pieces:
                check_wanted()
                work(i)
        except BaseException as failure:
            self._failure = failure

    def help(self) -> None:
        """Take pieces on a helper thread, for the job's call: if that is abandoned, the helper stops too."""
        if self._call is None:
            self.take()
        else:
            with self._call.running():
                self.take()

    def result(self) -> None:
        """Raises what a piece has raised, which refers to its frame: the job forgets it."""
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure


class _Helper:
    """A thread that waits to be asked; `job` is what for, until it begins."""

    def __init__(self, owner: HelperThreads, begin: Callable[[], None] | None) -> None:
        self.job: _Job | None = None
        self._begin = begin
        self._owner = weakref.ref(owner)
        self._bell, self._rung = threading.Lock(), False
        self._bell.acquire()
        # It works only while another thread waits for it, so that nothing is lost if the interpreter ends.
        self.thread = threading.Thread(target=self._run, name="aexec-helper", daemon=True)
        self.thread.start()

    def ring(self) -> None:
        """Wake the thread; under the owner's lock."""
        if not self._rung:
            self._rung = True
            self._bell.release()

    @property
    def rings(self) -> bool:
        """Was it woken, and has not heard of it?  Under the owner's lock."""
        return self._rung

    def heard(self) -> _Job | None:
        """What it is asked for, if it still is; under the owner's lock."""
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
    """How many helpers there are in the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0

    def add(self, of_session: int) -> bool:
        """One more, for a session that has so many: False if fewer are left than it has."""
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

    They are no executor's: a product of a tenth of a millisecond is worth sharing only if another thread has
    heard of it, and been waited for, in a fraction of that.

    All sessions of a process together have a bounded number of them: a session has another one while more are left
    than it has.

    Args:
        threads: how many threads may be at work at once, those that the kernels were called on included.
        begin: what a helper does first.
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
        job = _Job(pieces, work)
        asked = self._ask(pieces - 1, job)
        job.take()
        if asked:
            self._wait(job, asked)
        job.result()

    def _ask(self, wanted: int, job: _Job) -> list[_Helper]:
        """Ask so many helpers, or as many as are free, for help with a job."""
        with self._lock:
            free = min(wanted, self.threads - self._at_work - (not _here.counted))
            if free <= 0 or self._closed:
                return []
            asked = [self._idle.pop() for _ in range(min(free, len(self._idle)))]
            while len(asked) < free and _helper_count.add(len(self._helpers)):
                try:
                    asked.append(_Helper(self, self._begin))
                except RuntimeError:  # the interpreter ends, or the system has no more: there is less help
                    _helper_count.drop()
                    break
                self._helpers.append(asked[-1])
            self._at_work += len(asked)
            for helper in asked:
                helper.job = job
                helper.ring()
        return asked

    def help(self, helper: _Helper) -> bool:
        """A helper, that was woken, helps with what it is asked for; False if it is to end."""
        with self._lock:
            job = helper.heard()
            if job is None:  # it came too late, or there is nothing to come
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
        """Is a helper that was not asked for long to go on?"""
        with self._lock:
            if helper.rings or self._closed or helper not in self._idle:
                return True  # it is woken at this moment
            self._idle.remove(helper)
            self._helpers.remove(helper)
            return False

    def _wait(self, job: _Job, asked: list[_Helper]) -> None:
        """Until those that have begun have ended; the others are not needed any more."""
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
        """End the threads, once no kernel runs: returns those that are about to end.  There is no help any more."""
        with self._lock:
            helpers, self._helpers, self._closed = self._helpers, [], True
            for helper in helpers:
                helper.ring()
        return [helper.thread for helper in helpers]

    def __del__(self) -> None:
        if hasattr(self, "_lock"):  # else it was never made whole, as what fails to be copied
            self.close()
