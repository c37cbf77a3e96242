"""The CTC loss against the sum over all paths, its gradient against differences; decoding by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.array_support import assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op


@pytest.mark.parametrize("op", ops_of("nn.ctc_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def sparse(rows):
    indices = [(b, i) for b, row in enumerate(rows) for i in range(len(row))]
    return np.array(indices, np.int64).reshape(-1, 2), np.array([v for row in rows for v in row], np.int32)


def loss(x, rows, lengths, **attrs):
    return run_op("CTCLoss", [x, *sparse(rows), np.int32(lengths)], **attrs)


def read(path, blank, merge):
    """The labels that a path stands for."""
    if merge:
        path = [v for v, _ in itertools.groupby(path)]
    return [v for v in path if v != blank]


def by_paths(x, row, merge=True):
    """Negative logarithm of the probability of all paths that stand for the row; x is [time, classes]."""
    p = np.exp(x.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    time, classes = x.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=time):
        if read(path, classes - 1, merge) == list(row):
            total += float(np.prod(p[np.arange(time), list(path)]))
    return -np.log(total) if total else np.inf


def logits(*shape, dtype=np.float64):
    return np.random.default_rng(list(shape)).normal(0, 1.5, shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
@pytest.mark.parametrize("merge", [True, False])
def test_loss_is_that_of_all_paths(dtype, tolerance, merge):
    x, rows, lengths = logits(5, 4, 3, dtype=dtype), [[0, 1], [1, 1], [0], [1, 0, 1]], [5, 4, 1, 3]
    values, gradient = loss(x, rows, lengths, ctc_merge_repeated=merge)
    want = [by_paths(x[:n, b], row, merge) for b, (n, row) in enumerate(zip(lengths, rows, strict=True))]
    assert (values.dtype, gradient.dtype) == (dtype, dtype)
    np.testing.assert_allclose(values, want, rtol=tolerance)


@pytest.mark.parametrize("merge", [True, False])
def test_gradient(merge):
    x, rows, lengths = logits(4, 2, 4), [[0, 2, 2], [1]], [4, 3]
    _, gradient = loss(x, rows, lengths, ctc_merge_repeated=merge)
    want, step = np.zeros(x.shape), 1e-5
    for at in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * step
            ends.append(loss(moved, rows, lengths, ctc_merge_repeated=merge)[0].sum())
        want[at] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(gradient, want, atol=1e-8)
    assert not gradient[3, 1].any()


def test_large_logits_do_not_overflow():
    x = np.where(logits(30, 1, 3) > 0, 1e4, -1e4)
    values, gradient = loss(x, [[0, 1, 0]], [30])
    assert np.isfinite(values).all()
    assert np.isfinite(gradient).all()


def test_collapsed_labels():
    x = logits(6, 1, 3)
    want = loss(x, [[0, 1]], [6])
    got = loss(x, [[0, 0, 1, 1]], [6], preprocess_collapse_repeated=True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_loss_without_a_path_is_infinite():
    values, gradient = loss(np.zeros((2, 1, 4)), [[1, 1]], [2])
    assert values.tolist() == [np.inf]
    np.testing.assert_allclose(gradient, 0.25)


def test_longer_labels_are_left_out_if_asked():
    x = logits(2, 2, 4)
    values, gradient = loss(x, [[0, 1, 2], [1]], [2, 2], ignore_longer_outputs_than_inputs=True)
    assert values[0] == 0
    assert not gradient[:, 0].any()
    np.testing.assert_allclose(values[1], by_paths(x[:, 1], [1]))


def test_null_labels_end_the_list():
    x = logits(5, 1, 4)
    np.testing.assert_array_equal(loss(x, [[1, 0, 3]], [5])[0], loss(x, [[1, 0]], [5])[0])


LONGER = "You can turn this error into a warning by using the flag ignore_longer_outputs_than_inputs"


@pytest.mark.parametrize(
    ("rows", "lengths", "message"),
    [
        ([[1, 2], [0]], [5], "len(sequence_length) != batch_size.  len(sequence_length):  1 batch_size: 2"),
        ([[1, 2], [0]], [5, 6], "sequence_length(1) <= 5"),
        ([[1, 2], [0]], [5, -1], "seq_len(1) < 0"),
        (
            [[1, 2], [0]],
            [5, 0],
            f"Not enough time for target transition sequence (required: 1, available: 0)1{LONGER}",
        ),
        ([[1, 2], [-1]], [5, 4], "All labels must be nonnegative integers, batch: 1 labels: -1"),
        (
            [[1, 3, 2], [1]],
            [5, 4],
            "Saw a non-null label (index >= num_classes - 1) following a null label, batch: 0 "
            "num_classes: 4 labels: 1,3,2 labels seen so far: 1",
        ),
        ([[1], []], [5, 5], "Labels length is zero in batch 1"),
        (
            [[1], [0], [1]],
            [5, 5],
            "label SparseTensor is not valid: indices[2] = [2,0] is out of bounds: need 0 <= index < [2,1]",
        ),
    ],
)
def test_loss_refuses(rows, lengths, message):
    assert_refuses("CTCLoss", [np.zeros((5, 2, 4), np.float32), *sparse(rows), np.int32(lengths)], message)


@pytest.mark.parametrize(
    ("indices", "values", "message"),
    [
        (np.zeros((2, 3)), [0, 0], "Order length must be SparseTensor rank."),
        (
            np.zeros((2, 2)),
            [0, 0, 0],
            "labels_indices and labels_values must contain the same number of rows, but saw shapes: [2,2] vs. [3]",
        ),
        (
            [[1, 0], [0, 0]],
            [0, 0],
            "label SparseTensor is not valid: indices[1] = [0,0] is out of order. "
            "Many sparse ops require sorted indices.\n"
            "    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",
        ),
        ([[0, 0], [0, 0]], [0, 0], "label SparseTensor is not valid: indices[1] = [0,0] is repeated"),
    ],
)
def test_loss_refuses_labels_that_are_no_sparse_tensor(indices, values, message):
    inputs = [np.zeros((5, 2, 4), np.float32), np.int64(indices), np.int32(values), np.int32([5, 5])]
    assert_refuses("CTCLoss", inputs, message)


def test_loss_refuses_no_time():
    inputs = [np.zeros((0, 2, 4), np.float32), *sparse([[0], [0]]), np.int32([0, 0])]
    assert_refuses("CTCLoss", inputs, "Max time or first dimension of input cannot be 0.")


def test_loss_refuses_no_sequences():
    inputs = [np.zeros((3, 0, 4), np.float32), np.zeros((0, 2), np.int64), np.int32([]), np.int32([])]
    assert_refuses("CTCLoss", inputs, "batch_size must not be 0")


def greedy_inputs(*rows):
    """Logits whose maxima are at the given classes: 4 minus the time at the class, 0 elsewhere; three classes."""
    x = np.zeros((max(map(len, rows)), len(rows), 3), np.float32)
    for b, row in enumerate(rows):
        for t, best in enumerate(row):
            x[t, b, best] = 4 - t
    return x


@pytest.mark.parametrize(
    ("attrs", "rows"),
    [
        ({}, [[0, 0, 1], [1]]),
        ({"merge_repeated": True}, [[0, 1], [1]]),
        ({"blank_index": 0}, [[2, 1], [2, 1]]),
        ({"blank_index": -2}, [[0, 0, 2], [2]]),
    ],
)
def test_greedy(attrs, rows):
    x = greedy_inputs([0, 0, 2, 1], [2, 1, 0])
    indices, values, shape, total = run_op("CTCGreedyDecoder", [x, np.int32([4, 2])], **attrs)
    want_indices, want_values = sparse(rows)
    np.testing.assert_array_equal(indices, want_indices)
    assert values.tolist() == want_values.tolist()
    assert shape.tolist() == [2, max(map(len, rows))]
    assert total.tolist() == [[-10], [-7]]


def test_greedy_without_time():
    indices, values, shape, total = run_op("CTCGreedyDecoder", [greedy_inputs([0], [1]), np.int32([0, 0])])
    assert (indices.shape, values.shape, shape.tolist(), total.tolist()) == ((0, 2), (0,), [2, 0], [[0], [0]])


@pytest.mark.parametrize(
    ("shape", "lengths", "attrs", "error", "message"),
    [
        (
            (5, 2, 4),
            [5],
            {},
            errors.FailedPreconditionError,
            "len(sequence_length) != batch_size.  len(sequence_length):  1 batch_size: 2",
        ),
        ((5, 2, 4), [5, 6], {}, errors.FailedPreconditionError, "sequence_length(1) <= 5"),
        ((5, 2, 4), [[5, 6]], {}, errors.InvalidArgumentError, "sequence_length is not a vector"),
        ((2, 4), [5, 6], {}, errors.InvalidArgumentError, "inputs is not a 3-Tensor"),
        ((0, 2, 4), [0, 0], {}, errors.InvalidArgumentError, "inputs must not be empty"),
        (
            (5, 2, 4),
            [5, 4],
            {"blank_index": 4},
            errors.InvalidArgumentError,
            "blank_index expected to be between -4 and 3 but was 4",
        ),
    ],
)
def test_greedy_refuses(shape, lengths, attrs, error, message):
    inputs = [np.zeros(shape, np.float32), np.int32(lengths)]
    assert_refuses("CTCGreedyDecoder", inputs, message, error, **attrs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_beam_finds_the_likeliest_sequences(dtype):
    x, lengths = logits(4, 2, 3, dtype=dtype), [4, 3]
    outputs = run_op("CTCBeamSearchDecoder", [x, np.int32(lengths)], beam_width=100, top_paths=2, merge_repeated=False)
    indices, values, shapes, scores = outputs[:2], outputs[2:4], outputs[4:6], outputs[6]
    assert scores.dtype == dtype
    for b, length in enumerate(lengths):
        rows = [row for n in range(length + 1) for row in itertools.product(range(2), repeat=n)]
        costs = sorted((by_paths(x[:length, b], row), row) for row in rows)
        for path in range(2):
            cost, row = costs[path]
            mine = indices[path][:, 0] == b
            assert values[path][mine].tolist() == list(row)
            assert indices[path][mine, 1].tolist() == list(range(len(row)))
            assert shapes[path].tolist()[0] == 2
            assert shapes[path][1] == np.bincount(indices[path][:, 0], minlength=2).max()
            np.testing.assert_allclose(scores[b, path], -cost, rtol=1e-5)


def test_beam_search_merges_repeated_labels_of_the_result():
    x = greedy_inputs([0, 2, 0]) * 5
    attrs = {"beam_width": 4, "top_paths": 1}
    assert run_op("CTCBeamSearchDecoder", [x, np.int32([3])], merge_repeated=False, **attrs)[1].tolist() == [0, 0]
    assert run_op("CTCBeamSearchDecoder", [x, np.int32([3])], **attrs)[1].tolist() == [0]


@pytest.mark.parametrize(
    ("lengths", "attrs", "message"),
    [
        ([2, 2], {"beam_width": 1, "top_paths": 2}, "requested more paths than the beam width."),
        ([0, 2], {"beam_width": 3, "top_paths": 2}, "Less leaves in the beam search than requested."),
    ],
)
def test_beam_search_refuses(lengths, attrs, message):
    assert_refuses("CTCBeamSearchDecoder", [np.zeros((2, 2, 2), np.float32), np.int32(lengths)], message, **attrs)
