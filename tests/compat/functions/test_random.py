"""`tf.random`: the range of samples."""

from __future__ import annotations

import numpy as np
import pytest

import aexec.compat.v1 as tf


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("rate", [None, 100.0])
def test_gamma_samples_are_positive(dtype: str, rate: float | None) -> None:
    """Most samples of a small shape parameter round to 0, and TensorFlow 2.21 returns the smallest normal number."""
    samples = tf.random.gamma([1000], 1e-3, rate, dtype=dtype, seed=1)
    with tf.Session() as sess:
        assert sess.run(samples).min() == np.finfo(dtype).tiny
