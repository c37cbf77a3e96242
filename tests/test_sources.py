"""What a person has in hand: files, folders, bytes and messages become graphs; other models are refused with advice."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

import aexec
from aexec import cli, errors, proto
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.saved_model import SavedModel
from tests.support.stand_ins.foreign_messages import foreign


def doubling() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.mul(aexec.placeholder("float32", [None], name="x"), 2.0, name="y")
    return graph


def write_model(folder: Path) -> Path:
    """A SavedModel without variables."""
    graph = doubling()
    signature = Signature.of({"value": graph.tensor("x:0")}, {"twice": graph.tensor("y:0")})
    internal = Signature({}, {})
    signatures = {"serving_default": signature, "__saved_model_train_op": internal}
    meta_graph = MetaGraph(graph, signatures=signatures, tags=frozenset({"serve"}))
    folder.mkdir()
    message = proto.SavedModel(saved_model_schema_version=1, meta_graphs=[meta_graph.to_proto()])
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
    return folder


class TestLoading:
    def test_files(self, tmp_path: Path) -> None:
        graph = doubling()
        for name, data in (
            ("g.pb", graph.to_bytes()),
            ("g", graph.to_bytes()),
            ("g.pbtxt", graph.to_text().encode()),
            ("g.json", graph.to_json().encode()),
        ):
            (tmp_path / name).write_bytes(data)
            for path in (tmp_path / name, str(tmp_path / name)):
                loaded = aexec.load(path)
                assert isinstance(loaded, aexec.Graph)
                assert loaded.to_graph_def() == graph.to_graph_def()

    def test_saved_models(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "model")
        for path in (folder, str(folder), folder / "saved_model.pb"):
            loaded = aexec.load(path)
            assert isinstance(loaded, SavedModel)
            assert list(loaded.signatures) == ["serving_default"]
            assert loaded.directory == folder
        with pytest.raises(errors.NotFoundError, match="train"):
            aexec.load(folder, tags="train")

    def test_bytes_and_messages(self) -> None:
        graph_def = doubling().to_graph_def()
        data = graph_def.SerializeToString()
        for source in (data, bytearray(data), memoryview(data), graph_def, foreign(graph_def)):
            loaded = aexec.load(source)
            assert isinstance(loaded, aexec.Graph)
            assert loaded.to_graph_def() == graph_def
        meta_graph = MetaGraph(doubling(), tags=frozenset({"serve"}))
        for message in (meta_graph.to_proto(), foreign(meta_graph.to_proto())):
            read = aexec.load(message)
            assert isinstance(read, MetaGraph) and read.tags == {"serve"}

    def test_tensorflows_graphs(self) -> None:
        class TensorFlowGraph:
            def as_graph_def(self) -> Any:
                return foreign(doubling().to_graph_def())

        loaded = aexec.load(TensorFlowGraph())
        assert isinstance(loaded, aexec.Graph) and "y" in loaded

    def test_loaded_graph_is_returned(self, tmp_path: Path) -> None:
        for source in (doubling(), MetaGraph(doubling()), aexec.load(write_model(tmp_path / "model"))):
            assert aexec.load(source) is source


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return data.getvalue()


HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(40)
TFLITE = b"\x1c\0\0\0TFL3" + bytes(40)
ONNX = b"\x08\x07\x12\x07pytorch"
KERAS = zipped("metadata.json", "config.json", "model.weights.h5")

KERAS_ADVICE = r"a Keras model: .*model\.export\('folder'\) writes a SavedModel"
CONTENTS = {
    "keras archive": (KERAS, KERAS_ADVICE),
    "hdf5": (HDF5, KERAS_ADVICE),
    "tflite": (TFLITE, "a TensorFlow Lite model: give the SavedModel or GraphDef that it was converted from"),
    "onnx": (ONNX, "an ONNX model: onnxruntime runs it"),
    "torch": (zipped("archive/data.pkl", "archive/data/0"), "a PyTorch model: torch runs it"),
    "zip": (zipped("model.pb"), "an archive: unpack it"),
    "gzip": (b"\x1f\x8b" + bytes(40), "an archive: unpack it"),
    "saved model": (proto.SavedModel(saved_model_schema_version=1).SerializeToString(), "without its variables"),
}
NAMES = {
    "m.keras": KERAS_ADVICE,
    "m.h5": KERAS_ADVICE,
    "m.HDF5": KERAS_ADVICE,
    "m.tflite": "a TensorFlow Lite model",
    "m.onnx": "an ONNX model",
    "m.meta": r"a MetaGraph, .*MetaGraph\.load .*Saver\.from_meta_graph",
    "m.ckpt-3.index": "of a checkpoint, which has values and no graph",
    "m.ckpt-3.data-00000-of-00001": "of a checkpoint, which has values and no graph",
    "m.pt": "a PyTorch model",
    "m.tar.gz": "an archive",
}


class TestRefusals:
    @pytest.mark.parametrize("name", NAMES)
    def test_refusals_name_the_source(self, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / name
        with pytest.raises(errors.NotFoundError, match="No such file"):
            aexec.load(path)
        path.write_bytes(b"whatever is in it")
        with pytest.raises(errors.InvalidArgumentError, match=f"{name} is {NAMES[name]}"):
            aexec.load(path)
        assert cli.main(["run", str(path), "--fetch", "y"]) == 13
        assert cli.main(["inspect", str(path)]) == 13
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2 and all(re.search(NAMES[name], line) for line in lines)

    @pytest.mark.parametrize("kind", CONTENTS)
    def test_by_content(self, tmp_path: Path, kind: str) -> None:
        data, advice = CONTENTS[kind]
        path = tmp_path / "model.pb"
        path.write_bytes(data)
        with pytest.raises(errors.InvalidArgumentError, match=f"model.pb is {advice}|model.pb is .*{advice}"):
            aexec.load(path)
        if kind not in ("keras archive", "torch"):
            with pytest.raises(errors.InvalidArgumentError, match=f"these bytes are .*{advice}"):
                aexec.load(data)

    def test_graphs_begin_otherwise(self) -> None:
        """No GraphDef is taken for another format: it begins with one of its own fields."""
        fields = {field.number for field in proto.GraphDef.DESCRIPTOR.fields}
        first = {number << 3 | wire for number in fields for wire in (0, 2)} - {1 << 3}  # nodes are messages
        assert not first & {data[0] for data, _ in CONTENTS.values()} - {TFLITE[0]}
        assert proto.GraphDef.DESCRIPTOR.fields_by_name["node"].message_type is not None

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (None, "got NoneType"),
            (3, "got int"),
            (proto.NodeDef(), "expected a graph, the path of .*, got NodeDef"),
            (proto.SavedModel(), "a SavedModel message is without its variables: give the folder"),
            (b"\xff\xff", "2 bytes are no such message"),
        ],
    )
    def test_anything_else(self, source: Any, message: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            aexec.load(source)

    def test_folder_without_a_model(self, tmp_path: Path) -> None:
        with pytest.raises(errors.NotFoundError, match="Could not find SavedModel"):
            aexec.load(tmp_path)
