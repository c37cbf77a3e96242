"""`BatchedCallable`: joins concurrent calls of one callable along their first dimension.

Each call is a `BatchedStep`, which is awaited and cancelled like a `Step`.  One call of a batch, the leader, runs the
joined inputs.  If the leader is cancelled while they run, another call of the batch runs them again, so the calls do
not depend on each other.  Next to read: `aexec/resources/batcher.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.cancellation import CancellationManager, register_cancellation_callback
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.resources.batcher import Batcher
from aexec.runtime.config import RunOptions
from aexec.runtime.session.callable import SessionCallable
from aexec.runtime.session.step import Step
from aexec.runtime.session.step_view import StepState, StepStatistics
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["BatchTurn", "BatchedCallable", "BatchedStep", "can_be_batched"]

# At most this many batches of different shapes are collected at a time; calls of other shapes run alone.
_MAX_SHAPES = 64
_MAX_WAITING = 10_000
# Retries with parts of one failed batch: enough to find each bad call among 32.
_MAX_RETRIES = 64
# Weight of the latest batch in the moving average of a batch's duration.
_WEIGHT = 0.25

# Callback(rows, nanoseconds) after each batch.
OnBatch = Callable[[int, int], object]


def can_be_batched(shape: PartialTensorShape) -> bool:
    """True if a tensor of this shape may have any number of rows."""
    return shape.dims is None or bool(shape.dims and shape.dims[0] is None)


class BatchTurn(Protocol):
    """Decides when a batch may begin to run; see `BatchedCallable.prepare`.

    Attributes:
        level: the priority of the call, lower is more urgent.  The most urgent call of a batch leads it.
    """

    level: int

    def take(self, calls: int) -> bool:
        """Return True, and take the turn, if a batch of `calls` calls may begin now."""
        ...

    async def wait(self) -> None:
        """Wait until the batch may begin.

        Raises:
            OpError: the batch may not run.  Cancelling this coroutine gives up the place in line.
        """
        ...


class BatchedCallable:
    """Joins concurrent calls of one callable into one step, along their first dimension.

    Args:
        call: the callable; its inputs and outputs have the same number of rows.
        max_rows: most rows of a batch; a call with more rows runs alone.
        max_delay: most seconds that a batch waits to be filled.
        max_running: most batches that run at once.
        sizes: sizes in increasing order; a batch is padded to the next one with copies of a row.  Empty: no padding.
        on_batch: called after each batch with its rows and its nanoseconds.
        retries: halve a batch that failed and run the halves.  Only for a callable that changes no state.
        on_halved: called each time a failed batch is halved.
    """

    def __init__(
        self,
        call: SessionCallable,
        max_rows: int,
        max_delay: float,
        *,
        max_running: int = 1,
        sizes: Sequence[int] = (),
        on_batch: OnBatch | None = None,
        retries: bool = False,
        on_halved: Callable[[], object] = lambda: None,
    ) -> None:
        self.call = call
        self._on_batch = on_batch
        self._limits = max_rows, max_delay, _MAX_WAITING, max_running, tuple(sizes)
        self._max_retries = _MAX_RETRIES if retries else 0
        self._on_halved = on_halved
        self._batchers: dict[tuple[Any, ...], Batcher] = {}  # key: the shapes of a row of each input
        self._seconds = 0.0  # average duration of a batch; 0.0 until one has run

    def prepare(self, *values: Any, options: RunOptions | None = None, turn: BatchTurn | None = None) -> BatchedStep:
        """Like `SessionCallable.prepare`; of `options` only the timeout is used.

        Args:
            turn: asked before the batch that this call leads is run; None to run it at once.
        """
        return BatchedStep(self, values, None if options is None else options.timeout, turn)

    @property
    def backlog_seconds(self) -> float:
        """Estimated seconds until all batches that wait only because others run have ended."""
        due = sum(batcher.due for batcher in self._batchers.values())
        return due * self._seconds / self._limits[3]

    def count(self, rows: int, ns: int) -> None:
        """Record that a batch of `rows` rows took `ns` nanoseconds."""
        seconds = ns * 1e-9
        self._seconds += (seconds - self._seconds) * (_WEIGHT if self._seconds else 1.0)
        if self._on_batch is not None:
            self._on_batch(rows, ns)

    def batcher(self, inputs: Sequence[Any]) -> Batcher | None:
        """The batcher for inputs of these shapes; None if the call must run alone."""
        if len(inputs[0]) > self._limits[0]:
            return None
        shapes = tuple([array.shape[1:] for array in inputs])
        batcher = self._batchers.get(shapes)
        if batcher is None and len(self._batchers) < _MAX_SHAPES:
            batcher = self._batchers[shapes] = Batcher(
                *self._limits, max_retries=self._max_retries, on_halved=self._on_halved
            )
        return batcher


class BatchedStep:
    """A call that may become part of a batch.

    Attributes:
        id: id of the step that runs the call; 0 before there is one.
        state: the call's state.
        metadata: None, since the metadata of a batch belongs to no single call.
    """

    metadata = None

    def __init__(
        self, owner: BatchedCallable, values: Sequence[Any], timeout: float | None, turn: BatchTurn | None
    ) -> None:
        self._owner = owner
        self._values = values
        self._timeout = timeout
        self._turn = turn
        self._manager = CancellationManager()
        self._step: Step | None = None
        self._began = time.perf_counter()
        self.state = StepState.PENDING

    @property
    def id(self) -> int:
        return 0 if self._step is None else self._step.id

    def cancel(self, reason: str = "") -> bool:
        """Cancel the call; True if this request is what cancels it.  The rest of its batch goes on."""
        if self.state not in (StepState.PENDING, StepState.RUNNING):
            return False
        return self._manager.start_cancel_with_status(
            errors.CancelledError("The call was cancelled" + (f": {reason}" if reason else ""))
        )

    def statistics(self) -> StepStatistics:
        """Statistics of the step that runs the call; zeros while the call waits for its batch."""
        if self._step is not None:
            return self._step.statistics()
        return StepStatistics(self.state, 0, 0, 0, time.perf_counter() - self._began)

    @property
    def only_waits(self) -> bool:
        """Like `Step.only_waits`; True also while the call waits for its batch."""
        return self._step is None or self._step.only_waits

    async def run(self) -> list[Any]:
        """Execute the call, once; return the fetched values.  Raises as `Step.run` does."""
        self.state = StepState.RUNNING
        timer = None
        if self._timeout is not None:
            timer = asyncio.get_running_loop().call_later(self._timeout, self._deadline_passed)
        try:
            with self._manager:
                outputs = await self._outputs()
        except BaseException as error:
            self.state = StepState.CANCELLED if self._manager.cancel_requested else StepState.FAILED
            status = self._manager.status
            if isinstance(error, errors.OpError) and status is not None:
                raise status from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
        self.state = StepState.SUCCEEDED
        return outputs

    def _deadline_passed(self) -> None:
        self._manager.start_cancel_with_status(errors.DeadlineExceededError("Timed out waiting for notification"))

    async def _outputs(self) -> list[Any]:
        inputs = await self._inputs()
        batcher = self._owner.batcher(inputs)
        if batcher is None:
            return list(await self._execute(inputs, 1))
        level = 0 if self._turn is None else self._turn.level
        return list(await batcher.call(inputs, self._execute, self._manager, level, _in_thread))

    async def _inputs(self) -> tuple[Any, ...]:
        """The fed values as arrays with equal numbers of rows."""
        specs = self._owner.call.specs

        def convert() -> tuple[Any, ...]:
            return tuple([spec.convert(value) for spec, value in zip(specs, self._values, strict=True)])

        try:
            inputs = convert()
        except NeedsThreadError:
            inputs = await run_in_thread(convert, on_cancel=OnCancel.ABANDON)
        for spec, array in zip(specs, inputs, strict=True):
            if not np.ndim(array) or len(array) != len(inputs[0]):
                raise errors.InvalidArgumentError(
                    f"{spec.name} has shape {np.shape(array)}: inputs of calls that are batched have equally many rows"
                )
        return inputs

    async def _execute(self, joined: Sequence[Any], calls: int) -> Sequence[Any]:
        if self._turn is not None and not self._turn.take(calls):
            await self._wait_for(self._turn)
        step = self._step = self._owner.call.prepare(*joined)
        release = register_cancellation_callback(self._manager, step.cancel)
        began = time.perf_counter_ns()
        try:
            values: Sequence[Any] = await step.run()
        finally:
            release()
        self._owner.count(len(joined[0]), time.perf_counter_ns() - began)
        return values

    async def _wait_for(self, turn: BatchTurn) -> None:
        """Wait for `turn`.  Raises CancelledError if this call is cancelled meanwhile; another call then leads the
        batch.
        """
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(turn.wait(), name="batch in line")
        release: Callable[[], object] = waiting.cancel  # if the call is cancelled already
        try:
            release = register_cancellation_callback(self._manager, lambda: loop.call_soon_threadsafe(waiting.cancel))
            await waiting
        except asyncio.CancelledError:
            if self._manager.cancel_requested and waiting.cancelled():
                raise errors.CancelledError("The call was cancelled") from None
            raise
        finally:
            release()


async def _in_thread(call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    return await run_in_thread(call, on_cancel=OnCancel.ABANDON)
