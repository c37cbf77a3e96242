"""Distributions over the classes [0, range), for the candidate samplers.

The numbers equal TensorFlow's for the same seeds, where a sampler takes words of a Philox generator one by one. Here
they are drawn in arrays.
Next to read: `candidate_sampling_ops.py`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.memory.memory import available_memory
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.parsing.number_ops import number_parser
from aexec.numerics import philox
from aexec.numerics.philox import Philox

__all__ = [
    "INT32_MAX",
    "AllSampler",
    "FixedUnigramSampler",
    "LearnedUnigramSampler",
    "LogUniformSampler",
    "RangeSampler",
    "UniformSampler",
    "Words",
    "read_unigrams",
]

INT32_MAX = 2**31 - 1
_BLOCK = 1 << 16

Array = Any


class Words:
    """The words of a generator from its present position on, in rows."""

    def __init__(self, generator: Philox) -> None:
        self._generator, self._taken = generator, 0

    def take(self, rows: int, width: int) -> Array:
        """uint32 [rows, width]: the next words."""
        first, count = self._taken, rows * width
        self._taken += count
        block = first // 4
        words = self._generator.words(block, (first + count + 3) // 4 - block).reshape(-1)
        return words[first - 4 * block :][:count].reshape(rows, width)


def _expected_count(probability: Array, count: int, tries: int) -> Array:
    """The expected count of a class among `count` samples that took that many tries."""
    if tries == count:
        return probability * np.float32(count)
    return -np.expm1(np.float32(tries) * np.log1p(-probability))


class RangeSampler:
    """A distribution over [0, range).

    Attributes:
        range: number of classes.
    """

    def __init__(self, count: int) -> None:
        if count <= 0:
            raise errors.InvalidArgumentError("range_max must be positive")
        self.range = count

    def sample(self, words: Words, count: int) -> Array:
        """Return int64 [count]: classes, with repetitions."""
        raise NotImplementedError

    def probability(self, classes: Array) -> Array:
        """Return float32, in the shape of the classes."""
        raise NotImplementedError

    def sample_batch(self, words: Words, count: int, unique: bool, true_classes: Array) -> tuple[Array, Array, Array]:
        """Return samples, and the expected counts of the true classes and of the samples.

        Raises:
            InvalidArgumentError: more different classes are requested than there are.
        """
        if unique:
            sampled, tries = self._unique(words, count)
        else:
            sampled, tries = self._in_blocks(words, count), count
        expected = [_expected_count(self.probability(x), count, tries) for x in (true_classes, sampled)]
        return sampled, expected[0], expected[1]

    def _in_blocks(self, words: Words, count: int) -> Array:
        if count <= _BLOCK:
            return self.sample(words, count)
        sampled = np.empty(count, np.int64)
        for start in range(0, count, _BLOCK):
            let_others_run()
            sampled[start : start + _BLOCK] = self.sample(words, min(_BLOCK, count - start))
        return sampled

    def _unique(self, words: Words, count: int) -> tuple[Array, int]:
        """Return different classes in the order in which they were drawn, and the number of tries that this took."""
        found, tries = np.empty(0, np.int64), 0
        while found.size < count:
            if tries:
                let_others_run()
            size = min(max(2 * (count - found.size), 64), _BLOCK)
            drawn = self.sample(words, size)
            firsts = np.sort(np.unique(drawn, return_index=True)[1])
            if tries:
                firsts = firsts[~np.isin(drawn[firsts], found)]
            firsts = firsts[: count - found.size]
            found = np.concatenate((found, drawn[firsts]))
            tries += size if found.size < count else int(firsts[-1]) + 1
            if tries >= INT32_MAX:
                raise errors.InvalidArgumentError(f"found only {found.size} different classes in {tries} tries")
        return found, tries


class AllSampler(RangeSampler):
    """Samples every class once."""

    def sample_batch(self, words: Words, count: int, unique: bool, true_classes: Array) -> tuple[Array, Array, Array]:
        return np.arange(count), np.ones(true_classes.shape, np.float32), np.ones(count, np.float32)


class UniformSampler(RangeSampler):
    """Samples all classes with the same probability."""

    def sample(self, words: Words, count: int) -> Array:
        pairs = words.take(count, 2).astype(np.uint64)
        return ((pairs[:, 0] | pairs[:, 1] << np.uint64(32)) % np.uint64(self.range)).astype(np.int64)

    def probability(self, classes: Array) -> Array:
        return np.full(classes.shape, 1.0 / self.range, np.float32)


class LogUniformSampler(RangeSampler):
    """Samples class k with a probability of log((k + 2) / (k + 1)) / log(range + 1)."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._log_range = np.log1p(float(count))

    def sample(self, words: Words, count: int) -> Array:
        uniform = philox.unit_doubles(words.take(count, 2)).reshape(-1)
        return (np.exp(uniform * self._log_range).astype(np.int64) - 1) % self.range

    def probability(self, classes: Array) -> Array:
        return (np.log((classes + 2.0) / (classes + 1.0)) / self._log_range).astype(np.float32)


class LearnedUnigramSampler(RangeSampler):
    """Samples classes by their count among the true classes so far, plus one.  Safe to use from several threads."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        if 2 * 8 * count > available_memory():
            raise errors.ResourceExhaustedError(f"no memory for the counts of {count} classes")
        self._lock = threading.Lock()
        # Allocated by the first run: they may be large, and nodes are built on the event loop.
        self._weights = self._ends = np.empty(0, np.int64)

    @property
    def _total(self) -> int:
        return int(self._ends[-1])

    def sample(self, words: Words, count: int) -> Array:
        places = words.take(count, 1).reshape(-1) % np.uint32(self._total)
        return self._ends.searchsorted(places, "right").astype(np.int64, copy=False)

    def probability(self, classes: Array) -> Array:
        return self._weights[classes].astype(np.float32) / np.float32(self._total)

    def sample_batch(self, words: Words, count: int, unique: bool, true_classes: Array) -> tuple[Array, Array, Array]:
        with self._lock:
            if not self._weights.size:
                self._weights, self._ends = np.ones(self.range, np.int64), np.arange(1, self.range + 1)
            result = super().sample_batch(words, count, unique, true_classes)
            np.add.at(self._weights, true_classes.reshape(-1)[: INT32_MAX - self._total], 1)
            np.cumsum(self._weights, out=self._ends)
        return result


def read_unigrams(path: bytes) -> Array:
    """The weights of a vocabulary: the number after the last comma of each line.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: a line does not end with a number.
    """
    try:
        lines = Path(path.decode()).read_bytes().splitlines()
    except (OSError, ValueError) as e:
        raise errors.NotFoundError(f"{abridged(path)}; {getattr(e, 'strerror', None) or e}") from e
    parse, weights = number_parser(dtypes.float32), []
    for line in lines:
        weight = parse(line.rpartition(b",")[2])
        if weight is None:
            raise errors.InvalidArgumentError(f"Wrong vocabulary format at line: {abridged(line)}")
        weights.append(weight)
    return np.array(weights, np.float32)


class FixedUnigramSampler(RangeSampler):
    """Samples classes by given weights, raised to a power.

    Args:
        count: number of classes.
        weights: float32 vector of all shards' classes, without the reserved ones, which come first.
        distortion: the power.
        num_reserved_ids: classes that are never drawn.
        num_shards, shard: of every `num_shards` classes, only the one at `shard` belongs to this sampler.
    """

    def __init__(
        self, count: int, weights: Array, *, distortion: float, num_reserved_ids: int, num_shards: int, shard: int
    ) -> None:
        super().__init__(count)
        if not 0 <= num_reserved_ids <= count * num_shards:
            raise errors.InvalidArgumentError(f"num_reserved_ids must be in [0, {count}], got {num_reserved_ids}")
        reserved = len(range(shard, num_reserved_ids, num_shards))
        first = reserved  # ids of a vocabulary follow the reserved ones of this shard
        mine = (np.arange(len(weights)) + first) % num_shards == shard
        distorted = np.power(weights[mine], np.float32(distortion), dtype=np.float32)
        self._weights = np.concatenate((np.zeros(reserved, np.float32), distorted))
        if self._weights.size != count:
            raise errors.InvalidArgumentError(f"range is {count} must be equal to weights size  {self._weights.size}")
        if not np.isfinite(distorted).all() or (distorted < 0).any() or not distorted.any():
            raise errors.InvalidArgumentError("unigrams must be finite, not negative, and not all zero")
        self._total = np.add.accumulate(distorted)[-1]
        self._own, self._other = _alias_table(self._weights)

    def sample(self, words: Words, count: int) -> Array:
        pairs = words.take(count, 2)
        buckets = pairs[:, 1] % np.uint32(self.range)
        own = philox.unit_floats(pairs[:, 0]) < self._own[buckets]
        return np.where(own, buckets, self._other[buckets]).astype(np.int64)

    def probability(self, classes: Array) -> Array:
        return self._weights[classes] / self._total

    def _unique(self, words: Words, count: int) -> tuple[Array, int]:
        possible = int(np.count_nonzero(self._weights))
        if count > possible:
            raise errors.InvalidArgumentError(f"cannot sample {count} different classes: only {possible} have a weight")
        return super()._unique(words, count)


def _alias_table(weights: Array) -> tuple[Array, Array]:
    """Walker's method: each of n buckets belongs to its own class, with this probability, and to another one."""
    count = len(weights)
    total = sum(weights.tolist())
    shares = ((weights * np.float32(count)).astype(np.float64) / total).tolist()
    other = list(range(count))
    low = [i for i, share in enumerate(shares) if share < 1.0]
    high = [i for i, share in enumerate(shares) if share >= 1.0]
    while high and low:
        small, large = low.pop(), high.pop()
        other[small] = large
        shares[large] -= 1.0 - shares[small]
        (low if shares[large] < 1.0 else high).append(large)
    # Probabilities left over by rounding are near 1.
    for i in (*high, *low):
        shares[i], other[i] = 1.0, i
    return np.array(shares, np.float32), np.array(other)
