"""Traces of a training's steps, and the options that hooks give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf


def trained(folder: Path, **intervals: Any) -> list[str]:
    """The names of the traces that six steps leave."""
    count = tf.train.get_or_create_global_step().assign_add(1)
    with tf.train.SingularMonitoredSession(hooks=[tf.train.ProfilerHook(output_dir=str(folder), **intervals)]) as sess:
        for _ in range(6):
            sess.run(count)
    return sorted(path.name for path in folder.glob("*.json"))


@pytest.mark.parametrize(
    ("intervals", "steps"),
    [({"save_steps": 2}, (2, 4, 6)), ({"save_steps": 1}, (2, 3, 4, 5, 6)), ({"save_steps": 4}, (4,))],
)
def test_steps_that_are_traced(tmp_path: Path, intervals: Any, steps: tuple[int, ...]) -> None:
    """As by TensorFlow: never the first step."""
    assert trained(tmp_path, **intervals) == [f"timeline-{step}.json" for step in steps]
    events = json.loads((tmp_path / f"timeline-{steps[0]}.json").read_text())["traceEvents"]
    assert any(event.get("args", {}).get("op") == "AssignAdd" for event in events)


def test_seconds_and_events(tmp_path: Path) -> None:
    assert trained(tmp_path, save_secs=1000) == []
    tf.reset_default_graph()
    folder = tmp_path / "other"
    assert len(trained(folder, save_secs=1e-9, show_dataflow=False, show_memory=True)) == 5
    tf.summary.FileWriterCache.clear()
    (file,) = folder.glob("events*")
    tags = [event.tagged_run_metadata.tag for event in tf.train.summary_iterator(str(file))]
    assert [tag for tag in tags if tag] == [f"step_{step}" for step in range(2, 7)]


def test_what_a_hook_needs(tmp_path: Path) -> None:
    for intervals in ({}, {"save_secs": 1, "save_steps": 1}):
        with pytest.raises(ValueError, match="every_secs"):
            tf.train.ProfilerHook(**intervals)
    with pytest.raises(RuntimeError, match="Global step should be created to use ProfilerHook"):
        tf.train.ProfilerHook(save_steps=1, output_dir=str(tmp_path)).begin()


class Tracing(tf.train.SessionRunHook):
    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(None, options=tf.RunOptions(trace_level=tf.RunOptions.SOFTWARE_TRACE))


class Watching(tf.train.SessionRunHook):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        devices = run_values.run_metadata.step_stats.dev_stats
        self.seen.append((run_values.options.trace_level, run_values.options.timeout_in_ms, len(devices)))
        metadata = tf.RunMetadata()
        run_context.session.run("one:0", options=tf.RunOptions(trace_level=3), run_metadata=metadata)
        self.seen.append(len(metadata.step_stats.dev_stats))


def test_options_of_programs_hooks() -> None:
    tf.constant(1.0, name="one")
    count = tf.train.get_or_create_global_step().assign_add(1)
    watching = Watching()
    with tf.train.MonitoredSession(hooks=[watching]) as sess:
        sess.run(count)
    assert watching.seen == [(0, 0, 0), 1]
    watching.seen.clear()
    metadata = tf.RunMetadata()
    with tf.train.MonitoredSession(hooks=[Tracing(), watching]) as sess:
        sess.run(count, options=tf.RunOptions(timeout_in_ms=100000), run_metadata=metadata)
    assert watching.seen == [(tf.RunOptions.FULL_TRACE, 100000, 1), 1]
    assert len(metadata.step_stats.dev_stats) == 1
