"""Audio kernels: WAV files, spectrograms, and the coefficients that speech recognition uses (MFCC)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost, PerOutput
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way, let_others_run
from aexec.kernels.audio.wav import read_wav, scale, write_wav
from aexec.kernels.common.allocation import allocator

__all__: list[str] = []

# Windows are transformed in groups of about this many samples.
_GROUP = 1 << 16

# Products of a filter and a sample that are computed at once, in some milliseconds.
_PRODUCTS = 1 << 20
# Smaller energies are raised to this before the logarithm.
_LEAST_ENERGY = 1e-12


def _scalar_rate(sample_rate: Any) -> int:
    if sample_rate.ndim:
        raise errors.InvalidArgumentError(
            f"Input sample_rate should be a scalar tensor, got {shape_text(sample_rate.shape)} instead."
        )
    return int(sample_rate)


@kernel("DecodeWav", cost=lambda contents: 0.0 if contents.ndim else 2.0 * len(contents.item()))
def decode_wav(c: OpKernelConstruction) -> Compute:
    """Return (float32 [samples, channels], sample rate); if attrs ask, cut, or padded with silence and the last
    channel.
    """
    wanted_channels, wanted_samples = c.attr("desired_channels"), c.attr("desired_samples")
    allocate = allocator(c)

    def compute(contents: Any) -> Any:
        if contents.ndim:
            raise errors.InvalidArgumentError(f"contents must be scalar, got shape {shape_text(contents.shape)}")
        audio, rate = read_wav(contents.item())
        samples = len(audio) if wanted_samples < 0 else wanted_samples
        channels = audio.shape[1] if wanted_channels < 0 else wanted_channels
        out = allocate((samples, channels), np.zeros)
        part = audio[:samples]
        shared = min(channels, audio.shape[1])
        scale(part[:, :shared], out[: len(part), :shared])
        scale(part[:, -1:], out[: len(part), shared:])
        return out, np.int32(rate & 0x7FFFFFFF)

    return compute


@kernel("EncodeWav", cost=10.0, scratch=16)
def encode_wav(c: OpKernelConstruction) -> Compute:
    """Return a WAV file of float32 [samples, channels] in [-1, 1]."""

    def compute(audio: Any, sample_rate: Any) -> Any:
        if audio.ndim != 2:
            raise errors.InvalidArgumentError(f"audio must be 2-dimensional{shape_text(audio.shape)}")
        out = np.empty((), object)
        out[()] = write_wav(audio, _scalar_rate(sample_rate))
        return out

    return compute


@kernel("AudioSpectrogram", cost=PerOutput(100.0))
def audio_spectrogram(c: OpKernelConstruction) -> Compute:
    """Return float32 [channels, windows, frequencies] of float32 [samples, channels]: magnitudes, or their squares.

    A (Hann) window is padded with zeros to the next power of two.
    """
    window, stride, squared = c.attr("window_size"), c.attr("stride"), c.attr("magnitude_squared")
    if window < 2:
        raise errors.InvalidArgumentError(f"window size must be > 1, got {window}")
    if stride < 1:
        raise errors.InvalidArgumentError(f"stride must be strictly positive, got {stride}")
    length = 1 << (window - 1).bit_length()
    allocate = allocator(c)

    def compute(audio: Any) -> Any:
        if audio.ndim != 2:
            raise errors.InvalidArgumentError(f"input must be 2-dimensional{shape_text(audio.shape)}")
        samples, channels = audio.shape
        count = 1 + (samples - window) // stride if samples >= window else 0
        out = allocate((channels, count, length // 2 + 1))
        if not out.size:
            return out
        taper = 0.5 - 0.5 * np.cos(2 * np.pi / window * np.arange(window))
        step = max(1, _GROUP // length)
        for spectrum, signal in zip(out, audio.T, strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(signal, window)[::stride]
            for start in range(0, count, step):
                let_others_run()
                found = np.fft.rfft(windows[start : start + step] * taper, length)
                power = found.real**2 + found.imag**2
                spectrum[start : start + step] = power if squared else np.sqrt(power)
        return out

    return compute


def _mel(frequency: Any) -> Any:
    """Perceived pitch, on the mel scale, of a frequency in Hz."""
    return 1127.0 * np.log1p(frequency / 700.0)


def _filter_bank(bins: int, rate: int, channels: int, low: float, high: float) -> Any | None:
    """float64 [bins, channels]: the weights of triangular filters that are equally spaced in pitch.

    None if the bins do not reach up to `high`.
    """
    hertz_per_bin = 0.5 * rate / (bins - 1)
    first, last = int(1.5 + low / hertz_per_bin), int(high / hertz_per_bin)
    if last >= bins:
        return None
    lowest = _mel(low)
    spacing = (_mel(high) - lowest) / (channels + 1)
    centres = lowest + spacing * np.arange(1, channels + 2)
    used = np.arange(first, last + 1)
    pitch = _mel(used * hertz_per_bin)
    # Each bin lies between the centres of two filters, of which the first (-1) and last may not exist.
    right = np.minimum(np.searchsorted(centres, pitch, "left"), channels)
    left_centre = np.where(right > 0, centres[right - 1], lowest)
    share = (centres[right] - pitch) / (centres[right] - left_centre)
    weights = np.zeros((bins, channels + 2))
    weights[used, right] = share
    weights[used, right + 1] = 1 - share
    return weights[:, 1:-1]


def _mfcc_ns(attrs: Mapping[str, Any]) -> Callable[..., float]:
    filters, coefficients = attrs["filterbank_channel_count"], attrs["dct_coefficient_count"]
    return lambda spectrogram, _: float(
        spectrogram.size * filters + 200.0 * coefficients * math.prod(spectrogram.shape[:2])
    )


@kernel("Mfcc", cost=AttrCost(_mfcc_ns), scratch=44)
def mfcc(c: OpKernelConstruction) -> Compute:
    """Return float32 [channels, windows, coefficients] of squared spectrograms: cosine transforms of log filter
    outputs.
    """
    low, high = c.attr("lower_frequency_limit"), c.attr("upper_frequency_limit")
    filters, coefficients = c.attr("filterbank_channel_count"), c.attr("dct_coefficient_count")
    allocate = allocator(c)

    def compute(spectrogram: Any, sample_rate: Any) -> Any:
        if spectrogram.ndim != 3:
            raise errors.InvalidArgumentError(f"spectrogram must be 3-dimensional{shape_text(spectrogram.shape)}")
        rate, bins = _scalar_rate(sample_rate), spectrogram.shape[2]
        if not (1 <= coefficients <= filters and rate > 0 and bins >= 2 and 0 <= low < high < np.inf):
            raise errors.InvalidArgumentError(
                f"Mfcc initialization failed for channel count {bins}, sample rate {rate} and "
                f"filterbank_channel_count {filters}"
            )
        out = allocate((*spectrogram.shape[:2], coefficients))
        for shape in ((bins, filters + 2), (filters, coefficients), (*spectrogram.shape[:2], filters)):
            allocate(shape)  # refuses a shape that does not fit into memory
        # All arrays are float64: the filters, the cosines, each window's energies, and their inputs.
        windows = spectrogram.shape[0] * spectrogram.shape[1]
        announce_scratch(8 * (bins * (filters + 2) + 2 * filters * (coefficients + windows + 1)))
        bank = _filter_bank(bins, rate, filters, low, high)
        if bank is None:
            out.fill(0)
            return out
        angles = np.pi / filters * (np.arange(filters) + 0.5)[:, None] * np.arange(coefficients)
        cosines = np.sqrt(2.0 / filters) * np.cos(angles)
        of_window, result = spectrogram.reshape(windows, bins), out.reshape(windows, coefficients)
        at_once = max(1, _PRODUCTS // (bins * filters))
        for start in giving_way(range(0, windows, at_once), _PRODUCTS):
            some = slice(start, start + at_once)
            with np.errstate(all="ignore"):
                energy = np.sqrt(of_window[some].astype(np.float64)) @ bank
            result[some] = np.log(np.where(energy < _LEAST_ENERGY, _LEAST_ENERGY, energy)) @ cosines
        return out

    return compute
