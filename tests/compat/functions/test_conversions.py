"""Conversions to tensors: of messages, of sparse values, and of a program's own classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_class_with_a_conversion_is_taken_as_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aexec.graph.conversions._conversions", [])

    def convert(value: Money, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Any:
        if dtype is not None and tf.as_dtype(dtype) is tf.string:
            return NotImplemented
        return tf.constant(value.cents, dtype or tf.int32, name=name)

    tf.register_tensor_conversion_function(Money, convert)
    total = tf.add(Money(5), 3)
    listed = tf.convert_to_tensor([tf.constant(1), tf.convert_to_tensor(Money(2))])
    with tf.Session() as sess:
        assert sess.run(total) == 8 and sess.run(tf.sqrt(tf.cast(Money(4), tf.float32))) == 2
        assert sess.run(listed).tolist() == [1, 2]
    with pytest.raises(TypeError):
        tf.convert_to_tensor(Money(1), tf.string)
    tf.register_tensor_conversion_function(Money, lambda value, **_: "none", priority=1)
    with pytest.raises(TypeError, match="returned no tensor"):
        tf.convert_to_tensor(Money(1))
    with pytest.raises(TypeError, match="must be a type"):
        tf.register_tensor_conversion_function(3, convert)
    with pytest.raises(TypeError, match="Python numeric types"):
        tf.register_tensor_conversion_function((Money, int), convert)


def test_messages_hold_values() -> None:
    message = tf.make_tensor_proto(["a", "b"], shape=[2, 1])
    assert tf.make_ndarray(message).tolist() == [[b"a"], [b"b"]]
    assert tf.make_ndarray(tf.make_tensor_proto(7, tf.int64, [2, 2])).tolist() == [[7, 7], [7, 7]]
    with pytest.raises(TypeError, match="Expected tensor's shape"):
        tf.make_tensor_proto([1, 2, 3], shape=[2])
    with pytest.raises(TypeError, match="Expected tensor's shape"):
        tf.make_tensor_proto(1, shape=[2], verify_shape=True)


def test_sparse_values_and_rows_stay_as_they_are() -> None:
    value = tf.SparseTensorValue(np.array([[0]]), np.array([2.0]), np.array([3]))
    sparse = tf.convert_to_tensor_or_sparse_tensor(value)
    assert isinstance(sparse, tf.SparseTensor) and sparse.dtype is tf.float64
    with pytest.raises(RuntimeError, match="Sparse dtype mismatch"):
        tf.convert_to_tensor_or_sparse_tensor(value, tf.int32)
    rows = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    assert tf.convert_to_tensor_or_indexed_slices(rows) is rows
    assert isinstance(tf.convert_to_tensor_or_indexed_slices([1.0]), tf.Tensor)


def test_parallel_stack_needs_known_shapes() -> None:
    with pytest.raises(ValueError, match="must be known"):
        tf.parallel_stack([tf.placeholder(tf.float32, [None])])
    with pytest.raises(ValueError, match="block_shape must be given"):
        tf.space_to_batch(tf.zeros([1, 2, 2, 1]), [[0, 0], [0, 0]])


def test_bounds_of_a_slice_may_be_wide() -> None:
    x, at = tf.range(10), tf.constant(3, tf.int64)
    with tf.Session() as sess:
        found = sess.run([x[at], x[at:], x[1:at], x[tf.constant(2) : at + 2]])
    assert [np.ravel(one).tolist() for one in found] == [[3], [3, 4, 5, 6, 7, 8, 9], [1, 2], [2, 3, 4]]
