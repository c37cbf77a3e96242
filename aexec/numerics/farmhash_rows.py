"""FarmHash Fingerprint64 of many byte strings of one length at a time.

Each step is one NumPy operation on unsigned 64-bit words, which wrap around as C's do. `aexec.numerics.farmhash` has
the same function for one string, which is faster for a few; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec.numerics.farmhash import fingerprint64

__all__ = ["fingerprint64_rows", "fingerprint64_strings"]

# Hash strings one by one if there are fewer than this of one length, or fewer than `_FEW_OF_ALL` in all.
_FEW = 16
_FEW_OF_ALL = 64

Words = npt.NDArray[np.uint64]


def _word(value: int) -> np.uint64:
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


_K0 = _word(0xC3A5C85C97CB3127)
_K1 = _word(0xB492B66FBE98F273)
_K2 = _word(0x9AE16A3B2F90404F)


def fingerprint64_strings(strings: Sequence[bytes]) -> Words:
    """The fingerprints of byte strings of any lengths, in their order."""
    if len(strings) < _FEW_OF_ALL:
        return np.array(list(map(fingerprint64, strings)), np.uint64)
    by_length: dict[int, tuple[list[int], list[bytes]]] = {}
    for position, data in enumerate(strings):
        positions, group = by_length.setdefault(len(data), ([], []))
        positions.append(position)
        group.append(data)
    out = np.empty(len(strings), np.uint64)
    for length, (positions, group) in by_length.items():
        if len(group) < _FEW:
            out[positions] = list(map(fingerprint64, group))
            continue
        rows = np.frombuffer(b"".join(group), np.uint8).reshape(len(group), length)
        out[positions] = fingerprint64_rows(rows)
    return out


def fingerprint64_rows(rows: npt.NDArray[np.uint8]) -> Words:
    """The fingerprint of each row of a uint8 matrix."""
    count, length = rows.shape
    hash_rows = _up_to_16 if length <= 16 else _up_to_32 if length <= 32 else _up_to_64 if length <= 64 else _longer
    with np.errstate(over="ignore"):  # NumPy warns of scalars that wrap around
        result: Words = np.full(count, _K2) if not length else hash_rows(rows, length)
    return result


def _fetch(rows: Any, start: int, size: int = 8) -> Words:
    """`size` bytes of every row as a little-endian number."""
    part = np.ascontiguousarray(rows[:, start : start + size])
    return part.view(f"<u{size}").reshape(-1).astype(np.uint64, copy=False)


def _rotate(x: Any, bits: int) -> Any:
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


def _shift_mix(x: Any) -> Any:
    return x ^ (x >> np.uint64(47))


def _mix(u: Any, v: Any, mul: Any) -> Any:
    """Hash two words to one."""
    a = _shift_mix((u ^ v) * mul)
    return _shift_mix((v ^ a) * mul) * mul


def _up_to_16(rows: Any, length: int) -> Any:
    if length < 4:
        first, middle, last = (_fetch(rows, i, 1) for i in (0, length >> 1, length - 1))
        y = first + (middle << np.uint64(8))
        z = np.uint64(length) + (last << np.uint64(2))
        return _shift_mix(y * _K2 ^ z * _K0) * _K2
    mul = _word(int(_K2) + 2 * length)
    if length < 8:
        a = np.uint64(length) + (_fetch(rows, 0, 4) << np.uint64(3))
        return _mix(a, _fetch(rows, length - 4, 4), mul)
    a = _fetch(rows, 0) + _K2
    b = _fetch(rows, length - 8)
    c = _rotate(b, 37) * mul + a
    d = (_rotate(a, 25) + b) * mul
    return _mix(c, d, mul)


def _first_and_last_16(rows: Any, length: int, mul: Any, scale: Any) -> tuple[Any, Any, Any]:
    """The part that the hashes of 17 to 32 and of 33 to 64 bytes share: it mixes the first and the last 16 bytes."""
    a = _fetch(rows, 0) * scale
    b = _fetch(rows, 8)
    c = _fetch(rows, length - 8) * mul
    d = _fetch(rows, length - 16) * _K2
    return _rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c, a


def _up_to_32(rows: Any, length: int) -> Any:
    mul = _word(int(_K2) + 2 * length)
    y, third, _ = _first_and_last_16(rows, length, mul, _K1)
    return _mix(y, third, mul)


def _up_to_64(rows: Any, length: int) -> Any:
    mul = _word(int(_K2) + 2 * length)
    y, third, a = _first_and_last_16(rows, length, mul, _K2)
    z = _mix(y, third, mul)
    e = _fetch(rows, 16) * mul
    f = _fetch(rows, 24)
    g = (y + _fetch(rows, length - 32)) * mul
    h = (z + _fetch(rows, length - 24)) * mul
    return _mix(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul)


def _weak_32(rows: Any, start: int, a: Any, b: Any) -> tuple[Any, Any]:
    """Fold 32 bytes into a pair of words."""
    w, x, y, z = (_fetch(rows, start + 8 * i) for i in range(4))
    a = a + w
    b = _rotate(b + a + z, 21)
    c = a
    a = a + x + y
    return a + z, b + _rotate(a, 44) + c


# The initial state for strings longer than 64 bytes, derived from the seed 81.
_START_X = _word(81 * int(_K2))
_START_Y = _word(81 * int(_K1) + 113)
_START_Z = _word(int(_shift_mix(_word(int(_START_Y) * int(_K2) + 113))) * int(_K2))


def _longer(rows: Any, length: int) -> Any:
    """Mix in 64 bytes a round; the last round takes the last 64 bytes, which may overlap the previous ones."""
    x, y, z = _START_X + _fetch(rows, 0), _START_Y, _START_Z
    v: tuple[Any, Any] = (np.uint64(0), np.uint64(0))
    w = v
    for start in range(0, (length - 1) // 64 * 64, 64):
        x = _rotate(x + y + v[0] + _fetch(rows, start + 8), 37) * _K1
        y = _rotate(y + v[1] + _fetch(rows, start + 48), 42) * _K1
        x = x ^ w[1]
        y = y + v[0] + _fetch(rows, start + 40)
        z = _rotate(z + w[0], 33) * _K1
        v = _weak_32(rows, start, v[1] * _K1, x + w[0])
        w = _weak_32(rows, start + 32, z + w[1], y + _fetch(rows, start + 16))
        z, x = x, z
    mul = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    last = length - 64
    w = (w[0] + np.uint64((length - 1) & 63), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    nine = np.uint64(9)
    x = _rotate(x + y + v[0] + _fetch(rows, last + 8), 37) * mul
    y = _rotate(y + v[1] + _fetch(rows, last + 48), 42) * mul
    x = x ^ w[1] * nine
    y = y + v[0] * nine + _fetch(rows, last + 40)
    z = _rotate(z + w[0], 33) * mul
    v = _weak_32(rows, last, v[1] * mul, x + w[0])
    w = _weak_32(rows, last + 32, z + w[1], y + _fetch(rows, last + 16))
    z, x = x, z
    return _mix(_mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z, _mix(v[1], w[1], mul) + x, mul)
