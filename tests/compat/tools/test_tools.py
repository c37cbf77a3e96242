"""The tools for frozen graphs, checkpoints and SavedModels; lines and errors are TensorFlow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec.compat.v1.tools import (
    freeze_graph,
    inspect_checkpoint,
    optimize_for_inference_lib,
    saved_model_utils,
    strip_unused_lib,
)

ROW = [[1.0, 0.0, 0.0]]
EXPECTED = [[0.1192029, 0.8807971]]  # softmax([0 + 1, 1 + 2])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a checkpoint, its graph, its MetaGraph and its SavedModel."""
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", initializer=np.arange(6, dtype=np.float32).reshape(3, 2))
    with tf.device("/cpu:0"):
        b = tf.Variable([1.0, 2.0], name="b")
        y = tf.nn.softmax(tf.nn.bias_add(tf.matmul(x, w), b), name="y")
    tf.identity(tf.check_numerics(y, "bad"), name="checked")
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        saver.save(sess, str(tmp_path / "m"))
        tf.saved_model.simple_save(sess, str(tmp_path / "saved"), {"x": x}, {"y": y})
        for name, as_text in (("g.pbtxt", True), ("g.pb", False)):
            tf.train.write_graph(sess.graph_def, str(tmp_path), name, as_text=as_text)
    message = saver.to_proto()
    assert message is not None
    (tmp_path / "saver.pb").write_bytes(message.SerializeToString())
    return tmp_path


def run(graph_def: Any, output: str = "y:0") -> Any:
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as sess:
        (found,) = tf.import_graph_def(graph_def, return_elements=[output], name="")
        return sess.run(found, {"x:0": ROW})


def frozen(folder: Path, **given: Any) -> Any:
    settings: dict[str, Any] = {
        "input_graph": str(folder / "g.pbtxt"),
        "input_saver": "",
        "input_binary": False,
        "input_checkpoint": str(folder / "m"),
        "output_node_names": "y",
        "restore_op_name": "save/restore_all",
        "filename_tensor_name": "save/Const:0",
        "output_graph": str(folder / "frozen.pb"),
        "clear_devices": True,
        "initializer_nodes": "",
    }
    return freeze_graph.freeze_graph(**{**settings, **given})


@pytest.mark.parametrize("source", ["text", "binary", "saver", "meta graph", "saved model"])
def test_frozen_graph_has_no_variables(files: Path, source: str) -> None:
    given: dict[str, dict[str, Any]] = {
        "text": {},
        "binary": {"input_graph": str(files / "g.pb"), "input_binary": True},
        "saver": {"input_graph": str(files / "g.pb"), "input_saver": str(files / "saver.pb"), "input_binary": True},
        "meta graph": {
            "input_meta_graph": str(files / "m.meta"),
            "input_binary": True,
            "initializer_nodes": "b/Assign",
        },
        "saved model": {"input_saved_model_dir": str(files / "saved"), "input_checkpoint": None},
    }
    made = frozen(files, **given[source])
    written = tf.GraphDef()
    written.ParseFromString((files / "frozen.pb").read_bytes())
    assert written == made
    assert not any("Variable" in node.op or node.device for node in written.node)
    np.testing.assert_allclose(run(written), EXPECTED, rtol=1e-6)


def test_what_cannot_be_frozen(files: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="Input file 'nowhere' does not exist"):
        frozen(files, input_graph="nowhere")
    with pytest.raises(ValueError, match="Input checkpoint 'nowhere' doesn't exist!"):
        frozen(files, input_checkpoint="nowhere")
    with pytest.raises(ValueError, match="supply the name of a node"):
        frozen(files, output_node_names=" ")
    with pytest.raises(NotImplementedError, match="variable_names_blacklist"):
        frozen(files, variable_names_blacklist="w")


def test_graph_is_cut_to_its_use(files: Path) -> None:
    whole = frozen(files, output_node_names="checked")
    made = optimize_for_inference_lib.optimize_for_inference(whole, ["x"], ["checked"], tf.float32.as_datatype_enum)
    assert "CheckNumerics" not in {node.op for node in made.node}
    np.testing.assert_allclose(run(made, "checked:0"), EXPECTED, rtol=1e-6)
    inner = strip_unused_lib.strip_unused(whole, ["MatMul"], ["y"], [tf.float32.as_datatype_enum])
    assert sorted(node.name for node in inner.node if node.op == "Placeholder") == ["MatMul"]
    with pytest.raises(ValueError, match="refer to a Tensor"):
        strip_unused_lib.strip_unused(whole, ["x:0"], ["y"], 1)
    with pytest.raises(KeyError, match="not found"):
        strip_unused_lib.strip_unused(whole, ["nix"], ["y"], 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("", False), "b (DT_BOOL) [1]\nv (DT_FLOAT) [1,2]\nw/x (DT_INT32) []\n\n# Total number of params: 4\n"),
        (
            ("", True),
            "tensor: b (bool) [1]\n[ True]\ntensor: v (float32) [1, 2]\n[[1. 2.]]\ntensor: w/x (int32) []\n3\n"
            "# Total number of params: 4\n",
        ),
        (("w/x", False), "tensor: w/x (int32) []\n3\n# Total number of params: 4\n"),
        (("q", False), "Tensor q not found in checkpoint\n"),
        (
            ("", False, True, "v"),
            "tensor: b (bool) [1]\ntensor: v (float32) [1, 2]\ntensor: w/x (int32) []\n"
            "# Excluding 1 tensors (2 params) that match v when counting.\n# Total number of params: 2\n",
        ),
    ],
)
def test_contents_of_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[Any, ...], expected: str
) -> None:
    tf.get_variable("v", initializer=[[1.0, 2.0]])
    tf.get_variable("w/x", initializer=3)
    tf.get_variable("b", initializer=[True])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(sess, str(tmp_path / "ck"))
    capsys.readouterr()
    inspect_checkpoint.print_tensors_in_checkpoint_file(path, *arguments)
    assert capsys.readouterr().out == expected
    inspect_checkpoint.print_tensors_in_checkpoint_file(str(tmp_path / "nix"), "", False)
    assert "nix" in capsys.readouterr().out


def test_parts_of_a_saved_model(files: Path) -> None:
    folder = str(files / "saved")
    assert saved_model_utils.get_saved_model_tag_sets(folder) == [["serve"]]
    found = saved_model_utils.get_meta_graph_def(folder, "serve")
    assert list(found.signature_def) == ["serving_default"]
    with pytest.raises(RuntimeError, match="tag-set train could not be found"):
        saved_model_utils.get_meta_graph_def(folder, "train")
    with pytest.raises(OSError, match="does not exist"):
        saved_model_utils.read_saved_model(str(files))
