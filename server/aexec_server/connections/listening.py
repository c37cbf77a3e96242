"""Runs an application that listens until it is told to stop, and then lets its runs end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from aexec.hosting import OnCancel, collecting_when_asked, run_in_thread
from aexec_server.connections.acceptor import Acceptor, tcp_sockets, unix_socket
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable
from aexec_server.connections.guarded_connection import guarded
from aexec_server.connections.service_manager import ServiceManager
from aexec_server.connections.tls import ServerTls
from aexec_server.core.access_log import AccessLogger, access_logger
from aexec_server.core.server_state import SERVER, Server
from aexec_server.durable.store_opening import give_up_when_wanted
from aexec_server.handlers.direct_runs import DirectRuns
from aexec_server.rpc.opening import rpc_server_of
from aexec_server.settings.file_limit import most_connections

if TYPE_CHECKING:
    from aexec_server.rpc.rpc_server import RpcServer

__all__ = [
    "GRACE_SECONDS",
    "Listening",
    "drain",
    "listening_to_clients",
    "run_on_loop",
    "serve_app",
    "serving_on_socket",
    "stop_signals",
    "told_to_stop",
]

logger = logging.getLogger(__name__)

GiveUp = Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]

# Seconds in which answers of cancelled runs are sent; and until a process of the server's own ends, even if runs
# continue.
_SHUTDOWN_SECONDS = 3.0
GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.02
# Seconds for which the rest of a body is read after an answer that did not need it.
_LINGERING_SECONDS = 2.0
# Only a relay closes its connections: closing one here could meet the next request.
_FOR_EVER = 1e8


def run_on_loop(serving: Coroutine[Any, Any, None]) -> None:
    """Run the process's main coroutine, on uvloop if there is one, with full garbage collections at idle moments."""
    with collecting_when_asked():
        try:
            import uvloop
        except ImportError:
            asyncio.run(serving)
        else:
            uvloop.run(serving)


@dataclass(frozen=True, slots=True)
class Listening:
    """A server that listens.

    Attributes:
        address: where, `http://127.0.0.1:8500`, or the path of a Unix socket.
        hand_over: leaves new connections to the process that takes the port over; None if none does.
        is_left: returns True once no connection is open.
    """

    address: str
    hand_over: Callable[[], Coroutine[Any, Any, None]] | None = None
    is_left: Callable[[], bool] = lambda: False


async def serve_app(
    app: web.Application,
    stop: asyncio.Queue[int],
    on_ready: Callable[[str], object],
    *,
    path: str | None = None,
    manager: ServiceManager | None = None,
) -> None:
    """Serve until an item is put into `stop`, then drain; a second item cuts that short.

    Args:
        app: an application of `make_app`.
        stop: see above.
        on_ready: called with the address when it listens; then with that of gRPC, if it listens for that.
        path: the Unix socket to listen on, whose clients are trusted and not limited; None for the configured address,
            with limited connections.
        manager: the service manager, which may have passed sockets.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = app[SERVER]
    config = server.config
    manager = manager or ServiceManager()
    async with _running(app, _FOR_EVER if path else config.idle_seconds) as handlers, _answering_rpcs(app, path) as rpc:
        if path is not None:
            listening = _listening_on_socket(app, handlers, path)
        else:
            table = ConnectionTable(ConnectionLimits.of(config, most_connections(config, files_each=1)))
            server.metrics.add_shares(table.shares)
            server.metrics.gauge("aexec_connections", lambda: {(): len(table)})
            protocols = guarded(handlers, table, server.backlog, DirectRuns.of(app))
            listening = listening_to_clients(protocols, table, server, manager)
        async with listening as here:
            on_ready(here.address)
            if rpc is not None and path is None:
                on_ready(rpc.address)
            durable = server.durable
            hand_over = None if durable is None else partial(give_up_when_wanted, durable.store, durable.give_up)
            await told_to_stop(server, stop, here, manager, hand_over)
            runs = server.sessions.live_runs
            # A session host ends when its last session does, which is no news.
            level = logging.INFO if runs or path is None else logging.DEBUG
            logger.log(level, "told to stop: %d runs in flight", runs)
        await drain(server, stop)


@contextlib.asynccontextmanager
async def _answering_rpcs(app: web.Application, path: str | None) -> AsyncIterator[RpcServer | None]:
    """Context manager: listen for gRPC, if that is configured; at the end calls have ended, or are cut off."""
    rpc = rpc_server_of(app, path)
    if rpc is None:
        yield None
        return
    try:
        await rpc.start()
        yield rpc
    finally:
        await rpc.close()


@contextlib.asynccontextmanager
async def serving_on_socket(app: web.Application, path: str) -> AsyncIterator[None]:
    """Context manager: serve on a Unix socket, as `serve_app` with a path."""
    async with _running(app, _FOR_EVER) as handlers, _listening_on_socket(app, handlers, path):
        yield


@contextlib.asynccontextmanager
async def _running(app: web.Application, idle_seconds: float) -> AsyncIterator[web.Server]:
    """Context manager: set up the application; closes open connections at the end.

    Args:
        idle_seconds: how long a connection may be open without a request.
    """
    config = app[SERVER].config
    runner = web.AppRunner(
        app,
        handle_signals=False,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        access_log=access_logger if config.access_log else None,
        access_log_class=AccessLogger,
        keepalive_timeout=idle_seconds,
        lingering_time=_LINGERING_SECONDS,
    )
    try:
        await runner.setup()
        assert runner.server is not None
        yield runner.server
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _listening_on_socket(app: web.Application, handlers: web.Server, path: str) -> AsyncIterator[Listening]:
    table = ConnectionTable(ConnectionLimits(sys.maxsize, _FOR_EVER, _FOR_EVER, 0, _FOR_EVER))
    protocols = guarded(handlers, table, app[SERVER].backlog, DirectRuns.of(app))
    acceptor = Acceptor([unix_socket(path)], protocols)
    try:
        yield Listening(path)
    finally:
        acceptor.close()
        Path(path).unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def listening_to_clients(
    new_connection: Callable[[], asyncio.BaseProtocol],
    table: ConnectionTable,
    server: Server,
    manager: ServiceManager,
) -> AsyncIterator[Listening]:
    """Listen on the configured address, and keep the connections within limits as long as they last.

    Args:
        new_connection: makes the protocol of each connection.
        table: the table of connections.
        server: its files are read again on SIGHUP.
        manager: the service manager, whose sockets are used if it has passed any.
    """
    config = server.config
    tls = None
    if config.tls_cert is not None:
        tls = await run_in_thread(lambda: ServerTls(config), on_cancel=OnCancel.ABANDON)
    passed = manager.sockets
    sockets = passed or await tcp_sockets(config.host, config.port, reuse_port=config.reuse_port)
    address = sockets[0].getsockname()[:2]
    acceptor = Acceptor(sockets, new_connection, None if tls is None else tls.context, config.header_seconds)
    tasks = [
        asyncio.create_task(table.sweep(), name="close slow connections"),
        asyncio.create_task(manager.report(lambda: server.ready), name="report to the service manager"),
    ]
    if tls is not None:
        tasks.append(asyncio.create_task(tls.watch(), name="watch the certificate"))
    hand_over = partial(acceptor.hand_over, queue_is_shared=bool(passed))
    try:
        with _reloading_on_hangup(server, tls, manager):
            yield Listening(
                _http_address(*address, tls=tls is not None),
                hand_over if passed or config.reuse_port else None,
                # Those of gRPC are not in the table.
                lambda: not (len(table) or acceptor.is_beginning) and config.grpc_port is None,
            )
    finally:
        acceptor.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextlib.contextmanager
def _reloading_on_hangup(server: Server, tls: ServerTls | None, manager: ServiceManager) -> Iterator[None]:
    """Context manager: SIGHUP reads tokens and certificate again, and looks at the files of models."""
    sources = [one for one in (server.access.source, tls) if one is not None]
    tasks: set[asyncio.Task[None]] = set()

    async def read_again() -> None:
        manager.say_reloading()
        server.repository.look_soon()
        for one in sources:
            await one.reload()
        manager.say_reloaded()

    def reload() -> None:
        task = loop.create_task(read_again(), name="reload")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop = asyncio.get_running_loop()
    before = None
    if hasattr(signal, "SIGHUP"):
        before = signal.getsignal(signal.SIGHUP)
        # Impossible outside the main thread.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(signal.SIGHUP)
                signal.signal(signal.SIGHUP, before)
        for task in tasks:
            task.cancel()


async def told_to_stop(
    server: Server,
    stop: asyncio.Queue[int],
    listening: Listening,
    manager: ServiceManager | None = None,
    give_up: GiveUp | None = None,
) -> None:
    """Wait for an item in `stop`, then for the time that balancers are given; after that nothing new begins.

    If another process takes the port over, that time ends when no connection is left.

    Args:
        give_up: gives the store of durable sessions up to another process that waits for it, unless its argument
            returns True before; None if there is no store.
    """
    await stop.get()
    server.leaving = True
    if manager is not None:
        manager.say_stopping()
    if listening.hand_over is not None:
        await listening.hand_over()
    if give_up is not None:
        server.in_background(give_up(lambda: server.draining), "hand the store over")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(server.config.unready_seconds):
            while stop.empty() and not (listening.hand_over is not None and listening.is_left()):
                await asyncio.sleep(_POLL_SECONDS)
    server.draining = True


async def drain(server: Server, stop: asyncio.Queue[int]) -> None:
    """Wait until no run is in flight and no request uses a session, within the configured time.

    A request uses its session before its run is listed, and after that until a commit has its changes.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(server.config.drain_seconds):
            while (server.sessions.live_runs or server.sessions.in_use) and stop.empty():
                await asyncio.sleep(_POLL_SECONDS)
    if server.sessions.live_runs:
        logger.info("cancelling %d runs", server.sessions.live_runs)
        server.sessions.cancel_all("shutdown")


@contextlib.contextmanager
def stop_signals(on_signal: Callable[[int], object]) -> Iterator[asyncio.Queue[int]]:
    """Context manager: a queue of the signals that ask the server to stop.

    Args:
        on_signal: called with the number of signals so far, even while Python code holds up the loop.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue()
    added = []
    told = 0

    def handle(*_: object) -> None:
        nonlocal told
        told += 1
        on_signal(told)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Impossible on Windows and outside the main thread, where cancelling the task stops the server.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, queue.put_nowait, number)
            added.append(number)
            # The loop gets signals through a file descriptor, independent of the handler that is set here.
            signal.signal(number, handle)
    try:
        yield queue
    finally:
        for number in added:
            loop.remove_signal_handler(number)


def _http_address(host: str, port: int, *, tls: bool) -> str:
    """`http://127.0.0.1:8500`"""
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"
