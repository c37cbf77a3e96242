"""Training in a loop: what a session restores, when it stops, and what is left of a cancelled step."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework import errors
from aexec.io.tensor_bundle import BundleReader
from aexec.training import (
    CheckpointSaverHook,
    SessionRunHook,
    StopAtStepHook,
    TrainingSession,
    get_or_create_global_step,
    latest_checkpoint,
)


def model() -> tuple[aexec.Graph, Any, Any]:
    """(graph, x, train): every variable moves by the mean of x in each step, and the steps are counted."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        a = aexec.Variable(np.zeros(1000, np.float32), name="a")
        b = aexec.Variable(np.zeros(1000, np.float32), name="b", use_resource=True)
        loss = ops.sum(a * ops.mean(x, [0]), [0]) + ops.sum(b * ops.mean(x, [0]), [0])
        optimizer = aexec.training.MomentumOptimizer(0.1, 0.5)
        train = optimizer.minimize(loss, global_step=get_or_create_global_step())
    return graph, x, train


def saved(directory: Path) -> list[Any]:
    """a, b and the global step of the latest checkpoint, which is read from the first byte to the last."""
    state = (directory / "checkpoint").read_text().splitlines()[0]
    with BundleReader(str(directory / state.split('"')[1])) as reader:
        return [reader.read(name) for name in ("a", "b", "global_step")]


async def test_trains_to_its_last_step_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for last in (3, 5):
        graph, x, train = model()
        ran = 0
        async with TrainingSession(
            graph, checkpoint_dir=str(tmp_path), save_checkpoint_steps=2, hooks=[StopAtStepHook(last_step=last)]
        ) as training:
            while not training.should_stop():
                await training.run(train, {x: [1.0]})
                ran += 1
            assert await training.global_step() == last
        assert ran == {3: 3, 5: 2}[last]
        assert await latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{last}")


async def test_new_session_is_made_and_restored_when_a_worker_goes_away(tmp_path: Path) -> None:
    graph, x, train = model()
    made = []

    class Once(SessionRunHook):
        async def before_run(self, context: Any) -> None:
            if len(made) == 1 and await context.session.global_step() == 3:
                raise errors.UnavailableError("gone")

    def make(graph: aexec.Graph) -> aexec.Session:
        made.append(aexec.Session(graph))
        return made[-1]

    hooks = [Once(), StopAtStepHook(last_step=4)]
    async with TrainingSession(
        graph, checkpoint_dir=str(tmp_path), save_checkpoint_steps=2, hooks=hooks, make_session=make
    ) as training:
        while not training.should_stop():
            await training.run(train, {x: [1.0]})
            for task in training.coordinator.tasks:
                if task.get_name() == "checkpoint":
                    await task
        assert await training.global_step() == 4
    assert len(made) == 2 and made[0].closed and made[1].closed


async def test_checkpoint_is_of_one_moment_though_replicas_train(tmp_path: Path) -> None:
    graph, x, train = model()
    async with TrainingSession(graph, checkpoint_dir=str(tmp_path), hooks=[StopAtStepHook(last_step=60)]) as training:

        async def replica() -> None:
            while not training.should_stop():
                await training.run(train, {x: [1.0]})

        async def watch() -> None:
            while not training.should_stop():
                taken, step = await training.snapshot()
                values = {tensor.node.name.rpartition("/")[2]: value for tensor, value in taken.items()}
                assert values["global_step"] == step
                np.testing.assert_array_equal(values["a"], values["b"])
                assert len(np.unique(values["a"])) == 1
                await asyncio.sleep(0)

        await asyncio.gather(watch(), *(replica() for _ in range(3)))
    a, b, _ = await asyncio.to_thread(saved, tmp_path)
    np.testing.assert_array_equal(a, b)


async def cancelled_at_random(times: int) -> None:
    """Steps are cancelled at random; those that were executed give what they give without."""
    chance = random.Random(1)
    tasks = asyncio.all_tasks()
    graph, x, train = model()
    executed: list[float] = []
    async with TrainingSession(graph) as training:
        cancelled = 0
        while cancelled < times:
            value = chance.random()
            before = await training.global_step()
            task = asyncio.ensure_future(training.run(train, {x: [value]}))
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            cancelled += task.cancel()
            await asyncio.wait([task])
            after = await training.global_step()
            assert before is not None and after in (before, before + 1)
            executed += [value] * (after - before)
        survivor = await training.session.run(["a:0", "b/Read/ReadVariableOp:0"])
    graph, x, train = model()
    async with TrainingSession(graph) as training:
        for value in executed:
            await training.run(train, {x: [value]})
        uncancelled = await training.session.run(["a:0", "b/Read/ReadVariableOp:0"])
    assert len(executed) > 0
    np.testing.assert_array_equal(survivor, uncancelled)
    assert asyncio.all_tasks() == tasks


async def test_cancelled_steps_leave_what_uncancelled_ones_would() -> None:
    await cancelled_at_random(30)


@pytest.mark.soak
async def test_thousand_cancelled_steps_leave_what_uncancelled_ones_would() -> None:
    await cancelled_at_random(1000)


async def test_cancelled_step_that_waits_for_input_does_not_wait_for_ever() -> None:
    with aexec.Graph() as graph:
        queue = ops.fifo_queue_v2(["float32"], shapes=[[]])
        item = ops.queue_dequeue_v2(queue, ["float32"])
        aexec.Variable(0.0, name="v")
    async with TrainingSession(graph, finish_seconds=0.0) as training:
        task = asyncio.ensure_future(training.run(item))
        while not training.session.steps:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and not training.session.steps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_stops_with_a_last_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    graph, x, train = model()
    before = signal.getsignal(number)
    async with TrainingSession(graph, checkpoint_dir=str(tmp_path)) as training:
        await training.run(train, {x: [1.0]})
        os.kill(os.getpid(), number)
        while not training.should_stop():
            await asyncio.sleep(0)
    assert signal.getsignal(number) is before
    assert await latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")


async def test_end_of_input_ends_the_block() -> None:
    graph, _, _ = model()
    async with TrainingSession(graph) as training:
        raise errors.OutOfRangeError("no more")
    with pytest.raises(errors.FailedPreconditionError, match="not open"):
        training.session
    assert repr(training).startswith("<TrainingSession closed")


async def test_variable_that_nothing_initialises_is_named() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable(1.0, name="v")
        aexec.Variable(1.0, name="w")
        training = TrainingSession(graph, init_op=v.initializer)
    with pytest.raises(errors.FailedPreconditionError, match="Variables not initialized: w"):
        async with training:
            pass


async def test_two_hooks_that_feed_one_tensor_are_refused() -> None:
    graph, x, train = model()

    class Feeding(SessionRunHook):
        async def before_run(self, context: Any) -> aexec.training.SessionRunArgs:
            return aexec.training.SessionRunArgs([], {x: [1.0]})

    async with TrainingSession(graph, hooks=[Feeding(), Feeding()]) as training:
        with pytest.raises(errors.InvalidArgumentError, match="fed by two hooks"):
            await training.run(train)


async def test_failed_checkpoint_ends_the_training(tmp_path: Path) -> None:
    graph, x, train = model()
    directory = tmp_path / "run"
    hook = CheckpointSaverHook(str(directory), save_steps=1)
    with graph:
        saver = aexec.training.Saver(aexec.global_variables())

    async def train_until_it_fails() -> None:
        async with TrainingSession(graph, hooks=[hook], saver=saver) as training:
            await asyncio.to_thread(shutil.rmtree, directory)
            await asyncio.to_thread(directory.write_text, "in the way")
            while not training.should_stop():
                await training.run(train, {x: [1.0]})

    with pytest.raises(errors.OpError):
        await train_until_it_fails()


async def train_for_ever(directory: str) -> None:
    """Saves after every step, and prints the step that it begins at, then every other."""
    graph, x, train = model()
    async with TrainingSession(graph, checkpoint_dir=directory, save_checkpoint_steps=1) as training:
        while not training.should_stop():
            print(await training.global_step(), flush=True)
            await training.run(train, {x: [1.0]})


def killed_at_random(directory: Path, times: int) -> None:
    chance = random.Random(1)
    command = [sys.executable, "-c", f"from {__name__} import *; asyncio.run(train_for_ever({str(directory)!r}))"]
    root = str(Path(__file__).parents[2])
    step = 0
    for _ in range(times):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        assert process.stdout is not None
        with process:
            first = int(process.stdout.readline())
            assert first == step
            for _ in range(chance.randrange(1, 40)):
                process.stdout.readline()
            process.kill()
        a, b, step = saved(directory)
        np.testing.assert_array_equal(a, b)
        assert step >= first


def test_training_goes_on_from_a_whole_checkpoint_after_it_was_killed(tmp_path: Path) -> None:
    killed_at_random(tmp_path, 3)


@pytest.mark.soak
def test_training_goes_on_from_a_whole_checkpoint_after_it_was_killed_a_hundred_times(tmp_path: Path) -> None:
    killed_at_random(tmp_path, 100)
