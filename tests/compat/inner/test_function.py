"""Functions of the graph that `Defun` makes."""

from __future__ import annotations

from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.inner.function import Defun

VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def run(fetches: Any, x: Any) -> Any:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches, {x: VALUES})


def test_types_results_and_gradients() -> None:
    @Defun(tf.float32, tf.float32)
    def f(a: Any, b: Any) -> Any:
        return a * b, a + b

    x, y = tf.placeholder(tf.float32, [2, 3]), tf.constant(2.0)
    product, total = f(x, y)
    values, (by_x, by_y) = run([[product, total], tf.gradients(product, [x, y])], x)
    assert values[0].tolist() == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]] and values[1][0, 0] == 3.0
    assert by_x.tolist() == [[2.0] * 3] * 2 and by_y == 21.0
    assert f.name == "f" and f.declared_input_types == [tf.float32, tf.float32]
    with pytest.raises(ValueError, match="Expected 2 arguments, got 1"):
        f(x)
    with pytest.raises((ValueError, TypeError)):
        f(x, tf.constant(1))


def test_gradients_of_the_operation() -> None:
    seen: list[Any] = []

    def gradient(op: Any, grad: Any) -> Any:
        seen.append(([tensor.name for tensor in op.inputs], len(op.outputs), grad.shape))
        return grad * 3.0

    @Defun(python_grad_func=gradient, shape_func=lambda op: [op.inputs[0].get_shape()], func_name="own")
    def g(x: Any) -> Any:
        return tf.square(x)

    x = tf.placeholder(tf.float32, [2, 3], name="x")
    y = g(x, name="call")
    assert y.name.startswith("call/") and y.shape == [2, 3] and g.name == "own"
    (by_x,) = tf.gradients(y, x)
    assert run([y, by_x], x)[1].tolist() == [[3.0] * 3] * 2
    assert seen == [(["x:0"], 1, tf.TensorShape([2, 3]))]


def test_gradients_that_are_functions() -> None:
    @Defun(tf.float32, tf.float32, func_name="swish_grad", noinline=True)
    def of(x: Any, dy: Any) -> Any:
        return dy * 10.0 + x

    @Defun(tf.float32, grad_func=of, func_name="swish", noinline=True)
    def h(x: Any) -> Any:
        return x * x

    x = tf.placeholder(tf.float32, [2, 3])
    y, (by_x,) = h(x), tf.gradients(h(x), x)
    assert run([y, by_x], x)[1][0].tolist() == [11.0, 12.0, 13.0]


def test_what_is_outside_of_a_function() -> None:
    y = tf.constant(2.0)

    @Defun(tf.float32)
    def f(a: Any) -> Any:
        return a * y * tf.get_variable("w", [], initializer=tf.ones_initializer())

    x = tf.placeholder(tf.float32, [2, 3])
    found = f(x)
    (w,) = tf.trainable_variables()
    assert run(tf.gradients(found, [y, w]), x) == [21.0, 42.0]


def test_operations() -> None:
    @Defun()
    def nothing() -> Any:
        return tf.no_op()

    assert isinstance(nothing(), tf.Operation)


def test_what_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="capture_by_value"):
        Defun(tf.float32, capture_by_value=True)
    with pytest.raises(ValueError, match="Gradient defined twice"):
        Defun(grad_func=len, python_grad_func=len)
    with pytest.raises(ValueError, match="must be a callable"):
        Defun()(3)  # type: ignore[arg-type]
