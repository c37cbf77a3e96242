"""The operation of an error, and its definition."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.running.session import AsyncSession


def failing() -> Any:
    return tf.matmul(*(tf.placeholder_with_default([[1.0, 2.0]], [None, None]) for _ in range(2)), name="bad")


def check(error: Any, op: Any) -> None:
    assert error.op is op and error.op.name == "bad" and error.op.type == "MatMul"
    assert error.node_def.op == "MatMul" and error.error_code == tf.errors.INVALID_ARGUMENT
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.node, copied.op, copied.op_type, copied.node_def) == ("bad", "MatMul", "MatMul", None)


def test_sessions_name_the_operation() -> None:
    bad = failing()
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(bad)
    check(caught.value, bad.op)
    with tf.train.MonitoredSession() as training, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        training.run(bad)
    check(caught.value, bad.op)


async def test_awaited_sessions_too() -> None:
    bad = failing()
    async with AsyncSession() as sess:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            await sess.run(bad)
    check(caught.value, bad.op)


def test_errors_that_programs_make() -> None:
    op = tf.constant(1.0, name="c").op
    error: Any = tf.errors.InvalidArgumentError(op.node_def, op, "words")
    assert error.op is op and error.node_def.name == "c" and error.message == "words" and error.op_type == "Const"
    plain: Any = tf.errors.NotFoundError(None, None, "words")
    assert plain.op is plain.node_def is plain.op_type is None and str(plain) == "words"
