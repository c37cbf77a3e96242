"""Poisson and binomial numbers: TensorFlow's numbers, messages, and moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.kernels.random import generators
from tests.kernels.answer_tables import INVALID, SHAPE, VALUES, known_answers, refused
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import build, run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "StatelessRandomBinomial",
        [I32([2, 3]), SHAPE, F32([5, 5, 5]), F32([np.nan, -1, 2])],
        {'dtype': 'float32'},
        [F32([[np.nan, 0, 5], [np.nan, 0, 5]])],
    ),
    ("StatelessRandomPoisson", [I32([3, 2]), SHAPE, F32([0, -1])], {'dtype': 'int32'}, [I32([[0, 0], [0, 0], [0, 0]])]),
    (
        "StatelessRandomBinomial",
        [I32([2, 3]), SHAPE, np.array([5, 5, 5], np.float64), np.array([np.nan, -1, 2], np.float64)],
        {'dtype': 'float32'},
        [F32([[np.nan, 0, 5], [np.nan, 0, 5]])],
    ),
    (
        "StatelessRandomPoisson",
        [I32([3, 2]), SHAPE, np.array([0, -1], np.float64)],
        {'dtype': 'int32'},
        [I32([[0, 0], [0, 0], [0, 0]])],
    ),
    (
        "StatelessRandomBinomial",
        [I32([2, 3]), SHAPE, np.array([5, 5, 5], np.float16), np.array([np.nan, -1, 2], np.float16)],
        {'dtype': 'float32'},
        [F32([[np.nan, 0, 5], [np.nan, 0, 5]])],
    ),
    (
        "StatelessRandomPoisson",
        [I32([3, 2]), SHAPE, np.array([0, -1], np.float16)],
        {'dtype': 'int32'},
        [I32([[0, 0], [0, 0], [0, 0]])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "StatelessRandomBinomial",
        [I32([4]), SHAPE, VALUES, F32([0.1, 0.2])],
        {'dtype': 'int32'},
        "counts and probs must have compatible batch dimensions: [3] vs. [2]",
        INVALID,
    ),
    (
        "StatelessRandomBinomial",
        [I32([4]), SHAPE, VALUES, F32([0.1])],
        {'dtype': 'int32'},
        "Shape passed in must end with broadcasted shape.",
        INVALID,
    ),
    (
        "StatelessRandomBinomial",
        [I32(4), SHAPE, F32(1), F32(0.1)],
        {'dtype': 'int32'},
        "Input shape should be a vector, got shape: []",
        INVALID,
    ),
    (
        "StatelessRandomPoisson",
        [I32([4]), SHAPE, VALUES],
        {'dtype': 'int32'},
        "Shape passed in must end with broadcasted shape.",
        INVALID,
    ),
    (
        "StatelessRandomPoisson",
        [I32(4), SHAPE, F32(1)],
        {'dtype': 'int32'},
        "shape must be a vector of {int32,int64}, got shape []",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


@pytest.mark.parametrize("rate", [0.5, 9.0, 10.0, 1000.0])
def test_poisson_has_the_moments_of_its_rate(rate):
    got = run_op("StatelessRandomPoisson", [I32([4000]), I64([1, 2]), F32(rate)], dtype="int64")
    assert abs(got.mean() - rate) < 5 * np.sqrt(rate / 4000)
    assert abs(got.var() - rate) < rate * 0.15


@pytest.mark.parametrize(("count", "prob"), [(20, 0.1), (20, 0.9), (1000, 0.3), (1000, 0.7)])
def test_binomial_has_its_moments(count, prob):
    inputs = [I32([4000]), I64([1, 2]), F32(count), F32(prob)]
    got = run_op("StatelessRandomBinomial", inputs, dtype="int32")
    assert got.min() >= 0
    assert got.max() <= count
    assert abs(got.mean() - count * prob) < 5 * np.sqrt(count * prob * (1 - prob) / 4000)


@pytest.mark.parametrize("op", ["StatelessRandomBinomial", "StatelessRandomPoisson"])
def test_samples_are_the_same_however_many_are_drawn_together(op, monkeypatch):
    parameters = [F32([20, 500]), F32([[0.1], [0.7], [1.5]])] if op.endswith("Binomial") else [F32([[2, 40]] * 3)]
    inputs = [I32([50, 3, 2]), I64([1, 2]), *parameters]
    whole = run_op(op, inputs, dtype="int64")
    monkeypatch.setattr(generators, "_SAMPLES", 7)
    parts = run_op(op, inputs, dtype="int64")
    assert np.array_equal(whole, parts)


def test_rates_that_are_no_numbers():
    rates = np.array([np.nan, np.inf, -1, 0])
    got = run_op("StatelessRandomPoisson", [I32([4]), I64([1, 2]), rates], dtype="float64")
    np.testing.assert_array_equal(got, [np.nan, np.inf, 0, 0])
    got = run_op("StatelessRandomPoisson", [I32([4]), I64([1, 2]), rates], dtype="int32")
    assert got.tolist() == [0, 2**31 - 1, 0, 0]


def test_rate_beyond_the_type_is_refused():
    with pytest.raises(INVALID, match="rate is too large for the type of the output"):
        run_op("StatelessRandomPoisson", [I32([1]), I64([1, 2]), np.array([1e12])], dtype="int32")


def test_both_generations_of_random_poisson_draw_the_same():
    rates, seeds = F32([0.5, 20]), {"seed": 1, "seed2": 2}
    newer = run_op("RandomPoissonV2", [I32([50]), rates], dtype="float32", **seeds)
    np.testing.assert_array_equal(run_op("RandomPoisson", [I32([50]), rates], **seeds), newer, strict=True)


def test_random_poisson_goes_on_with_each_run():
    built, arrays, _ = build("RandomPoissonV2", [I32([8]), F32([3, 30])], seed=1, seed2=2, dtype="int32")
    first, second = built.compute(*arrays), built.compute(*arrays)
    assert first.shape == second.shape == (8, 2)
    assert (first != second).any()
