"""Bounded normal numbers: TensorFlow's numbers, messages, and bounds."""

from __future__ import annotations

from typing import Any

from tests.kernels.answer_tables import INVALID, SHAPE, refused
from tests.kernels.array_support import F32, I32, I64

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
