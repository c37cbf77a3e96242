"""The life of a session over HTTP."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
from aexec_server.handles import shortened
from aexec_server.sessions import graph_reclaimer, session_maker
from google.protobuf import json_format

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.signature import Signature
from aexec.saved_model import load_saved_model, save_saved_model
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

PROTOBUF = "application/x-protobuf"


def extension(name: str = "z", source: str = "y") -> GraphBuilder:
    g = GraphBuilder()
    g(name, "Neg", source, T=dtypes.float32)
    return g


def encoded(graph: GraphBuilder) -> str:
    return base64.b64encode(graph.graph_def.SerializeToString()).decode()


async def test_create_from_base64(api: Api) -> None:
    body = json.dumps({"graph_def": encoded(small_graph())}).encode()
    response, data = await api.raw("POST", "/v1/sessions", body)
    assert response.status == 201
    answer = json.loads(data)
    assert answer == {"session_handle": answer["session_handle"], "graph_version": 0}
    assert response.headers["Location"] == f"/v1/sessions/{answer['session_handle']}"


async def test_create_from_the_json_form(api: Api) -> None:
    nodes = [
        {"name": "x", "op": "Placeholder", "attr": {"dtype": {"type": "DT_FLOAT"}}},
        {"name": "y", "op": "Neg", "input": ["x"], "attr": {"T": {"type": "DT_FLOAT"}}},
    ]
    graph_def = {"node": nodes, "versions": {"producer": 2474}}
    status, answer = await api.call("POST", "/v1/sessions", {"graph_def": graph_def, "config": {}})
    assert status == 201
    status, answer = await api.run(answer["session_handle"], feeds={"x:0": 2}, fetches=["y"])
    assert status == 200 and answer["outputs"] == {"y": -2.0}


async def test_create_from_a_bare_graph(api: Api) -> None:
    data = small_graph().graph_def.SerializeToString()
    response, body = await api.raw("POST", "/v1/sessions?ttl_s=20", data, Content_Type="application/octet-stream")
    assert response.status == 201
    status, described = await api.call("GET", f"/v1/sessions/{json.loads(body)['session_handle']}")
    assert status == 200 and described["nodes"] == 12 and described["ttl_s"] == 20


async def test_create_from_a_message(api: Api) -> None:
    request = proto.CreateSessionRequest(graph_def=small_graph().graph_def)
    response, body = await api.raw("POST", "/v1/sessions", request.SerializeToString(), Content_Type=PROTOBUF)
    assert response.status == 201 and response.content_type == PROTOBUF
    answer = proto.CreateSessionResponse.FromString(body)
    assert answer.graph_version == 0 and api.hosted(answer.session_handle)


async def test_create_takes_an_empty_graph_that_grows(api: Api) -> None:
    handle = await api.create(GraphBuilder())
    assert (await api.run(handle, fetches=["y"]))[0] == 400
    body = {"graph_def": encoded(small_graph()), "current_graph_version": 0}
    assert await api.call("POST", f"/v1/sessions/{handle}:extend", body) == (200, {"new_graph_version": 1})
    assert (await api.run(handle, feeds={"x": [3]}, fetches=["y"]))[1]["outputs"] == {"y": [9.0]}


async def test_config_is_a_config_proto(api: Api) -> None:
    handle = await api.create(small_graph(), config={"device_count": {"CPU": 3}, "operation_timeout_in_ms": 9000})
    config = api.hosted(handle).session.config
    assert config.operation_timeout == 9.0
    status, answer = await api.call("GET", f"/v1/sessions/{handle}/devices")
    assert status == 200
    assert [d["name"] for d in answer["devices"]] == [
        f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(3)
    ]
    assert {d["device_type"] for d in answer["devices"]} == {"CPU"}


async def test_list_and_get(start: Start) -> None:
    api = await start(graphs={"model": small_graph().graph()})
    handle = await api.create(small_graph(), ttl_s=60)
    status, answer = await api.call("GET", "/v1/sessions")
    assert status == 200
    (described,) = answer["sessions"]  # and not the client's, whose handle is a secret
    expected = {"session_handle": "model", "graph_version": 0, "nodes": 12, "runs": 0, "runs_in_flight": 0, "plans": 0}
    assert described.items() >= expected.items() and described["ttl_s"] is None
    status, one = await api.call("GET", f"/v1/sessions/{handle}")
    assert (
        status == 200 and one.keys() == described.keys() | {"inputs", "outputs", "signatures"} and one["ttl_s"] == 60.0
    )


@pytest.mark.parametrize("allowed", [False, True])
async def test_clients_cannot_change_the_servers_own_sessions(start: Start, allowed: bool) -> None:
    api = await start(graphs={"model": small_graph().graph()}, allow_model_changes=allowed)
    body = {"graph_def": encoded(extension()), "current_graph_version": 0}
    status, answer = await api.call("POST", "/v1/sessions/model:extend", body)
    assert status == (200 if allowed else 403), answer
    assert (await api.call("DELETE", "/v1/sessions/model"))[0] == (204 if allowed else 403)
    assert (await api.run("model", feeds={"x": [2]}, fetches=["y"]))[0] == (404 if allowed else 200)


async def test_handles_are_secrets(api: Api) -> None:
    handle = await api.create(small_graph())
    assert re.fullmatch("[0-9a-f]{32}", handle)
    assert shortened(f"/v1/sessions/2-{handle}:run") == f"/v1/sessions/2-{handle[:6]}…:run"
    assert shortened("/v1/sessions/model:run") == "/v1/sessions/model:run"


async def test_extend_counts_versions(api: Api, small: str) -> None:
    path = f"/v1/sessions/{small}:extend"
    body = {"graph_def": encoded(extension()), "current_graph_version": 0}
    assert await api.call("POST", path, body) == (200, {"new_graph_version": 1})
    assert (await api.run(small, feeds={"x": [2]}, fetches=["z"]))[1]["outputs"] == {"z": [-4.0]}
    status, answer = await api.call("POST", path, body)
    assert (status, answer["code"]) == (400, "FAILED_PRECONDITION")
    assert answer["error"] == "Current version is 1 but caller expected 0."
    status, answer = await api.call("POST", path, {**body, "current_graph_version": 1})
    assert (status, answer["code"]) == (400, "INVALID_ARGUMENT") and answer["node"] == "z"
    assert (await api.call("GET", f"/v1/sessions/{small}"))[1]["graph_version"] == 1


async def test_fetches_that_were_unknown_are_known_after_an_extension(api: Api, small: str) -> None:
    assert (await api.run(small, feeds={"x": [2]}, fetches=["z"]))[0] == 404
    body = {"graph_def": encoded(extension()), "current_graph_version": 0}
    await api.call("POST", f"/v1/sessions/{small}:extend", body)
    status, answer = await api.run(small, feeds={"x": [2]}, fetches=["z"])
    assert status == 200 and answer["dtypes"] == {"z": "float32"}


async def test_extend_with_a_message(api: Api, small: str) -> None:
    request = proto.ExtendSessionRequest(session_handle=small, graph_def=extension().graph_def)
    response, body = await api.raw(
        "POST", f"/v1/sessions/{small}:extend", request.SerializeToString(), Content_Type=PROTOBUF
    )
    assert response.status == 200 and response.content_type == PROTOBUF
    assert proto.ExtendSessionResponse.FromString(body).new_graph_version == 1


async def test_message_cannot_name_another_session(api: Api, small: str) -> None:
    other = await api.create(small_graph())
    request = proto.ExtendSessionRequest(session_handle=other, graph_def=extension().graph_def)
    response, _ = await api.raw(
        "POST", f"/v1/sessions/{small}:extend", request.SerializeToString(), Content_Type=PROTOBUF
    )
    assert response.status == 400


async def test_graph_by_accept(api: Api, small: str) -> None:
    path = f"/v1/sessions/{small}/graph"
    sent = small_graph().graph_def
    for media in (PROTOBUF, "application/octet-stream"):
        response, body = await api.raw("GET", path, Accept=f"{media}; q=0.9, */*")
        assert response.content_type == media and proto.GraphDef.FromString(body) == sent
    response, body = await api.raw("GET", path, Accept="text/plain")
    assert response.content_type == "text/plain" and b'op: "Placeholder"' in body
    for accept in ("*/*", "application/json"):
        response, body = await api.raw("GET", path, Accept=accept)
        assert response.content_type == "application/json"
        assert [n["name"] for n in json.loads(body)["node"]] == [n.name for n in sent.node]


async def test_devices_as_a_message(api: Api, small: str) -> None:
    path = f"/v1/sessions/{small}/devices"
    _, by_accept = await api.raw("GET", path, Accept=PROTOBUF)
    request = proto.ListDevicesRequest(session_handle=small).SerializeToString()
    _, by_request = await api.raw("POST", path, request, Content_Type=PROTOBUF)
    assert by_accept == by_request
    (device,) = proto.ListDevicesResponse.FromString(by_accept).local_device
    assert device.name == "/job:localhost/replica:0/task:0/device:CPU:0"


async def test_delete_answers_204_and_frees(api: Api, small: str) -> None:
    await api.run(small, feeds={"x": [1]}, fetches=["y"])
    session = api.hosted(small).session
    assert await api.call("DELETE", f"/v1/sessions/{small}") == (204, None)
    assert session.closed
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", ":run"), ("GET", "/graph"), ("GET", "/runs")):
        status, answer = await api.call(method, f"/v1/sessions/{small}{path}")
        assert (status, answer["code"]) == (404, "NOT_FOUND")


async def test_delete_with_a_message(api: Api, small: str) -> None:
    request = proto.CloseSessionRequest(session_handle=small).SerializeToString()
    response, body = await api.raw("DELETE", f"/v1/sessions/{small}", request, Content_Type=PROTOBUF)
    assert response.status == 200 and proto.CloseSessionResponse.FromString(body) == proto.CloseSessionResponse()
    assert len(api.server.sessions) == 0


async def test_delete_cancels_runs(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    run = asyncio.create_task(api.run(handle, fetches=["y"]))
    await gate.entered.wait()
    assert await api.call("DELETE", f"/v1/sessions/{handle}") == (204, None)
    status, answer = await run
    assert (status, answer["code"]) == (499, "CANCELLED")
    assert gate.cancelled == 1


async def test_sessions_are_bounded(start: Start) -> None:
    api = await start(max_sessions=2)
    first = await api.create(small_graph())
    await api.create(small_graph())
    body = json.dumps({"graph_def": ""}).encode()
    response, data = await api.raw("POST", "/v1/sessions", body)
    assert response.status == 429 and response.headers["Retry-After"] == "1"
    assert json.loads(data)["code"] == "RESOURCE_EXHAUSTED"
    await api.call("DELETE", f"/v1/sessions/{first}")
    await api.create(small_graph())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_unused_sessions_expire(start: Start) -> None:
    clock = Clock()
    api = await start(clock=clock, session_ttl_s=100.0)
    by_default = await api.create(small_graph())
    longer = await api.create(small_graph(), ttl_s=300)
    clock.now += 99
    assert api.server.sessions.close_expired() == []
    await api.run(by_default, feeds={"x": [1]}, fetches=["y"])  # use begins the time anew
    clock.now += 99
    assert api.server.sessions.close_expired() == []
    clock.now += 1
    assert api.server.sessions.close_expired() == [by_default]
    assert (await api.run(by_default, fetches=["y"]))[0] == 404
    assert (await api.run(longer, feeds={"x": [1]}, fetches=["y"]))[0] == 200


async def test_session_with_a_run_does_not_expire(start: Start) -> None:
    clock = Clock()
    api = await start(clock=clock)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate), ttl_s=1)
    run = asyncio.create_task(api.run(handle, fetches=["y"]))
    await gate.entered.wait()
    clock.now += 1000
    assert api.server.sessions.close_expired() == []
    gate.open.set()
    assert (await run)[0] == 200
    clock.now += 1
    assert api.server.sessions.close_expired() == [handle]


async def test_server_looks_for_expired_sessions(start: Start) -> None:
    clock = Clock()
    api = await start(clock=clock, sweep_seconds=1e-3)
    handle = await api.create(small_graph(), ttl_s=1)
    clock.now += 2
    await until(lambda: len(api.server.sessions) == 0)
    assert (await api.run(handle, fetches=["y"]))[0] == 404


async def test_configured_sessions_are_open_from_the_start_and_stay(start: Start, tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "model.pb"
    path.write_bytes(small_graph().graph_def.SerializeToString())
    api = await start(graphs={"file": path, "made": lambda: small_graph().graph()}, clock=clock)
    clock.now += 1e9
    assert api.server.sessions.close_expired() == []
    for handle in ("file", "made"):
        assert (await api.run(handle, feeds={"x": [2]}, fetches=["y"]))[1]["outputs"] == {"y": [4.0]}


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("ReadFile", {}), ("PrintV2", {"t": dtypes.float32, "output_stream": b"file:///tmp/x"})],
)
@pytest.mark.parametrize("in_function", [False, True])
async def test_graphs_of_clients_may_not_touch_files(
    api: Api, op: str, attrs: dict[str, object], in_function: bool
) -> None:
    g = small_graph()
    nodes = GraphBuilder()
    nodes("f", op, "s" if op == "ReadFile" else "x", **attrs)
    if in_function:
        function = g.graph_def.library.function.add()
        function.signature.name = "Reads"
        function.node_def.extend(nodes.graph_def.node)
    else:
        g.graph_def.node.extend(nodes.graph_def.node)
    status, answer = await api.call("POST", "/v1/sessions", {"graph_def": encoded(g)})
    assert (status, answer["code"], answer["op"]) == (403, "PERMISSION_DENIED", op)
    if not in_function:
        handle = await api.create(small_graph())
        body = {"graph_def": encoded(nodes), "current_graph_version": 0}
        assert (await api.call("POST", f"/v1/sessions/{handle}:extend", body))[0] == 403


async def test_file_ops_can_be_allowed(start: Start) -> None:
    api = await start(trust_graphs=True)
    g = small_graph()
    g("f", "PrintV2", "s", output_stream=b"file:///nonexistent/x", T=dtypes.string)
    status, _ = await api.call("POST", "/v1/sessions", {"graph_def": encoded(g)})
    assert status == 201


class TestOwnGraphs:
    """Graphs of the server's own may have ops that reach for files; clients may not run them."""

    @staticmethod
    def graph() -> aexec.Graph:
        g = small_graph()
        g.const("name", b"/etc/passwd")
        g("read", "ReadFile", "name")
        g("size", "StringLength", "read")
        g("called", "PartitionedCall", "name", Tin=[dtypes.string], Tout=[dtypes.string], f=NameAttrList("Outer"))
        for name, op, inner in (("Inner", "ReadFile", ""), ("Outer", "PartitionedCall", "Inner")):
            function = g.graph_def.library.function.add()
            function.signature.name = name
            function.signature.input_arg.add(name="a", type=dtypes.string.enum)
            function.signature.output_arg.add(name="b", type=dtypes.string.enum)
            node = function.node_def.add(name="n", op=op, input=["a"])
            if inner:
                node.attr["f"].func.name = inner
                node.attr["Tin"].list.type.append(dtypes.string.enum)
                node.attr["Tout"].list.type.append(dtypes.string.enum)
            function.ret["b"] = "n:output:0" if inner else "n:contents:0"
        return g.graph()

    @pytest.mark.parametrize(
        "request_",
        [
            {"fetches": ["read"]},
            {"fetches": ["size"]},
            {"fetches": ["called"]},
            {"fetches": ["y"], "feeds": {"x": [2]}, "targets": ["read"]},
            {"fetches": ["size"], "feeds": {"name": "/etc/shadow"}},
        ],
    )
    async def test_file_ops_are_refused(self, start: Start, request_: dict[str, Any]) -> None:
        api = await start(graphs={"own": self.graph()})
        status, answer = await api.run("own", **request_)
        assert (status, answer["code"]) == (403, "PERMISSION_DENIED")

    async def test_other_nodes_of_the_graph_run(self, start: Start) -> None:
        api = await start(graphs={"own": self.graph()})
        for _ in range(2):
            assert (await api.run("own", feeds={"x": [2]}, fetches=["y"]))[0] == 200
        status, answer = await api.run("own", feeds={"read": "four"}, fetches=["size"])
        assert (status, answer["outputs"]) == (200, {"size": 4})

    async def test_extension_is_no_way_round(self, start: Start) -> None:
        api = await start(graphs={"own": self.graph()}, allow_model_changes=True)
        g = GraphBuilder()
        g.const("other", b"/etc/passwd")
        g("mine", "PartitionedCall", "other", Tin=[dtypes.string], Tout=[dtypes.string], f=NameAttrList("Inner"))
        body = {"graph_def": encoded(g), "current_graph_version": 0}
        assert (await api.call("POST", "/v1/sessions/own:extend", body))[0] == 200
        assert (await api.run("own", fetches=["mine"]))[0] == 403

    async def test_file_op_is_refused_right_after_an_extension(self, start: Start) -> None:
        """The graph is extended in a thread: a run may come before whoever extended it goes on."""
        api = await start(graphs={"own": self.graph()})
        g = GraphBuilder()
        g.const("other", b"/etc/passwd")
        g("mine", "PartitionedCall", "other", Tin=[dtypes.string], Tout=[dtypes.string], f=NameAttrList("Inner"))
        await api.hosted("own").session.extend(g.graph_def)
        assert (await api.run("own", fetches=["mine"]))[0] == 403

    async def test_file_ops_run_if_graphs_are_trusted(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"hello")
        api = await start(graphs={"own": self.graph()}, trust_graphs=True)
        status, answer = await api.run("own", feeds={"name": str(tmp_path / "f")}, fetches=["size"])
        assert (status, answer["outputs"]) == (200, {"size": 5})


async def test_kept_tensors_of_clients_are_bounded(start: Start) -> None:
    api = await start(max_kept_bytes=100)
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("h", "GetSessionHandle", "x", T=dtypes.float32)
    handle = await api.create(g)
    for _ in range(2):
        assert (await api.run(handle, feeds={"x": [1.0] * 12}, fetches=["h"]))[0] == 200
    status, answer = await api.run(handle, feeds={"x": [1.0] * 12}, fetches=["h"])
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED")


async def test_saved_model_is_served_with_its_variables(start: Start, tmp_path: Path) -> None:
    """And what saved them is not for clients: they would name the files."""
    with aexec.Graph() as graph:
        v = aexec.ops.var_handle_op("float32", [], shared_name="v", name="v")
        aexec.ops.assign_variable_op(v, aexec.constant(7.0), name="init")
        x = aexec.placeholder("float32", [], name="x")
        y = aexec.ops.mul(aexec.ops.read_variable_op(v, "float32"), x, name="y")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["init"])
        await save_saved_model(session, tmp_path / "m", {"serving_default": Signature.of({"x": x}, {"y": y})})
    model = await asyncio.to_thread(load_saved_model, tmp_path / "m")
    saver = model.meta_graph.saver_def
    assert saver is not None
    api = await start(graphs={"model": tmp_path / "m"})
    status, answer = await api.run("model", feeds={"x": 2}, fetches=["y"])
    assert (status, answer["outputs"]) == (200, {"y": 14.0})
    feeds = {saver.filename_tensor_name: str(tmp_path / "stolen")}
    status, answer = await api.run("model", feeds=feeds, fetches=[saver.save_tensor_name])
    assert (status, answer["code"]) == (403, "PERMISSION_DENIED")
    status, answer = await api.run("model", feeds=feeds, fetches=["y"], targets=[saver.restore_op_name])
    assert (status, answer["code"]) == (403, "PERMISSION_DENIED")


def large_graph(nodes: int = 8000) -> GraphBuilder:
    g = small_graph()
    for index in range(nodes):
        g(f"z{index}", "Neg", "y" if index == 0 else f"z{index - 1}", T=dtypes.float32)
    return g


async def test_large_graph_is_out_of_the_collectors_sight_until_it_is_deleted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What these functions do, which here would do nothing, is shown by `tests/framework/memory/heap_cases.py`."""
    called: list[str] = []
    monkeypatch.setattr(graph_reclaimer, "_COLLECT_AFTER", 0.0)
    for module, name in (
        (session_maker, "keep_large"),
        (graph_reclaimer, "drop_large"),
        (graph_reclaimer, "collect_garbage"),
    ):
        monkeypatch.setattr(module, name, lambda name=name: called.append(name))
    handle = await api.create(large_graph())
    assert called == ["keep_large"] and gc.isenabled()
    graph = weakref.ref(api.hosted(handle).session.graph)
    status, answer = await api.run(handle, feeds={"x": [3]}, fetches=["z7999"])
    assert status == 200 and answer["outputs"] == {"z7999": [9.0]}
    assert called == ["keep_large"]
    assert await api.call("DELETE", f"/v1/sessions/{handle}") == (204, None)
    await until(lambda: called == ["keep_large", "drop_large", "collect_garbage"])

    def gone() -> bool:
        # Here the collection is without delay, so it may come while the closing task still refers to the graph.
        gc.collect()
        return graph() is None

    await until(gone)


async def test_error_in_a_large_graph_is_reported(api: Api) -> None:
    g = large_graph()
    g("bad", "NoOp", "nobody")
    status, answer = await api.call("POST", "/v1/sessions", {"graph_def": encoded(g)})
    assert status == 400 and "nobody" in answer["error"]
    assert gc.isenabled()


async def test_limit_of_memory_names_the_largest_tensors(start: Start) -> None:
    api = await start(max_run_bytes=1000)
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("kept", "Neg", "x", T=dtypes.float32)
    g.const("many", [100], dtypes.int32)
    g("y", "Tile", "kept", "many", T=dtypes.float32, Tmultiples=dtypes.int32)
    handle = await api.create(g)
    status, answer = await api.run(handle, feeds={"x": [1, 2, 3]}, fetches=["y", "kept"])
    assert status == 429
    assert "1200 more would exceed the 1000" in answer["error"]
    assert "12B from kept" in answer["error"]
    status, _ = await api.run(handle, feeds={"x": [1, 2]}, fetches=["y"])
    assert status == 200


def chain(length: int) -> bytes:
    """What asks for a session of so many nodes in a row."""
    g = GraphBuilder()
    g("x", "Placeholder", dtype=dtypes.float32)
    before = "x"
    for number in range(length):
        before = g(f"n{number}", "Neg", before, T=dtypes.float32)
    return request_for(g)


def request_for(graph: GraphBuilder) -> bytes:
    return proto.CreateSessionRequest(graph_def=graph.graph_def).SerializeToString()


async def test_making_a_session_has_the_longest_deadline(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[Any] = []
    monkeypatch.setattr(aexec, "Session", lambda graph, **settings: imported.append(graph))
    api = await start(max_timeout=0.02)
    response, data = await api.raw("POST", "/v1/sessions", chain(30_000), Content_Type=PROTOBUF)
    assert response.status == 504
    assert b"not made within 0.02 s" in data
    assert api.server.sessions._being_made == 0
    assert not imported  # it was called off


async def test_many_large_graphs_do_not_keep_others_from_making_sessions(api: Api) -> None:
    large = chain(6_000)

    async def create(body: bytes) -> int:
        response, _ = await api.raw("POST", "/v1/sessions", body, Content_Type=PROTOBUF)
        return response.status

    others = [asyncio.create_task(create(large)) for _ in range(16)]
    await until(lambda: api.server.sessions._being_made == len(others))
    assert await create(request_for(small_graph())) == 201
    assert sum(other.done() for other in others) < len(others) / 2
    assert await asyncio.gather(*others) == [201] * len(others)


EXTENSION_FORMS = ["octets", "protobuf", "base64", "object"]


def extension_body(form: str, graph_def: proto.GraphDef, version: int | None) -> tuple[bytes, str]:
    """The body and its media type."""
    if form == "octets":
        return graph_def.SerializeToString(), "application/octet-stream"
    if form == "protobuf":
        message = proto.ExtendSessionRequest(graph_def=graph_def, current_graph_version=version or 0)
        return message.SerializeToString(), "application/x-protobuf"
    given: object = json_format.MessageToDict(graph_def)
    if form == "base64":
        given = base64.b64encode(graph_def.SerializeToString()).decode()
    fields = {"graph_def": given} | ({} if version is None else {"current_graph_version": version})
    return json.dumps(fields).encode(), "application/json"


@pytest.mark.parametrize("form", EXTENSION_FORMS)
async def test_extension_takes_the_forms_that_a_new_session_takes(api: Api, small: str, form: str) -> None:
    body, media = extension_body(form, extension().graph_def, 0)
    response, _ = await api.raw("POST", f"/v1/sessions/{small}:extend", body, Content_Type=media)
    assert response.status == 200
    assert (await api.run(small, feeds={"x": [2]}, fetches=["z"]))[1]["outputs"] == {"z": [-4]}


@pytest.mark.parametrize("form", ["octets", "base64"])
async def test_version_of_an_extension_may_be_in_its_address(api: Api, small: str, form: str) -> None:
    for number, (version, status) in enumerate([("0", 200), ("0", 400), ("1", 200), ("x", 400), ("9" * 30, 400)]):
        body, media = extension_body(form, extension(f"z{number}").graph_def, None)
        path = f"/v1/sessions/{small}:extend?current_graph_version={version}"
        response, answer = await api.raw("POST", path, body, Content_Type=media)
        assert response.status == status, answer
        if number == 1:
            assert json.loads(answer)["code"] == "FAILED_PRECONDITION"


async def test_two_versions_of_one_extension_are_refused(api: Api, small: str) -> None:
    body, media = extension_body("base64", GraphBuilder().graph_def, 0)
    path = f"/v1/sessions/{small}:extend?current_graph_version=1"
    response, answer = await api.raw("POST", path, body, Content_Type=media)
    assert response.status == 400 and "not that of the address" in json.loads(answer)["error"]


@pytest.mark.parametrize("call", ["/v1/sessions", "/v1/sessions/{}:extend"])
async def test_bytes_that_are_no_graph_are_told_what_was_expected(api: Api, small: str, call: str) -> None:
    looks_like = {b"\xff\xff\xff": "", b'{"node": []}': "; they look like JSON", b"node {}": "; they look like text"}
    for body, looks in looks_like.items():
        response, answer = await api.raw("POST", call.format(small), body, Content_Type="application/octet-stream")
        assert response.status == 400
        told, _, expected = json.loads(answer)["error"].partition(", ")
        assert told == f"Cannot parse GraphDef: {len(body)} bytes are no such message"
        assert expected == f"expected a GraphDef in protobuf's binary form{looks}"
