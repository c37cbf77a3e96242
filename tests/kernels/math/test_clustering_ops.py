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

ROWS = F32([[0, 0], [1, 0], [10, 0], [11, 1], [20, 5], [0, 9], [4, 4], [5, 5]])

# Seed, retries, samples.
SAMPLED: list[Any] = [
    (0, 0, [[0, 9], [20, 5], [0, 0]]),
    (0, 1, [[0, 9], [11, 1], [1, 0]]),
    (0, 3, [[11, 1], [5, 5], [20, 5]]),
    (1, 0, [[0, 0], [0, 9], [11, 1]]),
    (1, 1, [[0, 0], [10, 0], [5, 5]]),
    (1, -1, [[5, 5], [20, 5], [11, 1]]),
    (2, 0, [[0, 9], [10, 0], [20, 5]]),
    (77, 0, [[5, 5], [0, 9], [20, 5]]),
    (77, 1, [[5, 5], [20, 5], [11, 1]]),
]
DISTANCES = F32([1, 2, 3, 4, 0, 6, 7, 0.5, 9, 1])
KNOWN += [
    ("KmeansPlusPlusInitialization", [ROWS, I64(3), I64(seed), I64(retries)], {}, [F32(samples)])
    for seed, retries, samples in SAMPLED
]
KNOWN += [
    ("KmeansPlusPlusInitialization", [ROWS[:7], I64(3), I64(seed), I64(0)], {}, [F32(samples)])
    for seed, samples in (
        (5, [[11, 1], [0, 9], [1, 0]]),
        (6, [[4, 4], [1, 0], [10, 0]]),
        (7, [[10, 0], [20, 5], [0, 9]]),
    )
]
KNOWN += [
    ("KmeansPlusPlusInitialization", [ROWS[:1, :0], I64(1), I64(1), I64(1)], {}, [np.zeros((1, 0), np.float32)]),
    *(("KMC2ChainInitialization", [DISTANCES, I64(seed)], {}, [I64(8)]) for seed in range(7)),
    ("KMC2ChainInitialization", [DISTANCES, I64(7)], {}, [I64(9)]),
    ("KMC2ChainInitialization", [F32([0, 0, 0]), I64(0)], {}, [I64(0)]),
    ("KMC2ChainInitialization", [F32([0, 0, 1]), I64(0)], {}, [I64(2)]),
    ("KMC2ChainInitialization", [F32([5]), I64(0)], {}, [I64(0)]),
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
    *(
        ("KmeansPlusPlusInitialization", [points, I64(count), I64(1), I64(1)], {}, message, INVALID)
        for points, count, message in (
            (POINTS[0], 1, "Input points should be a matrix."),
            (POINTS, 4, "Expected num_to_sample <= points.rows(). 4 vs 3."),
            (POINTS, 0, "Expected num_to_sample > 0."),
            (POINTS[:0], 1, "Expected points.rows() > 0."),
            (POINTS, [1], "Input num_to_sample should be a scalar."),
        )
    ),
    ("KMC2ChainInitialization", [F32([]), I64(0)], {}, "Expected distances_tensor.size() > 0.", INVALID),
    ("KMC2ChainInitialization", [F32(3), I64(0)], {}, "Input distances should be a vector.", INVALID),
    ("KMC2ChainInitialization", [F32([3]), I64([0])], {}, "Input seed should be a scalar.", INVALID),
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


def test_samples_of_equal_points_are_all_of_them():
    """No distance is positive, so points are drawn uniformly until all are taken."""
    points = np.ones((5, 2), np.float32)
    samples = run_op("KmeansPlusPlusInitialization", [points, I64(5), I64(3), I64(2)])
    np.testing.assert_array_equal(samples, points)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_samples_of_unbounded_points_are_different(odd):
    """All distances become infinite or NaN; still each point is sampled once."""
    points = np.float32([[odd], [1], [2], [3]])
    samples = run_op("KmeansPlusPlusInitialization", [points, I64(4), I64(3), I64(0)])
    np.testing.assert_array_equal(np.sort(samples[:, 0]), np.sort(points[:, 0]))


def test_long_chain_is_taken_in_parts(monkeypatch):
    monkeypatch.setattr(clustering_ops, "_STEPS", 4)
    for seed in range(8):
        assert run_op("KMC2ChainInitialization", [DISTANCES, I64(seed)]) == (9 if seed == 7 else 8)
