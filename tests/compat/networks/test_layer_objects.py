"""`tf.layers.Dense` and its kin compute the same as the functions, and reuse their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

X = np.random.RandomState(0).rand(2, 6, 6, 3).astype(np.float32)


def names() -> list[str]:
    return [variable.name for variable in tf.global_variables()]


def test_dense_keeps_its_weights() -> None:
    layer = tf.layers.Dense(4, tf.nn.relu, kernel_initializer=tf.ones_initializer(), dtype=tf.float32)
    once, again = layer(tf.constant(X)), layer.apply(tf.constant(X))
    assert names() == ["dense/kernel:0", "dense/bias:0"] and list(once.shape) == [2, 6, 6, 4]
    assert layer.kernel is layer.weights[0] is tf.global_variables()[0] and layer.bias.shape.as_list() == [4]
    assert layer.units == 4 and layer.activation is tf.nn.relu and layer.compute_output_shape([None, 3])[-1] == 4
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for value in sess.run([once, again]):
            np.testing.assert_allclose(value, np.repeat(X.sum(-1, keepdims=True), 4, -1), rtol=1e-5)
    with pytest.raises(AttributeError, match="no attribute 'gamma'"):
        assert layer.gamma
    tf.layers.Dense(1, use_bias=False, name="last", trainable=False)(once)
    assert names()[2:] == ["last/kernel:0"] and len(tf.trainable_variables()) == 2


@pytest.mark.parametrize(
    ("layer", "function", "settings"),
    [
        ("Conv2D", "conv2d", {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"}),
        ("Conv2DTranspose", "conv2d_transpose", {"filters": 4, "kernel_size": [2, 2]}),
        ("SeparableConv2D", "separable_conv2d", {"filters": 4, "kernel_size": 3}),
        ("MaxPooling2D", "max_pooling2d", {"pool_size": 2, "strides": 2}),
        ("AveragePooling2D", "average_pooling2d", {"pool_size": 2, "strides": 1}),
        ("BatchNormalization", "batch_normalization", {"epsilon": 0.1}),
        ("Dropout", "dropout", {"rate": 0.5}),
        ("Flatten", "flatten", {}),
    ],
)
def test_layer_computes_what_the_function_does(layer: str, function: str, settings: dict[str, Any]) -> None:
    made = getattr(tf.layers, layer)(**settings, name="a")
    with tf.Session() as sess:
        outputs = made(tf.constant(X))
        wanted = getattr(tf.layers, function)(tf.constant(X), **settings, name="b")
        pairs = list(zip(tf.global_variables("a"), tf.global_variables("b"), strict=True))
        sess.run(tf.global_variables_initializer())
        for mine, other in pairs:
            assert mine.name[1:] == other.name[1:]
            other.load(sess.run(mine), sess)
        one, two = sess.run([outputs, wanted])
    np.testing.assert_array_equal(one, two)
    assert made.weights == [mine for mine, _ in pairs if mine in made.weights] and len(made.weights) == len(pairs)


def test_normalization_updates_in_training_only() -> None:
    layer = tf.layers.BatchNormalization()
    layer(tf.constant(X), training=True)
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2 and len(layer.trainable_weights) == 2
    layer(tf.constant(X))
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2 and names()[0] == "batch_normalization/gamma:0"
    assert np.any(tf.layers.Dropout(0.5)(tf.constant(X), training=True).op.type != "Identity")


def test_layer_has_its_updates_and_losses() -> None:
    """The averages are TensorFlow's."""
    layer = tf.layers.BatchNormalization(momentum=0.5, gamma_regularizer=tf.nn.l2_loss)
    layer(tf.constant([[1.0], [3.0]]), training=True)
    tf.layers.Dense(2)(tf.constant([[1.0]]))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(layer.losses) == [0.5]
        sess.run(layer.updates)
        assert sess.run([layer.moving_mean, layer.moving_variance]) == [[1.0], [1.0]]
    assert len(layer.updates) == 2 and layer.updates == tf.get_collection(tf.GraphKeys.UPDATE_OPS)


def test_layer_makes_weights_in_its_scope() -> None:
    with tf.variable_scope("outer"):
        first, second = tf.layers.Dense(1), tf.layers.Dense(1)
        second(first(tf.constant(X)))
    assert names()[::2] == ["outer/dense/kernel:0", "outer/dense_1/kernel:0"]
