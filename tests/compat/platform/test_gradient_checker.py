"""`tf.test.compute_gradient`, `tf.resource_loader`, and options of records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aexec.compat.v1 as tf


def test_gradients_are_compared_with_differences() -> None:
    x, w = tf.constant([[1.0, 2.0]]), tf.constant([[1.0], [3.0]])
    y = tf.matmul(x, w) ** 2
    with tf.Session():
        theory, numeric = tf.test.compute_gradient(x, [1, 2], y, [1, 1], x_init_value=np.array([[1.0, 2.0]]))
        np.testing.assert_allclose(theory, [[14.0], [42.0]])
        np.testing.assert_allclose(numeric, theory, rtol=1e-2)
        assert tf.test.compute_gradient_error([x, w], [[1, 2], [2, 1]], y, [1, 1]) < 0.02
        rows = tf.gather(w, [0, 0])
        theory, _ = tf.test.compute_gradient(w, [2, 1], rows, [2, 1])
        np.testing.assert_array_equal(theory, [[1, 1], [0, 0]])


def test_resources_are_beside_the_module() -> None:
    path = tf.resource_loader.get_path_to_datafile("test_gradient_checker.py")
    assert Path(path) == Path(__file__) and tf.resource_loader.load_resource("__init__.py") == b""


def test_records_are_compressed_by_options(tmp_path: Path) -> None:
    options = tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP)
    path = str(tmp_path / "records")
    with tf.python_io.TFRecordWriter(path, options) as writer:
        writer.write(b"one")
    assert list(tf.python_io.tf_record_iterator(path, options)) == [b"one"]
    assert list(tf.python_io.tf_record_iterator(path, "GZIP")) == [b"one"]
    with pytest.raises(ValueError, match="Not a valid compression_type"):
        tf.io.TFRecordOptions("ZIP")


def test_builder_writes_a_model(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    v = tf.get_variable("v", initializer=2.0)
    y = tf.multiply(x, v, name="y")
    builder = tf.saved_model.builder.SavedModelBuilder(str(tmp_path / "model"))
    info = tf.saved_model.utils.build_tensor_info
    method = tf.saved_model.signature_constants.PREDICT_METHOD_NAME
    signature = tf.saved_model.signature_def_utils.build_signature_def({"x": info(x)}, {"y": info(y)}, method)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        tags = [tf.saved_model.tag_constants.SERVING]
        builder.add_meta_graph_and_variables(sess, tags, {"serving_default": signature})
    assert builder.save().endswith("saved_model.pb")
    with tf.Session(graph=tf.Graph()) as sess:
        tf.saved_model.loader.load(sess, tags, str(tmp_path / "model"))
        np.testing.assert_array_equal(sess.run("y:0", {"x:0": [1.0, 2.0]}), [2, 4])
    with pytest.raises(AssertionError, match="isn't empty"):
        tf.saved_model.Builder(str(tmp_path / "model"))
