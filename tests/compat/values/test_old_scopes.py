"""Scopes and switches of older programs."""

from __future__ import annotations

import aexec.compat.v1 as tf


def test_scopes_take_values_first() -> None:
    with tf.op_scope([1], None, "outer"), tf.variable_op_scope([2], "inner"):
        v = tf.get_variable("v", [])
        x = tf.constant(1, name="x")
    assert (v.op.name, x.op.name) == ("inner/v", "outer/inner/x")


def test_init_scope_leaves_control_dependencies() -> None:
    with tf.control_dependencies([tf.constant(1)]), tf.init_scope():
        x = tf.constant(2)
    assert not x.op.control_inputs


def test_seeds_are_those_of_the_next_op() -> None:
    assert tf.get_seed(None) == (None, None)
    tf.set_random_seed(7)
    assert tf.get_seed(3) == (7, 3) and tf.get_seed(None) == (7, 0) and tf.get_seed(None) == (7, 1)


def test_constants_have_tensorflows_values() -> None:
    assert tf.UnconnectedGradients.ZERO.value == "zero" and tf.VariableAggregation.MEAN.value == 2
    x = tf.constant(1.0)
    zero = tf.gradients(tf.constant(2.0), x, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    with tf.Session() as sess:
        assert sess.run(zero) == [0.0]
    assert not tf.control_flow_v2_enabled() and tf.no_regularizer(x) is None
