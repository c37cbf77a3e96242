"""A model for tests of estimators: y = w x + b, by gradient descent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import aexec.compat.v1 as tf

XS = np.arange(8, dtype=np.float32)
YS = 2 * XS - 1


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    x = features["x"]
    w = tf.get_variable("w", initializer=0.5)
    b = tf.get_variable("b", initializer=0.0)
    y = w * x + b
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y, "twice": 2 * y})
    loss = tf.losses.mean_squared_error(labels, y)
    step = tf.train.get_global_step()
    train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    metrics = {"mae": tf.metrics.mean_absolute_error(labels, y)}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def input_fn(epochs: int | None = None, rows: int = 8) -> Any:
    """An input_fn with batches of four rows."""
    return tf.estimator.inputs.numpy_input_fn(
        {"x": XS[:rows]}, YS[:rows], batch_size=4, num_epochs=epochs, shuffle=False
    )


def estimator(folder: Path, model: Any = model_fn, **settings: Any) -> Any:
    return tf.estimator.Estimator(model, model_dir=str(folder), config=tf.estimator.RunConfig(**settings))


def after(steps: int) -> tuple[np.float32, np.float32]:
    """The values of w and b after a number of steps, computed with NumPy."""
    w, b = np.float32(0.5), np.float32(0)
    for number in range(steps):
        x, y = (values[4 * (number % 2) :][:4] for values in (XS, YS))
        error = w * x + b - y
        w, b = w - np.float32(0.02) * np.mean(error * x), b - np.float32(0.02) * np.mean(error)
    return w, b


def events(folder: Path) -> list[Any]:
    return [
        event for path in sorted(folder.glob("events.out.tfevents.*")) for event in tf.train.summary_iterator(str(path))
    ]
