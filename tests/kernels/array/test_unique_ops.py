"""Unique, ListDiff, Where and index arithmetic: known answers, messages, and sweeps against plain Python."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.array_support import (
    ELEMENT_TYPES,
    F32,
    I32,
    I64,
    assert_gives,
    assert_refuses,
    example_of,
    shapes,
)
from tests.kernels.harness import run_op, strings

X = I32([[1, 0, 1], [1, 0, 1]])
nan = np.nan
REAL_TYPES = [t for t in ELEMENT_TYPES if t not in (np.complex64, np.complex128)]


# ---- Unique


@pytest.mark.parametrize("dtype", REAL_TYPES)
@pytest.mark.parametrize("size", [0, 1, 7, 300])  # few elements and many take different paths
def test_unique_keeps_the_order_of_first_occurrence(dtype, size):
    x = example_of((size,), dtype)
    values = x.tolist()
    order = list(dict.fromkeys(values))
    y = np.array(order, dtype)
    idx = [order.index(value) for value in values]
    counts = [values.count(value) for value in order]
    assert_gives("Unique", [x], (y, I32(idx)))
    assert_gives("UniqueWithCounts", [x], (y, I64(idx), I64(counts)), out_idx="int64")
    assert_gives("UniqueV2", [x, I32([0])], (y, I32(idx)))
    assert_gives("UniqueWithCountsV2", [x, I64([])], (y, I32(idx), I32(counts)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("copies", [1, 100])
def test_nan_equals_nothing_and_zeros_are_equal(dtype, copies):
    x = np.array([nan, 0.0, -0.0] * copies, dtype)
    y, idx, counts = run_op("UniqueWithCounts", [x])
    assert len(y) == copies + 1
    assert idx[:3].tolist() == [0, 1, 1]
    assert counts[1] == 2 * copies
    assert counts[0] == 1
    rows, idx = run_op("UniqueV2", [np.stack([x, x], 1), I32([0])])
    assert len(rows) == copies + 1
    assert idx[:3].tolist() == [0, 1, 1]


@given(shapes(min_rank=1, max_rank=3), st.data())
def test_unique_along_an_axis(shape, data):
    x = example_of(shape, data.draw(st.sampled_from([np.bool_, np.float32, ml_dtypes.bfloat16, object])))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rows = np.moveaxis(x, axis, 0).tolist()
    firsts = [i for i, row in enumerate(rows) if row not in rows[:i]]
    idx = [[rows[i] for i in firsts].index(row) for row in rows]
    counts = [rows.count(rows[i]) for i in firsts]
    want = (np.take(x, I64(firsts), axis), I32(idx), I32(counts))
    assert_gives("UniqueWithCountsV2", [x, I32([axis])], want)
    assert_gives("UniqueV2", [x, I32([axis])], want[:2])


@pytest.mark.parametrize(
    ("x", "axis", "message"),
    [
        (X, [], "unique expects a 1D vector."),
        (X, [2], "axis has to be between [0, 2)"),
        (X, [0, 1], "axis does not support input tensors larger than 1 elements"),
        (X, 0, "axis expects a 1D vector."),
        (I32(3), [], "unique expects a 1D vector."),
        (I32(3), [0], "axis has to be between [0, 0)"),
    ],
)
def test_unique_refuses(x, axis, message):
    assert_refuses("UniqueV2", [x, I32(axis)], message)
    assert_refuses("UniqueWithCountsV2", [x, I32(axis)], message)


@pytest.mark.parametrize("op", ["Unique", "UniqueWithCounts"])
def test_unique_without_axis_takes_vectors(op):
    assert_refuses(op, [X], "unique expects a 1D vector.")


# ---- ListDiff


@pytest.mark.parametrize("dtype", [t for t in REAL_TYPES if t is not np.bool_])
@pytest.mark.parametrize("size", [0, 6, 300])
def test_list_diff(dtype, size):
    x, y = example_of((size,), dtype), example_of((2,), dtype, seed=1)
    kept = [i for i, value in enumerate(x.tolist()) if value not in y.tolist()]
    assert_gives("ListDiff", [x, y], (x[kept], I32(kept)))
    assert_gives("ListDiff", [x, y], (x[kept], I64(kept)), out_idx="int64")


@pytest.mark.parametrize("copies", [1, 100])
def test_list_diff_keeps_nans(copies):
    x = F32([nan, 0.0] * copies)
    want = np.arange(0, 2 * copies, 2, dtype=np.int32)
    assert_gives("ListDiff", [x, F32([nan, -0.0])], (F32([nan] * copies), want))


def test_list_diff_refuses():
    assert_refuses("ListDiff", [I32([[1]]), I32([2])], "x should be a 1D vector.")
    assert_refuses("ListDiff", [I32([1]), I32(2)], "y should be a 1D vector.")


# ---- Where


@given(shapes(min_rank=1), st.sampled_from([t for t in ELEMENT_TYPES if t is not object]))
def test_where_gives_the_indices_of_numpy(shape, dtype):
    x = example_of(shape, dtype)
    assert_gives("Where", [x], np.argwhere(x != 0).reshape(-1, len(shape)))


def test_where_corners():
    assert_gives("Where", [F32([nan, 0.0, -0.0])], I64([[0]]))
    assert_gives("Where", [np.ones((1,) * 8, bool)], I64([[0] * 8]))
    for shape in ((), (1,) * 9):
        assert_refuses("Where", [np.ones(shape, bool)], f"WhereOp : Unhandled input dimensions: {len(shape)}")


# ---- InvertPermutation and UnravelIndex


@pytest.mark.parametrize("make", [I32, I64])
@pytest.mark.parametrize("size", [0, 1, 5, 500])
def test_invert_permutation(size, make):
    x = make(np.random.default_rng(0).permutation(size))
    assert_gives("InvertPermutation", [x], make(np.argsort(x)))


@pytest.mark.parametrize("more", [0, 200])
@pytest.mark.parametrize(
    ("head", "message"),
    [
        ([0, 1, -1], "-1 is not between 0 and {n}"),
        ([1, 0, 1], "1 is duplicated in the input."),
        ([0, 1, 999], "999 is not between 0 and {n}"),
    ],
)
def test_invert_permutation_refuses(head, message, more):
    x = I32([*head, *range(3, 3 + more)])
    assert_refuses("InvertPermutation", [x], message.format(n=x.size))
    assert_refuses("InvertPermutation", [x[None]], "invert_permutation expects a 1D vector.")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_unravel_index_is_numpys(dims, data):
    make = data.draw(st.sampled_from([I32, I64]))
    positions = data.draw(st.lists(st.integers(0, int(np.prod(dims)) - 1), min_size=1, max_size=4))
    want = make(np.unravel_index(positions, dims))
    assert_gives("UnravelIndex", [make(positions), make(dims)], want)
    assert_gives("UnravelIndex", [make(positions[0]), make(dims)], want[:, 0])


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([42], [7, 6], "index is out of bound as with dims"),
        ([[1]], [7, 6], 'The indices can only be scalar or vector, got "[1,1]"'),
        ([1], [[7, 6]], 'The indices can only be 1-D, got "[1,2]"'),
        ([1], 3, 'The indices can only be 1-D, got "[]"'),
        ([1], [0, 3], "Input dims cannot contain a dim of zero, but dims contains zero at index 0"),
        ([], [2, 3], "received empty tensor indices: Tensor<type: int32 shape: [0] values: >"),
        ([0], [2, -3], "Input dims cannot be negative. Got dim = -3 at index 1"),
        ([0], [2**20, 2**20], "Input dims product is causing integer overflow: (1048576 1048576)"),
        ([0], [], "index is out of bound as with dims"),
    ],
)
def test_unravel_index_refuses(indices, dims, message):
    assert_refuses("UnravelIndex", [I32(indices), I32(dims)], message)


def test_unravel_index_rounds_towards_zero():
    assert_gives("UnravelIndex", [I32([-1, -8]), I32([7, 6])], I32([[0, -1], [-1, -2]]))


def test_unique_of_strings():
    assert_gives("Unique", [strings("b", "a", "b")], (strings("b", "a"), I32([0, 1, 0])))


def test_unique_of_rows_without_elements_is_one_row_at_once():
    rows, idx = run_op("UniqueV2", [np.zeros((3_000_000, 0), np.float32), I32([0])])
    assert rows.shape == (1, 0) and not idx.any() and idx.shape == (3_000_000,)
