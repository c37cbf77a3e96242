"""`Batcher`: joins calls of several steps along their first dimension and runs them as one.

A batch runs when it is full or when its time is up.  One of its calls leads: it runs the joined inputs within its own
step and hands the others their rows.  The most urgent call leads, so that the batch waits for its turn no longer than
that call would alone.  If the leader's step is cancelled, another call takes the lead, so no call depends on another's
step.  A batch that fails may be halved and its halves run: then only the calls whose values are bad fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.errors import Code
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.cancellation import CancellationManager, wait
from aexec.framework.waiting.inline_call import NeedsThreadError, check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, OBJECT_NS

__all__ = ["Batcher"]

Arrays = tuple[Any, ...]
# Called with the joined inputs and the number of calls that they belong to.
Run = Callable[[Arrays, int], Awaitable[Sequence[Any]]]
# Calls a function in a worker thread.
InThread = Callable[[Callable[[], Arrays]], Awaitable[Arrays]]

# Codes of errors that the values of a single call may cause.
_OF_VALUES = frozenset(
    (
        Code.INVALID_ARGUMENT,
        Code.OUT_OF_RANGE,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.DATA_LOSS,
        Code.INTERNAL,
        Code.UNKNOWN,
    )
)


@dataclass(slots=True, eq=False)
class _Call:
    rows: int
    inputs: Arrays
    run: Run
    in_thread: InThread | None
    level: int
    # Completed with the outputs, or with None to take the lead.
    future: asyncio.Future[Arrays | None]
    batch: _Batch


@dataclass(slots=True, eq=False)
class _Retries:
    """The number of runs that the parts of one failed batch may still have, together."""

    left: int


@dataclass(slots=True, eq=False)
class _Batch:
    """Calls that are run together.

    Attributes:
        is_due: True if it is full, or its time is up.
        retries: of the failed batch that it is a part of; None for a batch that did not fail, which others may join.
    """

    calls: list[_Call] = field(default_factory=list)
    is_due: bool = False
    retries: _Retries | None = None

    @property
    def rows(self) -> int:
        return sum(call.rows for call in self.calls)


class Batcher:
    """Joins calls that are made on one event loop.

    Args:
        max_batch_size: most rows of a batch.
        timeout: seconds that a batch waits to be filled.
        max_waiting: most batches that wait.
        max_running: most batches that run at once.
        allowed_sizes: sizes in increasing order; a batch is padded to the next one.  Empty: no padding.
        max_retries: runs of the parts of a failed batch, together; 0 to give its error to all its calls.
        on_halved: called for each batch, or part of one, that failed and is tried again in halves.
    """

    def __init__(
        self,
        max_batch_size: int,
        timeout: float,
        max_waiting: int,
        max_running: int,
        allowed_sizes: Sequence[int] = (),
        *,
        max_retries: int = 0,
        on_halved: Callable[[], object] = lambda: None,
    ) -> None:
        self.max_batch_size = max_batch_size
        self.timeout = timeout
        self.max_waiting = max_waiting
        self.max_running = max_running
        self.allowed_sizes = tuple(allowed_sizes)
        self.max_retries = max_retries
        self._on_halved = on_halved
        self._waiting: deque[_Batch] = deque()
        self._running = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def due(self) -> int:
        """The number of batches that wait only because others run."""
        return sum(batch.is_due for batch in self._waiting)

    async def call(
        self,
        inputs: Arrays,
        run: Run,
        manager: CancellationManager | None,
        level: int = 0,
        in_thread: InThread | None = None,
    ) -> Arrays:
        """The outputs for these rows.

        Args:
            inputs: arrays with the same first dimension.
            run: computes outputs from joined inputs, within the caller's step.
            manager: cancels the call.
            level: the call's priority, lower is more urgent; the most urgent call of a batch leads it.
            in_thread: joins the inputs of a batch that this call leads, if that takes too long for the event loop; None
                to join them on the event loop.

        Raises:
            InvalidArgumentError: the inputs cannot be joined, or the outputs cannot be split.
            UnavailableError: too many batches wait.
            FailedPreconditionError: another event loop uses the batcher.
            CancelledError: cancelled; the other calls of the batch go on.
            BaseException: the error that `run` raised.
        """
        rows = _rows(inputs)
        if rows > self.max_batch_size:
            raise errors.InvalidArgumentError(f"Batch size ({rows}) exceeds maximum batch size ({self.max_batch_size})")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise errors.FailedPreconditionError("a batching queue cannot be used from two event loops")
        self._loop = loop
        call = self._enlist(_Call(rows, inputs, run, in_thread, level, loop.create_future(), self._open_batch(rows)))
        try:
            outputs = await wait(
                manager,
                call.future,
                "Batched call was cancelled",
                # A cancelled call may just have been given the lead, which goes to another, or outputs, which are
                # dropped.
                give_back=lambda outputs: self._appoint(call.batch, call) if outputs is None else None,
            )
        finally:
            if call.batch in self._waiting:  # cancelled before the batch began to run
                call.batch.calls.remove(call)
        return await self._lead(call.batch, call, manager) if outputs is None else outputs

    def _open_batch(self, rows: int) -> _Batch:
        """The batch to which `rows` rows are added; the one before it is due if it has no room for them."""
        batch = self._waiting[-1] if self._waiting else None
        if batch is not None and batch.retries is None and batch.rows + rows <= self.max_batch_size:
            return batch
        if len(self._waiting) >= self.max_waiting:
            raise errors.UnavailableError("The batch scheduling queue to which this task was submitted is full")
        if batch is not None:
            batch.is_due = True
        batch = _Batch()
        self._waiting.append(batch)
        asyncio.get_running_loop().call_later(self.timeout, self._time_is_up, batch)
        return batch

    def _enlist(self, call: _Call) -> _Call:
        batch = call.batch
        batch.calls.append(call)
        batch.is_due = batch.is_due or batch.rows == self.max_batch_size
        self._dispatch()
        return call

    def _time_is_up(self, batch: _Batch) -> None:
        batch.is_due = True
        self._dispatch()

    def _dispatch(self) -> None:
        """Start batches that are due, up to the number that may run."""
        while self._waiting and self._waiting[0].is_due and self._running < self.max_running:
            self._running += 1
            self._appoint(self._waiting.popleft())

    def _appoint(self, batch: _Batch, gone: _Call | None = None) -> None:
        """Let the most urgent call that is still awaited take the lead; without one the batch has ended."""
        calls = [call for call in batch.calls if call is not gone and not call.future.done()]
        batch.calls = sorted(calls, key=attrgetter("level"))
        if batch.calls:
            batch.calls[0].future.set_result(None)
            return
        self._running -= 1
        self._dispatch()

    async def _lead(self, batch: _Batch, leader: _Call, manager: CancellationManager | None) -> Arrays:
        while True:
            batch.calls = calls = [call for call in batch.calls if call is leader or not call.future.done()]
            try:
                joined = await self._join(calls, leader.in_thread)
                outputs = await leader.run(joined, len(calls))
            except BaseException as error:
                left = manager is not None and manager.cancel_requested
                if left or not isinstance(error, Exception):
                    self._appoint(batch, leader)
                    raise
                if self._halve(batch, leader, error):
                    continue
                self._fail(batch, leader, error)
                raise
            try:
                parts = _split(outputs, [call.rows for call in calls], len(joined[0]))
            except errors.InvalidArgumentError as error:
                self._fail(batch, leader, error)
                raise
            for call, part in zip(calls, parts, strict=True):
                if not call.future.done():
                    call.future.set_result(part)
            self._appoint(batch, leader)
            return parts[0]

    def _fail(self, batch: _Batch, leader: _Call, error: Exception) -> None:
        """Give the error to all calls of the batch but its leader, which raises it."""
        for call in batch.calls:
            if not call.future.done():
                call.future.set_exception(error.fresh() if isinstance(error, errors.OpError) else error)
        self._appoint(batch, leader)

    def _halve(self, batch: _Batch, leader: _Call, error: Exception) -> bool:
        """Leave half of a failed batch to its leader and run the rest next; False if the whole batch must fail."""
        calls = [call for call in batch.calls if call is leader or not call.future.done()]
        retries = batch.retries or _Retries(self.max_retries)
        if len(calls) < 2 or retries.left < 2:
            return False
        if not isinstance(error, errors.OpError) or error.code not in _OF_VALUES:
            return False
        retries.left -= 2
        middle = len(calls) // 2  # the leader is the first of them
        batch.calls, batch.retries = calls[:middle], retries
        rest = _Batch(calls[middle:], is_due=True, retries=retries)
        for call in rest.calls:
            call.batch = rest
        self._waiting.appendleft(rest)
        self._on_halved()
        return True

    async def _join(self, calls: Sequence[_Call], in_thread: InThread | None) -> Arrays:
        """The inputs of all calls, joined."""
        size = sum(call.rows for call in calls)

        def joined() -> Arrays:
            if in_thread is not None and len(calls) > 1:
                check_inline(sum([_copy_ns(array) for call in calls for array in call.inputs]))
            return tuple([self._joined(arrays, size) for arrays in zip(*[call.inputs for call in calls], strict=True)])

        try:
            return joined()
        except NeedsThreadError:
            assert in_thread is not None
        return await in_thread(joined)

    def _joined(self, arrays: Sequence[Any], size: int) -> Any:
        """The arrays joined, padded with copies of the first row to the next allowed size."""
        padding = next((allowed for allowed in self.allowed_sizes if allowed >= size), size) - size
        if padding:
            first = next((array[:1] for array in arrays if len(array)), None)
            arrays = [*arrays, *([first] * padding if first is not None else ())]
        if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
            raise errors.InvalidArgumentError("Dimensions of inputs should match, beside the first one")
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _copy_ns(array: Any) -> float:
    """Estimated nanoseconds to copy an array."""
    return float(COPY_NS * array.nbytes + (OBJECT_NS * array.size if array.dtype.hasobject else 0))


def _rows(inputs: Arrays) -> int:
    for array in inputs:
        if not np.ndim(array):
            raise errors.InvalidArgumentError("Batching input tensors must have at least one dimension")
        if len(array) != len(inputs[0]):
            raise errors.InvalidArgumentError(
                "Batching input tensors supplied in a given op invocation must have equal 0th-dimension size"
            )
    return len(inputs[0])


def _split(outputs: Sequence[Any], rows: Sequence[int], total: int) -> list[Arrays]:
    """The rows of each call, without padding."""
    for output in outputs:
        if not np.ndim(output):
            raise errors.InvalidArgumentError("Batched output tensor has 0 dimensions")
        if len(output) != total:
            raise errors.InvalidArgumentError(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes "
                "of the input tensors"
            )
    parts, start = [], 0
    for count in rows:
        parts.append(tuple(output[start : start + count] for output in outputs))
        start += count
    return parts
