"""Reads and writes WAV files of 16 bit samples, as strictly as TensorFlow."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from aexec.framework import errors

__all__ = ["read_wav", "scale", "write_wav"]

# Chunks that may come before the format.
_SKIPPED = (b"JUNK", b"bext", b"iXML", b"qlty", b"mext", b"levl", b"link", b"axml")
_FULL_SCALE = np.float32(1 << 15)


class _Reader:
    """Reads values from the beginning of some data.  Raises InvalidArgumentError if there is too little of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, count: int) -> bytes:
        start = self.place
        self.skip(count)
        return self.data[start : self.place]

    def skip(self, count: int) -> None:
        if self.place + count > len(self.data):
            raise errors.InvalidArgumentError("Data too short when trying to read string")
        self.place += count

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def expect(self, name: bytes) -> None:
        found = self.take(len(name))
        if found != name:
            raise errors.InvalidArgumentError(f"Header mismatch: Expected {_text(name)} but found {_text(found)}")


def _text(name: bytes) -> str:
    return str(name, "latin-1")


def read_wav(data: bytes) -> tuple[Any, int]:
    """Return (int16 [samples, channels], sample rate).  The array views the data, so a false header allocates nothing.

    Raises:
        InvalidArgumentError: it is not a WAV file, or not of 16 bit PCM.
    """
    reader = _Reader(data)
    reader.expect(b"RIFF")
    reader.take(4)
    reader.expect(b"WAVE")
    while (name := reader.take(4)) != b"fmt ":
        if name not in _SKIPPED:
            raise errors.InvalidArgumentError(f"Unexpected field {_text(name)}")
        reader.take(*reader.numbers("I"))
    channels, rate = _read_format(reader)
    samples: memoryview | None = None
    while reader.place < len(data):
        name = reader.take(4)
        (size,) = reader.numbers("I")
        if size > 2**31 - 1:
            raise errors.InvalidArgumentError(
                f"WAV data chunk '{_text(name)}' is too large: {size} bytes, but the limit is {2**31 - 1}"
            )
        if name == b"data":
            if samples is not None:
                raise errors.InvalidArgumentError("More than one data chunk found in WAV")
            start = reader.place
            reader.skip(size - size % (2 * channels))
            samples = memoryview(data)[start : reader.place]
        else:
            reader.place += size
    if samples is None:
        raise errors.InvalidArgumentError("No data chunk found in WAV")
    return np.frombuffer(samples, "<i2").reshape(-1, channels), rate


def scale(samples: Any, out: Any) -> None:
    """Write samples as float32 in [-1, 1)."""
    np.divide(samples, _FULL_SCALE, out=out, dtype=np.float32)


def _read_format(reader: _Reader) -> tuple[int, int]:
    """(channels, sample rate) of the format chunk."""
    (size,) = reader.numbers("I")
    if size not in (16, 18):
        raise errors.InvalidArgumentError(f"Bad format chunk size for WAV: Expected 16 or 18, but got{size}")
    encoding, channels, rate, per_second, per_sample, bits = reader.numbers("HHIIHH")
    if encoding != 1:
        raise errors.InvalidArgumentError(f"Bad audio format for WAV: Expected 1 (PCM), but got{encoding}")
    if channels < 1:
        raise errors.InvalidArgumentError(f"Bad number of channels for WAV: Expected at least 1, but got {channels}")
    if bits != 16:
        raise errors.InvalidArgumentError(f"Can only read 16-bit WAV files, but received {bits}")
    if per_sample != 2 * channels:
        raise errors.InvalidArgumentError(
            f"Bad bytes per sample in WAV header: Expected {2 * channels} but got {per_sample}"
        )
    if per_second != per_sample * rate:
        raise errors.InvalidArgumentError(
            f"Bad bytes per second in WAV header: Expected {per_sample * rate} but got {per_second} "
            f"(sample_rate={rate}, bytes_per_sample={per_sample})"
        )
    if size == 18:
        reader.take(2)
    return channels, rate


def write_wav(audio: Any, rate: int) -> bytes:
    """A WAV file of float32 [samples, channels] in [-1, 1]; values beyond are clipped, and NaN is silence.

    Raises:
        InvalidArgumentError: a rate, or a number of channels or samples, that a file cannot have.
    """
    samples, channels = audio.shape
    if not 0 < rate < 2**32:
        raise errors.InvalidArgumentError(f"sample_rate must be in (0, 2^32), got: {rate % 2**64}")
    if not 0 < channels < 2**16:
        raise errors.InvalidArgumentError(f"num_channels must be in (0, 2^16), got: {channels}")
    size = 2 * channels * samples
    if size + 36 >= 2**32:
        raise errors.InvalidArgumentError(f"Cannot fit {size + 36} bytes in a WAV file")
    scaled = audio * _FULL_SCALE
    rounded = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)
    data: bytes = np.nan_to_num(np.clip(rounded, -32768, 32767)).astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, channels, rate, (2 * channels * rate) % 2**32, (2 * channels) % 2**16, 16)
    head = b"RIFF" + struct.pack("<I", size + 36) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size)
    return head + data
