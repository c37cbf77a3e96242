"""`tf.signal`: windows of signals, and their spectra.

Next to read: `aexec/kernels/math/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.namespace import namespace, refuse
from aexec.framework import errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "frame",
    "hann_window",
    "irfft",
    "rfft",
    "stft",
]


def hann_window(window_length: int, periodic: bool = True, dtype: Any = "float32", name: str | None = None) -> Tensor:
    """`tf.signal.hann_window`."""
    even = 1 - window_length % 2
    size = window_length + int(periodic) * even - 1
    if window_length == 1:
        return convert_to_tensor(np.ones(1, as_dtype(dtype).np), name=name or "hann_window")
    angle = 2 * np.pi * np.arange(window_length) / size
    return convert_to_tensor((0.5 - 0.5 * np.cos(angle)).astype(as_dtype(dtype).np), name=name or "hann_window")


def frame(
    signal: Any,
    frame_length: int,
    frame_step: int,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """`tf.signal.frame`: windows of the last axis, each `frame_step` after the previous one."""
    refuse("frame", axis=None if axis == -1 else axis)
    with name_scope(name or "frame"):
        value = convert_to_tensor(signal)
        rank = value.static_shape.rank
        if rank is None:
            raise errors.InvalidValueError(f"the rank of '{value.name}' must be known")
        length = ops.shape(value)[-1]
        if pad_end:
            count = -((-length) // frame_step)
            lacking = ops.maximum((count - 1) * frame_step + frame_length - length, 0)
            ends = ops.pad(ops.reshape(ops.pack([0, lacking]), [1, 2]), [[rank - 1, 0], [0, 0]])
            value = ops.pad_v2(value, ends, convert_to_tensor(pad_value, value.dtype.base))
        else:
            count = ops.maximum((length - frame_length) // frame_step + 1, 0)
        starts = ops.range(0, count, 1) * frame_step
        within = ops.range(0, frame_length, 1)
        return ops.gather_v2(value, ops.expand_dims(starts, 1) + within, rank - 1)


def stft(
    signals: Any,
    frame_length: int,
    frame_step: int,
    fft_length: int | None = None,
    window_fn: Any = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Tensor:
    """`tf.signal.stft`: the spectrum of each window."""
    with name_scope(name or "stft"):
        if fft_length is None:
            fft_length = 1 << (frame_length - 1).bit_length()
        frames = frame(signals, frame_length, frame_step, pad_end)
        if window_fn is not None:
            frames = frames * window_fn(frame_length, dtype=frames.dtype.base)
        return rfft(frames, [fft_length])


def rfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.rfft`: of real numbers along the last axis, padded with zeros to the length."""
    with name_scope(name or "rfft"):
        value = convert_to_tensor(input_tensor)
        if fft_length is None:
            return ops.rfft(value, ops.shape(value)[-1:])
        lacking = ops.maximum(ops.sub(fft_length, ops.shape(value)[-1:]), 0)
        before = ops.fill(ops.pack([ops.rank(value) - 1, 2]), 0)
        behind = ops.expand_dims(ops.concat_v2([[0], lacking], 0), 0)
        return ops.rfft(ops.pad(value, ops.concat_v2([before, behind], 0)), fft_length)


def irfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.irfft`: real numbers of a spectrum; by default 2 (n - 1) for n frequencies."""
    value = convert_to_tensor(input_tensor)
    if fft_length is None:
        fft_length = ops.maximum((ops.shape(value)[-1:] - 1) * 2, 0)
    return ops.irfft(value, fft_length, name=name)


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"numerics.signals:{name}"
            for name in """dct fftnd fftshift hamming_window idct ifftnd ifftshift inverse_mdct inverse_stft
            inverse_stft_window_fn irfft2d irfft3d irfftnd kaiser_bessel_derived_window kaiser_window
            linear_to_mel_weight_matrix mdct mfccs_from_log_mel_spectrograms overlap_and_add rfft2d rfft3d rfftnd
            vorbis_window""".split()
        },
        **{name: f"ops:{name}" for name in "fft fft2d fft3d ifft ifft2d ifft3d".split()},
    },
)
