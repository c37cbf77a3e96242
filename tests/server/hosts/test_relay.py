"""What a relay does when a connection ends while the other one is being made, or while a body is coming."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from aexec_server import ServerConfig
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable
from aexec_server.connections.tls import ServerTls
from aexec_server.hosts.relay import Relay, Upstream, UpstreamConnection
from aexec_server.http.framing import RequestHead

from aexec import errors
from tests.server.connections.test_tls import Authority
from tests.server.connections.test_tls import authority as authority  # a fixture
from tests.support.waiting import until

REQUEST = b"POST /v1/sessions/s:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\n"


class Gated(Upstream):
    """An upstream that connects, and says why it was lost, when the test lets it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.may_connect, self.may_say = asyncio.Event(), asyncio.Event()

    async def connect(self) -> UpstreamConnection:
        await self.may_connect.wait()
        return await super().connect()

    async def why_lost(self) -> errors.OpError:
        await self.may_say.wait()
        return errors.UnavailableError("it ended")


class Relayed:
    """A relay before an upstream that the test plays: `requests` are its connections.

    Attributes:
        upstream, table: of the relay.
        requests: reader and writer of each connection to the upstream.
    """

    def __init__(self, path: str, *, tls: ssl.SSLContext | None = None, ends_at_once: bool = False) -> None:
        self.requests: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.upstream = Gated(path)
        self.table = ConnectionTable(ConnectionLimits.of(ServerConfig(), most=10))
        self._tls, self._ends_at_once = tls, ends_at_once

    def _admit(self, head: bytes, request: RequestHead, host: str) -> tuple[bytes, Upstream]:
        return head, self.upstream

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ends_at_once:
            writer.close()
        else:
            await self.requests.put((reader, writer))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[str, int]]:
        playing = await asyncio.start_unix_server(self._taken, self.upstream.path)
        relay = Relay(self._admit, self.upstream, self.table)
        serving = await asyncio.get_running_loop().create_server(relay, "127.0.0.1", 0, ssl=self._tls)
        try:
            yield serving.sockets[0].getsockname()
        finally:
            self.table.close_all()
            self.upstream.close_idle()
            while not self.requests.empty():
                self.requests.get_nowait()[1].close()
            serving.close()
            playing.close()
            await until(lambda: not len(self.table))


async def test_request_whose_upstream_is_lost_while_its_body_comes_is_told(tmp_path: Path) -> None:
    relayed = Relayed(str(tmp_path / "s"))
    relayed.upstream.may_connect.set()
    async with relayed.serving() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(REQUEST + b"abc")
        upstream, ended = await relayed.requests.get()
        assert await upstream.readexactly(len(REQUEST) + 3) == REQUEST + b"abc"
        ended.transport.abort()
        await until(lambda: relayed.upstream.completed == 1)
        writer.write(b"def")  # before the relay knows what it is to say
        await writer.drain()
        await asyncio.sleep(0.01)
        relayed.upstream.may_say.set()
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"it ended" in answer
        writer.close()


async def test_upstream_that_ends_as_it_is_reached_answers_nothing(tmp_path: Path) -> None:
    relayed = Relayed(str(tmp_path / "s"), ends_at_once=True)
    relayed.upstream.may_connect.set()
    relayed.upstream.may_say.set()
    async with relayed.serving() as address:
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(REQUEST + b"abcdef")
            assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 503 ")
            writer.close()


async def test_lost_connection_does_not_become_idle(tmp_path: Path) -> None:
    relayed = Relayed(str(tmp_path / "s"), ends_at_once=True)
    relayed.upstream.may_connect.set()
    async with relayed.serving():
        with contextlib.suppress(ConnectionError):
            connection = await relayed.upstream.connect()
            await until(lambda: connection.lost)
            relayed.upstream.give_back(connection)
        assert relayed.upstream.idle_connection() is None


async def test_request_of_a_client_that_left_is_not_sent(tmp_path: Path, authority: Authority) -> None:
    """While the relay connects to the upstream it does not read; only the loss of a TLS connection is seen then."""
    config = ServerConfig(tls_cert=authority.cert, tls_key=authority.key)
    tls = await asyncio.to_thread(ServerTls, config)
    relayed = Relayed(str(tmp_path / "s"), tls=tls.context)
    async with relayed.serving() as address:
        _, writer = await asyncio.open_connection(*address, ssl=ssl.create_default_context(cafile=authority.ca))
        writer.write(REQUEST + b"abcdef")
        await until(lambda: relayed.upstream.connecting)
        writer.transport.abort()
        await until(lambda: not len(relayed.table))
        relayed.upstream.may_connect.set()
        await until(lambda: not relayed.upstream.connecting)
        _, upstream = await relayed.requests.get()
        upstream.close()
        assert relayed.upstream.requests == 0
        assert relayed.upstream.idle_connection() is not None
