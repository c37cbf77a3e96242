"""`RpcServer`: the listening side of gRPC, by grpcio's server for asyncio, with limits on what clients may do.

Besides the modules of health and reflection, only this one imports `grpc`.  Next to read: `door.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from aexec.errors import Code
from aexec.hosting import OnCancel, run_in_thread
from aexec_server.core.server_state import Server
from aexec_server.rpc.channel_options import server_options
from aexec_server.rpc.door import Door
from aexec_server.rpc.method import Method
from aexec_server.rpc.rpc_tls import server_credentials

__all__ = ["RpcServer", "rpc_path"]

_CODES = {code.value[0]: code for code in grpc.StatusCode}
# Seconds from the end of all runs until calls that have not ended are cut off.
_GRACE_SECONDS = 2.0


class RpcServer:
    """Answers gRPC calls on one address.

    Args:
        server: the server.
        methods: the table of calls.
        path: the Unix socket to listen on, to which a front passes calls; None for the configured address.

    Attributes:
        address: the address that it listens on, `grpc://127.0.0.1:8501`; "" until `start`.
    """

    def __init__(self, server: Server, methods: Iterable[Method], path: str | None = None) -> None:
        config = server.config
        self._config = config
        self._door = Door(server, _grpc_code, behind_front=path is not None)
        self._path = path
        self._grpc = grpc.aio.server(options=server_options(config), maximum_concurrent_rpcs=config.max_connections)
        self._grpc.add_generic_rpc_handlers([_Handlers({one.path: self._handler(one) for one in methods})])
        self.address = ""

    def _handler(self, method: Method) -> Any:
        sides = "stream" if method.request_streams else "unary", "stream" if method.response_streams else "unary"
        make = getattr(grpc, f"{sides[0]}_{sides[1]}_rpc_method_handler")
        return make(self._door.behavior(method))

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the server cannot listen on the address.
            InvalidArgumentError: a TLS file does not exist or is not valid.
        """
        if self._path is not None:
            self._grpc.add_insecure_port(f"unix:{self._path}")
            await self._grpc.start()
            return
        host = self._config.host
        name = f"[{host}]" if ":" in host else host
        where = f"{name}:{self._config.grpc_port}"
        tls = None
        if self._config.tls_cert is not None:
            tls = await run_in_thread(lambda: server_credentials(self._config), on_cancel=OnCancel.ABANDON)
        try:
            port = self._grpc.add_insecure_port(where) if tls is None else self._grpc.add_secure_port(where, tls)
        except RuntimeError:
            raise OSError(f"gRPC cannot listen on {where}: is another server there?") from None
        await self._grpc.start()
        self.address = f"grpc{'' if tls is None else 's'}://{name}:{port}"

    async def close(self) -> None:
        """Stop listening, and wait until all calls have ended; cut off those that take longer than `_GRACE_SECONDS`.

        The door refuses new calls before that, once the server drains.
        """
        await self._grpc.stop(_GRACE_SECONDS)
        self._door.close()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The handlers of all services by path: grpcio would ask one object for each service in turn."""

    def __init__(self, by_path: Mapping[str, Any]) -> None:
        self._by_path = by_path

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._by_path.get(handler_call_details.method)


def rpc_path(path: str) -> str:
    """Return the Unix socket for gRPC of a host whose socket for HTTP is `path`."""
    return f"{path}.grpc"


def _grpc_code(code: Code) -> grpc.StatusCode:
    return _CODES[int(code)]
