"""Sampling of candidate classes for sampled losses, and the true classes among them (accidental hits).

Each op is a distribution over [0, range): see `range_sampler.py`, the next to read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random import range_sampler as samplers

__all__: list[str] = []

# Words of the generator that TensorFlow reserves for each candidate.
_WORDS_PER_CANDIDATE = 2048
# Nanoseconds of a call, of a sample and of a true class.  A call that may draw many times for a sample takes longer.
_CALL_NS, _SAMPLE_NS, _CLASS_NS = 50_000.0, 300.0, 30.0
_MANY_DRAWS_NS = 50_000.0
# Samplers whose classes are all drawn within a few times their number.
_EVEN = frozenset({"AllCandidateSampler", "LogUniformCandidateSampler", "UniformCandidateSampler"})


def _cost(op: str) -> AttrCost:
    """The time grows with the samples, and with the true classes, whose expected counts are computed."""

    def of_attrs(attrs: Mapping[str, Any]) -> Callable[..., float]:
        count = attrs["num_sampled"]
        of_call = _CALL_NS + _SAMPLE_NS * count
        if op not in _EVEN or (attrs["unique"] and 4 * count > attrs.get("range_max", math.inf)):
            of_call += _MANY_DRAWS_NS
        return lambda true_classes, *_: of_call + _CLASS_NS * true_classes.size

    return AttrCost(of_attrs)


def _fixed_unigram(c: OpKernelConstruction) -> samplers.RangeSampler:
    path, unigrams = c.attr("vocab_file"), c.attr("unigrams")
    if not path and not unigrams:
        raise errors.InvalidArgumentError("Must provide either vocab_file or unigrams.")
    if path and unigrams:
        raise errors.InvalidArgumentError("Must only provide one of vocab_file and unigrams.")
    weights = samplers.read_unigrams(path) if path else np.array(unigrams, np.float32)
    return samplers.FixedUnigramSampler(
        c.attr("range_max"),
        weights,
        distortion=c.attr("distortion"),
        num_reserved_ids=c.attr("num_reserved_ids"),
        num_shards=c.attr("num_shards"),
        shard=c.attr("shard"),
    )


def _learned_unigram(c: OpKernelConstruction) -> samplers.RangeSampler:
    count = c.attr("range_max")
    if count >= samplers.INT32_MAX:
        raise errors.InvalidArgumentError(
            f"range_max must be less than {samplers.INT32_MAX} for unigram samplers, got {count}"
        )
    return samplers.LearnedUnigramSampler(count)


_SAMPLERS: dict[str, Callable[[OpKernelConstruction], samplers.RangeSampler]] = {
    "AllCandidateSampler": lambda c: samplers.AllSampler(c.attr("num_sampled")),
    "UniformCandidateSampler": lambda c: samplers.UniformSampler(c.attr("range_max")),
    "LogUniformCandidateSampler": lambda c: samplers.LogUniformSampler(c.attr("range_max")),
    "LearnedUnigramCandidateSampler": _learned_unigram,
    "ThreadUnsafeUnigramCandidateSampler": _learned_unigram,
    "FixedUnigramCandidateSampler": _fixed_unigram,
}


# Bytes per true class while its expected count is computed.
_CLASS_BYTES = 24


def candidate_sampler(c: OpKernelConstruction) -> Compute:
    """Return candidates, and how often the true classes and the candidates are expected among them."""
    count, columns, unique = c.attr("num_sampled"), c.attr("num_true"), c.attr("unique")
    sampler, generator, allocate = _SAMPLERS[c.op](c), common.own_generator(c), allocator(c)

    c.may_be_abandoned = not isinstance(sampler, samplers.LearnedUnigramSampler)

    def compute(true_classes: Any) -> Any:
        if true_classes.ndim != 2:
            raise errors.InvalidArgumentError("true_classes must be a matrix")
        if true_classes.shape[1] != columns:
            raise errors.InvalidArgumentError(
                f"true_classes must have num_true columns, expected: {true_classes.shape[1]} was: {columns}"
            )
        if unique and count > sampler.range:
            raise errors.InvalidArgumentError("Sampler's range is too small.")
        announce_scratch(_CLASS_BYTES * true_classes.size)
        wrong = (true_classes < 0) | (true_classes >= sampler.range)
        if wrong.any():
            first = true_classes.reshape(-1)[wrong.argmax()]
            raise errors.InvalidArgumentError(f"`true_candidate` out of range [0, {sampler.range}), received {first}")
        allocate(count)  # only to check the memory
        words = generator.reserve(-(-_WORDS_PER_CANDIDATE * count // 4))
        return sampler.sample_batch(samplers.Words(words), count, unique, true_classes)

    return compute


for _op in _SAMPLERS:
    kernel(_op, cost=_cost(_op))(candidate_sampler)


@kernel("ComputeAccidentalHits", cost=50.0, scratch=24)
def accidental_hits(c: OpKernelConstruction) -> Compute:
    """Return rows of true classes that were sampled, their positions among the samples, and the lowest float as
    weight.
    """
    columns = c.attr("num_true")

    def compute(true_classes: Any, sampled: Any) -> Any:
        if true_classes.ndim != 2 or true_classes.shape[1] != columns:
            raise errors.InvalidArgumentError("true_candidates must be a batch_size * num_true matrix")
        if sampled.ndim != 1:
            raise errors.InvalidArgumentError(
                "sampled_candidates must be a vector, which is typically an output from CandidateSampler"
            )
        # For a candidate that was sampled twice, the last position counts.
        order = sampled.argsort(kind="stable")
        ordered, flat = sampled[order], true_classes.reshape(-1)
        at = ordered.searchsorted(flat, "right") - 1
        hit = at >= 0
        hit[hit] = ordered[at[hit]] == flat[hit]
        hits = np.flatnonzero(hit)
        ids = order[at[hits]].astype(np.int64, copy=False)
        rows = (hits // max(columns, 1)).astype(np.int32)
        return rows, ids, np.full(hits.size, np.finfo(np.float32).min, np.float32)

    return compute
