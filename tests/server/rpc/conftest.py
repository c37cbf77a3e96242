"""A server that answers gRPC in process, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import grpc
import pytest
from aexec_server import SERVER, ServerConfig, make_app
from aexec_server.core.server_state import Server
from aexec_server.rpc.opening import rpc_server_of
from aiohttp import web
from google.protobuf.message import Message

from tests.server.conftest import ops_of_tests

M = TypeVar("M", bound=Message)


class RpcClient:
    """Calls methods by their full names.

    Attributes:
        server: whose methods they are.
        address: `127.0.0.1:4711`
    """

    def __init__(self, server: Server, channel: Any, address: str) -> None:
        self.server = server
        self.channel = channel
        self.address = address

    def call(self, path: str, request: Message, response: type[M], **options: Any) -> Any:
        """One request, one response."""
        method = self.channel.unary_unary(path, type(request).SerializeToString, response.FromString)
        return method(request, **options)

    def stream(self, path: str, request: Message, response: type[M], **options: Any) -> Any:
        """One request, any number of responses."""
        method = self.channel.unary_stream(path, type(request).SerializeToString, response.FromString)
        return method(request, **options)

    async def refused(self, path: str, request: Message, response: type[Message], **options: Any) -> tuple[str, str]:
        """The code and the words of the status with which a call fails."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(path, request, response, **options)
        return caught.value.code().name, caught.value.details()


@asynccontextmanager
async def serving_rpcs(config: ServerConfig) -> AsyncIterator[RpcClient]:
    """Context manager: a server with these settings that listens for gRPC alone."""
    # grpcio's thread lives as long as the process: no test waits for its end when the last call is collected.
    grpc.aio.init_grpc_aio()
    app = make_app(config)
    runner = web.AppRunner(app)
    await runner.setup()
    rpc = rpc_server_of(app)
    assert rpc is not None
    try:
        await rpc.start()
        address = rpc.address.partition("://")[2]
        async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            yield RpcClient(app[SERVER], channel, address)
    finally:
        app[SERVER].sessions.cancel_all("shutdown")
        await rpc.close()
        await runner.cleanup()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[RpcClient]]]:
    """Starts servers, which end with the test."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> RpcClient:
            settings.setdefault("allow_ops", ops_of_tests())
            return await stack.enter_async_context(serving_rpcs(ServerConfig(grpc_port=0, **settings)))

        yield start


@pytest.fixture
async def rpc(serve: Callable[..., Awaitable[RpcClient]]) -> RpcClient:
    """A client of a server with default settings."""
    return await serve()
