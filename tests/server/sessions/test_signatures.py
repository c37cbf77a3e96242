"""Runs by the names of a signature, and documents that say which there are."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.saved_model import save_saved_model
from tests.server.conftest import Api, Start, small_graph


def two_signatures() -> MetaGraph:
    """`double` and `both` of `x`: the sum and the text of it."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 2], name="features")
        doubled = aexec.ops.mul(x, 2.0, name="doubled")
        halved = aexec.ops.mul(x, 0.5, name="halved")
    signatures = {
        "serving_default": Signature.of({"x": x}, {"y": doubled}),
        "both": Signature.of({"x": x}, {"twice": doubled, "half": halved}),
    }
    return MetaGraph(graph, signatures=signatures)


@pytest.fixture
async def model(start: Start) -> Api:
    return await start(graphs={"m": two_signatures})


async def test_document_says_how_a_session_is_called(model: Api) -> None:
    status, document = await model.call("GET", "/v1/sessions/m")
    x = {"name": "x", "datatype": "FP32", "shape": [-1, 2], "tensor": "features:0"}
    y = {"name": "y", "datatype": "FP32", "shape": [-1, 2], "tensor": "doubled:0"}
    assert status == 200
    assert document["inputs"] == [x] and document["outputs"] == [y]
    default = {"inputs": [x], "outputs": [y], "method_name": "tensorflow/serving/predict"}
    assert document["signatures"]["serving_default"] == default
    assert [o["name"] for o in document["signatures"]["both"]["outputs"]] == ["twice", "half"]


async def test_plain_graph_has_inputs_and_outputs_too(api: Api, small: str) -> None:
    _, document = await api.call("GET", f"/v1/sessions/{small}")
    assert document["signatures"] == {}
    assert document["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1], "tensor": "x:0"}
    assert {"name": "m", "datatype": "FP32", "shape": None, "tensor": "m:0"} in document["inputs"]
    assert {o["name"] for o in document["outputs"]} >= {"y", "s_out"}


async def test_several_signatures_without_a_default_leave_inputs_out(start: Start) -> None:
    def without_default() -> MetaGraph:
        meta_graph = two_signatures()
        meta_graph.signatures["other"] = meta_graph.signatures.pop("serving_default")
        return meta_graph

    api = await start(graphs={"m": without_default})
    _, document = await api.call("GET", "/v1/sessions/m")
    assert set(document["signatures"]) == {"both", "other"} and "inputs" not in document
    status, answer = await api.run("m", inputs={"x": [[1, 2]]})
    assert status == 404 and answer["error"] == "say which signature; there are both, other"


@pytest.mark.parametrize(
    ("fields", "outputs"),
    [
        ({"signature": "serving_default", "inputs": {"x": [[1, 2]]}}, {"y": [[2, 4]]}),
        ({"inputs": {"x": [[1, 2]]}}, {"y": [[2, 4]]}),
        ({"signature": "both", "inputs": {"x": [[1, 2]]}}, {"twice": [[2, 4]], "half": [[0.5, 1]]}),
        ({"signature": "both", "inputs": {"x": [[1, 2]]}, "outputs": ["half"]}, {"half": [[0.5, 1]]}),
        ({"signature": "both", "inputs": {"x": [[1, 2]]}, "outputs": "half"}, {"half": [[0.5, 1]]}),
    ],
)
async def test_run_for_people(model: Api, fields: dict[str, Any], outputs: dict[str, Any]) -> None:
    status, answer = await model.run("m", **fields)
    assert status == 200, answer
    assert answer["outputs"] == outputs
    assert set(answer["dtypes"]) == set(answer["shapes"]) == set(outputs)


async def test_run_with_tensor_lists(model: Api) -> None:
    x = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    status, answer = await model.run("m", inputs=[x])
    assert status == 200
    assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [2.0, 4.0]}]


@pytest.mark.parametrize("outputs", [None, ["half", "twice"]])
async def test_run_with_binary_tensors(model: Api, outputs: list[str] | None) -> None:
    data = np.array([[3, 4]], np.float32).tobytes()
    x = {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
    fields: dict[str, Any] = {"signature": "both", "inputs": [x], "parameters": {"binary_data_output": True}}
    if outputs is not None:
        fields["outputs"] = outputs
    head = json.dumps(fields).encode()
    response, body = await model.raw(
        "POST", "/v1/sessions/m:run", head + data, Inference_Header_Content_Length=str(len(head))
    )
    length = int(response.headers["Inference-Header-Content-Length"])
    names = [output["name"] for output in json.loads(body[:length])["outputs"]]
    assert names == (outputs or ["twice", "half"])
    values = dict(zip(names, np.frombuffer(body[length:], np.float32).reshape(2, 2).tolist(), strict=True))
    assert values == {"twice": [6, 8], "half": [1.5, 2]}


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"signature": "both", "feeds": {}}, 400, '"signature": a run by signature has no "feeds"'),
        ({"inputs": {"x": [[1, 2]]}, "fetches": ["y"]}, 400, '"inputs": a run by signature has no "fetches"'),
        ({"inputs": {"x": [[1, 2]]}, "targets": ["y"]}, 400, '"inputs": a run by signature has no "targets"'),
        ({"signature": "none", "inputs": {}}, 404, "no signature 'none'; there are serving_default, both"),
        ({"signature": 3}, 400, '"signature" must be a name, got a number'),
        ({"inputs": {}}, 400, "input 'x' is not given"),
        ({"inputs": {"z": 1}}, 400, "no input 'z'; there are x"),
        ({"inputs": 3}, 400, '"inputs" must be an object'),
        ({"inputs": {"x": [[1, 2]]}, "outputs": ["z"]}, 400, "no output 'z'; there are y"),
        ({"inputs": {"x": [[1, 2]]}, "outputs": {}}, 400, '"outputs" must be a list of tensor names'),
        ({"signatures": "both"}, 400, "Unknown field 'signatures'"),
    ],
)
async def test_refusals(model: Api, fields: dict[str, Any], status: int, message: str) -> None:
    got, answer = await model.run("m", **fields)
    assert (got, answer["error"].startswith(message)) == (status, True), answer


async def test_plan_is_shared_by_all_orders_of_inputs_and_feeds(api: Api) -> None:
    with aexec.Graph() as graph:
        a, b, c = (aexec.placeholder("float32", [None], name=name) for name in "abc")
        aexec.ops.sub(aexec.ops.sub(a, b), c, name="d")
    encoded = base64.b64encode(graph.to_bytes()).decode()
    _, created = await api.call("POST", "/v1/sessions", {"graph_def": encoded})
    handle = created["session_handle"]
    values = {"a": [10.0], "b": [1.0], "c": [2.0]}
    for order in itertools.permutations(values):
        given = {name: values[name] for name in order}
        for fields in ({"inputs": given}, {"feeds": given, "fetches": ["d"]}):
            status, answer = await api.run(handle, **fields)
            assert status == 200 and answer["outputs"] == {"d": [7.0]}, (order, answer)
    assert api.hosted(handle).session.statistics().plans == 1


async def test_signature_of_a_graph_grows_with_it(api: Api) -> None:
    handle = await api.create(small_graph())
    status, answer = await api.run(handle, inputs={}, outputs=["y"])
    assert status == 400 and "is not given" in answer["error"]
    more = proto.GraphDef(versions=small_graph().graph_def.versions)
    more.node.add(name="late", op="Placeholder").attr["dtype"].type = 1
    await api.hosted(handle).extend(more, 0)
    status, answer = await api.run(handle, inputs={"late": 1}, outputs=[])
    assert status == 400 and "no input 'late'" not in answer["error"]


async def test_served_model_keeps_its_signatures(start: Start, tmp_path: Path) -> None:
    meta_graph = two_signatures()
    async with aexec.Session(meta_graph.graph) as session:
        await save_saved_model(session, tmp_path / "model", meta_graph.signatures)
    api = await start(graphs={"m": tmp_path / "model"})
    status, answer = await api.run("m", inputs={"x": [[1, 2]]})
    assert status == 200 and answer["outputs"] == {"y": [[2, 4]]}
