"""`server_findings`: whether a server with some settings could start here, and what would limit it."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from aexec import errors
from aexec.hosting import is_loopback, total_memory
from aexec_server import aiohttp_seam
from aexec_server.clients.token_source import TokenSource
from aexec_server.connections.acceptor import tcp_sockets
from aexec_server.connections.tls import ServerTls
from aexec_server.rpc.opening import check_extra
from aexec_server.settings.exposure import check_exposure
from aexec_server.settings.file_limit import most_connections, raise_file_limit
from aexec_server.settings.model_source import check_file
from aexec_server.settings.server_config import ServerConfig

__all__ = ["server_findings"]

# What was looked at, `ok`, `warning` or `error`, and what was found.
_Finding = tuple[str, str, str]


def server_findings(config: ServerConfig) -> Iterator[_Finding]:
    """Yield what was found for a server with these settings, which is not started.

    Raises the limit on open files, as the server does.
    """
    yield _checked("address", lambda: _safe(config))
    yield _port("port", config, config.port)
    if config.grpc_port is not None:
        yield _checked("grpc", check_extra, "is installed")
        yield _port("grpc_port", config, config.grpc_port)
    if config.has_tokens:
        yield _checked("tokens", lambda: _tokens(config))
    if config.tls_cert is not None:
        yield _checked("tls", lambda: ServerTls(config), f"{config.tls_cert}")
    for name, model in config.models.items():
        yield _checked(f"model {name}", partial(check_file, model), f"{model.source}")
    for name, source in config.graphs.items():
        if isinstance(source, str | Path):
            yield _exists(f"graph {name}", Path(source))
    if config.model_repository is not None:
        yield _exists("model_repository", Path(config.model_repository))
    if config.state_path is not None:
        yield _writable("state_path", Path(config.state_path))
    if config.otel:
        yield _checked("otel", lambda: importlib.import_module("opentelemetry.trace"), "is installed")
    yield _files(config)
    yield _memory(config)
    yield _loop()


def _checked(what: str, check: Callable[[], object], found: str | None = None) -> _Finding:
    """What a check returns, or `found` in its place, or its error."""
    try:
        returned = check()
        return what, "ok", str(returned) if found is None else found
    except errors.OpError as error:
        return what, "error", error.message
    except ImportError as error:
        return what, "error", f"{error.name} is not installed"


def _safe(config: ServerConfig) -> str:
    check_exposure(config)
    exposed = not is_loopback(config.host)
    aiohttp_seam.check_parts(exposed=exposed)
    return f"{config.host}, {'which other machines reach' if exposed else 'for this machine alone'}"


def _port(what: str, config: ServerConfig, port: int) -> _Finding:
    async def listen() -> None:
        for one in await tcp_sockets(config.host, port, reuse_port=config.reuse_port):
            one.close()

    try:
        asyncio.run(listen())
    except OSError as error:
        return what, "error", f"{config.host}:{port} cannot be listened on: {error.strerror or error}"
    return what, "ok", f"{config.host}:{port} is free"


def _tokens(config: ServerConfig) -> str:
    source = TokenSource(config)
    jwt = f", and JWTs of {config.jwt_issuer}" if config.jwt_keys is not None else ""
    return f"tokens of {len(source.table)} names{jwt}"


def _exists(what: str, path: Path) -> _Finding:
    return (what, "ok", str(path)) if path.exists() else (what, "error", f"{path} does not exist")


def _writable(what: str, path: Path) -> _Finding:
    folder = path if path.is_dir() else path.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return what, "ok", str(path)
    except OSError as error:
        return what, "error", f"{folder} cannot be written: {error.strerror}"


def _files(config: ServerConfig) -> _Finding:
    raise_file_limit()
    files_each = 2 if config.has_hosts else 1
    allowed = most_connections(config, files_each)
    if allowed < config.max_connections:
        return "open files", "warning", f"they allow {allowed} connections, of max_connections {config.max_connections}"
    return "open files", "ok", f"enough for max_connections, {config.max_connections}"


def _memory(config: ServerConfig) -> _Finding:
    total, limit = total_memory(), config.max_memory_bytes
    shown = f"{total / 2**30:.1f} GiB"
    if limit is not None and limit > total:
        return "memory", "warning", f"{shown}, less than max_memory_mb, {limit / 2**20:g}"
    return "memory", "ok", shown


def _loop() -> _Finding:
    try:
        importlib.import_module("uvloop")
    except ImportError:
        return "event loop", "warning", "uvloop is not installed: requests take longer"
    return "event loop", "ok", "uvloop"
