"""Places in random permutations: TensorFlow's numbers, that they are permutations, refusals, shapes."""

from __future__ import annotations

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

SEED = np.uint32([1, 2, 3])

# Largest index, rounds, the first places.
KNOWN = [
    (0, 4, [0]),
    (1, 4, [1, 0]),
    (1, 8, [0, 1]),
    (2, 4, [2, 0, 1]),
    (9, 4, [2, 0, 6, 4, 8, 1, 7, 9, 5, 3]),
    (9, 8, [6, 9, 4, 1, 3, 2, 0, 5, 7, 8]),
    (20, 4, [19, 15, 6, 4, 8, 16, 13, 9, 17, 3, 1, 10, 7, 12, 14, 0, 11, 5, 18, 2, 20]),
    (100, 8, [21, 60, 28, 67, 93, 2, 58, 80, 39, 34, 50, 72]),
    (1000, 4, [724, 816, 156, 480, 107, 53, 454, 530, 377, 909, 722, 753]),
]


@pytest.mark.parametrize("op", ops_of("random.random_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(("largest", "rounds", "places"), KNOWN)
def test_known_places(largest, rounds, places):
    indices = np.arange(len(places), dtype=np.int32)
    assert run_op("RandomIndexShuffle", [indices, SEED, np.int32(largest)], rounds=rounds).tolist() == places
    assert run_op("RandomIndexShuffle", [indices[-1], SEED, np.int32(largest)], rounds=rounds) == places[-1]


def test_places_in_a_large_range():
    got = run_op("RandomIndexShuffle", [np.arange(5), np.int64([5, 6, -7]), np.int64(10**12)])
    assert got.tolist() == [874378855470, 572684177734, 372405614393, 176756915251, 780630271459]


@pytest.mark.parametrize("largest", [1, 70_000, 300_000])
def test_places_are_a_permutation(largest):
    got = run_op("RandomIndexShuffle", [np.arange(largest + 1), SEED, np.int64(largest)])
    np.testing.assert_array_equal(np.sort(got), np.arange(largest + 1))


def test_seeds_and_ranges_may_differ_by_place():
    seeds, largest = np.int32([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), np.int32([9, 5, 7])
    assert run_op("RandomIndexShuffle", [np.int32([0, 1, 2]), seeds, largest]).tolist() == [2, 1, 3]
    got = run_op("RandomIndexShuffle", [np.int32(3), np.int32([1, 2, 3]), np.int32([9, 8])])
    assert got.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": np.int32([1, 2])}, "Seed must be a vector of size [3] or a matrix of size [1, 3] but got [2]."),
        ({"seed": np.int32([[1, 2]])}, "Seed must be a vector of size [3] or a matrix of size [1, 3] but got [1,2]."),
        ({"index": np.int32(12)}, "max_index must be >= index, but 9 < 12"),
        ({"index": np.int32(-1)}, "index must be >= 0 but was -1"),
        ({"max_index": np.int32(-1)}, "max_index must be >= 0 but was -1"),
        ({"index": np.int32([[1]])}, "index must be a scalar or vector, not [1,1]"),
        ({"index": np.int32([])}, "index must have 1 or 1 rows, but has 0"),
        ({"index": np.int32([1, 2]), "max_index": np.int32([9] * 3)}, "index must have 1 or 3 rows, but has 2"),
        ({"rounds": 2}, "rounds must be even and in [4, 1000], not 2"),
        ({"rounds": 5}, "rounds must be even and in [4, 1000], not 5"),
        ({"rounds": 10**9}, "rounds must be even and in [4, 1000], not 1000000000"),
    ],
)
def test_refused(changed, message):
    inputs = {"index": np.int32(3), "seed": SEED.view(np.int32), "max_index": np.int32(9)}
    attrs = {name: value for name, value in changed.items() if name not in inputs}
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op("RandomIndexShuffle", list({**inputs, **changed}.values())[:3], **attrs)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("index", "seed", "largest", "want"),
    [
        ([], [3], [], []),
        ([], [3], [3], [3]),
        ([], [4, 3], [], [4]),
        ([], None, [], None),
        ([], None, [3], [3]),
        ([None], [3], [], [None]),
        ([None], [4, 3], [], [4]),
        ([3], [None, 3], [], [3]),
        (None, [3], [], None),
        (None, [None, 3], [], [None]),
    ],
)
def test_static_shape(index, seed, largest, want):
    with aexec.Graph():
        inputs = [ops.placeholder(dtypes.int32, PartialTensorShape(shape)) for shape in (index, seed, largest)]
        assert ops.random_index_shuffle(*inputs).shape == PartialTensorShape(want)


def test_static_shapes_that_disagree_are_refused():
    with aexec.Graph():
        inputs = [ops.placeholder(dtypes.int32, PartialTensorShape(shape)) for shape in ([3], [4, 3], [])]
        with pytest.raises((ValueError, errors.InvalidArgumentError), match="must be equal"):
            ops.random_index_shuffle(*inputs)
