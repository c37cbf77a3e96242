"""`tf.train.SessionManager`: restores and initialises sessions, and waits for checkpoints and ready models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec import errors
from aexec.compat.v1.running import session_manager
from tests.support.stand_ins.replacing import replace_in


@pytest.fixture
def value() -> Any:
    return tf.get_variable("v", initializer=1.0)


def saved(folder: Path, value: Any, number: float) -> tf.train.Saver:
    """A checkpoint in a folder, of a variable with a value."""
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(value.assign(number))
        saver.save(sess, str(folder / "model"), 7)
    return tf.train.Saver()


def test_session_is_initialised_if_there_is_no_checkpoint(tmp_path: Path, value: Any) -> None:
    held = tf.placeholder(tf.float32, [])
    ready = tf.report_uninitialized_variables([value])
    manager = tf.train.SessionManager(ready_op=ready)
    called: list[Any] = []
    with manager.prepare_session(
        "",
        value.assign(held),
        tf.train.Saver(),
        str(tmp_path),
        init_feed_dict={held: 3.0},
        init_fn=lambda session: called.append(session.run(value)),
    ) as sess:
        assert sess.run(value) == 3.0 and called == [3.0]


def test_session_is_restored_from_a_checkpoint(tmp_path: Path, value: Any) -> None:
    local = tf.get_variable("w", initializer=2.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    saver = saved(tmp_path, value, 5.0)
    manager = tf.train.SessionManager(
        local_init_op=tf.local_variables_initializer(), ready_op=tf.report_uninitialized_variables()
    )
    with manager.prepare_session("", saver=saver, checkpoint_dir=str(tmp_path)) as sess:
        assert sess.run([value, local]) == [5.0, 2.0]
    assert [Path(path).name for path in saver.last_checkpoints] == ["model-7"]
    path = str(tmp_path / "model-7")
    with manager.prepare_session("", saver=saver, checkpoint_filename_with_path=path) as sess:
        assert sess.run(value) == 5.0
    session, is_ready = manager.recover_session("", saver, str(tmp_path))
    with session:
        assert is_ready and session.run(value) == 5.0


def test_session_without_a_checkpoint_is_not_recovered(tmp_path: Path, value: Any) -> None:
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    session, is_ready = manager.recover_session("", tf.train.Saver(), str(tmp_path))
    session.close()
    assert not is_ready


def test_checkpoint_is_waited_for(tmp_path: Path, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    savers: list[Any] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            savers.append(saved(tmp_path, value, 6.0))

    replace_in(monkeypatch, session_manager, "time", sleep=sleep)
    saver = tf.train.Saver()
    manager = tf.train.SessionManager(recovery_wait_secs=5)
    session, is_ready = manager.recover_session("", saver, str(tmp_path), wait_for_checkpoint=True)
    with session:
        assert is_ready and waits == [5, 5] and session.run(value) == 6.0


def test_wait_for_a_checkpoint_ends(tmp_path: Path, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    replace_in(monkeypatch, session_manager, "time", sleep=waits.append)
    manager = tf.train.SessionManager(recovery_wait_secs=5)
    session, is_ready = manager.recover_session(
        "", tf.train.Saver(), str(tmp_path), wait_for_checkpoint=True, max_wait_secs=12
    )
    session.close()
    assert not is_ready and waits == [5, 5, 5]


def test_model_that_is_ready_is_waited_for(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of a process do not share variables, so a model that this session has not initialised is never ready."""
    now, waits = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    replace_in(monkeypatch, session_manager, "time", sleep=sleep)
    replace_in(monkeypatch, session_manager, "time", monotonic=lambda: now[0])
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=4)
    with pytest.raises(errors.DeadlineExceededError, match="not ready after waiting 10 secs"):
        manager.wait_for_session("", max_wait_secs=10)
    assert waits == [4, 4]
    tf.train.SessionManager(local_init_op=value.initializer).wait_for_session("").close()


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        ({}, {}, "no init_op or init_fn or local_init_op was given"),
        ({"ready_op": "all"}, {"init_fn": print}, "did not make model ready.*Variables not initialized: v"),
        ({"ready_for_local_init_op": "all", "local_init_op": "none"}, {}, "ready for local_init.*not initialized: v"),
    ],
)
def test_model_that_is_not_ready_is_refused(
    value: Any, settings: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    ops = {"all": tf.report_uninitialized_variables([value]), "none": tf.no_op()}
    manager = tf.train.SessionManager(**{name: ops[which] for name, which in settings.items()})
    with pytest.raises(RuntimeError, match=words):
        manager.prepare_session("", **arguments)


def test_arguments_are_checked(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match="must also pass a local_init_op"):
        tf.train.SessionManager(ready_for_local_init_op=tf.no_op())
    with pytest.raises(ValueError, match="both checkpoint_dir and checkpoint_filename_with_path"):
        tf.train.SessionManager().prepare_session(
            "", saver=tf.train.Saver(), checkpoint_dir="a", checkpoint_filename_with_path="b"
        )
