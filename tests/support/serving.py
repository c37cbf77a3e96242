"""`serving_both`: a server in process that answers HTTP and gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from aexec_server import SERVER, ServerConfig, make_app
from aexec_server.core.server_state import Server
from aexec_server.rpc.opening import rpc_server_of
from aiohttp.test_utils import TestServer

__all__ = ["serving_both"]


@asynccontextmanager
async def serving_both(config: ServerConfig) -> AsyncIterator[tuple[Server, str, str]]:
    """Context manager: a server with these settings, which have a `grpc_port`, and its addresses for HTTP and gRPC."""
    # grpcio's thread lives as long as the process: no test waits for its end when the last call is collected.
    grpc.aio.init_grpc_aio()
    app = make_app(config)
    listening = TestServer(app)
    await listening.start_server()
    rpc = rpc_server_of(app)
    assert rpc is not None
    try:
        await rpc.start()
        yield app[SERVER], str(listening.make_url("")), rpc.address
    finally:
        app[SERVER].sessions.cancel_all("shutdown")
        await rpc.close()
        await listening.close()
