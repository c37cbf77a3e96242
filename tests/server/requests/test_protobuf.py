"""TensorFlow's own messages over HTTP, among them calls recorded from TensorFlow's master service."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aexec_server.requests import protobuf

from aexec import proto
from aexec.errors import Code
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire import tensor_codec
from tests.server.conftest import Api, small_graph
from tests.support.programs.graphs import GraphBuilder

PROTOBUF = "application/x-protobuf"
TRACES: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "data" / "traces.json").read_text())

# Calls that have no path here yet.
NOT_SERVED = {
    "/tensorflow.MasterService/PartialRunSetup",
    "/tensorflow.MasterService/MakeCallable",
    "/tensorflow.MasterService/RunCallable",
    "/tensorflow.MasterService/ReleaseCallable",
    "/tensorflow.MasterService/Reset",
}
PARTIAL_RUNS = {"its first part", "its second part"}
# Where our code is another one: what the path names is NOT_FOUND; a wrong version is FAILED_PRECONDITION, as
# master.proto says; a wrong type is answered as a session in process answers it.
OUR_CODES = {
    "a session that is no more": Code.NOT_FOUND,
    "close it again": Code.NOT_FOUND,
    "an unknown session": Code.NOT_FOUND,
    "extend with an old version number": Code.FAILED_PRECONDITION,
    "wrong type fed": Code.INVALID_ARGUMENT,
}
METHODS = {
    "CreateSession": ("POST", "/v1/sessions"),
    "ExtendSession": ("POST", "/v1/sessions/{}:extend"),
    "RunStep": ("POST", "/v1/sessions/{}:run"),
    "ListDevices": ("POST", "/v1/sessions/{}/devices"),
    "CloseSession": ("DELETE", "/v1/sessions/{}"),
}


def decode(call: dict[str, Any], which: str) -> Any:
    return getattr(proto, call[f"{which}_type"].rpartition(".")[2]).FromString(base64.b64decode(call[which]))


async def replay(api: Api, call: dict[str, Any], handles: dict[str, str]) -> tuple[int, bytes]:
    method, path = METHODS[call["method"].rpartition("/")[2]]
    request = decode(call, "request")
    handle = getattr(request, "session_handle", "")
    if handle:
        request.session_handle = handles.get(handle, handle)
        path = path.format(request.session_handle)
    response, body = await api.raw(method, path, request.SerializeToString(), Content_Type=PROTOBUF)
    assert response.content_type == (PROTOBUF if response.status < 300 else "application/json")
    return response.status, body


def check(call: dict[str, Any], status: int, body: bytes, handles: dict[str, str]) -> None:
    if "status" in call:
        error = json.loads(body)
        expected = OUR_CODES.get(call["note"], Code(call["status"]["number"]))
        assert error["code"] == expected.name, call["note"]
        if call["note"] not in OUR_CODES:
            assert call["status"]["message"].partition(" for node")[0] in error["error"]
        return
    assert status in (200, 201), (call["note"], body)
    expected = decode(call, "response")
    got = type(expected).FromString(body)
    if isinstance(expected, proto.CreateSessionResponse):
        handles[expected.session_handle] = got.session_handle
        assert got.graph_version == expected.graph_version
    elif isinstance(expected, proto.RunStepResponse):
        assert got.HasField("metadata")
        assert sorted(map(plain, got.tensor)) == sorted(map(plain, expected.tensor)), call["note"]
    elif isinstance(expected, proto.ListDevicesResponse):
        (ours,), (theirs,) = got.local_device, expected.local_device
        assert (ours.name, ours.device_type) == (theirs.name, theirs.device_type)
    else:
        assert got == expected, call["note"]


def plain(named: proto.NamedTensorProto) -> tuple[str, bytes]:
    """Name and tensor, without what a resource handle says of its own server."""
    if named.tensor.dtype == dtypes.resource.enum:
        handle = tensor_codec.from_proto(named.tensor)[()]
        return named.name, f"{handle.container} {handle.name} {handle.device}".encode()
    return named.name, named.tensor.SerializeToString(deterministic=True)


async def test_recorded_calls(api: Api) -> None:
    """All of them in order, on one server, as they were recorded."""
    handles: dict[str, str] = {}
    skipped = []
    for call in TRACES:
        if call["method"] in NOT_SERVED or call["note"] in PARTIAL_RUNS:
            skipped.append(call["note"])
        else:
            check(call, *await replay(api, call, handles), handles)
    assert len(TRACES) - len(skipped) == 36


async def test_parts_of_partial_runs_that_were_not_set_up_are_refused(api: Api, small: str) -> None:
    request = proto.RunStepRequest(session_handle=small, fetch=["y:0"], partial_run_handle="0")
    status, body = await post_run(api, small, request)
    assert status == 400 and "Must run 'setup'" in json.loads(body)["error"]


async def post_run(api: Api, handle: str, request: proto.RunStepRequest, **headers: str) -> tuple[int, bytes]:
    response, body = await api.raw(
        "POST", f"/v1/sessions/{handle}:run", request.SerializeToString(), Content_Type=PROTOBUF, **headers
    )
    return response.status, body


def feed(name: str, value: Any) -> proto.NamedTensorProto:
    return proto.NamedTensorProto(name=name, tensor=tensor_codec.to_proto(np.asarray(value)))


async def test_fetches_in_the_order_asked_for(api: Api, small: str) -> None:
    request = proto.RunStepRequest(feed=[feed("x:0", np.float32([2]))], fetch=["y:0", "x:0", "y"])
    status, body = await post_run(api, small, request)
    assert status == 400 and b"both fed and fetched" in body
    request = proto.RunStepRequest(
        feed=[feed("x:0", np.float32([2])), feed("m:0", np.float32(7))], fetch=["y:0", "m_out", "y"]
    )
    status, body = await post_run(api, small, request)
    assert status == 200
    answer = proto.RunStepResponse.FromString(body)
    assert [t.name for t in answer.tensor] == ["y:0", "m_out", "y"]
    assert [tensor_codec.from_proto(t.tensor).tolist() for t in answer.tensor] == [[4.0], 7.0, [4.0]]


async def test_optional_values_are_variants(api: Api) -> None:
    """As TensorFlow encodes them, and back; JSON and the binary extension have no form for them, and say so."""
    g = GraphBuilder()
    g.placeholder("x")
    g("some", "OptionalFromValue", "x", Toutput_types=[dtypes.float32])
    g("none", "OptionalNone")
    g.placeholder("o", dtypes.variant)
    g("has", "OptionalHasValue", "o")
    g("value", "OptionalGetValue", "o", output_types=[dtypes.float32], output_shapes=[PartialTensorShape(None)])
    handle = await api.create(g)
    request = proto.RunStepRequest(feed=[feed("x:0", np.float32([1, 2]))], fetch=["some:0", "none:0"])
    _, body = await post_run(api, handle, request)
    some, none = (named.tensor for named in proto.RunStepResponse.FromString(body).tensor)
    for tensor, has_value in ((some, True), (none, False)):
        assert tensor.dtype == dtypes.variant.enum and not tensor.tensor_shape.dim
        # The length of the one element, and the element.
        value = proto.VariantTensorDataProto.FromString(tensor.tensor_content[1:])
        assert (value.type_name, value.metadata) == ("tensorflow::data::Optional", bytes([has_value]))
        assert [tensor_codec.from_proto(each).tolist() for each in value.tensors] == [[1, 2]] * has_value
        fed = [proto.NamedTensorProto(name="o:0", tensor=tensor)]
        status, body = await post_run(api, handle, proto.RunStepRequest(feed=fed, fetch=["has:0"]))
        assert tensor_codec.from_proto(proto.RunStepResponse.FromString(body).tensor[0].tensor) == has_value
        status, body = await post_run(api, handle, proto.RunStepRequest(feed=fed, fetch=["value:0"]))
        if has_value:
            assert tensor_codec.from_proto(proto.RunStepResponse.FromString(body).tensor[0].tensor).tolist() == [1, 2]
        else:
            assert status == 400 and b"The given optional does not have a value." in body
    for fetches in (["none"], [{"name": "none"}], [{"name": "none", "parameters": {"binary_data": True}}]):
        status, answer = await api.call("POST", f"/v1/sessions/{handle}:run", {"fetches": fetches})
        assert (status, answer["code"]) == (501, "UNIMPLEMENTED")
        assert "none has type variant, which has neither a JSON nor a binary form" in answer["error"]
    wrong = proto.TensorProto(dtype=dtypes.variant.enum, tensor_shape=proto.TensorShapeProto())
    wrong.variant_val.add(type_name="tensorflow::data::Optional", metadata=b"xx")
    fed = [proto.NamedTensorProto(name="o:0", tensor=wrong)]
    status, body = await post_run(api, handle, proto.RunStepRequest(feed=fed, fetch=["has:0"]))
    words = json.loads(body)["error"]
    assert status == 400 and 'Could not decode variant with type_name: "tensorflow::data::Optional"' in words


async def test_errors_in_the_response_if_asked_for(api: Api, small: str) -> None:
    request = proto.RunStepRequest(
        feed=[feed("x:0", np.float32([2]))], fetch=["fails:0"], store_errors_in_response_body=True
    )
    status, body = await post_run(api, small, request)
    assert status == 200
    answer = proto.RunStepResponse.FromString(body)
    assert answer.status_code == int(Code.INVALID_ARGUMENT)
    assert "failed on purpose" in answer.status_error_message and "{{node fails}}" in answer.status_error_message


async def test_options_and_metadata(api: Api, small: str) -> None:
    options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE, output_partition_graphs=True)
    request = proto.RunStepRequest(feed=[feed("x:0", np.float32([2]))], fetch=["y:0"], options=options)
    _, body = await post_run(api, small, request)
    metadata = proto.RunStepResponse.FromString(body).metadata
    assert metadata.step_stats.dev_stats and metadata.partition_graphs


async def test_run_id_is_in_a_header(api: Api, small: str) -> None:
    request = proto.RunStepRequest(target=["nothing"]).SerializeToString()
    path = f"/v1/sessions/{small}:run"
    response, _ = await api.raw("POST", path, request, Content_Type=PROTOBUF, Aexec_Run_Id="p1")
    assert response.headers["Aexec-Run-Id"] == "p1"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (proto.RunStepRequest(session_handle="other"), "not that of the path"),
        (proto.RunStepRequest(feed=[feed("x", 1), feed("x", 2)]), "fed more than once"),
        (proto.RunStepRequest(feed=[proto.NamedTensorProto(name="x:0")], fetch=["y:0"]), "Cannot parse tensor"),
        (proto.RunStepRequest(options=proto.RunOptions(timeout_in_ms=-1), fetch=["y:0"]), "timeout_in_ms"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
async def test_wrong_requests(api: Api, small: str, request_: proto.RunStepRequest, words: str) -> None:
    status, body = await post_run(api, small, request_)
    assert status == 400 and words in json.loads(body)["error"]


async def test_few_bytes_cannot_declare_more_than_a_body_may_hold(api: Api, small: str) -> None:
    huge = proto.TensorProto(dtype=1, float_val=[1.0])  # type: ignore[arg-type]
    huge.tensor_shape.dim.add(size=10**9)
    request = proto.RunStepRequest(feed=[proto.NamedTensorProto(name="x:0", tensor=huge)], fetch=["y:0"])
    status, body = await post_run(api, small, request)
    assert status == 429 and json.loads(body)["code"] == "RESOURCE_EXHAUSTED"


async def test_large_message(api: Api, small: str) -> None:
    values = np.arange(200_000, dtype=np.float32)
    status, body = await post_run(api, small, proto.RunStepRequest(feed=[feed("m", values)], fetch=["m_out"]))
    assert status == 200
    (tensor,) = proto.RunStepResponse.FromString(body).tensor
    np.testing.assert_array_equal(tensor_codec.from_proto(tensor.tensor), values)


async def test_large_extension(api: Api) -> None:
    """More than a slice's work: decoded, checked and imported beside the loop."""
    handle = await api.create(small_graph())
    g = GraphBuilder()
    for index in range(6000):
        g(f"z{index}", "Neg", "y" if index == 0 else f"z{index - 1}", T=dtypes.float32)
    request = proto.ExtendSessionRequest(graph_def=g.graph_def)
    response, body = await api.raw(
        "POST", f"/v1/sessions/{handle}:extend", request.SerializeToString(), Content_Type=PROTOBUF
    )
    assert response.status == 200, body
    status, answer = await api.run(handle, feeds={"x": [3]}, fetches=["z5999"])
    assert status == 200 and answer["outputs"] == {"z5999": [9.0]}


def small_run(**fields: Any) -> proto.RunStepRequest:
    asked = proto.RunStepRequest(fetch=["y:0"], **fields)
    if not asked.feed:
        tensor = tensor_codec.to_proto(np.array([1, 2], np.float32), dtypes.float32, compact=False)
        asked.feed.add(name="x:0").tensor.CopyFrom(tensor)
    return asked


def fed(**fields: Any) -> proto.RunStepRequest:
    return small_run(feed=[proto.NamedTensorProto(name="x:0", tensor=proto.TensorProto(**fields))])


def in_two_parts() -> bytes:
    """A message whose tensor comes twice, which protobuf puts together."""
    content = fed(dtype=dtypes.float32.enum, tensor_content=bytes(8)).feed[0].SerializeToString()
    content += content[content.index(b"\x12") :]
    return b"\x12" + bytes([len(content)]) + content


def test_small_message_needs_no_measuring() -> None:
    options = proto.RunOptions(timeout_in_ms=1)
    for message in (small_run(), small_run(options=options), fed(dtype=dtypes.float32.enum, tensor_content=bytes(8))):
        assert protobuf.parse_small_run(message.SerializeToString()) == message
    assert protobuf.parse_small_run(b"") == proto.RunStepRequest()


@pytest.mark.parametrize(
    "body",
    [
        small_run(target=["y" * 2000]).SerializeToString(),
        small_run(partial_run_handle="p").SerializeToString(),
        fed(dtype=dtypes.float32.enum, float_val=[1]).SerializeToString(),
        fed(dtype=dtypes.string.enum, tensor_content=b"\1a").SerializeToString(),
        in_two_parts(),
        b"\n",
    ],
    ids=["large", "part", "filled", "strings", "twice", "cut off"],
)
def test_message_that_is_not_small_and_plain_is_measured(body: bytes) -> None:
    assert protobuf.parse_small_run(body) is None
