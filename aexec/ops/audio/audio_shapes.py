"""Shape functions of `audio_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import InferenceContext


def decode_wav(c: InferenceContext) -> None:
    """[samples, channels], and the sample rate."""
    c.with_rank(c.input(0), 0)
    sizes = []
    for attr in ("desired_samples", "desired_channels"):
        wanted = c.attr(attr)
        if wanted < -1:
            raise errors.InvalidArgumentError(f"{attr[8:]} must be non-negative, got {wanted}")
        sizes.append(None if wanted == -1 else wanted)
    c.set_output(0, c.matrix(*sizes))
    c.set_output(1, c.scalar())


def encode_wav(c: InferenceContext) -> None:
    """A scalar for samples and rate."""
    c.with_rank(c.input(0), 2)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.scalar())


def spectrogram(c: InferenceContext) -> None:
    """[channels, windows, frequencies] of samples and channels."""
    shape = c.with_rank(c.input(0), 2)
    window, stride = c.attr("window_size"), c.attr("stride")
    length = c.dim(shape, 0).value
    windows = None
    if length is not None and stride > 0:
        windows = 0 if length < window else 1 + (length - window) // stride
    frequencies = 1 + (1 << max(window - 1, 0).bit_length()) // 2
    c.set_output(0, c.make_shape((c.dim(shape, 1), windows, frequencies)))


def mfcc(c: InferenceContext) -> None:
    """[channels, windows, coefficients]."""
    shape = c.with_rank(c.input(0), 3)
    c.with_rank(c.input(1), 0)
    c.set_output(0, c.make_shape((c.dim(shape, 0), c.dim(shape, 1), c.attr("dct_coefficient_count"))))
