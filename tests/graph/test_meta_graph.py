from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature, TensorInfo


def small() -> MetaGraph:
    with aexec.Graph() as graph, aexec.device("/device:CPU:0"):
        x = aexec.placeholder("float32", [None, 2], name="x")
        y = aexec.ops.square(x, name="y")
    packed = AnyMessage(type_url="type.googleapis.com/tensorflow.AssetFileDef")
    packed.value = proto.AssetFileDef(
        tensor_info=proto.TensorInfo(name="path:0"), filename="vocabulary"
    ).SerializeToString()
    return MetaGraph(
        graph,
        {"names": ["x"], "bytes": [b"\0\1"], "ints": [1, 2], "floats": [0.5], "saved_model_assets": [packed]},
        {"serving_default": Signature.of({"in": x}, {"out": y})},
        proto.SaverDef(restore_op_name="r"),
        {"path:0": "vocabulary"},
        frozenset({"serve", "cpu"}),
    )


def test_bytes_come_back() -> None:
    meta_graph = small()
    other = MetaGraph.from_bytes(meta_graph.to_bytes())
    assert other.to_bytes() == meta_graph.to_bytes()
    assert other.collections == meta_graph.collections
    assert other.signatures == meta_graph.signatures
    assert (other.tags, other.assets, other.saver_def) == (meta_graph.tags, meta_graph.assets, meta_graph.saver_def)
    assert [node.name for node in other.graph] == ["x", "y"]
    message = meta_graph.to_proto()
    assert [op.name for op in message.meta_info_def.stripped_op_list.op] == ["Placeholder", "Square"]
    assert [node.device for node in message.graph_def.node] == ["/device:CPU:0"] * 2
    assert [node.device for node in meta_graph.to_proto(clear_devices=True).graph_def.node] == ["", ""]


def test_files(tmp_path: Path) -> None:
    meta_graph = small()
    meta_graph.collections.pop("saved_model_assets")
    for name in ("g.meta", "g.pbtxt"):
        meta_graph.save(tmp_path / name)
        assert MetaGraph.load(tmp_path / name).to_bytes() == meta_graph.to_bytes()
    with pytest.raises(errors.NotFoundError, match="No such file"):
        MetaGraph.load(tmp_path / "no")
    with pytest.raises(errors.NotFoundError, match="No such file"):
        meta_graph.save(tmp_path / "no" / "g.meta")
    with pytest.raises(errors.InvalidArgumentError, match="Cannot read"):
        MetaGraph.load(tmp_path)
    for name, data in (("bad.meta", b"\xff"), ("bad.pbtxt", b"nonsense"), ("latin.pbtxt", b"\xff")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(errors.InvalidArgumentError, match="Cannot parse"):
            MetaGraph.load(tmp_path / name)


@pytest.mark.parametrize("items", [["a", b"b"], [1, 0.5], [True], [None]])
def test_collections_of_mixed_kinds(items: list[Any]) -> None:
    meta_graph = small()
    meta_graph.collections["mixed"] = items
    with pytest.raises(errors.InvalidArgumentError, match="collection 'mixed' has to hold"):
        meta_graph.to_proto()


def test_asset_that_is_none() -> None:
    message = small().to_proto()
    message.collection_def["saved_model_assets"].any_list.value[0].value = b"\xff"
    with pytest.raises(errors.InvalidArgumentError, match="no asset"):
        MetaGraph.from_proto(message)


def test_signatures() -> None:
    signature = small().signature("serving_default")
    assert signature.inputs["in"] == TensorInfo("x:0", dtypes.float32, PartialTensorShape([None, 2]))
    assert str(signature.inputs["in"]) == "x:0  float[?,2]"
    assert signature.feeds({"in": 1}) == {"x:0": 1}
    assert signature.fetches() == {"out": "y:0"}
    with pytest.raises(errors.InvalidArgumentError, match="no input 'other'; there are in"):
        signature.feeds({"other": 1, "in": 1})
    with pytest.raises(errors.InvalidArgumentError, match="input 'in' is not given"):
        signature.feeds({})
    with pytest.raises(errors.NotFoundError, match="no signature 'other'; there are serving_default"):
        small().signature("other")


def test_signatures_take_names_in_any_order() -> None:
    info = TensorInfo("x:0", dtypes.float32, PartialTensorShape([None]))
    other = TensorInfo("y:0", dtypes.float32, PartialTensorShape([None]))
    signature = Signature({"image": info, "size": other}, {"sum": other, "mean": info})
    assert list(signature.feeds({"size": 2, "image": 1}).items()) == [("x:0", 1), ("y:0", 2)]
    assert list(signature.fetches(["mean", "sum"]).items()) == [("mean", "x:0"), ("sum", "y:0")]
    for given, message in (
        ({"imge": 1, "size": 2}, "no input 'imge'; there are image, size; did you mean 'image'?"),
        ({"size": 2}, "input 'image' is not given; expected image, size, got size"),
        ({"image": 1, "size": 2, 3: 3, info: 4}, "no input '3'; there are image, size"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=re.escape(message)):
            signature.feeds(given)
    with pytest.raises(errors.InvalidArgumentError, match="no output 'summ'; there are sum, mean; did you mean 'sum'"):
        signature.fetches(["mean", "summ"])


def test_two_inputs_of_a_signature_cannot_be_one_tensor() -> None:
    info = TensorInfo("x:0", dtypes.float32, PartialTensorShape([None]))
    with pytest.raises(errors.InvalidArgumentError, match="fed more than once: the inputs 'a' and 'b' are both this"):
        Signature({"a": info, "b": info}, {}).feeds({"a": 1, "b": 2})


def test_sparse_and_composite_values() -> None:
    message = proto.SignatureDef()
    sparse = message.inputs["s"]
    sparse.dtype = dtypes.float32.enum  # type: ignore[assignment]
    sparse.coo_sparse.values_tensor_name = "v:0"
    sparse.coo_sparse.indices_tensor_name = "i:0"
    sparse.coo_sparse.dense_shape_tensor_name = "d:0"
    message.outputs["c"].composite_tensor.components.add(name="a:0")
    signature = Signature.from_proto(message)
    assert signature.inputs["s"].components == ("v:0", "i:0", "d:0")
    assert Signature.from_proto(signature.to_proto()).inputs == signature.inputs
    assert signature.outputs["c"].dtype is None
    with pytest.raises(errors.InvalidArgumentError, match="'s' is made of the tensors v:0, i:0, d:0"):
        signature.feeds({"s": 1})
    with pytest.raises(errors.InvalidArgumentError, match="'c' is made of"):
        signature.fetches()
