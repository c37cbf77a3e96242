"""Parts of graphs: `tf.graph_util`."""

from __future__ import annotations

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec import errors


def inference_graph() -> tf.GraphDef:
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.identity(tf.stop_gradient(tf.identity(x * 2.0, name="a"), name="b"), name="c")
    checked = tf.check_numerics(y, "wrong", name="check")
    with tf.control_dependencies([checked]):
        waits = tf.identity(checked + 1.0, name="waits")
    waited = tf.identity(waits, name="waited")
    with tf.control_dependencies([waited]):
        tf.identity(waited * 3.0, name="out")
    graph_def: tf.GraphDef = tf.get_default_graph().as_graph_def()
    return graph_def


def names(graph_def: tf.GraphDef) -> set[str]:
    return {node.name for node in graph_def.node}


def test_nodes_that_only_check_or_pass_on_are_removed() -> None:
    before = inference_graph()
    after = tf.graph_util.remove_training_nodes(before, ["out"])
    assert names(before) - names(after) == {"a", "b", "c", "check", "waits"}
    assert after.versions == before.versions
    with tf.Graph().as_default():
        (out,) = tf.import_graph_def(after, return_elements=["out:0"], name="")
        with tf.Session() as session:
            assert session.run(out, {"x:0": np.float32([1, 2])}).tolist() == [9, 15]


def test_protected_and_colocated_nodes_stay() -> None:
    before = inference_graph()
    (add,) = (node for node in before.node if node.op == "Mul" and "x" in node.input)
    add.attr["_class"].list.s.append(b"loc:@b")
    after = tf.graph_util.remove_training_nodes(before, ["check", "out"])
    assert names(before) - names(after) == {"a", "c", "waits"}
    assert {"b", "check"} < names(after)
    assert next(node for node in after.node if node.name == "check").input[:] == ["b"]


def test_circle_of_removed_nodes_is_refused() -> None:
    graph_def = tf.GraphDef()
    for name, source in (("a", "b"), ("b", "a"), ("c", "a")):
        graph_def.node.add(name=name, op="Identity", input=[source])
    with pytest.raises(errors.InvalidArgumentError, match="circle of nodes"):
        tf.graph_util.remove_training_nodes(graph_def, ["c"])


def test_graph_is_imported_and_shapes_are_found_by_names_of_inputs() -> None:
    tf.placeholder(tf.float32, [None, 3], name="x")
    graph_def = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as graph:
        (x,) = tf.graph_util.import_graph_def(graph_def, return_elements=["x:0"], name="in")
        assert x.name == "in/x:0"
        for name in ("in/x", "in/x:0", "^in/x"):
            assert tf.graph_util.tensor_shape_from_node_def_name(graph, name).as_list() == [None, 3]
