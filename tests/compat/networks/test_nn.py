"""`tf.nn` functions of ops that take all of TensorFlow's arguments: pools by fractions, and of quantised numbers."""

from __future__ import annotations

import numpy as np
import pytest

import aexec.compat.v1 as tf

IMAGE = np.arange(49, dtype=np.float32).reshape(1, 7, 7, 1)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_fractional_pool_takes_seeds_and_kinds_of_windows(kind):
    pool = getattr(tf.nn, f"fractional_{kind}_pool")
    with tf.Session() as sess:
        pooled, rows, columns = sess.run(
            pool(IMAGE, [1, 3.5, 3.5, 1], pseudo_random=True, overlapping=True, deterministic=True, seed=3, seed2=7)
        )
    assert rows.tolist() in ([0, 3, 7], [0, 4, 7]) and columns.tolist() in ([0, 3, 7], [0, 4, 7])
    whole = IMAGE[0, rows[1] :, columns[1] :, 0]
    assert pooled[0, -1, -1, 0] == getattr(whole, {"avg": "mean"}.get(kind, kind))()


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_quantized_pool(kind):
    pool = getattr(tf.nn, f"quantized_{kind}_pool")
    image = tf.cast(tf.constant(IMAGE), tf.quint8)
    with tf.Session() as sess:
        pooled, low, high = sess.run(pool(image, -1.0, 1.0, [1, 7, 7, 1], [1, 1, 1, 1], "VALID"))
    assert pooled.item() == {"avg": 24, "max": 48}[kind] and (low, high) == (-1, 1)


def test_quantized_convolution():
    image = tf.cast(tf.constant(IMAGE), tf.quint8)
    weight = tf.cast(tf.fill([1, 1, 1, 1], 2.0), tf.quint8)
    with tf.Session() as sess:
        found = sess.run(
            tf.nn.quantized_conv2d(
                image, weight, 0.0, 255.0, 0.0, 255.0, [1, 1, 1, 1], "SAME", out_type=tf.qint32, dilations=[1, 1, 1, 1]
            )
        )
    assert found[0].ravel().tolist() == (2 * IMAGE).ravel().tolist()
