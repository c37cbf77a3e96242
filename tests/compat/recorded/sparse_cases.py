"""Cases of sparse tensors.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES", "parts"]

X = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


def sparse(tf: Any) -> Any:
    """[[0, 2, 0], [3, 0, 4]]."""
    return tf.SparseTensor([[0, 1], [1, 0], [1, 2]], [2.0, 3.0, 4.0], [2, 3])


def parts(found: Any) -> list[Any]:
    """The tensors of a sparse tensor."""
    return [found.indices, found.values, found.dense_shape]


def known(shape: Any) -> list[int]:
    """Sizes of a static shape, -1 for those that are not known."""
    return [-1 if size is None else size for size in shape.as_list()]


CASES: dict[str, Callable[[Any], Any]] = {
    "sparse * dense": lambda tf: parts(sparse(tf) * X),
    "sparse / dense": lambda tf: parts(sparse(tf) / [4.0, 5.0, 6.0]),
    "sparse shape": lambda tf: tf.constant(known(sparse(tf).get_shape())),
    "sparse placeholder": lambda tf: tf.constant(
        [known(tf.sparse_placeholder(tf.float32, shape).shape) for shape in ([None, 3], tf.constant([2, 3], tf.int64))]
    ),
    "sparse with_values": lambda tf: parts(sparse(tf).with_values([1, 2, 3])),
    "sparse_add": lambda tf: parts(tf.sparse_add(sparse(tf), sparse(tf))),
    "sparse_add of dense": lambda tf: tf.sparse_add(X, sparse(tf)),
    "sparse_concat": lambda tf: parts(tf.sparse_concat(1, [sparse(tf), sparse(tf)])),
    "sparse_concat of other sizes": lambda tf: parts(
        tf.sparse_concat(1, [sparse(tf), tf.SparseTensor([[3, 0]], [1.0], [4, 1])], expand_nonconcat_dim=True)
    ),
    "sparse_fill_empty_rows": lambda tf: parts(
        tf.sparse_fill_empty_rows(tf.SparseTensor([[1, 1]], [1.0], [3, 3]), 9.0)[0]
    ),
    "sparse_mask": lambda tf: tf.sparse_mask(tf.IndexedSlices(tf.constant(X), tf.constant([1, 3])), [3]).values,
    "sparse_maximum": lambda tf: parts(tf.sparse_maximum(sparse(tf), sparse(tf) * [0.0, 2.0, 3.0])),
    "sparse_minimum": lambda tf: parts(tf.sparse_minimum(sparse(tf), sparse(tf) * [0.0, 2.0, 3.0])),
    "sparse_reduce_max": lambda tf: [tf.sparse_reduce_max(sparse(tf)), tf.sparse_reduce_max(sparse(tf), 1)],
    "sparse_reduce_sum of all": lambda tf: tf.sparse_reduce_sum(sparse(tf)),
    "sparse_reduce_sum_sparse": lambda tf: parts(tf.sparse_reduce_sum_sparse(sparse(tf), 1, keepdims=True)),
    "sparse_reorder": lambda tf: parts(tf.sparse_reorder(tf.SparseTensor([[1, 0], [0, 1]], [1, 2], [2, 2]))),
    "sparse_reset_shape": lambda tf: [
        *parts(tf.sparse_reset_shape(sparse(tf), [4, 4])),
        *parts(tf.sparse_reset_shape(tf.SparseTensor([[0, 1]], [1.0], [7, 8]))),
    ],
    "sparse_reshape": lambda tf: parts(tf.sparse_reshape(sparse(tf), [3, -1])),
    "sparse_retain": lambda tf: parts(tf.sparse_retain(sparse(tf), [True, False, True])),
    "sparse_segment_mean": lambda tf: [
        tf.sparse_segment_mean(X, [0, 1], [0, 0]),
        tf.sparse_segment_sum(X, [0, 1], [0, 2], num_segments=4),
        tf.sparse_segment_sqrt_n(X, [0, 1], [0, 0]),
    ],
    "sparse_slice": lambda tf: parts(tf.sparse_slice(sparse(tf), [0, 1], [2, 2])),
    "sparse_softmax": lambda tf: parts(tf.sparse_softmax(sparse(tf))),
    "sparse_split": lambda tf: [
        part for found in tf.sparse_split(sp_input=sparse(tf), num_split=2, axis=1) for part in parts(found)
    ],
    "sparse_to_indicator": lambda tf: tf.sparse_to_indicator(
        tf.SparseTensor([[0, 0], [1, 0], [1, 1]], tf.constant([2, 0, 1], tf.int64), [2, 2]), 4
    ),
    "sparse_merge": lambda tf: parts(
        tf.sparse_merge(tf.SparseTensor([[0, 0], [1, 0], [1, 1]], [2, 1, 0], [2, 2]), sparse(tf), 5)
    ),
    "sparse_transpose": lambda tf: parts(tf.sparse_transpose(sparse(tf))),
    "sparse.from_dense": lambda tf: parts(tf.sparse.from_dense([[3, 0, 2], [0, 5, 0]])),
    "sparse.eye": lambda tf: parts(tf.sparse.eye(2, 3)),
    "sparse.expand_dims": lambda tf: parts(tf.sparse.expand_dims(sparse(tf), 1)),
    "serialize_many_sparse": lambda tf: parts(
        tf.deserialize_many_sparse(tf.serialize_many_sparse(sparse(tf)), tf.float32)
    ),
    "get_static_value": lambda tf: tf.constant(tf.get_static_value(tf.constant([1, 2]))),
}
