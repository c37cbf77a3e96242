"""Places in a random permutation of [0, max_index], without the permutation itself.

A block cipher (Simon, with words of half a block) permutes the numbers of a block; a number outside the range is
encrypted again until it is inside.  Constants and rounds are TensorFlow's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.common.allocation import allocator

__all__: list[str] = []

_TYPES = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)
_KEY_WORDS = 3
_SCHEDULE, _SCHEDULE_MASK = 0x7369F885192C0EF5, 0xFFFFFFFC
_MOST_ROUNDS = 1000
# Bits of the smallest block.  Its numbers are encrypted all at once, since most are outside a small range.
_LEAST_BLOCK = 16
_TABLES = 4
_TABLE_NS, _ELEMENT_NS = 8e6, 500.0

Array = Any


def _rotated(x: Any, left: int, word: int) -> Any:
    left %= word
    return (x << left | x >> (word - left)) & ((1 << word) - 1)


def _round_keys(seed: tuple[int, ...], rounds: int, word: int) -> list[int]:
    mask = (1 << word) - 1
    keys, bits = [part & mask for part in seed], _SCHEDULE & mask
    for i in range(_KEY_WORDS, rounds):
        mixed = _rotated(keys[i - 1], -3, word) ^ _rotated(keys[i - 1], -4, word)
        keys.append((_SCHEDULE_MASK & mask) ^ (bits & 1) ^ keys[i - 3] ^ mixed)
        bits >>= 1
    return keys


def _encrypted(values: Array, keys: list[int], word: int) -> Array:
    """The numbers, uint64, of blocks of two words, encrypted."""

    def mixed(x: Array) -> Array:
        return _rotated(x, 1, word) & _rotated(x, 8, word) ^ _rotated(x, 2, word)

    mask = (1 << word) - 1
    left, right = values >> word & mask, values & mask
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        left = left ^ mixed(right) ^ first
        right = right ^ mixed(left) ^ second
    return left << word | right


def _table(seed: tuple[int, ...], max_index: int, rounds: int) -> Array:
    """uint16 [2**16]: for each number of the smallest block the first one after it that is in the range."""
    word = _LEAST_BLOCK // 2
    numbers = np.arange(1 << _LEAST_BLOCK, dtype=np.uint64)
    after = _encrypted(numbers, _round_keys(seed, rounds, word), word).astype(np.uint16)
    found = np.where(numbers <= max_index, numbers, after).astype(np.uint16)
    # Steps are taken two, four, eight, ... at a time: a cycle has no more than 2**16.
    for _ in range(_LEAST_BLOCK):
        found = found[found]
    return found[after]


def _shuffled(indices: Array, seed: tuple[int, ...], max_index: int, rounds: int, table: Callable[..., Array]) -> Array:
    if max_index == 0:
        return np.zeros_like(indices)
    bits = math.ceil(np.log2(np.float64(max_index)))
    block = max(bits + bits % 2, _LEAST_BLOCK)
    if block == _LEAST_BLOCK:
        # As in TensorFlow, 2**16 itself has no place in the block and is taken for 0.
        return table(seed, max_index, rounds)[indices & 0xFFFF]
    keys = _round_keys(seed, rounds, block // 2)
    result, waiting = _encrypted(indices, keys, block // 2), np.arange(len(indices))
    while (waiting := waiting[result[waiting] > max_index]).size:
        let_others_run()
        result[waiting] = _encrypted(result[waiting], keys, block // 2)
    return result


def _cost(index: Array, seed: Array, max_index: Array) -> float:
    permutations = max(seed.size / _KEY_WORDS, max_index.size)
    return float(_TABLE_NS * permutations + _ELEMENT_NS * max(index.size, permutations))


def _check(index: Array, seed: Array, max_index: Array) -> None:
    for name, value in (("index", index), ("max_index", max_index)):
        if value.ndim > 1:
            raise errors.InvalidArgumentError(f"{name} must be a scalar or vector, not {shape_text(value.shape)}")
        if value.size and value.min() < 0:
            raise errors.InvalidArgumentError(f"{name} must be >= 0 but was {value.min()}")
    count = max(index.size, seed.size // _KEY_WORDS, max_index.size)
    if seed.ndim not in (1, 2) or seed.shape[-1] != _KEY_WORDS or (seed.ndim == 1 and seed.size != _KEY_WORDS):
        raise errors.InvalidArgumentError(
            f"Seed must be a vector of size [3] or a matrix of size [{count}, 3] but got {shape_text(seed.shape)}."
        )
    for name, size in (("index", index.size), ("seed", seed.size // _KEY_WORDS), ("max_index", max_index.size)):
        if size not in (1, count):
            raise errors.InvalidArgumentError(f"{name} must have 1 or {count} rows, but has {size}")


@kernel("RandomIndexShuffle", dtype=_TYPES, Tseed=_TYPES, cost=_cost, scratch=64)
def index_shuffle(c: OpKernelConstruction) -> Compute:
    """Return the places of indices in a permutation of [0, max_index], which a seed of three words determines.

    Each of the inputs is one for all, or a vector (for seeds, a matrix) with one for each place that is returned.
    """
    rounds, allocate = c.attr("rounds"), allocator(c)
    if rounds % 2 or not _KEY_WORDS < rounds <= _MOST_ROUNDS:
        raise errors.InvalidArgumentError(f"rounds must be even and in [4, {_MOST_ROUNDS}], not {rounds}")
    table = lru_cache(_TABLES)(_table)

    def compute(index: Array, seed: Array, max_index: Array) -> Array:
        _check(index, seed, max_index)
        rows = seed.reshape(-1, _KEY_WORDS)
        count = max(index.size, len(rows), max_index.size)
        out = allocate(() if index.ndim == max_index.ndim == 0 and seed.ndim == 1 else (count,))
        if (index > max_index).any():
            raise errors.InvalidArgumentError(f"max_index must be >= index, but {max_index.min()} < {index.max()}")
        announce_scratch(200 * count)
        indices, flat = np.broadcast_to(index.reshape(-1), count).astype(np.uint64), out.reshape(-1)
        if len(rows) == max_index.size == 1:
            key = tuple(rows.astype(np.uint32)[0].tolist())
            flat[...] = _shuffled(indices, key, int(max_index.reshape(())), rounds, table)
            return out
        kinds = np.concatenate(
            [
                np.broadcast_to(rows.astype(np.uint32), (count, _KEY_WORDS)).astype(np.uint64),
                np.broadcast_to(max_index.reshape(-1, 1), (count, 1)).astype(np.uint64),
            ],
            axis=1,
        )
        permutations, of = np.unique(kinds, axis=0, return_inverse=True)
        of = of.reshape(-1)
        order = of.argsort(kind="stable")
        for (*key, largest), places in zip(
            permutations.tolist(),
            np.split(order, np.searchsorted(of[order], np.arange(1, len(permutations)))),
            strict=True,
        ):
            let_others_run()
            flat[places] = _shuffled(indices[places], tuple(key), largest, rounds, table)
        return out

    return compute
