"""Queues over HTTP: put and take, waiting, leaving, closing, and nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

import numpy as np
import pytest
from aexec_server.handlers import queue_calls
from aiohttp import web

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire.tensor_codec import to_proto
from tests.server.conftest import Api
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until


def queue_graph(capacity: int = 10) -> GraphBuilder:
    """`q` has numbers, `pairs` has vectors and strings, `complex` what JSON has no form for."""
    g = GraphBuilder()
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]], capacity=capacity, shared_name="q")
    g("pairs", "FIFOQueueV2", component_types=[dtypes.int64, dtypes.string], shapes=[[2], []], capacity=capacity)
    g("complex", "FIFOQueueV2", component_types=[dtypes.complex64], shapes=[[]], capacity=capacity)
    g("size", "QueueSizeV2", "q")
    return g


@pytest.fixture
async def handle(api: Api) -> str:
    return await api.create(queue_graph())


async def ask(api: Api, handle: str, call: str, **fields: Any) -> tuple[int, Any]:
    return await api.call("POST", f"/v1/sessions/{handle}/queues/{call}", fields)


async def put(api: Api, handle: str, *values: float) -> None:
    for value in values:
        status, answer = await ask(api, handle, "q:enqueue", components=[value])
        assert status == 200, answer


async def listed(api: Api, handle: str, name: str = "q") -> dict[str, Any]:
    status, answer = await api.call("GET", f"/v1/sessions/{handle}/queues")
    assert status == 200
    return next(queue for queue in answer["queues"] if queue["name"] == name)


async def test_put_and_take(api: Api, handle: str) -> None:
    await put(api, handle, 1, 2.5)
    status, answer = await ask(api, handle, "q:dequeue")
    assert (status, answer) == (200, {"components": [1.0], "dtypes": ["float32"], "shapes": [[]]})
    status, answer = await ask(api, handle, "q:enqueue", components=[[3, 4, 5]], many=True)
    assert (status, answer["size"]) == (200, 4)
    status, answer = await ask(api, handle, "q:dequeue", count=3)
    assert answer == {"components": [[2.5, 3, 4]], "dtypes": ["float32"], "shapes": [[3]]}
    assert (await api.run(handle, fetches=["size"]))[1]["outputs"] == {"size": 1}


async def test_several_components(api: Api, handle: str) -> None:
    status, _ = await ask(api, handle, "pairs:enqueue", components=[[1, 2], "one"])
    assert status == 200
    tensors = [
        {"datatype": "INT64", "shape": [1, 2], "data": [3, 4]},
        {"datatype": "BYTES", "shape": [1], "data": ["two"]},
    ]
    status, answer = await ask(api, handle, "pairs:enqueue", components=tensors, many=True)
    assert status == 200, answer
    assert (await listed(api, handle, "pairs"))["size"] == 2
    _, answer = await ask(api, handle, "pairs:dequeue", count=2, parameters={})
    assert [(c["datatype"], c["shape"], c["data"]) for c in answer["components"]] == [
        ("INT64", [2, 2], [1, 2, 3, 4]),
        ("BYTES", [2], ["one", "two"]),
    ]


async def test_components_with_names_come_in_any_order(api: Api, handle: str) -> None:
    numbers = {"name": "pairs[0]", "datatype": "INT64", "shape": [2], "data": [3, 4]}
    word = {"name": "pairs[1]", "datatype": "BYTES", "shape": [], "data": ["two"]}
    status, answer = await ask(api, handle, "pairs:enqueue", components=[word, numbers])
    assert status == 200, answer
    assert (await ask(api, handle, "pairs:dequeue"))[1]["components"] == [[3, 4], "two"]
    for wrong, message in (
        (word | {"name": "word"}, "expected pairs[0], pairs[1], got pairs[0], word"),
        (word | {"name": "pairs[0]"}, '"pairs[0]" fed more than once'),
    ):
        status, answer = await ask(api, handle, "pairs:enqueue", components=[numbers, wrong])
        assert status == 400 and message in answer["error"], answer


async def test_feeds_of_a_message_with_names_come_in_any_order(api: Api, handle: str) -> None:
    values = {"pairs[1]": np.array(b"two", object), "pairs[0]": np.array([3, 4], np.int64)}

    async def put_by(names: list[str]) -> tuple[int, bytes]:
        message = proto.RunStepRequest()
        for name, value in zip(names, values.values(), strict=True):
            tensor = to_proto(value, dtypes.from_numpy(value.dtype), compact=False)
            message.feed.add(name=name).tensor.CopyFrom(tensor)
        path, media = f"/v1/sessions/{handle}/queues/pairs:enqueue", "application/x-protobuf"
        response, body = await api.raw("POST", path, message.SerializeToString(), Content_Type=media)
        return response.status, body

    assert (await put_by(list(values)))[0] == 200
    assert (await ask(api, handle, "pairs:dequeue"))[1]["components"] == [[3, 4], "two"]
    status, body = await put_by(["pairs[1]", "pairs[2]"])
    assert status == 400 and b"expected pairs[0], pairs[1], got pairs[1], pairs[2]" in body
    assert (await put_by(["", ""]))[0] == 400  # by position it is a word for the numbers


async def test_binary(api: Api, handle: str) -> None:
    value = np.complex64(1 + 2j)
    text = json.dumps(
        {"components": [{"datatype": "DT_COMPLEX64", "shape": [], "parameters": {"binary_data_size": 8}}]}
    ).encode()
    headers = {"Inference_Header_Content_Length": str(len(text))}
    path = f"/v1/sessions/{handle}/queues/complex"
    response, body = await api.raw("POST", f"{path}:enqueue", text + value.tobytes(), **headers)
    assert response.status == 200, body
    status, answer = await ask(api, handle, "complex:dequeue")
    assert status == 400 and "no JSON form" in answer["error"]
    wish = json.dumps({"parameters": {"binary_data_output": True}}).encode()
    response, body = await api.raw("POST", f"{path}:dequeue", wish)
    assert response.status == 200
    assert body[int(response.headers["Inference-Header-Content-Length"]) :] == value.tobytes()


async def test_listing(api: Api, handle: str) -> None:
    assert (await api.call("GET", f"/v1/sessions/{handle}/queues"))[1] == {"queues": []}
    await put(api, handle, 1)
    taker = asyncio.create_task(ask(api, handle, "pairs:dequeue"))
    await until(lambda: len(api.hosted(handle).session.queues()) == 2)
    queue = await listed(api, handle)
    assert (queue["kind"], queue["size"], queue["capacity"], queue["closed"]) == ("FIFOQueue", 1, 10, False)
    assert (await listed(api, handle, "pairs"))["waiting_consumers"] == 1
    await ask(api, handle, "pairs:enqueue", components=[[1, 2], "x"])
    assert (await taker)[0] == 200


async def test_deadlines(api: Api) -> None:
    handle = await api.create(queue_graph(capacity=1))
    status, answer = await ask(api, handle, "q:dequeue", timeout_in_ms=1)
    assert (status, answer["code"]) == (504, "DEADLINE_EXCEEDED")
    await put(api, handle, 1)
    status, answer = await ask(api, handle, "q:enqueue", components=[2], timeout_in_ms=1)
    assert status == 504
    queue = await listed(api, handle)
    assert (queue["size"], queue["waiting_producers"], queue["waiting_consumers"]) == (1, 0, 0)


async def test_client_that_leaves_while_waiting_takes_nothing(api: Api, handle: str) -> None:
    for count in (None, 3):
        waiting = asyncio.create_task(ask(api, handle, "q:dequeue", **({} if count is None else {"count": count})))
        await until(lambda: api.hosted(handle).session.queue("q").statistics().waiting_dequeues == 1)
        await put(api, handle, *range(2 if count else 0))
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: api.hosted(handle).session.queue("q").statistics().waiting_dequeues == 0)
    assert (await ask(api, handle, "q:dequeue", count=2))[1]["components"] == [[0, 1]]


async def test_element_taken_for_a_client_that_left_is_put_back(
    api: Api, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(api, handle, 1, 2, 3)
    real, taken = queue_calls.tensors_response, asyncio.Event()

    def gone(*arguments: Any) -> web.Response:
        taken.set()
        raise ConnectionResetError  # as writing to who has gone does

    monkeypatch.setattr(queue_calls, "tensors_response", gone)
    for fields in ({}, {"count": 2}):
        with contextlib.suppress(Exception):
            await ask(api, handle, "q:dequeue", **fields)
        assert taken.is_set()
        taken.clear()
    monkeypatch.setattr(queue_calls, "tensors_response", real)
    assert (await ask(api, handle, "q:dequeue", count=3))[1]["components"] == [[1, 2, 3]]


async def test_closing(api: Api, handle: str) -> None:
    await put(api, handle, 1)
    status, answer = await ask(api, handle, "q:close")
    assert (status, answer["closed"]) == (200, True)
    status, answer = await ask(api, handle, "q:enqueue", components=[2])
    assert (status, answer["code"]) == (499, "CANCELLED")
    assert (await ask(api, handle, "q:dequeue"))[0] == 200
    status, answer = await ask(api, handle, "q:dequeue")
    assert (status, answer["code"]) == (400, "OUT_OF_RANGE")
    assert (await ask(api, handle, "q:close"))[0] == 499
    assert (await ask(api, handle, "q:close", cancel_pending=True))[0] == 200


@pytest.mark.parametrize(
    ("call", "fields", "status", "message"),
    [
        ("none:dequeue", {}, 404, "There is no queue 'none'"),
        ("size:dequeue", {}, 400, "makes no queue"),
        ("q:enqueue", {}, 400, "list of 1 tensors"),
        ("q:enqueue", {"components": [1, 2]}, 400, "list of 1 tensors"),
        ("q:enqueue", {"components": ["x"]}, 400, "must be a number"),
        ("q:enqueue", {"components": [[1, 2]]}, 400, "[Ss]hape"),
        ("q:enqueue", {"components": [{"datatype": "FP64", "shape": [], "data": [1]}]}, 400, "must have FP32"),
        ("q:enqueue", {"components": [1], "many": 1}, 400, '"many" must be true or false'),
        ("q:dequeue", {"count": -1}, 400, '"count" must be'),
        ("q:dequeue", {"up_to": True}, 400, '"up_to" is for'),
        ("q:dequeue", {"timeout_in_ms": -1}, 400, "timeout_in_ms"),
        ("q:dequeue", {"element": 1}, 400, "Unknown field"),
    ],
)
async def test_refusals(api: Api, handle: str, call: str, fields: Any, status: int, message: str) -> None:
    got, answer = await ask(api, handle, call, **fields)
    assert got == status, answer
    assert re.search(message, answer["error"]), answer


async def test_queues_of_models_are_the_servers(api: Api, handle: str) -> None:
    api.hosted(handle).listed = True
    status, answer = await ask(api, handle, "q:enqueue", components=[1])
    assert (status, answer["code"]) == (403, "PERMISSION_DENIED")
    assert (await api.call("GET", f"/v1/sessions/{handle}/queues"))[0] == 200
