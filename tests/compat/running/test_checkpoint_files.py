"""Files of checkpoints by TensorFlow's functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import aexec.compat.v1 as tf
from aexec import errors


def test_state_names_checkpoints_that_are_iterated_and_removed(tmp_path: Path) -> None:
    tf.get_variable("v", [])
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first, second = (saver.save(sess, str(tmp_path / "model"), number) for number in (1, 2))
    assert len(tf.train.get_checkpoint_mtimes([first, second, str(tmp_path / "none")])) == 2
    found = tf.train.checkpoints_iterator(str(tmp_path), timeout=0.05)
    assert next(found) == second
    tf.train.update_checkpoint_state(str(tmp_path), first, [second])
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state is not None and list(state.all_model_checkpoint_paths) == [second, first]
    assert next(found) == first and next(found, None) is None
    tf.train.remove_checkpoint(second)
    assert not tf.train.checkpoint_exists(second) and tf.train.checkpoint_exists(first)
    with pytest.raises(errors.UnimplementedError, match="meta_graph_suffix"):
        tf.train.remove_checkpoint(first, meta_graph_suffix="other")


def test_iterator_asks_whether_to_go_on(tmp_path: Path) -> None:
    asked: list[int] = []

    def enough() -> bool:
        asked.append(1)
        return len(asked) == 2

    assert list(tf.train.checkpoints_iterator(str(tmp_path), timeout=0.01, timeout_fn=enough)) == []
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("folder", "latest", "others", "wanted"),
    [
        ("dir", "dir/m-2", ["dir/m-1", "dir/m-2"], ["m-1", "m-2"]),
        ("/abs", "/abs/m-2", ["m-1"], ["m-1", "/abs/m-2"]),
        ("dir", "/x/m-2", None, ["/x/m-2"]),
    ],
)
def test_state_has_paths_relative_to_a_relative_folder(
    folder: str, latest: str, others: list[str] | None, wanted: list[str]
) -> None:
    """TensorFlow's answers."""
    state = tf.train.generate_checkpoint_state_proto(folder, latest, others)
    assert list(state.all_model_checkpoint_paths) == wanted and state.model_checkpoint_path == wanted[-1]


def test_state_has_a_time_for_each_path() -> None:
    state = tf.train.generate_checkpoint_state_proto("d", "d/m", None, [2.5], 9.0)
    assert list(state.all_model_checkpoint_timestamps) == [2.5] and state.last_preserved_timestamp == 9.0
    with pytest.raises(ValueError, match="must match checkpoint paths"):
        tf.train.generate_checkpoint_state_proto("d", "m", ["m"], [1.0, 2.0])
