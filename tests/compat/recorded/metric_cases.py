"""Cases of metrics of the highest scores and at thresholds, of mean losses, schedules and accumulators.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES"]

_rng = np.random.RandomState(5)
SCORES = _rng.rand(2, 4, 6).astype(np.float32)
LABELS = np.array([[0, 3], [2, 1], [5, 5], [4, 9]], np.int64)
NEAR = np.array([0.1, 0.4, 0.35, 0.8, 1.0, 0.0, 0.7, 0.55], np.float32)
TRUE = np.array([0, 0, 1, 1, 1, 0, 0, 1], np.bool_)
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 1.5, 1.0, 1.0, 0.25], np.float32)


def counted(tf: Any, make: Callable[..., Any], *batches: tuple[Any, ...]) -> Any:
    """The update op's value for each batch, and the final value, of a metric that `make` builds from placeholders."""
    held = [tf.placeholder(np.asarray(part).dtype, np.shape(part)) for part in batches[0]]
    value, update = make(*held)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        found = [sess.run(update, dict(zip(held, batch, strict=True))) for batch in batches]
        return tf.constant(np.array([*found, sess.run(value)], np.float64))


def sparse(tf: Any, labels: Any) -> Any:
    """Labels as a sparse tensor without the negative ones; its last row is empty."""
    kept = np.argwhere(labels >= 0)
    return tf.SparseTensor(kept, labels[tuple(kept.T)], [len(labels) + 1, labels.shape[1]])


AT_K = """precision_at_k recall_at_k average_precision_at_k sparse_precision_at_k
sparse_average_precision_at_k""".split()
SKEWED = np.array([[0, -1], [2, 1], [5, 3]], np.int64)


def at_k(tf: Any, name: str, **settings: Any) -> Any:
    """A metric of two batches."""
    batches = [(LABELS, SCORES[0]), (LABELS[::-1], SCORES[1])]
    return counted(tf, lambda labels, scores: getattr(tf.metrics, name)(labels, scores, 3, **settings), *batches)


def of_sparse(tf: Any, name: str, **settings: Any) -> Any:
    """A metric whose labels are sparse."""
    labels = sparse(tf, SKEWED)
    return counted(tf, lambda scores: getattr(tf.metrics, name)(labels, scores, 4, **settings), (SCORES[0],))


def full(tf: Any) -> Any:
    """Sparse labels with a label in each row; one label is not a class id."""
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0], [2, 1], [3, 0]], tf.constant([0, 3, 9, 5, 4], tf.int64), [4, 2])


def noise(tf: Any) -> Any:
    """The rounded standard deviation of the noise that is added at two steps."""
    rates = [tf.train.noisy_linear_cosine_decay(1.0, step, 10, 4.0, 1.0, num_periods=0.0, beta=0.0) for step in (0, 3)]
    with tf.Session() as sess:
        found = np.array([sess.run(rates) for _ in range(400)])
    return tf.constant(np.round(found.std(0)).astype(np.int32))


def accumulated(tf: Any) -> Any:
    """The results of an accumulator that is given gradients of several steps, stale ones too."""
    held = tf.placeholder(tf.float32, [2])
    step = tf.placeholder(tf.int64, [])
    kept = tf.ConditionalAccumulator(tf.float32, shape=[2])
    total = tf.ConditionalAccumulator(tf.float32, shape=[2], reduction_type="SUM", name="total")
    applied = tf.group(kept.apply_grad(held, step), total.apply_grad(held, step))
    taken, counts = [kept.take_grad(2), total.take_grad(1)], [kept.num_accumulated(), total.num_accumulated()]
    with tf.Session() as sess:
        found: list[Any] = []
        sess.run(kept.set_global_step(1))
        for number, value in enumerate([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]):
            sess.run(applied, {held: value, step: number})
            found.append(sess.run(counts))
        found.extend(sess.run(taken))
        found.append(sess.run(counts))
    names = [kept.name, total.name, kept.dtype.name, kept.num_accumulated().op.name]
    return [tf.constant(np.array(found, np.float64)), tf.constant(names)]


def accumulated_rows(tf: Any) -> list[Any]:
    """The mean of two gradients of rows, by parts and as slices."""
    kept = tf.SparseConditionalAccumulator(tf.float32, shape=[4, 2])
    first = kept.apply_grad([0, 2], [[1.0, 2.0], [3.0, 4.0]], [4, 2])
    slices = tf.IndexedSlices(tf.constant([[5.0, 6.0]]), tf.constant([2], tf.int64), tf.constant([4, 2], tf.int64))
    taken = [kept.take_grad(1), kept.take_indexed_slices_grad(1)]
    with tf.Session() as sess:
        found: list[Any] = []
        for parts in taken:
            sess.run(first)
            sess.run(kept.apply_indexed_slices_grad(slices, local_step=9))
            found.append(sess.run(kept.num_accumulated()))
            parts = sess.run(parts)
            found.extend([parts[0], parts[1]] if isinstance(parts, tuple) and len(parts) == 3 else [])
            sess.run(kept.set_global_step(3))
    return [tf.constant(np.asarray(part)) for part in found]


CASES: dict[str, Callable[[Any], Any]] = {
    **{f"{name} of two batches": lambda tf, name=name: at_k(tf, name) for name in AT_K},
    **{
        f"{name} with weights": lambda tf, name=name: at_k(tf, name, weights=[1.0, 0.0, 2.0, 0.5])
        for name in ("precision_at_k", "recall_at_k", "average_precision_at_k")
    },
    **{
        f"{name} of one class": lambda tf, name=name: at_k(tf, name, class_id=3)
        for name in ("precision_at_k", "recall_at_k")
    },
    **{f"{name} of sparse labels": lambda tf, name=name: of_sparse(tf, name) for name in AT_K[:2]},
    "precision_at_k of one class of sparse labels": lambda tf: of_sparse(tf, "precision_at_k", class_id=1),
    "average_precision_at_k of sparse labels": lambda tf: counted(
        tf, lambda scores: tf.metrics.average_precision_at_k(full(tf), scores, 3), (SCORES[0],)
    ),
    "recall_at_k of one label a row": lambda tf: counted(
        tf, lambda labels, scores: tf.metrics.recall_at_k(labels, scores, 3), (LABELS[:, 0], SCORES[0])
    ),
    **{
        name: lambda tf, name=name: counted(
            tf, lambda labels, top: getattr(tf.metrics, name)(labels, top), (LABELS, np.int32([[0, 1], [2, 5]] * 2))
        )
        for name in ("precision_at_top_k", "recall_at_top_k")
    },
    **{
        f"{name} at {rate}": lambda tf, name=name, rate=rate: counted(
            tf,
            lambda labels, scores: getattr(tf.metrics, name)(labels, scores, rate, num_thresholds=11),
            (TRUE, NEAR),
            (~TRUE, NEAR[::-1]),
        )
        for name in ("sensitivity_at_specificity", "specificity_at_sensitivity")
        for rate in (0.0, 0.4, 0.75, 1.0)
    },
    **{
        f"{name} with weights": lambda tf, name=name: counted(
            tf,
            lambda labels, scores, weights: getattr(tf.metrics, name)(labels, scores, 0.6, weights),
            (TRUE, NEAR, WEIGHTS),
        )
        for name in ("sensitivity_at_specificity", "specificity_at_sensitivity")
    },
    "compute_average_loss": lambda tf: [
        tf.nn.compute_average_loss(SCORES[0]),
        tf.nn.compute_average_loss(SCORES[0], global_batch_size=10),
        tf.nn.compute_average_loss(SCORES[0], sample_weight=[[1.0], [0.0], [2.0], [0.5]]),
        tf.nn.compute_average_loss(SCORES[0], sample_weight=[1.0, 0.0, 2.0, 0.5]),
        tf.nn.compute_average_loss(NEAR, sample_weight=WEIGHTS[:, None], global_batch_size=tf.constant(0)),
        tf.nn.compute_average_loss(NEAR.astype(np.float64), sample_weight=0.5),
    ],
    "scale_regularization_loss": lambda tf: tf.nn.scale_regularization_loss([1.0, 2.5]),
    "noisy_linear_cosine_decay": lambda tf: [
        tf.train.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=0.0, beta=0.25, num_periods=1.5)
        for step in (0, 3, 10, 12)
    ],
    "noise of noisy_linear_cosine_decay": noise,
    "accumulated gradients": accumulated,
    "accumulated gradients of rows": accumulated_rows,
    "QUANTIZED_DTYPES": lambda tf: tf.constant(sorted(kind.name for kind in tf.QUANTIZED_DTYPES)),
}
