"""`tensorflow.serving.ModelService`: which versions of a model there are, and which models are to be served."""

from __future__ import annotations

from google.protobuf import json_format

from aexec import errors
from aexec.proto import serving
from aexec_server.clients.callers import Scope
from aexec_server.core.server_state import Server
from aexec_server.protocols.serving_models import ServedModel, describe_versions, known_versions, serve_models
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.prediction_service import version_choice

__all__ = ["model_methods"]

_SERVICE = "/tensorflow.serving.ModelService"


def model_methods(server: Server) -> list[Method]:
    """The rows of the service."""
    calls = _ModelService(server)
    changes = Scope.MANAGE if server.config.allow_model_changes else Scope.ADMIN
    return [
        Method(
            f"{_SERVICE}/GetModelStatus",
            serving.GetModelStatusRequest,
            serving.GetModelStatusResponse,
            calls.status,
            Scope.RUN,
        ),
        Method(
            f"{_SERVICE}/HandleReloadConfigRequest",
            serving.ReloadConfigRequest,
            serving.ReloadConfigResponse,
            calls.reload,
            changes,
        ),
    ]


class _ModelService:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def status(self, call: Call, request: serving.GetModelStatusRequest) -> serving.GetModelStatusResponse:
        spec = request.model_spec
        if not spec.name:
            raise errors.InvalidArgumentError("Missing ModelSpec")
        described = describe_versions(known_versions(self._server.models, spec.name, *version_choice(spec)))
        return json_format.ParseDict(described, serving.GetModelStatusResponse())

    async def reload(self, call: Call, request: serving.ReloadConfigRequest) -> serving.ReloadConfigResponse:
        """Serve the models of a list, and no others."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise errors.InvalidArgumentError("Expected a model_config_list; custom configurations are not supported")
        wanted = [_served_model(config) for config in request.config.model_config_list.config]
        await serve_models(self._server, call.caller, wanted)
        return serving.ReloadConfigResponse(status=serving.StatusProto())


def _served_model(config: serving.ModelConfig) -> ServedModel:
    """Raises UnimplementedError for what would be ignored, though the model's requests depend on it."""
    if config.HasField("logging_config"):
        raise errors.UnimplementedError(
            f"Model '{config.name[:80]}': requests are not logged here: leave logging_config out"
        )
    if config.model_platform not in ("", "tensorflow"):
        raise errors.InvalidArgumentError(
            f"Model '{config.name[:80]}' has platform '{config.model_platform[:80]}', but expected 'tensorflow'"
        )
    return ServedModel(
        config.name, config.base_path, _versions(config.model_version_policy), dict(config.version_labels)
    )


def _versions(
    policy: serving.FileSystemStoragePathSourceConfig.ServableVersionPolicy,
) -> int | tuple[int, ...] | None:
    """The version policy, as in `ModelSource`: by default the newest version only."""
    match policy.WhichOneof("policy_choice"):
        case "all":
            return None
        case "specific":
            return tuple(policy.specific.versions)
        case _:
            return max(1, policy.latest.num_versions)
