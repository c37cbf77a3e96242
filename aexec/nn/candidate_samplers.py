"""Samples of classes for losses over many classes.

Next to read: `sampled_losses.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aexec import ops
from aexec.client.random_seed import get_seed
from aexec.graph.nodes.node import Tensor

__all__ = [
    "Samples",
    "all_candidate_sampler",
    "compute_accidental_hits",
    "fixed_unigram_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "uniform_candidate_sampler",
]


class Samples(NamedTuple):
    """Sampled classes.

    Attributes:
        candidates: [num_sampled], int64.
        true_expected: the expected count of each true class among them, [batch, num_true].
        sampled_expected: the expected count of each sampled class, [num_sampled].
    """

    candidates: Tensor
    true_expected: Tensor
    sampled_expected: Tensor


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Sample classes of [0, range_max), lower ones more often: for words that are numbered by descending frequency.

    Args:
        true_classes: [batch, num_true], int64.
        unique: sample no class twice.
    """
    sizes = (num_true, num_sampled, unique, range_max)
    seeds = _seeds(seed)
    return Samples(*ops.log_uniform_candidate_sampler(true_classes, *sizes, **seeds, name=name))


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Sample classes of [0, range_max) with equal probabilities."""
    sizes = (num_true, num_sampled, unique, range_max)
    return Samples(*ops.uniform_candidate_sampler(true_classes, *sizes, **_seeds(seed), name=name))


def learned_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Sample classes of [0, range_max) by how often they were true ones in this session so far."""
    sizes = (num_true, num_sampled, unique, range_max)
    return Samples(*ops.learned_unigram_candidate_sampler(true_classes, *sizes, **_seeds(seed), name=name))


def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Sequence[float] = (),
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Sample classes of [0, range_max) by a list of weights.

    Args:
        vocab_file: a file of which each line ends in a comma and a weight; or else
        unigrams: the weights.
        distortion: the power that weights are raised to: 1 leaves them, 0 makes them all equal.
        num_reserved_ids: the number of classes before the first one of the list, which are never sampled.
        num_shards, shard: use only every `num_shards`-th class, from `shard` on.
    """
    return Samples(
        *ops.fixed_unigram_candidate_sampler(
            true_classes,
            num_true,
            num_sampled,
            unique,
            range_max,
            vocab_file=vocab_file,
            distortion=distortion,
            num_reserved_ids=num_reserved_ids,
            num_shards=num_shards,
            shard=shard,
            unigrams=list(unigrams),
            **_seeds(seed),
            name=name,
        )
    )


def all_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: int | None = None, name: str | None = None
) -> Samples:
    """All of the classes [0, num_sampled), for tests to compare a sampled loss with."""
    return Samples(*ops.all_candidate_sampler(true_classes, num_true, num_sampled, unique, **_seeds(seed), name=name))


def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Find sampled classes that are true ones.

    Returns:
        For each hit the example, the position among the sampled, and a weight so low that the class does not count.
    """
    return ops.compute_accidental_hits(true_classes, sampled_candidates, num_true, **_seeds(seed), name=name)


def _seeds(seed: int | None) -> dict[str, Any]:
    return dict(zip(("seed", "seed2"), get_seed(seed), strict=True))
