"""Pad, MirrorPad and its gradient: known answers, TensorFlow's messages, and NumPy on random shapes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
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
NO_PADDING = np.zeros((0, 2), np.int32)
OUTPUT = "the output dimension size"


def pairs(rank, largest):
    return st.lists(st.tuples(*[st.integers(0, largest)] * 2), min_size=rank, max_size=rank)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_pad_of_every_type(dtype):
    x = example_of((1, 2), dtype)
    zero = b"" if dtype is object else 0
    want = np.full((2, 5), zero, dtype)
    want[1, 2:4] = x
    assert_gives("Pad", [x, I32([[1, 0], [2, 1]])], want)
    value = example_of((), dtype, seed=1)
    want = np.full((2, 5), value, dtype)
    want[1, 2:4] = x
    assert_gives("PadV2", [x, I64([[1, 0], [2, 1]]), value], want)


@given(shapes(), st.data())
def test_pad_is_numpys(shape, data):
    x = example_of(shape, data.draw(st.sampled_from([np.float32, np.bool_, ml_dtypes.bfloat16])))
    paddings = data.draw(pairs(len(shape), 2))
    want = np.pad(x, paddings) if shape else x
    assert_gives("Pad", [x, I32(paddings).reshape(-1, 2)], want)


@pytest.mark.parametrize("op", ["Pad", "MirrorPad", "MirrorPadGrad"])
def test_scalars_have_nothing_to_pad(op):
    attrs = {} if op == "Pad" else {"mode": b"REFLECT"}
    assert_gives(op, [F32(3), NO_PADDING], F32(3), **attrs)


def test_pad_by_nothing_is_the_input():
    built, (x, paddings), _ = build("Pad", [X, I32([[0, 0], [0, 0]])])
    assert built.compute(x, paddings) is x


@pytest.mark.parametrize(
    ("paddings", "message"),
    [
        ([[1, 1]], "The first dimension of paddings must be the rank of inputs[1,2] [2,3]"),
        ([[1, 1], [0, -1]], "Paddings must be non-negative: 0 -1"),
        ([1, 1], "paddings must be a matrix with 2 columns: [2]"),
        ([[1, 1, 1], [0, 0, 0]], "paddings must be a matrix with 2 columns: [2,3]"),
    ],
)
def test_pad_refuses(paddings, message):
    assert_refuses("Pad", [X, I32(paddings)], message)
    assert_refuses("PadV2", [X, I32(paddings), 1.0], message)


def test_vector_of_paddings_is_refused_after_a_matrix_of_the_same_bytes():
    kernel, _, _ = build("Pad", [F32([1]), I32([[1, 2]])])
    np.testing.assert_array_equal(kernel.compute(F32([1]), I32([[1, 2]])), F32([0, 1, 0, 0]))
    with pytest.raises(errors.InvalidArgumentError, match="paddings must be a matrix with 2 columns"):
        kernel.compute(F32([1]), I32([1, 2]))


def test_pad_v2_takes_a_scalar():
    assert_refuses("PadV2", [X, I32([[0, 0], [0, 0]]), [1.0]], "constant_values must be a scalar. Found: [1]")


# ---- MirrorPad


@given(shapes(min_size=1), st.sampled_from(["REFLECT", "SYMMETRIC"]), st.data())
def test_mirror_pad_is_numpys(shape, mode, data):
    x = example_of(shape, data.draw(st.sampled_from([np.float32, np.int16, object])))
    offset = mode == "REFLECT"
    paddings = [[data.draw(st.integers(0, size - offset)) for _ in range(2)] for size in shape]
    want = np.pad(x, paddings, mode=mode.lower()) if shape else x
    assert_gives("MirrorPad", [x, I32(paddings).reshape(-1, 2)], want, mode=mode.encode())


@pytest.mark.parametrize(
    ("mode", "paddings", "message"),
    [
        (b"REFLECT", [[2, 0], [0, 0]], "paddings must be less than the dimension size: 2, 0 not less than 2"),
        (b"REFLECT", [[0, 0], [0, 3]], "paddings must be less than the dimension size: 0, 3 not less than 3"),
        (b"SYMMETRIC", [[3, 0], [0, 0]], "paddings must be no greater than the dimension size: 3, 0 greater than 2"),
        (b"REFLECT", [[0, 0], [-1, 0]], "paddings must be non-negative: -1 0"),
        (b"REFLECT", [[0, 0]], "The first dimension of paddings must be the rank of inputs[1,2], [2,3]"),
        (b"REFLECT", [0, 0], "paddings must be a matrix with 2 columns: [2]"),
    ],
)
def test_mirror_pad_refuses(mode, paddings, message):
    assert_refuses("MirrorPad", [X, I32(paddings)], message, mode=mode)


def test_mirror_pad_of_an_empty_dimension():
    empty, paddings = np.zeros((0, 3), np.float32), I32([[0, 0], [1, 1]])
    assert_gives("MirrorPad", [empty, paddings], np.zeros((0, 5), np.float32), mode=b"SYMMETRIC")
    text = "paddings must be less than the dimension size: 0, 0 not less than 0"
    assert_refuses("MirrorPad", [empty, paddings], text, mode=b"REFLECT")


def test_mirror_pad_grad():
    x = F32([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    paddings = I32([[1, 0], [0, 0]])
    assert_gives("MirrorPadGrad", [x, paddings], F32([[3, 4, 5], [6, 8, 10], [9, 10, 11]]), mode=b"REFLECT")
    assert_gives("MirrorPadGrad", [x, paddings], F32([[3, 5, 7], [6, 7, 8], [9, 10, 11]]), mode=b"SYMMETRIC")
    assert_gives("MirrorPadGrad", [x, I32([[0, 0], [1, 1]])], F32([[3], [12], [21], [30]]), mode=b"SYMMETRIC")


@given(shapes(min_size=1, max_rank=3), st.sampled_from(["REFLECT", "SYMMETRIC"]), st.data())
def test_mirror_pad_grad_is_the_transpose_of_mirror_pad(shape, mode, data):
    offset = mode == "REFLECT"
    paddings = [[data.draw(st.integers(0, size - offset)) for _ in range(2)] for size in shape]
    paddings = I64(paddings).reshape(-1, 2)
    x = example_of(shape, np.float64)
    padded = run_op("MirrorPad", [x, paddings], mode=mode.encode())
    grad = example_of(padded.shape, np.float64, seed=1)
    folded = run_op("MirrorPadGrad", [grad, paddings], mode=mode.encode())
    assert (padded * grad).sum() == (x * folded).sum()


@pytest.mark.parametrize(
    ("mode", "paddings", "message"),
    [
        (b"REFLECT", [[1, 0], [0, 0]], f"paddings must be less than {OUTPUT}: 1, 0 not less than 1"),
        (
            b"REFLECT",
            [[1, 1], [0, 0]],
            "Total paddings must be less than the input dimension size: 2 was not less than 2",
        ),
        (b"SYMMETRIC", [[0, 0], [2, 0]], f"paddings must be no greater than {OUTPUT}: 2, 0 greater than 1"),
        (b"SYMMETRIC", [[-1, 0], [0, 0]], "Paddings must be non-negative: -1, 0"),
        (b"SYMMETRIC", [[1, 0]], "The first dimension of paddings must be the rank of inputs[1,2] [2,3]"),
    ],
)
def test_mirror_pad_grad_refuses(mode, paddings, message):
    assert_refuses("MirrorPadGrad", [X, I32(paddings)], message, mode=mode)


def test_strings_are_padded_with_empty_ones():
    assert_gives("Pad", [strings("a"), I32([[1, 1]])], strings("", "a", ""))


@pytest.mark.parametrize("constant", [None, 7.5])
def test_of_large_arrays_all_borders_are_written(constant):
    x = np.random.default_rng(0).standard_normal((5, 60, 70), np.float32)
    pairs = np.int32([[2, 0], [0, 0], [3, 1]])
    got = run_op("Pad", [x, pairs]) if constant is None else run_op("PadV2", [x, pairs, np.float32(constant)])
    np.testing.assert_array_equal(got, np.pad(x, pairs, constant_values=constant or 0))
