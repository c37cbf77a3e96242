"""Reverse, ReverseSequence, Roll and the row updates: known answers, messages, and NumPy on random shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses, example_of, shapes
from tests.kernels.harness import strings

X = F32([[0, 1, 2], [3, 4, 5]])
CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
DTYPES = st.sampled_from([np.float32, np.int64, np.bool_, ml_dtypes.bfloat16, object])


@given(shapes(), DTYPES, st.data())
def test_reverse_is_numpys(shape, dtype, data):
    x = example_of(shape, dtype)
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True)) if shape else []
    want = np.flip(x, axes) if shape else x
    assert_gives("Reverse", [x, np.array([i in axes for i in range(len(shape))], bool)], want)
    assert_gives("ReverseV2", [x, I32(axes)], want)
    assert_gives("ReverseV2", [x, I64([axis - len(shape) for axis in axes])], want)


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ([2], "'axis'[0] = 2 is out of valid range [0, 1"),
        ([0, -3], "'axis'[1] = -3 is out of valid range [0, 1"),
        ([1, -1], "axis 1 specified more than once."),
        ([[0]], "'dims' must be 1-dimension, not 2"),
        (0, "'dims' must be 1-dimension, not 0"),
    ],
)
def test_reverse_v2_refuses(axis, message):
    assert_refuses("ReverseV2", [X, I32(axis)], message)


def test_reverse_refuses():
    text = "'dims' must have the same number of values as 'input' has dimensions. 'input' has 2'dims' has 1 values"
    assert_refuses("Reverse", [X, [True]], text)
    assert_refuses("Reverse", [X, [[True, False]]], "'dims' must be 1-dimension, not 2")


def test_reverse_v2_leaves_scalars_alone():
    assert_gives("ReverseV2", [F32(3), I32([0])], F32(3))


# ---- ReverseSequence


def test_reverse_sequence():
    want = CUBE.copy()
    want[1, :2] = CUBE[1, 1::-1]
    assert_gives("ReverseSequence", [CUBE, I64([1, 2])], want, seq_dim=1)
    want = CUBE.copy()
    want[:, 0] = CUBE[::-1, 0]
    assert_gives("ReverseSequence", [CUBE, I32([2, 1, 0])], want, seq_dim=0, batch_dim=1)
    assert_gives(
        "ReverseSequence", [strings("a", "b", shape=(1, 2)), I32([2])], strings("b", "a", shape=(1, 2)), seq_dim=1
    )


@given(shapes(min_rank=2), DTYPES, st.data())
def test_reverse_sequence_row_by_row(shape, dtype, data):
    seq_dim, batch_dim = data.draw(st.permutations(range(len(shape))))[:2]
    lengths = [data.draw(st.integers(0, shape[seq_dim])) for _ in range(shape[batch_dim])]
    x = example_of(shape, dtype)
    want = x.copy()
    rows = np.moveaxis(want, (batch_dim, seq_dim), (0, 1))
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    assert_gives("ReverseSequence", [x, I64(lengths)], want, seq_dim=seq_dim, batch_dim=batch_dim)


@pytest.mark.parametrize(
    ("lengths", "attrs", "message"),
    [
        ([1, 2, 3], {"seq_dim": 1}, "Length of seq_lengths != input.dims(0), (3 vs. 2)"),
        ([1, 4], {"seq_dim": 1}, "seq_lens(1) > input.dims(1)"),
        ([1, -1], {"seq_dim": 1}, "seq_lens(1) < 0"),
        ([1, 1], {"seq_dim": 0}, "batch_dim == seq_dim == 0"),
        ([1, 1], {"seq_dim": 3}, "seq_dim must be < input rank ( 3 vs. 3)"),
        ([1, 1], {"seq_dim": -1}, "Invalid seq_dim -1"),
        ([1, 1], {"seq_dim": 1, "batch_dim": 3}, "batch_dim must be < input rank ( 3 vs. 3)"),
        ([1, 1], {"seq_dim": 1, "batch_dim": -3}, "Invalid batch_dim -3"),
        ([[1, 1]], {"seq_dim": 1}, "seq_lengths must be 1-dim, not 2"),
    ],
)
def test_reverse_sequence_refuses(lengths, attrs, message):
    assert_refuses("ReverseSequence", [CUBE, I64(lengths)], message, **attrs)


# ---- Roll


@given(shapes(min_rank=1), DTYPES, st.data())
def test_roll_is_numpys(shape, dtype, data):
    x = example_of(shape, dtype)
    axes = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=3))
    shifts = [data.draw(st.integers(-7, 7)) for _ in axes]
    want = x
    for axis, shift in zip(axes, shifts, strict=True):
        want = np.roll(want, shift, axis)
    assert_gives("Roll", [x, I32(shifts), I64(axes)], want)
    if axes:
        assert_gives("Roll", [x, I64(shifts[0]), I32(axes[0])], np.roll(x, shifts[0], axes[0]))


@pytest.mark.parametrize(
    ("x", "shift", "axis", "message"),
    [
        (X, [1], [0, 1], "shift and axis must have the same size"),
        (X, 1, [0], "shift and axis must have the same size"),
        (X, [[1]], [0], "shift must be a scalar or a 1-D vector. Found: [1,1]"),
        (X, 1, [[0]], "axis must be a scalar or a 1-D vector. Found: [1,1]"),
        (X, 1, 2, "axis 2 is out of range"),
        (X, 1, -3, "axis -1 is out of range"),
        (F32(3), 1, 0, "input must be 1-D or higher"),
    ],
)
def test_roll_refuses(x, shift, axis, message):
    assert_refuses("Roll", [x, I32(shift), I32(axis)], message)


# ---- rows changed in a copy


@pytest.mark.parametrize(
    ("op", "row"), [("InplaceUpdate", [1, 1, 1]), ("InplaceAdd", [13, 14, 15]), ("InplaceSub", [-7, -6, -5])]
)
def test_inplace_ops_change_a_copy(op, row):
    x = X.copy()
    assert_gives(op, [x, [1, 1], F32([[9, 9, 9], [1, 1, 1]])], F32([[0, 1, 2], row]))
    assert_gives(op, [x, [3, -1], F32([[9, 9, 9], [1, 1, 1]])], F32([[0, 1, 2], row]))  # numbers wrap around
    assert_gives(op, [x, I32([]), np.zeros((0, 3), np.float32)], X)


@pytest.mark.parametrize(
    ("i", "v", "message"),
    [
        (1, [[9, 9, 9]], "i must be a vector. []"),
        ([0, 1], [[9, 9, 9]], "i and x shape doesn't match at index 0: [2] vs. [1,3]"),
        ([0], [[9, 9]], "x and v shape doesn't match at index 1 : [2,3] vs. [1,2]"),
        ([0], [9], "x and v shape doesn't match (ranks differ): [2,3] vs. [1]"),
    ],
)
@pytest.mark.parametrize("op", ["InplaceUpdate", "InplaceAdd", "InplaceSub"])
def test_inplace_ops_refuse(op, i, v, message):
    assert_refuses(op, [X, I32(i), F32(v)], message)


def test_only_numbers_are_added_in_place():
    assert_refuses("InplaceAdd", [[True], [0], [True]], "Unsupported data type: bool")
    assert_gives("InplaceUpdate", [strings("a"), [0], strings("b")], strings("b"))
