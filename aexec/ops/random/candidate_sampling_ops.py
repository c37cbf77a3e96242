"""Sampling of classes for sampled losses."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.random import candidate_sampling_shapes as shapes

register_op(
    "AllCandidateSampler(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, "
    "sampled_expected_count: float",
    "num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "seed: int = 0", "seed2: int = 0", stateful=True,
    shape_fn=shapes.candidate_sampler,
)
register_op(
    "ComputeAccidentalHits(true_classes: int64, sampled_candidates: int64) -> indices: int32, ids: int64, weights: "
    "float",
    "num_true: int", "seed: int = 0", "seed2: int = 0", shape_fn=shapes.accidental_hits,
)
register_op(
    "FixedUnigramCandidateSampler(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, "
    "sampled_expected_count: float",
    "num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "range_max: int >= 1", "vocab_file: string = ''",
    "distortion: float = 1.0", "num_reserved_ids: int = 0", "num_shards: int >= 1 = 1", "shard: int >= 0 = 0",
    "unigrams: list(float) = []", "seed: int = 0", "seed2: int = 0", stateful=True, shape_fn=shapes.candidate_sampler,
)
register_op(
    "LearnedUnigramCandidateSampler(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, "
    "sampled_expected_count: float",
    "num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "range_max: int >= 1", "seed: int = 0",
    "seed2: int = 0", stateful=True, shape_fn=shapes.candidate_sampler,
)
register_op(
    "LogUniformCandidateSampler(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, "
    "sampled_expected_count: float",
    "num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "range_max: int >= 1", "seed: int = 0",
    "seed2: int = 0", stateful=True, shape_fn=shapes.candidate_sampler,
)
register_op(
    "ThreadUnsafeUnigramCandidateSampler(true_classes: int64) -> sampled_candidates: int64, true_expected_count: "
    "float, sampled_expected_count: float",
    "num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "range_max: int >= 1", "seed: int = 0",
    "seed2: int = 0", stateful=True, shape_fn=shapes.candidate_sampler,
)
register_op(
    "UniformCandidateSampler(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, "
    "sampled_expected_count: float",
    "num_true: int >= 1", "num_sampled: int >= 1", "unique: bool", "range_max: int >= 1", "seed: int = 0",
    "seed2: int = 0", stateful=True, shape_fn=shapes.candidate_sampler,
)
