"""`tensorflow.serving.PredictionService` and `SessionService`: runs of models by TensorFlow Serving's clients."""

from __future__ import annotations

from functools import partial

import aexec
from aexec import errors
from aexec.proto import serving
from aexec_server.clients.callers import Scope
from aexec_server.core.server_state import Server
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.protocols.serving_messages import (
    parse_predict,
    parse_small_predict,
    read_examples_message,
    read_multi_inference,
    read_predict_message,
    read_session_run,
    session_run_answer,
    spec_of,
)
from aexec_server.protocols.serving_models import served_version, signature_messages
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.rpc_model_runs import RpcModelRuns
from aexec_server.sessions.signatures import signatures_ns

__all__ = ["prediction_methods", "version_choice"]

_SERVICE = "/tensorflow.serving.PredictionService"
# The only part of a model's metadata; TensorFlow's clients unpack it under this name.
_SIGNATURES = "signature_def"
_SIGNATURES_URL = "type.googleapis.com/tensorflow.serving.SignatureDefMap"


def prediction_methods(server: Server, runs: RunHandlers) -> list[Method]:
    """Return the rows of both services."""
    calls = _PredictionService(server, runs)
    row = partial(Method, scope=Scope.RUN)
    return [
        row(f"{_SERVICE}/Predict", serving.PredictRequest, serving.PredictResponse, calls.predict, encoded=True),
        row(f"{_SERVICE}/Classify", serving.ClassificationRequest, serving.ClassificationResponse, calls.classify),
        row(f"{_SERVICE}/Regress", serving.RegressionRequest, serving.RegressionResponse, calls.regress),
        row(
            f"{_SERVICE}/MultiInference",
            serving.MultiInferenceRequest,
            serving.MultiInferenceResponse,
            calls.multi_inference,
        ),
        row(
            f"{_SERVICE}/GetModelMetadata",
            serving.GetModelMetadataRequest,
            serving.GetModelMetadataResponse,
            calls.metadata,
        ),
        row(
            "/tensorflow.serving.SessionService/SessionRun",
            serving.SessionRunRequest,
            serving.SessionRunResponse,
            calls.session_run,
        ),
    ]


def version_choice(spec: serving.ModelSpec) -> tuple[str | None, str | None]:
    """Return the number and the label of the version that a request names."""
    choice = spec.WhichOneof("version_choice")
    return (
        str(spec.version.value) if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
    )


class _PredictionService:
    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self._models = server.models
        self._limits = server.config.message_limits
        self._calls = RpcModelRuns(runs)

    def _version(self, spec: serving.ModelSpec) -> ModelVersion:
        if not spec.name:
            raise errors.InvalidArgumentError("Missing ModelSpec")
        return served_version(self._models, spec.name, *version_choice(spec))

    async def predict(self, call: Call, data: bytes) -> bytes:
        small = parse_small_predict(data)
        if small is None:
            request, contents = await bodies.beside(0, parse_predict, data, self._limits)
        else:
            request, contents = small, {}
        version = self._version(request.model_spec)
        return await self._calls.run(
            call, version, len(data), lambda hosted: read_predict_message(request, contents, hosted.session)
        )

    async def classify(self, call: Call, request: serving.ClassificationRequest) -> bytes:
        return await self._examples(call, request)

    async def regress(self, call: Call, request: serving.RegressionRequest) -> bytes:
        return await self._examples(call, request)

    async def _examples(self, call: Call, request: serving.ClassificationRequest | serving.RegressionRequest) -> bytes:
        version = self._version(request.model_spec)
        return await self._calls.run(
            call, version, request.ByteSize(), lambda hosted: read_examples_message(request, hosted.session)
        )

    async def multi_inference(self, call: Call, request: serving.MultiInferenceRequest) -> bytes:
        if not request.tasks:
            raise errors.InvalidArgumentError("Inference request must have at least one task")
        version = self._version(request.tasks[0].model_spec)
        return await self._calls.run(
            call, version, request.ByteSize(), lambda hosted: read_multi_inference(request, hosted.session)
        )

    async def session_run(self, call: Call, request: serving.SessionRunRequest) -> bytes:
        version = self._version(request.model_spec)
        write = partial(session_run_answer, version)
        return await self._calls.run_step(call, version, request.ByteSize(), lambda: read_session_run(request), write)

    async def metadata(self, call: Call, request: serving.GetModelMetadataRequest) -> serving.GetModelMetadataResponse:
        if not request.metadata_field:
            raise errors.InvalidArgumentError("GetModelMetadataRequest must specify at least one metadata_field")
        for name in request.metadata_field:
            if name != _SIGNATURES:
                raise errors.InvalidArgumentError(f"Metadata field {name[:80]} is not supported")
        version = self._version(request.model_spec)
        session = version.hosted.session
        return await bodies.beside(signatures_ns(session), _metadata, version, session)


def _metadata(version: ModelVersion, session: aexec.Session) -> serving.GetModelMetadataResponse:
    response = serving.GetModelMetadataResponse(model_spec=spec_of(version))
    packed = response.metadata[_SIGNATURES]
    packed.type_url = _SIGNATURES_URL
    packed.value = serving.SignatureDefMap(signature_def=signature_messages(session)).SerializeToString()
    return response
