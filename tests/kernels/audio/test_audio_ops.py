"""Audio: WAV there and back, the standard library's reader, plain formulas, TensorFlow's messages."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.array_support import F32, I32, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op, strings


@pytest.mark.parametrize("op", ops_of("audio.audio_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def text(data):
    return strings(data, shape=())


def noise(*shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


SOUND = noise(50, 2)
FILE = run_op("EncodeWav", [SOUND, I32(8000)]).item()


@given(st.integers(0, 20), st.integers(1, 4), st.integers(1, 100_000))
def test_wav_there_and_back(samples, channels, rate):
    sound = noise(samples, channels)
    data = run_op("EncodeWav", [sound, I32(rate)])
    audio, found = run_op("DecodeWav", [data])
    assert found == rate and audio.shape == sound.shape
    np.testing.assert_allclose(audio, sound, atol=1 / 32768)
    with wave.open(io.BytesIO(data.item())) as file:
        assert (file.getnframes(), file.getnchannels(), file.getframerate()) == (samples, channels, rate)


def test_loud_sounds_are_cut_off():
    audio, _ = run_op("DecodeWav", [run_op("EncodeWav", [F32([[2], [-2], [np.nan], [0.5 / 32768]]), I32(1)])])
    assert (audio.ravel() * 32768).tolist() == [32767, -32768, 0, 1]


def test_sizes_asked_for():
    whole, _ = run_op("DecodeWav", [text(FILE)])
    longer, _ = run_op("DecodeWav", [text(FILE)], desired_samples=60, desired_channels=3)
    assert (longer[:50, :2] == whole).all() and (longer[:50, 2] == whole[:, 1]).all() and not longer[50:].any()
    shorter, _ = run_op("DecodeWav", [text(FILE)], desired_samples=10, desired_channels=1)
    assert (shorter == whole[:10, :1]).all()
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("DecodeWav", [text(FILE)], desired_samples=2**31 - 1, desired_channels=2**20)


def test_other_chunks_are_skipped():
    whole, _ = run_op("DecodeWav", [text(FILE)])
    before = FILE[:12] + b"JUNK\x04\0\0\0abcd" + FILE[12:]
    longer_format = FILE[:16] + b"\x12" + FILE[17:36] + b"\0\0" + FILE[36:]
    for data in (before, longer_format, FILE + b"LIST\x02\0\0\0ab"):
        assert (run_op("DecodeWav", [text(data)])[0] == whole).all()


def patched(place, value):
    return FILE[:place] + value + FILE[place + len(value) :]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Data too short when trying to read string"),
        (FILE[:30], "Data too short when trying to read string"),
        (FILE[:100], "Data too short when trying to read string"),
        (FILE + b"dat", "Data too short when trying to read string"),
        (patched(0, b"RIFX"), "Header mismatch: Expected RIFF but found RIFX"),
        (patched(8, b"WAVX"), "Header mismatch: Expected WAVE but found WAVX"),
        (patched(12, b"LIST"), "Unexpected field LIST"),
        (patched(16, b"\x11"), "Bad format chunk size for WAV: Expected 16 or 18, but got17"),
        (patched(20, b"\x03"), "Bad audio format for WAV: Expected 1 (PCM), but got3"),
        (patched(22, b"\x00"), "Bad number of channels for WAV: Expected at least 1, but got 0"),
        (
            patched(28, b"\x01"),
            "Bad bytes per second in WAV header: Expected 32000 but got 32001 (sample_rate=8000, bytes_per_sample=4)",
        ),
        (patched(32, b"\x05"), "Bad bytes per sample in WAV header: Expected 4 but got 5"),
        (patched(34, b"\x08"), "Can only read 16-bit WAV files, but received 8"),
        (patched(36, b"xxxx"), "No data chunk found in WAV"),
        (FILE + b"data\0\0\0\0", "More than one data chunk found in WAV"),
        (
            patched(40, struct.pack("<I", 2**32 - 1)),
            "WAV data chunk 'data' is too large: 4294967295 bytes, but the limit is 2147483647",
        ),
    ],
)
def test_invalid_wav_data_is_refused(data, message):
    assert_refuses("DecodeWav", [text(data)], message)


def test_wav_inputs_are_checked():
    assert_refuses("DecodeWav", [strings("a")], "contents must be scalar, got shape [1]")
    assert_refuses("EncodeWav", [SOUND[0], I32(1)], "audio must be 2-dimensional[2]")
    message = "Input sample_rate should be a scalar tensor, got [1] instead."
    assert_refuses("EncodeWav", [SOUND, I32([1])], message)
    assert_refuses("EncodeWav", [SOUND, I32(0)], "sample_rate must be in (0, 2^32), got: 0")
    assert_refuses("EncodeWav", [SOUND, I32(-5)], "sample_rate must be in (0, 2^32), got: 18446744073709551611")
    assert_refuses("EncodeWav", [SOUND[:, :0], I32(1)], "num_channels must be in (0, 2^16), got: 0")


# Spectrograms


@given(st.integers(2, 40), st.integers(1, 20), st.booleans())
def test_spectrograms_are_the_transforms_of_each_window(window, stride, squared):
    attrs = {"window_size": window, "stride": stride, "magnitude_squared": squared}
    got = run_op("AudioSpectrogram", [SOUND], **attrs)
    length = 1 << (window - 1).bit_length()
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    starts = range(0, len(SOUND) - window + 1, stride)
    want = [[np.abs(np.fft.rfft(SOUND[i : i + window, c] * taper, length)) for i in starts] for c in range(2)]
    np.testing.assert_allclose(got, np.array(want) ** (2 if squared else 1), rtol=1e-4, atol=1e-5)


def test_sound_shorter_than_a_window():
    assert run_op("AudioSpectrogram", [SOUND], window_size=64, stride=1).shape == (2, 0, 33)
    assert run_op("AudioSpectrogram", [SOUND[:, :0]], window_size=16, stride=1).shape == (0, 35, 9)
    assert run_op("AudioSpectrogram", [SOUND], window_size=2**40, stride=1).size == 0
    assert_refuses("AudioSpectrogram", [SOUND[0]], "input must be 2-dimensional[2]", window_size=2, stride=1)
    assert_refuses("AudioSpectrogram", [SOUND], "window size must be > 1, got 1", window_size=1, stride=1)
    assert_refuses("AudioSpectrogram", [SOUND], "stride must be strictly positive, got 0", window_size=2, stride=0)


def slow_mfcc(power, rate, low, high, filters, coefficients):
    def mel(frequency):
        return 1127 * np.log1p(frequency / 700)

    points = np.linspace(mel(low), mel(high), filters + 2)
    per_bin = 0.5 * rate / (len(power) - 1)
    sums = np.zeros(filters)
    for i in range(int(1.5 + low / per_bin), int(high / per_bin) + 1):
        for f in range(filters):
            left, middle, right = points[f : f + 3]
            share = min((mel(i * per_bin) - left) / (middle - left), (right - mel(i * per_bin)) / (right - middle))
            sums[f] += max(share, 0) * np.sqrt(power[i])
    logs = np.log(np.maximum(sums, 1e-12))
    return [
        np.sqrt(2 / filters) * sum(v * np.cos(i * np.pi / filters * (j + 0.5)) for j, v in enumerate(logs))
        for i in range(coefficients)
    ]


@pytest.mark.parametrize(
    ("bins", "rate", "low", "high"), [(65, 16000, 20, 4000), (20, 8000, 0, 4000), (9, 44100, 100, 900)]
)
def test_mfcc_is_the_slow_model(bins, rate, low, high):
    power = np.abs(noise(1, 2, bins))
    got = run_op(
        "Mfcc",
        [power, I32(rate)],
        lower_frequency_limit=low,
        upper_frequency_limit=high,
        filterbank_channel_count=6,
        dct_coefficient_count=5,
    )
    want = [slow_mfcc(frame.astype(float), rate, low, high, 6, 5) for frame in power[0]]
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)


def test_mfcc_beyond_the_spectrum_is_nothing():
    assert not run_op("Mfcc", [np.abs(noise(1, 3, 65)), I32(16000)], upper_frequency_limit=9000.0).any()
    assert run_op("Mfcc", [noise(0, 3, 65), I32(16000)]).shape == (0, 3, 13)


@pytest.mark.parametrize(
    ("shape", "rate", "attrs"),
    [
        ((1, 1, 1), 16000, {}),
        ((1, 1, 65), 0, {}),
        ((1, 1, 65), 16000, {"dct_coefficient_count": 0}),
        ((1, 1, 65), 16000, {"dct_coefficient_count": 41}),
        ((1, 1, 65), 16000, {"filterbank_channel_count": 0}),
        ((1, 1, 65), 16000, {"lower_frequency_limit": -1.0}),
        ((1, 1, 65), 16000, {"lower_frequency_limit": 4000.0}),
    ],
)
def test_impossible_mfcc(shape, rate, attrs):
    filters = attrs.get("filterbank_channel_count", 40)
    message = (
        f"Mfcc initialization failed for channel count {shape[2]}, sample rate {rate} and "
        f"filterbank_channel_count {filters}"
    )
    assert_refuses("Mfcc", [noise(*shape), I32(rate)], message, **attrs)


def test_mfcc_inputs_are_checked():
    assert_refuses("Mfcc", [noise(3, 65), I32(16000)], "spectrogram must be 3-dimensional[3,65]")
    message = "Input sample_rate should be a scalar tensor, got [1] instead."
    assert_refuses("Mfcc", [noise(1, 3, 65), I32([1])], message)
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("Mfcc", [noise(1, 1, 65), I32(16000)], filterbank_channel_count=2**50)
