"""What tensors, variables and operations print, as TensorFlow's do."""

from __future__ import annotations

import aexec
import aexec.compat.v1 as tf


def test_variables() -> None:
    v = tf.Variable(tf.zeros([2, 3]), name="a/v", use_resource=False)
    r = tf.get_variable("r", [3], use_resource=True)
    u = tf.Variable(tf.placeholder(tf.float32), validate_shape=False, name="u")
    assert repr(v) == str(v) == "<tf.Variable 'a/v:0' shape=(2, 3) dtype=float32_ref>"
    assert repr(r) == "<tf.Variable 'r:0' shape=(3,) dtype=float32>"
    assert repr(u) == "<tf.Variable 'u:0' shape=<unknown> dtype=float32_ref>"


def test_tensors() -> None:
    scalar, rows, unknown = tf.constant(1.0), tf.placeholder(tf.float64, [None, 3]), tf.placeholder(tf.int32)
    assert repr(scalar) == "<tf.Tensor 'Const:0' shape=() dtype=float32>"
    assert repr(rows) == "<tf.Tensor 'Placeholder:0' shape=(None, 3) dtype=float64>"
    assert repr(unknown) == "<tf.Tensor 'Placeholder_1:0' shape=<unknown> dtype=int32>"
    assert f"{scalar}" == 'Tensor("Const:0", shape=(), dtype=float32)'
    assert str(rows) == 'Tensor("Placeholder:0", shape=(None, 3), dtype=float64)'
    assert str(unknown) == 'Tensor("Placeholder_1:0", dtype=int32)'
    assert repr(rows.op) == "<tf.Operation 'Placeholder' type=Placeholder>"


def test_other_graphs_print_as_before() -> None:
    with aexec.Graph():
        x = aexec.placeholder("float32", [None, 2], name="x")
        v = aexec.Variable([1.0], name="v")
    assert repr(x) == str(x) == "<Tensor 'x:0' shape=[?,2] dtype=float>"
    assert repr(v) == "<Variable 'v:0' shape=[1] dtype=float>" and repr(x.op) == "<Node 'x' Placeholder()>"


def test_types_by_number() -> None:
    assert tf.DType(1) is tf.float32 and tf.DType(101).name == "float32_ref"
