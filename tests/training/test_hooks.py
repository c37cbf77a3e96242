"""Hooks: when they log, stop and save."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import aexec
from aexec.framework import errors
from aexec.io.record import read_records
from aexec.io.tensor_bundle import BundleReader
from aexec.training import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    EarlyStoppingHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProgressBarHook,
    SessionRunHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
    TrainingSession,
    get_or_create_global_step,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def train(*hooks: SessionRunHook, losses: Any, clock: Clock | None = None, **settings: Any) -> list[float]:
    """Which losses were fed before the training stopped."""
    fed = []
    async with TrainingSession(hooks=hooks, **settings) as training:
        for value in losses:
            if training.should_stop():
                break
            await training.run(["count:0"], {"loss:0": value})
            fed.append(value)
            if clock is not None:
                clock.now += 0.5
            # What is written in the background is written.
            tasks = [task for task in training.coordinator.tasks if task.get_name() == "checkpoint"]
            await asyncio.gather(*tasks)
    return fed


@pytest.fixture(autouse=True)
def graph() -> Any:
    with aexec.Graph() as graph:
        aexec.placeholder("float32", [], name="loss")
        get_or_create_global_step().assign_add(1, name="count")
        yield graph


async def test_stops_at_a_step() -> None:
    assert len(await train(StopAtStepHook(last_step=3), losses=[0.0] * 9)) == 3
    assert len(await train(StopAtStepHook(num_steps=2), losses=[0.0] * 9)) == 2
    with pytest.raises(errors.InvalidArgumentError, match="One of num_steps or last_step"):
        StopAtStepHook()


async def test_hooks_that_need_a_global_step_say_so() -> None:
    with aexec.Graph() as graph:
        aexec.Variable(0.0)
    with pytest.raises(errors.FailedPreconditionError, match="Global step should be created to use StopAtStepHook"):
        async with TrainingSession(graph, hooks=[StopAtStepHook(last_step=1)]):
            pass


async def test_loss_that_is_no_number() -> None:
    losses = [1.0, float("nan"), 1.0]
    with pytest.raises(NanLossDuringTrainingError, match=r"NaN loss during training\."):
        await train(NanTensorHook("loss:0"), losses=losses)
    assert len(await train(NanTensorHook("loss:0", fail_on_nan_loss=False), losses=losses)) == 2


async def test_stops_early_when_nothing_becomes_better() -> None:
    falling = [3.0, 2.0, 1.95, 1.9, 1.0, 1.0, 1.0]
    assert len(await train(EarlyStoppingHook("loss:0", patience=2, min_delta=0.2), losses=falling)) == 4
    assert len(await train(EarlyStoppingHook("loss:0", patience=3), losses=falling)) == 7
    assert len(await train(EarlyStoppingHook("loss:0", patience=1, mode="max"), losses=falling)) == 2
    with pytest.raises(errors.InvalidArgumentError, match="mode must be min or max"):
        EarlyStoppingHook("loss:0", patience=1, mode="less")  # type: ignore[arg-type]  # the error is asked for


async def test_logs_values_and_rates(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aexec.training")
    clock = Clock()
    counter = StepCounterHook(every_n_secs=1.0, clock=clock)
    logs = LoggingTensorHook({"loss": "loss:0"}, every_n_iter=2, clock=clock)
    await train(logs, counter, losses=[1.0, 2.0, 3.0, 4.0], clock=clock)
    assert caplog.messages == ["loss = 1.0", "loss = 3.0 (1.000 sec)", "global_step/sec: 3"]
    assert counter.steps_per_second == 3
    with pytest.raises(errors.InvalidArgumentError, match="exactly one of steps and seconds"):
        StepCounterHook()


async def test_saves_every_so_many_seconds(tmp_path: Path, graph: aexec.Graph) -> None:
    clock = Clock()
    saver = aexec.training.Saver(graph=graph)
    hook = CheckpointSaverHook(str(tmp_path), save_secs=1.0, clock=clock)
    await train(hook, losses=[0.0] * 6, clock=clock, saver=saver)
    assert [Path(path).name for path in saver.last_checkpoints] == [f"model.ckpt-{n}" for n in (0, 3, 5, 6)]


class SlowSaver(aexec.training.Saver):
    """Writes the checkpoint of a step only once the next step has run; those of step 0 and of the last step at once."""

    def __init__(self, last: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.ran = {step: asyncio.Event() for step in range(last + 1)}
        self.ran[1].set()
        self.ran[last + 1] = self.ran[1]

    async def save(self, session: Any, prefix: str, global_step: Any = None, **settings: Any) -> str:
        await self.ran[global_step + 1].wait()
        return await super().save(session, prefix, global_step, **settings)


class Announcing(SessionRunHook):
    """Announces each step to a `SlowSaver`."""

    def __init__(self, saver: SlowSaver) -> None:
        self.saver = saver

    async def after_run(self, context: Any, values: Any) -> None:
        self.saver.ran[values.global_step].set()


async def test_checkpoint_that_becomes_due_while_another_is_written_is_written_too(
    tmp_path: Path, graph: aexec.Graph
) -> None:
    saver = SlowSaver(3, graph=graph)
    hooks = [Announcing(saver), CheckpointSaverHook(str(tmp_path), save_steps=1, saver=saver)]
    async with TrainingSession(hooks=hooks) as training:
        for _ in range(3):
            await training.run(["count:0"], {"loss:0": 0.0})
    assert [Path(path).name for path in saver.last_checkpoints] == [f"model.ckpt-{n}" for n in range(4)]


async def test_bar_on_a_terminal() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    await train(ProgressBarHook(2, console=Console(file=terminal, force_terminal=True)), losses=[0.0] * 2)
    await train(ProgressBarHook(2, console=Console(file=file)), losses=[0.0] * 2)
    assert "2/2 steps" in terminal.getvalue() and not file.getvalue().strip()


async def test_writes_summaries_every_so_many_steps(tmp_path: Path, graph: aexec.Graph) -> None:
    scalar = aexec.summary.scalar("loss_seen", graph.tensor("loss:0"))
    async with aexec.summary.FileWriter(tmp_path) as writer:
        await train(SummarySaverHook(writer, scalar, save_steps=2), losses=[1.0, 2.0, 3.0])
    (path,) = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    records = await asyncio.to_thread(lambda: list(read_records(str(path))))
    found = [aexec.proto.Event.FromString(data) for data in records][1:]
    assert [(event.step, event.summary.value[0].simple_value) for event in found] == [(1, 1.0), (3, 3.0)]


async def test_values_are_logged_at_the_end_as_the_program_likes(caplog: pytest.LogCaptureFixture) -> None:
    """By a step of its own, which counts, too, here."""
    caplog.set_level(logging.INFO)
    count = {"count": "count:0"}
    await train(
        LoggingTensorHook(count, at_end=True, formatter=lambda values: f"at last {values['count']}"), losses=[1, 2]
    )
    assert [record.message for record in caplog.records if "at last" in record.message] == ["at last 3"]


async def test_checkpoints_of_a_saver_of_the_hooks_own(tmp_path: Path) -> None:
    v = aexec.Variable(7.0, name="v")
    hook = CheckpointSaverHook(str(tmp_path), save_steps=1, saver=aexec.training.Saver({"other": v}))
    await train(hook, losses=[1])
    path = await aexec.training.latest_checkpoint(str(tmp_path))
    assert path is not None
    assert await asyncio.to_thread(lambda: list(BundleReader(path).keys())) == ["other"]


async def test_rates_are_written(tmp_path: Path) -> None:
    clock = Clock()
    async with aexec.summary.FileWriter(tmp_path) as writer:
        await train(StepCounterHook(every_n_steps=2, writer=writer, clock=clock), losses=[1, 2, 3, 4], clock=clock)
    (path,) = tmp_path.iterdir()
    records = await asyncio.to_thread(lambda: list(read_records(path)))
    events = [aexec.proto.Event.FromString(record) for record in records]
    values = [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]
    assert values == [(2, "global_step/sec", 4.0), (4, "global_step/sec", 2.0)]


class Told(CheckpointSaverListener):
    """Notes what it is told, changes a variable before each checkpoint, and stops at a step."""

    def __init__(self, stop_at: int = 99, fail_at: int | None = None) -> None:
        self.notes: list[Any] = []
        self._stop_at, self._fail_at = stop_at, fail_at
        aexec.Variable(0.0, name="noted").assign_add(100.0, name="note")

    def begin(self) -> None:
        self.notes.append("begin")

    async def before_save(self, session: Any, global_step: int | None) -> None:
        self.notes.append(("before", global_step))
        await session.session.run(["note"])

    async def after_save(self, session: Any, global_step: int | None) -> bool:
        if global_step == self._fail_at:
            raise ValueError("mine")
        self.notes.append(("after", global_step, float(await session.session.run("noted:0"))))
        return global_step == self._stop_at

    async def end(self, session: Any, global_step: int | None) -> None:
        self.notes.append(("end", global_step))


def listened(folder: Path, told: Told) -> CheckpointSaverHook:
    return CheckpointSaverHook(str(folder), save_steps=2, saver=aexec.training.Saver(), listeners=[told])


def noted(path: str) -> float:
    with BundleReader(path) as reader:
        return float(reader.read("noted"))


async def test_listener_is_told_of_each_checkpoint_and_stops_the_training(tmp_path: Path) -> None:
    told = Told(stop_at=4)
    hook = listened(tmp_path, told)
    assert len(await train(hook, losses=[0.0] * 9)) == 4
    saves = [("before", 0), ("after", 0, 100), ("before", 2), ("after", 2, 200), ("before", 4), ("after", 4, 300)]
    assert told.notes == ["begin", *saves, ("end", 4)]
    path = await aexec.training.latest_checkpoint(str(tmp_path))
    assert path == f"{tmp_path}/model.ckpt-4"
    assert await asyncio.to_thread(noted, path) == 300


async def test_listener_is_told_of_the_last_checkpoint_before_the_end(tmp_path: Path) -> None:
    told = Told()
    hook = listened(tmp_path, told)
    await train(hook, losses=[0.0] * 3)
    assert told.notes[-3:] == [("before", 3), ("after", 3, 300), ("end", 3)]


async def test_stop_of_a_listener_after_the_first_checkpoint_is_ignored(tmp_path: Path) -> None:
    hook = listened(tmp_path, Told(stop_at=0))
    assert len(await train(hook, losses=[0.0] * 3)) == 3


async def test_error_of_a_listener_ends_the_training(tmp_path: Path) -> None:
    hook = listened(tmp_path, Told(fail_at=2))
    with pytest.raises(ValueError, match="mine"):
        await train(hook, losses=[0.0] * 9)
