"""The default graph, and TensorFlow's methods of graphs, tensors, shapes and operations."""

from __future__ import annotations

import threading

import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors
from aexec.graph.graph import set_default_graph


def test_default_graph_is_built_into_outside_of_blocks() -> None:
    first = tf.get_default_graph()
    x = tf.constant(1.0, name="x")
    assert x.graph is first and (x + 1).graph is first
    with tf.Graph().as_default() as inner:
        assert tf.get_default_graph() is inner and tf.constant(1.0).graph is inner
    tf.reset_default_graph()
    assert tf.get_default_graph() is not first and len(tf.get_default_graph()) == 0
    seen = []
    thread = threading.Thread(target=lambda: seen.append(tf.get_default_graph()))
    thread.start()
    thread.join()
    assert seen == [tf.get_default_graph()]


def test_default_graph_exists_only_with_this_package() -> None:
    set_default_graph(None)
    with pytest.raises(errors.FailedPreconditionError, match="no graph is being built"):
        aexec.constant(1)
    assert tf.get_default_graph() is tf.get_default_graph()


def test_methods_of_graphs() -> None:
    graph = tf.get_default_graph()
    tf.set_random_seed(7)
    with graph.name_scope("outer"), graph.device("/cpu:0"):
        x = tf.constant([1.0], name="x")
    with graph.control_dependencies([x]):
        y = tf.no_op(name="y")
    graph.add_to_collection("mine", x)
    assert graph.get_operations() == [x.op, y] and graph.seed == 7
    assert graph.get_collection("mine", "out") == [x] == graph.get_collection_ref("mine") == tf.get_collection("mine")
    assert graph.get_all_collection_keys() == ["mine"]
    graph.clear_collection("mine")
    assert tf.get_collection(key="mine") == []
    assert graph.as_graph_def().node[1].input == ["^outer/x"]
    assert graph.unique_name("outer/x") == "outer/x_1"
    assert graph.get_tensor_by_name("outer/x:0") == x
    with graph.container("kept"), graph.gradient_override_map({"Sign": "Identity"}):
        v = tf.Variable(tf.sign(x))
    assert v.op.get_attr("container") == b"kept"


def test_shapes_have_dimensions() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    shape = x.get_shape()
    assert shape.as_list() == x.shape.as_list() == [None, 3] and shape.ndims == x.shape.ndims == 2
    assert shape[1].value == 3 and shape[1] == 3 and shape[0].value is None and not shape[0]
    assert [tf.dimension_value(size) for size in (shape[0], shape[1], x.shape[0], 5)] == [None, 3, None, 5]
    assert shape[1:].as_list() == [3] and repr(shape[0]) == "Dimension(None)"
    x.set_shape([7, None])
    assert x.shape.as_list() == [7, 3]
    with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
        x.set_shape([8, 3])
    assert tf.zeros([int(shape[1])]).shape.as_list() == [3]
    assert tf.broadcast_static_shape([3, 1], [1, 4]).as_list() == [3, 4]


def test_methods_of_tensors_and_operations() -> None:
    v = tf.Variable([1.0, 2.0])
    x = tf.placeholder(tf.float32)
    total = tf.reduce_sum(v * x)
    with pytest.raises(errors.FailedPreconditionError, match="No default session"):
        total.eval({x: 1.0})
    with tf.Session() as sess:
        v.initializer.run()
        assert total.eval({x: 2.0}) == 6.0 and v.eval().tolist() == [1, 2]
        v.load([3.0, 4.0], sess)
        assert v.eval(session=sess).tolist() == [3, 4]
    assert v.initializer.type == "Assign" and total.op.values() == (total,)
    assert isinstance(v, tf.Variable) and isinstance(tf.get_variable("w", [2]), tf.Variable)
    assert isinstance(total, tf.Tensor) and isinstance(total.op, tf.Operation) and not isinstance(total, tf.Variable)
