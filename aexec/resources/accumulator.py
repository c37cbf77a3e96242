"""Conditional accumulators: sum the gradients of many workers, which are taken when enough have come.

A gradient computed from variables of an older step than the accumulator's is stale and dropped.  Taking waits for
enough gradients; waiting calls are served in order of arrival.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.shape import PartialTensorShape, shape_text
from aexec.framework.waiting.cancellation import CancellationManager, wait
from aexec.framework.waiting.futures import complete_on_loop
from aexec.framework.waiting.inline_call import PostponedError
from aexec.framework.waiting.loop_budget import COPY_NS, current_budget
from aexec.framework.waiting.postponing_lock import PostponingLock
from aexec.framework.waiting.worker_threads import WorkerThreads

__all__ = ["Accumulator", "ConditionalAccumulator", "SparseAccumulator", "SparseGradient"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class SparseGradient:
    """Rows of a gradient: `values[i]` is row `indices[i]`; `counts[i]` is the number of gradients with that row."""

    indices: Any
    values: Any
    counts: Any


class Accumulator(Generic[S]):
    """The common part of dense and sparse accumulators; S is the type of their sums.

    A worker thread may hold the lock for long while it adds a gradient, so an event loop never waits for it: adding is
    postponed there, and the thread that releases the lock serves the waiting takers.

    Attributes:
        dtype, shape: of the gradients; the first gradient fills in unknown parts of the shape.
        is_mean: True if the mean of the gradients is taken, False for the sum.
        step: gradients of older steps are dropped; incremented each time the sum is taken.
        count: number of gradients in the sum.
        kept: counts the bytes of the sum, or None.
    """

    def __init__(self, dtype: DType, shape: PartialTensorShape, *, is_mean: bool) -> None:
        self.dtype = dtype
        self.shape = shape
        self.is_mean = is_mean
        self.step = 0
        self.count = 0
        self.kept: KeptMemory | None = None
        self._sum: S | None = None
        self._lock = PostponingLock()
        self._waiting_lock = threading.Lock()
        self._waiting: deque[tuple[int, asyncio.Future[tuple[S, int]]]] = deque()

    def apply(self, step: int, gradient: S, check: Callable[[], None]) -> None:
        """Add a gradient.  A stale one is dropped without being checked.

        Args:
            check: raises InvalidArgumentError unless the gradient may be added now.

        Raises:
            ResourceExhaustedError: the session's limit does not allow the sum.
        """
        try:
            with self._lock:
                if step >= self.step:
                    check()
                    self._hold(self._bytes_of_sum() + self._num_bytes(gradient))
                    try:
                        self._sum = self._begun(gradient) if self._sum is None else self._added(self._sum, gradient)
                    finally:
                        self._hold(self._bytes_of_sum())
                    self.count += 1
        finally:
            self._serve()

    async def take(self, count: int, manager: CancellationManager | None, pool: WorkerThreads | None = None) -> S:
        """Take the sum or mean, once it has at least `count` gradients.

        Args:
            manager: cancels the wait.
            pool: the threads in which large sums are divided.

        Raises:
            InvalidArgumentError: the count is not positive.
            CancelledError: cancelled while waiting.
        """
        if count <= 0:
            raise errors.InvalidArgumentError(f"Argument num_required must be positive, but was {count}")
        future: asyncio.Future[tuple[S, int]] = asyncio.get_running_loop().create_future()
        with self._waiting_lock:
            self._waiting.append((count, future))
        self._serve()
        try:
            total, added = await wait(manager, future, "TakeGrad operation was cancelled", give_back=self._put_back)
        finally:
            self._serve()
            del future  # it may hold an error, whose traceback holds this frame
        if not self.is_mean:
            return total
        # The sum is read, divided and written.
        if pool is None or current_budget().allows(2 * COPY_NS * self._num_bytes(total)):
            return self._mean(total, added)
        try:
            mean: S = await pool.run(self._mean, total, added)
        except asyncio.CancelledError:
            self._put_back((total, added))
            raise
        return mean

    def _serve(self) -> None:
        """Serve the waiting takers.  Whoever has released the lock calls it, for those that came meanwhile."""
        while self._wanted() <= self.count:
            try:
                with self._lock:
                    self._serve_first()
            except PostponedError:
                return  # the holder of the lock serves when it releases it

    def _serve_first(self) -> None:
        with self._waiting_lock:
            if not self._waiting or self._waiting[0][0] > self.count or self._sum is None:
                return
            _, future = self._waiting.popleft()
            if future.done():
                return
        taken = self._sum, self.count
        self._sum, self.count = None, 0
        self._hold(0)
        self.step += 1
        complete_on_loop(future, lambda future: future.set_result(taken), lambda: self._put_back(taken))

    def _wanted(self) -> float:
        """The number of gradients that the first waiting taker needs; infinity if none waits."""
        with self._waiting_lock:
            while self._waiting and self._waiting[0][1].done():
                self._waiting.popleft()
            return self._waiting[0][0] if self._waiting else float("inf")

    def _put_back(self, taken: tuple[S, int]) -> None:
        """Put a sum back whose taker has gone."""
        total, count = taken
        try:
            with self._lock:
                self._sum = total if self._sum is None else self._added(total, self._sum)
                self.count += count
                self.step -= 1
        except PostponedError as postponed:
            postponed.when_ready(lambda: self._put_back(taken))
            return
        self._serve()

    def _bytes_of_sum(self) -> int:
        return 0 if self._sum is None else self._num_bytes(self._sum)

    def _hold(self, num_bytes: int) -> None:
        if self.kept is not None:
            self.kept.hold(self, num_bytes)

    def _begun(self, gradient: S) -> S:
        """A sum of one gradient: a copy, since others hold the gradient's arrays."""
        raise NotImplementedError

    def _added(self, total: S, gradient: S) -> S:
        """The sum of two; `total` belongs to the accumulator and may be written to."""
        raise NotImplementedError

    def _mean(self, total: S, count: int) -> S:
        """The sum divided by the number of its gradients; the sum is not changed."""
        raise NotImplementedError

    def _num_bytes(self, total: S) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.dtype} {self.shape}, {self.count} gradients, step {self.step}>"


class ConditionalAccumulator(Accumulator[Any]):
    """Accumulates arrays."""

    def add(self, step: int, gradient: Any) -> None:
        """Add an array; a stale one is dropped.  Raises InvalidArgumentError if its shape differs from that of the
        others.
        """
        self.apply(step, gradient, lambda: self._check(gradient))

    def _check(self, gradient: Any) -> None:
        if self._sum is not None:
            _check_same(self._sum, gradient)
        elif not self.shape.is_compatible_with(gradient.shape):
            raise _mismatch(f"expected {self.shape}, got {shape_text(gradient.shape)}")

    def _begun(self, gradient: Any) -> Any:
        return np.array(gradient)

    def _added(self, total: Any, gradient: Any) -> Any:
        _check_same(total, gradient)
        return np.add(total, gradient, out=total)

    def _mean(self, total: Any, count: int) -> Any:
        return np.divide(total, self.dtype.np.type(count))

    def _num_bytes(self, total: Any) -> int:
        return int(total.nbytes)


class SparseAccumulator(Accumulator[SparseGradient]):
    """Accumulates rows of arrays."""

    def add(self, step: int, indices: Any, values: Any, shape: Any | None) -> None:
        """Add rows; stale ones are dropped.

        Args:
            step: of the variables that the gradient was computed from.
            indices: vector of row numbers.
            values: array [len(indices), ...].
            shape: shape of the whole gradient, if known.

        Raises:
            InvalidArgumentError: the arrays do not fit each other, the accumulator's shape, or earlier gradients.
        """
        counts = np.ones(indices.size, np.int64)
        self.apply(step, SparseGradient(indices, values, counts), lambda: self._check(indices, values, shape))

    def whole_shape(self, values: Any) -> Any:
        """The shape of the gradient to which taken rows belong; -1 for an unknown size."""
        first = self.shape.dims[0] if self.shape.dims else None
        return np.array([-1 if first is None else first, *values.shape[1:]], np.int64)

    def _check(self, indices: Any, values: Any, shape: Any | None) -> None:
        if indices.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input indices should be vector but received shape: {shape_text(indices.shape)}"
            )
        if values.ndim == 0:
            raise errors.InvalidArgumentError("Values cannot be 0-dimensional.")
        if len(indices) != len(values):
            raise errors.InvalidArgumentError(f"Expected {len(indices)} non-empty input values, got {len(values)}")
        dims = self.shape.dims or ()
        if shape is not None:
            _check_dims("shape", shape.ravel().tolist(), dims, first=0)
        if dims and dims[0] is not None:
            beyond = np.flatnonzero(indices >= dims[0])
            if beyond.size:
                raise _mismatch(
                    f"index of slice {beyond[0]} exceeded limits of shape; "
                    f"index is {indices[beyond[0]]} exceeded {dims[0]}"
                )
        if self._sum is None:
            _check_dims("values", values.shape, dims, first=1)
        else:
            _check_rows(self._sum.values, values)

    def _begun(self, gradient: SparseGradient) -> SparseGradient:
        return SparseGradient(np.array(gradient.indices), np.array(gradient.values), gradient.counts)

    def _num_bytes(self, total: SparseGradient) -> int:
        return int(total.values.nbytes + total.indices.nbytes + total.counts.nbytes)

    def _added(self, total: SparseGradient, gradient: SparseGradient) -> SparseGradient:
        _check_rows(total.values, gradient.values)
        indices = np.concatenate((total.indices, gradient.indices))
        if not indices.size:
            return total
        order = np.argsort(indices, kind="stable")
        indices = indices[order]
        starts = np.flatnonzero(np.concatenate(([True], indices[1:] != indices[:-1])))
        values = np.concatenate((total.values, gradient.values))[order]
        counts = np.concatenate((total.counts, gradient.counts))[order]
        return SparseGradient(indices[starts], np.add.reduceat(values, starts), np.add.reduceat(counts, starts))

    def _mean(self, total: SparseGradient, count: int) -> SparseGradient:
        """Each row divided by the number of gradients with that row."""
        counts = total.counts.astype(self.dtype.np).reshape(-1, *[1] * (total.values.ndim - 1))
        return SparseGradient(total.indices, total.values / counts, total.counts)


def _check_same(total: Any, gradient: Any) -> None:
    if total.shape != gradient.shape:
        raise _mismatch(f"expected {shape_text(total.shape)}, got {shape_text(gradient.shape)}")


def _check_rows(total: Any, values: Any) -> None:
    if total.ndim != values.ndim:
        raise _mismatch(f"expected values rank {total.ndim}, got {values.ndim}")
    _check_dims("values", values.shape, total.shape, first=1)


def _check_dims(what: str, dims: Any, declared: Any, first: int) -> None:
    if len(dims) < len(declared):
        raise _mismatch(f"expected {what} rank at least {len(declared)}, got {len(dims)}")
    for axis in range(first, len(declared)):
        if declared[axis] not in (None, dims[axis]):
            raise _mismatch(f"expected {what} dim {axis} to be {declared[axis]}, got {dims[axis]}")


def _mismatch(words: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"Shape mismatch: {words}")
