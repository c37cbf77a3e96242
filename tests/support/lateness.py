"""How late a ticking task on the loop is while a worker thread computes.

Used by the benchmark `scripts/bench hold` and by the tests that hold kernels to it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from aexec.runtime.threads.worker_pool import WorkerPool

__all__ = ["lateness"]

_TICK = 1e-3


async def lateness(pool: WorkerPool, call: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a task was late at worst while a worker made the call, and that the call took.

    The task wakes up every millisecond.  Time in which the worker did not run either is the machine's, not the
    call's, and does not count.
    """
    clock: list[int] = []

    def in_worker() -> object:
        clock.append(time.pthread_getcpuclockid(threading.get_ident()))
        return call()

    began, worst = time.perf_counter(), 0.0
    work = asyncio.ensure_future(pool.run(in_worker))
    while not work.done():
        asked, ran = time.perf_counter(), time.clock_gettime(clock[0]) if clock else 0.0
        await asyncio.sleep(_TICK)
        late = time.perf_counter() - asked - _TICK
        if clock:
            worst = max(worst, min(late, time.clock_gettime(clock[0]) - ran))
    took = time.perf_counter() - began
    await work  # The result is let go of here, after the time that counts.
    return worst, took
