"""`rpc_server_of`: the gRPC side of an application, if its settings ask for one.

Only this module imports the extra `aexec[grpc]`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aiohttp import web

from aexec import errors
from aexec_server.core.server_state import SERVER
from aexec_server.handlers.runs import RUN_HANDLERS

if TYPE_CHECKING:
    from aexec_server.rpc.rpc_server import RpcServer

__all__ = ["check_extra", "rpc_server_of"]


def rpc_server_of(app: web.Application, path: str | None = None) -> RpcServer | None:
    """Return the gRPC server of an application of `make_app`, not listening yet; None if the settings ask for none.

    Args:
        path: the Unix socket of a session host, for HTTP.

    Raises:
        FailedPreconditionError: a package of the extra is not installed.
    """
    server = app[SERVER]
    if server.config.grpc_port is None:
        return None
    check_extra()
    from aexec_server.rpc.rpc_server import RpcServer, rpc_path
    from aexec_server.rpc.services import all_methods

    methods = all_methods(server, app[RUN_HANDLERS])
    return RpcServer(server, methods, None if path is None else rpc_path(path))


def check_extra() -> None:
    """Raise FailedPreconditionError if a package of the extra is not installed."""
    for name in ("grpc", "grpc_health", "grpc_reflection"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise errors.FailedPreconditionError(
                f"grpc_port needs the package {name}, which is not installed: pip install 'aexec[grpc]'"
            ) from None
