"""Random numbers of datasets, in TensorFlow's order: consecutive words of a Philox generator with two seeds."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from aexec.numerics.philox import Philox

__all__ = ["SeedGenerator", "Words", "chosen_seeds"]

_BLOCKS_AT_ONCE = 512


class Words:
    """The infinite sequence of 32-bit words of a generator."""

    __slots__ = ("_at", "_blocks", "_generator", "_ready")

    def __init__(self, seed: int, seed2: int) -> None:
        self._generator = Philox.from_seeds(seed, seed2)
        self._blocks = 1  # few words are needed of most generators
        self._ready = np.empty(0, np.int64)
        self._at = 0  # the position of the next word in `_ready`

    def next(self) -> int:
        """The next word."""
        if self._at == self._ready.size:
            self._more()
        self._at += 1
        word: int = self._ready.item(self._at - 1)
        return word

    def take(self, count: int) -> Any:
        """The next `count` words, [count], int64."""
        while self._ready.size - self._at < count:
            self._more()
        self._at += count
        return self._ready[self._at - count : self._at]

    def _more(self) -> None:
        new = self._generator.words(0, self._blocks).ravel().astype(np.int64)
        self._ready = np.concatenate([self._ready[self._at :], new])
        self._at = 0
        self._generator = self._generator.skip(self._blocks)
        self._blocks = min(_BLOCKS_AT_ONCE, 2 * self._blocks)


def chosen_seeds(seed: int, seed2: int) -> tuple[int, int]:
    """The seeds as given; random ones if both are 0."""
    return (seed, seed2) if seed or seed2 else (secrets.randbits(63), secrets.randbits(63))


class SeedGenerator:
    """Generates the seeds of each pass through a dataset.

    Args:
        seed, seed2: the initial seeds; not both 0.
        reshuffles: True for different seeds in each pass, False for these seeds in every pass.
    """

    def __init__(self, seed: int, seed2: int, *, reshuffles: bool) -> None:
        self.seeds = seed, seed2
        self.reshuffles = reshuffles
        self._words = Words(seed, seed2)

    def next_seeds(self) -> tuple[int, int]:
        """The seeds of the next pass."""
        return (self._words.next(), self._words.next()) if self.reshuffles else self.seeds

    def __repr__(self) -> str:
        return f"<SeedGenerator {self.seeds}>"
