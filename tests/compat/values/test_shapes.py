"""Shapes and sizes with TensorFlow's methods."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec.framework.shape import PartialTensorShape


def test_shapes_of_tensors_and_variables_are_of_one_class() -> None:
    x = tf.placeholder(tf.float32, [None, 4])
    v = tf.get_variable("v", [2, 3])
    for shape in (
        x.shape,
        x.get_shape(),
        v.shape,
        v.get_shape(),
        x.shape[1:],
        tf.TensorShape([2]) + x.shape,
        x.shape.with_rank(2),
    ):
        assert isinstance(shape, tf.TensorShape)
    assert [size.value for size in v.shape] == [2, 3] and x.shape.dims[1].value == 4


def test_unknown_sizes_stay_unknown() -> None:
    unknown, known = tf.TensorShape([None, 4])
    assert (unknown * 2).value is None and (2 - unknown).value is None and (unknown // 2).value is None
    assert (known * 2).value == 8 and (10 - known).value == 6 and (known % 3).value == 1 and (9 // known).value == 2
    assert (unknown == 3) is None and (unknown != 3) is None and (known < unknown) is None and known == 4
    assert isinstance(known, int) and isinstance(known, tf.Dimension) and isinstance(unknown, tf.Dimension)
    with pytest.raises(TypeError, match="please use //"):
        known / 2


def test_shapes_are_arguments() -> None:
    x = tf.placeholder(tf.float32, [None, 4])
    v = tf.get_variable("v", [2, 3])
    assert tf.placeholder(tf.float32, x.shape).shape.as_list() == [None, 4]
    assert tf.placeholder(tf.float32, [x.shape[0], 7]).shape.as_list() == [None, 7]
    assert tf.placeholder(tf.float32, tf.TensorShape(None)).shape.ndims is None
    assert tf.zeros(v.shape).shape.as_list() == [2, 3] and tf.get_variable("w", v.shape[1:]).shape == [3]
    assert tf.reshape(tf.zeros([6]), v.get_shape()).shape.as_list() == [2, 3]
    assert tf.random_normal([v.shape[0], 5]).shape.as_list() == [2, 5]
    assert tf.reshape(x, [-1, x.shape[1] // 2]).shape.as_list() == [None, 2]
    assert tf.FIFOQueue(3, tf.float32, v.shape).dequeue().shape.as_list() == [2, 3]
    with pytest.raises(ValueError, match=r"Cannot convert a partially known TensorShape \(\?, 4\) to a Tensor"):
        tf.reshape(tf.zeros([8]), x.shape)


def test_sizes_are_bare_if_asked_for() -> None:
    shape = tf.TensorShape([None, 4])
    tf.enable_v2_tensorshape()
    try:
        assert shape[0] is None and list(shape) == shape.dims == [None, 4] and str(shape) == "(None, 4)"
    finally:
        tf.disable_v2_tensorshape()
    assert shape[0].value is None and str(shape) == "(?, 4)"


def test_shapes_are_values() -> None:
    shape = tf.TensorShape([None, 4])
    assert shape == [None, 4] == tf.TensorShape(PartialTensorShape([None, 4])) and shape != [4] and shape != "a"
    assert {shape: 1}[tf.TensorShape([None, 4])] == 1 and np.array(shape[1:]).tolist() == [4]
    for again in (copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert again == shape
    assert pickle.loads(pickle.dumps(shape[0])).value is None
