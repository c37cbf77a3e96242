"""What hooks are called with, and when."""

from __future__ import annotations

from typing import Any

import aexec
from aexec.training import SessionRunArgs, SessionRunHook, TrainingSession, get_or_create_global_step


async def test_hooks_are_called_around_each_step() -> None:
    calls: list[Any] = []

    class Watching(SessionRunHook):
        def begin(self) -> None:
            self.twice = aexec.placeholder("float32", [], name="y") * 2.0
            calls.append("begin")

        async def after_create_session(self, session: Any, coordinator: Any) -> None:
            calls.append("created")

        async def before_run(self, context: Any) -> SessionRunArgs:
            calls.append((context.fetches, dict(context.feeds)))
            return SessionRunArgs({"twice": self.twice}, {"y:0": 4.0})

        async def after_run(self, context: Any, values: Any) -> None:
            calls.append((values.results, values.global_step))
            context.request_stop()

        async def end(self, session: Any) -> None:
            calls.append("end")

    with aexec.Graph():
        x = aexec.placeholder("float32", [], name="x")
        get_or_create_global_step().assign_add(1, name="count")
        training = TrainingSession(hooks=[Watching(), SessionRunHook()])
    async with training:
        assert await training.run(["count:0"], {x: 1.0}) == [1]
        assert training.should_stop()
    assert calls == ["begin", "created", (["count:0"], {x: 1.0}), ({"twice": 8.0}, 1), "end"]


async def test_options_of_hooks_and_of_the_caller_are_joined() -> None:
    seen: list[Any] = []

    class Tracing(SessionRunHook):
        async def before_run(self, context: Any) -> SessionRunArgs:
            return SessionRunArgs([], options=aexec.RunOptions(trace=True, timeout=5.0))

    class Watching(SessionRunHook):
        async def after_run(self, context: Any, values: Any) -> None:
            seen.append((values.options, values.metadata))

    with aexec.Graph():
        count = get_or_create_global_step().assign_add(1, name="count")
        plain, traced = TrainingSession(hooks=[Watching()]), TrainingSession(hooks=[Tracing(), Watching()])
    async with plain:
        await plain.run(count)
    assert seen.pop() == (None, None)
    metadata = aexec.RunMetadata()
    async with traced:
        await traced.run(count, options=aexec.RunOptions(timeout=60.0, output_partition_graphs=True), metadata=metadata)
    assert seen == [(aexec.RunOptions(timeout=60.0, trace=True, output_partition_graphs=True), metadata)]
    assert metadata.step_stats is not None and metadata.partition_graphs
