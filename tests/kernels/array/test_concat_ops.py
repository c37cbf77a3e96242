"""Concat, Pack, Split and Unpack: known answers, TensorFlow's messages, and NumPy on random shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.framework.shape import MAX_RANK, PartialTensorShape
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
from tests.kernels.harness import build, run_op, strings

X = F32([[0, 1, 2], [3, 4, 5]])
DTYPES = st.sampled_from([np.float32, np.int64, ml_dtypes.bfloat16, np.bool_, object])


# ---- Concat


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_concat_of_every_type(dtype):
    a, b = example_of((2, 1), dtype), example_of((2, 3), dtype, seed=1)
    want = np.concatenate((a, b), 1)
    assert_gives("ConcatV2", [[a, b], I32(1)], want)
    assert_gives("ConcatV2", [[a, b], I64(-1)], want)
    assert_gives("Concat", [1, [a, b]], want)


@given(shapes(min_rank=1), st.data())
def test_concat_is_numpys(shape, data):
    dtype = data.draw(DTYPES)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    parts = []
    for seed, length in enumerate(lengths):
        dims = list(shape)
        dims[axis] = length
        parts.append(example_of(tuple(dims), dtype, seed))
    want = np.concatenate(parts, axis)
    assert_gives("ConcatV2", [parts, I32(axis)], want)
    assert_gives("Concat", [axis, parts], want)


@pytest.mark.parametrize(
    ("values", "axis", "message"),
    [
        ([F32([1]), F32([[1, 2]])], 0, "Ranks of all input tensors should match: shape[0] = [1] vs. shape[1] = [1,2]"),
        ([X, X], 2, "Expected concatenating dimensions in the range [-2, 2), but got 2"),
        ([X, X], -3, "Expected concatenating dimensions in the range [-2, 2), but got -3"),
        ([X, X.T], 0, "Dimension 1 in both shapes must be equal: shape[0] = [2,3] vs. shape[1] = [3,2]"),
        ([X, X, X.T], 1, "Dimension 0 in both shapes must be equal: shape[0] = [2,3] vs. shape[2] = [3,2]"),
        ([F32(1), F32(2)], 0, "Can't concatenate scalars (use tf.stack instead)"),
        ([F32([1]), F32(2)], 0, "Can't concatenate scalars (use tf.stack instead)"),
    ],
)
def test_concat_refuses(values, axis, message):
    assert_refuses("ConcatV2", [values, I32(axis)], f"ConcatOp : {message}")
    assert_refuses("Concat", [axis, values], f"ConcatOp : {message}")


def test_concat_takes_an_axis_of_one_element_only():
    assert_gives("ConcatV2", [[X, X], I32([0])], np.concatenate((X, X)))
    assert_refuses("ConcatV2", [[X, X], I32([0, 1])], "axis tensor should be a scalar integer, but got shape [2]")
    assert_refuses("Concat", [[0, 1], [X, X]], "concat_dim tensor should be a scalar integer, but got shape [2]")


def test_parallel_concat():
    rows = [F32([[1, 2]]), F32([[3, 4]])]
    assert_gives("ParallelConcat", [rows], F32([[1, 2], [3, 4]]), shape=PartialTensorShape([2, 2]))
    assert_refuses(
        "ParallelConcat",
        [[F32([[1, 2]]), F32([[3]])]],
        "ParallelConcat expects inputs of shape [1,2], but value 1 has shape [1,1]",
        shape=PartialTensorShape([2, 2]),
    )


@pytest.mark.parametrize("make", [I32, I64])
def test_concat_offset(make):
    shapes = [make([2, 3]), make([2, 5]), make([2, 1])]
    want = (make([0, 0]), make([0, 3]), make([0, 8]))
    assert_gives("ConcatOffset", [1, shapes], want)
    assert_gives("ConcatOffset", [-1, shapes], want)


def _begin(size):
    """What a message says of a shape of very many such sizes."""
    return f"[{' '.join([str(size)] * MAX_RANK)}…]"


@pytest.mark.parametrize("rank", [254, 255, 3000])
def test_concat_offset_of_more_dimensions_than_tensors_have(rank):
    shape = np.full(rank, 4, np.int32)
    first, second = run_op("ConcatOffset", [2, [shape, shape]])
    assert not first.any() and second.tolist() == [0, 0, 4] + [0] * (rank - 3)
    other = shape.copy()
    other[-1] = 5
    with pytest.raises(errors.InvalidArgumentError, match="All dimensions except 2 must match"):
        run_op("ConcatOffset", [2, [shape, other]])


@pytest.mark.parametrize(
    ("axis", "shapes", "message"),
    [
        (2, [[2, 3], [3, 5]], "Concat dim is out of range: 2 vs. 2"),
        (-3, [[2, 3], [3, 5]], "Concat dim is out of range: -3 vs. 2"),
        (0, [[2, 3], [3, 5, 6]], "input 1 should contain 2 elements, but got 3"),
        (0, [[2, 3], [[3, 5]]], "input 1 should be a vector, but got shape [1,2]"),
        ([0], [[2, 3], [3, 3]], "Concat dim tensor should be a scalar integer, but got shape [1]"),
        (
            1,
            [[2, 3], [3, 5]],
            "All dimensions except 1 must match. Input 1 has shape [3 5] and doesn't match input 0 with shape [2 3].",
        ),
        (
            1,
            [[1] * 100_000, [2] * 100_000],
            "All dimensions except 1 must match. Input 1 has shape "
            f"{_begin(2)} and doesn't match input 0 with shape {_begin(1)}.",
        ),
    ],
)
def test_concat_offset_refuses(axis, shapes, message):
    assert_refuses("ConcatOffset", [axis, [I32(shape) for shape in shapes]], message)


# ---- Pack and Unpack


@given(shapes(max_rank=3), st.integers(1, 4), DTYPES, st.data())
def test_pack_and_unpack_are_inverse(shape, count, dtype, data):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    parts = [example_of(shape, dtype, seed) for seed in range(count)]
    packed = np.stack(parts, axis)
    assert_gives("Pack", [parts], packed, axis=axis)
    assert_gives("Unpack", [packed], tuple(parts) if count > 1 else parts[0], axis=axis, num=count)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("shape", [(), (2,), (70, 70)])  # the last takes the path of large inputs
def test_pack_of_every_type(dtype, shape):
    parts = [example_of(shape, dtype, seed) for seed in range(3)]
    assert_gives("Pack", [parts], np.stack(parts))


def test_pack_takes_scalars_as_numpy_gives_them():
    built, _, _ = build("Pack", [[I32(1), I32(2)]])
    assert built.compute(np.int32(3), np.int32(4)).tolist() == [3, 4]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ((2, 3), (3, 2), "values[0].shape = [2,3] != values[1].shape = [3,2]"),
        ((2, 3), (3,), "values[0].shape = [2,3] != values[1].shape = [3]"),
        ((1,), (0,), "values[0].shape = [1] != values[1].shape = [0]"),
        ((0, 2), (0, 3), "values[0].shape = [0,2] != values[1].shape = [0,3]"),
        ((90, 90), (1, 90), "values[0].shape = [90,90] != values[1].shape = [1,90]"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, object])
def test_pack_refuses_different_shapes(first, second, text, dtype, axis):
    inputs = [[example_of(first, dtype), example_of(second, dtype)]]
    assert_refuses("Pack", inputs, f"Shapes of all inputs must match: {text}", axis=axis)


@pytest.mark.parametrize("axis", [3, -4])
def test_pack_refuses_an_axis_out_of_range(axis):
    assert_refuses("Pack", [[X, X]], f"axis = {axis} not in [-3, 3)", axis=axis)


@pytest.mark.parametrize(
    ("shape", "attrs", "message"),
    [
        ((2, 3), {"num": 3}, "Input shape axis 0 must equal 3, got shape [2,3]"),
        ((2, 3), {"num": 2, "axis": -1}, "Input shape axis 1 must equal 2, got shape [2,3]"),
        ((2, 3), {"num": 2, "axis": 2}, "axis = 2 not in [-2, 2)"),
        ((2, 3), {"num": 2, "axis": -3}, "axis = -3 not in [-2, 2)"),
        ((), {"num": 2}, "axis = 0 not in [0, 0)"),
    ],
)
def test_unpack_refuses(shape, attrs, message):
    assert_refuses("Unpack", [example_of(shape, np.float32)], message, **attrs)


def test_unpack_of_nothing_and_of_strings():
    assert run_op("Unpack", [np.zeros((0, 2), np.float32)], num=0) in ((), None)
    assert_gives("Unpack", [strings("a", "b")], (strings("a").reshape(()), strings("b").reshape(())), num=2)


# ---- Split


@given(shapes(min_rank=1), st.integers(1, 3), DTYPES, st.data())
def test_split_is_numpys(shape, count, dtype, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dims = list(shape)
    dims[axis] *= count
    x = example_of(tuple(dims), dtype)
    want = tuple(np.split(x, count, axis))
    assert_gives("Split", [axis, x], want if count > 1 else x, num_split=count)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=4), st.data())
def test_split_v_takes_sizes_of_which_one_may_be_open(sizes, data):
    x = example_of((2, sum(sizes)), np.float32)
    want = tuple(np.split(x, np.cumsum(sizes)[:-1], 1))
    index = data.draw(st.sampled_from([np.int8, np.int32, np.int64]))
    axis = data.draw(st.sampled_from([1, -1, [1]]))
    assert_gives("SplitV", [x, np.array(sizes, index), axis], want, num_split=len(sizes))
    sizes[data.draw(st.integers(0, len(sizes) - 1))] = -1
    assert_gives("SplitV", [x, np.array(sizes, index), axis], want, num_split=len(sizes))


def test_parts_are_views():
    built, (axis, x), _ = build("Split", [1, X], num_split=3)
    assert all(np.shares_memory(part, x) for part in built.compute(axis, x))


@pytest.mark.parametrize(
    ("axis", "num", "message"),
    [
        (
            1,
            2,
            "Number of ways to split should evenly divide the split dimension, "
            "but got split_dim 1 (size = 3) and num_split 2",
        ),
        (2, 2, "-input rank(-2) <= split_dim < input rank (2), but got 2"),
        (-3, 2, "-input rank(-2) <= split_dim < input rank (2), but got -3"),
        ([1], 3, "split_dim must be a scalar but has rank 1"),
        ([1, 0], 3, "split_dim must be a scalar but has rank 1"),
    ],
)
def test_split_refuses(axis, num, message):
    assert_refuses("Split", [axis, X], message, num_split=num)
    assert_refuses("Split", [0, F32(1)], "-input rank(-0) <= split_dim < input rank (0), but got 0", num_split=1)


NOT_DETERMINED = (
    "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than "
    "the size of the input along split_dim if not fully specified.  Got: "
)
WRONG_COUNT = "size of the split_tensor must be 1-D and have the same elements as outputs got "
ONE_OUTPUT = "If there is only one output, it must have the same size as the input. Input size: 3 output size: "


@pytest.mark.parametrize(
    ("sizes", "axis", "num", "message"),
    [
        ([1, 1], 1, 2, NOT_DETERMINED + "2"),
        ([4, -1], 1, 2, NOT_DETERMINED + "4"),
        ([-1, -1], 1, 2, "There can only be one -1 in the input."),
        ([-2, 5], 1, 2, "Split size at index 0 must be >= 0. Got: -2"),
        ([1, 1, 1], 1, 2, WRONG_COUNT + "1 -D and 3 elements"),
        ([[1, 2]], 1, 2, WRONG_COUNT + "2 -D and 2 elements"),
        (3, 1, 1, WRONG_COUNT + "0 -D and 1 elements"),
        ([2], 1, 1, ONE_OUTPUT + "2"),
        ([-1], 1, 1, ONE_OUTPUT + "-1"),
        ([1, 2], 2, 2, "-input rank(-2) <= split_dim < input rank (2), but got 2"),
        ([1, 2], [1, 1], 2, "split_dim_tensor must have exactly one element."),
    ],
)
def test_split_v_refuses(sizes, axis, num, message):
    assert_refuses("SplitV", [X, I32(sizes), axis], message, num_split=num)


@pytest.mark.parametrize(("dtype", "most"), [(np.int32, 2**31 - 1), (np.int64, 2**63 - 1)])
def test_offsets_that_their_type_cannot_hold_are_refused(dtype, most):
    shapes = [np.array(shape, dtype) for shape in ([2, 3], [2, most], [2, 1])]
    with pytest.raises(
        errors.InvalidArgumentError, match=f"Input 2 begins at {most + 3}, which {dtype.__name__} cannot"
    ):
        run_op("ConcatOffset", [1, shapes])
