"""`tf.contrib.metrics`: predictions come first."""

from __future__ import annotations

import pytest

import aexec.compat.v1 as tf

metrics = tf.contrib.metrics


def test_streaming_metrics_take_predictions_first() -> None:
    predictions, labels = tf.constant([1.0, 1.0, 0.0, 1.0]), tf.constant([1.0, 0.0, 0.0, 1.0])
    values, updates = metrics.aggregate_metric_map(
        {
            "precision": metrics.streaming_precision(predictions, labels),
            "recall": metrics.streaming_recall(predictions, labels),
            "false": metrics.streaming_false_positives(predictions, labels),
            "mean": metrics.streaming_mean(predictions),
        }
    )
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        sess.run(updates)
        found = sess.run(values)
    assert {name: round(float(value), 3) for name, value in found.items()} == {
        "precision": 0.667,
        "recall": 1.0,
        "false": 1.0,
        "mean": 0.75,
    }
    assert tf.contrib.slim.metrics is metrics


def test_metrics_are_aggregated_in_order() -> None:
    assert metrics.aggregate_metrics((1, 2), (3, 4)) == ([1, 3], [2, 4])
    with pytest.raises(ValueError, match="at least one"):
        metrics.aggregate_metrics()


def test_accuracy_of_one_run_may_be_weighted() -> None:
    plain = metrics.accuracy([1, 2, 3], [1, 2, 4])
    weighted = metrics.accuracy([1, 2, 3], [1, 2, 4], weights=[1.0, 1.0, 2.0])
    with tf.Session() as sess:
        assert sess.run([plain, weighted]) == pytest.approx([2 / 3, 0.5])
