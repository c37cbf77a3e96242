"""Hooks that programs use less often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.running import more_hooks
from tests.support.stand_ins.replacing import replace_in


def test_hooks_feed_and_run_at_the_end() -> None:
    x = tf.placeholder(tf.float32, [])
    total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
    step = total.assign_add(x)
    final = tf.train.FinalOpsHook({"total": total, "x": x}, {x: 9.0})
    with tf.train.MonitoredSession(hooks=[tf.train.FeedFnHook(lambda: {x: 2.0}), final]) as sess:
        assert sess.run(step) == 2 and sess.run(step) == 4
        assert final.final_ops_values is None
    assert final.final_ops_values == {"total": 4.0, "x": 9.0}


def test_timer_is_due_after_steps_or_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    replace_in(monkeypatch, more_hooks, "time", time=lambda: now[0])
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    assert timer.should_trigger_for_step(0) and timer.update_last_triggered_step(0) == (None, None)
    assert not timer.should_trigger_for_step(0) and not timer.should_trigger_for_step(2)
    now[0] = 104.0
    assert timer.should_trigger_for_step(3) and timer.update_last_triggered_step(3) == (4.0, 3)
    assert timer.last_triggered_step() == 3
    seconds = tf.train.SecondOrStepTimer(every_secs=5.0)
    seconds.update_last_triggered_step(1)
    assert not seconds.should_trigger_for_step(2)
    now[0] = 110.0
    assert seconds.should_trigger_for_step(2)
    seconds.reset()
    assert seconds.last_triggered_step() is None
    for settings in ({}, {"every_secs": 1.0, "every_steps": 1}):
        with pytest.raises(ValueError, match="every_secs"):
            tf.train.SecondOrStepTimer(**settings)  # type: ignore[arg-type]


def test_steps_wait_for_the_global_step(monkeypatch: pytest.MonkeyPatch) -> None:
    step = tf.train.get_or_create_global_step()
    count = step.assign_add(1)
    waits: list[float] = []
    hook = tf.train.GlobalStepWaiterHook(2)
    with tf.train.MonitoredSession(hooks=[hook]) as sess:

        def advance(seconds: float) -> None:
            waits.append(seconds)
            sess.raw.run(count)

        sess.raw = sess.plain
        replace_in(monkeypatch, more_hooks, "time", sleep=advance)
        assert sess.run(step) == 2 and len(waits) == 2
        assert sess.run(step) == 2 and len(waits) == 2
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="Global step"):
        tf.train.MonitoredSession(hooks=[tf.train.GlobalStepWaiterHook(1)])


@pytest.mark.parametrize(("value", "words"), [(1, "must be a Variable"), ([1.0], "integer"), ([1], "not scalar")])
def test_global_step_is_checked(value: Any, words: str) -> None:
    tf.train.assert_global_step(tf.train.get_or_create_global_step())
    with pytest.raises(TypeError, match=words):
        tf.train.assert_global_step(value if value == 1 else tf.constant(value))


class Told(tf.train.CheckpointSaverListener):
    """Notes what it is told, and changes a variable before each checkpoint."""

    def __init__(self, value: Any) -> None:
        self.value, self.more = value, value.assign_add(100.0)
        self.notes: list[Any] = []

    def begin(self) -> None:
        self.notes.append("begin")

    def before_save(self, session: Any, global_step_value: Any) -> None:
        self.notes.append(("before", global_step_value))
        session.run(self.more)

    def after_save(self, session: Any, global_step_value: Any) -> bool:
        self.notes.append(("after", global_step_value, float(session.run(self.value))))
        return bool(global_step_value >= 4)

    def end(self, session: Any, global_step_value: Any) -> None:
        self.notes.append(("end", global_step_value))


def test_listener_is_told_of_checkpoints_as_in_tensorflow(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    value = tf.get_variable("v", initializer=0.0)
    train = tf.group(step.assign_add(1), value.assign_add(1.0))
    told, count = Told(value), 0
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[told])
    with tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
        while not sess.should_stop():
            sess.run(train)
            count += 1
    saves = [("before", 0), ("after", 0, 100), ("before", 2), ("after", 2, 202), ("before", 4), ("after", 4, 304)]
    assert count == 4 and told.notes == ["begin", *saves, ("end", 4)]
    path = tf.train.latest_checkpoint(str(tmp_path))
    assert path is not None and tf.train.load_variable(path, "v") == 304
