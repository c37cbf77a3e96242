"""`tf.train.Supervisor`: preparation of sessions, checkpoints, summaries, and the end of the input."""

from __future__ import annotations

from pathlib import Path

import pytest

import aexec.compat.v1 as tf
from aexec import errors


def test_session_is_initialised_kept_and_resumed(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    v = tf.get_variable("v", initializer=1.0)
    tf.summary.scalar("v", v)
    more = tf.group(v.assign_add(1.0), step.assign_add(1))
    seen: list[float] = []
    for _ in range(2):
        supervisor = tf.train.Supervisor(logdir=str(tmp_path), init_fn=lambda sess: sess.run(v.assign(5.0)))
        with supervisor.managed_session() as sess:
            assert tf.get_default_session() is sess and supervisor.global_step is step
            seen.append(sess.run(v))
            sess.run(more)
            assert not supervisor.should_stop()  # writes a checkpoint
            supervisor.request_stop()
            assert supervisor.should_stop()
    assert seen == [5.0, 6.0] and tf.train.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-2"
    events = [
        (event.step, event.summary.value[0].simple_value)
        for path in sorted(tmp_path.glob("events*"))
        for event in tf.train.summary_iterator(str(path))
        if event.summary.value
    ]
    assert sorted(events) == [(1, 6.0), (2, 7.0)]


def test_end_of_the_input_ends_the_block() -> None:
    number = tf.train.range_input_producer(3, num_epochs=1, shuffle=False).dequeue()
    supervisor = tf.train.Supervisor(summary_op=None)
    found = []
    with supervisor.managed_session() as sess:
        while not supervisor.should_stop():
            found.append(int(sess.run(number)))
    assert found == [0, 1, 2] and supervisor.save_path is None


def test_other_errors_are_raised_and_clusters_refused() -> None:
    tf.get_variable("v", initializer=1.0)
    supervisor = tf.train.Supervisor()
    with pytest.raises(ValueError, match="mine"), supervisor.managed_session():
        raise ValueError("mine")
    with pytest.raises(RuntimeError, match="requires a summary writer"):
        supervisor.summary_computed(None, b"")
    with pytest.raises(errors.UnimplementedError, match="is_chief"):
        tf.train.Supervisor(is_chief=False)
