"""Models that clients send in a request to load them: checks them, and writes them to a folder of the server's own.

The files come as `file:<version>/<path>` in base64, as in Triton's repository extension.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from aexec import errors
from aexec.hosting import OnCancel, run_in_thread
from aexec_server.http import bodies
from aexec_server.models.own_folders import OwnFolder
from aexec_server.settings.model_source import ModelSource

__all__ = ["LoadRequest", "ModelUploads", "load_request", "read_load_request"]

_FIELDS = frozenset({"parameters"})
_CONFIG_FIELDS = frozenset({"name", "platform", "backend", "version_policy"})
_PATH = re.compile(r"[0-9]{1,18}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){1,8}")
_MAX_FILES = 1000
_FILE = "file:"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A client's request to load a model.

    Attributes:
        files: path within the model's folder → contents; empty to load from the repository.
        policy: a 1-tuple with `ModelSource.versions`; empty if the request does not say.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    policy: tuple[Any, ...] = ()

    def applied_to(self, source: ModelSource) -> ModelSource:
        """Return the source with the request's version policy."""
        return replace(source, versions=self.policy[0]) if self.policy else source


def read_load_request(body: bytes) -> LoadRequest:
    """Decode a request to load a model.

    Raises:
        InvalidArgumentError: the request is not valid.
        UnimplementedError: it has a setting that would be ignored.
    """
    fields = bodies.json_object(body) if body.strip() else {}
    bodies.check_fields(fields, _FIELDS, "the request")
    parameters = fields.get("parameters") or {}
    if type(parameters) is not dict:
        raise bodies.expected('"parameters" must be an object', parameters)
    for name, value in parameters.items():
        if type(value) is not str:
            raise bodies.expected(f"{name[:80]!r} must be a string", value)
        if name.startswith(_FILE):
            parameters[name] = bodies.decode_base64(value, f"{name[:80]!r}")
    return load_request(parameters)


def load_request(parameters: Mapping[str, Any]) -> LoadRequest:
    """The request that has these parameters: texts, and bytes of files.  Raises as `read_load_request`."""
    files: dict[str, bytes] = {}
    policy: tuple[Any, ...] = ()
    for name, value in parameters.items():
        if name == "config" and type(value) is str:
            policy = _read_config(value)
        elif name.startswith(_FILE) and type(value) is bytes:
            files[_file_path(name)] = value
        else:
            raise errors.InvalidArgumentError(f"Unknown parameter {name[:80]!r}; expected config, or file:VERSION/NAME")
    if len(files) > _MAX_FILES:
        raise errors.InvalidArgumentError(f"A model may have at most {_MAX_FILES} files, got {len(files)}")
    return LoadRequest(files, policy)


def _file_path(name: str) -> str:
    path = name.removeprefix(_FILE)
    if not _PATH.fullmatch(path):
        raise errors.InvalidArgumentError(f"{name[:80]!r} must be file:VERSION/NAME, with a number and plain names")
    return path


def _read_config(text: str) -> tuple[Any, ...]:
    """Return the version policy of a model configuration as `LoadRequest.policy`."""
    config = bodies.json_object(text.encode(errors="replace"))
    unknown = sorted(config.keys() - _CONFIG_FIELDS)
    if unknown:
        raise errors.UnimplementedError(
            f'"{unknown[0][:80]}" of a model configuration is not supported, but {", ".join(sorted(_CONFIG_FIELDS))}'
        )
    given = config.get("version_policy")
    if given is None:
        return ()
    match given:
        case {"all": _}:
            return (None,)
        case {"latest": {"num_versions": int(count)}} if count > 0:
            return (count,)
        case {"latest": dict(latest)} if not latest:
            return (1,)
        case {"specific": {"versions": [*versions]}} if versions and all(type(v) is int for v in versions):
            return (tuple(versions),)
    raise errors.InvalidArgumentError('"version_policy" must be one of all, latest and specific')


class ModelUploads:
    """Keeps the models that clients send in a temporary folder of the server's own.

    A model's files are deleted when no version needs them any more, and the folder in `close`.
    """

    def __init__(self) -> None:
        self._folder: OwnFolder | None = None
        self._numbers = itertools.count(1)

    async def store(self, files: Mapping[str, bytes]) -> ModelSource:
        """Write the files of a model, and return them as a source that is not trusted."""
        if self._folder is None:
            self._folder = await run_in_thread(OwnFolder, on_cancel=OnCancel.WAIT)
        folder = self._folder.path / str(next(self._numbers))
        await run_in_thread(_write, folder, files, on_cancel=OnCancel.WAIT)
        return ModelSource(folder, versions=None, trusted=False, temporary=True)

    async def close(self) -> None:
        """Delete the folder."""
        if self._folder is not None:
            await run_in_thread(self._folder.close, on_cancel=OnCancel.WAIT)
            self._folder = None


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        file = folder / PurePosixPath(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
