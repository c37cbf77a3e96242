"""Assertions: on known values they fail while the graph is built, on others in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (tf.assert_negative, [[-1, -2]], [[-1, 0]]),
        (tf.assert_non_positive, [[0, -2]], [[-1, 1]]),
        (tf.assert_none_equal, [[1, 2], [2, 1]], [[1, 2], [2, 2]]),
        (tf.assert_near, [[1.0], [1.0 + 1e-6]], [[1.0], [1.0 + 1e-5]]),
    ],
)
def test_check_fails_in_a_run(check: Any, good: list[Any], bad: list[Any]) -> None:
    with tf.Session() as sess:
        sess.run(check(*good))
        with pytest.raises(errors.InvalidArgumentError, match="assertion failed"):
            sess.run(check(*bad))


@pytest.mark.parametrize(
    "check",
    [lambda x, **say: tf.assert_equal(x, 2, **say), lambda x, **say: tf.assert_near(tf.to_float(x), 2.0, **say)],
)
def test_failed_check_says_its_message_before_the_given_data(check: Any) -> None:
    with tf.Session() as sess, pytest.raises(errors.InvalidArgumentError, match=r"(?s)eq!.*why.*7") as failed:
        sess.run(check(tf.placeholder_with_default(1, []), message="eq!", data=["why", tf.constant(7)]))
    assert failed.value.error_code == tf.errors.INVALID_ARGUMENT == 3


def test_tolerances_of_near() -> None:
    with tf.Session() as sess:
        sess.run(tf.assert_near([2.0], [2.2], rtol=0.0, atol=0.3))
        with pytest.raises(errors.InvalidArgumentError):
            sess.run(tf.debugging.assert_near([2.0], [2.2], rtol=0.05, atol=0.0))


def test_known_rank_or_type_is_refused_at_once() -> None:
    x = tf.constant([[1.0]])
    for check in (
        tf.assert_rank_at_least(x, 2),
        tf.assert_rank_in(x, [1, 2]),
        tf.assert_type(x, tf.float32),
        tf.assert_integer([1]),
    ):
        assert check.type == "NoOp"
    assert tf.assert_scalar(1.0).dtype == tf.float32 and tf.assert_same_float_dtype([x]) is tf.float32
    for call in (
        lambda: tf.assert_rank_at_least(x, 3),
        lambda: tf.assert_rank_in(x, [0, 1]),
        lambda: tf.assert_scalar(x),
        lambda: tf.assert_same_float_dtype([x], tf.float64),
    ):
        with pytest.raises(ValueError, match=r"rank|scalar|type"):
            call()
    for wrong in (
        lambda: tf.assert_type(x, tf.int32),
        lambda: tf.assert_integer(x),
        lambda: tf.assert_proper_iterable(x),
    ):
        with pytest.raises(TypeError, match=r"type|iterable"):
            wrong()
    tf.assert_proper_iterable([x])
    assert tf.is_numeric_tensor(x) and not tf.is_numeric_tensor(tf.constant("a"))


def test_unknown_rank_is_checked_in_a_run() -> None:
    x = tf.placeholder(tf.float32)
    checks = [tf.assert_rank_at_least(x, 1), tf.assert_rank_in(x, [1, 2])]
    with tf.Session() as sess:
        sess.run(checks, {x: [1.0]})
        for check in checks:
            with pytest.raises(errors.InvalidArgumentError, match="assertion failed"):
                sess.run(check, {x: 1.0})


def test_order_of_elements_and_bits() -> None:
    with tf.Session() as sess:
        ordered = [tf.is_non_decreasing([1, 1, 2]), tf.is_non_decreasing([2, 1]), tf.is_strictly_increasing([1, 1])]
        bits = [tf.bitwise.bitwise_xor(5, 3), tf.bitwise.left_shift(1, 4), tf.bitwise.invert(0)]
        found = sess.run([*ordered, *bits])
    assert found == [True, False, False, 6, 16, -1]


def test_saturation_and_hue_of_integers() -> None:
    image = np.array([[[200, 100, 50]]], np.uint8)
    box = tf.image.sample_distorted_bounding_box([4, 4, 3], [[[0.0, 0.0, 1.0, 1.0]]], seed=1)
    with tf.Session() as sess:
        gray, same = sess.run([tf.image.adjust_saturation(image, 0.0), tf.image.adjust_hue(image, 0.0)])
        lively = sess.run([tf.image.random_saturation(image, 0.5, 1.5, 1), tf.image.random_hue(image, 0.2, 1)])
        begin, size, _ = sess.run(box)
    assert gray.tolist() == [[[200, 200, 200]]] and same.tolist() == image.tolist()
    assert all(one.dtype == np.uint8 for one in lively) and (begin + size <= [4, 4, 3])[:2].all()
    with pytest.raises(ValueError, match="upper must be > lower"):
        tf.image.random_saturation(image, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"max_delta must be <= 0\.5"):
        tf.image.random_hue(image, 0.6)


class TestAddCheckNumericsOps:
    def test_first_wrong_value_is_named(self) -> None:
        x = tf.placeholder(tf.float32, [2], name="x")
        y = tf.log(x, name="y")
        tf.sqrt(y, name="z")
        tf.cast(tf.constant([1, 2]), tf.int64)
        with tf.Session() as session:
            check = tf.add_check_numerics_ops()
            session.run(check, {x: [2, 3]})
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"y:0 : Tensor had Inf"):
                session.run(check, {x: [0, 3]})
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"z:0 : Tensor had NaN"):
                session.run(check, {x: [0.5, 3]})

    def test_each_waits_for_the_one_before(self) -> None:
        tf.sqrt(tf.placeholder(tf.float64, name="x"), name="y")
        check = tf.add_check_numerics_ops()
        (last,) = check.control_inputs
        (first,) = last.control_inputs
        assert (last.inputs[0].name, first.inputs[0].name, check.type) == ("y:0", "x:0", "NoOp")

    def test_branches_are_refused(self) -> None:
        x = tf.placeholder(tf.float32, [])
        tf.cond(x > 0, lambda: x * 2, lambda: x)
        with pytest.raises(ValueError, match="not compatible with TensorFlow control flow"):
            tf.add_check_numerics_ops()
