"""`tf.py_func` handles results and errors of Python functions as TensorFlow 2.21 does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors

ROWS = np.ones((2, 3), np.float32)


def called(function: Any, types: Any) -> Any:
    y = tf.py_func(function, [tf.ones([2, 3])], types)
    with tf.Session() as sess:
        return sess.run(y)


class OwnEnd(StopIteration):
    pass


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (StopIteration, errors.OutOfRangeError),
        (OwnEnd, errors.OutOfRangeError),
        (ValueError, errors.InvalidArgumentError),
        (TypeError, errors.InvalidArgumentError),
        (NotImplementedError, errors.UnimplementedError),
        (MemoryError, errors.ResourceExhaustedError),
        (KeyError, errors.UnknownError),
        (RuntimeError, errors.UnknownError),
        (StopAsyncIteration, errors.UnknownError),
        (errors.AbortedError, errors.AbortedError),
    ],
)
def test_errors_by_their_class(raised: type[Exception], wanted: type[errors.OpError]) -> None:
    def fail(x: Any) -> Any:
        raise raised("boom")

    with pytest.raises(wanted, match="boom") as caught:
        called(fail, tf.float32)
    assert type(caught.value) is wanted


@pytest.mark.parametrize(
    ("result", "types", "words"),
    [
        (ROWS.astype(np.float64), tf.float32, "0-th value returned by .* is double, but expects float"),
        (1.5, tf.float32, "is double, but expects float"),
        (1, tf.int32, "is int64, but expects int32"),
        ([ROWS, 2], [tf.float32, tf.int32], "1-th value .* is int64, but expects int32"),
        ([[1.0, 2.0], [3.0, 4.0]], tf.float32, "returns 2 values, but expects to see 1 values"),
        (ROWS, [tf.float32, tf.float32], "returns 1 values, but expects to see 2 values"),
        (None, tf.float32, "returns 0 values, but expects to see 1 values"),
        (ROWS, [], "returns 1 values, but expects to see 0 values"),
        ("a", tf.float32, "is string, but expects float"),
        (1.5, tf.string, "is double, but expects string"),
        ([[[1.0], [1.0, 2.0]]], tf.float32, "inhomogeneous"),
    ],
)
def test_results_that_do_not_fit(result: Any, types: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        called(lambda x: result, types)


@pytest.mark.parametrize(
    ("result", "types", "wanted"),
    [
        (ROWS, tf.float32, ROWS.tolist()),
        ([ROWS], tf.float32, ROWS.tolist()),
        (ROWS, [tf.float32], [ROWS.tolist()]),
        ([ROWS], [tf.float32], [ROWS.tolist()]),
        ((ROWS,), [tf.float32], [ROWS.tolist()]),
        ((ROWS, np.int32(2)), (tf.float32, tf.int32), [ROWS.tolist(), 2]),
        ("é", tf.string, "é".encode()),
        (b"a", [tf.string], [b"a"]),
        (np.array([b"a", "b"], object), tf.string, [b"a", b"b"]),
        (True, tf.bool, True),
        (1.5, tf.float64, 1.5),
    ],
)
def test_results_that_fit(result: Any, types: Any, wanted: Any) -> None:
    found = called(lambda x: result, types)
    plain = (
        [getattr(value, "tolist", lambda value=value: value)() for value in found] if isinstance(found, list) else found
    )
    assert (plain if isinstance(found, list) else np.asarray(found).tolist()) == wanted


def test_py_func_without_results_is_an_operation() -> None:
    y = tf.py_func(lambda x: None, [tf.ones([2])], [])
    assert isinstance(y, tf.Operation)
    with tf.Session() as sess:
        assert sess.run(y) is None


def test_non_callable_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected func to be callable"):
        tf.py_func(3, [], tf.float32)


def test_objects_are_no_results() -> None:
    with pytest.raises(errors.InternalError, match="Unsupported object type dict"):
        called(lambda x: {"a": 1}, tf.float32)


def test_py_function_gets_values_with_numpy_and_has_no_gradient() -> None:
    x = tf.constant([1.0, 2.0])
    y = tf.py_function(lambda value: value.numpy() * 2 + value, [x], tf.float32)
    pair = tf.py_function(lambda value: [value.numpy().sum(), np.int64(3)], [x], [tf.float32, tf.int64])
    with tf.Session() as sess:
        assert sess.run(y).tolist() == [3, 6] and sess.run(pair) == [3.0, 3]
    with pytest.raises(errors.UnimplementedError, match="has no gradient"):
        tf.gradients(y, x)
