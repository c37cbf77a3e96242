"""What one sees of a server from outside: figures of all its processes, errors without what they said, nodes."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from aexec_server.clients.tokens import new_token
from aexec_server.watching.activity import OtherProcesses

from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


async def status_of(api: Api) -> Any:
    code, answer = await api.call("GET", "/v1/status")
    assert code == 200
    return answer


async def test_figures(api: Api, small: str) -> None:
    before = await status_of(api)
    assert before["ready"] and before["sessions"] == 1 and before["runs"] == before["errors"] == 0
    await api.run(small, feeds={"x:0": [1]}, fetches=["y:0"])
    after = await status_of(api)
    assert after["runs"] == 1 and after["runs_in_flight"] == 0 and after["uptime_s"] >= before["uptime_s"]


async def test_errors_are_told_without_handles_and_words(start: Start) -> None:
    """And without tokens, with which anybody may look, without what others have named."""
    token, digest = new_token()
    headers = {"Authorization": f"Bearer {token}"}
    with_tokens = await start(tokens=f'admin = {{sha256 = "{digest}", scopes = ["admin"]}}\n')
    graph = base64.b64encode(small_graph().graph_def.SerializeToString()).decode()
    for api in (with_tokens, await start()):
        _, made = await api.call("POST", "/v1/sessions", {"graph_def": graph}, headers=headers)
        small = made["session_handle"]
        run = {"feeds": {"x:0": [1]}, "fetches": ["fails:0"]}
        await api.call("POST", f"/v1/sessions/{small}:run", run, headers=headers)
        await api.call("DELETE", "/v1/models/secret", headers=headers)
        for method in ("GET", "POST", "DELETE"):
            await api.call(method, "/v1/secrets", headers=headers)  # is not noted
        await api.call("POST", "/v1/sessions/nobody:run", {"fetches": ["y:0"]}, headers=headers)
        _, status = await api.call("GET", "/v1/status", headers=headers)
        assert status["errors"] == 2 and small not in str(status)
        failed, unheard = status["recent_errors"]
        assert failed["method"] == "POST" and (unheard["status"], unheard["code"]) == (405, "INVALID_ARGUMENT")
        if api is with_tokens:
            assert (failed["node"], failed["op"]) == ("fails", "TestFail") and unheard["node"] is None
            assert (failed["path"], unheard["path"]) == (f"/v1/sessions/{small[:6]}…:run", "/v1/models/secret")
        else:
            assert (failed["node"], failed["op"]) == (None, None)
            assert (failed["path"], unheard["path"]) == ("/v1/sessions/{session}:run", "")


async def test_latest_errors_are_kept(api: Api) -> None:
    for number in range(60):
        await api.call("DELETE", f"/v1/models/{number}")
    assert (await status_of(api))["errors"] == 60
    kept = [error["path"] for error in api.server.activity.recent_errors()]
    assert kept == [f"/v1/models/{number}" for number in range(10, 60)]


async def test_processes_are_added_up(api: Api) -> None:
    await api.call("DELETE", "/v1/models/last")
    here = await status_of(api)
    part = {
        "sessions": 3,
        "runs_in_flight": 1,
        "runs": 7,
        "errors": 1,
        "tensor_bytes": 10,
    }
    errors = [here["recent_errors"][0] | {"time": 1.0, "route": "/first"}]
    others = OtherProcesses({"1": part, "2": part}, {"runs": 5, "errors": 2}, errors)
    api.server.others = lambda: others
    api.server.tensor_bytes_limit = 200
    status = await status_of(api)
    assert (status["sessions"], status["runs_in_flight"], status["runs"], status["errors"]) == (6, 2, 19, 5)
    assert status["tensor_bytes_limit"] == 200 and [host["name"] for host in status["hosts"]] == ["1", "2"]
    assert status["host_count"] == 2
    assert [error["path"] for error in status["recent_errors"]] == ["/first", ""]


async def test_hundred_processes_are_named(api: Api) -> None:
    part = {"sessions": 1, "runs_in_flight": 0, "runs": 0, "errors": 0, "tensor_bytes": 0}
    hosts = {f"{n:x}": part | {"runs_in_flight": int(n == 300)} for n in range(400)}
    api.server.others = lambda: OtherProcesses(hosts)
    status = await status_of(api)
    assert status["sessions"] == status["host_count"] == 400
    assert len(status["hosts"]) == 100 and status["hosts"][0]["name"] == f"{300:x}"


async def test_run_says_what_it_waits_for(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    run = asyncio.create_task(api.run(handle, run_id="r", fetches=["y"]))
    await gate.entered.wait()
    code, answer = await api.call("GET", f"/v1/sessions/{handle}/runs/r")
    gate.open.set()
    assert code == 200 and answer["waits_for"][0].startswith("running y (TestGate)")
    assert (await run)[0] == 200


async def nodes_of(api: Api, handle: str, query: str = "") -> Any:
    return await api.call("GET", f"/v1/sessions/{handle}/nodes{query}")


async def test_nodes(api: Api, small: str) -> None:
    code, answer = await nodes_of(api, small)
    assert code == 200 and answer["total"] == len(answer["nodes"]) == len(small_graph().graph_def.node)
    by_name = {node["name"]: node for node in answer["nodes"]}
    assert by_name["y"] == {
        "name": "y",
        "op": "Square",
        "device": "",
        "inputs": ["x"],
        "outputs": [{"datatype": "FP32", "shape": [-1]}],
    }
    assert by_name["m_out"]["outputs"] == [{"datatype": "FP32", "shape": None}]
    code, answer = await nodes_of(api, small, "?node=y")
    assert [node["attrs"] for node in answer["nodes"]] == [{"T": "DT_FLOAT"}]
    code, answer = await nodes_of(api, small, "?node=z")
    assert code == 404 and "'z'" in answer["error"]


async def test_nodes_of_a_function(start: Start) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    function = g.graph_def.library.function.add()
    function.signature.name = "Twice"
    function.signature.input_arg.add(name="a", type=dtypes.float32.enum)
    function.signature.output_arg.add(name="b", type=dtypes.float32.enum)
    node = function.node_def.add(name="sum", op="AddV2", input=["a", "a"])
    node.attr["T"].type = dtypes.float32.enum
    function.ret["b"] = "sum:z:0"
    api = await start()
    handle = await api.create(g)
    code, answer = await nodes_of(api, handle, "?function=Twice")
    assert code == 200 and answer["functions"] == ["Twice"]
    assert [(n["name"], n["op"], n["inputs"]) for n in answer["nodes"]] == [
        ("a", "_Arg", []),
        ("sum", "AddV2", ["a", "a"]),
        ("b_RetVal", "_Retval", ["sum:z:0"]),
    ]
    code, answer = await nodes_of(api, handle, "?function=Twice&node=sum")
    assert answer["nodes"][0]["attrs"] == {"T": "DT_FLOAT"}
    calling = GraphBuilder()
    calling.graph_def.MergeFrom(g.graph_def)
    calling("call", "PartitionedCall", "x", Tin=[dtypes.float32], Tout=[dtypes.float32], f="Twice")
    _, answer = await nodes_of(api, await api.create(calling))
    assert [node.get("calls") for node in answer["nodes"]] == [None, ["Twice"]]
    code, answer = await nodes_of(api, handle, "?function=Thrice")
    assert code == 404
