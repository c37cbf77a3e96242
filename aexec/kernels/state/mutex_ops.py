"""A mutex in a graph: MutexLock waits for it, and its output holds it until the last reference is gone.

The lock is a variant.  It is passed to all nodes that must run under it, as an input or by a control edge from
ConsumeMutexLock.  The mutex is free again when no reference to the lock is left: at the latest at the end of the step,
unless it was fetched.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.state.resource_manager import ContainerInfo, ResourceHandle, handle_from_tensor, make_handle_tensor
from aexec.framework.waiting.futures import complete_on_loop

__all__ = ["Mutex", "MutexLock"]


class MutexLock:
    """A held mutex; it is released when this object is deleted."""

    __slots__ = ("__weakref__", "_mutex")

    def __init__(self, mutex: Mutex) -> None:
        self._mutex = mutex

    def __del__(self) -> None:
        if hasattr(self, "_mutex"):
            self._mutex.release()

    def __repr__(self) -> str:
        return f"<MutexLock of {self._mutex!r}>"


class Mutex:
    """Held by one holder at a time; waiters get it in order of arrival."""

    __slots__ = ("__weakref__", "_held", "_lock", "_waiting")

    def __init__(self) -> None:
        # Reentrant: a lock object may be collected, and so released, while this thread holds it.
        self._lock = threading.RLock()
        self._held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> MutexLock:
        """Wait for the mutex; return its lock.  A cancelled waiter does not hold it."""
        with self._lock:
            if not self._held:
                self._held = True
                return MutexLock(self)
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            with self._lock:
                waiting = future in self._waiting
                if waiting:
                    self._waiting.remove(future)
            if not waiting and future.done() and not future.cancelled():
                self.release()  # it was handed over just before the cancellation
            raise
        return MutexLock(self)

    def release(self) -> None:
        """Hand it over to the longest waiter.  Safe to call from any thread."""
        with self._lock:
            if not self._waiting:
                self._held = False
                return
            future = self._waiting.popleft()
        complete_on_loop(future, lambda waiter: waiter.set_result(None), self.release)

    def __repr__(self) -> str:
        return f"<Mutex {'held' if self._held else 'free'}, {len(self._waiting)} waiting>"


@kernel("MutexV2", host_memory=("resource",), cost=0)
@kernel("MutexV2", device="DEFAULT", cost=0)
def mutex(c: OpKernelConstruction) -> Compute:
    """Return a handle to a mutex, which the first step that uses the node makes."""
    info = ContainerInfo.from_attrs(c.attrs, c.name, use_node_name=True)
    handle = make_handle_tensor(ResourceHandle.of_type(Mutex, info, c.device))
    c.need_context()

    def compute(context: OpKernelContext) -> Any:
        context.resources.lookup_or_create(info.container, info.name, Mutex, Mutex)
        return handle

    return compute


@kernel("MutexLock", cost=0)
@kernel("MutexLock", device="DEFAULT", host_memory=("mutex", "mutex_lock"), cost=0)
def mutex_lock(c: OpKernelConstruction) -> Compute:
    """Wait until nothing else holds the mutex."""
    c.need_context()

    async def compute(context: OpKernelContext, handle: Any) -> Any:
        found = context.resources.lookup_handle(handle_from_tensor(handle), Mutex)
        out = np.empty((), object)
        out[()] = await found.acquire()
        return out

    return compute


@kernel("ConsumeMutexLock", cost=0)
@kernel("ConsumeMutexLock", device="DEFAULT", host_memory=("mutex_lock",), cost=0)
def consume_mutex_lock(c: OpKernelConstruction) -> Compute:
    """Takes a lock and does nothing: nodes with a control edge to this one run while the mutex is held."""

    def compute(lock: Any) -> None:
        item = lock.item() if lock.size == 1 else None
        if type(item) is not MutexLock:
            raise errors.InvalidArgumentError(
                f"Expected input to contain a SharedLockReleaser variant, but saw variant: '{type(item).__name__}'"
            )

    return compute
