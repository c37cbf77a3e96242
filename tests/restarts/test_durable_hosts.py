"""Durable sessions in session hosts: when a host ends, another opens its sessions."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.durable.graphs import counter_graph
from tests.support.server_process import ServerProcess

Serve = Callable[..., ServerProcess]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Makes servers with one store; a killed one is replaced."""
    servers: list[ServerProcess] = []

    def make(hosts: str) -> ServerProcess:
        if servers:
            servers[-1].process.kill()
            servers[-1].expect_killed()
            servers.pop().stop()
        servers.append(ServerProcess(tmp_path, watch=False, hosts=hosts, state=tmp_path / "state"))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def _counter(server: ServerProcess, **fields: Any) -> str:
    handle = server.create(counter_graph(), durable=True, **fields)
    assert server.run(handle, feeds={"x": [1]}, targets=["set"]).status == 200
    return handle


def _add(server: ServerProcess, handle: str, key: str) -> tuple[int, bool]:
    """(status, whether the answer was a stored one)."""
    body = {"feeds": {"x": [1]}, "targets": ["add"]}
    answer = server.call("POST", f"/v1/sessions/{handle}:run", body, {"Idempotency-Key": f'"{key}"'})
    return answer.status, "Idempotent-Replayed" in answer.headers


def _read(server: ServerProcess, handle: str) -> Any:
    answer = server.run(handle, fetches=["read"])
    assert answer.status == 200, answer
    return answer.body["outputs"]["read"]


def _end_host(server: ServerProcess, handle: str) -> None:
    """Kill the host of a session, and wait until the server knows."""
    host = server.host_of(handle)
    os.kill(host, signal.SIGKILL)
    server.until(lambda: "another takes its place" in server.log)


def test_session_of_a_killed_host_is_opened_in_another(serve: Serve) -> None:
    server = serve("2")
    handle = _counter(server)
    assert _add(server, handle, "a") == (200, False)
    _end_host(server, handle)
    assert _read(server, handle) == [2]
    assert _add(server, handle, "a") == (200, True)
    assert _add(server, handle, "b") == (200, False)
    assert _read(server, handle) == [3]


@pytest.mark.parametrize("hosts", ["2", "auto"])
def test_session_in_a_host_survives_its_server(serve: Serve, hosts: str) -> None:
    server = serve(hosts)
    handle, other = _counter(server), _counter(server)
    assert _add(server, handle, "a") == (200, False)
    server = serve(hosts)
    assert _read(server, other) == [1]
    assert _add(server, handle, "a") == (200, True)
    assert _read(server, handle) == [2]
    server.delete(handle)
    assert server.run(handle, fetches=["read"]).status == 404
    server = serve(hosts)
    assert server.run(handle, fetches=["read"]).status == 404
    assert _read(server, other) == [1]


def test_creation_with_a_key_is_answered_by_any_host(serve: Serve) -> None:
    server = serve("2")
    key = {"Idempotency-Key": '"make"'}
    body = {"graph_def": base64.b64encode(counter_graph().graph_def.SerializeToString()).decode(), "durable": True}
    made = server.call("POST", "/v1/sessions", body, key)
    server = serve("2")
    again = server.call("POST", "/v1/sessions", body, key)
    assert (made.status, again.status) == (201, 201) and again.body == made.body


@pytest.mark.parametrize(
    ("hosts", "all_of_it"),
    [
        ("2", False),
        ("auto", True),
        *(pytest.param(*rest, marks=pytest.mark.soak) for rest in (("2", True), ("auto", False))),
    ],
)
def test_operation_survives_its_host_and_its_server(serve: Serve, hosts: str, *, all_of_it: bool) -> None:
    server = serve(hosts)
    handle = _counter(server)
    body = {"feeds": {"x": [1]}, "fetches": ["after"]}
    answer = server.call("POST", f"/v1/sessions/{handle}:run", body, {"Prefer": "respond-async"})
    assert answer.status == 202, answer
    where = answer.headers["Location"]
    told = server.call("GET", f"{where}?wait_s=60").body
    assert told["response"]["outputs"] == {"after": [2]}
    if all_of_it:
        server = serve(hosts)
    else:
        _end_host(server, handle)
    found = server.call("GET", where)
    while found.status == 429:  # a client whose host was killed waits for the next
        time.sleep(0.1)
        found = server.call("GET", where)
    assert (found.status, found.body) == (200, told)
    assert server.call("DELETE", where).status == 204
    assert server.call("GET", where).status == 404
    assert _read(server, handle) == [2]


def test_name_of_a_stored_session_is_taken(serve: Serve) -> None:
    server = serve("2")
    answer = server.call("POST", "/v1/sessions?name=mine", {"graph_def": "", "durable": True})
    assert answer.status == 201, answer
    server = serve("2")
    assert server.call("POST", "/v1/sessions?name=mine", {"graph_def": ""}).status == 409
    assert server.call("GET", "/v1/sessions/mine").status == 200
