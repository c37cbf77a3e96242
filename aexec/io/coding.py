"""Integers and strings as bytes: varints, and the *ordered code*, whose bytes sort as the values do.

Checkpoints name the slices of a tensor in ordered code, so that all slices of one tensor lie side by side in the sorted
file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aexec.framework import errors

__all__ = ["get_varint", "name_slice_key"]


def get_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises:
        DataLossError: the data ends, or the value has more than 64 bits.
    """
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise errors.DataLossError("a varint is cut off or longer than 64 bits")
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _ordered_number(value: int) -> bytes:
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(body)]) + body


_ESCAPES = re.compile(rb"[\0\xff]")


def _ordered_string(value: bytes) -> bytes:
    return _ESCAPES.sub(lambda match: b"\0\xff" if match[0] == b"\0" else b"\xff\0", value) + b"\0\1"


def _ordered_signed(value: int) -> bytes:
    length = 1
    while not -(1 << (7 * length - 1)) <= value < 1 << (7 * length - 1):
        length += 1
    # The header has one leading 1 per byte; for negative numbers the XOR turns these into zeros.
    header = ((1 << length) - 1) << (7 * length)
    return ((value & ((1 << (8 * length)) - 1)) ^ header).to_bytes(length, "big")


def name_slice_key(name: bytes, extents: Sequence[tuple[int, int]]) -> bytes:
    """The key under which a checkpoint keeps a slice: (start, length) per dimension; length -1 is the whole
    dimension.
    """
    parts = [_ordered_number(0), _ordered_string(name), _ordered_number(len(extents))]
    for start, length in extents:
        parts += [_ordered_signed(start), _ordered_signed(length)]
    return b"".join(parts)
