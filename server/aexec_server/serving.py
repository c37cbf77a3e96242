"""Running the server: listening, signals, and a shutdown that lets runs end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator

from aiohttp import web

from aexec_server.app import make_app
from aexec_server.server_config import ServerConfig
from aexec_server.server_state import SERVER, Server

__all__ = ["run_server", "serve"]

logger = logging.getLogger(__name__)

# After runs were cancelled, how long their answers may take to get out.
_FAREWELL_SECONDS = 5.0
_POLL_SECONDS = 0.02


def serve(config: ServerConfig, *, on_ready: Callable[[str], object] | None = None) -> None:
    """Serve until a signal comes, on uvloop where there is one.  Arguments as for `run_server`."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(run_server(config, on_ready=on_ready))
    else:
        uvloop.run(run_server(config, on_ready=on_ready))


async def run_server(
    config: ServerConfig | None = None,
    *,
    on_ready: Callable[[str], object] | None = None,
    app: web.Application | None = None,
) -> None:
    """Serve in this event loop until SIGTERM or SIGINT, or until the calling task is cancelled.

    On a signal readiness turns false, no connection is accepted any more, and runs may go on for
    `drain_seconds`; then they are cancelled with the reason `shutdown`.  A second signal cancels
    them at once.

    Args:
        config: settings; default settings if None.
        on_ready: called with the server's address, `http://127.0.0.1:8500`, when it listens.
        app: an application made by `make_app`, perhaps with routes of one's own.

    Raises:
        OSError: the address cannot be listened on.
    """
    app = app or make_app(config)
    server = app[SERVER]
    config = server.config
    runner = web.AppRunner(
        app,
        handle_signals=False,
        shutdown_timeout=_FAREWELL_SECONDS,
        access_log=logging.getLogger("aexec_server.access") if config.access_log else None,
    )
    try:
        await runner.setup()
        site = web.TCPSite(runner, config.host, config.port)
        await site.start()
        with _signals() as signals:
            if on_ready is not None:
                on_ready(_address(runner))
            await signals.get()
            server.draining = True
            logger.info("told to stop: %d runs in flight", server.sessions.live_runs)
            await site.stop()
            await _drain(server, signals)
    finally:
        await runner.cleanup()


def _address(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Queue[int]]:
    """A queue of the signals that ask the server to stop."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue()
    added = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not on Windows, nor outside the main thread; cancelling the task stops the server there.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, queue.put_nowait, number)
            added.append(number)
    try:
        yield queue
    finally:
        for number in added:
            loop.remove_signal_handler(number)


async def _drain(server: Server, signals: asyncio.Queue[int]) -> None:
    """Wait until no run is in flight, for as long as that may take."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(server.config.drain_seconds):
            while server.sessions.live_runs and signals.empty():
                await asyncio.sleep(_POLL_SECONDS)
    if server.sessions.live_runs:
        logger.info("cancelling %d runs", server.sessions.live_runs)
        server.sessions.cancel_all("shutdown")
