"""Examples as tensors, and readers of files; the expected values are TensorFlow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf


def example(words: list[bytes], pairs: list[float]) -> bytes:
    made = tf.train.Example()
    made.features.feature["words"].bytes_list.value.extend(words)
    made.features.feature["pairs"].float_list.value.extend(pairs)
    return made.SerializeToString()


EXAMPLES = [example([b"a"], [1, 2]), example([b"a", b"b", b"c"], [1, 2, 3, 4]), b""]
FEATURES: dict[str, Any] = {
    "words": tf.FixedLenSequenceFeature([], tf.string, allow_missing=True),
    "pairs": tf.FixedLenSequenceFeature([2], tf.float32, allow_missing=True, default_value=-1.0),
    "none": tf.io.FixedLenSequenceFeature([1], tf.int64, True),
}


def test_sequences_of_examples_are_padded() -> None:
    found = tf.parse_example(EXAMPLES, FEATURES)
    assert (found["words"].shape.as_list(), found["pairs"].shape.as_list()) == ([3, None], [3, None, 2])
    with tf.Session() as sess:
        values = {name: value.tolist() for name, value in sess.run(found).items()}
    assert values["words"] == [[b"a", b"", b""], [b"a", b"b", b"c"], [b"", b"", b""]]
    assert values["pairs"] == [[[1, 2], [-1, -1]], [[1, 2], [3, 4]], [[-1, -1], [-1, -1]]]
    assert values["none"] == [[], [], []]


def test_sequences_of_one_example() -> None:
    found = tf.parse_single_example(EXAMPLES[1], FEATURES)
    assert (found["words"].shape.as_list(), found["pairs"].shape.as_list()) == ([None], [None, 2])
    with tf.Session() as sess:
        values = {name: value.tolist() for name, value in sess.run(found).items()}
    assert values == {"words": [b"a", b"b", b"c"], "pairs": [[1, 2], [3, 4]], "none": []}


def test_sequence_that_may_not_be_missing_is_refused() -> None:
    with pytest.raises(ValueError, match="allow_missing"):
        tf.parse_example(EXAMPLES, {"words": tf.FixedLenSequenceFeature([], tf.string)})


def test_batches_of_unknown_sizes_are_padded(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1 2\n3\n4 5 6\n")
    queue = tf.train.string_input_producer([str(tmp_path / "lines")], num_epochs=1)
    reader = tf.TextLineReader()
    words = tf.string_split([reader.read(queue)[1]]).values
    batch = tf.train.batch([words], 3, dynamic_pad=True, allow_smaller_final_batch=True)
    assert batch.shape.as_list() == [None, None]
    coord = tf.train.Coordinator()
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        threads = tf.train.start_queue_runners(sess, coord)
        assert sess.run(batch).tolist() == [[b"1", b"2", b""], [b"3", b"", b""], [b"4", b"5", b"6"]]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(batch)
        assert sess.run([reader.num_records_produced(), reader.num_work_units_completed()]) == [3, 1]
        coord.request_stop()
        coord.join(threads)
