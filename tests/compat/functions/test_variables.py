"""Variables, scopes and changes with TensorFlow's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def layer(x: object) -> object:
    return tf.matmul(x, tf.get_variable("w", [2, 2], initializer=tf.ones_initializer))


def test_reuse() -> None:
    x = tf.constant([[1.0, 2.0]])
    with tf.variable_scope("a") as scope:
        y = layer(x)
        scope.reuse_variables()
        layer(y)
    with tf.variable_scope(scope, reuse=True):
        layer(y)
    with tf.variable_scope("b", initializer=tf.zeros_initializer()):
        tf.get_variable("u", 3)
    assert [v.name for v in tf.trainable_variables()] == ["a/w:0", "b/u:0"]
    tf.get_variable_scope().reuse_variables()
    with pytest.raises(errors.InvalidArgumentError, match="does not exist"):
        tf.get_variable("other", [1])
    with tf.Graph().as_default():
        tf.get_variable("other", [1])  # The root scope of another graph is another one.


def test_variable() -> None:
    fixed = tf.Variable(tf.zeros([2]), False, name="fixed")
    counted = tf.Variable(0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    assert tf.trainable_variables() == [] and tf.global_variables() == [fixed] and tf.local_variables() == [counted]
    local = tf.get_local_variable("seen", [2], initializer=tf.zeros_initializer())
    assert tf.local_variables() == [counted, local] and not local.trainable
    tf.enable_resource_variables()
    try:
        assert tf.Variable(1.0).is_resource and tf.get_variable("r", []).is_resource
        assert not tf.Variable(1.0, use_resource=False).is_resource
    finally:
        tf.disable_resource_variables()
    assert not tf.Variable(1.0).is_resource


@pytest.mark.parametrize("use_resource", [False, True])
def test_changes(use_resource: bool) -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=use_resource)
    rows = tf.IndexedSlices(tf.constant([10.0]), tf.constant([1]))
    changes = [
        (tf.assign(v, [1.0, 2.0, 3.0]), [1, 2, 3]),
        (tf.assign_add(v, [1.0, 1.0, 1.0]), [2, 3, 4]),
        (tf.assign_sub(v, [2.0, 2.0, 2.0]), [0, 1, 2]),
        (tf.scatter_update(v, [0], [5.0]), [5, 1, 2]),
        (tf.scatter_add(v, [0, 0], [1.0, 1.0]), [7, 1, 2]),
        (v.scatter_sub(rows), [7, -9, 2]),
        (tf.scatter_mul(v, [2], [3.0]), [7, -9, 6]),
        (tf.scatter_nd_update(v, [[1]], [0.0]), [7, 0, 6]),
        (tf.scatter_nd_add(v, [[1]], [4.0]), [7, 4, 6]),
    ]
    with tf.Session() as sess:
        sess.run(tf.initialize_all_variables())
        for change, after in changes:
            sess.run(change)
            assert sess.run(v).tolist() == after
        assert sess.run(tf.gather(v, [2, 0])).tolist() == [6, 7]


def test_initializer_without_arguments_gives_the_shape() -> None:
    made = tf.get_variable("made", initializer=lambda: tf.constant([7.0, 8.0]))
    with tf.Session() as sess:
        sess.run(made.initializer)
        assert made.shape == [2] and sess.run(made).tolist() == [7, 8]
    with pytest.raises(ValueError, match="must be fully defined"):
        tf.get_variable("other", initializer=lambda shape: tf.zeros(shape))


def test_shape_that_changes() -> None:
    v = tf.Variable([1.0], validate_shape=False)
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert sess.run(tf.assign(v, [1.0, 2.0], validate_shape=False)).tolist() == [1, 2]
    n = tf.Variable(0)
    with tf.Session() as sess:
        sess.run(n.initializer)
        count = tf.count_up_to(n, 2)
        assert [sess.run(count), sess.run(count)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(count)


def test_parts() -> None:
    with tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(2)):
        whole = tf.get_variable("w", [4, 2], initializer=tf.uniform_unit_scaling_initializer(seed=1))
    assert [v.name for v in tf.trainable_variables()] == ["a/w/part_0:0", "a/w/part_1:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        limit = np.sqrt(3 / 4)  # of the whole, not of a part
        assert np.abs(sess.run(tf.convert_to_tensor(whole))).max() <= limit


def test_variable_scope_has_the_methods_of_tensorflows() -> None:
    with tf.variable_scope("a") as scope:
        scope.set_initializer(tf.ones_initializer())
        scope.set_dtype(tf.float64)
        scope.set_regularizer(lambda value: tf.reduce_sum(value, name="cost"))
        scope.set_partitioner(None)
        scope.set_use_resource(True)
        scope.set_custom_getter(lambda getter, name, **settings: getter(f"{name}_", **settings))
        v = tf.get_variable("v", [2])
        local = tf.get_variable("l", [], collections=[tf.GraphKeys.LOCAL_VARIABLES])
    assert (v.op.name, v.dtype, v.op.type) == ("a/v_", tf.float64, "VarHandleOp")
    assert scope.local_variables() == [local] and scope.global_variables() == [v]
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 2
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert sess.run(v).tolist() == [1, 1]


def test_variable_scope_gets_variables_of_a_store() -> None:
    with tf.variable_scope("a") as scope:
        v = tf.get_variable("v", [2])
    (store,) = tf.get_collection_ref(tf.GraphKeys.VARIABLE_STORE)
    assert scope.get_variable(store, "v", [2], reuse=True) is v
    with pytest.raises(errors.InvalidArgumentError, match="already exists"):
        scope.get_variable(store, "v", [2])


def test_custom_getter_of_one_variable_is_called_before_that_of_the_scope() -> None:
    called = []

    def getter(mark: str) -> Any:
        def get(get: Any, name: str, **settings: Any) -> Any:
            called.append(mark)
            return get(name, **settings)

        return get

    with tf.variable_scope("a", custom_getter=getter("scope")):
        tf.get_variable("v", [1], custom_getter=getter("own"))
    assert called == ["own", "scope"]
