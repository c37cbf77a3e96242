"""The counter-based generator Philox 4x32-10, and the random numbers that TensorFlow makes from its words.

Block n of the generator is a function of a key and of counter + n.  So any part of its output can be computed directly,
and a draw does not depend on earlier draws or on the thread.  The generator is Salmon and others', *Parallel random
numbers: as easy as 1, 2, 3* (2011); layout and conversions are TensorFlow's (random_distributions.h), bit for bit.

A distribution fills an array group by group; group g takes the words of block g.  Truncated normals need an unknown
number of words, hence each group has a range of blocks of its own. Arrays are filled in pieces that stay in the
processor's cache.  Arrays of a device (`xp` is its array module) are filled there, in larger pieces; the host computes
the words if the blocks are few, since the device's launches take longer.
Next to read: `single_libm.py`; `aexec/kernels/random/random_ops.py` keeps the counters.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from aexec import native
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.numerics.single_libm import logf, sincosf

__all__ = [
    "BLOCKS_PER_OUTPUT",
    "GuardedPhilox",
    "Philox",
    "fill_full_integers",
    "fill_integers",
    "fill_standard_normal",
    "fill_truncated_normal",
    "fill_uniform",
    "normal_doubles",
    "unit_doubles",
    "unit_floats",
]

Array = Any

BLOCKS_PER_OUTPUT = 256
"""The blocks that a stateful op uses up for each output element, however many it needs."""

_WORD = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

# From this many blocks on, arrays are faster than Python's integers.
_ARRAYS_FROM = 9
_BLOCKS_AT_ONCE = 4096

# The same limits for arrays on devices.
_DEVICE_ARRAYS_FROM = 1024
_DEVICE_BLOCKS_AT_ONCE = 1 << 20

_EPSILON = 1e-7
_TRUNCATE_AT = 2.0


@dataclass(frozen=True, slots=True)
class Philox:
    """A key and a place in its sequence of blocks of four 32-bit words.

    Attributes:
        key: 64 bits; the lower half is the first word of the key.
        counter: 128 bits, likewise.
    """

    key: int
    counter: int

    @classmethod
    def from_seeds(cls, seed: int, seed2: int) -> Philox:
        """The generator of a stateful op with these attrs: any integers, of which the lower 64 bits are used."""
        return cls(seed & _LONG, (seed2 & _LONG) << 64)

    @classmethod
    def from_stateless_seed(cls, seed: int, seed2: int) -> Philox:
        """The generator of a stateless op.  The seeds are scrambled, since users choose small ones."""
        counter = (seed & _LONG) | (seed2 & _LONG) << 64
        mix = _block(0x02461E293EC8F720, counter)
        return cls(mix[0] | mix[1] << 32, mix[2] << 64 | mix[3] << 96)

    def skip(self, blocks: int) -> Philox:
        """The generator `blocks` further on."""
        return Philox(self.key, (self.counter + blocks) & (_LONG << 64 | _LONG))

    def words(self, start: int, blocks: int, xp: Any = np) -> Array:
        """uint32 [blocks, 4], an array of `xp`: the blocks from `start` on."""
        if xp is not np and blocks < _DEVICE_ARRAYS_FROM:
            return xp.asarray(self.words(start, blocks))
        if xp is np and native.loops is not None:
            return self.skip(start)._words_in_c(native.loops, None, blocks)
        if blocks < _ARRAYS_FROM:
            found = [_block(self.key, self.counter + start + i) for i in range(blocks)]
            return np.array(found, np.uint32).reshape(blocks, 4)
        return self.words_at(xp.arange(start, start + blocks, dtype=np.uint64), xp)

    def words_at(self, places: Array, xp: Any = np) -> Array:
        """uint32 [n, 4]: the blocks with these numbers, uint64 [n], both arrays of `xp`."""
        if xp is np and native.loops is not None and places.ndim == 1:
            return self._words_in_c(native.loops, np.ascontiguousarray(places), places.size)
        low, high = self.counter & _LONG, self.counter >> 64
        lower = places + np.uint64(low)
        upper = xp.full(lower.shape, high, np.uint64)
        upper += lower < low
        c0, c1, c2, c3 = lower & _WORD, lower >> 32, upper & _WORD, upper >> 32
        scratch = xp.empty_like(lower)
        k0, k1 = self.key & _WORD, self.key >> 32
        for _ in range(_ROUNDS):
            c0 *= _MULTIPLIERS[0]
            c2 *= _MULTIPLIERS[1]
            xp.right_shift(c2, 32, out=scratch)
            c1 ^= scratch
            c1 ^= k0
            xp.right_shift(c0, 32, out=scratch)
            c3 ^= scratch
            c3 ^= k1
            c0 &= _WORD
            c2 &= _WORD
            c0, c1, c2, c3 = c1, c2, c3, c0
            k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
        words = xp.empty((*lower.shape, 4), np.uint32)
        for i, word in enumerate((c0, c1, c2, c3)):
            words[..., i] = word
        return words

    def _words_in_c(self, loops: ModuleType, places: Array, blocks: int) -> Array:
        words = np.empty((blocks, 4), np.uint32)
        loops.philox(words, places, self.key, self.counter & _LONG, self.counter >> 64, blocks)
        return words


def _block(key: int, counter: int) -> tuple[int, int, int, int]:
    c0, c1, c2, c3 = (counter >> shift & _WORD for shift in (0, 32, 64, 96))
    k0, k1 = key & _WORD, key >> 32
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = product1 >> 32 ^ c1 ^ k0, product1 & _WORD, product0 >> 32 ^ c3 ^ k1, product0 & _WORD
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


class GuardedPhilox:
    """The generator of one node, which every run of the node advances.  Safe to use from any thread."""

    __slots__ = ("_generator", "_lock")

    def __init__(self, generator: Philox) -> None:
        self._generator = generator
        self._lock = threading.Lock()

    def reserve(self, blocks: int) -> Philox:
        """Return the generator in its present position, then advances it by `blocks`."""
        with self._lock:
            generator = self._generator
            self._generator = generator.skip(blocks)
        return generator

    def reserve_outputs(self, count: int) -> Philox:
        """Like `reserve`, for `count` output elements, however many words these take."""
        return self.reserve(count * BLOCKS_PER_OUTPUT)


# Numbers in [0, 1)


def unit_floats(words: Array) -> Array:
    """One float32 per uint32: 23 bits."""
    bits = words & np.uint32(0x7FFFFF)
    bits |= np.uint32(0x3F800000)
    return bits.view(np.float32) - np.float32(1)


def unit_doubles(words: Array) -> Array:
    """One float64 per pair of uint32 along the last dimension: 52 bits, 20 of them from the first word."""
    bits = (words[..., 0::2] & np.uint32(0xFFFFF)).astype(np.uint64)
    bits <<= 32
    bits |= words[..., 1::2]
    bits |= np.uint64(0x3FF0000000000000)
    return bits.view(np.float64) - 1.0


def _unit_narrow(bits: int) -> Callable[[Array], Array]:
    mask, scale = np.uint32((1 << bits) - 1), np.float32(2.0**-bits)
    return lambda words: (words & mask).astype(np.float32) * scale


_UNIFORM: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "float16": (4, _unit_narrow(10)),
    "bfloat16": (4, _unit_narrow(7)),
    "float32": (4, unit_floats),
    "float64": (2, unit_doubles),
}


def _fill(generator: Philox, out: Array, per_block: int, convert: Callable[[Array], Array], xp: Any) -> None:
    """Fill contiguous `out` with values [n, per_block], which `convert` makes from words [n, 4]."""
    flat = out.reshape(-1)
    blocks = -(-flat.size // per_block)
    at_once = _BLOCKS_AT_ONCE if xp is np else _DEVICE_BLOCKS_AT_ONCE
    for start in range(0, blocks, at_once):
        check_wanted()
        words = generator.words(start, min(at_once, blocks - start), xp)
        part = flat[start * per_block : (start + at_once) * per_block]
        part[...] = convert(words).reshape(-1)[: part.size]


def fill_uniform(generator: Philox, out: Array, xp: Any = np) -> None:
    """Fill a contiguous array of any of the four float types with uniform numbers in [0, 1)."""
    _fill(generator, out, *_UNIFORM[out.dtype.name], xp)


# Integers


def fill_full_integers(generator: Philox, out: Array, xp: Any = np) -> None:
    """Fill a contiguous array of 32 or 64 bit integers with the words themselves, low word first."""
    _fill(generator, out.reshape(-1).view(np.uint32), 4, lambda words: words, xp)


def fill_integers(generator: Philox, out: Array, low: int, high: int, xp: Any = np) -> None:
    """Fill a contiguous array of int32 or int64 with numbers in [low, high).

    They are words modulo the width of the range, and so not exactly uniform, as in TensorFlow.
    """
    wide = out.dtype.itemsize == 8
    unsigned = np.dtype(np.uint64 if wide else np.uint32)
    width = unsigned.type(high - low)
    offset = unsigned.type(low & (_LONG if wide else _WORD))

    def convert(words: Array) -> Array:
        return words.view(unsigned) % width + offset

    _fill(generator, out.reshape(-1).view(unsigned), 2 if wide else 4, convert, xp)


# Normal numbers, by the method of Box and Muller


def _normal_floats(words: Array, xp: Any) -> Array:
    """float32 [n, 4] of words [n, 4]: each pair of words gives a pair of numbers."""
    uniform = unit_floats(words)
    radius = xp.maximum(uniform[:, 0::2], np.float32(_EPSILON))
    angle = (2 * math.pi * uniform[:, 1::2].astype(np.float64)).astype(np.float32)
    radius = xp.sqrt(np.float32(-2) * logf(radius, xp))
    sine, cosine = sincosf(angle, xp)
    uniform[:, 0::2] = sine * radius
    uniform[:, 1::2] = cosine * radius
    return uniform


def _each(function: Callable[[float], float], values: Array) -> Array:
    """The C library's double function of each value, at 30 ns each: NumPy's functions differ in the last bit."""
    return np.fromiter(map(function, values.tolist()), np.float64, values.size)


def normal_doubles(words: Array, xp: Any = np) -> Array:
    """Standard normal float64 numbers [n, 2] of words [n, 4].  A device's own functions may differ in the last bits."""
    on_host = (partial(_each, function) for function in (math.log, math.sin, math.cos))
    log, sin, cos = on_host if xp is np else (xp.log, xp.sin, xp.cos)
    uniform = unit_doubles(words)
    radius = xp.sqrt(-2.0 * log(xp.maximum(uniform[:, 0], _EPSILON)))
    angle = 2 * math.pi * uniform[:, 1]
    uniform[:, 0] = sin(angle) * radius
    uniform[:, 1] = cos(angle) * radius
    return uniform


_NORMAL: dict[str, tuple[int, Callable[[Array, Any], Array]]] = {
    "float16": (4, _normal_floats),
    "bfloat16": (4, _normal_floats),
    "float32": (4, _normal_floats),
    "float64": (2, normal_doubles),
}


def fill_standard_normal(generator: Philox, out: Array, xp: Any = np) -> None:
    """Fill a contiguous array of any of the four float types; narrow ones are rounded float32."""
    per_block, convert = _NORMAL[out.dtype.name]
    _fill(generator, out, per_block, lambda words: convert(words, xp), xp)


def fill_truncated_normal(generator: Philox, out: Array, xp: Any = np) -> None:
    """Like `fill_standard_normal`, without the numbers that are 2 or more from 0."""
    per_block, convert = _NORMAL[out.dtype.name]
    stride = BLOCKS_PER_OUTPUT * per_block // 4
    flat = out.reshape(-1)
    groups = -(-flat.size // per_block)
    at_once = _BLOCKS_AT_ONCE if xp is np else _DEVICE_BLOCKS_AT_ONCE
    for start in range(0, groups, at_once):
        check_wanted()
        places = xp.arange(start, min(start + at_once, groups), dtype=np.uint64) * np.uint64(stride)
        part = flat[start * per_block : (start + at_once) * per_block]
        part[...] = _truncated(generator, places, per_block, convert, xp).reshape(-1)[: part.size]


def _truncated(generator: Philox, places: Array, width: int, convert: Callable[[Array, Any], Array], xp: Any) -> Array:
    """[n, width]: for each group, the first accepted numbers of the blocks from its start on."""
    values = convert(generator.words_at(places, xp), xp)
    accepted = xp.abs(values) < _TRUNCATE_AT
    short = xp.flatnonzero(~accepted.all(axis=1))
    kept = xp.zeros(len(short), np.intp)
    candidates, accepted = values[short], accepted[short]
    step = 0
    while len(short):
        target = kept[:, None] + xp.cumsum(accepted, axis=1) - 1
        row, column = xp.nonzero(accepted & (target < width))
        values[short[row], target[row, column]] = candidates[row, column]
        kept += accepted.sum(axis=1)
        short, kept = short[kept < width], kept[kept < width]
        step += 1
        candidates = convert(generator.words_at(places[short] + np.uint64(step), xp), xp)
        accepted = xp.abs(candidates) < _TRUNCATE_AT
    return values
