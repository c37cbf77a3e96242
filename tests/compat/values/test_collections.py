"""Collections by any hashable name, and groups of nested inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import aexec
import aexec.compat.v1 as tf

PRIVATE = [("k",), ("__store",), 7, frozenset("a"), tf.float32]


@pytest.mark.parametrize("key", PRIVATE, ids=repr)
def test_key_that_is_no_string_is_private(key: object, tmp_path: Path) -> None:
    tf.add_to_collection(key, 1)
    tf.get_collection_ref(key).append(2)
    v = tf.Variable([1.0], collections=[tf.GraphKeys.GLOBAL_VARIABLES, key])
    graph = tf.get_default_graph()
    assert tf.get_collection(key) == [1, 2, v] and graph.get_collection(key, "Var") == [v]
    assert graph.get_all_collection_keys() == ["variables", "trainable_variables"]
    assert set(tf.train.export_meta_graph(str(tmp_path / "m")).collection_def) == {"variables", "trainable_variables"}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, str(tmp_path / "c"))
    graph.clear_collection(key)
    assert tf.get_collection(key) == []


def test_add_to_collections_takes_a_list_of_keys() -> None:
    tf.add_to_collections(["a", ("k",), "a"], 1)
    tf.get_default_graph().add_to_collections("b", 2)
    assert [tf.get_collection(key) for key in ("a", ("k",), "b")] == [[1], [1], [2]]


def test_group_takes_nested_structures() -> None:
    a, b = tf.constant(1), tf.Variable(2)
    c, rows = tf.no_op(), tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    node = tf.group(a, [b, (c, None)], {"x": rows}, [[]], name="all")
    assert node.name == "all"
    assert {op.type for op in node.control_inputs} == {"Const", "VariableV2", "NoOp"}
    assert len(tf.group(node).control_inputs) == 1 and tf.group().type == "NoOp"
    with pytest.raises(TypeError, match="should be zero or more"):
        tf.group(a, [3])


def test_import_meta_graph_makes_a_saver_of_the_variables(tmp_path: Path) -> None:
    """Where the MetaGraph names none, as TensorFlow does."""
    tf.get_variable("v", [2], initializer=tf.ones_initializer())
    meta = tf.train.export_meta_graph(str(tmp_path / "m.meta"))
    for source, scope in ((str(tmp_path / "m.meta"), None), (meta, "in")):
        tf.reset_default_graph()
        saver = tf.train.import_meta_graph(source, import_scope=scope)
        assert saver is not None
        name = "in/v" if scope else "v"
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            path = saver.save(sess, str(tmp_path / "c"))
            sess.run(tf.assign(tf.global_variables()[0], [3.0, 3.0]))
            saver.restore(sess, path)
            assert sess.run(f"{name}:0").tolist() == [1, 1]
        assert tf.train.list_variables(path) == [(name, [2])]


def test_import_meta_graph_without_variables_makes_no_saver(tmp_path: Path) -> None:
    tf.constant(1, name="c")
    tf.train.export_meta_graph(str(tmp_path / "m.meta"))
    tf.reset_default_graph()
    assert tf.train.import_meta_graph(str(tmp_path / "m.meta")) is None
    assert aexec.Graph().collections.keys == []
