"""Descriptions of models as TensorFlow Serving gives them, over HTTP and gRPC, with its error codes and words.

`tensorflow_serving.py` sends them as JSON, `rpc/prediction_service.py` and `rpc/model_service.py` as messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aexec
from aexec import errors, proto
from aexec.hosting import Signature
from aexec_server.clients.callers import Caller
from aexec_server.core.server_state import Server
from aexec_server.models.models import ModelRegistry, ModelVersion
from aexec_server.settings.model_source import ModelSource

__all__ = [
    "DEFAULT_SIGNATURE",
    "ServedModel",
    "describe_versions",
    "known_versions",
    "serve_models",
    "served_version",
    "signature_messages",
]

DEFAULT_SIGNATURE = "serving_default"


def _find_version(
    models: ModelRegistry, name: str, digits: str | None = None, label: str | None = None
) -> ModelVersion:
    """Return the version that a request names by number or label, by default the newest available one.

    Raises:
        NotFoundError: there is no such model, or no such version.
        InvalidArgumentError: the model has no such label.
    """
    model = models.get(name)
    if model is None:
        raise _no_servable(name, digits)
    try:
        if label is None:
            return model.version_named(digits)
        if label not in model.source.labels:
            raise errors.InvalidArgumentError(f"Unrecognized servable version label: {label[:80]}")
        return model.labelled(label)
    except errors.NotFoundError as error:
        raise _no_servable(name, digits, error.message) from None


def served_version(
    models: ModelRegistry, name: str, digits: str | None = None, label: str | None = None
) -> ModelVersion:
    """Like `_find_version`, but the version must take requests.

    Raises:
        UnavailableError: it is being loaded or unloaded.
    """
    version = _find_version(models, name, digits, label)
    try:
        version.hosted  # noqa: B018  # raises
    except errors.NotFoundError as error:
        raise _no_servable(name, digits, error.message) from None
    return version


def known_versions(
    models: ModelRegistry, name: str, digits: str | None = None, label: str | None = None
) -> list[ModelVersion]:
    """Return all versions of a model, the newest first, or only the named one.  Raises as `served_version`."""
    if digits is not None or label is not None:
        return [_find_version(models, name, digits, label)]
    model = models.get(name)
    if model is None or not model.versions:
        raise errors.NotFoundError(f"Could not find any versions of model {name[:80]}")
    return sorted(model.versions.values(), key=lambda version: -version.number)


def _no_servable(name: str, digits: str | None, why: str = "") -> errors.NotFoundError:
    """Return the error for a missing model in TensorFlow Serving's words, which clients match; `why` adds a reason."""
    asked = f"Latest({name[:80]})" if digits is None else f"Specific({name[:80]}, {digits[:20]})"
    return errors.NotFoundError(f"Servable not found for request: {asked}{why and f': {why}'}")


def describe_versions(versions: list[ModelVersion]) -> dict[str, Any]:
    """Describe versions and their states under the names of GetModelStatusResponse."""
    return {
        "model_version_status": [
            {
                "version": str(version.number),
                "state": version.state.value,
                "status": {
                    "error_code": "OK" if version.error is None else version.error.code.name,
                    "error_message": version.reason,
                },
            }
            for version in versions
        ]
    }


def signature_messages(session: aexec.Session) -> dict[str, proto.SignatureDef]:
    """Return the signatures of a model by name; for a graph without any, one of all its inputs and outputs."""
    signatures: Mapping[str, Signature] = session.signatures or {DEFAULT_SIGNATURE: session.signature()}
    return {name: signature.to_proto() for name, signature in signatures.items()}


# The configuration of served models


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a client wants to be served.

    Attributes:
        name: its name.
        folder: its folder; "" for that in the server's settings.
        versions, labels: as of a `ModelSource`.
    """

    name: str
    folder: str
    versions: int | tuple[int, ...] | None
    labels: Mapping[str, int]


async def serve_models(server: Server, caller: Caller, wanted: Sequence[ServedModel]) -> None:
    """Serve these models and unload the others. Only models of the server's settings and repository can be served.

    Raises:
        PermissionDeniedError: the caller may not change models.
        InvalidArgumentError: a name is repeated, or a folder is not the model's.
        NotFoundError: the server has no such model.
        OpError: a version could not be loaded; the models before it in the list are served as asked.
    """
    server.check_accepting()
    if not server.may_change_models(caller):
        raise errors.PermissionDeniedError("The models are the server's own: clients may run them, but not change them")
    names = {one.name for one in wanted}
    if len(names) < len(wanted):
        raise errors.InvalidArgumentError("Illegal to list model names more than once in a ModelServerConfig")
    sources = await server.repository.sources()
    changed = [(one.name, _source(sources, one)) for one in wanted]
    for name, source in changed:
        await server.models.load_shielded(name, source, again=False)
    for model in server.models:
        if model.name not in names:
            await server.models.unload(model.name)


def _source(sources: Mapping[str, ModelSource], wanted: ServedModel) -> ModelSource:
    known = sources.get(wanted.name)
    if known is None:
        raise errors.NotFoundError(f"Model '{wanted.name[:80]}' is not in the model repository")
    if wanted.folder and (not isinstance(known.source, str | Path) or Path(wanted.folder) != Path(known.source)):
        raise errors.InvalidArgumentError(
            f"Model '{wanted.name[:80]}' is served from where the server's settings have it: leave base_path out"
        )
    return replace(known, versions=wanted.versions, labels=wanted.labels)
