"""Arguments that functions in `numerics` refuse.  `tests/compat/recorded/numeric_cases.py` has their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors

UNKNOWN = [None, None, None, None]


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: tf.signal.dct([1.0], type=5), ValueError, "Types I, II, III and IV"),
        (lambda: tf.signal.dct([1.0], type=1, norm="ortho"), ValueError, "Type-I DCT"),
        (lambda: tf.signal.dct([1.0], norm="other"), ValueError, "Unknown normalization"),
        (lambda: tf.signal.dct([1.0], axis=0), errors.UnimplementedError, "axis must be -1"),
        (lambda: tf.signal.dct(tf.placeholder(tf.float32, [None])), ValueError, "must be known"),
        (lambda: tf.signal.linear_to_mel_weight_matrix(upper_edge_hertz=9000.0), ValueError, "above 4000"),
        (
            lambda: tf.linalg.tridiagonal_matmul([[1.0]], [[1.0]], "matrix"),
            errors.UnimplementedError,
            "diagonals_format",
        ),
        (lambda: tf.matrix_solve_ls(tf.placeholder(tf.float32, [None, 2]), [[1.0]]), ValueError, "must be known"),
        (lambda: tf.linalg.matrix_rank(tf.placeholder(tf.float32, [None, 2])), ValueError, "must be known"),
        (lambda: tf.image.adjust_gamma([[[1.0]]], -1.0), ValueError, "non-negative"),
        (lambda: tf.image.image_gradients(tf.zeros([2, 2])), ValueError, "expects a 4D tensor"),
        (lambda: tf.image.sobel_edges(tf.placeholder(tf.float32, UNKNOWN)), ValueError, "channels"),
        (lambda: tf.image.ssim(*[tf.placeholder(tf.float32, UNKNOWN)] * 2, 1.0), ValueError, "channels"),
        (lambda: tf.image.random_jpeg_quality(tf.zeros([2, 2, 3]), 90, 80), ValueError, "must be less"),
        (lambda: tf.sets.size([1]), TypeError, "Expected `SparseTensor`"),
        (lambda: tf.metrics.precision_at_thresholds([1.0], [1.0], 0.5), ValueError, "must be a list"),
        (lambda: tf.metrics.recall_at_k(1, [[1.0]], 1), ValueError, "Unexpected rank 0 of labels"),
        (lambda: tf.metrics.recall_at_k(tf.placeholder(tf.int64), [[1.0]], 1), ValueError, "must be known"),
        (lambda: tf.metrics.average_precision_at_k([1], [[1.0]], 0), ValueError, "Invalid k=0"),
        (lambda: tf.metrics.sensitivity_at_specificity([1], [1.0], 1.5), ValueError, "specificity` must be in"),
        (lambda: tf.metrics.specificity_at_sensitivity([1], [1.0], -0.5), ValueError, "sensitivity` must be in"),
        (lambda: tf.nn.compute_average_loss(1.0), ValueError, "rank of 1 at least"),
        (lambda: tf.nn.compute_average_loss([1.0], tf.placeholder(tf.float32)), ValueError, "must be known"),
        (lambda: tf.nn.compute_average_loss([1.0], global_batch_size=[1]), ValueError, "must be scalar"),
        (lambda: tf.nn.compute_average_loss([1.0], global_batch_size=1.0), TypeError, "must be an integer"),
        (lambda: tf.ConditionalAccumulator(tf.float32, [2]).apply_grad([1.0]), ValueError, "are incompatible"),
        (lambda: tf.linalg.tridiagonal_solve([[[1.0]]], [1.0]), ValueError, "rank of rhs to be 3 or 1 less, got 1"),
        (lambda: tf.linalg.tridiagonal_solve([], [], "other"), ValueError, "Unrecognized diagonals_format: other"),
        (
            lambda: tf.linalg.tridiagonal_solve([], [], partial_pivoting=False, perturb_singular=True),
            ValueError,
            "must be True if perturb_singular",
        ),
        (lambda: tf.sparse.bincount([1], axis=1), ValueError, "must be 0 or -1"),
        (lambda: tf.sparse.bincount([1], [1.0], binary_output=True), ValueError, "mutually exclusive"),
        (lambda: tf.sparse.bincount([1], tf.sparse.from_dense([1])), ValueError, "weights must be sparse if"),
        (lambda: tf.sparse.bincount(tf.ragged.constant([[1]])), errors.UnimplementedError, "to_sparse"),
        (lambda: tf.sparse.cross("a"), TypeError, "must be a list"),
        (lambda: tf.sparse.cross(["a"]), TypeError, "must be Tensor or SparseTensor"),
        (lambda: tf.nn.ctc_loss_v2(tf.sparse.from_dense([[1]]), [], [], []), ValueError, "must be provided when"),
        (lambda: tf.create_partitioned_variables([2], [1, 1], 0.0), ValueError, "for each of its axes"),
        (lambda: tf.batch_scatter_update(None, tf.placeholder(tf.int32), []), ValueError, "unknown shape"),
        (lambda: tf.parse_single_sequence_example("x"), ValueError, "Missing features"),
        (lambda: tf.parse_single_sequence_example("x", {"a": 1}), ValueError, "context feature a: int"),
    ],
)
def test_invalid_arguments_are_refused(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_jpeg_quality_changes_an_image_little() -> None:
    image = np.full([8, 8, 3], 0.5, np.float32)
    with tf.Session() as sess:
        found = sess.run([tf.image.adjust_jpeg_quality(image, 50), tf.image.random_jpeg_quality(image, 40, 60, seed=1)])
    for one in found:
        assert one.shape == (8, 8, 3)
        np.testing.assert_allclose(one, image, atol=0.02)


def test_sequences_of_an_example_are_parsed() -> None:
    def feature(*values: int) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    words = tf.train.FeatureList(feature=[feature(4), feature(5), feature(6)])
    sizes = tf.train.FeatureList(feature=[feature(1, 2), feature(3)])
    example = tf.train.SequenceExample(
        context=tf.train.Features(feature={"length": feature(3), "tags": feature(7, 8)}),
        feature_lists=tf.train.FeatureLists(feature_list={"words": words, "sizes": sizes}),
    )
    context, sequence = tf.parse_single_sequence_example(
        example.SerializeToString(),
        context_features={"length": tf.FixedLenFeature([], tf.int64), "tags": tf.VarLenFeature(tf.int64)},
        sequence_features={
            "words": tf.FixedLenSequenceFeature([], tf.int64),
            "sizes": tf.VarLenFeature(tf.int64),
            "none": tf.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
        },
    )
    with tf.Session() as sess:
        found = sess.run([context, sequence])
    assert found[0]["length"] == 3 and found[0]["tags"].values.tolist() == [7, 8]
    assert found[1]["words"].tolist() == [4, 5, 6] and found[1]["none"].shape == (0, 2)
    assert found[1]["sizes"].values.tolist() == [1, 2, 3] and found[1]["sizes"].dense_shape.tolist() == [2, 2]
