"""Bodies that never end, and bodies that grow: what they take of memory together is bounded."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading

import pytest

from tests.hostile.conftest import HostileServer
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

MB = 2**20
# How many of the largest bodies the server keeps; while one is put together it may be there three times.
BODIES = 8
# Threads and modules that came to be used, and what the allocator keeps; it does not grow with the bodies.  Up to
# 111 MB were seen beside other work; sixty bodies that nothing bounds would be 480 MB and more.
LEFT = 128 * MB
SIZES = [8, pytest.param(64, marks=pytest.mark.soak)]


def small(server: ServerProcess) -> str:
    g = GraphBuilder()
    g.const("y", 1.0)
    return server.create(g)


@pytest.mark.parametrize("megabytes", SIZES)
def test_unfinished_bodies(hostile_server: HostileServer, megabytes: int) -> None:
    """Twenty of nearly the largest size: some are refused, and memory is free again when their clients have left."""
    server = hostile_server(max_body_mb=megabytes)
    handle = small(server)
    body = b" " * (megabytes * MB * 9 // 10)
    head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(body) + 1}\r\n\r\n".encode()

    def send(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(head + body)

    before = server.resident
    with server.watched() as watch:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(server.connection()) for _ in range(20)]
            senders = [threading.Thread(target=send, args=(connection,)) for connection in connections]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            assert server.run(handle, fetches=["y"]).status == 200
        server.until(lambda: not server.runs(handle))
        server.until(lambda: server.resident < before + LEFT)
    assert watch.grown < 3 * BODIES * megabytes * MB + LEFT and not watch.failures


@pytest.mark.parametrize("megabytes", SIZES)
def test_compressed_bodies(hostile_server: HostileServer, megabytes: int) -> None:
    server = hostile_server(max_body_mb=megabytes)
    handle = small(server)
    body = gzip.compress(bytes(megabytes * MB))
    head = (
        f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/x-protobuf\r\n"
        f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with server.watched() as watch, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connection()) for _ in range(60)]
        for connection in connections:
            connection.sendall(head + body)
        answers = [int(connection.recv(1000)[9:12]) for connection in connections]
    assert set(answers) == {400, 429}
    assert watch.grown < 3 * BODIES * megabytes * MB + LEFT and not watch.failures
