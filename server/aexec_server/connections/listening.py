"""A process whose application listens until it is told to stop, and then lets its runs end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from aexec.hosting import OnCancel, collecting_when_asked, run_in_thread
from aexec_server.connections.acceptor import Acceptor, tcp_sockets, unix_socket
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable
from aexec_server.connections.guarded_connection import guarded
from aexec_server.connections.tls import ServerTls
from aexec_server.core.access import AccessControl
from aexec_server.core.access_log import AccessLogger, access_logger
from aexec_server.core.server_state import SERVER, Server
from aexec_server.handlers.direct_runs import DirectRuns
from aexec_server.settings.file_limit import most_connections
from aexec_server.settings.server_config import ServerConfig

__all__ = [
    "GRACE_SECONDS",
    "listening_to_clients",
    "run_on_loop",
    "serve_app",
    "serving_on_socket",
    "stop_signals",
    "told_to_stop",
]

logger = logging.getLogger(__name__)

# After runs were cancelled, how long their answers may take to get out; and until a process that is the server's ends,
# whatever runs in it.
_SHUTDOWN_SECONDS = 3.0
GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.02
# How long what is left of a request's body is read after an answer that needed none of it.
_LINGERING_SECONDS = 2.0
# A relay's connections are closed by the relay: here it could come upon the next request.
_FOR_EVER = 1e8


def run_on_loop(serving: Coroutine[Any, Any, None]) -> None:
    """Run what the process is there for, on uvloop where there is one; nobody waits for full collections of garbage."""
    with collecting_when_asked():
        try:
            import uvloop
        except ImportError:
            asyncio.run(serving)
        else:
            uvloop.run(serving)


async def serve_app(
    app: web.Application,
    stop: asyncio.Queue[int],
    on_ready: Callable[[str], object],
    *,
    path: str | None = None,
) -> None:
    """Serve until something is put into `stop`; then drain, which something more in `stop` cuts short.

    Args:
        app: made by `make_app`.
        stop: see above.
        on_ready: called with the address when it listens.
        path: of the Unix socket to listen on, for a process that trusts who connects and keeps its connections; None
            for the configured address, and connections within limits.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = app[SERVER]
    config = server.config
    async with _running(app, _FOR_EVER if path else config.idle_seconds) as handlers:
        if path is not None:
            listening = _listening_on_socket(app, handlers, path)
        else:
            table = ConnectionTable(ConnectionLimits.of(config, most_connections(config, files_each=1)))
            server.metrics.add_shares(table.shares)
            server.metrics.gauge("aexec_connections", lambda: {(): len(table)})
            protocols = guarded(handlers, table, server.backlog, DirectRuns.of(app))
            listening = listening_to_clients(protocols, table, config, server.access)
        async with listening as address:
            on_ready(address)
            await told_to_stop(server, stop)
            runs = server.sessions.live_runs
            # Session hosts end whenever their sessions do.
            level = logging.INFO if runs or path is None else logging.DEBUG
            logger.log(level, "told to stop: %d runs in flight", runs)
        await _drain(server, stop)


@contextlib.asynccontextmanager
async def serving_on_socket(app: web.Application, path: str) -> AsyncIterator[None]:
    """As `serve_app` with a path, as long as the context lasts."""
    async with _running(app, _FOR_EVER) as handlers, _listening_on_socket(app, handlers, path):
        yield


@contextlib.asynccontextmanager
async def _running(app: web.Application, idle_seconds: float) -> AsyncIterator[web.Server]:
    """The application, set up; connections that are open in the end are closed.

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
async def _listening_on_socket(app: web.Application, handlers: web.Server, path: str) -> AsyncIterator[str]:
    table = ConnectionTable(ConnectionLimits(sys.maxsize, _FOR_EVER, _FOR_EVER, 0, _FOR_EVER))
    protocols = guarded(handlers, table, app[SERVER].backlog, DirectRuns.of(app))
    acceptor = Acceptor([unix_socket(path)], protocols)
    try:
        yield path
    finally:
        acceptor.close()
        Path(path).unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def listening_to_clients(
    new_connection: Callable[[], asyncio.BaseProtocol],
    table: ConnectionTable,
    config: ServerConfig,
    access: AccessControl,
) -> AsyncIterator[str]:
    """Listen on the configured address, which is given, and keep the connections within limits as long as they last.

    Args:
        new_connection: makes the protocol of each.
        table: of the connections.
        access: whose tokens are read again when SIGHUP comes.
    """
    tls = None
    if config.tls_cert is not None:
        tls = await run_in_thread(lambda: ServerTls(config), on_cancel=OnCancel.ABANDON)
    sockets = await tcp_sockets(config.host, config.port)
    address = sockets[0].getsockname()[:2]
    acceptor = Acceptor(sockets, new_connection, None if tls is None else tls.context, config.header_seconds)
    tasks = [asyncio.create_task(table.sweep(), name="close slow connections")]
    if tls is not None:
        tasks.append(asyncio.create_task(tls.watch(), name="watch the certificate"))
    try:
        with _reloading_on_hangup(access, tls):
            yield _http_address(*address, tls=tls is not None)
    finally:
        acceptor.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextlib.contextmanager
def _reloading_on_hangup(access: AccessControl, tls: ServerTls | None) -> Iterator[None]:
    """Read tokens and certificate again when SIGHUP comes; where there are none, it ends the process as ever."""
    sources = [one for one in (access.source, tls) if one is not None]

    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        for one in sources:
            task = loop.create_task(one.reload(), name="reload")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    loop = asyncio.get_running_loop()
    added = False
    if sources and hasattr(signal, "SIGHUP"):
        # Not outside the main thread.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, reload)
            added = True
    try:
        yield
    finally:
        if added:
            loop.remove_signal_handler(signal.SIGHUP)
        for task in tasks:
            task.cancel()


async def told_to_stop(server: Server, stop: asyncio.Queue[int]) -> None:
    """Wait until something is in `stop`, and then for as long as balancers are given; after that nothing new begins."""
    await stop.get()
    server.leaving = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(server.config.unready_seconds):
            stop.put_nowait(await stop.get())  # told again: whoever drains is to know
    server.draining = True


async def _drain(server: Server, stop: asyncio.Queue[int]) -> None:
    """Wait until no run is in flight, for as long as that may take."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(server.config.drain_seconds):
            while server.sessions.live_runs and stop.empty():
                await asyncio.sleep(_POLL_SECONDS)
    if server.sessions.live_runs:
        logger.info("cancelling %d runs", server.sessions.live_runs)
        server.sessions.cancel_all("shutdown")


@contextlib.contextmanager
def stop_signals(on_signal: Callable[[int], object]) -> Iterator[asyncio.Queue[int]]:
    """A queue of the signals that ask the server to stop.

    Args:
        on_signal: called with how many have come, even while the loop is held up by what runs in Python.
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
        # Not on Windows, nor outside the main thread; cancelling the task stops the server there.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, queue.put_nowait, number)
            added.append(number)
            # The loop hears of signals through a file descriptor, whatever is called here.
            signal.signal(number, handle)
    try:
        yield queue
    finally:
        for number in added:
            loop.remove_signal_handler(number)


def _http_address(host: str, port: int, *, tls: bool) -> str:
    """`http://127.0.0.1:8500`"""
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"
