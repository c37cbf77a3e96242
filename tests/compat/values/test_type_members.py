"""TensorFlow's members of types and of rows of a tensor; the answers are TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest

import aexec.compat.v1 as tf

# name: is_bool, is_numeric, is_unsigned, is_numpy_compatible, limits or None, real_dtype
TYPES: dict[str, tuple[bool, bool, bool, bool, Any, str]] = {
    "float16": (False, True, False, True, None, "float16"),
    "bfloat16": (False, True, False, True, None, "bfloat16"),
    "float32": (False, True, False, True, (0, 1), "float32"),
    "float64": (False, True, False, True, (0, 1), "float64"),
    "int4": (False, False, False, True, None, "int4"),
    "int8": (False, True, False, True, (0, 127), "int8"),
    "int64": (False, True, False, True, (0, 9223372036854775807), "int64"),
    "uint4": (False, False, True, True, None, "uint4"),
    "uint8": (False, True, True, True, (0, 255), "uint8"),
    "uint64": (False, True, True, True, (0, 18446744073709551615), "uint64"),
    "bool": (True, False, False, True, (0, True), "bool"),
    "complex64": (False, True, False, True, None, "float32"),
    "complex128": (False, True, False, True, None, "float64"),
    "qint8": (False, True, False, True, None, "qint8"),
    "quint16": (False, True, False, True, None, "quint16"),
    "string": (False, False, False, True, None, "string"),
    "resource": (False, False, False, False, None, "resource"),
    "variant": (False, False, False, False, None, "variant"),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(name: str) -> None:
    kind: Any = tf.as_dtype(name)
    is_bool, is_numeric, is_unsigned, is_numpy_compatible, limits, real = TYPES[name]
    assert (kind.is_bool, kind.is_numeric, kind.is_unsigned) == (is_bool, is_numeric, is_unsigned)
    assert kind.is_numpy_compatible == is_numpy_compatible
    assert kind.real_dtype.name == real
    if limits is None:
        with pytest.raises(ValueError, match=f"{name} does not have defined limits"):
            _ = kind.limits
    else:
        assert kind.limits == limits


def test_a_ref_type_is_taken_where_its_type_is_wanted() -> None:
    kind: Any = tf.float32
    ref: Any = tf.as_dtype("float32_ref")
    assert kind.is_compatible_with(tf.float32)
    assert kind.is_compatible_with("float32_ref")
    assert not ref.is_compatible_with("float32")
    assert not kind.is_compatible_with("float64")


def test_rows_have_the_members_of_their_values() -> None:
    values = tf.zeros([2, 3], name="rows")
    rows: Any = tf.IndexedSlices(values, tf.constant([0, 1]))
    assert (rows.name, rows.op.name, rows.dtype, rows.device) == ("rows:0", "rows", tf.float32, "")
    assert rows.graph is tf.get_default_graph()
    assert rows.shape.ndims is None
    whole: Any = tf.IndexedSlices(values, tf.constant([0, 1]), tf.stack([tf.placeholder(tf.int32, []), 3]))
    assert whole.shape.as_list() == [None, 3]
    assert whole.consumers() == []
    used = tf.identity(whole.values)
    assert whole.consumers() == [used.op]


def test_errors_are_made_of_tensorflows_arguments() -> None:
    definition = tf.constant(1, name="c").op.node_def
    plain: Any = tf.errors.OutOfRangeError(None, None, "the end")
    assert (plain.message, plain.node, plain.op, str(plain)) == ("the end", None, None, "the end")
    of_node: Any = tf.errors.InvalidArgumentError(definition, None, "wrong")
    assert (of_node.message, of_node.node, of_node.op) == ("wrong", "c", "Const")
    with pytest.raises(TypeError, match="OpError takes a message, or node_def, op and message"):
        tf.errors.OpError(None, "two")
