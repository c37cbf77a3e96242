"""`tf.contrib.rnn.ConvLSTMCell`: with a kernel of one point it is an LSTM at each point; its shapes and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf

rnn = tf.contrib.rnn


def test_cell_with_a_kernel_of_one_is_an_lstm_at_each_point() -> None:
    rng = np.random.RandomState(0)
    pictures, weights = rng.randn(2, 5, 3, 4, 2).astype("f"), rng.randn(2 + 6, 24).astype("f")
    cell = rnn.Conv2DLSTMCell(input_shape=[3, 4, 2], output_channels=6, kernel_shape=[1, 1])
    outputs, last = tf.nn.dynamic_rnn(cell, tf.constant(pictures), dtype=tf.float32)
    kernel, biases = tf.trainable_variables()
    assert [v.name for v in (kernel, biases)] == ["rnn/conv_2d_lstm_cell/kernel:0", "rnn/conv_2d_lstm_cell/biases:0"]
    assert kernel.shape.as_list() == [1, 1, 8, 24] and outputs.shape.as_list() == [2, 5, 3, 4, 6]
    points = pictures.transpose(0, 2, 3, 1, 4).reshape(24, 5, 2)
    plain = rnn.BasicLSTMCell(6)
    of_points, _ = tf.nn.dynamic_rnn(plain, tf.constant(points), dtype=tf.float32, scope="points")
    theirs = plain.variables[0]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([kernel.assign(weights[None, None]), theirs.assign(weights)])
        found, state, expected = sess.run([outputs, last, of_points])
    expected = expected.reshape(2, 3, 4, 5, 6).transpose(0, 3, 1, 2, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state.h, found[:, -1])


@pytest.mark.parametrize(("cell", "space"), [(rnn.Conv1DLSTMCell, [5]), (rnn.Conv3DLSTMCell, [5, 4, 3])])
def test_neighbours_are_seen(cell: Any, space: list[int]) -> None:
    """What is far from a point does not change the point's output."""
    x = tf.placeholder(tf.float32, [1, *space, 1])
    made = cell(input_shape=[*space, 1], output_channels=2, kernel_shape=[3] * len(space), use_bias=False)
    outputs, _ = made(x, made.zero_state(1, tf.float32))
    assert len(tf.trainable_variables()) == 1 and outputs.shape.as_list() == [1, *space, 2]
    values = [np.zeros([1, *space, 1], "f") for _ in range(3)]
    values[1][(0, 1, *[0] * len(space))] = values[2][(0, 2, *[0] * len(space))] = 1
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        at_origin = [sess.run(outputs, {x: value})[(0, *[0] * len(space))] for value in values]
    assert (at_origin[0] == at_origin[2]).all() and (at_origin[0] != at_origin[1]).all()


def test_inputs_follow_the_outputs_with_a_skip_connection() -> None:
    cell = rnn.ConvLSTMCell(1, [5, 3], 2, [3], skip_connection=True)
    x = tf.random_normal([4, 6, 5, 3], seed=1)
    outputs, state = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    assert outputs.shape.as_list() == [4, 6, 5, 5] and state.h.shape.as_list() == [4, 5, 2]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found, inputs = sess.run([outputs, x])
    np.testing.assert_array_equal(found[..., 2:], inputs)


def test_shape_must_fit_the_dimensions() -> None:
    with pytest.raises(ValueError, match="for conv_ndims=2"):
        rnn.ConvLSTMCell(2, [5, 3], 2, [3, 3])
    with pytest.raises(NotImplementedError, match="initializers"):
        rnn.Conv1DLSTMCell(input_shape=[5, 3], output_channels=2, kernel_shape=[3], initializers=tf.zeros_initializer())
