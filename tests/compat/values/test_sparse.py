"""Sparse tensors: results of their methods, and refused arguments.  `recorded/sparse_cases.py` has their values."""

from __future__ import annotations

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def test_sparse_tensor_has_the_methods_of_tensorflows() -> None:
    sparse = tf.SparseTensor.from_value(tf.SparseTensorValue([[0, 1]], [2.0], [2, 3]))
    assert tf.SparseTensor.from_value(sparse) is sparse
    assert sparse.graph is tf.get_default_graph() and sparse.op is sparse.values.op
    doubled = 2 * sparse
    assert doubled.op in sparse.consumers()
    with tf.Session():
        assert doubled.eval().values.tolist() == [4.0] and doubled.eval().dense_shape.tolist() == [2, 3]


def test_sparse_placeholder_has_the_shape_that_is_given() -> None:
    assert tf.sparse_placeholder(tf.float32).shape.rank is None
    known = tf.sparse_placeholder(tf.float32, [-1, 3], name="p")
    assert known.get_shape().as_list() == [None, 3] and known.values.name == "p/values:0"
    known.set_shape([2, None])
    assert known.shape.as_list() == [2, 3]
    with pytest.raises(ValueError, match=r"not compatible|must be equal"):
        known.set_shape([4, 3])
    unknown = tf.sparse_placeholder(tf.float32, tf.placeholder(tf.int64, [2]))
    assert unknown.shape.as_list() == [None, None] and unknown.indices.shape.as_list() == [None, 2]
    with tf.Session() as sess:
        fed = {known: (np.array([[0, 1]]), [2.0], [2, 3])}
        assert sess.run(tf.sparse_tensor_to_dense(known), fed).tolist() == [[0, 2, 0], [0, 0, 0]]


def test_sparse_functions_refuse() -> None:
    sparse = tf.SparseTensor([[0, 1]], [2.0], [2, 3])
    with pytest.raises(errors.InvalidArgumentError, match="dimension sizes >= sp"):
        tf.sparse_reset_shape(sparse, [1, 3])
    with pytest.raises(errors.InvalidArgumentError, match="At least one input should be SparseTensor"):
        tf.sparse_add([1.0], [2.0])
    with pytest.raises(ValueError, match="Keyword arguments are required"):
        tf.sparse_split(sparse, 2, 1)


def test_sparse_tensors_are_cast_and_measured() -> None:
    sparse = tf.SparseTensor([[0, 1], [1, 2]], [1.5, 2.5], [3, 4])
    cast = tf.cast(sparse, tf.int32)
    with tf.Session() as sess:
        found = sess.run(
            [cast, tf.shape(sparse), tf.shape(sparse, out_type=tf.int64), tf.size(sparse), tf.rank(sparse)]
        )
    assert found[0].values.tolist() == [1, 2] and isinstance(cast, tf.SparseTensor)
    assert found[1].tolist() == [3, 4] and found[1].dtype == "int32" and found[2].dtype == "int64"
    assert found[3:] == [12, 2]
