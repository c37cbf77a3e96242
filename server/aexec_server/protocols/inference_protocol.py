"""The Open Inference Protocol v2, under /v2: a model is a session with a signature, whose names clients use.

github.com/open-inference/open-inference-protocol, and of Triton's extensions binary tensor data, statistics, the model
repository, and model configuration as far as there is any.  `inference_request.py` reads requests; health is in
`handlers/health.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from multidict import istr

import aexec
from aexec import errors
from aexec.hosting import TensorInfo, datatype_of, loop_budget
from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import Scope, caller_of
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
from aexec_server.models.models import Model, ModelVersion, VersionState
from aexec_server.protocols.inference_request import InferenceRequest, RepeatedInference, read_inference, read_raw
from aexec_server.requests.run_events import as_they_come, media_of_events
from aexec_server.requests.run_request import parse_header_length, read_ns
from aexec_server.sessions.signatures import signatures_ns
from aexec_server.sessions.store import HostedSession

__all__ = ["routes"]

_JSON_LENGTH = istr("Inference-Header-Content-Length")
_EXTENSIONS = ["binary_tensor_data", "parameters", "model_configuration", "model_repository", "statistics"]
_PLATFORM = "tensorflow_graphdef"
_INDEX_FIELDS = frozenset({"ready"})
_UNLOAD_FIELDS = frozenset({"parameters"})
_UNLOAD_PARAMETERS = frozenset({"unload_dependents"})
_STATES = {
    VersionState.START: "LOADING",
    VersionState.LOADING: "LOADING",
    VersionState.AVAILABLE: "READY",
    VersionState.UNLOADING: "UNLOADING",
    VersionState.END: "UNAVAILABLE",
}


def routes(server: Server, runs: RunHandlers) -> list[Route]:
    """Everything under /v2 but health."""
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
                "Run a model, and get outputs as they come",
                "InferRequest",
                "Events",
                200,
                headers,
            )
            for p in both
        ),
        call("GET", "/v2/models", handlers.names, "Names of all models", None, "ModelNames"),
        *(call("GET", p, handlers.metadata, "What a model takes and gives", None, "ModelMetadata") for p in both),
        *(call("GET", f"{p}/ready", handlers.model_ready, "Can it be run?", None, "ModelReady") for p in both),
        *(call("GET", f"{p}/config", handlers.model_config, "Its configuration", None, "ModelConfig") for p in both),
        *(
            call("GET", f"{p}/stats", handlers.stats, "How often it was run, and how long that took", None, "Stats")
            for p in (*both, "/v2/models")
        ),
        *(
            front("GET", p, handlers.server_metadata, "Name, version and extensions", None, "ServerMetadata")
            for p in ("/v2", "/v2/")
        ),
        call("POST", "/v2/repository/index", handlers.index, "All models", "IndexRequest", "RepositoryIndex"),
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


class _Handlers:
    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self.server = server
        self.runs = runs

    def _model(self, request: web.Request) -> Model:
        return self.server.models.find(request.match_info["model"])

    def _version(self, request: web.Request) -> ModelVersion:
        return self._version_of(request.match_info)

    def _version_of(self, names: Mapping[str, str]) -> ModelVersion:
        return self.server.models.find(names["model"]).version_named(names.get("version"))

    def direct(self, names: Mapping[str, str], head: RawRequestMessage) -> DirectCall | None:
        """Of inferences with this head."""
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
        """POST …/infer_stream: outputs as they come, each in an answer of its own."""
        self.server.check_accepting()
        version = self._version(request)
        length = request.headers.get(_JSON_LENGTH)
        stream = self.runs.in_flight.new_stream()
        running = asyncio.create_task(
            run_model(
                self.runs, request, version, lambda body, hosted: _read(length, body, hosted), on_run=stream.attach
            )
        )
        head = f'"model_name":{bodies.encode_json(version.model)},"model_version":"{version.number}"'
        return await as_they_come(
            request, self.server.door, media_of_events(request), stream, running, (f'{head},"outputs":[{{', "]}")
        )

    # What there is

    async def server_metadata(self, request: web.Request) -> web.Response:
        """GET /v2"""
        return bodies.json_response({"name": "aexec", "version": aexec.__version__, "extensions": _EXTENSIONS})

    async def names(self, request: web.Request) -> web.Response:
        """GET /v2/models, as KServe has it"""
        return model_names(self.server.models)

    async def metadata(self, request: web.Request) -> web.StreamResponse:
        """GET /v2/models/{model}"""
        model, version = self._model(request), self._version(request)
        signature = version.hosted.session.signature()
        described = {
            "name": model.name,
            "versions": [str(v.number) for v in model.available],
            "platform": _PLATFORM,
            "inputs": _tensors(signature.inputs),
            "outputs": _tensors(signature.outputs),
        }
        return await self._told(request, version, described)

    async def _told(self, request: web.Request, version: ModelVersion, described: dict[str, Any]) -> web.StreamResponse:
        """An answer with the signature of a version."""
        in_thread = not loop_budget.DEFAULT.allows(signatures_ns(version.hosted.session))
        return await self.server.door.send(request, value_pieces(described), bodies.JSON, in_thread=in_thread)

    async def model_config(self, request: web.Request) -> web.StreamResponse:
        """GET …/config: what Triton's clients look up there; a batch dimension is one of the shape here."""
        version = self._version(request)
        signature = version.hosted.session.signature()

        def described(infos: Mapping[str, TensorInfo]) -> Iterator[dict[str, Any]]:
            return (
                {"name": t["name"], "data_type": f"TYPE_{t['datatype']}".replace("BYTES", "STRING"), "dims": t["shape"]}
                for t in _tensors(infos)
            )

        config = {
            "name": version.model,
            "platform": _PLATFORM,
            "max_batch_size": 0,
            "input": described(signature.inputs),
            "output": described(signature.outputs),
        }
        return await self._told(request, version, config)

    async def model_ready(self, request: web.Request) -> web.Response:
        """GET …/ready"""
        ready = self._version(request).state is VersionState.AVAILABLE and not self.server.draining
        name = request.match_info["model"]
        return bodies.json_response({"name": name, "ready": ready}, 200 if ready else 503)

    async def stats(self, request: web.Request) -> web.Response:
        """GET …/stats"""
        if "model" not in request.match_info:
            versions = [v for model in self.server.models for v in model.versions.values()]
        elif "version" in request.match_info:
            versions = [self._version(request)]
        else:
            versions = list(self._model(request).versions.values())
        return bodies.json_response(
            {
                "model_stats": [
                    {"name": v.model, "version": str(v.number)} | v.statistics.describe()
                    for v in versions
                    if v.state is not VersionState.END
                ]
            }
        )

    # The repository

    async def _fields(self, request: web.Request, allowed: frozenset[str]) -> dict[str, Any]:
        body = await bodies.read_body(request, self.server.config, self.server.body_budget)
        fields = bodies.json_object(body) if body.strip() else {}
        bodies.check_fields(fields, allowed, "the request")
        return fields

    async def index(self, request: web.Request) -> web.Response:
        """POST /v2/repository/index"""
        only_ready = (await self._fields(request, _INDEX_FIELDS)).get("ready", False)
        if type(only_ready) is not bool:
            raise bodies.expected('"ready" must be true or false', only_ready)
        entries = [_index_entry(v) for model in self.server.models for v in model.versions.values()]
        known = {model.name for model in self.server.models}
        others = (await self.server.repository.sources()).keys() - known
        entries += [{"name": name, "state": "UNAVAILABLE", "reason": "not loaded"} for name in sorted(others)]
        return bodies.json_response([e for e in entries if e["state"] == "READY" or not only_ready])

    def _check_changeable(self, request: web.Request, name: str) -> None:
        self.server.check_accepting()
        if not self.server.may_change_models(caller_of(request)):
            raise errors.PermissionDeniedError(
                f"Model '{name[:80]}' is the server's own: clients may run it, but not load or unload it"
            )

    async def load(self, request: web.Request) -> web.Response:
        """POST …/load"""
        name = request.match_info["model"]
        self._check_changeable(request, name)
        body = await bodies.read_body(request, self.server.config, self.server.body_budget)
        asked = await bodies.beside(read_ns(body, None), lambda: read_load_request(body))
        if asked.files:
            source = await self.server.uploads.store(asked.files)
        else:
            sources = await self.server.repository.sources()
            known = self.server.models.get(name)
            gone = known is None or (known.source.temporary and not known.ready)
            if gone and name not in sources:
                sent = "" if known is None else ": it was sent, and its files went when it was unloaded"
                raise errors.NotFoundError(f"Model '{name[:80]}' is not in the model repository{sent}")
            source = sources[name] if known is None or gone else known.source
        # Once begun it goes on, even if who asked for it goes away.
        await self.server.models.load_shielded(name, asked.applied_to(source))
        return bodies.json_response({})

    async def unload(self, request: web.Request) -> web.Response:
        """POST …/unload"""
        name = request.match_info["model"]
        self._check_changeable(request, name)
        parameters = (await self._fields(request, _UNLOAD_FIELDS)).get("parameters", {})
        if type(parameters) is not dict:
            raise bodies.expected('"parameters" must be an object', parameters)
        bodies.check_fields(parameters, _UNLOAD_PARAMETERS, "the parameters")  # no model has dependents
        await self.server.models.unload(name)
        return bodies.json_response({})


def _read_at_once(
    header: str | None, body: bytes, hosted: HostedSession, repeated: RepeatedInference
) -> InferenceRequest | None:
    """As `_read`; None for what takes too long."""
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
    return await bodies.beside(read_ns(body, length), lambda: read_inference(body, length))


def _tensors(infos: Mapping[str, TensorInfo]) -> Iterator[dict[str, Any]]:
    """As the protocol has them: -1 for a size that is open, and for all sizes of an open rank."""
    return (
        {
            "name": name,
            "datatype": "" if info.dtype is None else datatype_of(info.dtype),
            "shape": [-1] if info.shape.dims is None else [-1 if d is None else d for d in info.shape.dims],
        }
        for name, info in infos.items()
    )


def _index_entry(version: ModelVersion) -> dict[str, str]:
    reason = "" if version.state is VersionState.AVAILABLE else version.state.value.lower()
    if version.state is VersionState.END:
        reason = version.reason or "unloaded"
    return {"name": version.model, "version": str(version.number), "state": _STATES[version.state], "reason": reason}
