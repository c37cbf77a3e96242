"""Large answers, for many who read them and many who do not: the server answers others, and takes little memory."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.hostile.test_clients_that_leave import forever
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

MB = 1 << 20
# What a connection may keep of an answer: a piece or two here, and what the sockets have.
KEPT = 1 * MB


def constant(megabytes: int) -> GraphBuilder:
    """A graph of one constant of numbers."""
    g = GraphBuilder()
    g.const("c", np.random.default_rng(0).integers(0, 255, megabytes * MB).astype(np.uint8))
    return g


def many_nodes(megabytes: int) -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x")
    for number in range(megabytes * 12_000):
        g(f"a/name/of/some/length/{number}", "Neg", "x", T=dtypes.float32)
    return g


def ask(server: ServerProcess, path: str, *, accept: str, method: str = "GET", body: str = "") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=100)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(f"{head}{body}".encode())
    return connection


def read_all(connection: socket.socket, sizes: list[int]) -> None:
    response = http.client.HTTPResponse(connection)
    response.begin()
    assert response.status == 200
    sizes.append(sum(map(len, iter(lambda: response.read(1 << 16), b""))))


@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize(
    ("make", "accept", "clients"),
    [
        (partial(constant, 4), "application/json", 3),
        pytest.param(partial(constant, 30), "application/json", 24, marks=pytest.mark.soak),
        pytest.param(partial(constant, 30), "text/plain", 24, marks=pytest.mark.soak),
        pytest.param(partial(constant, 30), "application/octet-stream", 24, marks=pytest.mark.soak),
        pytest.param(partial(many_nodes, 2), "application/json", 8, marks=pytest.mark.soak),
        pytest.param(partial(many_nodes, 2), "text/plain", 8, marks=pytest.mark.soak),
    ],
    ids=["small", "json", "text", "bytes", "nodes", "nodes as text"],
)
def test_graphs_for_many(
    hostile_server: HostileServer, make: Callable[[], GraphBuilder], accept: str, clients: int, hosts: int
) -> None:
    server = hostile_server(hosts=hosts)
    handle, other = server.create(make()), server.create(constant(1))
    path = f"/v1/sessions/{handle}/graph"
    server.call("GET", path, headers={"Accept": accept})  # a constant is decoded once, and is an array then
    with contextlib.ExitStack() as stack, server.watched() as watch:
        for _ in range(clients):
            stack.enter_context(ask(server, path, accept=accept))
        readers = [stack.enter_context(ask(server, path, accept=accept)) for _ in range(clients)]
        sizes: list[int] = []
        threads = [threading.Thread(target=read_all, args=(reader, sizes)) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(sizes) == clients and len(set(sizes)) == 1 and sizes[0] > MB
    assert watch.worst < LIVE_WITHIN and not watch.failures
    assert watch.grown < 40 * MB + 2 * clients * KEPT
    assert server.run(other, fetches=["c"]).status == 200


@pytest.mark.parametrize("readers", [12, pytest.param(60, marks=pytest.mark.soak)])
def test_answers_of_a_client_with_many_delay_no_other_client(hostile_server: HostileServer, readers: int) -> None:
    """Each answer is made in pieces, one at a time; clients get the turn to make one in turn."""
    server = hostile_server()
    handle, other = server.create(many_nodes(2)), server.create(constant(1))
    path = f"/v1/sessions/{other}/graph"
    accept = {"Accept": "application/json"}
    server.call("GET", path, headers=accept)
    with contextlib.ExitStack() as stack:
        asked = [
            stack.enter_context(ask(server, f"/v1/sessions/{handle}/graph", accept="application/json"))
            for _ in range(readers)
        ]
        for connection in asked:
            assert connection.recv(12) == b"HTTP/1.1 200"
        with ThreadPoolExecutor(2) as threads:
            asking = partial(server.call, "GET", path, headers=accept)
            own, others = threads.map(lambda address: asking(address=address), ("127.0.0.1", "127.0.0.2"))
    assert own.status == others.status == 200
    assert others.seconds < own.seconds / 2


@pytest.mark.parametrize("readers", [6, pytest.param(50, marks=pytest.mark.soak)])
def test_readers_of_events_that_do_not_read(hostile_server: HostileServer, readers: int) -> None:
    server = hostile_server()
    handle = server.create(constant(10))
    body = '{"feeds": {}, "fetches": ["c"]}'
    with server.watched() as watch, contextlib.ExitStack() as stack:
        for _ in range(readers):
            run = ask(server, f"/v1/sessions/{handle}:run", accept="text/event-stream", method="POST", body=body)
            stack.enter_context(run)
        server.until(lambda: server.call("GET", "/v1/status").body["tensor_bytes"] >= readers * KEPT // 2)
    assert watch.worst < LIVE_WITHIN
    assert watch.grown < 40 * MB + readers * KEPT


@pytest.mark.parametrize(("followers", "runs"), [(60, 150), pytest.param(200, 400, marks=pytest.mark.soak)])
def test_followers_of_a_session_with_many_runs(hostile_server: HostileServer, followers: int, runs: int) -> None:
    """The runs are described once for all of them, whether they read or not."""
    server = hostile_server()
    handle = server.create(forever())
    path = f"/v1/sessions/{handle}/events"
    with contextlib.ExitStack() as stack:
        for _ in range(runs):
            server.send_run(stack.enter_context(server.connection()), handle, fetches=["element"])
        server.until(lambda: len(server.runs(handle)) == runs)
        with server.watched() as watch:
            followed = [stack.enter_context(ask(server, path, accept="application/x-ndjson")) for _ in range(followers)]
            for connection in followed:
                assert connection.recv(12) == b"HTTP/1.1 200"
            for _ in range(50):
                assert server.call("GET", "/livez").status == 200
    assert watch.worst < LIVE_WITHIN and not watch.failures
    assert watch.grown < 40 * MB + followers * KEPT
    server.delete(handle)
