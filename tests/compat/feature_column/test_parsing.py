"""Parsing configurations of canned estimators: the features of columns, a label and a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.feature_column.parsing import classifier_parse_example_spec, regressor_parse_example_spec

COLUMNS = [
    tf.feature_column.numeric_column("p"),
    tf.feature_column.categorical_column_with_identity("i", 3),
]
FEATURES = {"p": tf.FixedLenFeature((1,), tf.float32), "i": tf.VarLenFeature(tf.int64)}


def test_classifier_reads_a_label() -> None:
    found = classifier_parse_example_spec(COLUMNS, "y", tf.string, "none")
    assert found == {**FEATURES, "y": tf.FixedLenFeature((1,), tf.string, "none")}


def test_regressor_reads_a_label_and_a_weight() -> None:
    found = regressor_parse_example_spec(COLUMNS, "y", label_dimension=2, weight_column="w")
    label, weight = tf.FixedLenFeature((2,), tf.float32), tf.FixedLenFeature((1,), tf.float32)
    assert found == {**FEATURES, "y": label, "w": weight}


@pytest.mark.parametrize("function", [classifier_parse_example_spec, regressor_parse_example_spec])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"label_key": "p"}, "label should not be used as feature"),
        ({"label_key": "y", "weight_column": "y"}, "weight_column should not be used as feature"),
        ({"label_key": "y", "weight_column": COLUMNS[1]}, "should be an instance of tf.feature_column.numeric_column"),
    ],
)
def test_label_and_weight_are_no_features(function: Callable[..., Any], given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        function(COLUMNS, **given)


def test_examples_are_parsed() -> None:
    example = tf.train.Example()
    example.features.feature["p"].float_list.value[:] = [2.0]
    example.features.feature["y"].int64_list.value[:] = [1]
    spec = classifier_parse_example_spec(
        COLUMNS, "y", weight_column=tf.feature_column.numeric_column("w", default_value=1)
    )
    with tf.Session() as session:
        found = session.run(tf.parse_example([example.SerializeToString()], spec))
    assert [found[name].tolist() for name in "pyw"] == [[[2]], [[1]], [[1]]]
