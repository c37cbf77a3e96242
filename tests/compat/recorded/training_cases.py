"""Cases of losses, moving averages, and static shapes in training programs.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES"]

X = np.array([[0.3, -1.2], [2.0, 0.7]], np.float32)
WHOLE = [[0, 1], [1, 0]]


def steps(tf: Any, fetch: Any, count: int = 3) -> Any:
    """The values of a tensor in `count` runs, after variables are initialised."""
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return tf.constant(np.array([sess.run(fetch) for _ in range(count)]))


def averaged(tf: Any, value: Any, **settings: Any) -> Any:
    """The average of a tensor or variable in three steps."""
    average = tf.train.ExponentialMovingAverage(0.5, **settings)
    op = average.apply([value])
    with tf.control_dependencies([op]):
        found = tf.identity(average.average(value))
    return steps(tf, found)


_LABELS = {"sigmoid_cross_entropy": "multi_class_labels", "softmax_cross_entropy": "onehot_labels"}
_OF_LOGITS = {"hinge_loss", *_LABELS}
LOSSES = """absolute_difference cosine_distance hinge_loss huber_loss log_loss mean_pairwise_squared_error
mean_squared_error sigmoid_cross_entropy softmax_cross_entropy""".split()


def loss(tf: Any, name: str) -> Any:
    """A loss of whole labels, and of predictions of unknown shape."""
    predictions = tf.placeholder_with_default(np.float32([[0.2, 0.7], [0.4, 0.1]]), None)
    given = {_LABELS.get(name, "labels"): tf.constant(WHOLE)}
    given["logits" if name in _OF_LOGITS else "predictions"] = predictions
    return getattr(tf.losses, name)(**given, **({"axis": 1} if name == "cosine_distance" else {}))


CASES: dict[str, Callable[[Any], Any]] = {
    "softmax_cross_entropy_with_logits of whole labels": lambda tf: [
        tf.nn.softmax_cross_entropy_with_logits(labels=tf.constant(WHOLE), logits=X),
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.constant(WHOLE), logits=X),
    ],
    "softmax_cross_entropy_with_logits of float64 labels": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=tf.constant([[0.5, 0.5], [1, 0]], tf.float64), logits=X
    ),
    "softmax_cross_entropy_with_logits of labels in a list": lambda tf: tf.nn.softmax_cross_entropy_with_logits(
        labels=[tf.constant([[0.0, 1.0], [1.0, 0.0]])], logits=X
    ),
    "softmax_cross_entropy_with_logits of a vector": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=[0, 1], logits=X[0]
    ),
    "softmax_cross_entropy_with_logits along axis 0": lambda tf: tf.nn.softmax_cross_entropy_with_logits_v2(
        labels=tf.constant(WHOLE), logits=X, axis=0
    ),
    "softmax_cross_entropy_with_logits of rank 3": lambda tf: tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.constant([WHOLE, WHOLE]), logits=np.stack([X, -X])
    ),
    "softmax_cross_entropy_with_logits of unknown rank": lambda tf: tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.constant(WHOLE), logits=tf.placeholder_with_default(X, None)
    ),
    **{f"{name} of whole labels": lambda tf, name=name: loss(tf, name) for name in LOSSES},
    "average of a tensor": lambda tf: averaged(tf, tf.constant([2.0, 4.0])),
    "average of a tensor, its bias taken off": lambda tf: averaged(tf, tf.constant([2.0]), zero_debias=True),
    "average of a tensor of unknown shape": lambda tf: averaged(tf, tf.placeholder_with_default([2.0], [None])),
    "average of a variable": lambda tf: averaged(tf, tf.Variable([2.0]), zero_debias=True),
    "shape of dropout": lambda tf: tf.constant(
        tf.nn.dropout(X, rate=tf.placeholder_with_default(0.5, None)).shape.as_list()
    ),
    "shapes of losses and sums": lambda tf: tf.constant(
        [loss(tf, name).shape.ndims for name in LOSSES] + [tf.reduce_sum(tf.placeholder(tf.float32)).shape.ndims]
    ),
    "shape of a choice by an unknown scalar": lambda tf: tf.constant(
        tf.where(tf.placeholder_with_default(True, None), X, X).shape.as_list()
    ),
}
