"""Sessions with names and limits of their creator's, and containers that are dropped."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aexec_server.handles import Handles, check_name, is_made

from aexec import errors, proto
from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until


async def test_name(api: Api) -> None:
    assert await api.create(small_graph(), name="mine.1") == "mine.1"
    status, answer = await api.run("mine.1", feeds={"x": [3]}, fetches=["y"])
    assert (status, answer["outputs"]) == (200, {"y": [9]})
    graph = small_graph().graph_def.SerializeToString()
    for path in ("/v1/sessions?name=mine.1", "/v1/sessions"):
        response, body = await api.raw("POST", path, graph, Content_Type="application/octet-stream")
        if "name" in path:
            assert (response.status, json.loads(body)["code"]) == (409, "ALREADY_EXISTS")
        else:
            assert response.status == 201
    assert (await api.call("DELETE", "/v1/sessions/mine.1"))[0] == 204
    response, body = await api.raw("POST", "/v1/sessions?name=mine.1", graph, Content_Type="application/octet-stream")
    assert (response.status, response.headers["Location"]) == (201, "/v1/sessions/mine.1")
    _, listed = await api.call("GET", "/v1/sessions")
    assert listed == {"sessions": []}  # whose it is, is nobody else's business


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a@1", "-a", "é", "x" * 129, "0" * 32, f"1-{'a' * 32}", 3])
def test_malformed_name_is_refused(name: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match='"name" must be'):
        check_name(name)


def test_handles_look_like_no_name() -> None:
    for prefix in ("", "1-", "1f-"):
        assert is_made(Handles(prefix).new())


async def test_two_names_for_one_session_are_refused(api: Api) -> None:
    body = json.dumps({"graph_def": {}, "name": "a"}).encode()
    response, text = await api.raw("POST", "/v1/sessions?name=b", body)
    assert response.status == 400 and b'\\"name\\" is not that of the address' in text


async def test_names_in_a_host_are_in_the_address(start: Start) -> None:
    api = await start(handle_prefix="1-")
    response, text = await api.raw("POST", "/v1/sessions", json.dumps({"graph_def": {}, "name": "a"}).encode())
    assert response.status == 501 and b"?name=" in text
    response, text = await api.raw("POST", "/v1/sessions?name=a", json.dumps({"graph_def": {}}).encode())
    assert response.status == 201


async def test_model_takes_its_name(api: Api) -> None:
    await api.create(small_graph(), name="model")
    client, other = api.hosted("model"), api.hosted(await api.create(small_graph()))
    other.owns_graph = False
    api.server.sessions.put("model", other)
    assert api.hosted("model") is other
    await until(lambda: client.session.closed)


async def test_limits(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate), limits={"max_runs": 1})
    waiting = asyncio.create_task(api.run(handle, fetches=["y"]))
    await gate.entered.wait()
    status, answer = await api.run(handle, fetches=["y"])
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED") and "the most that it may have" in answer["error"]
    gate.open.set()
    assert (await waiting)[0] == 200
    handle = await api.create(small_graph(), limits={"max_run_bytes": 100_000, "max_kept_bytes": 10})
    status, answer = await api.run(handle, feeds={"x": [0.0] * 30_000}, fetches=["y"])
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_runs": 0}, "positive"),
        ({"max_runs": 11}, "at most 10 on this server"),
        ({"max_kept_bytes": True}, "whole number"),
        ({"max_nodes": 3}, "Unknown field"),
        ([], "must be an object"),
    ],
)
async def test_refused_limits(start: Start, limits: Any, message: str) -> None:
    api = await start(max_session_runs=10)
    body = json.dumps({"graph_def": {}, "limits": limits}).encode()
    response, text = await api.raw("POST", "/v1/sessions", body)
    assert response.status == 400 and message in text.decode(), text


async def test_reset(api: Api) -> None:
    g = GraphBuilder()
    for container in ("", "mine"):
        name = container or "default"
        g(f"{name}_v", "VarHandleOp", dtype=dtypes.float32, shape=[], container=container, shared_name="v")
        g.const(f"{name}_one", 1, dtypes.float32)
        g(f"{name}_init", "AssignVariableOp", f"{name}_v", f"{name}_one", dtype=dtypes.float32)
        g(f"{name}_there", "VarIsInitializedOp", f"{name}_v")
    handle = await api.create(g)

    async def there() -> list[bool]:
        _, answer = await api.run(handle, fetches=["default_there", "mine_there"])
        return list(answer["outputs"].values())

    path = f"/v1/sessions/{handle}:reset"
    await api.run(handle, targets=["default_init", "mine_init"])
    assert await api.call("POST", path) == (200, {})
    assert await there() == [False, True]
    assert await api.call("POST", path, {"containers": ["mine"]}) == (200, {})
    assert await there() == [False, False]
    message = proto.ResetRequest(container=["mine"]).SerializeToString()
    response, body = await api.raw("POST", path, message, Content_Type="application/x-protobuf")
    assert (response.status, body) == (200, b"")
    message = proto.ResetRequest(device_filters=["/cpu:0"]).SerializeToString()
    response, body = await api.raw("POST", path, message, Content_Type="application/x-protobuf")
    assert response.status == 501
    assert (await api.call("POST", path, {"containers": ["a b"]}))[0] == 400
    api.hosted(handle).listed = True
    assert (await api.call("POST", path))[0] == 403
