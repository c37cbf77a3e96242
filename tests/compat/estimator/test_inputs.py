"""`tf.estimator.inputs`: batches of arrays and of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf


def batches(input_fn: Any, most: int = 20) -> list[Any]:
    fetches = input_fn()
    found = []
    with tf.Session() as sess:
        try:
            while len(found) < most:
                found.append(sess.run(fetches))
        except tf.errors.OutOfRangeError:
            pass
    return found


def test_batches_go_on_across_epochs() -> None:
    x = np.arange(5, dtype=np.int32)
    found = batches(tf.estimator.inputs.numpy_input_fn({"x": x}, 10 * x, batch_size=4, num_epochs=2, shuffle=False))
    assert [features["x"].tolist() for features, _ in found] == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    assert [labels.tolist() for _, labels in found] == [[0, 10, 20, 30], [40, 0, 10, 20], [30, 40]]


def test_kinds_of_values() -> None:
    x = {"a": np.ones((3, 2), np.float32), "b": np.array(["u", "v", "w"])}
    fetches = tf.estimator.inputs.numpy_input_fn(x, {"y": np.arange(3)}, shuffle=False)()
    assert fetches[0]["a"].shape.as_list() == [None, 2] and fetches[0]["b"].dtype == tf.string
    features, labels = batches(lambda: fetches)[0]
    assert features["b"].tolist() == [b"u", b"v", b"w"] and labels["y"].tolist() == [0, 1, 2]


def test_array_alone_without_labels() -> None:
    found = batches(tf.estimator.inputs.numpy_input_fn(np.arange(3.0), batch_size=2, shuffle=False))
    assert [batch.tolist() for batch in found] == [[0, 1], [2]]


def test_shuffled_rows_stay_together() -> None:
    x = np.arange(40)
    tf.set_random_seed(3)
    found = batches(tf.estimator.inputs.numpy_input_fn({"x": x}, x + 1, batch_size=10, shuffle=True))
    rows = np.concatenate([features["x"] for features, _ in found])
    assert sorted(rows.tolist()) == x.tolist() != rows.tolist()
    assert np.concatenate([labels for _, labels in found]).tolist() == (rows + 1).tolist()


def test_arrays_are_not_in_the_graph() -> None:
    tf.estimator.inputs.numpy_input_fn({"x": np.zeros(100_000)}, shuffle=False)()
    assert tf.get_default_graph().as_graph_def().ByteSize() < 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({"x": np.zeros(2)},), "shuffle must be provided and explicitly set as boolean"),
        (({}, None, 128, 1, True), "x cannot be an empty dict"),
        (([1.0], None, 128, 1, True), "x must be a dict or array; got list"),
        (({"x": np.zeros(2)}, {}, 128, 1, True), "y cannot be empty dict"),
        (({"x": np.zeros(2)}, np.zeros(3), 128, 1, True), "Length of tensors in x and y is mismatched"),
    ],
)
def test_wrong_arrays_are_refused(arguments: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        tf.estimator.inputs.numpy_input_fn(*arguments)


class TestPandas:
    def test_columns_are_features(self) -> None:
        pandas = pytest.importorskip("pandas")
        x = pandas.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]})
        y = pandas.Series([0, 1], name="y")
        ((features, labels),) = batches(tf.estimator.inputs.pandas_input_fn(x, y, shuffle=False))
        assert features["a"].tolist() == [1, 2] and features["b"].tolist() == [b"u", b"v"]
        assert labels.tolist() == [0, 1]
        ((features, labels),) = batches(tf.estimator.inputs.pandas_input_fn(x, x[["a"]], shuffle=False))
        assert labels["a"].tolist() == [1, 2]

    def test_wrong_tables_are_refused(self) -> None:
        pandas = pytest.importorskip("pandas")
        x = pandas.DataFrame({"target": [1.0, 2.0]})
        with pytest.raises(TypeError, match=r"x must be a pandas\.DataFrame"):
            tf.estimator.inputs.pandas_input_fn({"a": [1]}, shuffle=False)
        with pytest.raises(ValueError, match="Index for x and y are mismatched"):
            tf.estimator.inputs.pandas_input_fn(x, pandas.Series([1, 2], index=[3, 4]), shuffle=False)
        with pytest.raises(ValueError, match="Cannot use name target for target column"):
            tf.estimator.inputs.pandas_input_fn(x, pandas.Series([1, 2]), shuffle=False)
