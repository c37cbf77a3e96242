"""Transforms over several axes, compared with NumPy, since TensorFlow has no CPU kernels for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors

REAL = np.random.RandomState(2).randn(3, 4, 6).astype(np.float32)
WHOLE = (REAL + 1j * REAL[::-1]).astype(np.complex64)


@pytest.mark.parametrize(
    ("name", "value", "given", "want"),
    [
        ("fftnd", WHOLE, {}, np.fft.fftn(WHOLE)),
        ("fftnd", WHOLE, {"axes": [0, 2]}, np.fft.fftn(WHOLE, axes=[0, 2])),
        ("fftnd", WHOLE, {"fft_length": [4, 6]}, np.fft.fftn(WHOLE, [4, 6], axes=[1, 2])),
        ("ifftnd", WHOLE, {"axes": [-1, 1], "norm": "backward"}, np.fft.ifftn(WHOLE, axes=[-1, 1])),
        ("rfftnd", REAL, {}, np.fft.rfftn(REAL)),
        ("rfftnd", REAL, {"axes": [1, 2]}, np.fft.rfftn(REAL, axes=[1, 2])),
        ("irfftnd", np.fft.rfftn(REAL).astype(np.complex64), {}, REAL),
    ],
)
def test_transform_of_several_axes(name: str, value: Any, given: dict[str, Any], want: Any) -> None:
    with tf.Session() as sess:
        np.testing.assert_allclose(sess.run(getattr(tf.signal, name)(value, **given)), want, rtol=1e-4, atol=1e-4)


def test_scale_and_unknown_numbers_of_axes_are_refused() -> None:
    with pytest.raises(errors.UnimplementedError, match="fftnd: norm='ortho'"):
        tf.signal.fftnd(WHOLE, norm="ortho")
    with pytest.raises(ValueError, match="axes must be given"):
        tf.signal.fftnd(WHOLE, tf.placeholder(tf.int32, [None]))


def test_arguments_of_cosine_transforms_are_checked() -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        tf.signal.mdct(REAL, 6)
    with pytest.raises(ValueError, match="must be known"):
        tf.signal.inverse_mdct(tf.placeholder(tf.float32, [2, None]))
