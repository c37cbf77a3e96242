"""A session host as its front sees it: its start, its end, and what it is asked; with processes that are none."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from aexec_server.hosts import session_host
from aexec_server.hosts.session_host import SessionHost
from aexec_server.settings.server_config import ServerConfig

from aexec import errors
from tests.support.stand_ins.fake_hosts import FakeHosts, FakeProcess
from tests.support.stand_ins.replacing import replace_in
from tests.support.waiting import until

T = TypeVar("T")


def new_host(folder: Path) -> SessionHost:
    return SessionHost("1", ServerConfig(), str(folder / "1"), lambda host, report: None)


@contextlib.asynccontextmanager
async def started(host: SessionHost) -> AsyncIterator[tuple[asyncio.Task[None], FakeProcess]]:
    """The host's life, and its process, which has not started; both have ended afterwards."""
    context = FakeHosts()
    life = asyncio.create_task(host.run(cast(Any, context)))
    await until(lambda: context.processes)
    (process,) = context.processes
    try:
        yield life, process
    finally:
        process.may_start.set()
        life.cancel()
        await asyncio.wait([life])
        process.kill()
        if process.channel is not None:
            process.channel.close()


async def heard(process: FakeProcess) -> Any:
    """The next message of the front."""
    assert process.channel is not None
    process.channel.setblocking(False)
    return json.loads(await asyncio.get_running_loop().sock_recv(process.channel, 1000))


async def found(look: Callable[[], T | None]) -> T:
    """What it gives as soon as it gives something."""
    while (value := look()) is None:
        await asyncio.sleep(0)
    return value


async def test_host_for_which_there_is_no_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    replace_in(monkeypatch, session_host, "socket", socketpair=none)
    host = new_host(tmp_path)
    await host.run(cast(Any, FakeHosts()))
    assert host.ended is not None and "could not be started" in host.ended and "Too many open files" in host.ended
    with pytest.raises(errors.UnavailableError, match="Too many open files"):
        await host.started()


async def test_host_that_is_told_to_stop_while_it_starts_hears_it(tmp_path: Path) -> None:
    host = new_host(tmp_path)
    async with started(host) as (life, process):
        host.tell_to_stop("the server is shutting down")
        process.may_start.set()
        await until(lambda: process.channel)
        assert await heard(process) == {"stop": True}
        process.kill()
        await life
    assert host.ended == "was told to stop: the server is shutting down"


async def test_host_whose_start_is_cancelled_is_killed(tmp_path: Path) -> None:
    host = new_host(tmp_path)
    async with started(host) as (life, process):
        process.may_start.set()
        await until(lambda: process.pid_was_read)  # the channel is being connected
        life.cancel()
        await asyncio.wait([life])
        assert life.cancelled() and process.exitcode is not None
        assert host.ended is not None


async def test_sessions_of_a_host_that_is_killed_while_it_answers_are_none(tmp_path: Path) -> None:
    async def answer_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert asked.startswith(b"GET /sessions HTTP/1.0\r\n") and b": somebody\r\n" in asked
        writer.write(b'HTTP/1.0 200 OK\r\n\r\n{"sessions": [{"session_ha')
        writer.close()

    host = new_host(tmp_path)
    async with await asyncio.start_unix_server(answer_half, host.path):
        assert await host.listed_sessions("somebody") == []


async def test_host_that_listens_has_a_connection_before_the_first_request(tmp_path: Path) -> None:
    connected = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    host = new_host(tmp_path)
    async with await asyncio.start_unix_server(serve, host.path), started(host) as (life, process):
        process.may_start.set()
        await until(lambda: process.channel)
        cast(socket.socket, process.channel).send(b'{"listens": true}\n')
        await connected.wait()
        connection = await found(host.idle_connection)
        connection.close()
        assert host.is_empty and not host.busy
        process.kill()
        await life


async def test_host_that_worked_since_it_was_asked_is_busy(tmp_path: Path) -> None:
    """However short its work was: it has something to report."""
    host = new_host(tmp_path)
    async with started(host) as (_, process):
        process.may_start.set()
        await until(lambda: process.channel)
        cast(socket.socket, process.channel).send(b'{"listens": true}\n')
        await until(lambda: host.ready)
        assert not host.busy
        host.requests = host.completed = 1
        assert host.busy and host.is_empty
        host.ask(None)
        assert await heard(process) == {"ask": True}
        assert not host.busy
