"""`tf.contrib.data`, and the parts of `tf.data.experimental` that no recorded pipeline covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors
from tests.data.programs import elements


def of(make: Any) -> list[Any]:
    """The elements of a dataset that `make` builds in a new graph, read in a new session."""
    with tf.Graph().as_default(), tf.Session() as sess:
        return elements(tf, sess, make(tf.data.Dataset))


def test_sliding_windows_are_batches() -> None:
    windows = of(lambda d: d.range(6).apply(tf.contrib.data.sliding_window_batch(3, window_shift=2)))
    assert [one.tolist() for one in windows] == [[0, 1, 2], [2, 3, 4]]
    pairs = of(
        lambda d: d.zip((d.range(4), d.range(4))).apply(tf.contrib.data.sliding_window_batch(2, window_stride=2))
    )
    assert [[part.tolist() for part in one] for one in pairs] == [[[0, 2], [0, 2]], [[1, 3], [1, 3]]]
    with pytest.raises(ValueError, match="both"):
        tf.contrib.data.sliding_window_batch(2, 1, 1)


def test_batches_that_are_not_full_are_dropped() -> None:
    assert len(of(lambda d: d.range(5).apply(tf.contrib.data.batch_and_drop_remainder(2)))) == 2
    padded = tf.contrib.data.padded_batch_and_drop_remainder(2, [None])
    found = of(lambda d: d.range(1, 6).map(lambda x: tf.fill([x], x)).apply(padded))
    assert [one.tolist() for one in found] == [[[1, 0], [2, 2]], [[3, 3, 3, 0], [4, 4, 4, 4]]]


def test_asserted_shapes_are_known_and_checked() -> None:
    def rows(d: Any) -> Any:
        made = d.range(1, 3).map(lambda x: {"a": tf.fill([x], x), "b": x})
        known = made.apply(tf.contrib.data.assert_element_shape({"a": [1], "b": []}))
        assert known.output_shapes["a"].as_list() == [1]
        return known

    found = of(rows)
    assert found[0]["a"].tolist() == [1] and found[1] == "InvalidArgumentError"
    with tf.Graph().as_default(), pytest.raises(TypeError, match="only for tensors"):
        tf.data.Dataset.range(3).window(2).apply(tf.contrib.data.assert_element_shape([]))


def test_dataset_is_reduced_to_one_value() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        reducer = tf.contrib.data.Reducer(lambda _: np.int64(0), lambda s, x: s + x, lambda s: s * 10)
        assert sess.run(tf.contrib.data.reduce_dataset(tf.data.Dataset.range(5), reducer)) == 100


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Write two files with two Examples each; return a pattern that matches them."""
    for number in range(2):
        with tf.python_io.TFRecordWriter(str(tmp_path / f"{number}.tfrecord")) as writer:
            for place in range(2):
                value = tf.train.Int64List(value=[10 * number + place])
                features = {key: tf.train.Feature(int64_list=value) for key in ("x", "label")}
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return str(tmp_path / "*.tfrecord")


FEATURES = {"x": tf.FixedLenFeature([], tf.int64), "label": tf.FixedLenFeature([], tf.int64)}


def test_examples_of_files_are_batched_with_their_labels(files: str) -> None:
    make = tf.data.experimental.make_batched_features_dataset
    found = of(lambda _: make(files, 3, FEATURES, label_key="label", num_epochs=1, shuffle=False))
    assert [(x["x"].tolist(), label.tolist()) for x, label in found] == [([0, 1, 10],) * 2, ([11],) * 2]
    shuffled = of(lambda _: make(files, 4, FEATURES, num_epochs=2, shuffle_seed=1, reader_num_threads=-1))
    assert sorted(np.concatenate([one["x"] for one in shuffled]).tolist()) == [0, 0, 1, 1, 10, 10, 11, 11]
    with tf.Graph().as_default(), pytest.raises(ValueError, match="must be one of the `features`"):
        make(files, 3, FEATURES, label_key="y")


def test_batch_of_features_is_read(files: str) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        batch = tf.contrib.data.read_batch_features(files, 3, FEATURES, randomize_input=False)
        assert sess.run(batch)["label"].tolist() == [0, 1, 10]


def test_calls_at_once_are_said_in_one_way() -> None:
    batch = tf.data.experimental.map_and_batch
    found = of(lambda d: d.range(4).apply(batch(lambda x: x + 1, 3, num_parallel_batches=2, drop_remainder=True)))
    assert [one.tolist() for one in found] == [[1, 2, 3]]
    with pytest.raises(ValueError, match="only one of"):
        batch(lambda x: x, 3, num_parallel_batches=1, num_parallel_calls=1)


def test_device_other_than_the_cpu_is_refused() -> None:
    assert of(lambda d: d.range(2).apply(tf.data.experimental.prefetch_to_device("/cpu:0"))) == [0, 1]
    with pytest.raises(errors.UnimplementedError, match="device='/gpu:0' is not supported"):
        tf.data.experimental.prefetch_to_device("/gpu:0")


def test_dataset_is_found_by_its_variant() -> None:
    e = tf.data.experimental

    def again(d: Any) -> Any:
        source = d.range(2)
        return e.from_variant(e.to_variant(source), e.get_structure(source))

    assert of(again) == [0, 1]
    assert e.TensorStructure(tf.int32, [2]) == tf.TensorSpec([2], tf.int32)
    assert e.SparseTensorStructure(tf.int32, [2]).dtype is tf.int32
    nested = e.DatasetStructure(e.OptionalStructure(e.TensorStructure(tf.int32, [])))
    assert nested.element_spec.element_spec.dtype is tf.int32
    with pytest.raises(errors.UnimplementedError, match="dataset_shape"):
        e.DatasetStructure(e.TensorStructure(tf.int32, []), [3])


@pytest.mark.parametrize("name", ["data.NumpyIterator", "data.experimental.make_csv_dataset"])
def test_name_that_is_missing_says_what_to_use(name: str) -> None:
    module, _, last = name.rpartition(".")
    found = tf.data if module == "data" else tf.data.experimental
    with pytest.raises(AttributeError, match="use "):
        getattr(found, last)
