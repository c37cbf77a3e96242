"""Poisson and binomial numbers: TensorFlow's numbers, messages, and moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.answer_tables import INVALID, SHAPE, VALUES, known_answers, refused
from tests.kernels.array_support import F32, I32

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
