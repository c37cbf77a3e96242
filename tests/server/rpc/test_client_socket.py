"""The process's own sockets, found by the address of their client."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from aexec_server.rpc.client_socket import bytes_taken, cut_off, open_sockets


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def connection(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's socket, and the server's."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    listener = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((request.param, 0))
    except OSError:
        listener.close()
        pytest.skip("this machine does not have the address")
    with listener:
        listener.listen()
        client = socket.create_connection((request.param.removeprefix("::ffff:"), listener.getsockname()[1]))
        with client, listener.accept()[0] as accepted:
            yield client, accepted


def test_connection_is_found_by_its_client(connection: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = connection
    host, port, *_ = client.getsockname()
    with open_sockets([(host, port), ("192.0.2.1", 4711)]) as found:
        assert [one.getsockname() for one in found.values()] == [accepted.getsockname()]
        assert found[host, port].fileno() != accepted.fileno()
    assert accepted.fileno() >= 0
    accepted.sendall(b"still open")
    assert client.recv(10) == b"still open"


def test_bytes_are_taken_when_the_client_has_them(connection: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = connection
    before = bytes_taken(accepted)
    if before is None:
        pytest.skip("this system does not tell what clients have taken")
    accepted.sendall(bytes(1000))
    client.recv(1000, socket.MSG_WAITALL)
    client.sendall(b"the acknowledgement comes with this at the latest")
    accepted.recv(1)
    assert bytes_taken(accepted) == before + 1000


def test_connection_that_is_cut_off_ends_on_both_sides(connection: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = connection
    host, port, *_ = client.getsockname()
    with open_sockets([(host, port)]) as found:
        cut_off(found[host, port])
    assert client.recv(1) == b""
    assert accepted.recv(1) == b""
