"""Sessions that wait, and that are awaited, with TensorFlow's arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors


def test_feeds_fetches_options() -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.placeholder(tf.int32, [None])
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.Session(config=config) as sess:
        assert sess.graph is tf.get_default_graph() and tf.get_default_session() is sess
        # Arrays of other types are taken as TensorFlow takes them.
        found = sess.run({"x": x * 2, "y": [y, tf.no_op()]}, feed_dict={x: np.array([1, 2]), y: np.array([1.0])})
        assert found["x"].tolist() == [2, 4] and found["y"][0].tolist() == [1] and found["y"][1] is None
        assert sess.run("x:0", {"x:0": np.array([True])}).tolist() == [1]
        metadata = tf.RunMetadata()
        sess.run(x, {x: [1.0]}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
        assert metadata.step_stats.dev_stats
        assert sess.make_callable(x + 1, [x])([1.0]).tolist() == [2]
        assert [device.device_type for device in sess.list_devices()] == ["CPU"]
        with pytest.raises(errors.InvalidArgumentError, match="must feed"):
            sess.run(x)
        later = tf.square(x)  # Nodes may be added.
        assert sess.run(later, {x: [3.0]}).tolist() == [9]
    assert tf.get_default_session() is None
    with pytest.raises(errors.FailedPreconditionError):
        sess.run(x, {x: [1.0]})


class Pair(NamedTuple):
    a: Any
    b: Any


def test_fetched_arrays_may_be_written_into() -> None:
    v, one = tf.get_variable("v", initializer=[1.0, 2.0]), tf.constant([1.0, 2.0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found = sess.run(Pair([v, one], {"x": (tf.identity(v), tf.reshape(one, [2, 1]))}))
        call = sess.make_callable([v])
        for array in (*found.a, *found.b["x"], *call()):
            array += 1
        assert isinstance(found, Pair) and isinstance(found.b["x"], tuple)
        assert [one.tolist() for one in sess.run([v, one])] == [[1, 2], [1, 2]]


def test_partial_runs() -> None:
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    first = a + 1
    second = first * b
    with tf.Session() as sess:
        handle = sess.partial_run_setup([first, second], [a, b])
        assert sess.partial_run(handle, first, {a: 1.0}) == 2
        assert sess.partial_run(handle, second, feed_dict={b: 3.0}) == 6


def test_sessions_inside_each_other() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant(5)
    outer = tf.InteractiveSession()
    try:
        assert tf.get_default_session() is outer and tf.constant(4).eval() == 4
        with tf.Session(graph=graph) as inner:
            assert x.eval() == 5 and tf.get_default_graph() is graph and tf.get_default_session() is inner
        with outer.as_default():
            assert tf.constant(6).eval() == 6
    finally:
        outer.close()
    assert tf.get_default_session() is None and "tf.Session" in repr(inner)


def test_sparse_tensors_are_fed_and_fetched() -> None:
    x = tf.sparse_placeholder(tf.float32, [3, 4])
    dense = tf.sparse_tensor_to_dense(x)
    value = tf.SparseTensorValue(np.array([[0, 1]]), np.array([2.0], np.float32), np.array([3, 4]))
    with tf.Session() as sess:
        array, again = sess.run([dense, x], {x: value})
    assert array[0, 1] == 2 and array.sum() == 2
    assert again.indices.tolist() == [[0, 1]] and again.dense_shape.tolist() == [3, 4]


async def test_awaited() -> None:
    x = tf.placeholder(tf.float32, [])
    v = tf.get_variable("v", [], initializer=tf.ones_initializer)
    async with tf.AsyncSession() as sess:
        assert isinstance(sess.awaitable, aexec.Session) and tf.get_default_session() is sess
        await v.initializer.run()
        assert await (x * v).eval({x: 3}) == 3
        metadata = tf.RunMetadata()
        await sess.run(v, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
        assert metadata.step_stats.dev_stats
        assert await sess.make_callable(x + 1, [x])(1.0) == 2
        assert len(sess.list_devices()) == 1 and "tf.AsyncSession" in repr(sess)
    assert tf.get_default_session() is None


class State(NamedTuple):
    c: Any
    h: Any


def test_structures_are_keys_of_feeds() -> None:
    a, b = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    x, y = np.float32([1, 2]), np.float32([2, 2])
    with tf.Session() as sess:
        for feeds in ({(a, b): (x, y)}, {State(a, b): State(x, y)}, {(a, (b,)): [x, [y]]}, {State(a, b): [x, y]}):
            assert sess.run(a + b, feeds).tolist() == [3, 4]
        with pytest.raises(ValueError, match="stands for 2 tensors, and was fed 1 values"):
            sess.run(a + b, {(a, b): x})
        with pytest.raises(ValueError, match="fed more than once"):
            sess.run(a + b, {(a, b): (x, y), a: x})


def test_values_fed_for_inner_tensors_have_their_shape() -> None:
    inner = tf.constant(2.0) * 3.0
    rows = tf.placeholder(tf.float32, [None, 2]) * 1.0
    with tf.Session() as sess:
        assert sess.run(inner + 1.0, {inner: 5.0}) == 6 and sess.run(rows, {rows: [[1, 2]]}).tolist() == [[1, 2]]
        with pytest.raises(
            ValueError, match=r"Cannot feed value of shape \(2,\) for Tensor mul:0, which has shape \(\)"
        ):
            sess.run(inner, {inner: [1.0, 2.0]})
        with pytest.raises(ValueError, match=r"shape \(2,\) for Tensor .* which has shape \(\?, 2\)"):
            sess.run(rows, {rows: np.float32([1, 2])})


def test_numbers_are_fed_as_tensors_are() -> None:
    number, flag = tf.placeholder(tf.int32, []), tf.placeholder(tf.bool, [])
    with tf.Session() as sess:
        assert sess.run(number, {number: 1.5}) == 1 and sess.run(number, {number: True}) == 1
        assert not sess.run(flag, {flag: 0})
        with pytest.raises(TypeError, match="is not compatible with Tensor type"):
            sess.run(number, {number: 2**40})
        with pytest.raises(TypeError, match="Cannot interpret feed_dict key as Tensor"):
            sess.run(number, {"nope:0": 1})


def test_graph_of_a_session() -> None:
    x = tf.constant(1, name="x")
    with tf.Session() as sess:
        assert sess.graph_def.node[0].name == "x" and sess.sess_str == ""
    with aexec.SyncSession(x.graph) as session:
        assert session.graph_def == sess.graph_def


async def test_closed_sessions_and_empty_graphs() -> None:
    x = tf.constant(1)
    async with tf.AsyncSession() as sess:
        assert await sess.make_callable(x)() == 1
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        await sess.run(x)
    async with tf.AsyncSession(graph=tf.Graph()) as sess:
        with pytest.raises(RuntimeError, match="The Session graph is empty"):
            await sess.run("x:0")
