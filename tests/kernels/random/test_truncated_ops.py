"""Bounded normal numbers: TensorFlow's numbers, messages, and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.answer_tables import INVALID, SHAPE, refused
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import run_op

# fmt: off
# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "StatelessParameterizedTruncatedNormal",
        [I32([5]), SHAPE, F32(0), F32(-1), F32(0), F32(1)],
        {},
        "Invalid parameters",
        INVALID,
    ),
    (
        "StatelessParameterizedTruncatedNormal",
        [I32([5]), SHAPE, F32([0, 1]), F32(1), F32(0), F32(1)],
        {},
        "Shape passed in must end with broadcasted shape.",
        INVALID,
    ),
    (
        "StatelessParameterizedTruncatedNormal",
        [I32([5]), SHAPE, F32([0, 1]), F32([1, 1, 1]), F32(0), F32(1)],
        {},
        "means, stddevs, minvals, maxvals must have compatible batch dimensions: [2] vs. [3] vs. [] vs. []",
        INVALID,
    ),
    (
        "StatelessParameterizedTruncatedNormal",
        [I32([[5]]), SHAPE, F32(0), F32(1), F32(0), F32(1)],
        {},
        "Input shape should be a vector, got shape: [1,1]",
        INVALID,
    ),
    (
        "StatelessParameterizedTruncatedNormal",
        [I32([5]), I64([3, 4, 5]), F32(0), F32(1), F32(0), F32(1)],
        {},
        "seed must have shape [2], not [3]",
        INVALID,
    ),
    (
        "ParameterizedTruncatedNormal",
        [I32([5]), F32([0, 1]), F32(1), F32(0), F32(1)],
        {},
        "Input means should have length 1 or shape[0], got shape: [2]",
        INVALID,
    ),
    (
        "ParameterizedTruncatedNormal",
        [I32([5]), F32([[0]]), F32(1), F32(0), F32(1)],
        {},
        "Input means should be a scalar or vector, got shape: [1,1]",
        INVALID,
    ),
    (
        "ParameterizedTruncatedNormal",
        [I32([]), F32(0), F32(1), F32(0), F32(1)],
        {},
        "Shape tensor must not be empty, got Tensor<type: int32 shape: [0] values: >",
        INVALID,
    ),
    (
        "ParameterizedTruncatedNormal",
        [I32([[2]]), F32(0), F32(1), F32(0), F32(1)],
        {},
        "Input shape should be a vector, got shape: [1,1]",
        INVALID,
    ),
]
# fmt: on

test_refused = refused(REFUSED)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("mean", "deviation", "low", "high"),
    [(0, 1, -2, 2), (5, 2, -1, 2), (0, 1, 3, np.inf), (0, 1, -np.inf, -4), (0, 1, 0.5, 0.6), (1, 0.5, 1, 9)],
)
def test_numbers_are_between_the_bounds(dtype, mean, deviation, low, high):
    parameters = [np.array(value, dtype) for value in (mean, deviation, low, high)]
    got = run_op("StatelessParameterizedTruncatedNormal", [I32([500]), I64([1, 2]), *parameters])
    assert got.dtype == dtype
    assert ((got >= parameters[2]) & (got <= parameters[3])).all()
    assert len(np.unique(got)) > 50
    again = run_op("StatelessParameterizedTruncatedNormal", [I32([500]), I64([1, 2]), *parameters])
    assert (again == got).all()


def test_each_batch_has_its_own_parameters():
    inputs = [I32([3, 200]), F32([0, 10, 20]), F32([1]), F32([-1, 9, 19]), F32([1, 11, 21])]
    got = run_op("ParameterizedTruncatedNormal", inputs, seed=1, seed2=2)
    assert np.allclose(got.mean(axis=1), [0, 10, 20], atol=0.2)
    got = run_op("ParameterizedTruncatedNormal", [I32([0, 3]), *[F32([1])] * 4], seed=1, seed2=2)
    assert got.shape == (0, 3)
