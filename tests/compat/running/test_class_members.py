"""Members of savers, scaffolds, supervisors, writers, graphs and variables that programs use beside the common ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf


def test_saver_is_made_of_its_message(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    saver = tf.train.Saver(max_to_keep=3)
    message = saver.to_proto()
    assert message is not None and message.restore_op_name == "save/restore_all"
    again = tf.train.Saver.from_proto(message)
    with tf.Session() as sess:
        sess.run(v.initializer)
        path = again.save(sess, str(tmp_path / "m"), global_step=1)
        sess.run(v.assign([0.0, 0.0]))
        saver.restore(sess, path)
        assert sess.run(v).tolist() == [1, 2]
    assert saver.to_proto("elsewhere") is None
    scoped = saver.to_proto("save")
    assert scoped is not None and scoped.restore_op_name == "restore_all"
    again.build()


def test_kept_checkpoints_are_set_and_recovered(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=1.0)
    paths = []
    with tf.Session() as sess:
        sess.run(v.initializer)
        first = tf.train.Saver(max_to_keep=9)
        paths = [first.save(sess, str(tmp_path / "m"), global_step=step) for step in range(3)]
        later = tf.train.Saver(max_to_keep=2)
        later.recover_last_checkpoints([*paths, str(tmp_path / "none")])
        assert later.last_checkpoints == paths
        last = later.save(sess, str(tmp_path / "m"), global_step=3)
        assert later.last_checkpoints == [paths[2], last]
        assert not tf.train.checkpoint_exists(paths[0])
        later.set_last_checkpoints(paths[2:])
        assert later.last_checkpoints == paths[2:]


@pytest.mark.parametrize("as_text", [False, True])
def test_saver_exports_a_meta_graph(tmp_path: Path, as_text: bool) -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(v.initializer)
        path = saver.save(sess, str(tmp_path / "m"), write_meta_graph=False)
    file = tmp_path / "folder" / ("m.pbtxt" if as_text else "m.meta")
    message = saver.export_meta_graph(str(file), as_text=as_text)
    assert message.saver_def == saver.to_proto()
    assert b"restore_op_name:" in file.read_bytes() or not as_text
    tf.reset_default_graph()
    restored = tf.train.import_meta_graph(str(file))
    assert restored is not None
    with tf.Session() as sess:
        restored.restore(sess, path)
        assert sess.run("v:0").tolist() == [1, 2]


def test_scaffold_takes_the_one_item_of_a_collection() -> None:
    made = tf.train.Scaffold.get_or_default("x", "mine", lambda: 5)
    assert made == 5 and tf.get_collection("mine") == [5]
    assert tf.train.Scaffold.get_or_default("x", "mine", lambda: 6) == 5
    tf.add_to_collection("mine", 7)
    with pytest.raises(RuntimeError, match="More than one item in the collection"):
        tf.train.Scaffold.get_or_default("x", "mine", lambda: 6)
    local = tf.get_local_variable("l", initializer=2)
    with tf.Session() as sess:
        sess.run(tf.train.Scaffold.default_local_init_op())
        assert sess.run(local) == 2


def test_chief_session_creator_makes_a_session(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=3.0)
    saver = tf.train.Saver()
    creator = tf.train.ChiefSessionCreator(tf.train.Scaffold(saver=saver), checkpoint_dir=str(tmp_path))
    with creator.create_session() as sess:
        assert sess.run(v) == 3
        sess.run(v.assign(4.0))
        saver.save(sess, str(tmp_path / "m"), global_step=1)
    with creator.create_session() as sess:
        assert sess.run(v) == 4
    with pytest.raises(NotImplementedError):
        tf.train.SessionCreator().create_session()


def test_supervisor_by_its_old_names(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=3.0)
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    assert supervisor.is_chief and supervisor.save_model_secs == 0
    session = supervisor.PrepareSession(start_standard_services=False)
    assert supervisor.StartStandardServices(session) == []
    with supervisor.StopOnException():
        assert session.run(v) == 3
        assert not supervisor.ShouldStop()
        raise ValueError("over")
    assert supervisor.ShouldStop()
    with pytest.raises(ValueError, match="over"):
        supervisor.Stop()
    session.close()
    with pytest.raises(NotImplementedError, match="ready_op"):
        tf.train.Supervisor(ready_op=tf.constant(1))


def test_writer_is_reopened_and_takes_meta_graphs(tmp_path: Path) -> None:
    tf.constant(1, name="c")
    writer = tf.summary.FileWriter(str(tmp_path), filename_suffix=".first")
    writer.add_meta_graph(tf.train.export_meta_graph(), 4)
    writer.reopen()  # is open
    writer.close()
    (path,) = tmp_path.iterdir()
    found = [event.meta_graph_def for event in tf.train.summary_iterator(str(path)) if event.meta_graph_def]
    assert b"c" in found[0]
    writer.reopen()
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="t", simple_value=1)]), 1)
    writer.close()
    assert len(list(tmp_path.iterdir())) >= 1
    with pytest.raises(TypeError, match="MetaGraphDef"):
        writer.add_meta_graph(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("use_resource", [False, True])
def test_members_of_variables(use_resource: bool) -> None:
    v: Any = tf.get_variable("v", initializer=np.arange(6).reshape(2, 3), use_resource=use_resource)
    count: Any = tf.get_variable("count", initializer=0, use_resource=use_resource)
    rows = tf.IndexedSlices(tf.constant([[9], [8]], tf.int64), tf.constant([[0], [2]]))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(v.gather_nd([[0, 1], [1, 2]])).tolist() == [1, 5]
        up = count.count_up_to(2)
        assert [sess.run(up), sess.run(up)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(up)
        assert sess.run(v.batch_scatter_update(rows)).tolist() == [[9, 1, 2], [3, 4, 8]]
    assert v.aggregation == tf.VariableAggregation.NONE
    assert v.synchronization == tf.VariableSynchronization.AUTO
    scope: Any = tf.get_variable_scope()
    scope.set_caching_device("/cpu:0")
    assert scope.caching_device is None
    assert v.SaveSliceInfo is not None


def test_members_of_graphs() -> None:
    graph: Any = tf.get_default_graph()
    x = tf.constant(1, name="x")
    with graph.colocate_with(x.op):
        y = tf.identity(x)
    assert y.op.colocation_groups() == [b"loc:@x"]
    assert graph.is_feedable(x) and graph.is_fetchable(x.op) and not graph.building_function
    assert graph.graph_def_versions.producer == graph.as_graph_def().versions.producer


def test_gradient_of_a_tensor_array() -> None:
    array = tf.TensorArray(tf.float32, 2).unstack([1.0, 2.0])
    gradients = array.grad("mine").write(0, 5.0)
    gradients = gradients.write(0, 2.0).write(1, 1.0)
    with tf.Session() as sess:
        assert sess.run(gradients.stack()).tolist() == [7, 1]


def test_configuration_of_initializers() -> None:
    """TensorFlow's answers."""
    assert tf.zeros_initializer().get_config() == {"dtype": "float32"}
    assert tf.constant_initializer(3.0).get_config() == {"value": 3.0, "dtype": "float32"}
    normal: Any = tf.random_normal_initializer(0, 2, seed=3)
    assert normal.get_config() == {"mean": 0, "stddev": 2, "seed": 3, "dtype": "float32"}
    assert tf.variance_scaling_initializer().get_config() == {
        "scale": 1.0,
        "mode": "fan_in",
        "distribution": "truncated_normal",
        "seed": None,
        "dtype": "float32",
    }
    assert tf.glorot_uniform_initializer(seed=2).get_config() == {"seed": 2, "dtype": "float32"}
    assert tf.orthogonal_initializer(dtype=tf.float64).get_config() == {"gain": 1.0, "seed": None, "dtype": "float64"}
    again = type(normal).from_config(normal.get_config())
    with tf.Session() as sess:
        first, second = sess.run([normal([3]), again([3])])
    assert first.tolist() == second.tolist()


def test_members_of_files_options_and_tables(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    with tf.gfile.GFile(str(path)) as file:
        assert file.next() == "a\n"
        assert list(file) == ["b\n"]
    kinds = [None, "", "GZIP", tf.io.TFRecordOptions("ZLIB"), tf.python_io.TFRecordCompressionType.GZIP]
    names = [tf.io.TFRecordOptions.get_compression_type_string(kind) for kind in kinds]
    assert names == ["", "", "GZIP", "ZLIB", "GZIP"]
    assert tf.io.TFRecordOptions.compression_type_map == {0: "", 1: "ZLIB", 2: "GZIP"}
    with pytest.raises(ValueError, match="Not a valid compression_type"):
        tf.io.TFRecordOptions("zip")
    with pytest.raises(ValueError, match="Invalid Reduction Key x"):
        tf.losses.Reduction.validate("x")
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
    words = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([0], tf.int64)), 2)
    assert words.name and words.key_dtype == tf.string
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        assert [array.tolist() for array in sess.run(list(table.export()))] == [[b"a"], [1]]
