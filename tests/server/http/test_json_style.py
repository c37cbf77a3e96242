"""Numbers that JavaScript cannot read: written otherwise for who asks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from aexec_server.http.json_style import JsonStyle, styled
from aexec_server.http.json_text import array_text

from aexec.framework import dtypes
from tests.server.conftest import Api, Start
from tests.support.programs.graphs import GraphBuilder

NANS, INTS = [1.5, float("nan"), float("inf"), float("-inf")], [1, 2**53 + 1, -(2**63)]
AS_NULL, AS_STRING = [1.5, None, None, None], [1.5, "NaN", "Infinity", "-Infinity"]
TEXTS = ["1", "9007199254740993", "-9223372036854775808"]


def odd_graph() -> GraphBuilder:
    g = GraphBuilder()
    g.const("f_const", np.array(NANS, np.float32))
    g("f", "Identity", "f_const", T=dtypes.float32)
    g.const("i_const", np.array(INTS, np.int64))
    g("i", "Identity", "i_const", T=dtypes.int64)
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[4]])
    return g


def strict(body: bytes) -> Any:
    """What JavaScript makes of it: no tokens that JSON has not."""

    def refuse(token: str) -> None:
        raise AssertionError(token)

    return json.loads(body, parse_constant=refuse)


@pytest.mark.parametrize(
    ("accept", "floats", "ints"),
    [
        ("application/json; nan=null", AS_NULL, INTS),
        ("application/json;nan=string;int64=string", AS_STRING, TEXTS),
        ('text/html, application/json; q=0.9; NaN="null"; Int64=string', AS_NULL, TEXTS),
    ],
)
async def test_runs(api: Api, accept: str, floats: Any, ints: Any) -> None:
    path = f"/v1/sessions/{await api.create(odd_graph())}:run"
    _, body = await api.raw("POST", path, b'{"fetches": ["f", "i"]}', Accept=accept)
    outputs = strict(body)["outputs"]
    assert (outputs["f"], outputs["i"]) == (floats, ints)
    _, body = await api.raw("POST", path, b'{"fetches": [{"name": "f"}, {"name": "i"}]}', Accept=accept)
    assert [output["data"] for output in strict(body)["outputs"]] == [floats, ints]
    _, body = await api.raw("POST", path, b'{"fetches": ["f"]}', Accept=f"application/x-ndjson, {accept}")
    told = [event for event in map(strict, body.splitlines()) if event["event"] == "output"]
    assert told[0]["value"] == floats


async def test_default_style_writes_tokens_and_numbers(api: Api) -> None:
    path = f"/v1/sessions/{await api.create(odd_graph())}:run"
    response, body = await api.raw("POST", path, b'{"fetches": ["f", "i"]}', Accept="application/json;q=0.5")
    assert response.status == 200
    assert b"[1.5,NaN,Infinity,-Infinity]" in body and b"[1,9007199254740993,-9223372036854775808]" in body


@pytest.mark.parametrize("accept", ["application/json;nan=0", "application/json;int64=number", "*/*;nan="])
async def test_unknown_style_is_refused(api: Api, accept: str) -> None:
    path = f"/v1/sessions/{await api.create(odd_graph())}:run"
    response, body = await api.raw("POST", path, b'{"fetches": ["f"]}', Accept=accept)
    assert response.status == 400 and b"Accept: " in body


async def test_queues_kept_tensors_and_partial_runs(api: Api) -> None:
    handle = await api.create(odd_graph())
    session, hosted = f"/v1/sessions/{handle}", api.hosted(handle).session
    for _ in range(2):
        await hosted.queue("q").put(np.array(NANS, np.float32))
    accept = "application/json;nan=string"
    _, body = await api.raw("POST", f"{session}/queues/q:dequeue", b"{}", Accept=accept)
    assert strict(body)["components"] == [AS_STRING]
    asked = b'{"parameters": {"binary_data_output": false}}'
    _, body = await api.raw("POST", f"{session}/queues/q:dequeue", asked, Accept=accept)
    assert strict(body)["components"][0]["data"] == AS_STRING
    _, kept = await api.call(
        "POST", f"{session}/tensors", {"name": "w", "datatype": "FP32", "shape": [4], "data": NANS}
    )
    _, body = await api.raw("GET", f"{session}/tensors/{kept['handle']}", Accept=accept)
    assert strict(body)["data"] == AS_STRING
    _, answer = await api.call("POST", f"{session}:partialRunSetup", {"feeds": ["f_const"], "fetches": ["f"]})
    part = f"{session}/partialRuns/{answer['partial_run_handle']}:run"
    asked = json.dumps({"feeds": {"f_const": NANS}, "fetches": ["f"]}).encode()
    _, body = await api.raw("POST", part, asked, Accept=accept)
    assert strict(body)["outputs"]["f"] == AS_STRING


async def test_models(start: Start) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Log", "x", T=dtypes.float32)
    api = await start(graphs={"logs": g.graph()})
    accept = "application/json;nan=string"
    asked: dict[str, Any] = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 0]}]}
    _, body = await api.raw("POST", "/v2/models/logs/infer", json.dumps(asked).encode(), Accept=accept)
    assert strict(body)["outputs"][0]["data"] == [0, "-Infinity"]
    for given, expected in (
        ({"instances": [1, 0]}, {"predictions": [0, "-Infinity"]}),
        ({"inputs": [1, 0]}, {"outputs": [0, "-Infinity"]}),
    ):
        _, body = await api.raw("POST", "/v1/models/logs:predict", json.dumps(given).encode(), Accept=accept)
        assert strict(body) == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, dtypes.bfloat16.np])
def test_all_types_of_floats(dtype: Any) -> None:
    array = np.array([NANS, NANS], dtype)
    assert styled(array, JsonStyle("string")) == [AS_STRING, AS_STRING]
    assert styled(array[:, :1], JsonStyle("null")) == [[1.5], [1.5]]
    assert styled(np.array(np.inf, dtype), JsonStyle("null")) is None


def test_long_ones_too() -> None:
    array = np.arange(100_000, dtype=np.uint64)
    assert json.loads(array_text(array, JsonStyle(None, True))) == list(map(str, range(100_000)))
