"""Fill, OneHot, Tile, broadcasting and the shapes they are asked for, which may be absurd."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.framework.memory.allocator import tracking_allocations
from aexec.framework.memory.memory import available_memory
from aexec.framework.wire import variant
from aexec.kernels.array import fill_ops
from aexec.kernels.common import allocation
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
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


# ---- Fill and its like


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 1, 2)])
def test_fill_zeros_and_ones(shape, dtype):
    value = example_of((), dtype, seed=1)
    assert_gives("Fill", [I64(shape), value], np.broadcast_to(value, shape))
    x = example_of(shape, dtype)
    zero = b"" if dtype is object else 0
    assert_gives("ZerosLike", [x], np.full(shape, zero, dtype))
    if dtype is not object:
        assert_gives("OnesLike", [x], np.full(shape, 1, dtype))


def test_fill_takes_what_old_graphs_pass():
    assert_gives("Fill", [I32(2), F32(3)], F32([3, 3]))
    assert_gives("Fill", [I32([2]), F32([3])], F32([3, 3]))


@pytest.mark.parametrize(
    ("dims", "value", "message"),
    [
        (I32([2, -1]), 3.0, "Dimension -1 must be >= 0"),
        (I32([[2]]), 3.0, "dims must represent a vector, got shape [1,1]"),
        (I32([2]), F32([3, 3]), "value must represent a scalar, got shape [2]"),
        (I64([2**40, 2**40]), 3.0, "Shape [1099511627776,1099511627776] would have more than 2**63 - 1 elements"),
    ],
)
def test_fill_refuses(dims, value, message):
    assert_refuses("Fill", [dims, value], message)


class Cell:
    """A variant."""


variant.register_unary_op("ZEROS_LIKE", "CPU", Cell, lambda value: [])


def test_variants_are_filled_stacked_and_zeroed_as_they_are():
    held = np.empty((), object)
    held[()] = Cell()
    filled = run_op("Fill", [[2, 2], held], T="variant")
    assert filled.shape == (2, 2)
    assert all(element is held.item() for element in filled.ravel())
    assert run_op("Pack", [[held, held]], T="variant").tolist() == [held.item()] * 2
    assert run_op("ZerosLike", [filled[0]], T="variant").tolist() == [[], []]


def test_variant_may_hold_an_array():
    held = np.empty(1, object)
    held[0] = np.arange(3)
    held = held.reshape(())
    for op, inputs in (("Fill", [[2], held]), ("Pack", [[held, held]]), ("OneHot", [[0, 0], 1, held, held])):
        got = run_op(op, inputs, T="variant").ravel()
        assert [element is held.item() for element in got] == [True, True]


# ---- absurd sizes


@pytest.mark.parametrize(
    ("op", "inputs", "shape"),
    [
        ("Fill", [I32([2**31 - 1, 2**31 - 1]), 1.0], "[2147483647,2147483647]"),
        ("Tile", [X, I32([2**30, 2**30])], "[2147483648,3221225472]"),
        ("BroadcastTo", [F32(1), I64([2**40])], "[1099511627776]"),
        ("OneHot", [[0] * 1000, 2**31 - 1, 1.0, 0.0], "[1000,2147483647]"),
        ("Pad", [X, I32([[2**31 - 1, 2**31 - 1], [0, 0]])], "[4294967296,3]"),
    ],
)
def test_more_than_there_is_memory_is_refused(op, inputs, shape):
    text = f"OOM when allocating tensor with shape{shape} and type float on {DEVICE} by allocator cpu"
    assert_refuses(op, inputs, text, error=errors.ResourceExhaustedError)


def test_allocation_beyond_the_available_memory_is_refused(monkeypatch):
    monkeypatch.setattr(allocation, "available_memory", lambda: 2**28)
    text = f"OOM when allocating tensor with shape[134217728] and type float on {DEVICE} by allocator cpu"
    assert_refuses("Fill", [I32([2**27]), 1.0], text, error=errors.ResourceExhaustedError)


def test_shape_too_large_for_numpy_is_refused_where_memory_is_counted():
    """It multiplies what is not 0, though there be nothing in all."""
    with tracking_allocations(), pytest.raises(errors.ResourceExhaustedError, match="OOM"):
        run_op("Fill", [I64([2**62, 5, 0]), 1.0])


def test_available_memory_is_a_positive_number():
    assert available_memory() > 0


def test_too_many_elements_are_a_wrong_argument():
    text = "would have more than 2**63 - 1 elements"
    assert_refuses("Tile", [X, I64([2**40, 2**40])], f"Shape [2199023255552,3298534883328] {text}")
    assert_refuses("BroadcastTo", [F32(1), I64([2**40] * 2)], f"Shape [1099511627776,1099511627776] {text}")


def test_costs_follow_the_output():
    for op, small, large in (
        ("Fill", [I32([2]), 1.0], [I32([2000]), 1.0]),
        ("Tile", [X, I32([1, 2])], [X, I32([1, 2000])]),
        ("BroadcastTo", [F32(1), I32([2])], [F32(1), I32([2000])]),
        ("OneHot", [[0], 2, 1.0, 0.0], [[0], 20000, 1.0, 0.0]),
        ("Pad", [X, I32([[1, 1], [0, 0]])], [X, I32([[1000, 1000], [0, 0]])]),
    ):
        built, few, _ = build(op, small)
        _, many, _ = build(op, large)
        assert built.cost(*many) > 50 * built.cost(*few) > 0


# ---- OneHot


@pytest.mark.parametrize("index", [np.int32, np.int64, np.int8, np.uint8])
def test_one_hot(index):
    indices = np.array([0, 2, 5], index)
    assert_gives("OneHot", [indices, 3, 1.0, 0.0], F32([[1, 0, 0], [0, 0, 1], [0, 0, 0]]))
    assert_gives("OneHot", [indices, 3, 1.0, 0.0], F32([[1, 0, 0], [0, 0, 0], [0, 1, 0]]), axis=0)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_many_indices_are_looked_at_some_at_a_time(axis, monkeypatch):
    indices = np.arange(12).reshape(3, 4) % 7 - 1
    monkeypatch.setattr(fill_ops, "_SMALL", 0)
    monkeypatch.setattr(fill_ops, "_INDICES_AT_ONCE", 5)
    wanted = np.expand_dims(indices, axis) == np.arange(5).reshape([5 if i == axis % 3 else 1 for i in range(3)])
    assert_gives("OneHot", [indices, 5, 1.0, 0.0], wanted.astype(np.float32), axis=axis)


def test_one_hot_corners():
    assert_gives("OneHot", [-1, 2, 1.0, 0.0], F32([0, 0]))
    assert_gives("OneHot", [1, 2, 5, 7], I32([7, 5]))
    assert_gives("OneHot", [[0], 0, 1.0, 0.0], np.zeros((1, 0), np.float32))
    assert_gives("OneHot", [I32([[], []]), 2, 1.0, 0.0], np.zeros((2, 0, 2), np.float32))
    assert_gives(
        "OneHot", [[1], 2, strings("y").reshape(()), strings("n").reshape(())], strings("n", "y", shape=(1, 2))
    )


@given(shapes(max_rank=3), st.sampled_from([3, 6000]), st.data())
def test_one_hot_of_small_and_large_depth(shape, depth, data):
    dtype = data.draw(st.sampled_from([np.float32, np.int64, object, ml_dtypes.bfloat16]))
    index = data.draw(st.sampled_from([np.int32, np.int64, np.int8, np.uint8]))
    axis = data.draw(st.integers(-1, len(shape)))
    indices = example_of(shape, index)
    on, off = example_of((), dtype, seed=1), example_of((), dtype, seed=2)
    hot = np.expand_dims(indices, axis) == np.expand_dims(
        np.arange(depth), [i for i in range(len(shape) + 1) if i != axis % (len(shape) + 1)]
    )
    assert_gives("OneHot", [indices, depth, on, off], np.where(hot, on, off), axis=axis)


@pytest.mark.parametrize(
    ("inputs", "axis", "message"),
    [
        ([[0], -1, 1.0, 0.0], -1, "depth must be non-negative, got: -1"),
        ([[0], [3], 1.0, 0.0], -1, "depth must be a scalar, but got: [1]"),
        ([[0], 3, [1.0], 0.0], -1, "on_value must be a scalar, but got: [1]"),
        ([[0], 3, 1.0, [0.0]], -1, "off_value must be a scalar, but got: [1]"),
        ([[0], 3, 1.0, 0.0], 3, "Expected axis to be -1 or between [0, 2).  But received: 3"),
    ],
)
def test_one_hot_refuses(inputs, axis, message):
    assert_refuses("OneHot", inputs, message, axis=axis)


# ---- Tile


@given(shapes(), st.data())
def test_tile_is_numpys(shape, data):
    dtype = data.draw(st.sampled_from([np.float32, np.bool_, object, ml_dtypes.bfloat16]))
    x = example_of(shape, dtype)
    multiples = data.draw(st.lists(st.integers(0, 3), min_size=len(shape), max_size=len(shape)))
    assert_gives("Tile", [x, I32(multiples)], np.tile(x, multiples))


def test_matrix_of_multiples_is_refused_after_a_vector_of_the_same_bytes():
    kernel, _, _ = build("Tile", [F32([1]), I32([2])])
    np.testing.assert_array_equal(kernel.compute(F32([1]), I32([2])), F32([1, 1]))
    with pytest.raises(errors.InvalidArgumentError, match="Expected multiples to be 1-D"):
        kernel.compute(F32([1]), I32([[2]]))


def test_tile_once_is_the_input():
    built, (x, multiples), _ = build("Tile", [X, I32([1, 1])])
    assert built.compute(x, multiples) is x


@pytest.mark.parametrize(
    ("multiples", "message"),
    [
        ([2], "Expected multiples argument to be a vector of length 2 but got length 1"),
        ([2, -1], "Expected multiples[1] >= 0, but got -1"),
        ([[2, 2]], "Expected multiples to be 1-D, but got shape [1,2]"),
        (2, "Expected multiples to be 1-D, but got shape []"),
    ],
)
def test_tile_refuses(multiples, message):
    assert_refuses("Tile", [X, I32(multiples)], message)


def test_tile_looks_again_when_multiples_of_the_same_bytes_have_another_shape():
    built, _, _ = build("Tile", [X, I32([2, 1])])
    assert built.compute(X, I32([2, 1])).shape == (4, 3)
    assert built.compute(X[0], I64([2])).shape == (6,)
    with pytest.raises(errors.InvalidArgumentError, match="1-D"):
        built.compute(X, I32([[2, 1]]))


def test_tile_grad_sums_the_copies():
    assert_gives("TileGrad", [F32([1, 2, 3, 4]), I32([2])], F32([4, 6]))
    assert_gives("TileGrad", [X, I32([2, 3])], F32([[15]]))
    assert_gives("TileGrad", [np.float16([2048, 1, 1, 1]), I32([4])], np.float16([2051]).astype(np.float16))
    assert_refuses(
        "TileGrad",
        [F32([1, 2, 3]), I32([2])],
        "Expected input_dim[0] to be divisible by multiples[0], but 3 % 2 != 0",
    )
    assert_refuses("TileGrad", [F32([1]), I32([0])], "Expected multiples[0] > 0, but got 0")


# ---- broadcasting


@given(shapes(), st.data())
def test_broadcast_to_is_numpys(shape, data):
    dtype = data.draw(st.sampled_from([np.float32, np.bool_, object, ml_dtypes.bfloat16]))
    keep = data.draw(st.integers(0, len(shape)))
    inner = [data.draw(st.sampled_from([1, size])) for size in shape[keep:]]
    x = example_of(tuple(inner), dtype)
    assert_gives("BroadcastTo", [x, I32(shape)], np.broadcast_to(x, shape))


@pytest.mark.parametrize(
    ("x", "shape", "message"),
    [
        (X, [2, 2], "Incompatible shapes: [2,3] vs. [2,2]"),
        (X, [3], "Rank of input (2) must be no greater than rank of output shape (1)."),
        (F32([[1]]), [1], "Rank of input (2) must be no greater than rank of output shape (1)."),
        (X, [[2, 3]], "shape must be a vector of {int32,int64}, got shape [1,2]"),
        (F32(1), 3, "shape must be a vector of {int32,int64}, got shape []"),
        (X, [-1, 3], "Dimension -1 must be >= 0"),
        (F32([1, 2]), [0], "Incompatible shapes: [2] vs. [0]"),
        (np.zeros((0, 1), np.float32), [3, 3], "Incompatible shapes: [0,1] vs. [3,3]"),
    ],
)
def test_broadcast_to_refuses(x, shape, message):
    assert_refuses("BroadcastTo", [x, I32(shape)], message)


@pytest.mark.parametrize("make", [I32, I64])
@pytest.mark.parametrize(
    ("first", "second", "result", "reduce_first", "reduce_second"),
    [
        ([2, 1, 3], [3], [2, 1, 3], [1], [0, 1]),
        ([2, 1, 1], [2, 1, 1], [2, 1, 1], [], []),
        ([1, 1], [1], [1, 1], [0, 1], [0, 1]),
        ([], [], [], [], []),
        ([], [1], [1], [0], [0]),
        ([0, 1], [1, 1], [0, 1], [1], [0, 1]),
        ([1, 2, 1], [2, 1, 1, 1], [2, 1, 2, 1], [0, 1, 3], [1, 2, 3]),
        ([1, 1, 5], [1, 5], [1, 1, 5], [0, 1], [0, 1]),
        ([-1, 3], [1], [-1, 3], [], [0, 1]),
    ],
)
def test_broadcast_args(first, second, result, reduce_first, reduce_second, make):
    assert_gives("BroadcastArgs", [make(first), make(second)], make(result))
    want = (make(reduce_first), make(reduce_second))
    assert_gives("BroadcastGradientArgs", [make(first), make(second)], want)
    assert_gives("BroadcastGradientArgs", [make(second), make(first)], want[::-1])


def test_broadcast_gradient_args_follows_its_inputs():
    built, _, _ = build("BroadcastGradientArgs", [I32([2]), I32([1])])
    for first, second, want in (([2], [1], [[], [0]]), ([2], [1], [[], [0]]), ([1], [2], [[0], []])):
        assert [a.tolist() for a in built.compute(I32(first), I32(second))] == want
    with pytest.raises(errors.InvalidArgumentError, match="must be a vector"):
        built.compute(I32([[1]]), I32([2]))


@pytest.mark.parametrize("op", ["BroadcastArgs", "BroadcastGradientArgs"])
def test_broadcast_args_refuse(op):
    assert_refuses(op, [I32([2, 3]), I32([3, 1])], "Incompatible shapes: [2,3] vs. [3,1]")
    assert_refuses(op, [I32([2, 3]), I32([4])], "Incompatible shapes: [2,3] vs. [4]")
    assert_refuses(op, [I32([[2, 3]]), I32([4])], "In[0] must be a vector.[1,2]")
    assert_refuses(op, [I32([2]), I32(4)], "In[1] must be a vector.[]")
