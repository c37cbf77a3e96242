"""`tf.lookup` and `tf.contrib.lookup`: tables of given keys, of files, and with buckets for other words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

lookup = tf.lookup


def value(*tensors: Any) -> Any:
    """The value of a tensor in a new session, after the tables are initialised."""
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        return [found.tolist() for found in map(np.asarray, sess.run(tensors))]


def test_table_of_given_keys() -> None:
    init = lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], tf.string, tf.int64)
    table = lookup.StaticHashTable(init, -1)
    sparse = table.lookup(tf.SparseTensor([[0, 1]], ["b"], [1, 2]))
    found = value(table.lookup([["b", "c"]]), table.size(), table[tf.constant("a")], sparse.values)
    assert found == [[[2, -1]], 2, 1, [2]] and table.init is table.initializer
    with pytest.raises(TypeError, match="must be"):
        table.lookup(tf.constant([1]))


def test_words_that_are_not_there_get_buckets() -> None:
    init = lookup.KeyValueTensorInitializer(["a", "b"], np.arange(2))
    table = lookup.StaticVocabularyTable(init, 3)
    number, bucket, size = value(table.lookup(["b", "x"]), tf.string_to_hash_bucket_fast(["x"], 3), table.size())
    assert number == [1, 2 + bucket[0]] and size == 5
    assert value(lookup.StaticVocabularyTable(None, 3).lookup(["x"])) == [bucket]
    with pytest.raises(ValueError, match="must be > 0"):
        lookup.StaticVocabularyTable(init, 0)


def test_lines_of_a_file_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a\tx\nb\ty\n")
    init = lookup.TextFileInitializer(str(path), tf.string, 0, tf.string, 1)
    table = lookup.StaticHashTable(init, "none")
    numbers = tf.contrib.lookup.index_table_from_file(str(path), key_column_index=0)
    words = tf.contrib.lookup.index_to_string_table_from_file(str(path), vocab_size=1)
    found = value(table.lookup(["b", "c"]), numbers.lookup(["b", "c"]), words.lookup(tf.constant([0, 1], tf.int64)))
    assert found == [[b"y", b"none"], [1, -1], [b"a\tx", b"UNK"]]
    assert len(tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)) == 3


def test_tables_of_lists() -> None:
    numbers = tf.contrib.lookup.index_table_from_tensor(["a", "b"])
    buckets = tf.contrib.lookup.index_table_from_tensor(tf.constant(["a", "b"]), num_oov_buckets=1)
    words = tf.contrib.lookup.index_to_string_table_from_tensor(["a", "b"])
    ids = tf.contrib.lookup.index_table_from_tensor([7, 9], dtype=tf.int64)
    found = value(
        numbers.lookup(["b", "c"]),
        buckets.lookup(["b", "c"]),
        words.lookup(tf.constant([1, 2], tf.int64)),
        ids.lookup(tf.constant([9], tf.int64)),
    )
    assert found == [[1, -1], [1, 2], [b"b", b"UNK"], [1]]


def test_mutable_table_is_changed_by_operations() -> None:
    table = lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    insert, remove = table.insert(["a", "b"], [1, 2]), table.remove(["a"])
    with tf.Session() as sess:
        sess.run(insert)
        assert sess.run(table.lookup(["a"])).tolist() == [1]
        sess.run(remove)
        assert [one.tolist() for one in sess.run(table.export())] == [[b"b"], [2]] and sess.run(table.size()) == 1
