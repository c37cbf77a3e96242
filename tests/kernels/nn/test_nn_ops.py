"""Biases, top-k and losses: known answers, slow models, TensorFlow's messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes
from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses, assert_same, example_of, shapes
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

NUMBERS = [t.np for t in dtypes.NUMBER]
REAL = [t.np for t in dtypes.REAL_NUMBER]
FLOATS = [t.np for t in dtypes.FLOAT]
TOLERANCE = {np.dtype(np.float16): 5e-3, np.dtype(ml_dtypes.bfloat16): 4e-2, np.dtype(np.float32): 1e-5}


# TensorFlow's kernels of TopK ask for an attr that the op has not, so that no graph can use them.
@pytest.mark.parametrize("op", sorted(set(ops_of("nn.nn_ops")) - {"TopK"}))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def test_k_of_top_k_may_be_an_attr():
    assert_gives("TopK", [F32([[1, 3, 2]])], (F32([[3, 2]]), I32([[1, 2]])), k=2)


def assert_close(got, want, dtype):
    assert got.dtype == dtype
    tolerance = TOLERANCE.get(np.dtype(dtype), 1e-9)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


# Bias


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bias_of_every_type(dtype):
    x, bias = example_of((2, 3, 4), dtype), example_of((4,), dtype, seed=1)
    for op in ("BiasAdd", "BiasAddV1"):
        assert_gives(op, [x, bias], x + bias)
    want = x.reshape(6, 4).astype(np.float64 if x.dtype.kind != "c" else np.complex128).sum(0).astype(dtype)
    assert_gives("BiasAddGrad", [x], want)


@pytest.mark.parametrize("shape", [(1500, 7), (3, 61, 59, 5), (20000, 1), (100, 128), (100, 129)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.complex64])
def test_bias_of_many_short_rows(shape, dtype):
    """Rows that are left over when others are joined get it as well."""
    x, bias = example_of(shape, dtype), example_of(shape[-1:], dtype, seed=1)
    assert_same(run_op("BiasAdd", [x, bias]), x + bias)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 2)])
def test_bias_of_the_second_dimension(shape):
    x, bias = example_of(shape, np.float32), F32([1, 2, 3])
    want = x + bias.reshape(3, *[1] * (len(shape) - 2))
    assert_gives("BiasAdd", [x, bias], want, data_format="NCHW")
    others = tuple(i for i in range(len(shape)) if i != 1)
    assert_gives("BiasAddGrad", [x], x.sum(others) if len(shape) > 2 else x.sum(0), data_format="NCHW")


@pytest.mark.parametrize(
    ("x", "bias", "attrs", "message"),
    [
        ([1, 2], [1, 2], {}, "Input tensor must be at least 2D: [2]"),
        ([[1, 2]], [[1, 2]], {}, "Biases must be 1D: [1,2]"),
        (
            [[1, 2]],
            [1],
            {},
            "Must provide as many biases as the last dimension of the input tensor: [1] vs. [1,2]",
        ),
        (
            np.zeros((2, 3, 4)),
            [1] * 4,
            {"data_format": "NCHW"},
            "Must provide as many biases as the last dimension of the input tensor: [4] vs. [2,3,4]",
        ),
    ],
)
def test_bias_errors(x, bias, attrs, message):
    assert_refuses("BiasAdd", [F32(x), F32(bias)], message, **attrs)


def test_bias_gradient_of_half_precision_is_added_in_float():
    grad = np.full((5000, 1), 1, np.float16)
    assert_gives("BiasAddGrad", [grad], np.array([5000], np.float16))
    assert_refuses("BiasAddGrad", [F32([1])], "Input tensor must be at least 2D: [1]")


# Top k


def test_in_top_k():
    scores = F32([[1, 2, 3], [3, 3, 1], [0, np.inf, 1], [np.nan, 1, 2], [1, 2, 3]])
    for targets, k, want in (
        ([2, 1, 0, 2, 0], 1, [True, True, False, False, False]),
        ([0, 2, 2, 1, 3], 3, [True, True, False, False, False]),
        ([1, 2, 0, 0, -1], 2, [True, False, False, False, False]),
        ([2, 0, 0, 0, 2], 0, [False] * 5),
    ):
        for index_type in (np.int32, np.int64):
            at = np.array(targets, index_type)
            assert_gives("InTopK", [scores, at], np.array(want), k=k)
            assert_gives("InTopKV2", [scores, at, index_type(k)], np.array(want))


def test_in_top_k_errors():
    assert_refuses("InTopK", [F32([1]), I32([0])], "predictions must be 2-dimensional", k=1)
    assert_refuses("InTopK", [F32([[1]]), I32([[0]])], "targets must be 1-dimensional", k=1)
    message = "First dimension of predictions 2 must match length of targets 1"
    assert_refuses("InTopK", [F32([[1], [2]]), I32([0])], message, k=1)
    assert_refuses("InTopKV2", [F32([[1]]), I32([0]), I32([1])], "k must be 0-D, got shape [1]")


@pytest.mark.parametrize("dtype", REAL)
def test_top_k_of_every_type(dtype):
    x = np.array([[1, 3, 2, 3], [0, 0, 1, 0]], dtype)
    want = np.array([[3, 3, 2], [1, 0, 0]], dtype), I32([[1, 3, 2], [2, 0, 1]])
    assert_gives("TopKV2", [x, np.int32(3)], want)
    assert_gives("TopKV2", [x, np.int64(3)], (want[0], want[1].astype(np.int16)), index_type="int16")
    assert_gives("NthElement", [x, np.int32(1)], np.array([2, 0], dtype))
    assert_gives("NthElement", [x, np.int32(0)], np.array([3, 1], dtype), reverse=True)


@given(st.data())
def test_top_k_is_a_stable_sort(data):
    shape = data.draw(shapes(min_rank=1, max_rank=3, min_size=1, max_size=7))
    k = data.draw(st.integers(0, shape[-1]))
    x = example_of(shape, np.float32)
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    want = np.take_along_axis(x, order, -1), order.astype(np.int32)
    assert_gives("TopKV2", [x, np.int32(k)], want)


@pytest.mark.parametrize("k", [0, 1, 5, 60])
@pytest.mark.parametrize("values", [7, 10_000])
def test_top_k_of_long_rows(k, values):
    x = np.random.default_rng(0).integers(0, values, (2, 1000)).astype(np.float32)
    order = np.argsort(-x, axis=-1, kind="stable")[:, :k].astype(np.int32)
    assert_gives("TopKV2", [x, np.int32(k)], (np.take_along_axis(x, order, -1), order))


def test_nan_is_largest():
    values, where = run_op("TopKV2", [F32([1, np.nan, 3, np.nan]), np.int32(3)])
    assert_same(values, F32([np.nan, np.nan, 3]))
    assert where.tolist() == [1, 3, 2]


def test_top_k_of_many_long_rows_with_nan_and_infinities():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (50, 100)).astype(np.float32)
    x[::2, ::7], x[1::2, ::5] = np.inf, -np.inf
    for filled in (x, np.where(rng.random(x.shape) < 0.1, np.float32(np.nan), x)):
        key = np.where(np.isnan(filled), np.inf, filled)
        rank = np.isnan(filled)
        order = np.lexsort((np.broadcast_to(np.arange(100), x.shape), -key, ~rank), axis=-1)[:, :7].astype(np.int32)
        assert_gives("TopKV2", [filled, np.int32(7)], (np.take_along_axis(filled, order, -1), order))


def test_top_k_errors():
    assert_refuses("TopKV2", [F32([1, 2]), np.int32(3)], "input must have at least k columns. Had 2, needed 3")
    assert_refuses("TopKV2", [F32([1, 2]), np.int32(-1)], "Need k >= 0, got -1")
    assert_refuses("TopKV2", [F32(1), np.int32(0)], "input must be >= 1-D, got shape []")
    assert_refuses("TopKV2", [F32([1]), I32([1])], "k must be scalar, got shape [1]")
    message = "Second dimension of flattened input must be <= 32767, got 40000"
    assert_refuses("TopKV2", [np.zeros(40000, np.float32), np.int32(1)], message, index_type="int16")
    assert_refuses("NthElement", [F32([1, 2]), np.int32(2)], "Input must have last dimension > n = 2")
    assert_refuses("NthElement", [F32([1, 2]), np.int32(-1)], "n must be non-negative but is -1")
    assert_refuses("NthElement", [F32(1), np.int32(0)], "Input must be at least rank 1 but is rank 0")
    assert_refuses("NthElement", [F32([1]), I32([0])], "N must be scalar but has rank 1")


# Losses


def softmax(x):
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_losses(dtype):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(0, 3, (5, 4)).astype(dtype), rng.random((5, 4)).astype(dtype)
    exact, weights = logits.astype(np.float64), labels.astype(np.float64)
    logs = np.log(softmax(exact))
    loss, grad = run_op("SoftmaxCrossEntropyWithLogits", [logits, labels])
    assert_close(loss, -(weights * logs).sum(1), dtype)
    assert_close(grad, np.exp(logs) - weights, dtype)
    for index_type in (np.int32, np.int64):
        classes = np.array([0, 3, 1, 1, 2], index_type)
        loss, grad = run_op("SparseSoftmaxCrossEntropyWithLogits", [logits, classes])
        assert_close(loss, -logs[np.arange(5), classes], dtype)
        assert_close(grad, np.exp(logs) - np.eye(4)[classes], dtype)


def test_softmax_losses_of_large_logits():
    loss, grad = run_op("SoftmaxCrossEntropyWithLogits", [F32([[1000, 0]]), F32([[0, 1]])])
    assert_same(loss, F32([1000]))
    assert_same(grad, F32([[1, -1]]))
    loss, _ = run_op("SparseSoftmaxCrossEntropyWithLogits", [F32([[-np.inf, 1], [-np.inf, -np.inf]]), I32([1, 0])])
    assert_same(loss, F32([0, np.nan]))


def test_softmax_loss_broadcasts():
    one, many = F32([[1, 2, 3]]), F32([[1, 2, 3], [1, 2, 3]])
    want = run_op("SoftmaxCrossEntropyWithLogits", [many, many])
    for inputs in ([one, many], [many, one], [many, one[0]]):
        assert_gives("SoftmaxCrossEntropyWithLogits", inputs, want)


def test_losses_of_nothing():
    for shape in ((0, 3), (2, 0)):
        x = np.zeros(shape, np.float32)
        want = np.zeros(shape[0], np.float32), x
        assert_gives("SoftmaxCrossEntropyWithLogits", [x, x], want)
    x = np.zeros((0, 3), np.float32)
    assert_gives("SparseSoftmaxCrossEntropyWithLogits", [x, I64([])], (F32([]), x))


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (
            (2, 3),
            [0, 3],
            "Received a label value of 3 which is outside the valid range of [0, 3).  Label values: 0 3",
        ),
        ((3,), [0], "logits must be 2-D, but got shape [3]"),
        ((2, 3), [[0, 1]], "labels must be 1-D, but got shape [1,2]"),
        (
            (2, 3),
            [0],
            "logits and labels must have the same first dimension, got logits shape [2,3] and labels shape [1]",
        ),
        ((2, 0), [0, 0], "Must have at least one class, but got logits shape [2,0]"),
    ],
)
def test_sparse_loss_errors(logits, labels, message):
    assert_refuses("SparseSoftmaxCrossEntropyWithLogits", [np.zeros(logits, np.float32), I32(labels)], message)


def test_loss_errors():
    message = "logits and labels must be broadcastable: logits_size=[1,3] labels_size=[1,2]"
    assert_refuses("SoftmaxCrossEntropyWithLogits", [F32([[1, 2, 3]]), F32([[1, 2]])], message)
    message = "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
    assert_refuses("SoftmaxCrossEntropyWithLogits", [F32([1]), F32([1])], message)
