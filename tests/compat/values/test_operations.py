"""Operations and tensors of a `tf.Graph`, with TensorFlow's methods; those of other graphs stay as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import proto
from aexec.compat.v1.values.operations import Operation


def test_inputs_are_tensors() -> None:
    a, b = tf.constant([1.0], name="a"), tf.constant([2.0], name="b")
    with tf.control_dependencies([tf.no_op(name="first")]):
        y = tf.add(a, b, name="y")
    assert y.op.inputs == (a, b) and [op.name for op in y.op.control_inputs] == ["first"]
    assert [op.name for op in a.consumers()] == ["y"] and y.consumers() == []
    assert isinstance(y.op, Operation) and y.op.outputs == y.op.values() == (y,)
    assert y.value_index == 0 and y.ndim == 1 and y.device == y.op.device == ""


def test_inputs_of_a_native_graph_are_numbers() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 2])
        y = aexec.ops.neg(x)
    assert y.node.inputs == ((0, 0),) and y.node.control_inputs == () and graph.node("Neg").colocation_groups == []
    assert list(x.shape) == [None, 2] and not x.shape.is_fully_defined and x.shape.num_elements is None


def test_attrs_are_messages() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    assert x.op.get_attr("dtype") is tf.float32 and x.op.get_attr("shape").dim[1].size == 2
    assert tf.constant(3).op.get_attr("value").int_val[:] == [3]
    with pytest.raises(ValueError, match="has no attr named 'nope'"):
        x.op.get_attr("nope")


def test_definition_of_a_node() -> None:
    x = tf.constant(3, name="x")
    y = tf.negative(x, name="y")
    assert y.op.node_def == tf.get_default_graph().as_graph_def().node[1]
    assert y.op.node_def.input[:] == ["x"] and y.op.node_def.op == y.op.type == y.op.op_def.name == "Neg"
    assert str(y.op) == str(y.op.node_def) and isinstance(y.op.node_def, proto.NodeDef)
    assert [arg.name for arg in y.op.op_def.input_arg] == ["x"] and y.op.op_def.attr[0].name == "T"
    assert y.op.traceback[0].filename == __file__
    with aexec.Graph() as graph:
        aexec.constant(1, name="one")
    assert graph.node("one").node_def.name == "one"


def test_colocation_groups_are_names() -> None:
    a = tf.constant(1, name="a")
    with tf.colocate_with(a.op):
        b = tf.constant(2)
    assert b.op.colocation_groups() == [b"loc:@a"] == a.op.colocation_groups()


def test_references_stand_for_tensors() -> None:
    x, v = tf.constant(1), tf.Variable(1.0)
    assert x.ref() == x.op.outputs[0].ref() != v.ref() and {x.ref(): 1}[x.op.outputs[0].ref()] == 1
    assert v.ref().deref() is v and v.ref() == v.ref()


def test_operations_in_functions_have_the_same_methods() -> None:
    seen = []

    def body(x: tf.Tensor) -> tf.Tensor:
        seen.append((x.shape, (x + 1).op.inputs))
        return x

    aexec.function(body)(tf.placeholder(tf.float32, [None, 3]))
    shape, inputs = seen[0]
    assert shape.as_list() == [None, 3] and shape[0].value is None and inputs[0].dtype is tf.float32


def test_modules_read_edges_and_no_inputs() -> None:
    """Inputs of a node are numbers in one graph, and tensors in another; edges are numbers in all."""
    folder = Path(aexec.__file__).parent
    read = re.compile(r"\b(?:node|merge|switch|other|consumer|producer)\.(?:inputs|control_inputs|colocation_groups)\b")
    paths = [path for path in folder.rglob("*.py") if "compat" not in path.parts]
    assert not [str(path) for path in paths if read.search(path.read_text(encoding="utf-8"))]
