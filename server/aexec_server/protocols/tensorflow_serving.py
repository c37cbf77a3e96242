"""TensorFlow Serving's REST API, under /v1/models: predict, classify, regress, status and metadata.

The fixed parts of paths are matched case-insensitively, as in TensorFlow Serving. `serving_request.py` reads requests
and writes answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from google.protobuf import json_format

import aexec
from aexec import proto
from aexec.hosting import loop_budget
from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import Scope
from aexec_server.core.direct_call import DirectCall, MakeDirectCall
from aexec_server.core.routes import AnsweredBy, Route
from aexec_server.core.server_state import Server
from aexec_server.handlers.model_calls import DirectModelCall, ModelRequest, model_names, run_model
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.http.json_style import json_style
from aexec_server.http.json_text import value_pieces
from aexec_server.http.request_preferences import refuse_preferences
from aexec_server.models.models import ModelVersion
from aexec_server.protocols.serving_models import describe_versions, known_versions, served_version, signature_messages
from aexec_server.protocols.serving_request import (
    ExamplesRequest,
    RegressRequest,
    SignatureOf,
    read_examples,
    read_predict,
)
from aexec_server.requests.run_request import read_ns
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.signatures import signatures_ns

__all__ = ["routes"]

_MODEL = "/v1/models/{model}"
_PATHS = (_MODEL, _MODEL + "/versions/{version}", _MODEL + "/labels/{label}")


def routes(server: Server, runs: RunHandlers) -> list[Route]:
    """Return the routes below /v1/models."""
    handlers = _Handlers(server, runs)
    call = partial(Route, ignore_case=True, scope=Scope.RUN, process=AnsweredBy.MODELS)

    def each(
        method: str,
        suffix: str,
        handler: Any,
        summary: str,
        request: str | None,
        response: str,
        direct: MakeDirectCall | None = None,
    ) -> list[Route]:
        return [call(method, path + suffix, handler, summary, request, response, direct=direct) for path in _PATHS]

    predict = ("PredictRequest", "PredictResponse")
    names = ("List the names of the models", None, "ModelNames")
    return [
        *each("POST", ":predict", handlers.predict, "Run a model", *predict, handlers.direct),
        *each("POST", ":classify", handlers.classify, "Classify examples", "ExamplesRequest", "ClassifyResponse"),
        *each(
            "POST",
            ":regress",
            handlers.regress,
            "Compute a value for each example",
            "ExamplesRequest",
            "RegressResponse",
        ),
        *each("GET", "/metadata", handlers.metadata, "The signatures of a model", None, "ServingMetadata"),
        Route(
            "GET", "/v1/models", handlers.names, *names, ignore_case=True, scope=Scope.RUN, process=AnsweredBy.MODELS
        ),
        *each("GET", "", handlers.status, "The versions of a model and their states", None, "ServingStatus"),
    ]


class _Handlers:
    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self.server = server
        self.runs = runs

    def _version_of(self, names: Mapping[str, str]) -> ModelVersion:
        return served_version(self.server.models, names["model"], names.get("version"), names.get("label"))

    def direct(self, names: Mapping[str, str], head: RawRequestMessage) -> DirectCall | None:
        """Make the direct call for predictions with this head."""
        refuse_preferences(head)

        def read(body: bytes, hosted: HostedSession) -> ModelRequest | None:
            allowed = loop_budget.DEFAULT.allows(read_ns(body, None))
            return read_predict(body, hosted.session.signature) if allowed else None

        return DirectModelCall(lambda: self._version_of(names), read, json_style(head))

    async def predict(self, request: web.Request) -> web.Response:
        """POST …:predict"""
        return await self._run(request, read_predict)

    async def classify(self, request: web.Request) -> web.Response:
        """POST …:classify"""
        return await self._run(request, partial(read_examples, kind=ExamplesRequest))

    async def regress(self, request: web.Request) -> web.Response:
        """POST …:regress"""
        return await self._run(request, partial(read_examples, kind=RegressRequest))

    async def _run(self, request: web.Request, read: Callable[[bytes, SignatureOf], ModelRequest]) -> web.Response:
        self.server.check_accepting()
        refuse_preferences(request)

        async def decode(body: bodies.Body, hosted: HostedSession) -> ModelRequest:
            return await bodies.beside(read_ns(body, None), lambda: read(bytes(body), hosted.session.signature))

        return await run_model(self.runs, request, self._version_of(request.match_info), decode)

    async def names(self, request: web.Request) -> web.Response:
        """GET /v1/models, as KServe has it"""
        return model_names(self.server.models)

    async def status(self, request: web.Request) -> web.Response:
        """GET /v1/models/{model}"""
        names = request.match_info
        versions = known_versions(self.server.models, names["model"], names.get("version"), names.get("label"))
        return bodies.json_response(describe_versions(versions))

    async def metadata(self, request: web.Request) -> web.StreamResponse:
        """GET …/metadata"""
        version = self._version_of(request.match_info)
        session = version.hosted.session
        in_thread = not loop_budget.DEFAULT.allows(signatures_ns(session))
        parts = _metadata_parts(version, session)
        return await self.server.door.send(request, parts, bodies.JSON, in_thread=in_thread)


def _metadata_parts(version: ModelVersion, session: aexec.Session) -> Iterator[str]:
    described = {name: _described(signature) for name, signature in signature_messages(session).items()}
    yield from value_pieces(
        {
            "model_spec": {"name": version.model, "signature_name": "", "version": str(version.number)},
            "metadata": {"signature_def": {"signature_def": described}},
        }
    )


def _described(message: proto.SignatureDef) -> dict[str, Any]:
    """Return a SignatureDef as JSON, empty fields included."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
