"""FarmHash Fingerprint64 and the other string hashes that graphs use.

The hash values are part of a model: they decide which bucket of an embedding a word falls into. `fingerprint64` is
farmhashna's 64-bit hash (FarmHash 1.1), `hash64` is the Murmur-like hash of TensorFlow's older ops, `siphash` is
SipHash-2-4 with a key. All take bytes and return an unsigned 64-bit integer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["fingerprint64", "hash64", "siphash"]

_MASK = 0xFFFFFFFFFFFFFFFF
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F

_u64 = struct.Struct("<Q").unpack_from
_u32 = struct.Struct("<I").unpack_from


def _rotate(value: int, shift: int) -> int:
    return (value >> shift | value << (64 - shift)) & _MASK


def _shift_mix(value: int) -> int:
    return value ^ value >> 47


def _mix(u: int, v: int, mul: int) -> int:
    a = (u ^ v) * mul & _MASK
    b = (v ^ a ^ a >> 47) * mul & _MASK
    return (b ^ b >> 47) * mul & _MASK


def _weak(s: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Fold 32 bytes and two seeds into two 64-bit words; weak but fast."""
    w, x, y, z = struct.unpack_from("<4Q", s, at)
    a = (a + w) & _MASK
    b = _rotate((b + a + z) & _MASK, 21)
    c = a
    a = (a + x + y) & _MASK
    b += _rotate(a, 44)
    return (a + z) & _MASK, (b + c) & _MASK


def _up_to_16(s: bytes) -> int:
    n = len(s)
    mul = _K2 + n * 2 & _MASK
    if n >= 8:
        a = _u64(s)[0] + _K2 & _MASK
        b = _u64(s, n - 8)[0]
        c = _rotate(b, 37) * mul + a & _MASK
        d = (_rotate(a, 25) + b) * mul & _MASK
        return _mix(c, d, mul)
    if n >= 4:
        return _mix(n + (_u32(s)[0] << 3), _u32(s, n - 4)[0], mul)
    if n > 0:
        y = s[0] + (s[n >> 1] << 8)
        z = n + (s[n - 1] << 2)
        return _shift_mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _up_to_32(s: bytes) -> int:
    n = len(s)
    mul = _K2 + n * 2 & _MASK
    a = _u64(s)[0] * _K1 & _MASK
    b = _u64(s, 8)[0]
    c = _u64(s, n - 8)[0] * mul & _MASK
    d = _u64(s, n - 16)[0] * _K2 & _MASK
    return _mix(
        (_rotate(a + b & _MASK, 43) + _rotate(c, 30) + d) & _MASK,
        (a + _rotate(b + _K2 & _MASK, 18) + c) & _MASK,
        mul,
    )


def _up_to_64(s: bytes) -> int:
    n = len(s)
    mul = _K2 + n * 2 & _MASK
    a = _u64(s)[0] * _K2 & _MASK
    b = _u64(s, 8)[0]
    c = _u64(s, n - 8)[0] * mul & _MASK
    d = _u64(s, n - 16)[0] * _K2 & _MASK
    y = (_rotate(a + b & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    z = _mix(y, (a + _rotate(b + _K2 & _MASK, 18) + c) & _MASK, mul)
    e = _u64(s, 16)[0] * mul & _MASK
    f = _u64(s, 24)[0]
    g = (y + _u64(s, n - 32)[0]) * mul & _MASK
    h = (z + _u64(s, n - 24)[0]) * mul & _MASK
    return _mix(
        (_rotate(e + f & _MASK, 43) + _rotate(g, 30) + h) & _MASK,
        (e + _rotate(f + a & _MASK, 18) + g) & _MASK,
        mul,
    )


@lru_cache(maxsize=1 << 13)
def _up_to_32_again(s: bytes) -> int:
    """Hash a word.  Cached, since a feature's words recur and a look-up takes a tenth of the time."""
    return _up_to_16(s) if len(s) <= 16 else _up_to_32(s)


def fingerprint64(s: bytes) -> int:
    """FarmHash's Fingerprint64: stable over versions, platforms and time."""
    n = len(s)
    if n <= 32:
        return _up_to_32_again(s)
    if n <= 64:
        return _up_to_64(s)
    seed = 81
    x, y = seed, (seed * _K1 + 113) & _MASK
    z = _shift_mix((y * _K2 + 113) & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _u64(s)[0]) & _MASK
    for at in range(0, (n - 1) // 64 * 64, 64):
        x, y, z, v, w = _round(s, at, x, y, z, v, w, _K1, 1)
    mul = (_K1 + ((z & 0xFF) << 1)) & _MASK
    w = (w[0] + ((n - 1) & 63) & _MASK, w[1])
    v = (v[0] + w[0] & _MASK, v[1])
    w = (w[0] + v[0] & _MASK, w[1])
    x, y, z, v, w = _round(s, n - 64, x, y, z, v, w, mul, 9)
    first = (_mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z) & _MASK
    return _mix(first, (_mix(v[1], w[1], mul) + x) & _MASK, mul)


Pair = tuple[int, int]


def _round(
    s: bytes, at: int, x: int, y: int, z: int, v: Pair, w: Pair, mul: int, weight: int
) -> tuple[int, int, int, Pair, Pair]:
    """Mix 64 bytes into the state."""
    x = _rotate((x + y + v[0] + _u64(s, at + 8)[0]) & _MASK, 37) * mul & _MASK
    y = _rotate((y + v[1] + _u64(s, at + 48)[0]) & _MASK, 42) * mul & _MASK
    x ^= w[1] * weight & _MASK
    y = (y + v[0] * weight + _u64(s, at + 40)[0]) & _MASK
    z = _rotate((z + w[0]) & _MASK, 33) * mul & _MASK
    v = _weak(s, at, v[1] * mul & _MASK, (x + w[0]) & _MASK)
    w = _weak(s, at + 32, (z + w[1]) & _MASK, (y + _u64(s, at + 16)[0]) & _MASK)
    return z, y, x, v, w


def hash64(s: bytes, seed: int = 0xDECAFCAFFE) -> int:
    """TensorFlow's Hash64 (tsl/platform/hash.cc), a variant of MurmurHash64A."""
    mul = 0xC6A4A7935BD1E995
    whole = len(s) // 8 * 8
    h = (seed ^ len(s) * mul) & _MASK
    for (k,) in struct.iter_unpack("<Q", s[:whole]):
        k = k * mul & _MASK
        k = (k ^ k >> 47) * mul & _MASK
        h = (h ^ k) * mul & _MASK
    if whole < len(s):
        h = (h ^ int.from_bytes(s[whole:], "little")) * mul & _MASK
    h = (h ^ h >> 47) * mul & _MASK
    return h ^ h >> 47


def siphash(s: bytes, key: Sequence[int]) -> int:
    """SipHash-2-4 of `s` under a key of two 64-bit integers."""
    k0, k1 = key[0] & _MASK, key[1] & _MASK
    state = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(s) // 8 * 8
    tail = int.from_bytes(s[whole:], "little") | (len(s) & 0xFF) << 56
    for word in (*[k for (k,) in struct.iter_unpack("<Q", s[:whole])], tail):
        state[3] ^= word
        _sip_round(state)
        _sip_round(state)
        state[0] ^= word
    state[2] ^= 0xFF
    for _ in range(4):
        _sip_round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_round(state: list[int]) -> None:
    a, b, c, d = state
    a = a + b & _MASK
    c = c + d & _MASK
    b = _rotate(b, 51) ^ a
    d = _rotate(d, 48) ^ c
    a = _rotate(a, 32)
    c = c + b & _MASK
    a = a + d & _MASK
    b = _rotate(b, 47) ^ c
    d = _rotate(d, 43) ^ a
    state[:] = a, b, _rotate(c, 32), d
