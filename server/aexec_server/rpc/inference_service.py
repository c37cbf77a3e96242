"""`inference.GRPCInferenceService`: Triton's service, of which KServe's V2 protocol over gRPC is a part.

It offers over gRPC what `protocols/inference_protocol.py` offers over HTTP.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from aexec.proto import inference
from aexec_server.clients.callers import Scope
from aexec_server.core.server_state import Server
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.models.model_upload import load_request
from aexec_server.models.models import ModelVersion
from aexec_server.protocols import inference_models as models
from aexec_server.protocols import inference_settings as settings
from aexec_server.protocols.inference_messages import parse_infer, plain_parameters, read_infer_message
from aexec_server.rpc.inference_stream import WhenTaken, answer_stream
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.rpc_model_runs import RpcModelRuns
from aexec_server.sessions.signatures import signatures_ns

__all__ = ["inference_methods"]

M = TypeVar("M", bound=Message)

_SERVICE = "inference.GRPCInferenceService"


def inference_methods(server: Server, runs: RunHandlers) -> list[Method]:
    """Return the rows of the service."""
    calls = _InferenceService(server, runs)
    changes = Scope.MANAGE if server.config.allow_model_changes else Scope.ADMIN

    def row(name: str, answer: Callable[[Call, Any], Any], scope: Scope = Scope.RUN, **kind: Any) -> Method:
        request = getattr(inference, f"{name}Request")
        return Method(f"/{_SERVICE}/{name}", request, getattr(inference, f"{name}Response"), answer, scope, **kind)

    return [
        row("ServerLive", calls.server_live, Scope.OPEN, traced=False),
        row("ServerReady", calls.server_ready, Scope.OPEN, traced=False),
        row("ServerMetadata", calls.server_metadata),
        row("ModelReady", calls.model_ready),
        row("ModelMetadata", calls.model_metadata),
        row("ModelConfig", calls.model_config),
        row("ModelStatistics", calls.model_statistics),
        row("ModelInfer", calls.infer_bytes, encoded=True),
        Method(
            f"/{_SERVICE}/ModelStreamInfer",
            inference.ModelInferRequest,
            inference.ModelStreamInferResponse,
            calls.infer_stream,
            Scope.RUN,
            request_streams=True,
            response_streams=True,
        ),
        row("RepositoryIndex", calls.index),
        row("RepositoryModelLoad", calls.load, changes),
        row("RepositoryModelUnload", calls.unload, changes),
        row("TraceSetting", calls.trace_setting),
        row("LogSettings", calls.log_settings),
        *_memory_rows(row),
    ]


def _memory_rows(row: Callable[..., Method]) -> list[Method]:
    """Return the rows for shared memory, which no client can register."""
    found = []
    for kind in ("System", "Cuda"):
        prefix = f"{kind}SharedMemory"

        async def status(call: Call, request: Any, kind: str = kind) -> Any:
            settings.check_region(kind.lower(), request.name)
            return getattr(inference, f"{kind}SharedMemoryStatusResponse")()

        async def register(call: Call, request: Any, kind: str = kind) -> Any:
            raise settings.refuse_region(kind.lower(), request.name)

        async def unregister(call: Call, request: Any, kind: str = kind) -> Any:
            return getattr(inference, f"{kind}SharedMemoryUnregisterResponse")()

        found += [
            row(f"{prefix}Status", status),
            row(f"{prefix}Register", register),
            row(f"{prefix}Unregister", unregister),
        ]
    return found


class _InferenceService:
    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self._server = server
        self._calls = RpcModelRuns(runs)

    def _version(self, name: str, digits: str) -> ModelVersion:
        return models.find_version(self._server.models, name, digits)

    # Inference

    async def infer(self, call: Call, request: inference.ModelInferRequest) -> bytes:
        version = self._version(request.model_name, request.model_version)
        return await self._calls.run(call, version, request.ByteSize(), lambda hosted: read_infer_message(request))

    async def infer_bytes(self, call: Call, data: bytes) -> bytes:
        request, raw = await bodies.beside(0, parse_infer, data, self._server.config.message_limits)
        version = self._version(request.model_name, request.model_version)
        return await self._calls.run(call, version, len(data), lambda hosted: read_infer_message(request, raw))

    def infer_stream(self, call: Call, requests: AsyncIterator[inference.ModelInferRequest]) -> AsyncIterator[bytes]:
        async def infer(request: inference.ModelInferRequest, when_taken: WhenTaken) -> bytes:
            own = replace(call, arrival=time.monotonic(), when_ended=when_taken)
            with self._server.body_budget.holding(call.caller, request.ByteSize()):
                return await self.infer(own, request)

        return answer_stream(requests, infer)

    # Descriptions

    async def server_live(self, call: Call, request: inference.ServerLiveRequest) -> inference.ServerLiveResponse:
        return inference.ServerLiveResponse(live=True)

    async def server_ready(self, call: Call, request: inference.ServerReadyRequest) -> inference.ServerReadyResponse:
        return inference.ServerReadyResponse(ready=self._server.ready)

    async def server_metadata(
        self, call: Call, request: inference.ServerMetadataRequest
    ) -> inference.ServerMetadataResponse:
        return _message(inference.ServerMetadataResponse, models.describe_server())

    async def model_ready(self, call: Call, request: inference.ModelReadyRequest) -> inference.ModelReadyResponse:
        version = self._version(request.name, request.version)
        return inference.ModelReadyResponse(ready=models.is_ready(self._server, version))

    async def model_metadata(
        self, call: Call, request: inference.ModelMetadataRequest
    ) -> inference.ModelMetadataResponse:
        version = self._version(request.name, request.version)
        describe = partial(models.describe_model, self._server.models, version)
        return await _described(inference.ModelMetadataResponse, version, describe)

    async def model_config(self, call: Call, request: inference.ModelConfigRequest) -> inference.ModelConfigResponse:
        version = self._version(request.name, request.version)
        config = await _described(inference.ModelConfig, version, partial(models.describe_config, version))
        return inference.ModelConfigResponse(config=config)

    async def model_statistics(
        self, call: Call, request: inference.ModelStatisticsRequest
    ) -> inference.ModelStatisticsResponse:
        versions = models.versions_with_statistics(self._server.models, request.name, request.version)
        return _message(inference.ModelStatisticsResponse, models.describe_statistics(versions))

    # The repository

    async def index(self, call: Call, request: inference.RepositoryIndexRequest) -> inference.RepositoryIndexResponse:
        found = await models.index_models(self._server, only_ready=request.ready)
        return _message(inference.RepositoryIndexResponse, {"models": found})

    async def load(
        self, call: Call, request: inference.RepositoryModelLoadRequest
    ) -> inference.RepositoryModelLoadResponse:
        models.check_changeable(self._server, call.caller, request.model_name)
        asked = load_request(plain_parameters(request.parameters))
        await models.load_model(self._server, request.model_name, asked)
        return inference.RepositoryModelLoadResponse()

    async def unload(
        self, call: Call, request: inference.RepositoryModelUnloadRequest
    ) -> inference.RepositoryModelUnloadResponse:
        models.check_changeable(self._server, call.caller, request.model_name)
        models.check_unload_parameters(request.parameters)
        await models.unload_model(self._server, request.model_name)
        return inference.RepositoryModelUnloadResponse()

    # Settings

    async def trace_setting(self, call: Call, request: inference.TraceSettingRequest) -> inference.TraceSettingResponse:
        if request.model_name:
            models.find_model(self._server.models, request.model_name)
        wanted = {name: list(value.value) for name, value in request.settings.items()}
        response = inference.TraceSettingResponse()
        for name, values in settings.change_trace_settings(wanted).items():
            response.settings[name].value.extend(values)
        return response

    async def log_settings(self, call: Call, request: inference.LogSettingsRequest) -> inference.LogSettingsResponse:
        response = inference.LogSettingsResponse()
        for name, value in settings.change_log_settings(plain_parameters(request.settings)).items():
            setattr(response.settings[name], _LOG_FIELDS[type(value)], value)
        return response


_LOG_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def _message(kind: type[M], described: Mapping[str, Any]) -> M:
    """Return a message with the described fields."""
    return json_format.ParseDict(_listed(described), kind())


def _listed(value: Any) -> Any:
    """Return a description with lists in place of iterators."""
    if isinstance(value, Mapping):
        return {name: _listed(item) for name, item in value.items()}
    return value if isinstance(value, str | int | float | bool) else [_listed(item) for item in value]


async def _described(kind: type[M], version: ModelVersion, describe: Callable[[], Mapping[str, Any]]) -> M:
    """Describe a version's signature as a message, in a thread if it is large."""
    return await bodies.beside(signatures_ns(version.hosted.session), lambda: _message(kind, describe()))
