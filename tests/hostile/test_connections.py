"""Connections that do nothing, or as little as possible: others get in, and who is being answered stays."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator

import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.hostile.test_clients_that_leave import forever
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

HOSTS = [0, 1]
# Which runs are answered, and connections closed, is looked at once a second.
SWEEP = 1.0


@contextlib.contextmanager
def connections(server: ServerProcess, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(server.connection()) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    """Has the server closed it?"""
    if not _has_something(connection, 0):
        return False
    with contextlib.suppress(ConnectionResetError):
        return not connection.recv(1000)
    return True


def small(server: ServerProcess) -> str:
    g = GraphBuilder()
    g.const("y", 1.0)
    return server.create(g)


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize(
    ("most", "idle"),
    [(60, 200), pytest.param(1000, 1100, marks=pytest.mark.soak), pytest.param(4000, 5000, marks=pytest.mark.soak)],
)
def test_idle_connections_give_way(hostile_server: HostileServer, most: int, idle: int, hosts: int) -> None:
    """The oldest go first; neither a run in flight nor a newcomer is refused, and health is answered throughout."""
    server = hostile_server(max_connections=most, hosts=hosts)
    handle, waiting = small(server), server.create(forever())
    with server.connection() as asking:
        server.send_run(asking, waiting, fetches=["element"])
        server.until(lambda: server.runs(waiting))
        with server.watched() as watch, connections(server, idle) as idlers:
            assert server.run(handle, fetches=["y"]).status == 200
            server.until(lambda: sum(map(is_closed, idlers)) >= idle - most)
            closed = [is_closed(connection) for connection in idlers]
            gone = closed.index(False)
            assert all(closed[:gone]) and not any(closed[gone:])
            assert len(server.runs(waiting)) == 1 and not is_closed(asking)
    # The watcher's own connection is idle between two questions, and may be among those that go.
    assert watch.worst < 5 * LIVE_WITHIN and not any("refused" in why for why in watch.failures)


@pytest.mark.parametrize("hosts", HOSTS)
def test_bodies_that_do_not_come_give_way_too(hostile_server: HostileServer, hosts: int) -> None:
    server = hostile_server(max_connections=20, hosts=hosts)
    handle = small(server)
    head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
    with connections(server, 60) as senders:
        for sender in senders:
            with contextlib.suppress(OSError):
                sender.sendall(head)
        # While their heads are read they are being answered, for all that is known.
        server.until(lambda: _is_answered(server, handle))


@pytest.mark.parametrize("hosts", HOSTS)
def test_bodies_of_one_byte_take_no_slot(hostile_server: HostileServer, hosts: int) -> None:
    """A run begins when its body is there: until then a thousand keep nobody from running, however long it takes."""
    server = hostile_server(hosts=hosts, run_slots=2, max_runs=10)
    handle = small(server)
    head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
    with server.watched() as watch:
        with connections(server, 1000) as senders:
            for sender in senders:
                sender.sendall(head)
            time.sleep(0.5)  # longer than a run may wait to be begun
            answers = [server.run(handle, fetches=["y"]) for _ in range(20)]
            assert {answer.status for answer in answers} == {200}
        server.until(lambda: len(established(server)) <= 1)
    assert watch.worst < LIVE_WITHIN and not watch.failures


@pytest.mark.parametrize("hosts", HOSTS)
def test_newcomer_is_told_when_all_are_being_answered(hostile_server: HostileServer, hosts: int) -> None:
    server = hostile_server(max_connections=12, hosts=hosts, watch=False)
    handle = server.create(forever())
    with connections(server, 10) as asking:
        for connection in asking:
            server.send_run(connection, handle, fetches=["element"])
        server.until(lambda: len(server.runs(handle)) == 10)
        # What they sent, and the server does not read, does not cost them what they are told.
        large = b"POST /v1/sessions HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)
        last: list[socket.socket] = []
        with contextlib.ExitStack() as stack:

            def is_full() -> bool:
                """The last ask, again if they were taken for idle before they were read."""
                last[:] = [connection for connection in last if not is_closed(connection)]
                while len(last) < 2:
                    last.append(stack.enter_context(server.connection()))
                    server.send_run(last[-1], handle, fetches=["element"])
                return _is_refused(_told(server, large))

            server.until(is_full)
            assert all(_is_refused(_told(server, large)) for _ in range(20))
    server.until(lambda: server.call("GET", f"/v1/sessions/{handle}/runs").body.get("runs") == [])  # or 503 still


def _is_answered(server: ServerProcess, handle: str) -> bool:
    """Is a run, whose connection may be closed before it is sent?"""
    with contextlib.suppress(OSError):
        return server.run(handle, fetches=["y"]).status == 200
    return False


def _told(server: ServerProcess, request: bytes) -> bytes:
    """What a newcomer hears who reads when its request is sent."""
    with server.connection() as newcomer, contextlib.suppress(OSError):
        newcomer.sendall(request)
        return newcomer.recv(4000)
    return b""


def _is_refused(answer: bytes) -> bool:
    return b"HTTP/1.1 503 " in answer and b"Retry-After: 1\r\n" in answer


def _has_something(connection: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _read(connection: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(4000)
    return b""


@pytest.mark.parametrize("hosts", HOSTS)
def test_clients_that_are_too_slow(hostile_server: HostileServer, hosts: int) -> None:
    """With a head, between requests, with a body, and in taking an answer."""
    limits = {"header_timeout": "0.4s", "idle_timeout": "0.8s", "slow_timeout": "0.6s", "min_rate": 10_000}
    server = hostile_server(hosts=hosts, **limits)
    handle = server.create(zeros())
    began = time.monotonic()
    with connections(server, 4) as (dribbling, idle, sending, taking):
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        sending.sendall(
            f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n".encode()
        )
        taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        server.send_run(taking, handle, fetches=["y"])
        left = [dribbling, idle, sending]
        answer = b""
        while left and time.monotonic() - began < 10:
            for connection in (dribbling, sending):
                with contextlib.suppress(OSError):
                    connection.send(b"G" if connection is dribbling else b" ")
            if sending in left and _has_something(sending, 0):
                answer = _read(sending)
                left.remove(sending)
            left = [c for c in left if c is sending or not is_closed(c)]
            time.sleep(0.05)
        assert not left
        assert b"HTTP/1.1 408 " in answer and b"10000 bytes have to come in a second" in answer
        server.until(lambda: not any(port_of(taking) in line for line in established(server)))
        assert _taken(taking) < 4 * SIZE


SIZE = 2_000_000


def port_of(connection: socket.socket) -> str:
    return f":{connection.getsockname()[1]:04X}"


def established(server: ServerProcess) -> list[str]:
    """The server's ends of its connections, that it has not closed."""
    with open("/proc/net/tcp") as file:
        lines = file.readlines()[1:]
    return [line for line in lines if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "01"]


def zeros() -> GraphBuilder:
    g = GraphBuilder()
    g.const("shape", [SIZE], dtypes.int32)
    g.const("zero", 0.0, dtypes.float32)
    g("y", "Fill", "shape", "zero", T=dtypes.float32, index_type=dtypes.int32)
    return g


def _taken(connection: socket.socket) -> int:
    """Bytes that come until it is closed."""
    total = 0
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 20):
            total += len(data)
    return total
