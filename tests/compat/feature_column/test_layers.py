"""Layers of feature columns have TensorFlow's values, and its names and shapes of variables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors
from tests.compat.recorded.column_cases import CASES, RAISED, outcome, raised
from tests.compat.recorded.record import as_data

DATA = Path(__file__).parents[1] / "data"

# Of TensorFlow 2.21, in graph mode; `record.py` wrote them.
RECORDED: dict[str, dict[str, Any]] = json.loads((DATA / "columns.json").read_text())
ERRORS: dict[str, list[str]] = json.loads((DATA / "column_errors.json").read_text())


def test_each_case_is_recorded() -> None:
    assert list(RECORDED) == list(CASES)
    assert list(ERRORS) == RAISED


@pytest.mark.parametrize("name", CASES)
def test_layer(name: str) -> None:
    ours, theirs = outcome(tf, CASES[name], as_data), RECORDED[name]
    assert ours["variables"] == theirs["variables"]
    assert [shape[1:] for shape in ours["shapes"]] == [shape[1:] for shape in theirs["shapes"]]
    for found, wanted in zip(ours["values"], theirs["values"], strict=True):
        if isinstance(wanted[0], str):
            assert found == wanted
        else:
            np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-5, atol=1e-5)


# What our own words for an error of an op, or for what TensorFlow says in passing, have in common with its own.
SHORTER = (
    "Cannot reshape a tensor with 2 elements",
    "Duplicate feature column name found for columns",
    "categorical_column_with_hash_bucket is not supported for crossing",
    "combiner must be one of 'mean', 'sqrtn' or 'sum'",
    "To use shared_embedding_column, all categorical_columns must have the same number of buckets.",
    "To use shared_embedding_column, all categorical_columns must have the same type",
    "In indicator_column: i_indicator. categorical_column must not be of type _SequenceCategoricalColumn.",
    "In embedding_column: i_embedding. categorical_column must not be of type _SequenceCategoricalColumn.",
)


def words_of(error: str) -> str:
    """TensorFlow's message without the names of its own types and without the object at the end."""
    shorter = next((start for start in SHORTER if error.startswith(start)), error)
    return re.sub(r"<dtype: '(\w+)'>", r"\1", shorter).replace("dtype=tf.", "dtype=aexec.").partition("Tensor(")[0]


@pytest.mark.parametrize("expression", RAISED)
def test_error(expression: str) -> None:
    kind, words = raised(tf, expression)
    theirs = ERRORS[expression]
    assert kind == theirs[0]
    assert words.startswith(words_of(theirs[1]))


def test_columns_are_values() -> None:
    columns = [tf.feature_column.numeric_column("p", 2) for _ in range(2)]
    assert columns[0] == columns[1] and len({*columns}) == 1


def test_id_out_of_range_fails_in_the_run() -> None:
    column = tf.feature_column.indicator_column(tf.feature_column.categorical_column_with_identity("i", 3))
    made = tf.feature_column.input_layer({"i": [[3]]}, [column])
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match=r"column i must be in \[0, 3\)"):
        session.run(made)


def test_words_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("red\nblue\ngreen\n")
    fc = tf.feature_column
    counted = fc.categorical_column_with_vocabulary_file("s", str(path), num_oov_buckets=1)
    cut = fc.categorical_column_with_vocabulary_file("t", str(path), 2)
    assert counted.num_buckets == 4 and cut.num_buckets == 2
    features = {"s": [["blue", "green"], ["black", ""]], "t": [["green"], ["blue"]]}
    made = fc.input_layer(features, [fc.indicator_column(column) for column in (counted, cut)])
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        assert session.run(made).tolist() == [[0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 1]]


def test_integers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text("30\n10\n")
    fc = tf.feature_column
    column = fc.categorical_column_with_vocabulary_file("n", str(path), default_value=1, dtype=tf.int32)
    made = fc.input_layer({"n": np.array([[30, 7]], np.int32)}, fc.indicator_column(column))
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        assert session.run(made).tolist() == [[1, 1]]


def test_rows_of_a_checkpoint(tmp_path: Path) -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        saved = tf.get_variable("rows", initializer=rows)
        session.run(saved.initializer)
        prefix = tf.train.Saver([saved]).save(session, str(tmp_path / "model"))
    fc = tf.feature_column
    ids = fc.categorical_column_with_identity("i", 2)
    column = fc.embedding_column(ids, 2, ckpt_to_load_from=prefix, tensor_name_in_ckpt="rows")
    made = fc.input_layer({"i": [1, 0]}, [column])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(made).tolist() == rows[::-1].tolist()


def test_linear_model_learns_the_weights_of_words() -> None:
    fc = tf.feature_column
    column = fc.categorical_column_with_vocabulary_list("word", ["a", "b"])
    made = fc.linear_model({"word": [["a"], ["b"], ["a"]]}, [column, fc.numeric_column("x")][:1])
    loss = tf.reduce_mean(tf.square(made - [[3.0], [-1.0], [3.0]]))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for _ in range(50):
            session.run(step)
        np.testing.assert_allclose(session.run(made), [[3.0], [-1.0], [3.0]], atol=1e-3)


def test_column_whose_weights_are_crossed_is_refused() -> None:
    fc = tf.feature_column
    weighted = fc.weighted_categorical_column(fc.categorical_column_with_identity("i", 2), "w")
    crossed = fc.crossed_column([weighted, "s"], 5)
    with pytest.raises(ValueError, match="does not support weight_tensor"):
        fc.linear_model({"i": [[1]], "w": [[1.0]], "s": [["a"]]}, [crossed])


def test_shared_embeddings_are_of_the_second_version() -> None:
    with pytest.raises(AttributeError, match="use shared_embedding_columns"):
        _ = tf.feature_column.shared_embeddings


def sequences_of(*columns: Any, **features: Any) -> Any:
    return tf.contrib.feature_column.sequence_input_layer(features, columns)


def test_columns_of_examples_are_not_of_sequences() -> None:
    fc = tf.feature_column
    ids = fc.categorical_column_with_identity("i", 4)
    with pytest.raises(ValueError, match="must be of type SequenceCategoricalColumn"):
        sequences_of(fc.embedding_column(ids, 2), i=[[1]])
    with pytest.raises(ValueError, match="must be of type _SequenceDenseColumn"):
        sequences_of(fc.numeric_column("p"), p=[[1.0]])
    with pytest.raises(TypeError, match="Input must be a SparseTensor"):
        sequences_of(fc.sequence_numeric_column("p"), p=[[1.0]])


def test_sequences_of_several_lengths_fail_in_the_run() -> None:
    fc = tf.feature_column
    columns = [fc.sequence_numeric_column(key) for key in "pq"]
    long = tf.SparseTensor([[0, 0], [0, 1]], [1.0, 2.0], [1, 2])
    short = tf.SparseTensor([[0, 0]], [1.0], [1, 2])
    made = sequences_of(*columns, p=long, q=short)
    with tf.Session() as session:
        assert session.run(made[0]).tolist() == [[[1, 1], [2, 0]]]
        with pytest.raises(errors.InvalidArgumentError, match="several lengths"):
            session.run(made[1])


def test_layer_of_sequences_feeds_a_recurrent_network() -> None:
    fc = tf.feature_column
    ids = tf.sparse_placeholder(tf.int64, [None, None])
    column = fc.embedding_column(fc.sequence_categorical_column_with_identity("i", 4), 3)
    values, lengths = sequences_of(column, i=ids)
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(5), values, lengths, dtype=tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        given = tf.SparseTensorValue([[0, 0], [0, 1], [1, 0]], [3, 1, 2], [2, 2])
        found = session.run(outputs, {ids: given})
    assert found.shape == (2, 2, 5) and not found[1, 1].any() and found[0, 1].all()
