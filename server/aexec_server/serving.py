"""Runs the server: in this process alone, or with session hosts (`hosts/front.py`)."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable

from aiohttp import web

from aexec import errors
from aexec.hosting import is_loopback
from aexec_server import aiohttp_seam
from aexec_server.app import make_app
from aexec_server.connections.listening import GRACE_SECONDS, run_on_loop, serve_app, stop_signals
from aexec_server.connections.service_manager import ServiceManager
from aexec_server.core.server_state import SERVER
from aexec_server.hosts.front import run_front
from aexec_server.models.own_folders import remove_abandoned_folders
from aexec_server.settings.exposure import check_exposure
from aexec_server.settings.file_limit import raise_file_limit
from aexec_server.settings.server_config import ServerConfig

__all__ = ["run_server", "serve"]


def serve(config: ServerConfig, *, on_ready: Callable[[str], object] | None = None) -> None:
    """Serve until a signal comes, on uvloop if it is installed.  Arguments as for `run_server`.

    This function assumes that the process is the server's own: it raises the limit on open files, and hence on
    connections, as far as the system allows, a service manager may pass its sockets (`service_manager.py`), SIGHUP
    never ends it, and the process ends within `GRACE_SECONDS` after `unready_seconds` and
    `drain_seconds`, even if a thread is still in a kernel that cannot be stopped. In that case the exit status is 1,
    and the stacks of the threads are written to standard error.
    """
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server listens: nothing was read that may have changed
    manager = ServiceManager.of_process(os.environ)
    config = manager.at_its_address(config)
    raise_file_limit()
    remove_abandoned_folders()
    run_on_loop(_run(config, on_ready, None, lambda told: _end_within(config, told), manager))


def _end_within(config: ServerConfig, told: int) -> None:
    """End the process within the time that `serve` states; after a second signal runs get no time to end."""
    seconds = GRACE_SECONDS + (config.unready_seconds + config.drain_seconds if told == 1 else 0.0)
    # faulthandler's thread needs neither the event loop nor the GIL.
    faulthandler.dump_traceback_later(seconds, exit=True)


async def run_server(
    config: ServerConfig | None = None,
    *,
    on_ready: Callable[[str], object] | None = None,
    app: web.Application | None = None,
) -> None:
    """Serve in this event loop until SIGTERM or SIGINT, or until the calling task is cancelled.

    On a signal the server becomes unready; after `unready_seconds` it accepts no further connection, and runs may go on
    for `drain_seconds`; then they are cancelled with the reason `shutdown`. A second signal cancels them at once.

    Args:
        config: settings; default settings if None.  With `hosts` the sessions are in processes of their own.
        on_ready: called with the server's address, `http://127.0.0.1:8500`, when it listens; with `grpc_port` then also
            with `grpc://127.0.0.1:8501`.
        app: an application made by `make_app`, to which routes may have been added.

    Raises:
        OSError: the address cannot be listened on.
        FailedPreconditionError: other machines could use the server without a token, or the installed aiohttp lacks a
            part that guards it against them (`aiohttp_seam.py`).
        InvalidArgumentError: `app` has settings that ask for session hosts.
    """
    await _run(config, on_ready, app, lambda _: None, ServiceManager())


async def _run(
    config: ServerConfig | None,
    on_ready: Callable[[str], object] | None,
    app: web.Application | None,
    on_signal: Callable[[int], object],
    manager: ServiceManager,
) -> None:
    if app is not None:
        config = app[SERVER].config
        if config.has_hosts:
            raise errors.InvalidArgumentError(
                "An application of one's own has its sessions in its process: hosts must be 0"
            )
    config = config or ServerConfig()
    check_exposure(config)
    aiohttp_seam.check_parts(exposed=not is_loopback(config.host))
    with stop_signals(on_signal) as stop:
        if config.has_hosts:
            await run_front(config, stop, on_ready or _ignore, manager)
            return
        await serve_app(app or make_app(config), stop, on_ready or _ignore, manager=manager)


def _ignore(address: str) -> None:
    pass
