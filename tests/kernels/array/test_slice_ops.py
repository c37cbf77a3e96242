"""Slices: known answers, NumPy's own indexing for random ones, TensorFlow's messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.array.constant_inputs import freeze
from tests.kernels.array_support import (
    ELEMENT_TYPES,
    F32,
    I32,
    I64,
    assert_gives,
    assert_refuses,
    assert_same,
    example_of,
    shapes,
)
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op, strings

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("op", ops_of("array.slice_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


# Slice


@pytest.mark.parametrize(
    ("begin", "size", "want"),
    [
        ([0, 0], [3, 4], TABLE),
        ([1, 1], [2, 2], [[5, 6], [9, 10]]),
        ([1, 1], [-1, -1], [[5, 6, 7], [9, 10, 11]]),
        ([3, 4], [-1, -1], np.zeros((0, 0))),
        ([0, 4], [3, 0], np.zeros((3, 0))),
    ],
)
def test_slice(begin, size, want):
    assert_gives("Slice", [TABLE, I32(begin), I32(size)], F32(want))
    assert_gives("Slice", [TABLE, I64(begin), I64(size)], F32(want))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_slice_of_every_type(dtype):
    x = example_of((4, 3), dtype)
    assert_gives("Slice", [x, [1, 0], [2, -1]], x[1:3])


def test_slice_of_a_scalar():
    assert_gives("Slice", [F32(3), I32([]), I32([])], F32(3))


@given(st.data())
def test_slice_is_numpys(data):
    shape = data.draw(shapes())
    x = example_of(shape, np.int32)
    begin = [data.draw(st.integers(0, n)) for n in shape]
    size = [data.draw(st.integers(-1, n - b)) for n, b in zip(shape, begin, strict=True)]
    index = tuple(slice(b, None if n == -1 else b + n) for b, n in zip(begin, size, strict=True))
    assert_gives("Slice", [x, I32(begin), I32(size)], x[index])


@pytest.mark.parametrize(
    ("x", "begin", "size", "message"),
    [
        (TABLE, [0, 0], [4, 1], "Expected size[0] in [0, 3], but got 4"),
        (TABLE, [0, 5], [1, 0], "Expected begin[1] in [0, 4], but got 5"),
        (TABLE, [-1, 0], [1, 0], "Expected begin[0] in [0, 3], but got -1"),
        (TABLE, [0, 0], [1, -2], "Expected size[1] in [0, 4], but got -2"),
        (
            np.zeros((0, 2), np.float32),
            [1, 0],
            [0, 1],
            "Expected begin[0] == 0 (got 1) and size[0] == 0 (got 0) when input.dim_size(0) == 0",
        ),
        (
            TABLE,
            [0],
            [1],
            "Expected begin and size arguments to be 1-D tensors of size 2, but got shapes [1] and [1] instead.",
        ),
    ],
)
def test_slice_errors(x, begin, size, message):
    assert_refuses("Slice", [x, I32(begin), I32(size)], message)


# StridedSlice


def spec(begin, end, strides):
    return [I32(begin), I32(end), I32(strides)]


def python_index(begin, end, strides, masks):
    """The index as one would write it in Python."""
    begins, ends, ellipses, new, shrunk = masks
    index = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << i
        if ellipses & bit:
            index.append(Ellipsis)
        elif new & bit:
            index.append(None)
        elif shrunk & bit:
            index.append(b)
        else:
            index.append(slice(None if begins & bit else b, None if ends & bit else e, s))
    return (*index, Ellipsis) if Ellipsis not in index else tuple(index)


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "want"),
    [
        ([1], [3], [1], {}, TABLE[1:3]),
        ([1, -3], [3, -1], [1, 1], {}, TABLE[1:3, -3:-1]),
        ([2, 3], [0, 0], [-1, -2], {}, [[11, 9], [7, 5]]),
        ([2, 3], [0, 0], [-1, -2], {"end_mask": 3}, TABLE[::-1, ::-2]),
        ([-1, 0], [9, 0], [-1, 1], {"begin_mask": 1, "end_mask": 3}, TABLE[::-1]),
        ([-9, -9], [9, 9], [2, 3], {}, TABLE[::2, ::3]),
        ([2], [1], [1], {}, np.zeros((0, 4))),
        ([1, 2], [2, 3], [1, 1], {"shrink_axis_mask": 3}, 6),
        ([-1], [0], [1], {"shrink_axis_mask": 1}, TABLE[2]),
        ([1], [0], [5], {"shrink_axis_mask": 1}, TABLE[1]),
        ([0, 1], [0, 2], [1, 1], {"ellipsis_mask": 1}, TABLE[:, 1:2]),
        ([0, 0, 1], [0, 0, 2], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}, TABLE[:, None, 1:2]),
        ([0, 1], [0, 2], [1, 1], {"new_axis_mask": 1}, TABLE[None, 1:2]),
        # A new axis wins over a single index.
        ([0], [1], [1], {"new_axis_mask": 1, "shrink_axis_mask": 1}, TABLE[None]),
        ([], [], [], {}, TABLE),
    ],
)
def test_strided_slice(begin, end, strides, masks, want):
    assert_gives("StridedSlice", [TABLE, *spec(begin, end, strides)], F32(want), **masks)


def test_element_of_a_string_tensor_is_an_array():
    x = strings("a", "b", "c")
    assert_gives("StridedSlice", [x, [1], [2], [1]], np.array(b"b", object), shrink_axis_mask=1)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_strided_slice_of_every_type(dtype):
    x = example_of((4, 3), dtype)
    assert_gives("StridedSlice", [x, [3, 0], [0, 3], [-2, 1]], x[3:0:-2])


@st.composite
def slices(draw):
    """(shape, begin, end, strides, masks): at most one ellipsis, single indices in bounds."""
    shape = draw(shapes())
    real = draw(st.integers(0, len(shape)))
    kinds = draw(st.permutations(["dim"] * real + draw(st.sampled_from([[], ["..."], ["new"], ["...", "new"]]))))
    if "..." not in kinds:
        behind = 0
    else:
        behind = sum(k == "dim" for k in kinds[kinds.index("...") :])
    masks = [draw(st.integers(0, 2 ** len(kinds) - 1)), draw(st.integers(0, 2 ** len(kinds) - 1)), 0, 0, 0]
    begin, end, strides, dim = [], [], [], 0
    for i, kind in enumerate(kinds):
        bound = st.integers(-6, 6)
        begin.append(draw(bound))
        end.append(draw(bound))
        strides.append(draw(st.sampled_from([1, 1, 2, 3, -1, -2])))
        if kind == "...":
            masks[2] |= 1 << i
            dim = len(shape) - behind
        elif kind == "new":
            masks[3] |= 1 << i
        else:
            if shape[dim] and draw(st.booleans()):
                masks[4] |= 1 << i
                begin[i], strides[i] = draw(st.integers(-shape[dim], shape[dim] - 1)), 1
            dim += 1
    return shape, begin, end, strides, masks


@given(slices())
def test_strided_slice_is_pythons(case):
    shape, begin, end, strides, masks = case
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    index = python_index(begin, end, strides, masks)
    attrs = dict(zip(MASKS, masks, strict=True))
    inputs = spec(begin, end, strides)
    want = x[index]
    assert_gives("StridedSlice", [x, *inputs], want, **attrs)
    spread, replaced = np.zeros_like(x), x.copy()
    spread[index], replaced[index] = want, -want
    assert_gives("StridedSliceGrad", [I32(shape), *inputs, want], spread, **attrs)
    assert_gives("TensorStridedSliceUpdate", [x, *inputs, -want], replaced, **attrs)


@pytest.mark.parametrize(
    ("x", "begin", "end", "strides", "masks", "message"),
    [
        (TABLE, [0], [1], [0], {}, "strides[0] must be non-zero"),
        (TABLE, [0], [1], [-1], {"shrink_axis_mask": 1}, "only stride 1 allowed on non-range indexing."),
        (TABLE, [3], [4], [1], {"shrink_axis_mask": 1}, "slice index 3 of dimension 0 out of bounds."),
        (TABLE, [0, -7], [1, 1], [1, 1], {"shrink_axis_mask": 2}, "slice index -3 of dimension 1 out of bounds."),
        (TABLE, [0] * 3, [1] * 3, [0] * 3, {}, "Index out of range using input dim 2; input has only 2 dims"),
        (F32(1), [0], [1], [1], {}, "Attempting to slice scalar input."),
        (TABLE, [0] * 2, [1] * 2, [1] * 2, {"ellipsis_mask": 3}, "Multiple ellipses in slice spec not allowed"),
        (
            TABLE,
            [0, 0],
            [1, 1],
            [1],
            {},
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes [2], [2], and [1] instead.",
        ),
        (
            TABLE,
            [0] * 32,
            [1] * 32,
            [1] * 32,
            {},
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes "
            "[32], [32], and [32] instead.",
        ),
    ],
)
def test_strided_slice_errors(x, begin, end, strides, masks, message):
    assert_refuses("StridedSlice", [x, *spec(begin, end, strides)], message, **masks)


def test_errors_of_gradient_and_update():
    at = spec([0], [2], [1])
    message = "shape of dy was [3] instead of [2,4]"
    assert_refuses("StridedSliceGrad", [I32([3, 4]), *at, F32([1, 2, 3])], message)
    assert_refuses("StridedSliceGrad", [I32([[3]]), *at, F32(1)], "shape must be 1-D, got shape.shape = [1,1]")
    assert_refuses("StridedSliceGrad", [I32([3, -4]), *at, F32(1)], "Dimension -4 must be >= 0")
    message = "Cannot broadcast input shape [3] into final shape [2,4]"
    assert_refuses("TensorStridedSliceUpdate", [TABLE, *at, F32([1, 2, 3])], message)


def test_shape_too_large_is_refused_before_it_is_touched():
    with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating tensor with shape"):
        run_op("StridedSliceGrad", [I64([2**40]), *spec([0], [1], [1]), F32([1])])


def test_update_broadcasts_its_value():
    want = TABLE.copy()
    want[:2] = 7
    assert_gives("TensorStridedSliceUpdate", [TABLE, *spec([0], [2], [1]), F32(7)], want)


def test_gradient_of_a_string_slice_is_filled_with_empty_strings():
    got = run_op("StridedSliceGrad", [I32([3]), *spec([1], [2], [1]), strings("x")])
    assert got.tolist() == [b"", b"x", b""]


# What is kept between calls


def test_constant_begin_end_and_strides_are_looked_at_once_per_shape():
    constants = [freeze(I32(v)) for v in ([1, 1], [3, 3], [1, 1])]
    kernel = build("StridedSlice", [TABLE, *constants])[0].compute
    for x in (TABLE, TABLE[:2], TABLE, TABLE.T):
        assert_same(kernel(x, *constants), x[1:3, 1:3])


def test_arrays_that_their_owner_changes_are_looked_at_in_every_call():
    begin, end, strides = I32([0]), I32([1]), I32([1])
    kernel = build("StridedSlice", [TABLE, begin, end, strides])[0].compute
    assert_same(kernel(TABLE, begin, end, strides), TABLE[0:1])
    begin[0], end[0] = 1, 3
    assert_same(kernel(TABLE, begin, end, strides), TABLE[1:3])
    size = I32([1, 1])
    kernel = build("Slice", [TABLE, I32([0, 0]), size])[0].compute
    assert_same(kernel(TABLE, I32([0, 0]), size), TABLE[:1, :1])
    size[:] = 2
    assert_same(kernel(TABLE, I32([0, 0]), size), TABLE[:2, :2])


@pytest.mark.parametrize(
    ("op", "inputs"), [("Slice", [I32([0, 1]), I32([2, 2])]), ("StridedSlice", spec([0], [2], [1]))]
)
def test_slices_are_views(op, inputs):
    kernel = build(op, [TABLE, *inputs])[0]
    assert kernel.cost == 0
    assert np.shares_memory(kernel.compute(TABLE, *inputs), TABLE)
