"""Tensors that a session keeps, over HTTP: kept, listed, looked at in each form, fed by handle, forgotten."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from tests.server.conftest import Api
from tests.support.programs.graphs import GraphBuilder

PROTOBUF = "application/x-protobuf"


def handle_graph() -> GraphBuilder:
    """`h` keeps `x`; `back` is the tensor of a handle's text; `y` the square of `x`."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("h", "GetSessionHandle", "x", T=dtypes.float32)
    g.placeholder("text", dtypes.string)
    g("back", "GetSessionTensor", "text", dtype=dtypes.float32)
    g("y", "Square", "x", T=dtypes.float32)
    return g


@pytest.fixture
async def session(api: Api) -> str:
    return await api.create(handle_graph())


async def keep(api: Api, session: str, **fields: Any) -> str:
    status, answer = await api.call("POST", f"/v1/sessions/{session}/tensors", fields)
    assert status == 201, answer
    return str(answer["handle"])


async def test_tensor_of_a_run(api: Api, session: str) -> None:
    _, answer = await api.run(session, feeds={"x": [1, 2]}, fetches=["h"])
    handle = answer["outputs"]["h"]
    status, answer = await api.call("GET", f"/v1/sessions/{session}/tensors")
    assert answer == {"tensors": [{"handle": handle, "datatype": "FP32", "shape": [2], "bytes": 8}]}
    status, answer = await api.call("GET", f"/v1/sessions/{session}/tensors/{handle}")
    assert (status, answer) == (200, {"handle": handle, "datatype": "FP32", "shape": [2], "data": [1, 2]})
    assert (await api.call("DELETE", f"/v1/sessions/{session}/tensors/{handle}"))[0] == 204
    for method in ("GET", "DELETE"):
        status, answer = await api.call(method, f"/v1/sessions/{session}/tensors/{handle}")
        assert (status, answer["code"]) == (404, "NOT_FOUND")


async def test_tensor_that_a_client_sends(api: Api, session: str) -> None:
    handle = await keep(api, session, name="w", datatype="FP32", shape=[2], data=[3, 4])
    assert handle.startswith("w;")
    _, answer = await api.run(session, feeds={"text": handle}, fetches=["back"])
    assert answer["outputs"] == {"back": [3, 4]}


async def test_location_of_a_kept_tensor_leads_to_it(api: Api, session: str) -> None:
    body = json.dumps({"name": "50% & more?", "datatype": "BYTES", "shape": [], "data": ["ä"]}).encode()
    response, _ = await api.raw("POST", f"/v1/sessions/{session}/tensors", body)
    status, answer = await api.call("GET", response.headers["Location"])
    assert (status, answer["data"]) == (200, ["ä"])


async def test_bytes_and_messages(api: Api, session: str) -> None:
    value = np.array([1 + 2j, 3], np.complex64)
    path = f"/v1/sessions/{session}/tensors"
    head = json.dumps({"datatype": "DT_COMPLEX64", "shape": [2], "parameters": {"binary_data_size": 16}}).encode()
    response, body = await api.raw("POST", path, head + value.tobytes(), Inference_Header_Content_Length=str(len(head)))
    assert response.status == 201, body
    handle = json.loads(body)["handle"]
    assert (await api.call("GET", f"{path}/{handle}"))[0] == 400
    response, body = await api.raw("GET", f"{path}/{handle}", Accept="application/octet-stream")
    assert body[int(response.headers["Inference-Header-Content-Length"]) :] == value.tobytes()
    message = to_proto(value, dtypes.complex64).SerializeToString()
    response, body = await api.raw("POST", f"{path}?name=m", message, Content_Type=PROTOBUF)
    handle = json.loads(body)["handle"]
    assert (response.status, handle[:2]) == (201, "m;")
    response, body = await api.raw("GET", f"{path}/{handle}", Accept=PROTOBUF)
    assert np.array_equal(from_proto(proto.TensorProto.FromString(body)), value)


async def test_handle_is_fed_for_its_tensor(api: Api, session: str) -> None:
    handle = await keep(api, session, datatype="FP32", shape=[2], data=[2, 3])
    resource = proto.TensorProto(dtype=dtypes.resource.enum)
    resource.tensor_shape.SetInParent()
    resource.resource_handle_val.add(name=handle, container=handle, maybe_type_name="TensorHandle")
    message = proto.RunStepRequest(fetch=["y:0"])
    message.feed.add(name="x:0").tensor.CopyFrom(resource)
    response, body = await api.raw(
        "POST", f"/v1/sessions/{session}:run", message.SerializeToString(), Content_Type=PROTOBUF
    )
    assert response.status == 200, body
    assert from_proto(proto.RunStepResponse.FromString(body).tensor[0].tensor).tolist() == [4, 9]


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 400, "datatype"),
        ({"datatype": "FP32", "shape": [2], "data": [1]}, 400, "has 1 elements"),
        ({"name": "a;b", "datatype": "FP32", "shape": [], "data": [1]}, 400, "must not contain"),
        ({"name": 3, "datatype": "FP32", "shape": [], "data": [1]}, 400, '"name" must be a string'),
        ({"tensor": [1]}, 400, "Unknown field"),
    ],
)
async def test_refusals(api: Api, session: str, fields: Any, status: int, message: str) -> None:
    got, answer = await api.call("POST", f"/v1/sessions/{session}/tensors", fields)
    assert got == status and message in answer["error"], answer


async def test_tensors_are_bounded(start: Any) -> None:
    api = await start(max_kept_bytes=10)
    session = await api.create(handle_graph())
    fields = {"datatype": "FP32", "shape": [2], "data": [1, 2]}
    await keep(api, session, **fields)
    status, answer = await api.call("POST", f"/v1/sessions/{session}/tensors", fields)
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED")


async def test_kept_tensors_of_models_are_refused(api: Api, session: str) -> None:
    api.hosted(session).listed = True
    assert (await api.call("GET", f"/v1/sessions/{session}/tensors"))[0] == 403
