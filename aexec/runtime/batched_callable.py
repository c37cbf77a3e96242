"""`BatchedCallable`: calls of one callable that come close together are joined along their first dimension.

Each call is a `BatchedStep`, which looks like a `Step` to whoever awaits or cancels it.  One of a batch runs the joined
inputs; if it is cancelled meanwhile, another does so again, so nobody depends on somebody else.  Next to read:
`aexec/resources/batcher.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable as AnyCallable
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.cancellation import CancellationManager, register_cancellation_callback
from aexec.framework.inline_call import NeedsThreadError
from aexec.framework.shape import PartialTensorShape
from aexec.resources.batcher import Batcher
from aexec.runtime.callable import Callable
from aexec.runtime.config import RunOptions
from aexec.runtime.step import Step, StepState, StepStatistics
from aexec.runtime.worker_pool import OnCancel, run_in_thread

__all__ = ["BatchedCallable", "BatchedStep", "can_be_batched"]

# Batches of so many different shapes may be in the making; calls of other shapes are run alone.
_MAX_SHAPES = 64
_MAX_WAITING = 10_000

# Told of each batch that was run: rows, and nanoseconds.
OnBatch = AnyCallable[[int, int], object]


def can_be_batched(shape: PartialTensorShape) -> bool:
    """May something of this shape have any number of rows?"""
    return shape.dims is None or bool(shape.dims and shape.dims[0] is None)


class BatchedCallable:
    """See the module's head.

    Args:
        call: takes and gives tensors with as many rows each.
        max_rows: of a batch; a call with more is run alone.
        max_delay: seconds that a batch waits to be filled.
        max_running: batches that may run at once.
        sizes: increasing sizes, to the next of which batches are padded with copies of a row; empty for none.
        on_batch: told of each batch.
    """

    def __init__(
        self,
        call: Callable,
        max_rows: int,
        max_delay: float,
        *,
        max_running: int = 1,
        sizes: Sequence[int] = (),
        on_batch: OnBatch | None = None,
    ) -> None:
        self.call = call
        self.on_batch = on_batch
        self._limits = max_rows, max_delay, _MAX_WAITING, max_running, tuple(sizes)
        self._batchers: dict[tuple[Any, ...], Batcher] = {}  # by what joined calls have in common

    def prepare(self, *values: Any, options: RunOptions | None = None) -> BatchedStep:
        """As `Callable.prepare`; of the options the timeout counts."""
        return BatchedStep(self, values, None if options is None else options.timeout)

    def batcher(self, inputs: Sequence[Any]) -> Batcher | None:
        """That of inputs of such shapes; None if they are to be run alone."""
        if len(inputs[0]) > self._limits[0]:
            return None
        shapes = tuple([array.shape[1:] for array in inputs])
        batcher = self._batchers.get(shapes)
        if batcher is None and len(self._batchers) < _MAX_SHAPES:
            batcher = self._batchers[shapes] = Batcher(*self._limits)
        return batcher


class BatchedStep:
    """A call that may become part of a batch.

    Attributes:
        id: of the step that runs it, or 0.
        state: where it is in its life.
        metadata: None: a batch's is nobody's own.
    """

    metadata = None

    def __init__(self, owner: BatchedCallable, values: Sequence[Any], timeout: float | None) -> None:
        self._owner = owner
        self._values = values
        self._timeout = timeout
        self._manager = CancellationManager()
        self._step: Step | None = None
        self._began = time.perf_counter()
        self.state = StepState.PENDING

    @property
    def id(self) -> int:
        return 0 if self._step is None else self._step.id

    def cancel(self, reason: str = "") -> bool:
        """Ask it to stop; True if this call is what cancels it.  Others of its batch go on."""
        if self.state not in (StepState.PENDING, StepState.RUNNING):
            return False
        return self._manager.start_cancel_with_status(
            errors.CancelledError("The call was cancelled" + (f": {reason}" if reason else ""))
        )

    def statistics(self) -> StepStatistics:
        """What it is doing now; waiting for a batch to be filled, nothing."""
        if self._step is not None:
            return self._step.statistics()
        return StepStatistics(self.state, 0, 0, 0, time.perf_counter() - self._began)

    @property
    def only_waits(self) -> bool:
        """As `Step.only_waits`; true while it waits for others of its batch."""
        return self._step is None or self._step.only_waits

    async def run(self) -> list[Any]:
        """Execute it, once; the values that are fetched.  Raises as `Step.run`."""
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
            return list(await self._execute(inputs))
        return list(await batcher.call(inputs, self._execute, self._manager))

    async def _inputs(self) -> tuple[Any, ...]:
        """What is fed, as arrays with equally many rows."""
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

    async def _execute(self, joined: Sequence[Any]) -> Sequence[Any]:
        step = self._step = self._owner.call.prepare(*joined)
        release = register_cancellation_callback(self._manager, step.cancel)
        began = time.perf_counter_ns()
        try:
            values: Sequence[Any] = await step.run()
        finally:
            release()
        if self._owner.on_batch is not None:
            self._owner.on_batch(len(joined[0]), time.perf_counter_ns() - began)
        return values
