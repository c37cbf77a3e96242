"""`tf.train.warm_start`: variables start with another model's values, matched by name or by vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

OLD = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A checkpoint of `embedding`, for the words a, b, c, d, and of `dense/w`."""
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.get_variable("embedding", initializer=OLD)
        with tf.variable_scope("dense"):
            tf.get_variable("w", initializer=[1.0, 2.0])
        sess.run(tf.global_variables_initializer())
        path: str = tf.train.Saver().save(sess, str(tmp_path / "model"))
    for name, words in (("old", "a b c d"), ("new", "d x a")):
        (tmp_path / f"{name}.txt").write_text("\n".join(words.split()) + "\n")
    return path


def begun(*variables: Any) -> list[Any]:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return [value.tolist() for value in sess.run(list(variables))]


def test_variables_are_chosen_by_pattern_name_or_themselves(saved: str) -> None:
    with tf.variable_scope("dense"):
        w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    renamed = tf.get_variable("table", [4, 2], initializer=tf.zeros_initializer())
    other = tf.get_variable("other", [1], initializer=tf.zeros_initializer())
    tf.train.warm_start(saved, ["dense/.*", renamed], var_name_to_prev_var_name={"table": "embedding"})
    assert begun(w, renamed, other) == [[1, 2], OLD.tolist(), [0]]


def test_scope_is_a_pattern(saved: str) -> None:
    with tf.variable_scope("dense"):
        w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    tf.train.warm_start(saved, "dense")
    tf.train.warm_start(saved, None)
    assert begun(w) == [[1, 2]]


@pytest.mark.parametrize("backup", [None, tf.ones_initializer()])
def test_rows_follow_their_words(saved: str, tmp_path: Path, backup: Any) -> None:
    table = tf.get_variable("embedding", [4, 2], initializer=tf.zeros_initializer())
    vocabulary = tf.train.VocabInfo(str(tmp_path / "new.txt"), 3, 1, str(tmp_path / "old.txt"), -1, backup)
    tf.train.warm_start(saved, var_name_to_vocab_info={"embedding": vocabulary})
    new = 0.0 if backup is None else 1.0
    assert begun(table) == [[[6, 7], [new, new], [0, 1], [new, new]]]


def test_columns_may_be_words(saved: str, tmp_path: Path) -> None:
    table = tf.get_variable("embedding", [4, 2], initializer=tf.zeros_initializer())
    (tmp_path / "ab.txt").write_text("a\nb\n")
    (tmp_path / "ba.txt").write_text("b\na\n")
    vocabulary = tf.train.VocabInfo(str(tmp_path / "ba.txt"), 2, 0, str(tmp_path / "ab.txt"), axis=1)
    tf.train.warm_start(saved, var_name_to_vocab_info={"embedding": vocabulary})
    assert begun(table) == [OLD[:, ::-1].tolist()]


def test_wrong_names_are_refused(saved: str, tmp_path: Path) -> None:
    tf.get_variable("embedding", [4, 2])
    vocabulary = tf.train.VocabInfo(str(tmp_path / "new.txt"), 3, 5, str(tmp_path / "old.txt"))
    with pytest.raises(ValueError, match="has 4 rows, and its vocabulary 3 and 5"):
        tf.train.warm_start(saved, var_name_to_vocab_info={"embedding": vocabulary})
    with pytest.raises(ValueError, match="not warm-started: none"):
        tf.train.warm_start(saved, var_name_to_prev_var_name={"none": "x"})
    tf.get_variable("new", [4, 2])
    with pytest.raises(ValueError, match="new is not found"):
        tf.train.warm_start(saved, "new", var_name_to_vocab_info={"new": vocabulary._replace(num_oov_buckets=1)})
