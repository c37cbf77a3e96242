"""Descriptions of models and changes of them in the Open Inference Protocol v2, for HTTP and gRPC.

Descriptions are plain values under the names of the protocol's fields: `inference_protocol.py` sends them as JSON,
`rpc/inference_service.py` as messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import aexec
from aexec import errors
from aexec.hosting import TensorInfo, datatype_of, has_datatype
from aexec_server.clients.callers import Caller
from aexec_server.core.server_state import Server
from aexec_server.http import bodies
from aexec_server.models.model_upload import LoadRequest
from aexec_server.models.models import Model, ModelRegistry, ModelVersion, VersionState

__all__ = [
    "check_changeable",
    "check_unload_parameters",
    "describe_config",
    "describe_model",
    "describe_server",
    "describe_statistics",
    "find_model",
    "find_version",
    "index_models",
    "is_ready",
    "load_model",
    "unload_model",
    "versions_with_statistics",
]

_EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "parameters",
    "model_configuration",
    "model_repository",
    "statistics",
    "trace",
    "logging",
]
_PLATFORM = "tensorflow_graphdef"
_UNLOAD_PARAMETERS = frozenset({"unload_dependents"})
_STATES = {
    VersionState.START: "LOADING",
    VersionState.LOADING: "LOADING",
    VersionState.AVAILABLE: "READY",
    VersionState.UNLOADING: "UNLOADING",
    VersionState.END: "UNAVAILABLE",
}


def find_model(models: ModelRegistry, name: str) -> Model:
    """Return a model.  Raises NotFoundError."""
    try:
        return models.find(name)
    except errors.NotFoundError as error:
        raise _unknown(error) from None


def find_version(models: ModelRegistry, name: str, digits: str | None) -> ModelVersion:
    """Return the version of a model that a request names; None or "" means the default one.

    Raises:
        InvalidArgumentError: the version is no number.
        NotFoundError: there is no such model, or no such version.
    """
    if digits and not (digits.isascii() and digits.isdecimal()):
        raise errors.InvalidArgumentError(
            f"failed to get model version from specified version string '{digits[:80]}': "
            "version should be an integral value > 0"
        )
    model = find_model(models, name)
    try:
        return model.version_named(digits or None)
    except errors.NotFoundError as error:
        raise _unknown(error) from None


def _unknown(error: errors.NotFoundError) -> errors.NotFoundError:
    return errors.NotFoundError(f"Request for unknown model: {error.message.removeprefix('Model ')}")


def describe_server() -> dict[str, Any]:
    """Describe the server: name, version and extensions."""
    return {"name": "aexec", "version": aexec.__version__, "extensions": _EXTENSIONS}


def describe_model(models: ModelRegistry, version: ModelVersion) -> dict[str, Any]:
    """Describe a model's inputs and outputs; the lists of tensors are iterators."""
    signature = version.hosted.session.signature()
    return {
        "name": version.model,
        "versions": [str(v.number) for v in models.find(version.model).available],
        "platform": _PLATFORM,
        "inputs": _tensors(signature.inputs),
        "outputs": _tensors(signature.outputs),
    }


def describe_config(version: ModelVersion) -> dict[str, Any]:
    """Describe the model as Triton's configuration does.  The batch dimension is part of the shapes."""
    signature = version.hosted.session.signature()
    return {
        "name": version.model,
        "platform": _PLATFORM,
        "max_batch_size": 0,
        "input": _config_tensors(signature.inputs),
        "output": _config_tensors(signature.outputs),
    }


def _config_tensors(infos: Mapping[str, TensorInfo]) -> Iterator[dict[str, Any]]:
    for described, info in zip(_tensors(infos), infos.values(), strict=True):
        known = info.dtype is not None and has_datatype(info.dtype)
        kind = described["datatype"].replace("BYTES", "STRING") if known else "INVALID"
        yield {"name": described["name"], "data_type": f"TYPE_{kind}", "dims": described["shape"]}


def _tensors(infos: Mapping[str, TensorInfo]) -> Iterator[dict[str, Any]]:
    """Describe tensors as the protocol does: -1 for an unknown size, and for all sizes of an unknown rank."""
    return (
        {
            "name": name,
            "datatype": "" if info.dtype is None else datatype_of(info.dtype),
            "shape": [-1] if info.shape.dims is None else [-1 if d is None else d for d in info.shape.dims],
        }
        for name, info in infos.items()
    )


def is_ready(server: Server, version: ModelVersion) -> bool:
    """True if the version can be run now."""
    return version.state is VersionState.AVAILABLE and not server.draining


def versions_with_statistics(models: ModelRegistry, name: str | None, digits: str | None) -> list[ModelVersion]:
    """Return one version, all versions of a model, or those of all models.  Raises as `find_version`."""
    if not name:
        return [version for model in models for version in model.versions.values()]
    if digits:
        return [find_version(models, name, digits)]
    return list(find_model(models, name).versions.values())


def describe_statistics(versions: Iterable[ModelVersion]) -> dict[str, Any]:
    """Describe the counts and durations of versions, except ended ones."""
    served = (v for v in versions if v.state is not VersionState.END)
    return {"model_stats": [{"name": v.model, "version": str(v.number)} | v.statistics.describe() for v in served]}


# The repository


async def index_models(server: Server, *, only_ready: bool) -> list[dict[str, str]]:
    """List all models, including those that are not loaded."""
    entries = [_index_entry(v) for model in server.models for v in model.versions.values()]
    known = {model.name for model in server.models}
    others = (await server.repository.sources()).keys() - known
    entries += [{"name": name, "state": "UNAVAILABLE", "reason": "not loaded"} for name in sorted(others)]
    return [e for e in entries if e["state"] == "READY" or not only_ready]


def _index_entry(version: ModelVersion) -> dict[str, str]:
    reason = "" if version.state is VersionState.AVAILABLE else version.state.value.lower()
    if version.state is VersionState.END:
        reason = version.reason or "unloaded"
    return {"name": version.model, "version": str(version.number), "state": _STATES[version.state], "reason": reason}


def check_changeable(server: Server, caller: Caller, name: str) -> None:
    """Raise PermissionDeniedError if the caller may not load or unload models."""
    server.check_accepting()
    if not server.may_change_models(caller):
        raise errors.PermissionDeniedError(
            f"Model '{name[:80]}' is the server's own: clients may run it, but not load or unload it"
        )


async def load_model(server: Server, name: str, asked: LoadRequest) -> None:
    """Load the files in a request, or the model in the repository.

    Raises:
        NotFoundError: the repository has no such model.
        OpError: it could not be loaded.
    """
    if asked.files:
        source = await server.uploads.store(asked.files)
    else:
        sources = await server.repository.sources()
        known = server.models.get(name)
        gone = known is None or (known.source.temporary and not known.ready)
        if gone and name not in sources:
            sent = "" if known is None else ": it was sent, and its files went when it was unloaded"
            raise errors.NotFoundError(f"Model '{name[:80]}' is not in the model repository{sent}")
        source = sources[name] if known is None or gone else known.source
    # Shielded: once begun, loading goes on even if the client leaves.
    await server.models.load_shielded(name, asked.applied_to(source))


def check_unload_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError for unknown parameters.  `unload_dependents` has no effect: no model has
    dependents.
    """
    bodies.check_fields(dict(parameters), _UNLOAD_PARAMETERS, "the parameters")


async def unload_model(server: Server, name: str) -> None:
    """Stop serving a model.  Raises NotFoundError."""
    find_model(server.models, name)
    await server.models.unload(name)
