"""`rpc_server_of`: the gRPC side of an application, if its settings ask for one.

It is where the extra `aexec[grpc]` is imported, and what is imported nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from aexec import errors
from aexec_server.core.server_state import SERVER
from aexec_server.handlers.runs import RUN_HANDLERS

if TYPE_CHECKING:
    from aexec_server.rpc.rpc_server import RpcServer

__all__ = ["rpc_server_of"]


def rpc_server_of(app: web.Application) -> RpcServer | None:
    """The gRPC server of an application of `make_app`, which does not listen yet; None if it is not asked for.

    Raises:
        FailedPreconditionError: a package of the extra is not installed.
    """
    server = app[SERVER]
    if server.config.grpc_port is None:
        return None
    try:
        from aexec_server.rpc.rpc_server import RpcServer
        from aexec_server.rpc.services import all_methods
    except ImportError as error:
        raise errors.FailedPreconditionError(
            f"grpc_port needs the package {error.name}, which is not installed: pip install 'aexec[grpc]'"
        ) from None
    return RpcServer(server, all_methods(server, app[RUN_HANDLERS]))
