"""Random numbers of datasets, in TensorFlow's order: one word after another of a Philox generator with two seeds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from aexec.numerics.philox import Philox

__all__ = ["SeedGenerator", "chosen_seeds", "words"]

_BLOCKS_AT_ONCE = 512


def words(seed: int, seed2: int) -> Iterator[int]:
    """The generator's words, each of 32 bits."""
    generator = Philox.from_seeds(seed, seed2)
    blocks = 1  # few words are needed of most generators
    while True:
        yield from generator.words(0, blocks).ravel().tolist()
        generator = generator.skip(blocks)
        blocks = min(_BLOCKS_AT_ONCE, 2 * blocks)


def chosen_seeds(seed: int, seed2: int) -> tuple[int, int]:
    """The seeds as given; random ones if both are 0."""
    return (seed, seed2) if seed or seed2 else (secrets.randbits(63), secrets.randbits(63))


class SeedGenerator:
    """Gives the seeds of each pass through a dataset.

    Args:
        seed, seed2: not both 0.
        reshuffles: each pass has other seeds, or else all have these.
    """

    def __init__(self, seed: int, seed2: int, *, reshuffles: bool) -> None:
        self.seeds = seed, seed2
        self.reshuffles = reshuffles
        self._words = words(seed, seed2)

    def next_seeds(self) -> tuple[int, int]:
        """The seeds of the next pass."""
        return (next(self._words), next(self._words)) if self.reshuffles else self.seeds

    def __repr__(self) -> str:
        return f"<SeedGenerator {self.seeds}>"
