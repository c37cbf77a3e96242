"""Nearest centres: known answers, distances computed one by one, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.kernels.math import clustering_ops
from tests.kernels.answer_tables import INVALID, known_answers, refused
from tests.kernels.array_support import F32, I64
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

POINTS, CENTERS = F32([[0, 0], [5, 5], [1, 0]]), F32([[4, 4], [0, 1], [2, 0]])

# Op, inputs, attrs, outputs.
KNOWN: list[Any] = [
    ("NearestNeighbors", [POINTS, CENTERS, I64(1)], {}, [I64([[1], [0], [2]]), F32([[1], [2], [1]])]),
    (
        "NearestNeighbors",
        [POINTS, CENTERS, I64(9)],
        {},
        [I64([[1, 2, 0], [0, 2, 1], [2, 1, 0]]), F32([[1, 4, 32], [2, 34, 41], [1, 2, 25]])],
    ),
    ("NearestNeighbors", [POINTS, CENTERS[:0], I64(2)], {}, [np.zeros((3, 0), np.int64), np.zeros((3, 0), np.float32)]),
    ("NearestNeighbors", [POINTS[:1], F32([[1, 0], [0, 1]]), I64(2)], {}, [I64([[0, 1]]), F32([[1, 1]])]),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    ("NearestNeighbors", [POINTS[0], CENTERS, I64(1)], {}, "Input points should be a matrix.", INVALID),
    ("NearestNeighbors", [POINTS, CENTERS[0], I64(1)], {}, "Input centers should be a matrix.", INVALID),
    ("NearestNeighbors", [POINTS, CENTERS, I64([1])], {}, "Input k should be a scalar.", INVALID),
    ("NearestNeighbors", [POINTS[:0], CENTERS, I64(1)], {}, "Expected points.rows() > 0.", INVALID),
    (
        "NearestNeighbors",
        [POINTS, CENTERS[:, :1], I64(1)],
        {},
        "Expected point_dimensions == center_dimensions: 2 vs 1.",
        INVALID,
    ),
    ("NearestNeighbors", [POINTS, CENTERS, I64(-1)], {}, "Expected k >= 0, got -1", INVALID),
]

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


@pytest.mark.parametrize("op", ops_of("math.clustering_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 14), st.integers(0, 2**32 - 1))
def test_neighbors_are_the_least_distances(n, m, k, seed):
    """Whole coordinates, so that distances are exact; many are equal, of which the first counts."""
    random = np.random.default_rng(seed)
    points, centers = (random.integers(-3, 4, (count, 2)).astype(np.float32) for count in (n, m))
    indices, distances = run_op("NearestNeighbors", [points, centers, np.int64(k)])
    squares = ((points[:, None] - centers) ** 2).sum(axis=2)
    want = np.argsort(squares, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(distances, np.take_along_axis(squares, want, axis=1))


def test_many_points_are_taken_in_blocks(monkeypatch):
    whole = run_op("NearestNeighbors", [POINTS, CENTERS, I64(2)])
    monkeypatch.setattr(clustering_ops, "_BLOCK", 4)
    for a, b in zip(run_op("NearestNeighbors", [POINTS, CENTERS, I64(2)]), whole, strict=True):
        np.testing.assert_array_equal(a, b)
