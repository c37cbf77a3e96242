"""Cases of names that programs use less: distributions, transforms, crosses of features, partitioned variables.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compat.recorded.sparse_cases import parts

__all__ = ["CASES"]

_rng = np.random.RandomState(7)
SIGNAL = _rng.randn(2, 37).astype(np.float32)
LOGITS = _rng.randn(6, 2, 5).astype(np.float32)
DIAGONALS = np.array([[1.0, -0.5, 2.0, 0.0], [4.0, 3.0, 5.0, 6.0], [0.0, 1.0, 2.0, -1.0]], np.float32)
WHOLE = np.array([[[3, 1, 0], [1, 4, 2], [0, 1, 5]], [[2, -1, 0], [0.5, 3, 1], [0, 1, 4]]], np.float32)
POINTS = np.array([[-2.0], [0.3], [1.5]], np.float32)


def student(tf: Any) -> Any:
    """Distributions without a mean, without a variance, and with both."""
    return tf.distributions.StudentT(df=[0.5, 2.0, 7.0], loc=[0.0, 1.0, -1.0], scale=2.0)


def counts(tf: Any) -> Any:
    """Two distributions of counts of three classes."""
    return tf.distributions.DirichletMultinomial(4.0, [[1.0, 2.0, 0.5], [3.0, 3.0, 3.0]])


def spread(made: Any, tf: Any) -> Any:
    """The rounded mean of many samples."""
    samples = made.sample(20000, seed=3)
    with tf.Session() as sess:
        return tf.constant(np.round(sess.run(samples).mean(0) * 4) / 4)


def sparse_words(tf: Any) -> Any:
    """Two rows of words."""
    return tf.SparseTensor([[0, 0], [1, 0], [1, 1]], ["a", "b", "c"], [2, 2])


def sparse_numbers(tf: Any) -> Any:
    """Two rows of numbers, the second without any."""
    return tf.SparseTensor([[0, 0], [0, 1], [0, 2]], [3, 1, 3], [2, 3])


def parted(tf: Any) -> Any:
    """The names, shapes and values of the parts of a variable."""
    made = tf.create_partitioned_variables([5, 2], [2, 1], tf.constant_initializer(1.5), collections=["mine"])
    more = tf.create_partitioned_variables([2], [1], tf.zeros_initializer(), tf.int32, name="other", trainable=False)
    names = [part.op.name for part in (*made, *more, *tf.get_collection("mine"), *tf.trainable_variables())]
    with tf.Session() as sess:
        sess.run([part.initializer for part in (*made, *more)])
        values = [tf.constant(sess.run(part)) for part in (*made, *more)]
    return [tf.constant(names), *values]


def scattered(tf: Any, indices: Any, updates: Any, start: Any) -> Any:
    """A variable after parts of it are replaced in batches."""
    value = tf.Variable(start)
    with tf.Session() as sess:
        sess.run(value.initializer)
        sess.run(tf.batch_scatter_update(value, indices, updates))
        return tf.constant(sess.run(value))


def solved(tf: Any, diagonals: Any, rhs: Any, *form: str, **settings: Any) -> Any:
    """The solution of equations with three diagonals."""
    given = [tf.constant(part) for part in diagonals] if isinstance(diagonals, list) else tf.constant(diagonals)
    return tf.linalg.tridiagonal_solve(given, tf.constant(rhs), *form, **settings)


def gradients_of_diagonals(tf: Any) -> list[Any]:
    """Of matrices and of the diagonals that replace others."""
    whole, part = tf.constant(WHOLE), tf.constant([[1.0, 2.0], [3.0, 4.0]])
    made = tf.matrix_set_diag(whole, part, k=-1) * 2.0 + tf.matrix_diag(part, k=1)
    total = tf.reduce_sum(made * made) + tf.reduce_sum(tf.matrix_diag_part(whole, k=(0, 1)) ** 2)
    return list(tf.gradients(total, [whole, part]))


def passed_through(tf: Any) -> list[Any]:
    """A rounded value, and its gradient, which is not that of rounding."""
    x = tf.constant([0.2, 1.7])
    y = tf.grad_pass_through(tf.round)(x)
    return [y, tf.gradients(y * [2.0, 3.0], x)[0]]


def ctc(tf: Any, blank: int | None, labels: Any, **settings: Any) -> list[Any]:
    """The loss, and its gradient."""
    logits = tf.constant(LOGITS)
    loss = tf.nn.ctc_loss_v2(labels, logits, [3, 2], [6, 5], blank_index=blank, **settings)
    return [loss, tf.gradients(loss, logits)[0]]


def ctc_of_sparse(tf: Any) -> list[Any]:
    """The CTC loss of sparse labels, with a blank in the middle of the classes and batch-major logits."""
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([0, 4, 3]), [2, 2])
    logits = tf.constant(LOGITS.transpose(1, 0, 2))
    return [tf.nn.ctc_loss_v2(labels, logits, None, [6, 5], logits_time_major=False, blank_index=2)]


def paths(tf: Any) -> list[Any]:
    """The two best paths, without merging repeated labels."""
    found, scores = tf.nn.ctc_beam_search_decoder_v2(LOGITS, [6, 5], beam_width=8, top_paths=2)
    return [part for path in found for part in parts(path)] + [scores]


CASES: dict[str, Callable[[Any], Any]] = {
    "StudentT": lambda tf: [
        getattr(student(tf), what)(*given)
        for what, given in (("log_prob", [POINTS]), ("prob", [POINTS]), ("entropy", []), ("mode", []))
    ],
    "cdf of StudentT": lambda tf: tf.distributions.StudentT(3.0, 0.5, -2.0).cdf(POINTS),
    "moments of StudentT": lambda tf: [
        tf.where(tf.is_nan(found), tf.fill([3], -9.0), tf.minimum(found, 1e6))
        for found in (student(tf).mean(), student(tf).variance(), student(tf).stddev())
    ],
    "samples of StudentT": lambda tf: spread(tf.distributions.StudentT([30.0, 50.0], [1.0, -2.0], 0.5), tf),
    "DirichletMultinomial": lambda tf: [
        counts(tf).log_prob([[1.0, 2.0, 1.0], [0.0, 4.0, 0.0]]),
        counts(tf).mean(),
        counts(tf).variance(),
        counts(tf).covariance(),
    ],
    "samples of DirichletMultinomial": lambda tf: spread(
        tf.distributions.DirichletMultinomial(4.0, [[4.0, 8.0, 4.0], [3.0, 3.0, 6.0]]), tf
    ),
    "mdct": lambda tf: [
        tf.signal.mdct(SIGNAL, 8),
        tf.signal.mdct(SIGNAL, 12, pad_end=True, norm="ortho"),
        tf.signal.mdct(SIGNAL, 8, window_fn=None),
    ],
    "inverse_mdct": lambda tf: [
        tf.signal.inverse_mdct(SIGNAL[:, :36].reshape(2, 9, 4)),
        tf.signal.inverse_mdct(SIGNAL[:, :36].reshape(2, 6, 6), norm="ortho"),
        tf.signal.inverse_mdct(SIGNAL[:, :36].reshape(2, 9, 4), window_fn=None),
    ],
    "sparse.cross": lambda tf: [
        *parts(tf.sparse.cross([sparse_words(tf), tf.constant([[1, 2], [3, 4]])])),
        *parts(tf.sparse.cross([tf.constant([["x"], ["y"]]), sparse_words(tf)], separator="-")),
    ],
    "sparse.cross_hashed": lambda tf: [
        *parts(tf.sparse.cross_hashed([sparse_words(tf), tf.constant([["x"], ["y"]])])),
        *parts(tf.sparse.cross_hashed([sparse_words(tf), tf.constant([[1], [2]])], num_buckets=100, hash_key=7)),
    ],
    "sparse.bincount": lambda tf: [
        part
        for found in (
            tf.sparse.bincount([3, 1, 3]),
            tf.sparse.bincount([[3, 1], [1, 1]], axis=-1),
            tf.sparse.bincount([[3, 1], [1, 1]], weights=[[0.5, 2.0], [3.0, 4.0]], axis=-1),
            tf.sparse.bincount([[3, 1], [1, 1]], axis=-1, minlength=6),
            tf.sparse.bincount([[3, 1], [1, 1]], axis=-1, maxlength=2, binary_output=True),
            tf.sparse.bincount(sparse_numbers(tf), axis=-1),
            tf.sparse.bincount(sparse_numbers(tf), axis=0),
        )
        for part in parts(found)
    ],
    "create_partitioned_variables": parted,
    "batch_scatter_update": lambda tf: [
        scattered(tf, [[0, 2], [1, 3]], [[9.0, 8.0], [7.0, 6.0]], np.zeros([2, 4], np.float32)),
        scattered(tf, [2, 0], [[1.0, 2.0], [3.0, 4.0]], np.zeros([3, 2], np.float32)),
        scattered(tf, [[1], [0]], [[[1.0, 2.0]], [[3.0, 4.0]]], np.zeros([2, 2, 2], np.float32)),
    ],
    "grad_pass_through": passed_through,
    "ctc_loss_v2": lambda tf: ctc(tf, None, [[1, 2, 3], [4, 4, 0]]),
    "ctc_loss_v2 with another blank": lambda tf: ctc(tf, -2, [[0, 2, 1], [4, 2, 0]]),
    "ctc_loss_v2 of sparse labels": ctc_of_sparse,
    "ctc_beam_search_decoder_v2": paths,
    "tridiagonal_solve": lambda tf: [
        solved(tf, DIAGONALS, SIGNAL[0, :4]),
        solved(tf, list(DIAGONALS), SIGNAL[:, :4], "sequence", transpose_rhs=True),
        solved(tf, [DIAGONALS[0, :3], DIAGONALS[1], DIAGONALS[2, 1:]], SIGNAL[:, :4].T, "sequence"),
        solved(tf, WHOLE, SIGNAL[:, :3], "matrix", partial_pivoting=False),
    ],
    "several diagonals": lambda tf: [
        tf.matrix_diag([[1, 2, 3], [4, 5, 6]], k=1),
        tf.matrix_diag([[8, 9, 0], [1, 2, 3], [0, 4, 5]], k=(-1, 1), num_rows=3, num_cols=4, padding_value=7),
        tf.linalg.diag_part(WHOLE, k=(-1, 1), padding_value=9.0),
        tf.matrix_diag_part(WHOLE, k=-1),
        tf.matrix_set_diag(WHOLE, [[1.0, 2.0], [3.0, 4.0]], k=1),
        tf.linalg.set_diag(WHOLE, tf.ones([2, 2, 3]), k=(-1, 0), align="LEFT_RIGHT"),
        tf.matrix_diag_part([[[1, 2, 3], [4, 5, 6]]]),
    ],
    "gradients of diagonals": gradients_of_diagonals,
    "random_index_shuffle": lambda tf: tf.random_index_shuffle([0, 1, 2, 3, 4], [1, 2, 3], 4),
}
