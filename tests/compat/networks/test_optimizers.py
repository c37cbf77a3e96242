"""Optimisers whose numbers are functions, with TensorFlow's values after a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

# Of TensorFlow 2.21: [1, 2] after a step of 0.1 down the sum of the squares.
AFTER: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "GradientDescent": (tf.train.GradientDescentOptimizer, [0.8, 1.6]),
    "Momentum": (lambda rate: tf.train.MomentumOptimizer(rate, lambda: 0.9), [0.8, 1.6]),
    "Adam": (lambda rate: tf.train.AdamOptimizer(rate, beta1=lambda: 0.9), [0.9, 1.9]),
    "RMSProp": (tf.train.RMSPropOptimizer, [0.8245884, 1.7470179]),
    "Adagrad": (tf.train.AdagradOptimizer, [0.90122706, 1.900311]),
    "Adadelta": (tf.train.AdadeltaOptimizer, [0.9999553, 1.9999553]),
}


@pytest.mark.parametrize("name", AFTER)
def test_numbers_that_are_functions(name: str) -> None:
    make, after = AFTER[name]
    calls: list[float] = []

    def rate() -> float:
        calls.append(0.1)
        return calls[-1]

    variable = tf.Variable([1.0, 2.0])
    step = make(rate).minimize(tf.reduce_sum(variable * variable))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step)
        np.testing.assert_allclose(sess.run(variable), after, rtol=1e-6)
    assert calls == [0.1]


def test_functions_are_called_for_all_updates_that_are_built() -> None:
    rates = iter((0.5, 0.25))
    optimizer = tf.train.GradientDescentOptimizer(lambda: next(rates))
    variable = tf.Variable(1.0)
    steps = [optimizer.apply_gradients([(tf.constant(1.0), variable)]) for _ in range(2)]
    with tf.Session() as sess:
        sess.run(variable.initializer)
        for step, value in zip(steps, (0.5, 0.25), strict=True):
            sess.run(step)
            assert sess.run(variable) == value
