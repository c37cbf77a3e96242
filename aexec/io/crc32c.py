"""Checksums of TensorFlow's files: CRC-32C (Castagnoli), *masked* when stored.

A checksum of data that contains checksums is weak; masking makes stored ones look unlike computed ones.
"""

from __future__ import annotations

from typing import Any

import google_crc32c

__all__ = ["crc32c", "mask", "masked_crc32c", "unmask"]

_DELTA = 0xA282EAD8


def crc32c(data: Any, crc: int = 0) -> int:
    """The checksum of `bytes` or of a contiguous array of bytes; `crc` is the checksum of the data before it."""
    return int(google_crc32c.extend(crc, data))


def mask(crc: int) -> int:
    """The form of a checksum that is stored."""
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def unmask(stored: int) -> int:
    """The checksum of its stored form."""
    rotated = (stored - _DELTA) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def masked_crc32c(data: Any) -> int:
    """`mask(crc32c(data))`."""
    return mask(crc32c(data))
