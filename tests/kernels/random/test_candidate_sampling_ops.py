"""Candidate samplers: TensorFlow's numbers, messages, and properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.kernels.random import range_sampler
from tests.kernels.answer_tables import INVALID, known_answers, refused
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import build, run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "UniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 8, 'seed': 3, 'seed2': 4},
        [I64([1, 7, 5, 2, 4, 6]), F32([[0.8237599], [0.8237599]]), F32([0.8237599, 0.8237599, 0.8237599, 0.8237599, 0.8237599, 0.8237599])],  # noqa: E501
    ),
    (
        "LogUniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 8, 'seed': 3, 'seed2': 4},
        [I64([1, 2, 5, 0, 4, 6]), F32([[0.9845349], [0.55073154]]), F32([0.89396286, 0.7863988, 0.55073154, 0.9845349, 0.6143648, 0.49826142])],  # noqa: E501
    ),
    (
        "LearnedUnigramCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 8, 'seed': 3, 'seed2': 4},
        [I64([1, 4, 2, 7, 5, 3]), F32([[0.79858273], [0.79858273]]), F32([0.79858273, 0.79858273, 0.79858273, 0.79858273, 0.79858273, 0.79858273])],  # noqa: E501
    ),
    (
        "UniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 1000, 'seed': 3, 'seed2': 4},
        [I64([121, 865, 559, 329, 577, 293]), F32([[0.006], [0.006]]), F32([0.006, 0.006, 0.006, 0.006, 0.006, 0.006])],
    ),
    (
        "LogUniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 1000, 'seed': 3, 'seed2': 4},
        [I64([13, 56, 7, 392, 0, 12]), F32([[0.522925], [0.14611211]]), F32([0.06784434, 0.01748892, 0.113405526, 0.002572021, 0.522925, 0.072713174])],  # noqa: E501
    ),
    (
        "LearnedUnigramCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 1000, 'seed': 3, 'seed2': 4},
        [I64([961, 460, 441, 194, 959, 100]), F32([[0.006], [0.006]]), F32([0.006, 0.006, 0.006, 0.006, 0.006, 0.006])],
    ),
    (
        "UniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 8589934592, 'seed': 3, 'seed2': 4},
        [I64([1995848961, 192503441, 3326414959, 7399659209, 6200308681, 4633757037]), F32([[6.9849193e-10], [6.9849193e-10]]), F32([6.9849193e-10, 6.9849193e-10, 6.9849193e-10, 6.9849193e-10, 6.9849193e-10, 6.9849193e-10])],  # noqa: E501
    ),
    (
        "LogUniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 8589934592, 'seed': 3, 'seed2': 4},
        [I64([7466, 656486, 1392, 391100548, 4, 7]), F32([[0.18181819], [0.040434986]]), F32([3.5126643e-05, 3.9956308e-07, 0.00018823697, 6.706924e-10, 0.047824435, 0.030895455])],  # noqa: E501
    ),
    (
        "FixedUnigramCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 5, 'unique': True, 'range_max': 8, 'seed': 3, 'seed2': 4, 'unigrams': [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 'num_reserved_ids': 1, 'distortion': 0.75},  # noqa: E501
        [I64([4, 7, 1, 5, 3]), F32([[0], [0.68127507]]), F32([0.61418074, 0.7804913, 0.2736508, 0.68127507, 0.5301529])],  # noqa: E501
    ),
    (
        "UniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 8, 'seed': 3, 'seed2': 4},
        [I64([1, 1, 7, 1, 1, 5]), F32([[0.75], [0.75]]), F32([0.75, 0.75, 0.75, 0.75, 0.75, 0.75])],
    ),
    (
        "LogUniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 8, 'seed': 3, 'seed2': 4},
        [I64([1, 2, 1, 5, 0, 0]), F32([[1.8927894], [0.420942]]), F32([1.1072106, 0.7855785, 1.1072106, 0.420942, 1.8927894, 1.8927894])],  # noqa: E501
    ),
    (
        "LearnedUnigramCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 8, 'seed': 3, 'seed2': 4},
        [I64([1, 4, 1, 2, 7, 4]), F32([[0.75], [0.75]]), F32([0.75, 0.75, 0.75, 0.75, 0.75, 0.75])],
    ),
    (
        "UniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 1000, 'seed': 3, 'seed2': 4},
        [I64([121, 865, 559, 329, 577, 293]), F32([[0.006], [0.006]]), F32([0.006, 0.006, 0.006, 0.006, 0.006, 0.006])],
    ),
    (
        "LogUniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 1000, 'seed': 3, 'seed2': 4},
        [I64([13, 56, 7, 392, 0, 0]), F32([[0.60197294], [0.13387421]]), F32([0.059917778, 0.015104091, 0.10229024, 0.0022070236, 0.60197294, 0.60197294])],  # noqa: E501
    ),
    (
        "LearnedUnigramCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 1000, 'seed': 3, 'seed2': 4},
        [I64([961, 460, 441, 194, 959, 100]), F32([[0.006], [0.006]]), F32([0.006, 0.006, 0.006, 0.006, 0.006, 0.006])],
    ),
    (
        "UniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 8589934592, 'seed': 3, 'seed2': 4},
        [I64([1995848961, 192503441, 3326414959, 7399659209, 6200308681, 4633757037]), F32([[6.9849193e-10], [6.9849193e-10]]), F32([6.9849193e-10, 6.9849193e-10, 6.9849193e-10, 6.9849193e-10, 6.9849193e-10, 6.9849193e-10])],  # noqa: E501
    ),
    (
        "LogUniformCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': False, 'range_max': 8589934592, 'seed': 3, 'seed2': 4},
        [I64([7466, 656486, 1392, 391100548, 4, 7]), F32([[0.18181819], [0.040434986]]), F32([3.5126643e-05, 3.9956308e-07, 0.00018823697, 6.706924e-10, 0.047824435, 0.030895455])],  # noqa: E501
    ),
    (
        "FixedUnigramCandidateSampler",
        [I64([[0], [5]])],
        {'num_true': 1, 'num_sampled': 5, 'unique': False, 'range_max': 8, 'seed': 3, 'seed2': 4, 'unigrams': [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 'num_reserved_ids': 1, 'distortion': 0.75},  # noqa: E501
        [I64([4, 7, 4, 1, 5]), F32([[0], [0.86756533]]), F32([0.7338709, 1.1166015, 0.7338709, 0.25946257, 0.86756533])],  # noqa: E501
    ),
    (
        "AllCandidateSampler",
        [I64([[0], [2]])],
        {'num_true': 1, 'num_sampled': 3, 'unique': True, 'seed': 3, 'seed2': 4},
        [I64([0, 1, 2]), F32([[1], [1]]), F32([1, 1, 1])],
    ),
    (
        "ComputeAccidentalHits",
        [I64([[0, 3], [2, 1], [9, 9]]), I64([3, 9, 1, 3])],
        {'num_true': 2},
        [I32([0, 1, 2, 2]), I64([3, 2, 1, 1]), F32([-3.4028235e+38, -3.4028235e+38, -3.4028235e+38, -3.4028235e+38])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "UniformCandidateSampler",
        [I64([0, 5])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 9},
        "true_classes must be a matrix",
        INVALID,
    ),
    (
        "UniformCandidateSampler",
        [I64([[0, 5]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 9},
        "true_classes must have num_true columns, expected: 2 was: 1",
        INVALID,
    ),
    (
        "UniformCandidateSampler",
        [I64([[9]])],
        {'num_true': 1, 'num_sampled': 6, 'unique': True, 'range_max': 9},
        "`true_candidate` out of range [0, 9), received 9",
        INVALID,
    ),
    (
        "UniformCandidateSampler",
        [I64([[0]])],
        {'num_true': 1, 'num_sampled': 16, 'unique': True, 'range_max': 9},
        "Sampler's range is too small.",
        INVALID,
    ),
    (
        "FixedUnigramCandidateSampler",
        [I64([[0]])],
        {'num_true': 1, 'num_sampled': 1, 'unique': True, 'range_max': 9, 'unigrams': [1.0]},
        "range is 9 must be equal to weights size  1",
        INVALID,
    ),
    (
        "FixedUnigramCandidateSampler",
        [I64([[0]])],
        {'num_true': 1, 'num_sampled': 1, 'unique': True, 'range_max': 9},
        "Must provide either vocab_file or unigrams.",
        INVALID,
    ),
    (
        "FixedUnigramCandidateSampler",
        [I64([[0]])],
        {'num_true': 1, 'num_sampled': 1, 'unique': True, 'range_max': 9, 'vocab_file': '/nonexistent'},
        "/nonexistent; No such file or directory",
        errors.NotFoundError,
    ),
    (
        "FixedUnigramCandidateSampler",
        [I64([[0]])],
        {'num_true': 1, 'num_sampled': 1, 'unique': True, 'range_max': 9, 'vocab_file': '/nonexistent', 'unigrams': [1.0]},  # noqa: E501
        "Must only provide one of vocab_file and unigrams.",
        INVALID,
    ),
    (
        "ComputeAccidentalHits",
        [I64([[0, 3]]), I64([3, 9, 1, 3])],
        {'num_true': 1},
        "true_candidates must be a batch_size * num_true matrix",
        INVALID,
    ),
    (
        "ComputeAccidentalHits",
        [I64([[0]]), I64([[3, 9, 1, 3]])],
        {'num_true': 1},
        "sampled_candidates must be a vector, which is typically an output from CandidateSampler",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


def sample(op, true, *, seed=1, **attrs):
    attrs = {"num_true": 1, "seed": seed, "seed2": 2, **attrs}
    return run_op(op, [I64(true).reshape(-1, 1)], **attrs)


@pytest.mark.parametrize(
    "op", ["UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler"]
)
def test_unique_candidates_are_different(op):
    candidates, true_expected, expected = sample(op, [0, 3], range_max=40, num_sampled=35, unique=True)
    assert len(set(candidates.tolist())) == 35
    assert candidates.min() >= 0
    assert candidates.max() < 40
    assert ((expected > 0) & (expected <= 1)).all()
    assert true_expected.shape == (2, 1)


def test_learned_unigrams_come_more_often():
    attrs = {"num_true": 1, "num_sampled": 400, "unique": False, "range_max": 10, "seed": 1, "seed2": 2}
    built, arrays, _ = build("LearnedUnigramCandidateSampler", [np.full((500, 1), 7, np.int64)], **attrs)
    first, after = built.compute(*arrays), built.compute(*arrays)
    assert (first[0] == 7).sum() < 100
    assert (after[0] == 7).sum() > 350
    np.testing.assert_allclose(after[1], 400 * 501 / 510, rtol=1e-6)


def test_unigrams_of_a_file(tmp_path):
    path = tmp_path / "vocabulary"
    path.write_text("a,0\nb,5\nc,0.0\nd,15\n")
    attrs = {"range_max": 4, "num_sampled": 400, "unique": False}
    candidates, expected, _ = sample("FixedUnigramCandidateSampler", [1, 3, 0], vocab_file=str(path), **attrs)
    assert set(candidates.tolist()) == {1, 3}
    assert expected.ravel().tolist() == [100, 300, 0]
    path.write_text("a,b\n")
    with pytest.raises(INVALID, match="Wrong vocabulary format at line: a,b"):
        sample("FixedUnigramCandidateSampler", [0], vocab_file=str(path), **attrs)
    with pytest.raises(errors.NotFoundError):
        sample("FixedUnigramCandidateSampler", [0], vocab_file=str(tmp_path / "none"), **attrs)


def test_shards_of_a_vocabulary():
    attrs = {"num_sampled": 100, "unique": False, "unigrams": [1.0, 2.0, 3.0, 4.0], "num_shards": 2}
    candidates, _, _ = sample("FixedUnigramCandidateSampler", [0], range_max=2, shard=1, **attrs)
    assert set(candidates.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"unigrams": [1.0, 0.0, 0.0], "num_sampled": 2, "unique": True}, "cannot sample 2 different classes"),
        ({"unigrams": [0.0, 0.0, 0.0]}, "unigrams must be finite"),
        ({"unigrams": [1.0, -1.0, 0.0]}, "unigrams must be finite"),
        ({"unigrams": [1.0], "num_reserved_ids": 2**40}, "num_reserved_ids must be in"),
    ],
)
def test_unigrams_that_cannot_be_drawn_from_are_refused(attrs, message):
    with pytest.raises(INVALID, match=message):
        sample("FixedUnigramCandidateSampler", [0], **{"range_max": 3, "num_sampled": 1, "unique": False, **attrs})


def test_range_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr(range_sampler, "available_memory", lambda: 100)
    with pytest.raises(errors.ResourceExhaustedError, match="no memory for the counts of 10 classes"):
        sample("LearnedUnigramCandidateSampler", [0], range_max=10, num_sampled=1, unique=False)
    with pytest.raises(INVALID, match="range_max must be less than 2147483647 for unigram samplers"):
        sample("LearnedUnigramCandidateSampler", [0], range_max=2**40, num_sampled=1, unique=False)
