"""Cases of functions that fewer programs use: spectra, matrices, images, quantised numbers, sets, ragged tensors.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES"]

RANDOM = np.random.RandomState(3)
X = RANDOM.randn(2, 3).astype(np.float32)
SQUARE = RANDOM.randn(2, 3, 3).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
POSITIVE = np.matmul(SQUARE, SQUARE.transpose(0, 2, 1))
TALL, WIDE = RANDOM.randn(2, 5, 3).astype(np.float32), RANDOM.randn(2, 3, 5).astype(np.float32)
VECTORS = RANDOM.randn(2, 3, 1).astype(np.float32)
SIGNAL = RANDOM.randn(2, 16).astype(np.float32)
IMAGES = RANDOM.rand(2, 12, 14, 3).astype(np.float32)
OTHERS = np.clip(IMAGES + 0.1 * RANDOM.randn(2, 12, 14, 3), 0, 1).astype(np.float32)
BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3.05]], np.float32)
SCORES = np.array([0.9, 0.75, 0.6, 0.95], np.float32)


def updated(tf: Any, metric: Callable[[], Any]) -> Any:
    """A metric's update of two runs, and its value after them."""
    value, update = metric()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        first = sess.run(update)
        return [tf.constant(np.float32(found)) for found in (first, sess.run(update), sess.run(value))]


def ragged(tf: Any) -> Any:
    """Three rows; the second is empty."""
    return tf.ragged.constant([[3, 1, 4], [], [1, 5]])


def parts(found: Any) -> list[Any]:
    """The tensors of a ragged tensor."""
    return [found.flat_values, *found.nested_row_splits]


def sparse(found: Any) -> list[Any]:
    """The tensors of a sparse tensor."""
    return [found.indices, found.values, found.dense_shape]


def solved(tf: Any) -> list[Any]:
    """The results of the functions that take the LU factors of a matrix."""
    factors, order = tf.linalg.lu(SQUARE)
    return [
        tf.linalg.lu_reconstruct(factors, order),
        tf.linalg.lu_solve(factors, order, VECTORS),
        tf.linalg.lu_matrix_inverse(factors, order),
    ]


A = np.array([[1, 2, 2], [5, 6, 7]], np.int64)
B = np.array([[2, 3, 4], [7, 8, 5]], np.int64)
HELD = np.array([[1, 0, 1, 1], [0, 1, 1, 0]], bool)
GUESSES = np.array([[0.2, 0.6, 0.9, 0.4], [0.7, 0.3, 0.8, 0.1]], np.float32)


def spread(tf: Any, values: Any) -> Any:
    """A sparse tensor of whole rows."""
    rows, columns = np.indices(values.shape)
    return tf.SparseTensor(np.stack([rows.ravel(), columns.ravel()], 1), values.ravel(), values.shape)


MATRICES: dict[str, Callable[[Any], Any]] = {
    "matvec": lambda tf: [tf.linalg.matvec(SQUARE, VECTORS[..., 0]), tf.linalg.matvec(SQUARE, X, transpose_a=True)],
    "cholesky_solve": lambda tf: tf.cholesky_solve(tf.cholesky(POSITIVE), VECTORS),
    "matrix_solve_ls": lambda tf: [
        tf.matrix_solve_ls(TALL, TALL[..., :1]),
        tf.matrix_solve_ls(WIDE, VECTORS),
        tf.linalg.lstsq(TALL, TALL[..., :1], l2_regularizer=0.5),
    ],
    "slogdet": lambda tf: list(tf.linalg.slogdet(SQUARE)),
    "sqrtm": lambda tf: tf.linalg.sqrtm(POSITIVE),
    "matrix_rank and pinv": lambda tf: [
        tf.linalg.matrix_rank(TALL),
        tf.linalg.matrix_rank(np.ones([3, 3], np.float32)),
        tf.linalg.pinv(TALL),
        tf.linalg.pinv(np.ones([3, 3], np.float32)),
    ],
    "normalize": lambda tf: [*tf.linalg.normalize(X), *tf.linalg.normalize(X, 1, axis=1)],
    "factors of lu": solved,
    "tridiagonal_matmul": lambda tf: tf.linalg.tridiagonal_matmul(
        np.arange(1, 10, dtype=np.float32).reshape(3, 3), VECTORS[0]
    ),
    "cross and diagonals": lambda tf: [
        tf.linalg.cross([1.0, 2.0, 3.0], [3.0, 1.0, 0.0]),
        tf.linalg.tensor_diag([1, 2]),
        tf.linalg.tensor_diag_part([[1, 2], [3, 4]]),
        tf.linalg.global_norm([X, X[0]]),
    ],
}

SPECTRA: dict[str, Callable[[Any], Any]] = {
    "windows": lambda tf: [
        tf.signal.hamming_window(8),
        tf.signal.hamming_window(7, periodic=False),
        tf.signal.kaiser_window(6, 5.0),
        tf.signal.kaiser_bessel_derived_window(8),
        tf.signal.vorbis_window(6),
    ],
    "dct": lambda tf: [
        *(tf.signal.dct(SIGNAL, type=kind) for kind in (1, 2, 3, 4)),
        *(tf.signal.dct(SIGNAL, type=kind, norm="ortho") for kind in (2, 3)),
        *(tf.signal.idct(SIGNAL, type=kind, norm="ortho") for kind in (2, 3, 4)),
        tf.signal.dct(SIGNAL, n=5),
        tf.signal.dct(SIGNAL, n=20),
    ],
    "fftshift": lambda tf: [
        tf.signal.fftshift(X),
        tf.signal.fftshift(X, axes=1),
        tf.signal.ifftshift(X),
        tf.signal.ifftshift(X, axes=[1]),
    ],
    "rfft2d and back": lambda tf: [
        tf.abs(tf.signal.rfft2d(SIGNAL)),
        tf.signal.irfft2d(tf.signal.rfft2d(SIGNAL)),
        tf.abs(tf.spectral.rfft3d(IMAGES[..., 0])),
        tf.spectral.irfft3d(tf.spectral.rfft3d(IMAGES[..., 0])),
    ],
    "inverse_stft": lambda tf: [
        tf.signal.inverse_stft(tf.signal.stft(SIGNAL, 8, 4), 8, 4, window_fn=tf.signal.inverse_stft_window_fn(4)),
        tf.signal.inverse_stft(tf.signal.stft(SIGNAL, 6, 3), 6, 3),
        tf.signal.overlap_and_add(SIGNAL.reshape(2, 4, 4), 2),
    ],
    "mel": lambda tf: [
        tf.signal.linear_to_mel_weight_matrix(5, 9, 8000, 100.0, 3000.0),
        tf.signal.mfccs_from_log_mel_spectrograms(SIGNAL),
    ],
}

NUMBERS: dict[str, Callable[[Any], Any]] = {
    "lbeta": lambda tf: tf.lbeta(np.abs(SIGNAL)),
    "special": lambda tf: [
        getattr(tf.math.special, name)(np.array([0.3, 1.0, 2.5], np.float32))
        for name in "bessel_i0 bessel_j1 bessel_k0 bessel_y1 dawsn expint fresnel_cos fresnel_sin spence".split()
    ],
    "erfcinv, polyval and others": lambda tf: [
        tf.math.erfcinv([0.1, 0.5, 1.9]),
        tf.math.polyval([2.0, 0.0, -1.0], [1.0, 2.0]),
        tf.math.reciprocal_no_nan([2.0, 0.0]),
        tf.math.reduce_euclidean_norm(X),
        tf.math.reduce_euclidean_norm(X, axis=1, keepdims=True),
        tf.math.cumulative_logsumexp(SIGNAL, axis=1),
        tf.math.xlog1py([0.0, 2.0], [-1.0, 3.0]),
    ],
    "saturate_cast": lambda tf: [
        tf.saturate_cast([-300.0, 3.7, 500.0], tf.uint8),
        tf.saturate_cast(tf.constant([-5, 70000]), tf.int16),
    ],
    "unsorted_segment_sqrt_n": lambda tf: tf.unsorted_segment_sqrt_n(SQUARE.reshape(6, 3), [0, 0, 2, 2, 2, 0], 4),
    "histogram_fixed_width_bins": lambda tf: tf.histogram_fixed_width_bins(
        [-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], 5
    ),
    "string hashes": lambda tf: [
        tf.string_to_hash_bucket(["a", "bc"], 1000),
        tf.string_to_hash_bucket_strong(["a", "bc"], 1000, [3, 4]),
        tf.string_strip([" a b ", "c"]),
    ],
    "tensor_scatter": lambda tf: [
        tf.tensor_scatter_nd_update([1, 2, 3, 4], [[1], [3]], [9, 8]),
        tf.tensor_scatter_nd_add([1, 2, 3, 4], [[1], [1]], [9, 8]),
        tf.tensor_scatter_nd_sub([1, 2, 3, 4], [[0], [3]], [9, 8]),
        tf.tensor_scatter_nd_max([1, 2, 3, 4], [[0], [3]], [9, 1]),
    ],
    "space_to_batch": lambda tf: [
        tf.space_to_batch(IMAGES[:, :4, :4], [[0, 0], [0, 0]], 2),
        tf.batch_to_space(tf.space_to_batch(IMAGES[:, :4, :4], [[0, 0], [0, 0]], 2), [[0, 0], [0, 0]], 2),
        *tf.required_space_to_batch_paddings([10, 12], [3, 4], [[1, 0], [0, 1]]),
    ],
    "quantize": lambda tf: [
        *(tf.cast(part, tf.float32) for part in tf.quantization.quantize(X, -2.0, 2.0, tf.quint8)),
        tf.quantization.dequantize(
            tf.quantization.quantize(X, -2.0, 2.0, tf.qint8, mode="SCALED")[0], -2.0, 2.0, "SCALED"
        ),
        tf.quantization.quantize_and_dequantize(X, -1.0, 1.0, range_given=True),
        tf.quantization.fake_quant_with_min_max_args(X, min=-1, max=1),
        tf.quantization.fake_quant_with_min_max_vars(X, -1.0, 1.0, num_bits=4),
        tf.fake_quant_with_min_max_vars_per_channel(X, [-1.0] * 3, [1.0, 2.0, 0.5]),
    ],
    "switch_case": lambda tf: [
        tf.switch_case(tf.constant(index), [lambda: tf.constant(1), lambda: tf.constant(2)]) for index in (0, 1, 7, -1)
    ],
    "vectorized_map": lambda tf: [
        tf.vectorized_map(lambda row: tf.reduce_sum(row) > 0, X),
        *tf.vectorized_map(lambda pair: (pair[0] * 2, pair[1] + 1), (tf.constant(X), tf.constant([1, 2]))),
    ],
    "parallel_stack": lambda tf: tf.parallel_stack([X[0], X[1]]),
    "messages of tensors": lambda tf: tf.constant(
        np.concatenate(
            [
                tf.make_ndarray(tf.make_tensor_proto([1.5, 2.5])),
                tf.make_ndarray(tf.make_tensor_proto(3.0, tf.float32, [2])),
            ]
        )
    ),
    "random_ops without state": lambda tf: [
        tf.random.stateless_truncated_normal([3], [1, 2], 1.0, 2.0),
        tf.random.stateless_categorical([[0.1, 0.9, 0.3]], 5, [1, 2]),
        tf.random.stateless_binomial([3], [1, 2], 10.0, 0.5),
        tf.random.stateless_poisson([3], [1, 2], 4.0),
    ],
}

PICTURES: dict[str, Callable[[Any], Any]] = {
    "colours": lambda tf: [
        tf.image.rgb_to_yiq(IMAGES[0, :2, :2]),
        tf.image.yiq_to_rgb(IMAGES[0, :2, :2]),
        tf.image.rgb_to_yuv(IMAGES[0, :2, :2]),
        tf.image.yuv_to_rgb(IMAGES[0, :2, :2]),
        tf.image.adjust_gamma(IMAGES[0, :2, :2], 2.0, 0.5),
    ],
    "edges": lambda tf: [
        *tf.image.image_gradients(tf.constant(IMAGES[:, :3, :3])),
        tf.image.sobel_edges(tf.constant(IMAGES[:, :4, :5])),
    ],
    "likeness": lambda tf: [
        tf.image.psnr(IMAGES, OTHERS, 1.0),
        tf.image.psnr((IMAGES * 255).astype(np.uint8), (OTHERS * 255).astype(np.uint8), 255),
        tf.image.ssim(IMAGES, OTHERS, 1.0),
        tf.image.ssim(IMAGES, OTHERS, 1.0, filter_size=5, return_index_map=True),
        tf.image.ssim_multiscale(IMAGES, OTHERS, 1.0, power_factors=(0.5, 0.5), filter_size=5),
    ],
    "resize_image_with_pad": lambda tf: [
        tf.image.resize_image_with_pad(IMAGES[0], 6, 10),
        tf.image.resize_image_with_pad(IMAGES, 9, 5),
    ],
    "non_max_suppression with scores": lambda tf: [
        *tf.image.non_max_suppression_with_scores(BOXES, SCORES, 3, 0.5, soft_nms_sigma=0.5),
        *tf.image.non_max_suppression_padded(BOXES, SCORES, 3, pad_to_max_output_size=True),
        tf.image.non_max_suppression_overlaps(np.eye(4, dtype=np.float32), SCORES, 2),
        *tf.image.combined_non_max_suppression(BOXES[None, :, None], SCORES[None, :, None], 2, 3),
    ],
    "is_jpeg": lambda tf: [
        tf.image.is_jpeg(tf.image.encode_jpeg(tf.zeros([2, 2, 3], tf.uint8))),
        tf.image.is_jpeg("abc"),
    ],
}

SETS: dict[str, Callable[[Any], Any]] = {
    "sets of dense rows": lambda tf: [
        *sparse(tf.sets.intersection(A, B)),
        *sparse(tf.sets.union(A, B)),
        *sparse(tf.sets.difference(A, B)),
        *sparse(tf.sets.set_difference(A, B, aminusb=False)),
    ],
    "sets of sparse rows": lambda tf: [
        tf.sets.size(spread(tf, A)),
        *sparse(tf.sets.intersection(spread(tf, A), spread(tf, B))),
        *sparse(tf.sets.union(A, spread(tf, B))),
        *sparse(tf.sets.difference(spread(tf, A), spread(tf, B))),
    ],
}

RAGGED: dict[str, Callable[[Any], Any]] = {
    "ragged.constant": lambda tf: [
        *parts(ragged(tf)),
        *parts(tf.ragged.constant([[[1.5], [2.5, 3.5]], [], [[4.5]]])),
        *parts(tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1)),
        tf.ragged.constant(["a", "b"]),
    ],
    "ragged forms": lambda tf: [
        ragged(tf).to_tensor(),
        ragged(tf).to_tensor(-1),
        tf.ragged.constant([["a"], ["b", "c"]]).to_tensor(),
        *sparse(ragged(tf).to_sparse()),
        ragged(tf).row_lengths(),
        ragged(tf).nrows(),
        ragged(tf).value_rowids(),
        ragged(tf).row_starts(),
        ragged(tf).bounding_shape(),
        tf.ragged.constant([[[1], [2, 3]], []]).to_tensor(),
    ],
    "ragged from": lambda tf: [
        *parts(tf.RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1])),
        *parts(tf.RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 3])),
        *parts(tf.RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 3], 6)),
        *parts(tf.RaggedTensor.from_row_starts([1, 2, 3], [0, 2, 3])),
        *parts(tf.RaggedTensor.from_row_limits([1, 2, 3], [1, 1, 3])),
        *parts(tf.RaggedTensor.from_tensor([[1, 2, 0], [0, 3, 0], [0, 0, 0]], padding=0)),
        *parts(tf.RaggedTensor.from_tensor([[1, 2, 0], [0, 3, 0]], lengths=[1, 3])),
        *parts(tf.RaggedTensor.from_tensor([[1, 2], [3, 4]])),
        *parts(tf.RaggedTensor.from_sparse(tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [5, 6, 7], [4, 2]))),
    ],
    "ragged values": lambda tf: [
        *parts(tf.ragged.map_flat_values(tf.square, ragged(tf))),
        *parts(ragged(tf) + 1),
        *parts(ragged(tf) * ragged(tf)),
        *parts(tf.ragged.range([2, 5], [4, 6])),
        *parts(tf.ragged.range([0, 3, 2])),
        *parts(tf.ragged.boolean_mask([[1, 2, 3], [4, 5, 6]], [[True, False, True], [False, False, False]])),
        tf.ragged.row_splits_to_segment_ids([0, 3, 3, 5]),
        tf.ragged.segment_ids_to_row_splits([0, 0, 2]),
        ragged(tf)[0],
        ragged(tf)[2],
        ragged(tf)[-1],
        *parts(ragged(tf)[1:]),
    ],
    "unicode": lambda tf: [
        *parts(tf.strings.unicode_decode(["ab", "\u00e9"], "UTF-8")),
        tf.strings.unicode_decode("ab", "UTF-8"),
        tf.strings.unicode_encode(tf.ragged.constant([[97, 98], [233]]), "UTF-8"),
        tf.strings.unicode_encode([97, 98], "UTF-8"),
        tf.strings.unsorted_segment_join(["a", "b", "c"], [1, 0, 1], 2, separator=":"),
    ],
}

METRICS: dict[str, Callable[[Any], Any]] = {
    "mean_tensor": lambda tf: updated(
        tf, lambda: tf.metrics.mean_tensor(X, weights=[[1.0, 0.5, 0.0], [1.0, 0.0, 0.0]])
    ),
    "percentage_below": lambda tf: updated(tf, lambda: tf.metrics.percentage_below(X, 0.1)),
    "mean_cosine_distance": lambda tf: updated(tf, lambda: tf.metrics.mean_cosine_distance(X, X + 0.1, 1)),
    "mean_per_class_accuracy": lambda tf: updated(
        tf,
        lambda: tf.metrics.mean_per_class_accuracy(
            tf.constant([0, 1, 2, 2]), tf.constant([0, 2, 2, 1]), 4, weights=tf.constant([1.0, 1.0, 0.5, 1.0])
        ),
    ),
    "recall_at_k": lambda tf: updated(
        tf, lambda: tf.metrics.recall_at_k(np.array([[0, 3], [2, 1]], np.int64), GUESSES, 2)
    ),
    "metrics at thresholds": lambda tf: [
        part
        for name in "precision recall false_negatives false_positives true_negatives true_positives".split()
        for part in updated(
            tf,
            lambda name=name: getattr(tf.metrics, f"{name}_at_thresholds")(HELD, GUESSES, [0.25, 0.5, 0.75]),
        )
    ],
}

CASES: dict[str, Callable[[Any], Any]] = {**MATRICES, **SPECTRA, **NUMBERS, **PICTURES, **SETS, **RAGGED, **METRICS}
