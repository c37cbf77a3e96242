"""Cases of functions that take a few nodes: repetition, images, signals, distributions.

Next to read: `cases.py`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES"]

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
IMAGE = np.arange(2 * 3 * 2, dtype=np.float32).reshape(2, 3, 2)
SIGNAL = np.sin(np.arange(12, dtype=np.float32))


def sliced(tf: Any, resource: bool, change: Callable[[Any], Any]) -> Any:
    """A variable after a part of it is assigned."""
    v = tf.Variable([[1.0, 2.0, 3.0, 4.0, 5.0]] * 2, use_resource=resource)
    with tf.Session() as sess:
        sess.run(v.initializer)
        sess.run(change(v))
        return tf.constant(sess.run(v))


def of_distribution(made: Any, values: Any) -> list[Any]:
    """Statistics and probabilities of a distribution."""
    return [made.log_prob(values), made.prob(values), made.entropy(), made.batch_shape_tensor()]


def shared(tf: Any) -> Any:
    """Two calls of a template."""
    template = tf.make_template("t", lambda x: x * tf.get_variable("w", [], initializer=tf.constant_initializer(3.0)))
    return [
        template(tf.constant(2.0)),
        template(tf.constant(4.0)),
        tf.constant([v.name for v in tf.global_variables()]),
    ]


def precision(tf: Any) -> Any:
    """After one update."""
    value, update = tf.metrics.precision_at_k(np.array([[0], [2]], np.int64), X[:, ::-1] * [[1], [-1]], 2)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        return tf.constant([sess.run(update), sess.run(value)])


CASES: dict[str, Callable[[Any], Any]] = {
    "repeat by a vector": lambda tf: [
        tf.repeat([[1, 2], [3, 4]], [1, 2], axis=0),
        tf.repeat([[1, 2], [3, 4]], tf.constant([0, 2]), axis=1),
        tf.repeat([1, 2, 3], [2, 0, 1]),
        tf.repeat([1, 2], [2]),
    ],
    "assignment to slices": lambda tf: [
        sliced(tf, resource, change)
        for resource in (False, True)
        for change in (
            lambda v: v[0, 4:1:-2].assign([9.0, 8.0]),
            lambda v: v[:, 1].assign([7.0, 6.0]),
            lambda v: v[1].assign([1.0, 1.0, 1.0, 1.0, 0.0]),
            lambda v: v[..., ::-1].assign(v[0] * [[1.0], [2.0]]),
        )
    ],
    "division": lambda tf: [tf.floor_div(-7, 2), tf.truncatediv(-7, 2), tf.truncatemod(-7, 2)],
    "setdiff1d": lambda tf: list(tf.setdiff1d([1, 2, 3, 4], [2, 4])),
    "extract_image_patches": lambda tf: tf.extract_image_patches(
        IMAGE[None], [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"
    ),
    "unsorted_segment_mean": lambda tf: [
        tf.unsorted_segment_mean(X, [2, 2], 3),
        tf.math.unsorted_segment_mean(X, [[0, 1, 1], [0, 0, 2]], 4),
    ],
    "make_template": shared,
    "rot90": lambda tf: [tf.image.rot90(IMAGE, k) for k in range(4)] + [tf.image.rot90(IMAGE[None])],
    "resize_image_with_crop_or_pad": lambda tf: [
        tf.image.resize_image_with_crop_or_pad(IMAGE, *size) for size in ((1, 2), (4, 6), (3, 1), (2, 3))
    ],
    "strings.split": lambda tf: [
        part
        for found in (tf.strings.split(["a b", "c"]), tf.strings.split(["a,b,,c"], sep=",", maxsplit=2))
        for part in (found.indices, found.values, found.dense_shape)
    ],
    "ctc_beam_search_decoder": lambda tf: [
        part
        for paths, scores in [tf.nn.ctc_beam_search_decoder(np.log(np.abs(IMAGE[:, :1] + 1)), [2], 3, 1)]
        for part in (paths[0].values, scores)
    ],
    "precision_at_k": precision,
    "linalg.logdet": lambda tf: tf.linalg.logdet([[4.0, 1.0], [1.0, 3.0]]),
    "signal": lambda tf: [
        tf.signal.frame(SIGNAL, 5, 2),
        tf.signal.frame(SIGNAL, 5, 3, pad_end=True),
        tf.signal.hann_window(5),
        tf.signal.hann_window(6, periodic=False),
        tf.abs(tf.signal.stft(SIGNAL, 5, 2)),
        tf.abs(tf.signal.rfft(SIGNAL, [8])),
        tf.abs(tf.signal.rfft(SIGNAL, [15])),
        tf.signal.irfft(tf.signal.rfft(SIGNAL)),
    ],
    "Normal": lambda tf: of_distribution(tf.distributions.Normal([0.0, 1.0], [1.0, 2.0]), [0.5, -1.0]),
    "Uniform": lambda tf: of_distribution(tf.distributions.Uniform(1.0, 3.0), [1.5, 2.0]),
    "Bernoulli": lambda tf: (
        of_distribution(tf.distributions.Bernoulli(probs=[0.2, 0.7]), [1, 0])
        + of_distribution(tf.distributions.Bernoulli(logits=[0.5]), [1])
    ),
    "Categorical": lambda tf: [
        *of_distribution(tf.distributions.Categorical(probs=[[0.2, 0.8], [0.5, 0.5]]), [1, 0]),
        tf.distributions.Categorical([[1.0, 2.0, 0.0]]).mode(),
    ],
    "kl_divergence": lambda tf: [
        tf.distributions.kl_divergence(tf.distributions.Normal(0.0, 1.0), tf.distributions.Normal(1.0, 2.0)),
        tf.distributions.kl_divergence(
            tf.distributions.Categorical(probs=[0.2, 0.8]), tf.distributions.Categorical(probs=[0.5, 0.5])
        ),
        tf.distributions.kl_divergence(tf.distributions.Bernoulli(probs=0.2), tf.distributions.Bernoulli(probs=0.5)),
    ],
    "nest": lambda tf: tf.constant(
        tf.nest.flatten(tf.nest.map_structure(lambda a, b: a + b, {"b": [1, (2,)], "a": 3}, {"a": 1, "b": [5, (6,)]}))
    ),
}
