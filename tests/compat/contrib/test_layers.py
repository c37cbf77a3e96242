"""`tf.contrib.layers`, `framework` and `slim`: names of variables, formulas and defaults of TensorFlow 1.15."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors
from tests.compat.recorded.names import resolve

layers, framework, slim = tf.contrib.layers, tf.contrib.framework, tf.contrib.slim
X = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], np.float32)


def value(tensor: Any, **settings: Any) -> Any:
    """The value of a tensor in a new session, after all variables are initialised."""
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return sess.run(tensor, **settings)


def names(collection: str = "variables") -> list[str]:
    return [variable.name for variable in tf.get_collection(collection)]


def test_fully_connected_is_relu_of_weights_and_biases() -> None:
    weights = np.arange(6, dtype=np.float32).reshape(3, 2) - 2
    y = layers.fully_connected(
        tf.constant(X),
        2,
        weights_initializer=tf.constant_initializer(weights),
        biases_initializer=tf.constant_initializer([0.5, -0.5]),
        weights_regularizer=layers.l2_regularizer(0.1),
        outputs_collections="ends",
    )
    np.testing.assert_allclose(value(y), np.maximum(X @ weights + [0.5, -0.5], 0), rtol=1e-6)
    assert names() == names("model_variables") == ["fully_connected/weights:0", "fully_connected/biases:0"]
    assert slim.utils.convert_collection_to_dict("ends", clear_collection=True) == {"fully_connected": y}
    assert not tf.get_collection("ends")
    (loss,) = tf.losses.get_regularization_losses()
    np.testing.assert_allclose(value(loss), 0.05 * (weights**2).sum(), rtol=1e-6)


@pytest.mark.parametrize(("data_format", "channels"), [("NHWC", 3), ("NCHW", 2)])
def test_bias_add_makes_a_variable_of_the_channels(data_format: str, channels: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3) - 12
    biases = np.arange(channels, dtype=np.float32)
    y = layers.bias_add(
        tf.constant(x), tf.nn.relu, tf.constant_initializer(biases), data_format=data_format, outputs_collections="ends"
    )
    wanted = x + (biases if data_format == "NHWC" else biases[:, None, None])
    np.testing.assert_array_equal(value(y), np.maximum(wanted, 0))
    assert names() == names("model_variables") == ["BiasAdd/biases:0"]
    assert tf.get_collection("ends") == [y]


@pytest.mark.parametrize(("shape", "data_format"), [([2, None], "NHWC"), ([2, 3], "NCHW")])
def test_bias_add_of_unknown_channels_is_refused(shape: list[int | None], data_format: str) -> None:
    with pytest.raises(ValueError, match=r"undefined last dimension|only supports 4D"):
        layers.bias_add(tf.placeholder(tf.float32, shape), data_format=data_format)


def test_second_layer_has_a_scope_of_its_own_and_shares_by_reuse() -> None:
    x = tf.constant(X)
    layers.linear(x, 2)
    layers.fully_connected(x, 2, activation_fn=None, biases_initializer=None)
    layers.fully_connected(x, 2, scope="fully_connected", reuse=True)
    assert names() == ["fully_connected/weights:0", "fully_connected/biases:0", "fully_connected_1/weights:0"]


def test_convolutions_have_contrib_names_and_shapes() -> None:
    x = tf.placeholder(tf.float32, [2, 8, 8, 3])
    y = layers.conv2d(x, 4, 3, stride=2)
    z = layers.conv2d_transpose(y, 5, [2, 2], 2)
    s = layers.separable_conv2d(z, None, 3, depth_multiplier=2)
    t = layers.separable_conv2d(s, 6, [3, 3], scope="mixed")
    p = layers.avg_pool2d(layers.max_pool2d(t, 2), [3, 3], 1)
    assert [list(one.shape) for one in (y, z, s, t, p)] == [
        [2, 4, 4, 4],
        [2, 8, 8, 5],
        [2, 8, 8, 10],
        [2, 8, 8, 6],
        [2, 2, 2, 6],
    ]
    assert [(one.name, list(one.shape)) for one in tf.global_variables()] == [
        ("Conv/weights:0", [3, 3, 3, 4]),
        ("Conv/biases:0", [4]),
        ("Conv2d_transpose/weights:0", [2, 2, 5, 4]),
        ("Conv2d_transpose/biases:0", [5]),
        ("SeparableConv2d/depthwise_weights:0", [3, 3, 5, 2]),
        ("SeparableConv2d/biases:0", [10]),
        ("mixed/depthwise_weights:0", [3, 3, 10, 1]),
        ("mixed/pointwise_weights:0", [1, 1, 10, 6]),
        ("mixed/biases:0", [6]),
    ]


def test_depthwise_convolution_multiplies_each_channel() -> None:
    image = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    y = layers.separable_conv2d(
        tf.constant(image), None, 1, activation_fn=None, weights_initializer=tf.constant_initializer(2.0)
    )
    np.testing.assert_allclose(value(y), 2 * image)


@pytest.mark.parametrize("shape", [[6, 3], [2, 2, 2, 3]])
def test_batch_norm_normalises_and_moves_averages(shape: list[int]) -> None:
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    axes, count = tuple(range(len(shape) - 1)), x.size // 3
    y = layers.batch_norm(tf.constant(x), decay=0.9, updates_collections=None)
    mean, variance = x.mean(axes), x.var(axes)
    moving = [one for one in tf.global_variables() if "moving" in one.name]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        np.testing.assert_allclose(sess.run(y), (x - mean) / np.sqrt(variance + 0.001), atol=1e-5)
        moved = sess.run(moving)
    np.testing.assert_allclose(moved[0], 0.1 * mean, atol=1e-6)
    np.testing.assert_allclose(moved[1], 0.9 + 0.1 * variance * count / (count - 1), atol=1e-6)
    assert names() == [f"BatchNorm/{name}:0" for name in ("beta", "moving_mean", "moving_variance")]
    assert not tf.get_collection(tf.GraphKeys.UPDATE_OPS)


def test_batch_norm_puts_updates_into_a_collection() -> None:
    layers.batch_norm(tf.constant(X), scale=True, is_training=tf.constant(True))
    layers.batch_norm(tf.constant(X), updates_collections="mine")
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == len(tf.get_collection("mine")) == 2
    with pytest.raises(errors.UnimplementedError, match="renorm=True is not supported"):
        layers.batch_norm(tf.constant(X), renorm=True)


def test_layer_norm_normalises_examples() -> None:
    x = np.random.RandomState(0).randn(2, 3, 4).astype(np.float32)
    y = layers.layer_norm(tf.constant(x))
    flat = x.reshape(2, -1)
    wanted = (flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + 1e-12)
    np.testing.assert_allclose(value(y), wanted.reshape(x.shape), atol=1e-5)
    assert [(one.name, list(one.shape)) for one in tf.global_variables()] == [
        ("LayerNorm/beta:0", [4]),
        ("LayerNorm/gamma:0", [4]),
    ]


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_instance_norm_normalises_channels_of_examples(data_format: str) -> None:
    x = np.random.RandomState(0).randn(2, 3, 4, 5).astype(np.float32)
    axes = (1, 2) if data_format == "NHWC" else (2, 3)
    y = layers.instance_norm(tf.constant(x), data_format=data_format)
    wanted = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-6)
    np.testing.assert_allclose(value(y), wanted, atol=1e-5)


def test_initializers_have_the_variance_of_their_formula() -> None:
    xavier = value(layers.xavier_initializer(seed=1)([200, 100]))
    assert abs(xavier).max() <= math.sqrt(3 * 2 / 300) and abs(xavier.var() / (2 / 300) - 1) < 0.05
    scaled = value(layers.variance_scaling_initializer(seed=1)([3, 3, 40, 50]))
    deviation = math.sqrt(1.3 * 2 / 360)
    assert abs(scaled).max() <= 2 * deviation and abs(scaled.std() / math.sqrt(2 / 360) - 1) < 0.05
    with pytest.raises(TypeError, match="Unknown mode"):
        layers.variance_scaling_initializer(mode="fan_in")


def test_regularizers() -> None:
    w = tf.constant([1.0, -2.0])
    both = layers.sum_regularizer([layers.l1_regularizer(0.5), None, layers.l2_regularizer(2.0, scope="l2")])
    total = layers.apply_regularization(both, [w, w])
    np.testing.assert_allclose(value([both(w), total]), [1.5 + 5.0, 13.0])
    assert tf.losses.get_regularization_losses() == [total] and layers.sum_regularizer([None]) is None


def test_small_layers() -> None:
    x = tf.constant(X)
    encoded = layers.one_hot_encoding([0, 2], 3, on_value=2.0)
    np.testing.assert_allclose(value(encoded), [[2, 0, 0], [0, 0, 2]])
    np.testing.assert_allclose(value(layers.unit_norm(x, 1)), X / np.sqrt((X**2).sum(1, keepdims=True)), rtol=1e-5)
    assert list(layers.flatten(tf.zeros([2, 3, 4])).shape) == [2, 12]
    assert value(layers.dropout(tf.ones([1000]), 0.25, seed=1)).sum() in range(850, 1150)
    np.testing.assert_array_equal(value(layers.dropout(x, is_training=False)), X)
    ids = np.array([[1, 0], [1, 1]])
    rows = [layers.embed_sequence(ids, 3, 4, scope="e"), layers.embed_sequence(ids, unique=True, scope="e", reuse=True)]
    table = tf.global_variables()[0]
    once, each, whole = value([*rows, table])
    np.testing.assert_array_equal(once, each)
    np.testing.assert_array_equal(once, whole[ids])


def test_repeat_and_stack_number_their_scopes() -> None:
    x = tf.zeros([1, 4, 4, 2])
    slim.repeat(x, 2, slim.conv2d, 3, [3, 3], scope="conv1")
    slim.stack(tf.zeros([1, 3]), slim.fully_connected, [4, 5], scope="fc")
    assert [name for name in names() if "weights" in name] == [
        "conv1/conv1_1/weights:0",
        "conv1/conv1_2/weights:0",
        "fc/fc_1/weights:0",
        "fc/fc_2/weights:0",
    ]


def test_arg_scope_gives_arguments_that_calls_may_replace() -> None:
    @framework.add_arg_scope
    def f(a: int, b: int = 1, c: int = 2) -> tuple[int, int, int]:
        return a, b, c

    with framework.arg_scope([f], b=5), slim.arg_scope([f], c=6) as kept:
        assert f(0) == (0, 5, 6) and f(0, c=7) == (0, 5, 7)
    assert f(0) == (0, 1, 2)
    with framework.arg_scope(kept):
        assert f(0) == (0, 5, 6)
    assert framework.has_arg_scope(f) and framework.arg_scoped_arguments(f) == ("a", "b", "c")
    with pytest.raises(ValueError, match="not decorated"), framework.arg_scope([len], b=1):
        pass
    with pytest.raises(ValueError, match="kwargs must be empty"), framework.arg_scope(kept, b=1):
        pass


def test_arg_scope_reaches_layers() -> None:
    norm = {"is_training": False}
    scope = slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, normalizer_params=norm, padding="VALID")
    with scope, slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(1.0)):
        y = slim.conv2d(tf.zeros([1, 4, 4, 1]), 2, 3)
    assert list(y.shape) == [1, 2, 2, 2] and len(tf.losses.get_regularization_losses()) == 1
    assert names()[:2] == ["Conv/weights:0", "Conv/BatchNorm/beta:0"]


def test_variables_by_scope_and_suffix() -> None:
    with tf.variable_scope("a"):
        slim.model_variable("w", shape=[1], initializer=tf.ones_initializer(), regularizer=slim.l2_regularizer(2.0))
    with tf.variable_scope("b"):
        slim.variable("w", shape=[1])
    framework.local_variable(1.0, name="l")
    found = framework.get_variables
    assert [one.name for one in found("a")] == ["a/w:0"] and len(found(suffix="w")) == 2
    assert [one.name for one in slim.get_model_variables()] == ["a/w:0"]
    assert [one.name for one in slim.get_variables_to_restore(exclude=["a"])] == ["b/w:0"]
    assert [one.name for one in slim.get_variables_by_name("w", "b")] == ["b/w:0"]
    assert [one.name for one in framework.filter_variables(found(), exclude_patterns=["^b"])] == ["a/w:0"]
    assert [one.name for one in framework.get_local_variables()] == ["l:0"]
    with pytest.raises(ValueError, match="not found"):
        framework.get_unique_variable("c")


def test_values_are_assigned_from_a_checkpoint(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    w = tf.get_variable("w", initializer=[[0.0], [0.0]])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver([v]).save(sess, str(tmp_path / "model"))
        sess.run(v.assign([0.0, 0.0]))
        framework.assign_from_checkpoint_fn(path, [v])(sess)
        assigned, feeds = framework.assign_from_checkpoint(path, {"v": w})
        sess.run(assigned, feeds)
        np.testing.assert_array_equal(sess.run(v), [1, 2])
        np.testing.assert_array_equal(sess.run(w), [[1], [2]])
        framework.assign_from_values_fn({"v": [5.0, 6.0]})(sess)
        np.testing.assert_array_equal(sess.run(v), [5, 6])
    with pytest.raises(ValueError, match="missing variable"):
        framework.assign_from_checkpoint(path, [w])
    with pytest.raises(ValueError, match="must be unchanged"):
        framework.assign_from_checkpoint_fn(path, {"v": w})


def test_optimize_loss_makes_a_step() -> None:
    v = tf.get_variable("v", initializer=[3.0, 4.0])
    u = tf.get_variable("u", initializer=1.0)
    loss = tf.reduce_sum(tf.square(v)) / 2 + u
    step = tf.train.get_or_create_global_step()
    made = layers.optimize_loss(loss, None, 0.1, "SGD", clip_gradients=1.0, gradient_multipliers={"u": 0.0})
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(made) == 13.5
        np.testing.assert_allclose(sess.run(v), [3 - 0.06, 4 - 0.08], rtol=1e-6)
        assert sess.run(u) == 1.0 and sess.run(step) == 1
    assert "OptimizeLoss/learning_rate:0" in names()
    for optimizer in (tf.train.GradientDescentOptimizer, lambda rate: tf.train.AdamOptimizer(rate)):
        layers.optimize_loss(loss, step, 0.1, optimizer, learning_rate_decay_fn=lambda rate, _: rate * 0.5)
    with pytest.raises(ValueError, match="should be one of"):
        layers.optimize_loss(loss, step, 0.1, "Best")


def test_slim_trains_saves_and_resumes(tmp_path: Path) -> None:
    x = tf.constant(X)
    y = slim.fully_connected(x, 1, activation_fn=None, weights_initializer=tf.zeros_initializer())
    tf.losses.mean_squared_error([[1.0], [2.0]], y)
    train = slim.learning.create_train_op(tf.losses.get_total_loss(), tf.train.GradientDescentOptimizer(0.05))
    first = slim.learning.train(train, str(tmp_path), number_of_steps=1)
    assert first == 2.5
    last = slim.learning.train(train, str(tmp_path), number_of_steps=60)
    assert last < 0.2 and tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-60")
    with pytest.raises(ValueError, match="train_op cannot be None"):
        slim.learning.train(None, None)


def test_clipped_gradients_have_a_length() -> None:
    (clipped, _), (nothing, _) = slim.learning.clip_gradient_norms([(tf.constant([3.0, 4.0]), 0), (None, 1)], 1.0)
    np.testing.assert_allclose(value(clipped), [0.6, 0.8], rtol=1e-6)
    assert nothing is None


def test_slim_losses_take_predictions_first() -> None:
    loss = slim.losses.softmax_cross_entropy([[0.0, 0.0]], [[1.0, 0.0]])
    np.testing.assert_allclose(value(loss), math.log(2), rtol=1e-6)
    assert slim.losses.get_losses() == [loss]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("contrib.keras", "layers are functions here"),
        ("contrib.learn.Experiment", "MonitoredTrainingSession"),
        ("contrib.learn.datasets", "aexec.compat.mnist"),
        ("contrib.layers.real_valued_column", "use tf.feature_column.numeric_column"),
        ("contrib.rnn.NASCell", "in `call`"),
        ("contrib.slim.nets", "put their files beside yours"),
    ],
)
def test_missing_part_of_contrib_says_what_to_use(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        resolve(name)


def test_missing_module_of_contrib_says_what_to_use() -> None:
    with pytest.raises(ModuleNotFoundError, match="no TPUs"):
        importlib.import_module("aexec.compat.v1.contrib.tpu")
    with pytest.raises(ModuleNotFoundError, match="no TPUs"):
        from aexec.compat.v1.contrib import tpu  # noqa: F401
    assert importlib.import_module("aexec.compat.v1.contrib.slim") is tf.contrib.slim
