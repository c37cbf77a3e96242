"""Connections of many clients who come at once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from aexec_server import ServerConfig
from aexec_server.connections import acceptor
from aexec_server.connections.acceptor import Acceptor, tcp_sockets, unix_socket
from aexec_server.connections.tls import ServerTls

from tests.server.connections.test_tls import Authority
from tests.server.connections.test_tls import authority as authority  # a fixture
from tests.support.waiting import until


class Clock:
    """Each look at it takes so long."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


class Greeter(asyncio.Protocol):
    """Says hello, and counts those to whom it did."""

    greeted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Greeter.greeted += 1
        cast(asyncio.Transport, transport).write(b"hello")
        transport.close()


@pytest.fixture(autouse=True)
def nobody_yet() -> None:
    Greeter.greeted = 0


@contextlib.contextmanager
def clients(address: Any, count: int, family: int = socket.AF_INET) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket(family, socket.SOCK_STREAM)) for _ in range(count)]
        for one in made:
            one.connect(address)  # the system does that before anybody accepts it
        yield made


@contextlib.contextmanager
def accepting(sockets: list[socket.socket], **options: Any) -> Iterator[Acceptor]:
    taking = Acceptor(sockets, Greeter, **options)
    try:
        yield taking
    finally:
        taking.close()


async def turns_until(count: int) -> int:
    """How many turns of the loop it takes until so many were greeted."""
    turns = 0
    while Greeter.greeted < count:
        turns += 1
        await asyncio.sleep(0)
    return turns


@pytest.mark.parametrize(("look", "fewest", "most"), [(0.0, 1, 20), (1.0, 30, 100)])
async def test_turn_accepts_as_many_as_a_slice_allows(
    monkeypatch: pytest.MonkeyPatch, look: float, fewest: int, most: int
) -> None:
    monkeypatch.setattr(acceptor, "perf_counter", Clock(look))
    sockets = await tcp_sockets("127.0.0.1", 0)
    with clients(sockets[0].getsockname(), 30), accepting(sockets):
        assert fewest <= await turns_until(30) <= most


async def test_all_addresses_of_a_host() -> None:
    sockets = await tcp_sockets("localhost", 0)
    with accepting(sockets):
        for one in sockets:
            with clients(one.getsockname(), 1, one.family) as (client,):
                await until(lambda: Greeter.greeted)
                assert client.recv(10) == b"hello"
            Greeter.greeted = 0


async def test_address_that_is_taken() -> None:
    sockets = await tcp_sockets("127.0.0.1", 0)
    with accepting(sockets), pytest.raises(OSError, match="in use"):
        await tcp_sockets("127.0.0.1", sockets[0].getsockname()[1])


async def test_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with accepting([unix_socket(path)]), clients(path, 3, socket.AF_UNIX):
        await turns_until(3)
    with pytest.raises(OSError, match="in use"):
        unix_socket(path)
    with pytest.raises(ConnectionError), clients(path, 1, socket.AF_UNIX):
        pass  # nobody listens any more


class OutOfFiles(socket.socket):
    """The system has no file for the first."""

    refused = False

    def accept(self) -> Any:
        if not self.refused:
            self.refused = True
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_connections_wait_while_the_system_has_no_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "_RETRY_SECONDS", 0.01)
    listening = OutOfFiles(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    with clients(listening.getsockname(), 2), accepting([listening]), caplog.at_level(logging.WARNING):
        await turns_until(2)
    assert [record.getMessage() for record in caplog.records] == [
        "a connection cannot be taken: [Errno 24] Too many open files"
    ]


async def test_client_who_speaks_no_tls(authority: Authority) -> None:
    tls = await asyncio.to_thread(ServerTls, ServerConfig(tls_cert=authority.cert, tls_key=authority.key))
    sockets = await tcp_sockets("127.0.0.1", 0)
    address = sockets[0].getsockname()
    with accepting(sockets, tls=tls.context, handshake_seconds=10.0):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass  # what it is told in TLS's words
        writer.close()
    assert not Greeter.greeted


@pytest.mark.parametrize("shared", [False, True])
async def test_port_is_handed_over_without_a_lost_connection(shared: bool) -> None:
    """Connections that wait are taken, here or by the other who has the same socket; later ones go there."""
    (own,) = await tcp_sockets("127.0.0.1", 0, reuse_port=not shared)
    address = own.getsockname()
    other = own.dup() if shared else (await tcp_sockets(*address, reuse_port=True))[0]
    with accepting([own]) as old, clients(address, 20):
        await old.hand_over(queue_is_shared=shared)
        with accepting([other]), clients(address, 20):
            await until(lambda: Greeter.greeted == 40)


async def test_connections_that_were_just_accepted_count_until_they_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has handed its port over ends when it has no connection: these must not be overlooked."""
    monkeypatch.setattr(acceptor, "_CONNECTING_SECONDS", 0.0)
    (own,) = await tcp_sockets("127.0.0.1", 0)
    with accepting([own]) as old, clients(own.getsockname(), 3):
        await old.hand_over(queue_is_shared=False)
        assert old.is_beginning and not Greeter.greeted
        await until(lambda: not old.is_beginning)
        assert Greeter.greeted == 3


async def test_socket_from_which_new_connections_are_kept_takes_those_that_wait() -> None:
    (own,) = await tcp_sockets("127.0.0.1", 0)
    with clients(own.getsockname(), 1), socket.socket() as late:
        acceptor._drop_new_connections(own)
        late.setblocking(False)
        assert late.connect_ex(own.getsockname()) == errno.EINPROGRESS
        with accepting([own]):
            await until(lambda: Greeter.greeted == 1)
            assert late.connect_ex(own.getsockname()) == errno.EALREADY


class Answering(asyncio.Protocol):
    """Closes the acceptor when a request comes, and answers some turns of the loop later."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._close()
        asyncio.get_running_loop().call_later(0.01, self._transport.write, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


async def answered_after_the_end() -> None:
    sockets = await tcp_sockets("127.0.0.1", 0)
    with clients(sockets[0].getsockname(), 3) as waiting:
        for client in waiting:
            client.sendall(b"request")  # uvloop reads it before the task that began the connection goes on
        made: list[Answering] = []
        taking = Acceptor(sockets, lambda: made.append(Answering(taking.close)) or made[-1])  # type: ignore[func-returns-value]
        await until(lambda: len(made) == len(waiting))
        for client in waiting:
            client.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 10), 5) == b"request"
            client.close()
        for one in made:
            await asyncio.wait_for(one.lost.wait(), 5)


async def test_connection_that_has_begun_goes_on_when_no_more_are_accepted() -> None:
    await answered_after_the_end()


def test_connection_that_has_begun_goes_on_on_uvloop() -> None:
    """uvloop closes a connection without `connection_lost` if the task that begins it is cancelled."""
    pytest.importorskip("uvloop").run(answered_after_the_end())


async def test_handshake_ends_when_no_more_are_accepted(authority: Authority) -> None:
    tls = await asyncio.to_thread(ServerTls, ServerConfig(tls_cert=authority.cert, tls_key=authority.key))
    sockets = await tcp_sockets("127.0.0.1", 0)
    address = sockets[0].getsockname()
    with accepting(sockets, tls=tls.context, handshake_seconds=100.0) as taking:
        reader, writer = await asyncio.open_connection(*address)
        await until(lambda: taking._beginning)
        taking.close()
        with contextlib.suppress(ConnectionError):
            assert not await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await until(lambda: not taking._beginning)
    assert not Greeter.greeted
