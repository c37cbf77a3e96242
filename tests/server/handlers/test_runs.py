"""Runs over HTTP: both shapes of tensors, the binary extension, options, ids."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import struct
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from aexec_server.core import admission
from aexec_server.http import bodies
from aexec_server.http.request_preferences import read_priority_header
from aexec_server.requests import tensors

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.waiting.inline_call import on_event_loop
from aexec.hosting import canonical_name, run_in_thread, tensor_to_proto
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

LENGTH = "Inference-Header-Content-Length"

NUMBERS = [
    dtypes.float32,
    dtypes.float64,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.int8,
    dtypes.int16,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint8,
    dtypes.uint16,
    dtypes.uint32,
    dtypes.uint64,
]


def through(dtype: DType) -> GraphBuilder:
    """`x` goes through as `y`."""
    g = GraphBuilder()
    g.placeholder("x", dtype)
    g("y", "Identity", "x", T=dtype)
    return g


async def test_bad_ids_are_told_where_they_were(api: Api, small: str) -> None:
    asked = {"feeds": {"x": [1]}, "fetches": ["y"]}
    _, in_body = await api.run(small, **asked, run_id="a/b")
    _, in_header = await api.call("POST", f"/v1/sessions/{small}:run", asked, headers={"Aexec-Run-Id": "-"})
    _, in_path = await api.call("POST", f"/v1/sessions/{small}/runs/-:cancel")
    told = [answer["error"].partition(" must be 1 to 128 letters")[0] for answer in (in_body, in_header, in_path)]
    assert told == ['"run_id"', "The header Aexec-Run-Id", "A run's id"]


# The people's form


async def test_readable_form(api: Api, small: str) -> None:
    status, answer = await api.run(small, run_id="r1", feeds={"m:0": [[1, 2], [3, 4]]}, fetches=["m_out:0"])
    assert status == 200
    assert answer == {
        "run_id": "r1",
        "outputs": {"m_out:0": [[1.0, 2.0], [3.0, 4.0]]},
        "dtypes": {"m_out:0": "float32"},
        "shapes": {"m_out:0": [2, 2]},
    }


async def test_fetch_without_port_is_port_0(api: Api, small: str) -> None:
    _, answer = await api.run(small, feeds={"x": [3]}, fetches=["y", "y:0"])
    assert answer["outputs"] == {"y": [9.0], "y:0": [9.0]}


async def test_only_targets(api: Api, small: str) -> None:
    status, answer = await api.run(small, targets=["nothing"])
    assert status == 200 and answer["outputs"] == {}
    status, answer = await api.run(small, feeds=[], targets=["nothing"])
    assert status == 200 and answer["outputs"] == []


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
async def test_numbers_take_the_placeholders_type(api: Api, dtype: DType) -> None:
    handle = await api.create(through(dtype))
    _, answer = await api.run(handle, feeds={"x": [[1, 2, 3]]}, fetches=["y"])
    assert answer["outputs"] == {"y": [[1, 2, 3]]} and answer["shapes"] == {"y": [1, 3]}
    assert dtypes.as_dtype(answer["dtypes"]["y"]) is dtype
    assert type(answer["outputs"]["y"][0][0]) is (float if dtype.is_floating else int)
    _, scalar = await api.run(handle, feeds={"x": 5}, fetches=["y"])
    assert scalar["outputs"] == {"y": 5} and scalar["shapes"] == {"y": []}
    _, empty = await api.run(handle, feeds={"x": [[], []]}, fetches=["y"])
    assert empty["outputs"] == {"y": [[], []]} and empty["shapes"] == {"y": [2, 0]}


async def test_numbers_without_number(api: Api, small: str) -> None:
    body = b'{"feeds": {"x": [NaN, Infinity, -Infinity]}, "fetches": ["y"]}'
    response, data = await api.raw("POST", f"/v1/sessions/{small}:run", body)
    assert response.status == 200 and b"[NaN,Infinity,Infinity]" in data


async def test_booleans(api: Api, small: str) -> None:
    _, answer = await api.run(small, feeds={"b": [True, False]}, fetches=["b_out"])
    assert answer["outputs"] == {"b_out": [True, False]} and answer["dtypes"] == {"b_out": "bool"}


async def test_strings(api: Api, small: str) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    feeds = {"s": [["ä", ""], [{"b64": raw}, {"b64": base64.b64encode(b"ok").decode()}]]}
    _, answer = await api.run(small, feeds=feeds, fetches=["s_out"])
    assert answer["outputs"] == {"s_out": [["ä", ""], [{"b64": raw}, "ok"]]}
    assert answer["dtypes"] == {"s_out": "string"} and answer["shapes"] == {"s_out": [2, 2]}
    _, scalar = await api.run(small, feeds={"s": "one"}, fetches=["s_out"])
    assert scalar["outputs"] == {"s_out": "one"} and scalar["shapes"] == {"s_out": []}


async def test_quantised_numbers_are_their_storage(api: Api) -> None:
    handle = await api.create(through(dtypes.qint8))
    _, answer = await api.run(handle, feeds={"x": [-3, 4]}, fetches=["y"])
    assert answer["outputs"] == {"y": [-3, 4]} and answer["dtypes"] == {"y": "qint8"}


# The V2 tensor list


def tensor(name: str, datatype: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


async def test_tensor_list(api: Api, small: str) -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):  # nested or flat
        status, answer = await api.run(small, feeds=[tensor("m:0", "FP32", [2, 2], data)], fetches=["m_out"])
        assert status == 200 and answer["run_id"]
        assert answer["outputs"] == [tensor("m_out", "FP32", [2, 2], [1.0, 2.0, 3.0, 4.0])]


async def test_order_and_repetitions_of_fetches_are_kept(api: Api, small: str) -> None:
    feeds = [tensor("x", "FP32", [1], [2]), tensor("i", "INT32", [], [7])]
    _, answer = await api.run(small, feeds=feeds, fetches=["i_out", "y", "i_out"])
    assert [o["name"] for o in answer["outputs"]] == ["i_out", "y", "i_out"]
    assert [o["data"] for o in answer["outputs"]] == [[7], [4.0], [7]]


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("BOOL", [True, False]), ("BYTES", ["a", "b"]), ("FP32", [1.5, 2]), ("FP64", [0.1, 2])]
    + [(f"{kind}{bits}", [1, 2]) for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)],
)
async def test_every_datatype_as_json(api: Api, datatype: str, data: list[Any]) -> None:
    from aexec_server.requests.tensors import dtype_of_datatype

    handle = await api.create(through(dtype_of_datatype(datatype, "x")))
    status, answer = await api.run(handle, feeds=[tensor("x", datatype, [2], data)], fetches=["y"])
    assert status == 200 and answer["outputs"] == [tensor("y", datatype, [2], data)]


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "DT_COMPLEX64", "DT_QINT8"])
async def test_types_without_json_form_are_refused_in_both_directions(api: Api, datatype: str) -> None:
    from aexec_server.requests.tensors import dtype_of_datatype

    dtype = dtype_of_datatype(datatype, "x")
    handle = await api.create(through(dtype))
    status, answer = await api.run(handle, feeds=[tensor("x", datatype, [1], [1])], fetches=["y"])
    assert (status, answer["code"]) == (400, "INVALID_ARGUMENT") and "binary_data" in answer["error"]
    body, headers = binary([("x", datatype, [1], bytes(dtype.size))], ["y"])
    response, data = await api.raw("POST", f"/v1/sessions/{handle}:run", body, **headers)
    assert response.status == 400 and "binary_data" in json.loads(data)["error"]
    assert api.hosted(handle).session.statistics().runs == 0


async def test_type_without_any_form_is_unimplemented(api: Api) -> None:
    handle = await api.create(through(dtypes.resource))
    for fields in ({"feeds": {}}, {"feeds": []}, {"feeds": [], "parameters": {"binary_data_output": True}}):
        status, answer = await api.run(handle, fetches=["x"], **fields)
        assert (status, answer["code"]) == (501, "UNIMPLEMENTED") and "x-protobuf" in answer["error"]
    assert (await api.run(handle, feeds={"x": 1}, targets=["y"]))[0] == 501


# The binary extension


def binary(
    tensors: list[tuple[str, str, list[int], bytes]], fetches: list[Any], **fields: Any
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request whose tensors are all binary."""
    feeds = [
        {"name": n, "datatype": d, "shape": s, "parameters": {"binary_data_size": len(raw)}} for n, d, s, raw in tensors
    ]
    text = json.dumps({"feeds": feeds, "fetches": fetches, **fields}).encode()
    headers = {LENGTH.replace("-", "_"): str(len(text)), "Content_Type": "application/octet-stream"}
    return text + b"".join(raw for *_, raw in tensors), headers


async def ask_binary(api: Api, handle: str, body: bytes, headers: dict[str, str]) -> list[tuple[dict[str, Any], bytes]]:
    """The outputs of a binary answer, each with its bytes."""
    response, data = await api.raw("POST", f"/v1/sessions/{handle}:run", body, **headers)
    assert response.status == 200, data
    assert response.content_type == "application/octet-stream"
    length = int(response.headers[LENGTH])
    outputs = json.loads(data[:length])["outputs"]
    raw = data[length:]
    pieces = []
    for output in outputs:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        pieces.append((output, raw[:size]))
        raw = raw[size:]
    assert raw == b""
    return pieces


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("FP32", np.array([[1.5, -0.0]], np.float32)),
        ("FP16", np.array([1.5, math.inf], np.float16)),
        ("BF16", np.array([1.5, 3e38], ml_dtypes.bfloat16)),
        ("BOOL", np.array([True, False])),
        ("UINT64", np.array([2**64 - 1], np.uint64)),
        ("INT8", np.zeros((3, 0, 2), np.int8)),
        ("DT_COMPLEX64", np.array([1 + 2j], np.complex64)),
        ("DT_COMPLEX128", np.array(1 + 2j)),
        ("DT_QINT8", np.array([-1], np.int8)),
    ],
    ids=str,
)
async def test_binary_both_ways(api: Api, datatype: str, values: Any) -> None:
    from aexec_server.requests.tensors import dtype_of_datatype

    handle = await api.create(through(dtype_of_datatype(datatype, "x")))
    fetches = [{"name": "y", "parameters": {"binary_data": True}}]
    body, headers = binary([("x", datatype, list(values.shape), values.tobytes())], fetches)
    ((output, raw),) = await ask_binary(api, handle, body, headers)
    assert output == {
        "name": "y",
        "datatype": datatype,
        "shape": list(values.shape),
        "parameters": {"binary_data_size": values.nbytes},
    }
    assert raw == values.tobytes()


def with_lengths(*strings: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(s)) + s for s in strings)


async def test_binary_strings(api: Api, small: str) -> None:
    raw = with_lengths(b"a", b"", b"\xff\x00xyz")
    body, headers = binary([("s", "BYTES", [3, 1], raw)], ["s_out"], parameters={"binary_data_output": True})
    ((output, back),) = await ask_binary(api, small, body, headers)
    assert output["datatype"] == "BYTES" and output["shape"] == [3, 1] and back == raw


async def test_json_and_binary_mix(api: Api, small: str) -> None:
    """An odd number of bytes first, so that the next tensor is not aligned."""
    strings = with_lengths(b"abc")
    numbers = np.array([1, 2], np.float32).tobytes()
    feeds = [
        {"name": "s", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(strings)}},
        tensor("i", "INT32", [1], [9]),
        {"name": "m", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": len(numbers)}},
    ]
    fetches = [{"name": "m_out"}, {"name": "i_out", "parameters": {"binary_data": False}}, "s_out"]
    text = json.dumps({"feeds": feeds, "fetches": fetches, "parameters": {"binary_data_output": True}}).encode()
    headers = {LENGTH.replace("-", "_"): str(len(text))}
    outputs = await ask_binary(api, small, text + strings + numbers, headers)
    assert outputs[0][1] == numbers and outputs[2][1] == strings
    assert outputs[1] == (tensor("i_out", "INT32", [1], [9]), b"")


async def test_binary_outputs_of_a_json_request(api: Api, small: str) -> None:
    body = json.dumps({"feeds": {"x": [2]}, "fetches": ["y"], "parameters": {"binary_data_output": True}}).encode()
    ((output, raw),) = await ask_binary(api, small, body, {})
    assert output["datatype"] == "FP32" and raw == np.float32(4).tobytes()


# Options


async def test_deadline(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    status, answer = await api.run(handle, fetches=["y"], options={"timeout_in_ms": 5})
    assert (status, answer["code"]) == (504, "DEADLINE_EXCEEDED")
    assert gate.cancelled == gate.count
    microseconds = {"timeout": 5000}
    assert (await api.run(handle, feeds=[], fetches=["y"], parameters=microseconds))[0] == 504


async def test_deadline_counts_from_when_the_request_came(
    api: Api, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.server.backlog, "arrival", lambda transport: time.monotonic() - 10)
    asked = {"feeds": {"x": [2]}, "fetches": ["y"]}
    status, answer = await api.run(small, **asked, options={"timeout_in_ms": 9000})
    assert status == 504 and "came before it could begin" in answer["error"]
    assert (await api.run(small, **asked, options={"timeout_in_ms": 60_000}))[0] == 200


@pytest.mark.parametrize("reading", [True, False])
async def test_deadline_comes_while_a_thread_reads_the_request_or_writes_the_answer(
    api: Api, small: str, monkeypatch: pytest.MonkeyPatch, reading: bool
) -> None:
    calls = 0

    async def noted(call: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (1 if reading else 2):
            await asyncio.Event().wait()
        return await run_in_thread(call, *args, **options)

    monkeypatch.setattr(bodies, "run_in_thread", noted)
    body = json.dumps({"feeds": {"m": [1.0000001] * 5000}, "fetches": ["m_out"]}).encode()
    headers = {"Aexec-Timeout-Ms": "300", "Content-Type": "application/json"}
    status, answer = await api.call("POST", f"/v1/sessions/{small}:run", body, headers=headers)
    assert status == 504 and "while its request was read, or its answer written" in answer["error"]
    assert calls == (1 if reading else 2) and not api.hosted(small).runs.live


async def test_servers_longest_deadline_holds_for_all(start: Start) -> None:
    api = await start(max_timeout=0.2)  # in which the session has to be made, too
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    for options in ({}, {"timeout_in_ms": 0}, {"timeout_in_ms": 60_000}):
        assert (await api.run(handle, fetches=["y"], options=options))[0] == 504


async def test_sessions_deadline_counts_where_a_run_has_none(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate), config={"operation_timeout_in_ms": 5})
    assert (await api.run(handle, fetches=["y"]))[0] == 504


async def test_trace_comes_as_metadata(api: Api, small: str) -> None:
    options = {"trace_level": "FULL_TRACE", "output_partition_graphs": True, "priority": 0, "timeout_in_ms": 60_000}
    for feeds in ({"x": [2]}, [tensor("x", "FP32", [1], [2])]):
        _, answer = await api.run(small, feeds=feeds, fetches=["y"], options=options)
        stats = answer["metadata"]["step_stats"]["dev_stats"]
        assert any(node["node_name"] == "y" for device in stats for node in device["node_stats"])
        assert answer["metadata"]["partition_graphs"]
    _, answer = await api.run(small, feeds={"x": [2]}, fetches=["y"], options={"timeout_in_ms": 60_000})
    assert "metadata" not in answer


def printing(text: str) -> GraphBuilder:
    """`twice` prints a text, `once` it and `x`, which it gives."""
    g = GraphBuilder()
    g.const("text", text, dtypes.string)
    g.const("x", 1.0, dtypes.float32)
    g("once", "Print", "x", "x", T=dtypes.float32, U=[dtypes.float32], message=text.encode(), first_n=-1, summarize=3)
    g("twice", "PrintV2", "text", "^once", output_stream=b"stdout", end=b"!")
    return g


async def test_prints_come_with_the_answer_on_request(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    handle = await api.create(printing("hé\n"))
    for _ in range(4):
        asked = {"fetches": ["once"], "targets": ["twice"], "options": {"prints": True}}
        status, answer = await api.run(handle, **asked)
        assert (status, answer["outputs"]) == (200, {"once": 1.0})
        assert answer["metadata"]["prints"] == "hé\n[1]\nhé\n!" and "prints_left_out" not in answer["metadata"]
    assert capsys.readouterr() == ("", "")
    _, answer = await api.run(handle, targets=["twice"], options={"prints": False})
    assert "metadata" not in answer
    assert capsys.readouterr() == ("hé\n!", "hé\n[1]\n")


async def test_prints_in_an_answer_are_bounded(api: Api) -> None:
    handle = await api.create(printing("x" * 50_000))
    _, answer = await api.run(handle, targets=["twice"], options={"prints": True})
    metadata = answer["metadata"]
    assert len(metadata["prints"]) == 65536 and metadata["prints_left_out"] == 2 * 50_000 + len("[1]\n!") - 65536


@pytest.mark.parametrize("prints", [1, "yes", None])
async def test_prints_are_wanted_or_not(api: Api, small: str, prints: Any) -> None:
    status, answer = await api.run(small, fetches=["m_out"], options={"prints": prints})
    assert status == 400 and '"prints" must be true or false' in answer["error"]


async def test_costs_that_a_session_measures_come_as_metadata(api: Api) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "Neg", "x", T=dtypes.float32)
    handle = await api.create(g, config={"graph_options": {"build_cost_model": 2}})
    _, answer = await api.run(handle, feeds={"x": [2]}, fetches=["y"])
    assert "metadata" not in answer
    _, answer = await api.run(handle, feeds={"x": [2]}, fetches=["y"])
    (y,) = [node for node in answer["metadata"]["cost_graph"]["node"] if node["name"] == "y"]
    assert int(y["compute_cost"]) >= 1


# What is asked for in vain


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"options": {"debug_options": {"global_step": 3}}}, "RunOptions.debug_options.global_step"),
    ],
    ids=str,
)
async def test_options_that_would_be_ignored_are_refused(
    api: Api, small: str, fields: dict[str, Any], words: str
) -> None:
    status, answer = await api.run(small, feeds={"x": [2]}, fetches=["y"], **fields)
    assert (status, answer["code"]) == (501, "UNIMPLEMENTED")
    assert words in answer["error"]


# Ids, and what can be seen of runs


async def test_runs_have_ids(api: Api, small: str) -> None:
    path = f"/v1/sessions/{small}:run"
    body = json.dumps({"targets": ["nothing"], "run_id": "mine"}).encode()
    for headers, run_id in (({}, "mine"), ({"Aexec_Run_Id": "mine"}, "mine")):
        _, data = await api.raw("POST", path, body, **headers)
        assert json.loads(data)["run_id"] == run_id
    _, data = await api.raw("POST", path, b'{"targets": ["nothing"]}', Aexec_Run_Id="header-1")
    assert json.loads(data)["run_id"] == "header-1"
    response, data = await api.raw("POST", path, body, Aexec_Run_Id="other")
    assert response.status == 400 and b"other" in data
    made = {(await api.run(small, targets=["nothing"]))[1]["run_id"] for _ in range(3)}
    assert len(made) == 3


async def test_live_runs_can_be_seen_and_are_unique(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    run = asyncio.create_task(api.run(handle, fetches=["y"], run_id="r1"))
    await gate.entered.wait()
    status, answer = await api.call("GET", f"/v1/sessions/{handle}/runs")
    (described,) = answer["runs"]
    assert described["run_id"] == "r1" and described["state"] == "running" and described["running"] == 1
    assert (await api.call("GET", f"/v1/sessions/{handle}/runs/r1"))[1].keys() == described.keys() | {"waits_for"}
    status, answer = await api.run(handle, fetches=["y"], run_id="r1")
    assert (status, answer["code"]) == (409, "ALREADY_EXISTS")
    response, _ = await api.raw("POST", f"/v1/sessions/{handle}:run", b"{}", Aexec_Run_Id="r1")
    assert response.status == 409
    gate.open.set()
    assert (await run)[0] == 200
    assert await api.call("GET", f"/v1/sessions/{handle}/runs") == (200, {"runs": []})
    assert (await api.call("GET", f"/v1/sessions/{handle}/runs/r1"))[0] == 404
    assert (await api.run(handle, fetches=["y"], run_id="r1"))[0] == 200  # free again


async def test_runs_in_flight_are_bounded(start: Start) -> None:
    api = await start(max_runs=1)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    run = asyncio.create_task(api.run(handle, fetches=["y"]))
    await gate.entered.wait()
    response, _ = await api.raw("POST", f"/v1/sessions/{handle}:run", b"{}")
    assert response.status == 429 and response.headers["Retry-After"] == "1"
    gate.open.set()
    assert (await run)[0] == 200


async def test_higher_priorities_go_first(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """By V2's parameter, by an option, and by the message's option, where higher numbers are higher."""
    monkeypatch.setattr(admission, "_AT_FIRST", 1)
    monkeypatch.setattr(admission, "_LONG_SECONDS", 1000.0)
    api = await start(run_slots=1, queue_seconds=60.0)
    gate = gates.ThreadGate()
    g = GraphBuilder()
    g.const("c", 1.5, dtypes.float32)
    g("held", "TestThreadGate", "c", key=gate.key, T=dtypes.float32)
    g.placeholder("x", dtypes.float32, [])
    g("y", "Square", "x", T=dtypes.float32)
    handle = await api.create(g)
    hosted = api.hosted(handle)
    first = asyncio.create_task(api.run(handle, fetches=["held"]))
    await until(lambda: gate.entered.is_set())
    ended: list[str] = []

    async def run(name: str, **fields: Any) -> None:
        assert (await api.run(handle, feeds={"x": 2}, fetches=["y"], **fields))[0] == 200
        ended.append(name)

    async def run_message(name: str, priority: int) -> None:
        message = proto.RunStepRequest(fetch=["y"])
        message.feed.add(name="x").tensor.CopyFrom(tensor_to_proto(np.array(2, np.float32)))
        message.options.experimental.run_handler_pool_options.priority = priority
        body = message.SerializeToString()
        response, _ = await api.raw("POST", f"/v1/sessions/{handle}:run", body, Content_Type=bodies.PROTOBUF)
        assert response.status == 200
        ended.append(name)

    async def run_urgently(name: str, header: str) -> None:
        body = json.dumps({"feeds": {"x": 2}, "fetches": ["y"]}).encode()
        response, _ = await api.raw("POST", f"/v1/sessions/{handle}:run", body, Priority=header)
        assert response.status == 200
        ended.append(name)

    asked = [
        run_urgently("in the background", "i, u=7"),
        run("low", options={"priority": 200}),
        run("usual"),
        run("highest", options={"priority": 1, "timeout_in_ms": 60_000}),
        run("high", parameters={"priority": 2}),
        run_message("as a message", 50),
        run_urgently("by its header", "u=0, i"),
    ]
    waiting = []
    for number, one in enumerate(asked):
        waiting.append(asyncio.create_task(one))
        await until(lambda number=number: hosted.runs_admitted == number + 2)  # type: ignore[misc]
    gate.open.set()
    assert (await first)[0] == 200
    await asyncio.gather(*waiting)
    expected = ["highest", "high", "by its header", "as a message", "usual", "low", "in the background"]
    assert ended == expected


@pytest.mark.parametrize(
    ("header", "level"),
    [
        ("u=3", 100),
        ("u=0", 25),
        ("i, u=7", 500),
        ("u=1;x=2", 50),
        ("u=1, u=5", 300),  # as of any dictionary of RFC 8941, the last counts
        ("i", None),
        ("u=8", None),
        ("u=high, i=?0", None),
        ("", None),
    ],
)
def test_urgency_of_a_priority_header(header: str, level: int | None) -> None:
    assert read_priority_header(header) == level


async def test_many_runs_at_once(api: Api, small: str) -> None:
    answers = await asyncio.gather(*(api.run(small, feeds={"x": [n]}, fetches=["y"]) for n in range(50)))
    assert [a["outputs"]["y"] for _, a in answers] == [[float(n * n)] for n in range(50)]


# Large bodies, which are read and written in threads


@pytest.mark.parametrize("as_list", [False, True])
async def test_large_json_body(api: Api, small: str, as_list: bool) -> None:
    values = np.arange(120_000, dtype=np.float32).reshape(300, 400)
    feeds = [tensor("m", "FP32", [300, 400], values.tolist())] if as_list else {"m": values.tolist()}
    status, answer = await api.run(small, feeds=feeds, fetches=["m_out"])
    assert status == 200
    output = answer["outputs"][0]["data"] if as_list else answer["outputs"]["m_out"]
    np.testing.assert_array_equal(np.array(output, np.float32).reshape(300, 400), values)


@pytest.mark.parametrize(("count", "threads"), [(20, 0), (900, 0), (5000, 2)])
async def test_json_that_takes_longer_than_the_loop_can_spare_is_read_and_written_in_threads(
    api: Api, small: str, monkeypatch: pytest.MonkeyPatch, count: int, threads: int
) -> None:
    calls: list[Any] = []

    async def noted(call: Any, *args: Any, **options: Any) -> Any:
        calls.append(call)
        return await run_in_thread(call, *args, **options)

    monkeypatch.setattr(bodies, "run_in_thread", noted)
    status, answer = await api.run(small, feeds={"m": [1.0000001] * count}, fetches=["m_out"])
    assert status == 200 and len(answer["outputs"]["m_out"]) == count
    assert len(calls) == threads


async def test_many_strings_are_decoded_in_a_thread(api: Api, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although their text is read in no time."""
    check: list[bool] = []

    def decode(name: str, item: str) -> bytes:
        check.append(on_event_loop())
        return item.encode()

    monkeypatch.setattr(tensors, "string_bytes", decode)
    status, answer = await api.run(small, feeds={"s": ["a"] * 5000}, fetches=["s_out"])
    assert status == 200 and answer["outputs"]["s_out"] == ["a"] * 5000
    assert check == [False] * 5000


async def test_large_wrong_body_gets_the_same_errors(api: Api, small: str) -> None:
    good: list[Any] = [1.5] * 100_000
    for bad, word in (([*good, "x"], "Expects"), ([*good, [1]], "Cannot feed"), ([*good, None], "Expects")):
        status, answer = await api.run(small, feeds={"m": bad}, fetches=["m_out"])
        assert (status, answer["code"]) == (400, "INVALID_ARGUMENT") and word in answer["error"]


async def test_variables_keep_their_values_between_runs(api: Api) -> None:
    g = small_graph()
    g("v", "VariableV2", shape=[], dtype=dtypes.float32)
    g.const("one", 1.0, dtypes.float32)
    g("init", "Assign", "v", "one", T=dtypes.float32)
    g("add", "AssignAdd", "v", "one", T=dtypes.float32)
    handle = await api.create(g)
    status, answer = await api.run(handle, fetches=["v"])
    assert (status, answer["code"]) == (400, "FAILED_PRECONDITION") and "uninitialized" in answer["error"]
    await api.run(handle, targets=["init"])
    await api.run(handle, targets=["add"])
    assert (await api.run(handle, fetches=["v"]))[1]["outputs"] == {"v": 2.0}


async def test_answers_are_bounded(start: Start) -> None:
    api = await start(max_answer_bytes=1000)
    handle = await api.create(small_graph())
    feeds = {"x": [1.0] * 100, "s": ["a" * 300]}
    assert (await api.run(handle, feeds=feeds, fetches=["y", "s_out"]))[0] == 200
    for fetches in (["y"] * 3, ["s_out"] * 4):
        status, answer = await api.run(handle, feeds=feeds, fetches=fetches)
        assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED"), fetches


@pytest.mark.parametrize(
    ("feeds", "fetches", "targets"),
    [
        ({}, [], []),
        ({}, ["nope"], []),
        ({}, ["y:7"], []),
        ({}, ["y"], []),
        ({}, [], ["nope"]),
        ({"nope": 1}, ["y"], []),
        ({"x": [1], "x:0": [1]}, ["y"], []),
        ({"y": [1]}, ["y"], []),
        ({"x": ["a"]}, ["y"], []),
        ({"x": [[1], [1, 2]]}, ["y"], []),
        ({"x": [True]}, ["y"], []),
        ({"i": [1.5]}, ["i_out"], []),
        ({"i": [2**40]}, ["i_out"], []),
        ({"b": [1]}, ["b_out"], []),
        ({"x": [1]}, ["fails"], []),
    ],
    ids=str,
)
async def test_same_wrong_request_gets_the_same_code_in_process(
    api: Api, small: str, feeds: Any, fetches: list[str], targets: list[str]
) -> None:
    async with aexec.Session(small_graph().graph()) as session:
        with pytest.raises(errors.OpError) as caught:
            await session.make_callable([canonical_name(name) for name in fetches], feeds, targets)(*feeds.values())
    _, answer = await api.run(small, feeds=feeds, fetches=fetches, targets=targets)
    assert answer["code"] == caught.value.code.name
    assert answer["error"] == caught.value.message
    assert answer.get("node") == caught.value.node and answer.get("op") == caught.value.op


async def test_bodies_are_in_the_memory_log(api: Api, small: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aexec.memory")
    await api.run(small, feeds={"x": [3]}, fetches=["y"])
    lines = [line for line in caplog.messages if "body of a run" in line]
    assert [line.split()[1] for line in lines] == ["MemoryLogRawAllocation", "MemoryLogRawDeallocation"]
    assert all("step_id: -4 " in line for line in lines)


async def test_traced_run_says_what_it_took_at_most(api: Api) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("y", "Neg", "x", T=dtypes.float32)
    handle = await api.create(g)
    options = {"trace_level": "FULL_TRACE", "report_tensor_allocations_upon_oom": True}
    _, answer = await api.run(handle, feeds={"x": [1, 2, 3]}, fetches=["y"], options=options)
    assert answer["metadata"]["peak_bytes"] == 12
