"""Worker threads: `WorkerPool` for kernels and all else of a session, whose threads `shared_threads.py` has,
`run_in_turns` for importing and planning, `run_in_thread` for what belongs to none.

NumPy and BLAS release the GIL in kernels that would hold up the event loop.  One kernel has several threads only
through `framework/waiting/intra_op.py`, which shares the cores that no other kernel uses; BLAS is held to one, through
threadpoolctl when the first kernel is offloaded, because limits are process-wide.

What goes to a thread is decided by `framework/waiting/loop_budget.py`; what happens to a call whose waiter
is cancelled, by whoever makes it: see `framework/waiting/worker_threads.py`.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import watched_elsewhere
from aexec.framework.waiting.abandoned_calls import CallInThread
from aexec.framework.waiting.futures import until_done
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.intra_op import HelperThreads
from aexec.framework.waiting.long_work import CalledOffError, LongWork
from aexec.framework.waiting.processors import num_processors
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.runtime.threads.shared_threads import SharedThreads, ThreadShare

__all__ = [
    "OnCancel",
    "WorkerPool",
    "WorkerPoolStatistics",
    "any_thread_busy",
    "end_idle_threads",
    "limit_blas_threads",
    "run_in_thread",
    "run_in_turns",
    "start_in_turns",
]

T = TypeVar("T")


# Pools that may be busy: few, of the thousands in a simulation.
_busy_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
# Calls of `run_in_thread` that have not ended.
_calls: set[_Call[Any]] = set()


@dataclass(frozen=True, slots=True)
class WorkerPoolStatistics:
    """The numbers of workers, of kernel threads at most, of running or queued jobs, and of all jobs so far."""

    workers: int
    intra_op_threads: int
    outstanding: int
    submitted: int


def _default_threads() -> tuple[int, int]:
    """The default (workers, kernel threads): about the square root of the cores, and the cores.

    At least two workers where there are two cores, so that an abandoned kernel does not
    keep the next step waiting.
    """
    cores = num_processors()
    return min(cores, max(2, math.isqrt(cores))), cores


class WorkerPool:
    """Runs kernels in threads, which all pools share, and reports each end on the event loop.

    Args:
        workers: the most threads at work for it; 0 for the default.
        intra_op_threads: the most threads at work on kernels at once, helpers included; 0 for the default.
        share: the thread share to use in place of one of its own.
    """

    def __init__(self, workers: int = 0, intra_op_threads: int = 0, share: ThreadShare | None = None) -> None:
        self._workers = self.workers_of(workers)
        self._intra_op_threads = intra_op_threads or _default_threads()[1]
        # They help kernels in this pool's threads and on the event loop.
        self.helpers = HelperThreads(self._intra_op_threads, partial(limit_blas_threads, 1))
        self._share = share or ThreadShare(self._workers)
        self._share.users.add(self)
        self._outstanding: dict[Future[Any], CallInThread] = {}
        self._submitted = 0

    @staticmethod
    def workers_of(workers: int) -> int:
        """The most threads at work for a pool that is made with `workers`."""
        return workers or _default_threads()[0]

    @property
    def busy(self) -> bool:
        """True if a kernel runs or is queued."""
        return bool(self._outstanding)

    def statistics(self) -> WorkerPoolStatistics:
        return WorkerPoolStatistics(self._workers, self._intra_op_threads, len(self._outstanding), self._submitted)

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        done: Callable[[Future[Any]], None],
    ) -> Future[Any]:
        """Run `call(*args)` in a thread; `done(future)` is called on the loop, unless it has closed.

        The future's result is a list of the call's result and its duration in seconds.  Empty the list to drop them:
        the thread releases its future only some time later.
        The future may be cancelled while it is queued; `done` is called then too.
        """
        in_thread = CallInThread()
        future = _threads.submit(self._share, partial(_run_kernel, self.helpers, in_thread, [call, *args]))
        self._submitted += 1
        self._outstanding[future] = in_thread
        _busy_pools.add(self)

        # A future keeps its callbacks: one that refers to it would leave the call's values to the collector.
        def on_loop(future: Future[Any]) -> None:
            self._outstanding.pop(future, None)
            done(future)

        def ended(future: Future[Any]) -> None:
            try:
                loop.call_soon_threadsafe(on_loop, future)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._outstanding.pop(future, None)

        future.add_done_callback(ended)
        return future

    def abandon(self, future: Future[Any]) -> bool:
        """Abandon a call for which nobody waits: it ends as soon as it can.

        Returns False if it is finishing a change of state; then the caller must wait for it.
        """
        if not future.cancel() and (call := self._outstanding.get(future)) is not None:
            if not call.abandon():
                return False
            _threads.abandon(future)
        return True

    def start(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call `call(*args)` in a thread; return the future of its result.

        Completing the future earlier withdraws a call that has not begun, and drops the result of one that has.
        """
        waiter, withdraw = self._begin(call, args, OnCancel.WAIT)
        waiter.add_done_callback(lambda _: withdraw())
        return waiter

    async def run(self, call: Callable[..., T], *args: Any, on_cancel: OnCancel = OnCancel.ABANDON) -> T:
        """Call `call(*args)` in a thread, and return its result."""
        return await _outcome(*self._begin(call, args, on_cancel), on_cancel)

    def _begin(
        self, call: Callable[..., T], args: tuple[Any, ...], on_cancel: OnCancel
    ) -> tuple[asyncio.Future[T], Callable[[], bool]]:
        """Submit a call: a future of what it returns, and what withdraws it if it has not begun."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        job = self.submit(loop, watched_elsewhere(call), args, lambda job: _hand_over(job, waiter))

        def withdraw() -> bool:
            if on_cancel is OnCancel.ABANDON:
                self.abandon(job)
            return job.cancel()

        return waiter, withdraw

    async def run_here_or_in_thread(
        self, call: Callable[..., T], *args: Any, on_cancel: OnCancel = OnCancel.ABANDON
    ) -> T:
        """Return `call(*args)`, called here, and again in a thread if it raises NeedsThreadError here.

        A call raises that error before it has changed anything: see `inline_call.check_inline`.
        """
        try:
            return call(*args)
        except NeedsThreadError:
            pass
        return await self.run(call, *args, on_cancel=on_cancel)

    async def close(self) -> None:
        """Wait until nothing runs, and end the threads."""
        while self._outstanding:
            waiting = [asyncio.wrap_future(f) for f in self._outstanding if not f.cancel()]
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.sleep(0)
        self._share.users.discard(self)
        ending = [*self.helpers.close(), *(() if self._share.users else _threads.leave(self._share))]
        # Nothing runs, so the threads end as soon as they wake up; joining them would block the loop.
        while any(thread.is_alive() for thread in ending):
            await asyncio.sleep(0)


_blas_lock = threading.Lock()
_blas_limit = 0


def limit_blas_threads(threads: int) -> None:
    """Set how many threads BLAS uses per call, in the whole process.

    A worker thread calls this when it starts, because finding the BLAS libraries takes milliseconds.
    """
    global _blas_limit
    with _blas_lock:
        if _blas_limit != threads:
            import threadpoolctl

            threadpoolctl.threadpool_limits(threads, user_api="blas")
            _blas_limit = threads


# The threads for kernels of all sessions.
_threads = SharedThreads(partial(limit_blas_threads, 1))


def _run_kernel(helpers: HelperThreads, in_thread: CallInThread, job: list[Any]) -> list[Any]:
    call, *args = job
    job.clear()  # the thread would keep the arguments for some time after the call
    began = perf_counter()
    with np.errstate(all="ignore"), helpers.for_kernel(), in_thread.running():
        return [call(*args), perf_counter() - began]


def any_thread_busy() -> bool:
    """True if any thread of the process makes a call, or is about to; a virtual clock must not jump meanwhile."""
    for pool in list(_busy_pools):
        if not pool.busy:
            _busy_pools.discard(pool)
    return bool(_calls) or bool(_busy_pools)


# Threads for long work, of which one works at a time.
_planners = ThreadPoolExecutor(32, thread_name_prefix="planner")


def end_idle_threads() -> None:
    """End the threads for long work when they are done; later work starts new ones."""
    global _planners
    ended, _planners = _planners, ThreadPoolExecutor(32, thread_name_prefix="planner")
    ended.shutdown()


async def run_in_turns(call: Callable[[], T], work: LongWork) -> T:
    """Return `call()`, called in a thread, in turns with other long work.

    Cancelling this calls the work off and waits for its end, which comes soon.

    Raises:
        CancelledError: the work was called off in another way.
    """
    try:
        return await _outcome(*_begin_call(_Call(work.do, (call,)), _planners), OnCancel.WAIT, work.call_off)
    except CalledOffError:
        raise errors.CancelledError("What was to be done is not wanted any more") from None


def start_in_turns(call: Callable[[], T], work: LongWork) -> Future[T]:
    """Like `run_in_turns`, for callers on any thread, without an event loop; the work goes on if nobody waits for it.

    The future has a CalledOffError if the work was called off.
    """
    return _planners.submit(work.do, call)


async def run_in_thread(call: Callable[..., T], *args: Any, on_cancel: OnCancel) -> T:
    """Return `call(*args)`, called in the event loop's own thread pool.

    For work that belongs to no session, or that waits (for a lock, a disk) and so must not occupy the threads of
    kernels.
    """
    one = _Call(call, args)
    abandon = one.abandon if on_cancel is OnCancel.ABANDON else lambda: None
    return await _outcome(*_begin_call(one), on_cancel, abandon)


class _Call(Generic[T]):
    """A call that can be withdrawn until it begins."""

    def __init__(self, call: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._call = call
        self._args = args
        self._claim = threading.Lock()  # taken by the call when it begins, or by `withdraw`, and never released
        self._in_thread = CallInThread()

    def abandon(self) -> None:
        """Note that nobody waits for the call any more; it ends when it next checks."""
        self._in_thread.abandon()

    def withdraw(self) -> bool:
        """Keep the call from beginning; return False if it has begun."""
        return self._claim.acquire(blocking=False)

    def __call__(self) -> T:
        if not self._claim.acquire(blocking=False):
            raise asyncio.CancelledError
        with self._in_thread.running():
            return self._call(*self._args)


def _begin_call(
    one: _Call[T], threads: ThreadPoolExecutor | None = None
) -> tuple[asyncio.Future[T], Callable[[], bool]]:
    _calls.add(one)
    waiter = asyncio.get_running_loop().run_in_executor(threads, one)
    waiter.add_done_callback(lambda _: _calls.discard(one))
    return waiter, one.withdraw


async def _outcome(
    waiter: asyncio.Future[T],
    withdraw: Callable[[], bool],
    on_cancel: OnCancel,
    call_off: Callable[[], object] = lambda: None,
) -> T:
    """Return the result of a call; if this is cancelled, call `call_off`."""
    try:
        return await asyncio.shield(waiter)
    except asyncio.CancelledError:
        call_off()
        waiter.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks an error as seen
        if not withdraw() and on_cancel is OnCancel.WAIT:
            await until_done(waiter)
        raise
    finally:
        del waiter, withdraw  # they may hold an error whose traceback refers to this frame


def _hand_over(job: Future[Any], waiter: asyncio.Future[Any]) -> None:
    """Complete a waiter with what a job of a pool came to."""
    if waiter.done():
        return
    if job.cancelled():  # by `WorkerPool.close`, if anybody still waits
        waiter.set_exception(errors.CancelledError("Session has been closed."))
        return
    error = job.exception()
    if error is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(job.result()[0])
