"""Gather, scatter, partition, stitch: known answers, loops for random ones, TensorFlow's messages."""

from __future__ import annotations

import itertools
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.array import gather_scatter_ops
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

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
INDEX_TYPES = (np.int16, np.int32, np.int64)


@pytest.mark.parametrize("op", ops_of("array.gather_scatter_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


# Gather


@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize(
    ("indices", "axis", "want"),
    [
        ([2, 0, 2], 0, TABLE[[2, 0, 2]]),
        ([[1], [3]], 1, TABLE[:, [[1], [3]]]),
        ([3, 3], -1, TABLE[:, [3, 3]]),
        (1, 0, TABLE[1]),
        (2, 1, TABLE[:, 2]),
        ([], 0, np.zeros((0, 4), np.float32)),
    ],
)
def test_gather(indices, axis, want, index_type):
    assert_gives("GatherV2", [TABLE, np.array(indices, index_type), np.int32(axis)], want)
    if axis == 0 and index_type is not np.int16:
        assert_gives("Gather", [TABLE, np.array(indices, index_type)], want)


REPEATED = np.broadcast_to(np.float32(7), (4, 1 << 20, 2))
TURNED = np.arange(240_000, dtype=np.float32).reshape(30, 4, 2000).transpose(1, 2, 0)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize(("op", "axis"), [("GatherV2", [1]), ("GatherNd", [])])
@pytest.mark.parametrize("params", [REPEATED, TURNED], ids=["repeated", "turned"])
def test_gather_copies_no_large_params_to_pick_some(params, op, axis, index_type):
    """`take` would, whatever it picks, on the event loop and uncounted."""
    indices = np.array([[1, 1]], index_type)
    built, inputs, _ = build(op, [params, indices, *map(np.int32, axis)])
    tracemalloc.start()
    try:
        got = built.compute(*inputs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_same(got, params[:, indices] if axis else params[1, 1][None])
    assert peak < got.nbytes + 100_000


@pytest.mark.parametrize("params", [REPEATED[:, :50], TURNED], ids=["repeated", "turned"])
def test_gather_from_batches_of_large_params(params):
    assert_gives("GatherV2", [params, I32([[1]] * 4), np.int32(1)], params[:, 1:2], batch_dims=1)


@pytest.mark.parametrize(
    ("params", "copied"),
    [(TURNED, 0), (TURNED.transpose(1, 0, 2), 240_000 * 4), (REPEATED[:, :50], 0)],
    ids=["view", "copy", "repeated"],
)
def test_gather_from_batches_counts_a_copy_where_it_makes_one(params, copied, monkeypatch):
    announced = []
    monkeypatch.setattr(gather_scatter_ops, "announce_scratch", announced.append)
    indices = I32([[1]] * len(params))
    assert_gives("GatherV2", [params, indices, np.int32(1)], params[:, 1:2], batch_dims=1)
    assert max(announced, default=0) == copied


@pytest.mark.parametrize("at", [-1, 2000])
def test_gather_refuses_indices_into_large_params_that_are_turned(at):
    for dtype in (I32, I64):
        message = f"indices[0] = {at} is not in [0, 2000)"
        assert_refuses("GatherV2", [TURNED, dtype([at]), np.int32(1)], message)


@pytest.mark.parametrize("dtype", [*ELEMENT_TYPES, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
def test_gather_of_every_type(dtype):
    x = example_of((4, 3), np.float32).astype(dtype) if "float8" in str(dtype) else example_of((4, 3), dtype)
    assert_gives("GatherV2", [x, I32([3, 1]), np.int32(0)], x[[3, 1]])
    assert_gives("GatherNd", [x, I32([[3, 1], [0, 2]])], x[[3, 0], [1, 2]])


def test_gathered_string_is_an_array():
    assert_gives("GatherV2", [strings("a", "b"), np.int32(1), np.int32(0)], np.array(b"b", object))


@given(st.data())
def test_gather_is_numpys(data):
    shape = data.draw(shapes(min_rank=1, min_size=1))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = np.array(data.draw(st.lists(st.integers(0, shape[axis] - 1), max_size=20)), np.int64)
    x = example_of(shape, np.int32)
    for index_type in INDEX_TYPES:
        assert_gives("GatherV2", [x, indices.astype(index_type), np.int32(axis)], np.take(x, indices, axis))


@given(st.data())
def test_batch_gather_is_a_loop(data):
    shape = data.draw(shapes(min_rank=2, max_rank=4, min_size=1))
    batch = data.draw(st.integers(1, len(shape) - 1))
    axis = data.draw(st.integers(batch, len(shape) - 1))
    inner = data.draw(shapes(max_rank=2, max_size=3))
    x = example_of(shape, np.int32)
    rng = np.random.default_rng(0)
    indices = rng.integers(0, shape[axis], (*shape[:batch], *inner))
    want = np.zeros((*shape[:axis], *inner, *shape[axis + 1 :]), np.int32)
    for at in itertools.product(*map(range, shape[:batch])):
        want[at] = np.take(x[at], indices[at], axis - batch)
    assert_gives("GatherV2", [x, indices, np.int32(axis)], want, batch_dims=batch)
    assert_gives("GatherV2", [x, indices, np.int32(axis)], want, batch_dims=batch - indices.ndim) if inner else None


@pytest.mark.parametrize(
    ("x", "indices", "axis", "attrs", "message"),
    [
        (TABLE, [0, 3], 0, {}, "indices[1] = 3 is not in [0, 3)"),
        (TABLE, [[0, 1], [-1, 7]], 0, {}, "indices[1,0] = -1 is not in [0, 3)"),
        (TABLE, 5, 0, {}, "indices = 5 is not in [0, 3)"),
        (TABLE, -1, 1, {}, "indices = -1 is not in [0, 4)"),
        (TABLE, [0] * 20 + [4], 1, {}, "indices[20] = 4 is not in [0, 4)"),
        (TABLE, [0] * 20 + [-4], 1, {}, "indices[20] = -4 is not in [0, 4)"),
        (TABLE, [0], 2, {}, "Shape must be at least rank 3 but is rank 2"),
        (TABLE, [0], [0], {}, "axis must be scalar"),
        (F32(1), [0], 0, {}, "params must be at least 1 dimensional"),
        (TABLE, [[0], [4], [0]], 1, {"batch_dims": 1}, "indices[1,0] = 4 is not in [0, 4)"),
        (TABLE, [[0], [1]], 1, {"batch_dims": 1}, "params.shape[0]: 3 should be equal to indices.shape[0]: 2"),
        (TABLE, [0], 1, {"batch_dims": 2}, "Expected batch_dims in the range [-1, 1], but got 2"),
        (TABLE, [0, 1, 2], 0, {"batch_dims": 1}, "batch_dims (1) must be less than or equal to axis (0)."),
    ],
)
@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_gather_errors(x, indices, axis, attrs, message, index_type):
    assert_refuses("GatherV2", [x, np.array(indices, index_type), I32(axis)], message, **attrs)


def test_indices_into_nothing_are_not_looked_at():
    assert_gives("GatherV2", [np.zeros((3, 0), np.float32), I32([7]), np.int32(0)], np.zeros((1, 0), np.float32))


# GatherNd


@given(st.data())
def test_gather_nd_is_a_loop(data):
    shape = data.draw(shapes(min_rank=1, min_size=1))
    depth = data.draw(st.integers(0, len(shape)))
    outer = data.draw(shapes(max_rank=2, max_size=3))
    rng = np.random.default_rng(1)
    indices = np.stack([rng.integers(0, n, outer) for n in shape[:depth]], -1) if depth else np.zeros((*outer, 0), int)
    x = example_of(shape, np.int32)
    want = np.zeros((*outer, *shape[depth:]), np.int32)
    for at in itertools.product(*map(range, outer)):
        want[at] = x[tuple(indices[at])]
    assert_gives("GatherNd", [x, indices.astype(np.int32)], want)


@pytest.mark.parametrize(
    ("x", "indices", "message"),
    [
        (
            TABLE,
            [[0, 1], [2, 4]],
            "indices[1] = [2, 4] does not index into param shape [3,4], node name: GatherNd",
        ),
        (TABLE, [[[-1]]], "indices[0,0] = [-1] does not index into param shape [3,4], node name: GatherNd"),
        (TABLE, [[0, 0, 0]], "index innermost dimension length must be <= params rank; saw: 3 vs. 2"),
        (TABLE, 0, "indices must be at least a vector"),
        (F32(1), [0], "params must be at least a vector"),
        (TABLE[:0], [[0]], "Requested more than 0 entries, but params is empty.  Params shape: [0,4]"),
    ],
)
def test_gather_nd_errors(x, indices, message):
    assert_refuses("GatherNd", [x, I32(indices)], message)


def test_bad_indices_can_be_ignored():
    where = I32([[2, 3], [3, 0]])
    assert_gives("GatherNd", [TABLE, where], F32([11, 0]), bad_indices_policy="IGNORE")
    assert_gives("ScatterNd", [I32([[1], [9]]), F32([5, 6]), I32([3])], F32([0, 5, 0]), bad_indices_policy="IGNORE")
    message = "Unknown bad indices handling attribute: GUESS"
    assert_refuses("ScatterNd", [I32([[0]]), F32([1]), I32([1])], message, bad_indices_policy="GUESS")


# Scatter

COMBINE = {
    "TensorScatterAdd": lambda a, b: a + b,
    "TensorScatterSub": lambda a, b: a - b,
    "TensorScatterMax": np.maximum,
    "TensorScatterMin": np.minimum,
    "TensorScatterUpdate": lambda a, b: b,
    "ScatterNdNonAliasingAdd": lambda a, b: a + b,
}


@pytest.mark.parametrize("op", COMBINE)
@given(data=st.data())
def test_scatter_is_a_loop(op, data):
    shape = data.draw(shapes(min_rank=1, max_rank=3, min_size=1))
    depth = data.draw(st.integers(1, len(shape)))
    outer = data.draw(shapes(min_rank=1, max_rank=2, min_size=1, max_size=9))
    rng = np.random.default_rng(2)
    indices = np.stack([rng.integers(0, n, outer) for n in shape[:depth]], -1)
    updates = rng.integers(-9, 9, (*outer, *shape[depth:]))
    x = rng.integers(-9, 9, shape)
    want = x.copy()
    for at in itertools.product(*map(range, outer)):
        where = tuple(indices[at])
        want[where] = COMBINE[op](want[where], updates[at])
    for index_type in (np.int32, np.int64):
        assert_gives(op, [x, indices.astype(index_type), updates], want)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_scatter_of_every_type(dtype):
    updates = example_of((4,), dtype)
    out = run_op("ScatterNd", [I32([[4], [1], [0], [3]]), updates, I32([5])])
    assert_same(out[[4, 1, 0, 3]], updates)
    assert out[2] == (b"" if dtype is object else dtype(0))
    assert_gives("TensorScatterUpdate", [updates, I32([[1]]), updates[3:]], updates[[0, 3, 2, 3]])


def test_repeated_indices():
    where = I32([[1], [1], [0]])
    assert_gives("ScatterNd", [where, F32([1, 2, 4]), I64([3])], F32([4, 3, 0]))
    assert_gives("ScatterNd", [where, strings("a", "b", "c"), I32([2])], strings("c", "ab"))
    assert_gives("ScatterNd", [where, np.array([True, True, False]), I32([2])], np.array([False, True]))
    assert_gives("TensorScatterUpdate", [F32([7, 7]), where, F32([1, 2, 4])], F32([4, 2]))


def test_half_precision_is_rounded_after_every_addition():
    where, ones = np.zeros((5000, 1), np.int32), np.ones(5000, np.float16)
    # 2048 + 1 is 2048 in half precision.
    assert_gives("ScatterNd", [where, ones, I32([1])], np.array([2048], np.float16))


def test_maximum_passes_over_nan_in_updates_and_keeps_it_in_the_tensor():
    x, where, updates = F32([1, np.nan, 3]), I32([[0], [1], [2]]), F32([np.nan, 1, 5])
    assert_gives("TensorScatterMax", [x, where, updates], F32([1, np.nan, 5]))
    assert_gives("TensorScatterMin", [x, where, updates], F32([1, np.nan, 3]))


@pytest.mark.parametrize(
    ("indices", "updates", "shape", "message"),
    [
        ([[0], [7]], [1, 2], [5], "indices[1] = [7] does not index into shape [5]"),
        ([[-1], [0]], [1, 2], [5], "indices[0] = [-1] does not index into shape [5]"),
        (
            [[0], [1]],
            [1, 2, 3],
            [5],
            "Dimensions [0,1) of indices[shape=[2,1]] must match dimensions [0,1) of updates[shape=[3]]",
        ),
        (
            [[0], [1]],
            [[1, 2, 3]] * 2,
            [5, 2],
            "Dimensions [1,2) of input[shape=[5,2]] must match dimensions [1,2) of updates[shape=[2,3]]",
        ),
        (0, 1.0, [5], "Indices shape must have rank at least one. Found:[]"),
        ([0], 1.0, [5], "Updates shape must have rank at least one. Found:[]"),
        ([[0]], [1], [[5]], "Shape must be a vector"),
        ([[0]], [1], [-1], "Dimension -1 must be >= 0"),
        ([[0]], [1], [0], "Indices and updates specified for empty output.  indices shape: [1,1]"),
        ([[0]], [1], [], "Indices and updates specified for empty output shape"),
        ([[]], [1], [], "Indices and updates specified for empty output shape"),
    ],
)
def test_scatter_nd_errors(indices, updates, shape, message):
    assert_refuses("ScatterNd", [I32(indices), F32(updates), I32(shape)], message)


def test_scatter_nd_does_not_allocate_what_does_not_fit():
    with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating"):
        run_op("ScatterNd", [I64([[0]]), F32([1]), I64([2**40])])


@pytest.mark.parametrize(
    ("x", "indices", "updates", "message"),
    [
        (TABLE, [[0], [3]], np.zeros((2, 4)), "indices[1] = [3] does not index into shape [3,4]"),
        (
            TABLE,
            [[0], [1]],
            np.zeros((3, 4)),
            "Outer dimensions of indices and update must match. Indices shape: [2,1], updates shape:[3,4]",
        ),
        (
            TABLE,
            [[0], [1]],
            [1, 2],
            "Inner dimensions of output shape must match inner dimensions of updates shape. Output: [3,4] updates: [2]",
        ),
        (
            TABLE,
            [[0], [1]],
            np.zeros((2, 3)),
            "The inner 1 dimensions of output.shape=[3,4] must match the inner 1 dimensions of updates.shape=[2,3]",
        ),
        (TABLE[:0], [[0]], np.zeros((1, 4)), "Indices and updates specified for empty output shape"),
    ],
)
@pytest.mark.parametrize("op", COMBINE)
def test_tensor_scatter_errors(op, x, indices, updates, message):
    assert_refuses(op, [x, I32(indices), F32(updates)], message)


# DynamicPartition, DynamicStitch


def test_dynamic_partition():
    data = TABLE[:, :2]
    assert_gives("DynamicPartition", [data, I32([1, 0, 1])], (data[1:2], data[::2], data[:0]), num_partitions=3)
    parts = run_op("DynamicPartition", [TABLE, I32([[0, 1, 0, 1]] * 3)], num_partitions=2)
    assert_same(parts[1], F32([1, 3, 5, 7, 9, 11]))
    assert_gives("DynamicPartition", [F32(7), np.int32(1)], (F32([]), F32([7])), num_partitions=2)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_partition_and_stitch_of_every_type(dtype):
    x = example_of((6, 2), dtype)
    which = I32([0, 1, 0, 0, 1, 1])
    parts = run_op("DynamicPartition", [x, which], num_partitions=2)
    places = run_op("DynamicPartition", [I32(range(6)), which], num_partitions=2)
    for op in ("DynamicStitch", "ParallelDynamicStitch"):
        assert_gives(op, [list(places), list(parts)], x)


def test_partition_errors():
    message = "partitions[1] = 2 is not in [0, 2)"
    assert_refuses("DynamicPartition", [F32([1, 2, 3]), I32([0, 2, 1])], message, num_partitions=2)
    message = "data.shape must start with partitions.shape, got data.shape = [3], partitions.shape = [2]"
    assert_refuses("DynamicPartition", [F32([1, 2, 3]), I32([0, 1])], message, num_partitions=2)


@pytest.mark.parametrize("op", ["DynamicStitch", "ParallelDynamicStitch"])
def test_stitch(op):
    indices = [I32(6), I32([4, 1]), I32([[5, 2], [0, 3]])]
    rows = [F32([61, 62]), F32([[41, 42], [11, 12]]), F32([[[51, 52], [21, 22]], [[1, 2], [31, 32]]])]
    assert_gives(op, [indices, rows], F32([[10 * i + 1, 10 * i + 2] for i in range(7)]))
    assert_gives(op, [[I32([0]), I32([0])], [F32([1]), F32([2])]], F32([2]))
    assert_gives(op, [[I32([])], [np.zeros((0, 3), np.float32)]], np.zeros((0, 3), np.float32))


@pytest.mark.parametrize(
    ("indices", "rows", "message"),
    [
        ([[0, -1]], [[1, 2]], "indices[1] is out of range"),
        ([[0]], [[1, 2]], "data[0].shape = [2] does not start with indices[0].shape = [1]"),
        (
            [[0], [1]],
            [[1], [[1, 2]]],
            "Need data[0].shape[1:] = data[1].shape[1:], got data[0].shape = [1], data[1].shape = [1,2], "
            "indices[0].shape = [1], indices[1].shape = [1]",
        ),
    ],
)
def test_stitch_errors(indices, rows, message):
    assert_refuses("DynamicStitch", [[I32(i) for i in indices], [F32(r) for r in rows]], message)


def test_costs_grow_with_what_is_picked():
    cost = build("GatherV2", [TABLE, I32([0]), np.int32(0)])[0].cost
    assert cost(TABLE, I32([0] * 100), np.int32(0)) > cost(TABLE, I32([0]), np.int32(0)) > 0
    assert cost(TABLE, I32([0]), np.int32(9)) > 0
