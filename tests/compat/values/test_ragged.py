"""Ragged tensors in sessions, their shapes, and refused arguments.  `recorded/` has their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def test_ragged_tensor_is_fetched_and_fed() -> None:
    ragged = tf.ragged.placeholder(tf.int32, 2)
    doubled = tf.ragged.map_flat_values(lambda x: x * 2, ragged)
    value = tf.ragged.constant_value([[[1], [2, 3]], [], [[4]]], np.int32)
    feeds = {ragged.flat_values: value.flat_values}
    feeds |= dict(zip(ragged.nested_row_splits, [value.row_splits, value.values.row_splits], strict=True))
    with tf.Session() as sess:
        found = sess.run({"doubled": doubled}, feeds)["doubled"]
        assert tf.ragged.constant([[1], []]).eval().to_list() == [[1], []]
    assert isinstance(found, tf.ragged.RaggedTensorValue) and found.ragged_rank == 2
    assert found.to_list() == [[[2], [4, 6]], [], [[8]]]
    assert value.to_list() == [[[1], [2, 3]], [], [[4]]]


def test_shape_and_type_are_known() -> None:
    ragged = tf.ragged.constant([[[1.0, 2.0]], []], inner_shape=(2,))
    assert ragged.shape.as_list() == [2, None, 2] == ragged.get_shape().as_list()
    assert ragged.dtype is tf.float32 and ragged.ragged_rank == 1
    assert tf.ragged.constant([[[1], [2]]]).shape.as_list() == [1, None, None]
    assert "row_splits" in repr(ragged)


def test_operators_change_values() -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 4.0]])
    with tf.Session() as sess:
        found = sess.run([2.0 - ragged, ragged / 2.0, -ragged, 3.0 * ragged, 1.0 + ragged, ragged - ragged])
    flat = [value.flat_values.tolist() for value in found]
    assert flat == [[1, 0, -2], [0.5, 1, 2], [-1, -2, -4], [3, 6, 12], [2, 3, 5], [0, 0, 0]]


def test_gradient_passes_through_rows() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    ragged = tf.RaggedTensor.from_tensor(x, lengths=[1, 2])
    (grad,) = tf.gradients(tf.reduce_sum(tf.square(ragged.flat_values)), x)
    with tf.Session() as sess:
        assert sess.run(grad).tolist() == [[2, 0], [6, 8]]


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda r: tf.RaggedTensor.from_tensor([[1]], lengths=[1], padding=0), ValueError, "not both"),
        (lambda r: tf.RaggedTensor.from_tensor([[1]], ragged_rank=2), errors.UnimplementedError, "ragged_rank=2"),
        (lambda r: tf.RaggedTensor.from_row_splits([1], tf.constant([0.0, 1.0])), ValueError, "int32 or int64"),
        (lambda r: r.row_lengths(axis=2), errors.UnimplementedError, "axis=2"),
        (lambda r: r[::2], errors.UnimplementedError, "the index"),
        (lambda r: r + tf.constant([1, 2]), errors.UnimplementedError, "scalars"),
        (lambda r: r + tf.ragged.constant([[[1]]]), ValueError, "different ranks"),
        (lambda r: tf.ragged.map_flat_values(tf.reduce_sum, r), ValueError, "requires that the output"),
        (lambda r: tf.ragged.constant([1, [2]], ragged_rank=1), ValueError, "mixed"),
        (lambda r: tf.ragged.constant([[1]], ragged_rank=3), ValueError, "incompatible with ragged_rank=3"),
        (lambda r: tf.ragged.boolean_mask(r, [[True]]), errors.UnimplementedError, "both ragged"),
        (lambda r: tf.strings.unicode_decode(tf.constant([["a"]]), "UTF-8"), ValueError, "a string or a vector"),
        (lambda r: tf.ragged.stack([r, r]), AttributeError, "row_splits"),
    ],
)
def test_what_is_not_there_is_refused(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build(tf.ragged.constant([[1, 2], [3]]))


def test_masks_keep_values_of_rows() -> None:
    ragged = tf.ragged.constant([[1, 2], [3]])
    kept = tf.ragged.boolean_mask(ragged, tf.ragged.constant([[True, False], [True]]))
    with tf.Session() as sess:
        assert sess.run(kept).to_list() == [[1], [3]]
