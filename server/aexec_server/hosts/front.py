"""The front: the process that clients connect to when sessions are in hosts.  It relays requests, and watches the
hosts.

It never reads a body, so that nothing in one can stop it.  An application in this process, behind the same relay,
answers requests that are not for sessions, such as health checks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from aexec_server.app import make_app
from aexec_server.clients.caller_header import CALLER_HEADER, authorization_of, new_key, with_caller
from aexec_server.clients.callers import CALLER, Caller, Refusal, Scope, anyone_at
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable
from aexec_server.connections.listening import listening_to_clients, serving_on_socket, told_to_stop
from aexec_server.connections.service_manager import ServiceManager
from aexec_server.core.access import AccessControl
from aexec_server.core.routes import AnsweredBy, served_routes
from aexec_server.core.server_state import SERVER
from aexec_server.handlers.runs import RUN_HANDLERS
from aexec_server.handles import is_made, new_server_run
from aexec_server.hosts.hosts import Hosts
from aexec_server.hosts.relay import Relay, Upstream
from aexec_server.hosts.relayed_routes import RelayedRoutes
from aexec_server.hosts.session_host import SessionHost
from aexec_server.http.framing import RequestHead, headers_of
from aexec_server.models.own_folders import OwnFolder
from aexec_server.rpc.opening import check_extra
from aexec_server.settings.file_limit import FILES_OF_A_HOST, most_connections
from aexec_server.settings.server_config import ServerConfig
from aexec_server.settings.trusted_proxies import FORWARDED_FOR

if TYPE_CHECKING:
    from aexec_server.rpc.rpc_server import RpcServer

__all__ = ["run_front"]

_POLL_SECONDS = 0.01
_SHUTDOWN_SECONDS = 1.0
_FORWARDED_FOR = FORWARDED_FOR.lower().encode()


class _Router:
    """Chooses the upstream of each request.

    Args:
        routes: the routes, which say where each call is answered.
        named_here: returns whether a session with a name is in this process.
    """

    def __init__(
        self,
        config: ServerConfig,
        routes: RelayedRoutes,
        hosts: Hosts,
        here: Upstream,
        named_here: Callable[[str], bool],
    ) -> None:
        self._find = routes.find
        self._hosts = hosts
        self._here = here
        self._named_here = named_here
        self._models = frozenset() if config.models_in_front else frozenset([*config.graphs, *config.models])

    def __call__(self, request: RequestHead, caller: Caller) -> Upstream:
        """The upstream for a caller's request.  Raises OpError if it is refused here."""
        process, name = self._find(request.method, request.target)
        if process is AnsweredBy.NEW_SESSION:
            return self._of_new(request, caller)
        handle = unquote(name) if process is AnsweredBy.SESSION else None
        stored = None if handle is None else self._hosts.of_stored(handle, caller)
        if process is AnsweredBy.OPERATION:
            return self._hosts.of_operation(name, caller, self._here)
        upstream = stored or self._of_known(process, name)
        if handle is not None and upstream is self._here and not self._named_here(handle):
            return self._hosts.of_stored_later(handle, caller, self._here)
        if caller.name and isinstance(upstream, SessionHost) and not caller.sees(upstream.client):
            return self._here  # which answers for another client's session as for none
        return upstream

    def _of_known(self, process: AnsweredBy, name: str) -> Upstream:
        if process is AnsweredBy.SESSION:
            return self._of_made(name) if is_made(name) else self._of_named(unquote(name))
        if process is AnsweredBy.MODELS:
            return self._hosts.models or self._here
        return self._here

    def _of_made(self, handle: str) -> Upstream:
        host = self._hosts.of(handle)
        if host is not None:
            return host
        # This process knows why a session went with its host.
        return self._here if self._hosts.why_gone(handle) else self._hosts.models or self._here

    def _of_named(self, name: str) -> Upstream:
        return self.of_model(name) or self._hosts.of_name(name) or self._here

    def of_model(self, name: str) -> Upstream | None:
        """The upstream that has the server's own session with this name, or None."""
        models = self._hosts.models
        if models is not None and ("@" in name or name in self._models or name in models.models):
            return models
        return self._here if self._named_here(name) else None

    def _of_new(self, request: RequestHead, caller: Caller) -> Upstream:
        """The upstream for a new session: the host that has its name, or that answered its key before, or a new one."""
        if not caller.may(Scope.MANAGE):
            return self._here  # which refuses it
        query = dict(reversed(parse_qsl(request.target.partition(b"?")[2].decode("ascii"))))
        name = query.get("name")
        of_model = None if name is None else self.of_model(name)
        key = request.header(b"idempotency-key")
        return of_model or self._hosts.for_new(caller, name, key)


class _Gate:
    """Adds the caller to each request, by its token or else its address, for the process that answers.

    Args:
        access: the tokens, if the server wants them, and the proxies that it trusts.
    """

    def __init__(
        self, config: ServerConfig, access: AccessControl, router: _Router, hosts: Hosts, here: Upstream
    ) -> None:
        assert config.caller_key is not None
        self._key = config.caller_key
        self._source = access.source
        self._proxies = access.proxies
        self._route = router
        self._hosts = hosts
        self._here = here

    def __call__(self, head: bytes, request: RequestHead, host: str) -> tuple[bytes, Upstream]:
        who = self._anyone(head, host) if self._source is None else self._source.identify(authorization_of(head))
        if isinstance(who, Refusal):
            return with_caller(head, self._key, who), self._here  # which refuses it, unless no token is needed
        upstream = self._route(request, who)
        return with_caller(head, self._key, self._hosts.part_of(who, upstream)), upstream

    def _anyone(self, head: bytes, host: str) -> Caller:
        """The caller of a request without a token, which came from `host`."""
        if self._proxies.trusts(host):
            forwarded = headers_of(head, _FORWARDED_FOR)
            host = self._proxies.client_host(host, [value.decode("latin-1") for value in forwarded])
        return anyone_at(host)


async def run_front(
    config: ServerConfig, stop: asyncio.Queue[int], on_ready: Callable[[str], object], manager: ServiceManager
) -> None:
    """Serve until an item is put into `stop`, then let runs end.  Arguments as for `run_server`."""
    config = replace(config, caller_key=new_key(), server_run=new_server_run())
    with OwnFolder() as folder:
        hosts = Hosts(config, folder)
        try:
            async with _own_application(config, hosts, f"{folder}/front") as app:
                here = Upstream(f"{folder}/front")
                most = most_connections(config, files_each=2, others=FILES_OF_A_HOST * hosts.limits.most)
                table = ConnectionTable(ConnectionLimits.of(config, most))
                app[SERVER].metrics.add_shares(table.shares)
                app[SERVER].metrics.gauge("aexec_connections", lambda: {(): len(table)})
                routes = RelayedRoutes(served_routes(app))
                router = _Router(config, routes, hosts, here, app[SERVER].sessions.__contains__)
                gate = _Gate(config, app[SERVER].access, router, hosts, here)
                server = app[SERVER]
                relay = Relay(gate, here, table, leaving=lambda: server.leaving, access_log=config.access_log)
                await hosts.start()
                try:
                    async with _relaying_rpcs(app, hosts, router) as rpc:
                        async with listening_to_clients(relay, table, server, manager) as listening:
                            on_ready(listening.address)
                            if rpc is not None:
                                on_ready(rpc.address)
                            await told_to_stop(server, stop, listening, manager, hosts.hand_over)
                        await hosts.drain(stop)
                    await _until_quiet(table)
                finally:
                    table.close_all()
        finally:
            await hosts.close()


@contextlib.asynccontextmanager
async def _relaying_rpcs(app: web.Application, hosts: Hosts, router: _Router) -> AsyncIterator[RpcServer | None]:
    """Context manager: listen for gRPC, if that is configured, and pass calls on to hosts."""
    server = app[SERVER]
    if server.config.grpc_port is None:
        yield None
        return
    check_extra()
    from aexec_server.hosts.rpc_relay import RpcRelay
    from aexec_server.rpc.rpc_server import RpcServer
    from aexec_server.rpc.services import all_methods

    relay = RpcRelay(server, hosts, all_methods(server, app[RUN_HANDLERS]), router.of_model)
    rpc = RpcServer(server, relay.methods)
    try:
        await rpc.start()
        yield rpc
    finally:
        await rpc.close()
        await relay.close()


@contextlib.asynccontextmanager
async def _own_application(config: ServerConfig, hosts: Hosts, path: str) -> AsyncIterator[web.Application]:
    """Context manager: the application of this process: health, and the configured sessions if they are here."""
    here = config if config.models_in_front else replace(config, graphs={}, models={}, model_repository=None)
    app = make_app(replace(here, access_log=False))
    server = app[SERVER]
    server.all_metrics = hosts.metrics
    server.ready_elsewhere = lambda: hosts.models is None or hosts.models.serves
    server.sessions_elsewhere = lambda request: hosts.sessions(request.headers.get(CALLER_HEADER), request[CALLER])
    server.others = hosts.status
    server.tensor_bytes_limit = hosts.limits.tensor_bytes
    server.sessions.why_gone = hosts.why_gone
    async with serving_on_socket(app, path):
        yield app


async def _until_quiet(table: ConnectionTable) -> None:
    """Wait until the last answers of the hosts are written."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SHUTDOWN_SECONDS):
            while table.busy:
                await asyncio.sleep(_POLL_SECONDS)
