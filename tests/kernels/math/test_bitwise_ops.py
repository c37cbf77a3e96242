"""Bitwise kernels: all integer types, shifts out of range, bits of negative numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import errors
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("op", ops_of("math.bitwise_ops"))
def test_types_are_those_of_tensorflow(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_logic(dtype):
    x, y = np.array([0b1100, 0, 5], dtype), np.array(0b1010, dtype)
    assert run_op("BitwiseAnd", [x, y]).tolist() == [0b1000, 0, 0]
    assert run_op("BitwiseOr", [x, y]).tolist() == [0b1110, 10, 15]
    assert run_op("BitwiseXor", [x, y]).tolist() == [0b0110, 10, 15]
    np.testing.assert_array_equal(run_op("Invert", [x]), ~x, strict=True)


@pytest.mark.parametrize(
    ("op", "dtype", "x", "y", "want"),
    [
        ("LeftShift", np.int32, [1, -7, 5, 3, 5], [4, 3, 31, -1, 99], [16, -56, -(2**31), 3, -(2**31)]),
        ("LeftShift", np.uint8, [255, 255, 255, 1], [7, 8, 200, 0], [128, 128, 128, 1]),
        ("LeftShift", np.int8, [-128, 127, 3, 1], [8, 100, -3, 7], [0, -128, 3, -128]),
        ("RightShift", np.int32, [16, -7, 5, 3, -5], [4, 3, 31, -1, 99], [1, -1, 0, 3, -1]),
        ("RightShift", np.uint8, [255, 255, 255, 1], [7, 8, 200, 0], [1, 1, 1, 1]),
        ("RightShift", np.int8, [-128, 127, -1], [7, 100, -3], [-1, 0, -1]),
        ("RightShift", np.uint64, [2**64 - 1], [64], [1]),
    ],
)
def test_shifts_are_clamped_to_the_width(op, dtype, x, y, want):
    got = run_op(op, [np.array(x, dtype), np.array(y, dtype)])
    np.testing.assert_array_equal(got, np.array(want, dtype), strict=True)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_population_count(dtype):
    info = np.iinfo(dtype)
    x = np.array([0, 1, 3, info.max, info.min], dtype)
    unsigned = info.min == 0
    want = [0, 1, 2, info.bits - (not unsigned), 0 if unsigned else 1]
    np.testing.assert_array_equal(run_op("PopulationCount", [x]), np.uint8(want), strict=True)


def test_population_count_of_minus_one():
    assert run_op("PopulationCount", [np.int64([-1, -2])]).tolist() == [64, 63]
    assert int(run_op("PopulationCount", [np.int8(-1)])) == 8


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"])
def test_incompatible_shapes(op):
    with pytest.raises(errors.InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs. \[3\]"):
        run_op(op, [np.ones(2, np.int32), np.ones(3, np.int32)])


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3),
    dtype=st.sampled_from(INTEGERS),
    data=st.data(),
)
def test_any_broadcast(shapes, dtype, data):
    x, y = (data.draw(hnp.arrays(dtype, shape)) for shape in shapes.input_shapes)
    for op, reference in {"BitwiseAnd": np.bitwise_and, "BitwiseXor": np.bitwise_xor}.items():
        np.testing.assert_array_equal(np.asarray(run_op(op, [x, y])), np.asarray(reference(x, y)), strict=True)
    shift = np.clip(y.astype(object), 0, 8 * x.itemsize - 1)
    want = np.asarray(np.broadcast_arrays(x.astype(object), shift)[0] // 2**shift).astype(dtype)
    np.testing.assert_array_equal(np.asarray(run_op("RightShift", [x, y])), want, strict=True)
