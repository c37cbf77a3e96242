"""Records an example of each call of the API from a server: `python -m tests.server.schemas.api_examples` writes them.

The calls are made in this order, each with what the earlier ones have left. The description shows their parameters and
bodies; in recorded answers the handles, which differ each time, have short names instead.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aexec_server import ServerConfig, make_app
from aexec_server.schemas.examples import EXAMPLES_PATH
from aexec_server.settings.model_source import ModelSource
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

import aexec
from aexec import proto
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature

__all__ = ["CALLS", "Call", "recorded"]

# The most characters of an answer that is no JSON.
_MOST = 400


@dataclass(frozen=True)
class Call:
    """A call.

    Attributes:
        method, path: as the route has them.
        request: its JSON body, or None.
        parameters: values of the path's parameters.
        query, headers: of the request.
        learn: `operation` or `tensor`, if later calls write the handle in the answer as `OPERATION` or `TENSOR`.
        meanwhile: a call to make after the head of this one's answer has come, before the body is read.
    """

    method: str
    path: str
    request: Any = None
    parameters: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    learn: str = ""
    meanwhile: Call | None = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def client_graph() -> aexec.Graph:
    """`y` is twice `x`; `q` is a queue of numbers."""
    with aexec.Graph() as graph:
        aexec.ops.mul(aexec.placeholder("float32", [None], name="x"), 2.0, name="y")
        aexec.ops.fifo_queue_v2(component_types=["float32"], shapes=[[]], capacity=8, shared_name="q", name="q")
    return graph


def more_nodes() -> aexec.Graph:
    """A graph to extend that one with: `z` is the square of `y`."""
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None], name="v"), name="z")
    return graph


def served_model() -> MetaGraph:
    """`y` is `x / 2 + 2`, as in the examples of TensorFlow Serving, with signatures for each of its calls."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        y = aexec.ops.add_v2(aexec.ops.mul(x, 0.5), 2.0, name="y")
        serialized = aexec.placeholder("string", [None], name="examples")
        *_, dense = aexec.ops.parse_example(
            serialized,
            aexec.constant([], dtype="string"),
            [],
            [aexec.constant("x")],
            [aexec.constant([0.0])],
            sparse_types=[],
            dense_shapes=[[1]],
        )
        scores = aexec.ops.concat_v2([dense[0], aexec.ops.neg(dense[0])], 1, name="scores")
        classes = aexec.ops.as_string(scores, precision=0, name="classes")
    one = "tensorflow/serving/"
    signatures = {
        "serving_default": Signature.of({"x": x}, {"y": y}),
        "classify": Signature.of({"inputs": serialized}, {"classes": classes, "scores": scores}, f"{one}classify"),
        "regress": Signature.of({"inputs": serialized}, {"outputs": dense[0]}, f"{one}regress"),
    }
    return MetaGraph(graph, signatures=signatures, tags=frozenset({"serve"}))


def _calls() -> Iterator[Call]:
    yield from _session_calls()
    yield from _inference_calls()
    yield from _serving_calls()
    for path in ("/livez", "/healthz", "/v2/health/live", "/readyz", "/v2/health/ready"):
        yield Call("GET", path)
    for path in ("/metrics", "/monitoring/prometheus/metrics", "/v1/status", "/v1/status/history", "/v1/events"):
        yield Call("GET", path)
    for path in ("/", "/docs", "/openapi.json"):
        yield Call("GET", path)


def _session_calls() -> Iterator[Call]:
    one = {"session": "demo"}
    graph = base64.b64encode(client_graph().to_bytes()).decode()
    yield Call("POST", "/v1/sessions", {"graph_def": graph, "name": "demo", "ttl_s": 600})
    yield Call("GET", "/v1/sessions")
    start = "/v1/sessions/{session}"
    for rest in ("", "/graph", "/devices", "/nodes", "/events"):
        yield Call("GET", f"{start}{rest}", parameters=one)
    run = {"run_id": "my-run", "feeds": {"x:0": [1, 2]}, "fetches": ["y:0"], "options": {"trace_level": "FULL_TRACE"}}
    yield Call("POST", f"{start}:run", run, one)
    yield Call("GET", f"{start}/runs/{{run}}/trace", parameters={**one, "run": "my-run"})
    parts = {"feeds": ["x:0"], "fetches": ["y:0"], "run_id": "parts"}
    yield Call("POST", f"{start}:partialRunSetup", parts, one)
    yield Call("GET", f"{start}/runs", parameters=one)
    yield Call("GET", f"{start}/runs/{{run}}", parameters={**one, "run": "parts"})
    part = {"feeds": {"x:0": [1, 2]}, "fetches": ["y:0"]}
    yield Call(
        "GET",
        f"{start}/runs/{{run}}/events",
        parameters={**one, "run": "parts"},
        meanwhile=Call("POST", f"{start}/partialRuns/{{partial}}:run", part, {**one, "partial": "parts"}),
    )
    yield Call("POST", f"{start}:partialRunSetup", parts, one)
    yield Call("POST", f"{start}/runs/{{run}}:cancel", {}, {**one, "run": "parts"})
    later = {"feeds": {"x:0": [3]}, "fetches": ["y:0"]}
    yield Call("POST", f"{start}:run", later, one, headers={"Prefer": "respond-async"}, learn="operation")
    operation = {"operation": "OPERATION"}
    yield Call("GET", "/v1/operations/{operation}", parameters=operation, query={"wait_s": "10"})
    yield Call("GET", "/v1/operations/{operation}/response", parameters=operation)
    yield Call("POST", "/v1/operations/{operation}:cancel", {}, operation)
    yield Call("DELETE", "/v1/operations/{operation}", parameters=operation)
    queue = {**one, "queue": "q"}
    yield Call("POST", f"{start}/queues/{{queue}}:enqueue", {"components": [[2, 3]], "many": True}, queue)
    yield Call("GET", f"{start}/queues", parameters=one)
    yield Call("POST", f"{start}/queues/{{queue}}:dequeue", {"timeout_in_ms": 1000}, queue)
    yield Call("POST", f"{start}/queues/{{queue}}:close", {}, queue)
    kept = {"name": "mine", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    yield Call("POST", f"{start}/tensors", kept, one, learn="tensor")
    yield Call("GET", f"{start}/tensors", parameters=one)
    yield Call("GET", f"{start}/tensors/{{tensor}}", parameters={**one, "tensor": "TENSOR"})
    yield Call("DELETE", f"{start}/tensors/{{tensor}}", parameters={**one, "tensor": "TENSOR"})
    yield Call("POST", f"{start}/devices", parameters=one)
    more = base64.b64encode(more_nodes().to_bytes()).decode()
    yield Call("POST", f"{start}:extend", {"graph_def": more, "current_graph_version": 0}, one)
    yield Call("POST", f"{start}:reset", {}, one)
    yield Call("DELETE", start, parameters=one)


def _inference_calls() -> Iterator[Call]:
    for path in ("/v2", "/v2/", "/v2/models", "/v2/models/stats"):
        yield Call("GET", path)
    asked = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    for kind, given in (("", {"model": "m"}), ("/versions/{version}", {"model": "m", "version": "1"})):
        start = f"/v2/models/{{model}}{kind}"
        for rest in ("", "/ready", "/config"):
            yield Call("GET", f"{start}{rest}", parameters=given)
        for rest in ("/infer", "/infer_stream"):
            yield Call("POST", f"{start}{rest}", {"id": "my-run", **asked}, given)
        yield Call("GET", f"{start}/stats", parameters=given)
        yield Call("GET", f"{start}/trace/setting", parameters=given)
        yield Call("POST", f"{start}/trace/setting", {"trace_level": ["OFF"]}, given)
    for path, body in (("/v2/logging", {"log_verbose_level": 0}), ("/v2/trace/setting", {"trace_level": ["OFF"]})):
        yield Call("GET", path)
        yield Call("POST", path, body)
    for memory in ("systemsharedmemory", "cudasharedmemory"):
        region = {"region": "r"}
        yield Call("GET", f"/v2/{memory}/status")
        yield Call("POST", f"/v2/{memory}/unregister", {})
        yield Call("GET", f"/v2/{memory}/region/{{region}}/status", parameters=region)
        yield Call("POST", f"/v2/{memory}/region/{{region}}/unregister", {}, region)
        yield Call("POST", f"/v2/{memory}/region/{{region}}/register", {"key": "/r", "byte_size": 8}, region)
    yield Call("POST", "/v2/repository/index", {"ready": True})
    for verb in ("load", "unload", "load"):
        yield Call("POST", f"/v2/repository/models/{{model}}/{verb}", {}, {"model": "m"})


def _serving_calls() -> Iterator[Call]:
    yield Call("GET", "/v1/models")
    kinds = {"": {}, "/versions/{version}": {"version": "1"}, "/labels/{label}": {"label": "stable"}}
    for kind, more in kinds.items():
        start, given = f"/v1/models/{{model}}{kind}", {"model": "m", **more}
        yield Call("GET", start, parameters=given)
        yield Call("GET", f"{start}/metadata", parameters=given)
        yield Call("POST", f"{start}:predict", {"instances": [1, 2]}, given)
        examples = [{"x": 1.5}, {"x": [2.5]}]
        yield Call("POST", f"{start}:classify", {"signature_name": "classify", "examples": examples}, given)
        yield Call("POST", f"{start}:regress", {"signature_name": "regress", "examples": examples}, given)


CALLS = list(_calls())


async def recorded(folder: Path) -> dict[str, dict[str, Any]]:
    """Make all calls of a new server, and return the examples by method and path.

    Args:
        folder: for the files of the model, which is served as version 1 with the label stable.
    """
    await asyncio.to_thread(_write_model, folder / "m" / "1")
    model = ModelSource(folder / "m", versions=1, labels={"stable": 1})
    app = make_app(ServerConfig(models={"m": model}, allow_model_changes=True))
    recorder = _Recorder()
    async with TestClient(TestServer(app)) as recorder.client:
        while (await recorder.client.get("/readyz")).status != 200:
            await asyncio.sleep(0)
        for call in CALLS:
            await recorder.make(call)
    return recorder.found


def _write_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    message = proto.SavedModel(saved_model_schema_version=1, meta_graphs=[served_model().to_proto()])
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())


class _Recorder:
    """Makes calls, and records the first of each name that is answered at once, and of each that is answered later."""

    client: TestClient[Any, Any]

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self._learned: dict[str, str] = {}

    async def make(self, call: Call) -> None:
        path = call.path
        for name, value in call.parameters.items():
            path = path.replace(f"{{{name}}}", quote(self._learned.get(value, value), safe=""))
        headers = {"Content-Type": "application/json"} if call.request is not None else {}
        data = None if call.request is None else json.dumps(call.request)
        async with self.client.request(
            call.method, URL(path, encoded=True).update_query(call.query), data=data, headers=headers | call.headers
        ) as got:
            if call.meanwhile is not None:
                await self.make(call.meanwhile)
            answer = await _answer(got)
            if call.learn:
                name = answer["handle"] if call.learn == "tensor" else answer["name"].partition("/")[2]
                self._learned[call.learn.upper()] = name
            example = {
                "parameters": {**call.parameters, **call.query, **call.headers} or None,
                "request": call.request,
                "status": got.status,
                "media": None if answer is None else got.content_type,
                "answer": json.loads(_named(json.dumps(answer), self._learned)),
            }
        assert got.status < 400 or "/region/" in call.path, (call, example)  # this server has no regions
        key = f"{call.name} later" if got.status == 202 else call.name
        self.found.setdefault(key, {name: value for name, value in example.items() if value is not None})


async def _answer(got: ClientResponse) -> Any:
    """JSON, or the beginning of a text; None for nothing."""
    if "json" in got.content_type and "ndjson" not in got.content_type:
        answer = await got.json()
        return {"openapi": answer["openapi"], "info": answer["info"], "paths": {}} if "openapi" in answer else answer
    text = ""
    async for part in got.content.iter_any():
        text += part.decode()
        if len(text) >= _MOST or (text and got.content_type == "text/event-stream"):
            break
    return text[:_MOST] + "…" * (len(text) > _MOST) if text else None


def _named(text: str, learned: dict[str, str]) -> str:
    """The text with short names for handles."""
    for name, value in learned.items():
        text = text.replace(value, name)
    return text


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(recorded(Path(folder)))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in found.items())
    EXAMPLES_PATH.write_text(f"{{\n{lines}\n}}\n", "utf-8")
