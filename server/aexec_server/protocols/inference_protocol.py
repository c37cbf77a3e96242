"""The Open Inference Protocol v2, under /v2: a model is a session with a signature, whose names clients use.

github.com/open-inference/open-inference-protocol, and Triton's extensions for binary tensor data, statistics, the model
repository, and (in part) model configuration. `inference_request.py` reads requests, `inference_models.py` describes
models; health is in `handlers/health.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from multidict import istr

from aexec.hosting import loop_budget
from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import CALLER, Scope
from aexec_server.core.direct_call import DirectCall
from aexec_server.core.routes import AnsweredBy, Route
from aexec_server.core.server_state import Server
from aexec_server.handlers.model_calls import DirectModelCall, model_names, run_model
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.http.json_style import json_style
from aexec_server.http.json_text import value_pieces
from aexec_server.http.request_preferences import refuse_preferences
from aexec_server.models.model_upload import read_load_request
from aexec_server.models.models import ModelVersion
from aexec_server.protocols.inference_models import (
    check_changeable,
    check_unload_parameters,
    describe_config,
    describe_model,
    describe_server,
    describe_statistics,
    find_version,
    index_models,
    is_ready,
    load_model,
    unload_model,
    versions_with_statistics,
)
from aexec_server.protocols.inference_request import InferenceRequest, RepeatedInference, read_inference, read_raw
from aexec_server.protocols.inference_settings import (
    change_log_settings,
    change_trace_settings,
    check_region,
    refuse_region,
)
from aexec_server.requests.run_events import as_they_come, media_of_events
from aexec_server.requests.run_request import parse_header_length, read_ns
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.signatures import signatures_ns

__all__ = ["routes"]

_JSON_LENGTH = istr("Inference-Header-Content-Length")
_INDEX_FIELDS = frozenset({"ready"})
_UNLOAD_FIELDS = frozenset({"parameters"})


def routes(server: Server, runs: RunHandlers) -> list[Route]:
    """Return the routes below /v2, except health."""
    handlers = _Handlers(server, runs)
    model, version = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
    both = (model, version)
    headers = ("Aexec-Run-Id", str(_JSON_LENGTH))
    call = partial(Route, scope=Scope.RUN, process=AnsweredBy.MODELS)
    front = partial(Route, scope=Scope.RUN, process=AnsweredBy.FRONT)
    changes = Scope.MANAGE if server.config.allow_model_changes else Scope.ADMIN
    return [
        *(
            call(
                "POST",
                f"{p}/infer",
                handlers.infer,
                "Run a model",
                "InferRequest",
                "InferResponse",
                200,
                headers,
                direct=handlers.direct,
            )
            for p in both
        ),
        *(
            call(
                "POST",
                f"{p}/infer_stream",
                handlers.infer_stream,
                "Run a model and stream its outputs",
                "InferRequest",
                "Events",
                200,
                headers,
            )
            for p in both
        ),
        call("GET", "/v2/models", handlers.names, "List the names of the models", None, "ModelNames"),
        *(call("GET", p, handlers.metadata, "The inputs and outputs of a model", None, "ModelMetadata") for p in both),
        *(
            call("GET", f"{p}/ready", handlers.model_ready, "Whether the model can be run", None, "ModelReady")
            for p in both
        ),
        *(
            call("GET", f"{p}/config", handlers.model_config, "The configuration of a model", None, "ModelConfig")
            for p in both
        ),
        *(
            call("GET", f"{p}/stats", handlers.stats, "Numbers and durations of a model's runs", None, "Stats")
            for p in (*both, "/v2/models")
        ),
        *(
            front(
                "GET", p, handlers.server_metadata, "Name, version and extensions of the server", None, "ServerMetadata"
            )
            for p in ("/v2", "/v2/")
        ),
        *_settings_routes(handlers, call, front),
        *_repository_routes(handlers, call, changes),
    ]


def _repository_routes(handlers: _Handlers, call: Callable[..., Route], changes: Scope) -> list[Route]:
    """Return the routes of the model repository; loading and unloading need the scope `changes`."""
    return [
        call(
            "POST",
            "/v2/repository/index",
            handlers.index,
            "List the models of the repository",
            "IndexRequest",
            "RepositoryIndex",
        ),
        call(
            "POST",
            "/v2/repository/models/{model}/load",
            handlers.load,
            "Load or reload a model",
            "LoadRequest",
            "Done",
            scope=changes,
        ),
        call(
            "POST",
            "/v2/repository/models/{model}/unload",
            handlers.unload,
            "Unload a model",
            "UnloadRequest",
            "Done",
            scope=changes,
        ),
    ]


def _settings_routes(handlers: _Handlers, call: Callable[..., Route], front: Callable[..., Route]) -> list[Route]:
    """Return the routes of Triton's calls for settings and shared memory."""
    model = "/v2/models/{model}"
    traces = [(front, "/v2"), (call, model), (call, model + "/versions/{version}")]
    found = [
        front("GET", "/v2/logging", handlers.logging, "Read the settings of the log", None, "LogSettings"),
        front(
            "POST",
            "/v2/logging",
            handlers.logging,
            "Set settings to their present values; others are refused",
            "LogSettings",
            "LogSettings",
        ),
    ]
    for make, path in traces:
        found += [
            make(
                "GET", f"{path}/trace/setting", handlers.tracing, "Read the settings of traces", None, "TraceSettings"
            ),
            make(
                "POST",
                f"{path}/trace/setting",
                handlers.tracing,
                "Set settings to their present values; others are refused",
                "TraceSettings",
                "TraceSettings",
            ),
        ]
    for memory in ("systemsharedmemory", "cudasharedmemory"):
        region = f"/v2/{memory}/region/{{region}}"
        for path in (f"/v2/{memory}", region):
            found += [
                front(
                    "GET",
                    f"{path}/status",
                    handlers.regions,
                    "List regions of shared memory: there are none",
                    None,
                    "Regions",
                ),
                front(
                    "POST",
                    f"{path}/unregister",
                    handlers.unregister,
                    "Unregister regions of shared memory: there are none",
                    "Region",
                    "Done",
                ),
            ]
        found.append(
            front(
                "POST",
                f"{region}/register",
                handlers.register,
                "Register a region of shared memory: always refused",
                "Region",
                "Done",
            )
        )
    return found


class _Handlers:
    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self.server = server
        self.runs = runs

    def _version(self, request: web.Request) -> ModelVersion:
        return self._version_of(request.match_info)

    def _version_of(self, names: Mapping[str, str]) -> ModelVersion:
        return find_version(self.server.models, names["model"], names.get("version"))

    def direct(self, names: Mapping[str, str], head: RawRequestMessage) -> DirectCall | None:
        """Make the direct call for inferences with this head."""
        refuse_preferences(head)
        length, repeated = head.headers.get(_JSON_LENGTH), RepeatedInference()
        return DirectModelCall(
            lambda: self._version_of(names),
            lambda body, hosted: _read_at_once(length, body, hosted, repeated),
            json_style(head),
        )

    # Inference

    async def infer(self, request: web.Request) -> web.Response:
        """POST …/infer"""
        self.server.check_accepting()
        refuse_preferences(request)
        length = request.headers.get(_JSON_LENGTH)
        return await run_model(
            self.runs, request, self._version(request), lambda body, hosted: _read(length, body, hosted)
        )

    async def infer_stream(self, request: web.Request) -> web.StreamResponse:
        """POST …/infer_stream: outputs as soon as they are computed, each as an event."""
        self.server.check_accepting()
        version = self._version(request)
        length = request.headers.get(_JSON_LENGTH)
        stream = self.runs.in_flight.new_stream(version.hosted)
        running = asyncio.create_task(
            run_model(
                self.runs, request, version, lambda body, hosted: _read(length, body, hosted), on_run=stream.attach
            )
        )
        head = f'"model_name":{bodies.encode_json(version.model)},"model_version":"{version.number}"'
        return await as_they_come(
            request, self.server.door, media_of_events(request), stream, running, (f'{head},"outputs":[{{', "]}")
        )

    # Descriptions

    async def server_metadata(self, request: web.Request) -> web.Response:
        """GET /v2"""
        return bodies.json_response(describe_server())

    async def names(self, request: web.Request) -> web.Response:
        """GET /v2/models, as KServe has it"""
        return model_names(self.server.models)

    async def metadata(self, request: web.Request) -> web.StreamResponse:
        """GET /v2/models/{model}"""
        version = self._version(request)
        return await self._told(request, version, describe_model(self.server.models, version))

    async def _told(self, request: web.Request, version: ModelVersion, described: dict[str, Any]) -> web.StreamResponse:
        """Send a description that contains a version's signature."""
        in_thread = not loop_budget.DEFAULT.allows(signatures_ns(version.hosted.session))
        return await self.server.door.send(request, value_pieces(described), bodies.JSON, in_thread=in_thread)

    async def model_config(self, request: web.Request) -> web.StreamResponse:
        """GET …/config"""
        version = self._version(request)
        return await self._told(request, version, describe_config(version))

    async def model_ready(self, request: web.Request) -> web.Response:
        """GET …/ready"""
        ready = is_ready(self.server, self._version(request))
        name = request.match_info["model"]
        return bodies.json_response({"name": name, "ready": ready}, 200 if ready else 503)

    async def stats(self, request: web.Request) -> web.Response:
        """GET …/stats"""
        names = request.match_info
        versions = versions_with_statistics(self.server.models, names.get("model"), names.get("version"))
        return bodies.json_response(describe_statistics(versions))

    # Settings and shared memory

    async def _given(self, request: web.Request) -> dict[str, Any]:
        body = await bodies.read_body(request, self.server.config, self.server.body_budget)
        return bodies.json_object(body) if body.strip() else {}

    async def logging(self, request: web.Request) -> web.Response:
        """GET and POST /v2/logging"""
        return bodies.json_response(change_log_settings(await self._given(request)))

    async def tracing(self, request: web.Request) -> web.Response:
        """GET and POST …/trace/setting"""
        given = await self._given(request)
        wanted = {name: [] if value is None else _texts(name, value) for name, value in given.items()}
        return bodies.json_response(change_trace_settings(wanted))

    async def regions(self, request: web.Request) -> web.Response:
        """GET …sharedmemory/status"""
        check_region(_memory_kind(request), request.match_info.get("region", ""))
        return bodies.json_response([])

    async def register(self, request: web.Request) -> web.Response:
        """POST …sharedmemory/region/{region}/register"""
        raise refuse_region(_memory_kind(request), request.match_info["region"])

    async def unregister(self, request: web.Request) -> web.Response:
        """POST …sharedmemory/unregister"""
        return bodies.json_response({})

    # The repository

    async def _fields(self, request: web.Request, allowed: frozenset[str]) -> dict[str, Any]:
        fields = await self._given(request)
        bodies.check_fields(fields, allowed, "the request")
        return fields

    async def index(self, request: web.Request) -> web.Response:
        """POST /v2/repository/index"""
        only_ready = (await self._fields(request, _INDEX_FIELDS)).get("ready", False)
        if type(only_ready) is not bool:
            raise bodies.expected('"ready" must be true or false', only_ready)
        return bodies.json_response(await index_models(self.server, only_ready=only_ready))

    async def load(self, request: web.Request) -> web.Response:
        """POST …/load"""
        name = request.match_info["model"]
        check_changeable(self.server, request[CALLER], name)
        body = await bodies.read_body(request, self.server.config, self.server.body_budget)
        asked = await bodies.beside(read_ns(body, None), read_load_request, body)
        await load_model(self.server, name, asked)
        return bodies.json_response({})

    async def unload(self, request: web.Request) -> web.Response:
        """POST …/unload"""
        name = request.match_info["model"]
        check_changeable(self.server, request[CALLER], name)
        parameters = (await self._fields(request, _UNLOAD_FIELDS)).get("parameters", {})
        if type(parameters) is not dict:
            raise bodies.expected('"parameters" must be an object', parameters)
        check_unload_parameters(parameters)
        await unload_model(self.server, name)
        return bodies.json_response({})


def _memory_kind(request: web.Request) -> str:
    return "cuda" if request.path.startswith("/v2/cuda") else "system"


def _texts(name: str, value: Any) -> list[str]:
    """Return one text or a list of texts as a list.  Raises InvalidArgumentError."""
    texts = value if type(value) is list else [value]
    if not all(type(text) is str for text in texts):
        raise bodies.expected(f"trace setting {name[:80]!r} must be a string, a list of strings, or null", value)
    return texts


def _read_at_once(
    header: str | None, body: bytes, hosted: HostedSession, repeated: RepeatedInference
) -> InferenceRequest | None:
    """Like `_read`; None if reading would take too long on the event loop."""
    if header == "0":
        return read_raw(body, hosted.session.signature())
    length = parse_header_length(header, body)
    if not loop_budget.DEFAULT.allows(read_ns(body, length)):
        return None
    return read_inference(body, None) if length is None else repeated.read(body, length)


async def _read(header: str | None, body: bodies.Body, hosted: HostedSession) -> InferenceRequest:
    if header == "0":
        return read_raw(body, hosted.session.signature())
    length = parse_header_length(header, body)
    return await bodies.beside(read_ns(body, length), read_inference, body, length)
