"""A new server process takes over from an old one, and no client notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import aexec
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

RUN = {"feeds": {"x:0": [[1, 2, 3]]}, "fetches": ["y:0"]}
CLIENTS = 64
# However busy the machine is, no run is refused because it would wait for too long.
PATIENT = {"queue_timeout": "60s"}


@dataclass
class Seen:
    """What clients were answered: how many times well, and what else."""

    well: int = 0
    else_: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def clients(port: int, session: str = "example") -> AsyncIterator[Seen]:
    """So many clients that ask without a pause, half of them over a new connection each time."""
    seen, over = Seen(), asyncio.Event()

    async def ask(number: int) -> None:
        timeout = aiohttp.ClientTimeout(60)
        connector = aiohttp.TCPConnector(force_close=number % 2 == 0)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector, timeout=timeout) as client:
            while not over.is_set():
                try:
                    async with client.post(f"/v1/sessions/{session}:run", json=RUN) as answer:
                        text = await answer.text()
                        if answer.status == 200:
                            seen.well += 1
                        elif answer.status == 429 and "Retry-After" in answer.headers:
                            pass  # with other work on the machine, so many clients may be too many
                        else:
                            seen.else_.append(f"{answer.status} {text}")
                except (aiohttp.ClientError, TimeoutError) as error:
                    seen.else_.append(repr(error))

    tasks = [asyncio.create_task(ask(number)) for number in range(CLIENTS)]
    try:
        yield seen
    finally:
        over.set()
        await asyncio.gather(*tasks)


async def answered(seen: Seen, more: int = 2 * CLIENTS) -> None:
    """Wait until so many more requests were answered."""
    wanted = seen.well + more
    while seen.well < wanted and not seen.else_:
        await asyncio.sleep(0.01)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as one:
        yield one


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "old", tmp_path / "new"]
    for one in found:
        one.mkdir()
    return found


@pytest.mark.parametrize("hosts", ["0", "auto"])
async def test_port_that_is_reused(folders: list[Path], hosts: str) -> None:
    """The new process listens beside the old one, before that is told to stop."""
    options: dict[str, Any] = {"watch": False, "example": True, "hosts": hosts, "unready": "100s", **PATIENT}
    options["reuse_port"] = True
    old = await asyncio.to_thread(ServerProcess, folders[0], **options)
    async with clients(old.port) as seen:
        await answered(seen)
        new = await asyncio.to_thread(ServerProcess, folders[1], port=old.port, **options)
        await answered(seen)
        old.signal()
        await asyncio.to_thread(old.stop)
        await answered(seen)
    await asyncio.to_thread(new.stop)
    assert not seen.else_


@pytest.mark.parametrize("hosts", ["0", "auto"])
async def test_socket_of_the_service_manager(folders: list[Path], listening: socket.socket, hosts: str) -> None:
    """The old process ends, and connections wait until the new one has started."""
    port = listening.getsockname()[1]
    options: dict[str, Any] = {"watch": False, "example": True, "hosts": hosts, "unready": "100s", **PATIENT}
    options["socket"] = listening
    old = await asyncio.to_thread(ServerProcess, folders[0], port=port, **options)
    async with clients(port) as seen:
        await answered(seen)
        old.signal()
        await asyncio.to_thread(old.stop)
        new = await asyncio.to_thread(ServerProcess, folders[1], port=port, **options)
        await answered(seen)
    await asyncio.to_thread(new.stop)
    assert not seen.else_


def test_port_is_not_shared_with_servers_that_do_not_ask_for_it(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, watch=False, reuse_port=True)
    try:
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", server.port))
    finally:
        server.stop()


@pytest.mark.parametrize("hosts", ["0", "1"])
def test_hangup_never_ends_the_server(tmp_path: Path, hosts: str) -> None:
    server = ServerProcess(tmp_path, watch=False, example=True, hosts=hosts)
    try:
        for pid in (server.pid, *server.hosts):
            os.kill(pid, signal.SIGHUP)
        assert server.run("example", **RUN).status == 200
    finally:
        server.stop()


def test_service_manager_is_told(tmp_path: Path, listening: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = "\0aexec-test-" + tmp_path.name + str(listening.getsockname()[1])
        manager.bind(address)
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": "@" + address[1:], "WATCHDOG_USEC": "200000"}
        server = ServerProcess(
            tmp_path, watch=False, port=listening.getsockname()[1], socket=listening, environment=environment
        )

        def told(wanted: str) -> str:
            while True:
                message = manager.recv(1000).decode()
                if wanted in message:
                    return message

        try:
            assert told("READY=1") == "READY=1\nSTATUS=ready"
            assert told("WATCHDOG=1") == told("WATCHDOG=1")
            server.process.send_signal(signal.SIGHUP)
            assert told("RELOADING=1").partition("\nMONOTONIC_USEC=")[2].isdecimal()
            told("READY=1")
            server.signal()
            told("STOPPING=1")
        finally:
            server.stop()


async def test_durable_session_goes_on_in_the_next_process(
    tmp_path: Path, folders: list[Path], listening: socket.socket
) -> None:
    """Its clients wait in the socket until the process that has its store has ended, and the next has opened it."""
    port = listening.getsockname()[1]
    options: dict[str, Any] = {"watch": False, "unready": "100s", "state": tmp_path / "store", "socket": listening}
    old = await asyncio.to_thread(ServerProcess, folders[0], port=port, **PATIENT, **options)
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 3], name="x")
        aexec.ops.mul(x, 2.0, name="y")
    handle = await asyncio.to_thread(old.create, graph.to_bytes(), durable=True)
    async with clients(port, handle) as seen:
        await answered(seen)
        old.signal()
        await asyncio.to_thread(old.stop)
        new = await asyncio.to_thread(ServerProcess, folders[1], port=port, **PATIENT, **options)
        await answered(seen)
    await asyncio.to_thread(new.stop)
    assert not seen.else_


def _sums() -> GraphBuilder:
    """A variable with an element for each client; `add` adds `x` to it."""
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=dtypes.float64, shape=[CLIENTS], shared_name="v")
    g.placeholder("x", dtypes.float64, [CLIENTS])
    g("set", "AssignVariableOp", "v", "x", dtype=dtypes.float64)
    g("add", "AssignAddVariableOp", "v", "x", dtype=dtypes.float64)
    g("read", "ReadVariableOp", "v", dtype=dtypes.float64)
    return g


@dataclass
class Added:
    """What clients have added.

    Attributes:
        counts: of each client, how often it was told that it had added 1.
        refused: how many requests were refused before they had begun.
        else_: what else was answered.
    """

    counts: list[int] = field(default_factory=lambda: [0] * CLIENTS)
    refused: int = 0
    else_: list[str] = field(default_factory=list)

    async def more(self) -> None:
        """Wait until so many more were added."""
        wanted = sum(self.counts) + 2 * CLIENTS
        while sum(self.counts) < wanted and not self.else_:
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def adding_clients(port: int, session: str, *, idle_may_close: bool = False) -> AsyncIterator[Added]:
    """So many clients that add without a pause, half of them over a new connection each time.

    Args:
        idle_may_close: True if the server may close an idle connection in the moment in which a client sends on it; the
            client sends its request again then, with the same key.
    """
    added, over = Added(), asyncio.Event()

    async def add_somehow(client: aiohttp.ClientSession, number: int, key: str) -> None:
        while True:
            try:
                await add_once(client, number, key)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):  # before its body was written, or after
                if not idle_may_close or client.connector.force_close:
                    raise
            else:
                return

    async def add_once(client: aiohttp.ClientSession, number: int, key: str) -> None:
        body = {"feeds": {"x": [float(i == number) for i in range(CLIENTS)]}, "targets": ["add"]}
        while True:
            headers = {"Idempotency-Key": f'"{key}"'}
            async with client.post(f"/v1/sessions/{session}:run", json=body, headers=headers) as answer:
                told = await answer.json()
                if answer.status == 200:
                    added.counts[number] += 1
                    return
                promised = told.get("reason") in ("handed_over", "shutting_down")
                if (
                    answer.status not in (429, 503)
                    or "Retry-After" not in answer.headers
                    or not (promised or answer.status == 429)
                ):
                    added.else_.append(f"{answer.status} {told}")
                    return
                added.refused += promised
            await asyncio.sleep(0.05)

    async def add(number: int) -> None:
        timeout, count = aiohttp.ClientTimeout(60), 0
        connector = aiohttp.TCPConnector(force_close=number % 2 == 0)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector, timeout=timeout) as client:
            while not over.is_set():
                count += 1
                try:
                    await add_somehow(client, number, f"{number}-{count}")
                except (aiohttp.ClientError, TimeoutError) as error:
                    added.else_.append(repr(error))

    tasks = [asyncio.create_task(add(number)) for number in range(CLIENTS)]
    try:
        yield added
    finally:
        over.set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("hosts", "unready"),
    [
        ("0", "0s"),
        ("2", "100s"),
        ("auto", "0s"),
        *(pytest.param(*rest, marks=pytest.mark.soak) for rest in (("0", "100s"), ("2", "0s"), ("auto", "100s"))),
    ],
)
async def test_store_goes_to_the_process_that_reuses_the_port(
    tmp_path: Path, folders: list[Path], hosts: str, unready: str
) -> None:
    """The old process gives the store up when it is told to stop; requests wait for the new one or may come again."""
    options: dict[str, Any] = {"watch": False, "hosts": hosts, "unready": unready, "state": tmp_path / "store"}
    options |= {"reuse_port": True, "drain": "60s", **PATIENT}  # a busy machine ends no run by force
    old = await asyncio.to_thread(ServerProcess, folders[0], **options)
    handle = await asyncio.to_thread(old.create, _sums(), durable=True)
    zeros = {"feeds": {"x": [0.0] * CLIENTS}, "targets": ["set"]}
    assert (await asyncio.to_thread(old.run, handle, **zeros)).status == 200
    async with adding_clients(old.port, handle, idle_may_close=unready == "0s") as added:
        await added.more()
        new = await asyncio.to_thread(ServerProcess, folders[1], port=old.port, **options)
        await asyncio.to_thread(new.until, lambda: "wait until the server that has the store" in new.log)
        await added.more()
        old.signal()
        await asyncio.to_thread(new.until, lambda: f"{tmp_path}/store is open" in new.log)
        await added.more()
        await asyncio.to_thread(old.stop)
        await added.more()
    assert not added.else_
    answer = await asyncio.to_thread(new.run, handle, fetches=["read"])
    assert answer.body["outputs"]["read"] == added.counts
    await asyncio.to_thread(new.stop)


def test_third_process_is_refused(tmp_path: Path, folders: list[Path]) -> None:
    options: dict[str, Any] = {"watch": False, "state": tmp_path / "store", "reuse_port": True}
    servers = [ServerProcess(folders[0], **options)]
    servers.append(ServerProcess(folders[1], port=servers[0].port, **options))
    with pytest.raises(AssertionError, match="is used by another server"):
        ServerProcess(tmp_path, port=servers[0].port, **options)
    for server in servers:
        server.stop()


@pytest.mark.parametrize("hosts", ["0", "auto"])
async def test_changes_go_on_in_the_next_process_at_a_socket(
    tmp_path: Path, folders: list[Path], listening: socket.socket, hosts: str
) -> None:
    """Nothing that the old process has answered is lost, and nothing is done twice."""
    port = listening.getsockname()[1]
    options: dict[str, Any] = {"watch": False, "hosts": hosts, "unready": "100s", "state": tmp_path / "store"}
    options |= {"socket": listening, "port": port, **PATIENT}
    old = await asyncio.to_thread(ServerProcess, folders[0], **options)
    handle = await asyncio.to_thread(old.create, _sums(), durable=True)
    zeros = {"feeds": {"x": [0.0] * CLIENTS}, "targets": ["set"]}
    assert (await asyncio.to_thread(old.run, handle, **zeros)).status == 200
    async with adding_clients(port, handle) as added:
        await added.more()
        old.signal()
        await asyncio.to_thread(old.stop)
        new = await asyncio.to_thread(ServerProcess, folders[1], **options)
        await added.more()
    assert not added.else_
    answer = await asyncio.to_thread(new.run, handle, fetches=["read"])
    assert answer.body["outputs"]["read"] == added.counts
    await asyncio.to_thread(new.stop)
