"""Worker threads for kernels that would hold up the event loop.

NumPy and BLAS release the GIL in such kernels.  Workers times BLAS threads stay
within the cores: BLAS is told so through threadpoolctl when the first kernel is
offloaded, because limits are process-wide.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

__all__ = ["WorkerPool", "WorkerPoolStatistics", "default_threads"]

T = TypeVar("T")


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class WorkerPoolStatistics:
    """Workers, BLAS threads each may use, jobs running or queued, jobs ever submitted."""

    workers: int
    blas_threads: int
    outstanding: int
    submitted: int


def default_threads() -> tuple[int, int]:
    """(workers, BLAS threads per worker): on few cores many workers, on many cores about the root of each.

    At least two workers where there are two cores, so that an abandoned kernel does not
    keep the next step waiting.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores, max(2, math.isqrt(cores)))
    return workers, max(1, cores // workers)


class WorkerPool:
    """Runs kernels in threads and reports each end on the event loop.

    Args:
        workers: number of threads; 0 for the default.
        blas_threads: BLAS threads per kernel; 0 for the default.
    """

    def __init__(self, workers: int = 0, blas_threads: int = 0) -> None:
        default_workers, default_blas = default_threads()
        self._workers = workers or default_workers
        self._blas_threads = blas_threads or default_blas
        self._executor: ThreadPoolExecutor | None = None
        self._outstanding: set[Future[Any]] = set()
        self._submitted = 0
        _pools.add(self)

    @property
    def busy(self) -> bool:
        """Is any kernel running or queued?"""
        return bool(self._outstanding)

    @classmethod
    def any_busy(cls) -> bool:
        """Is any pool of the process busy?  A virtual clock must not jump meanwhile."""
        return any(pool.busy for pool in _pools)

    def statistics(self) -> WorkerPoolStatistics:
        return WorkerPoolStatistics(self._workers, self._blas_threads, len(self._outstanding), self._submitted)

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        done: Callable[[Future[Any]], None],
    ) -> Future[Any]:
        """Run `call(*args)` in a thread; `done(future)` is called on the loop, unless it has closed.

        The future's result is a list of what the call returned and the seconds that it ran.  Who empties
        the list is the only one to have them: the thread lets go of its future only some time later.
        The future may be cancelled while it is queued; `done` is called then too.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._workers,
                thread_name_prefix="aexec-worker",
                initializer=limit_blas_threads,
                initargs=(self._blas_threads,),
            )
        future = self._executor.submit(_run_kernel, call, args)
        self._submitted += 1
        self._outstanding.add(future)

        def on_loop() -> None:
            self._outstanding.discard(future)
            done(future)

        def in_thread(_: Future[Any]) -> None:
            try:
                loop.call_soon_threadsafe(on_loop)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._outstanding.discard(future)

        future.add_done_callback(in_thread)
        return future

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """What `call(*args)` returns, called in a thread.  Cancelled meanwhile, its result is dropped."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def done(_: Future[Any]) -> None:
            if not waiter.done():
                waiter.set_result(None)

        future = self.submit(loop, call, args, done)
        try:
            await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise
        result: T = future.result()[0]
        return result

    async def close(self) -> None:
        """Wait until nothing runs, and end the threads."""
        while self._outstanding:
            waiting = [asyncio.wrap_future(f) for f in self._outstanding if not f.cancel()]
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.sleep(0)
        if self._executor is not None:
            executor, self._executor = self._executor, None
            executor.shutdown(wait=False)
            # Nothing runs, so the threads end as soon as they wake up; joining them would block the loop.
            while any(thread.is_alive() for thread in executor._threads):
                await asyncio.sleep(0)


_blas_lock = threading.Lock()
_blas_limit = 0


def limit_blas_threads(threads: int) -> None:
    """Let BLAS use so many threads per call.  The limit is the process's; the last one set holds.

    Called by a worker as its first act, not by the loop: looking for the BLAS libraries takes milliseconds.
    """
    global _blas_limit
    with _blas_lock:
        if _blas_limit != threads:
            import threadpoolctl

            threadpoolctl.threadpool_limits(threads, user_api="blas")
            _blas_limit = threads


def _run_kernel(call: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    began = perf_counter()
    with np.errstate(all="ignore"):
        return [call(*args), perf_counter() - began]
