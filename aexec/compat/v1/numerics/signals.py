"""The less common functions of `tf.signal`: windows, cosine transforms, mel spectra, inverse transforms.

Next to read: `signal.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec import ops
from aexec.client.building import name_scope
from aexec.compat.v1.functions.array_ops import rank_of
from aexec.compat.v1.functions.signal import frame, hann_window, irfft
from aexec.compat.v1.namespace import refuse
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "dct",
    "fftnd",
    "fftshift",
    "hamming_window",
    "idct",
    "ifftnd",
    "ifftshift",
    "inverse_mdct",
    "inverse_stft",
    "inverse_stft_window_fn",
    "irfft2d",
    "irfft3d",
    "irfftnd",
    "kaiser_bessel_derived_window",
    "kaiser_window",
    "linear_to_mel_weight_matrix",
    "mdct",
    "mfccs_from_log_mel_spectrograms",
    "overlap_and_add",
    "rfft2d",
    "rfft3d",
    "rfftnd",
    "vorbis_window",
]


def hamming_window(
    window_length: int, periodic: bool = True, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """`tf.signal.hamming_window`."""
    hann = hann_window(window_length, periodic, dtype, name or "hamming_window")
    return hann if window_length == 1 else 0.08 + 0.92 * hann


def kaiser_window(
    window_length: int, beta: float = 12.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """`tf.signal.kaiser_window`."""
    return convert_to_tensor(np.kaiser(window_length, beta).astype(as_dtype(dtype).np), name=name or "kaiser_window")


def kaiser_bessel_derived_window(
    window_length: int, beta: float = 12.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """`tf.signal.kaiser_bessel_derived_window`, of an even length."""
    total = np.cumsum(np.kaiser(window_length // 2 + 1, beta))
    half = np.sqrt(total[:-1] / total[-1])
    whole = np.concatenate([half, half[::-1]]).astype(as_dtype(dtype).np)
    return convert_to_tensor(whole, name=name or "kaiser_bessel_derived_window")


def vorbis_window(window_length: int, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """`tf.signal.vorbis_window`."""
    angle = np.pi / window_length * (np.arange(window_length) + 0.5)
    window = np.sin(np.pi / 2 * np.sin(angle) ** 2).astype(as_dtype(dtype).np)
    return convert_to_tensor(window, name=name or "vorbis_window")


# Transforms


def _lengths(value: Tensor, fft_length: Any, rank: int) -> Any:
    return ops.shape(value)[-rank:] if fft_length is None else fft_length


def _complex_like(value: Tensor) -> DType:
    return dtypes.complex128 if value.dtype.base is dtypes.float64 else dtypes.complex64


def _real_like(value: Tensor) -> DType:
    return dtypes.float64 if value.dtype.base is dtypes.complex128 else dtypes.float32


def rfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.rfft2d`: of real numbers along the last two axes."""
    value = convert_to_tensor(input_tensor)
    return ops.rfft2d(value, _lengths(value, fft_length, 2), Tcomplex=_complex_like(value), name=name)


def rfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.rfft3d`: of real numbers along the last three axes."""
    value = convert_to_tensor(input_tensor)
    return ops.rfft3d(value, _lengths(value, fft_length, 3), Tcomplex=_complex_like(value), name=name)


def _real_lengths(value: Tensor, fft_length: Any, rank: int) -> Any:
    """The sizes of the real signal; by default the last one is even, 2 (n - 1) for n frequencies."""
    if fft_length is not None:
        return fft_length
    sizes = ops.shape(value)[-rank:]
    last = ops.maximum(2 * (sizes[-1:] - 1), 0)
    return last if rank == 1 else ops.concat_v2([sizes[:-1], last], 0)


def irfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.irfft2d`: the inverse of `rfft2d`."""
    value = convert_to_tensor(input_tensor)
    return ops.irfft2d(value, _real_lengths(value, fft_length, 2), Treal=_real_like(value), name=name)


def irfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.irfft3d`: the inverse of `rfft3d`."""
    value = convert_to_tensor(input_tensor)
    return ops.irfft3d(value, _real_lengths(value, fft_length, 3), Treal=_real_like(value), name=name)


def _axes(value: Tensor, axes: Any) -> list[int]:
    if axes is None:
        return list(range(rank_of(value)))
    return [axes] if isinstance(axes, int) else list(axes)


def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.fftshift`: puts the frequency zero in the middle."""
    with name_scope(name or "fftshift"):
        value = convert_to_tensor(x)
        chosen = _axes(value, axes)
        sizes = ops.shape(value)
        return ops.roll(value, ops.pack([sizes[axis] // 2 for axis in chosen]), chosen)


def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """`tf.signal.ifftshift`: the inverse of `fftshift`."""
    with name_scope(name or "ifftshift"):
        value = convert_to_tensor(x)
        chosen = _axes(value, axes)
        sizes = ops.shape(value)
        return ops.roll(value, ops.pack([-(sizes[axis] // 2) for axis in chosen]), chosen)


def _several_axes(op: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def transform(
        input_tensor: Any, fft_length: Any = None, axes: Any = None, norm: str | None = None, name: str | None = None
    ) -> Tensor:
        refuse(own, norm=None if norm == "backward" else norm)
        value = convert_to_tensor(input_tensor)
        if axes is None:
            count = rank_of(value) if fft_length is None else convert_to_tensor(fft_length).static_shape.num_elements
            if count is None:
                raise errors.InvalidValueError(f"{own}: axes must be given if the number of lengths is not known")
            axes = range(-count, 0)
        at = [axis % rank_of(value) for axis in axes]
        if fft_length is None:
            sizes = ops.gather_v2(ops.shape(value), at, 0)
            last = (sizes[-1:] - 1) * 2 if own == "irfftnd" else sizes[-1:]
            fft_length = ops.concat_v2([sizes[:-1], last], 0)
        return op(value, fft_length, at, name=name)

    own = transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"`tf.signal.{name}`: along several axes, by default all, or the last ones with a length each."
    return transform


fftnd = _several_axes(ops.fftnd, "fftnd")
ifftnd = _several_axes(ops.ifftnd, "ifftnd")
irfftnd = _several_axes(ops.irfftnd, "irfftnd")
rfftnd = _several_axes(ops.rfftnd, "rfftnd")


def dct(
    input: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> Tensor:
    """`tf.signal.dct`: the cosine transform of the last axis, whose size must be known, of types 1 to 4."""
    if type not in (1, 2, 3, 4):
        raise errors.InvalidValueError("Types I, II, III and IV (I)DCT are supported.")
    if type == 1 and norm == "ortho":
        raise errors.InvalidValueError("Normalization is not supported for the Type-I DCT.")
    if axis != -1:
        raise errors.UnsupportedError("axis must be -1. Got: {axis}")
    if norm not in (None, "ortho"):
        raise errors.InvalidValueError(f"Unknown normalization. Expected None or 'ortho', got: {norm}")
    with name_scope(name or "dct"):
        value = convert_to_tensor(input)
        size = value.static_shape[-1]
        if size is None:
            raise errors.InvalidValueError(f"the last size of '{value.name}' must be known")
        if n is not None:
            kept = min(n, size)
            value = value[..., :kept]
            if n > kept:
                ends = [[0, 0]] * (rank_of(value) - 1) + [[0, n - kept]]
                value = ops.pad(value, ends)
            size = n
        matrix = _cosines(type, int(size), norm).astype(value.dtype.base.np)
        flat = ops.mat_mul(ops.reshape(value, [-1, size]), convert_to_tensor(matrix))
        return ops.reshape(flat, ops.shape(value))


def _cosines(type: int, size: int, norm: str | None) -> Any:
    """The matrix [of, to] of a transform."""
    at, of = np.arange(size)[:, None], np.arange(size)[None, :]
    if type == 1:
        matrix = 2 * np.cos(np.pi * at * of / (size - 1))
        matrix[[0, -1]] /= 2
    elif type == 2:
        matrix = 2 * np.cos(np.pi * (2 * at + 1) * of / (2 * size))
    elif type == 3:
        matrix = 2 * np.cos(np.pi * at * (2 * of + 1) / (2 * size))
        matrix[0] = 1.0
    else:
        matrix = 2 * np.cos(np.pi * (2 * at + 1) * (2 * of + 1) / (4 * size))
    if norm == "ortho":
        matrix *= np.sqrt(0.5 / size)
        if type == 2:
            matrix[:, 0] *= np.sqrt(0.5)
        elif type == 3:
            matrix[0] *= np.sqrt(2.0)
    return matrix


def idct(
    input: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> Tensor:
    """`tf.signal.idct`: the inverse of `dct`, without its factor unless `norm` is "ortho"."""
    return dct(input, {1: 1, 2: 3, 3: 2, 4: 4}[type], n, axis, norm, name or "idct")


# Frames


def overlap_and_add(signal: Any, frame_step: int, name: str | None = None) -> Tensor:
    """`tf.signal.overlap_and_add`: frames [..., frames, length], `frame_step` apart, as one signal."""
    with name_scope(name or "overlap_and_add"):
        value = convert_to_tensor(signal)
        rank = rank_of(value)
        sizes = ops.shape(value)
        frames, length = sizes[rank - 2], sizes[rank - 1]
        total = length + (frames - 1) * frame_step
        places = ops.expand_dims(ops.range(0, frames, 1) * frame_step, 1) + ops.range(0, length, 1)
        outer = sizes[: rank - 2]
        flat = ops.reshape(value, ops.concat_v2([[-1], ops.expand_dims(frames * length, 0)], 0))
        added = ops.unsorted_segment_sum(ops.transpose(flat, [1, 0]), ops.reshape(places, [-1]), total)
        return ops.reshape(ops.transpose(added, [1, 0]), ops.concat_v2([outer, ops.expand_dims(total, 0)], 0))


def mdct(
    signals: Any,
    frame_length: int,
    window_fn: Any = vorbis_window,
    pad_end: bool = False,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """`tf.signal.mdct`: the modified cosine transform of windows that overlap by half: [..., frames, length / 2].

    Raises:
        InvalidArgumentError: `frame_length` is not a multiple of 4.
    """
    if frame_length % 4:
        raise errors.InvalidValueError("The frame length must be a multiple of 4.")
    with name_scope(name or "mdct"):
        frames = frame(signals, frame_length, frame_length // 2, pad_end)
        frames = frames * _half_window(window_fn, frame_length, frames.dtype.base)
        first, second, third, fourth = ops.split(-1, frames, 4)
        left, right = -_reversed(third) - fourth, first - _reversed(second)
        return dct(ops.concat_v2([left, right], -1), type=4, norm=norm)


def inverse_mdct(
    mdcts: Any, window_fn: Any = vorbis_window, norm: str | None = None, name: str | None = None
) -> Tensor:
    """`tf.signal.inverse_mdct`: the signal of transformed windows, [..., samples].

    Raises:
        InvalidArgumentError: the number of coefficients is not known.
    """
    with name_scope(name or "inverse_mdct"):
        value = convert_to_tensor(mdcts)
        sizes = value.static_shape.dims
        half = sizes[-1] if sizes else None
        if half is None:
            raise errors.InvalidValueError("the last axis of mdcts must be known")
        found = dct(value, type=4, norm=norm)
        left, right = ops.split(-1, found if norm == "ortho" else found * (0.5 / half), 2)
        frames = ops.concat_v2([right, -_reversed(right), -_reversed(left), -left], -1)
        return overlap_and_add(frames * _half_window(window_fn, 2 * half, value.dtype.base), half)


def _reversed(value: Tensor) -> Tensor:
    return ops.reverse_v2(value, [-1])


def _half_window(window_fn: Any, length: int, dtype: DType) -> Any:
    """A window for the modified cosine transform: the squares of its halves sum to 1.  Constant by default."""
    return float(np.sqrt(0.5)) if window_fn is None else window_fn(length, dtype=dtype)


def inverse_stft_window_fn(frame_step: int, forward_window_fn: Any = hann_window, name: str | None = None) -> Any:
    """`tf.signal.inverse_stft_window_fn`: a window for `inverse_stft` that undoes the window of `stft`."""

    def window(frame_length: int, dtype: Any) -> Tensor:
        with name_scope(name or "inverse_stft_window_fn"):
            forward = forward_window_fn(frame_length, dtype=dtype)
            overlaps = -(-frame_length // frame_step)
            padded = ops.pad(ops.square(forward), [[0, overlaps * frame_step - frame_length]])
            total = ops.sum(ops.reshape(padded, [overlaps, frame_step]), [0], keep_dims=True)
            weights = ops.reshape(ops.tile(total, [overlaps, 1]), [overlaps * frame_step])
            found: Tensor = forward / weights[:frame_length]
            return found

    return window


def inverse_stft(
    stfts: Any,
    frame_length: int,
    frame_step: int,
    fft_length: int | None = None,
    window_fn: Any = hann_window,
    name: str | None = None,
) -> Tensor:
    """`tf.signal.inverse_stft`: the signal of spectra [..., frames, bins]."""
    with name_scope(name or "inverse_stft"):
        if fft_length is None:
            fft_length = 1 << (frame_length - 1).bit_length()
        frames = irfft(stfts, [fft_length])
        if frame_length <= fft_length:
            frames = frames[..., :frame_length]
        else:
            frames = ops.pad(frames, [[0, 0]] * (rank_of(frames) - 1) + [[0, frame_length - fft_length]])
        if window_fn is not None:
            frames = frames * window_fn(frame_length, dtype=frames.dtype.base)
        return overlap_and_add(frames, frame_step)


# Mel


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log(1.0 + hertz / 700.0)


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: int = 129,
    sample_rate: float = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """`tf.signal.linear_to_mel_weight_matrix`: [num_spectrogram_bins, num_mel_bins], of triangles."""
    if not 0 <= lower_edge_hertz < upper_edge_hertz <= sample_rate / 2:
        raise errors.InvalidValueError(
            f"lower_edge_hertz {lower_edge_hertz} >= upper_edge_hertz {upper_edge_hertz}, or above {sample_rate / 2}"
        )
    bins = _mel(np.linspace(0.0, sample_rate / 2, num_spectrogram_bins)[1:])[:, None]
    edges = np.linspace(_mel(lower_edge_hertz), _mel(upper_edge_hertz), num_mel_bins + 2)
    lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
    inside = np.maximum(0.0, np.minimum((bins - lower) / (center - lower), (upper - bins) / (upper - center)))
    matrix = np.pad(inside, [[1, 0], [0, 0]]).astype(as_dtype(dtype).np)
    return convert_to_tensor(matrix, name=name or "linear_to_mel_weight_matrix")


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Tensor:
    """`tf.signal.mfccs_from_log_mel_spectrograms`, by an orthonormal cosine transform, times the root of 2."""
    with name_scope(name or "mfccs_from_log_mel_spectrograms"):
        value = convert_to_tensor(log_mel_spectrograms)
        size = value.static_shape[-1]
        return dct(value, type=2) * float(1.0 / np.sqrt(2.0 * float(size or 0)))
