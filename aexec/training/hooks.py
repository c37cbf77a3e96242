"""The hooks of aexec: stopping, saving, logging, and detecting NaN.

Each is a `SessionRunHook` for a `TrainingSession`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.queues.coordinator import Coordinator
from aexec.summary.file_writer import FileWriter
from aexec.training.checkpoint_listener import CheckpointSaverListener
from aexec.training.saver import Saver
from aexec.training.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    Training,
)

if TYPE_CHECKING:
    from aexec.client.progress_bars import Bars
    from aexec.framework.progress import WorkBar

__all__ = [
    "CheckpointSaverHook",
    "EarlyStoppingHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProgressBarHook",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]

logger = logging.getLogger(__name__)


class NanLossDuringTrainingError(RuntimeError):
    """The loss is NaN."""

    def __str__(self) -> str:
        return "NaN loss during training."


class _Timer:
    """Says when something is due again: after a number of steps, or of seconds."""

    def __init__(self, steps: int | None, seconds: float | None, clock: Callable[[], float]) -> None:
        if (steps is None) == (seconds is None):
            raise errors.InvalidValueError("exactly one of steps and seconds is to be given")
        self._steps = steps
        self._seconds = seconds
        self._clock = clock
        self.last: tuple[int, float] | None = None

    @property
    def counts_steps(self) -> bool:
        """True if the interval is in steps, False if it is in seconds."""
        return self._steps is not None

    def due(self, step: int) -> bool:
        if self.last is None:
            return True
        if self._steps is not None:
            return step >= self.last[0] + self._steps
        return self._seconds is not None and self._clock() >= self.last[1] + self._seconds

    def done(self, step: int) -> tuple[int, float]:
        """Record that it is done; return steps and seconds since the last time."""
        now = self._clock()
        before = self.last or (step, now)
        self.last = step, now
        return step - before[0], now - before[1]


def _step_of(values: SessionRunValues, hook: SessionRunHook) -> int:
    if values.global_step is None:
        raise errors.InvalidStateError(
            f"Global step should be created to use {type(hook).__name__}: see get_or_create_global_step"
        )
    return values.global_step


class StopAtStepHook(SessionRunHook):
    """Stops when the global step has reached `last_step`, or has grown by `num_steps`.

    Raises:
        InvalidArgumentError: both are given, or neither.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise errors.InvalidValueError("One of num_steps or last_step must be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        step = _step_of(SessionRunValues(None, await session.global_step()), self)
        if self._last_step is None and self._num_steps is not None:
            self._last_step = step + self._num_steps
        if self._last_step is not None and step >= self._last_step:
            session.request_stop()

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        if self._last_step is not None and _step_of(values, self) >= self._last_step:
            context.request_stop()


class CheckpointSaverHook(SessionRunHook):
    """Saves to a directory: at the beginning, after each `save_steps` steps or `save_secs` seconds, and at the end.

    The hook reads the values between two steps, and a background task writes them while steps go on.  If the next
    checkpoint is due before that task has finished, a hook with `save_steps` waits for it, and one with `save_secs`
    saves after the first step that finds it finished.  If there are listeners, the step ends only when the checkpoint
    is written and they have returned.

    Args:
        save_steps: how often, in steps of the global step.
        save_secs: how often, in seconds; 600 if neither is given.
        basename: of the checkpoints.
        saver: by default the session's.
        listeners: called around each checkpoint, in their order.
        clock: returns seconds.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        *,
        save_steps: int | None = None,
        save_secs: float | None = None,
        basename: str = "model.ckpt",
        saver: Saver | None = None,
        listeners: Sequence[CheckpointSaverListener] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._saver = saver
        self._prefix = os.path.join(checkpoint_dir, basename)
        seconds = 600.0 if save_steps is None and save_secs is None else save_secs
        self._timer = _Timer(save_steps, seconds, clock)
        self._listeners = tuple(listeners)
        # Writes the latest checkpoint.  Whoever replaces it holds `_turn`, and has waited for it.
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._written: int | None = None
        self._coordinator: Coordinator | None = None

    def begin(self) -> None:
        for listener in self._listeners:
            listener.begin()

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        self._coordinator, self._writing, self._turn = coordinator, None, asyncio.Lock()
        self._timer.done(_step_of(SessionRunValues(None, await session.global_step()), self))
        await self._save(session)

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        step = _step_of(values, self)
        is_writing = self._writing is not None and not self._writing.done()
        if not self._timer.due(step) or (is_writing and not self._timer.counts_steps):
            return
        self._timer.done(step)  # before any await, so that only one of several replicas saves
        async with self._turn:
            if self._writing is not None:
                await asyncio.wait([self._writing])
            await self._start(context.session, step)

    async def _start(self, session: Training, step: int) -> None:
        """Begin to write a checkpoint; if there are listeners, also finish."""
        assert self._coordinator is not None
        if self._listeners:
            self._writing = self._coordinator.create_task(self._save_and_ask(session), name="checkpoint")
            await asyncio.wait([self._writing])
            return
        try:
            taken, number = await session.snapshot(self._saver)
        except errors.DeadlineExceededError as error:
            logger.warning("No checkpoint at step %d: %s", step, error)
            return
        self._writing = self._coordinator.create_task(self._in_background(session, taken, number), name="checkpoint")

    async def _in_background(self, session: Training, taken: Mapping[Tensor, Any], step: int | None) -> None:
        assert self._coordinator is not None
        with self._coordinator.stop_on_exception():
            await self._write(session, taken, step)

    async def _save_and_ask(self, session: Training) -> None:
        """Save, and stop if a listener says so."""
        assert self._coordinator is not None
        with self._coordinator.stop_on_exception():
            if await self._save(session):
                logger.info("A listener requested the stop after a checkpoint.")
                session.request_stop()

    async def _save(self, session: Training) -> bool:
        """Write a checkpoint of the present values, and call the listeners; return whether one of them stops."""
        step = await session.global_step()
        for listener in self._listeners:
            await listener.before_save(session, step)
        await self._write(session, *await session.snapshot(self._saver))
        return any([await listener.after_save(session, step) for listener in self._listeners])

    async def _write(self, session: Training, taken: Mapping[Tensor, Any], step: int | None) -> None:
        saver = self._saver or session.saver
        assert saver is not None
        await saver.save(session.session, self._prefix, step, values=taken)
        self._written = step

    async def end(self, session: Training) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
        step = await session.global_step()
        if step != self._written:
            await self._save(session)
        for listener in self._listeners:
            await listener.end(session, step)


class NanTensorHook(SessionRunHook):
    """Stops if a loss is NaN: with NanLossDuringTrainingError, or without an error if `fail_on_nan_loss` is False."""

    logger = logger

    def __init__(self, loss: Any, *, fail_on_nan_loss: bool = True) -> None:
        self._loss = loss
        self._fail = fail_on_nan_loss

    async def before_run(self, context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss)

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        if not np.isnan(values.results).any():
            return
        if self._fail:
            self.logger.error("Model diverged with loss = NaN.")
            raise NanLossDuringTrainingError
        self.logger.warning("Model diverged with loss = NaN.")
        context.request_stop()


class LoggingTensorHook(SessionRunHook):
    """Logs values, `loss = 0.25, step = 100 (1.204 sec)`, every few steps of this process, or seconds.

    Args:
        tensors: logged name → tensor.
        at_end: also log the values that a step of its own finds when the training has ended; neither steps nor seconds
            need to be given then.
        formatter: makes the text of the values by name.
        clock: returns seconds.
    """

    logger = logger

    def __init__(
        self,
        tensors: Mapping[str, Any],
        *,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tensors = dict(tensors)
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        self._timer = None if only_at_end else _Timer(every_n_iter, every_n_secs, clock)
        self._at_end = at_end
        self._formatter = formatter
        self._count = 0

    async def before_run(self, context: SessionRunContext) -> SessionRunArgs | None:
        due = self._timer is not None and self._timer.due(self._count)
        return SessionRunArgs(self._tensors) if due else None

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        if values.results and self._timer is not None:
            first = self._timer.last is None
            _, seconds = self._timer.done(self._count)
            self._log(values.results, "" if first else f" ({seconds:.3f} sec)")
        self._count += 1

    async def end(self, session: Training) -> None:
        if self._at_end:
            self._log(await session.session.run(self._tensors), "")

    def _log(self, values: dict[str, Any], since: str) -> None:
        if self._formatter is not None:
            self.logger.info("%s", self._formatter(values))
        else:
            text = ", ".join(f"{name} = {value}" for name, value in values.items())
            self.logger.info("%s%s", text, since)


class StepCounterHook(SessionRunHook):
    """Logs the steps per second, every few steps or seconds.

    Args:
        writer: also gets them, under the tag `global_step/sec`; its owner closes it.

    Attributes:
        steps_per_second: the last logged value; 0 before the first.
    """

    logger = logger

    def __init__(
        self,
        *,
        every_n_steps: int | None = None,
        every_n_secs: float | None = None,
        writer: FileWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timer = _Timer(every_n_steps, every_n_secs, clock)
        self._writer = writer
        self.steps_per_second = 0.0

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        self._timer.done(_step_of(SessionRunValues(None, await session.global_step()), self))

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        step = _step_of(values, self)
        if self._timer.due(step):
            steps, seconds = self._timer.done(step)
            self.steps_per_second = steps / seconds if seconds else 0.0
            self.logger.info("global_step/sec: %g", self.steps_per_second)
            if self._writer is not None:
                value = proto.Summary.Value(tag="global_step/sec", simple_value=self.steps_per_second)
                await self._writer.add_summary(proto.Summary(value=[value]), step)


class EarlyStoppingHook(SessionRunHook):
    """Stops when a metric has not improved for `patience` steps.

    Args:
        min_delta: a change by no more than this is no improvement.
        mode: whether less is better (`"min"`), or more (`"max"`).
    """

    def __init__(
        self, metric: Any, *, patience: int, min_delta: float = 0.0, mode: Literal["min", "max"] = "min"
    ) -> None:
        if mode not in ("min", "max"):
            raise errors.InvalidValueError(f"mode must be min or max, got {mode!r}")
        self._metric = metric
        self._patience = patience
        self._min_delta = min_delta
        self._sign = 1.0 if mode == "min" else -1.0
        self._best = np.inf
        self._since = 0

    async def before_run(self, context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._metric)

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        value = self._sign * float(values.results)
        if value < self._best - self._min_delta:
            self._best, self._since = value, 0
            return
        self._since += 1
        if self._since >= self._patience:
            context.request_stop()


class ProgressBarHook(SessionRunHook):
    """A bar on the terminal or in the notebook, with the global step and the remaining time; nothing if there is none.

    It is a bar of tqdm if that is installed.

    Args:
        last_step: where the bar ends.
        console: a `rich` console, for a bar of rich on it; by default a bar on standard error.
    """

    def __init__(self, last_step: int, *, console: Any = None) -> None:
        self._last_step = last_step
        self._console = console
        self._bars: Bars | None = None
        self._bar: WorkBar | None = None
        self._step = 0

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        if self._bars is not None:
            return
        from aexec.client.progress_bars import RichBars, make_bars

        self._bars = make_bars(delay=0.0) if self._console is None else RichBars(self._console, delay=0.0)
        self._bar = self._bars.open("training", self._last_step, "steps")
        self._step = 0
        coordinator.create_task(self._stop_with(coordinator), name="progress bar")

    async def _stop_with(self, coordinator: Coordinator) -> None:
        """Remove the bar from the terminal, however the training ends."""
        try:
            await coordinator.wait_for_stop()
        finally:
            assert self._bars is not None and self._bar is not None
            self._bar.close()
            self._bars.close()
            self._bars = self._bar = None

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        if self._bar is not None:
            step = _step_of(values, self)
            self._bar.advance(step - self._step)
            self._step = step


class SummarySaverHook(SessionRunHook):
    """Writes summaries, every few steps of this process, or seconds.

    Args:
        writer: flushed at the end; its owner closes it.
        summary: the result of a summary op.
    """

    def __init__(
        self,
        writer: FileWriter,
        summary: Any,
        *,
        save_steps: int | None = None,
        save_secs: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._summary = summary
        self._timer = _Timer(save_steps, save_secs, clock)
        self._count = 0

    async def before_run(self, context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(self._summary) if self._timer.due(self._count) else None

    async def after_run(self, context: SessionRunContext, values: SessionRunValues) -> None:
        if isinstance(values.results, bytes):
            self._timer.done(self._count)
            await self._writer.add_summary(values.results, _step_of(values, self))
        self._count += 1

    async def end(self, session: Training) -> None:
        await self._writer.flush()
