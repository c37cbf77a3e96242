"""`ThreadPools`: the pools of worker threads of a session; each run uses one.

Most sessions have one pool.  `SessionConfig.thread_pools` asks for several, so that runs of one kind leave threads to
others.  All sessions of a process that name the same pool share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from aexec.framework import errors
from aexec.runtime.config import ThreadPool
from aexec.runtime.threads.shared_threads import ThreadShare
from aexec.runtime.threads.worker_pool import WorkerPool, WorkerPoolStatistics

__all__ = ["ThreadPools"]

# The most pools of a session.
_MOST = 64
# Pools by name, as long as a session uses them.
_named: WeakValueDictionary[str, ThreadShare] = WeakValueDictionary()


class ThreadPools:
    """The pools of worker threads of one session; each run uses one of them.

    Args:
        wanted: the pools; if empty, the session has one of its own.
        inter_op_threads, intra_op_threads: numbers of threads of pools that do not give their own; 0 for the default.

    Raises:
        InvalidArgumentError: a negative number of threads, too many pools, or one that was named with other threads.

    Attributes:
        first: the pool of runs that name none, and of the session's other work in threads.
    """

    def __init__(self, wanted: Sequence[ThreadPool], inter_op_threads: int, intra_op_threads: int) -> None:
        if len(wanted) > _MOST:
            raise errors.InvalidArgumentError(f"A session may have {_MOST} thread pools, got {len(wanted)}")
        self._pools = [
            WorkerPool(pool.threads or inter_op_threads, intra_op_threads, _named_share(pool, inter_op_threads))
            for pool in wanted or (ThreadPool(),)
        ]
        self.first = self._pools[0]

    def of_run(self, index: int) -> WorkerPool:
        """The pool of a run with this `RunOptions.thread_pool`; -1 is the first.  Raises InvalidArgumentError."""
        if not -1 <= index < len(self._pools):
            raise errors.InvalidArgumentError(
                f"Invalid inter_op_thread_pool: {index}.  The session has {len(self._pools)}, from 0 on"
            )
        return self._pools[max(index, 0)]

    def statistics(self) -> WorkerPoolStatistics:
        """The statistics of all pools together."""
        each = [pool.statistics() for pool in self._pools]
        if len(each) == 1:
            return each[0]
        return WorkerPoolStatistics(
            sum(one.workers for one in each),
            each[0].intra_op_threads,
            sum(one.outstanding for one in each),
            sum(one.submitted for one in each),
        )

    async def close(self) -> None:
        """Wait until nothing runs, and end the threads."""
        for pool in self._pools:
            await pool.close()


def _named_share(pool: ThreadPool, inter_op_threads: int) -> ThreadShare | None:
    """The thread share of a named pool; None for a pool without a name."""
    if pool.threads < 0:
        raise errors.InvalidArgumentError(f"A thread pool cannot have {pool.threads} threads")
    if not pool.name:
        return None
    workers = WorkerPool.workers_of(pool.threads or inter_op_threads)
    share = _named.setdefault(pool.name, ThreadShare(workers))
    if share.workers != workers:
        raise errors.InvalidArgumentError(
            f"Pool {pool.name} configured previously with num_threads={share.workers}; "
            f"cannot re-configure with num_threads={workers}"
        )
    return share
