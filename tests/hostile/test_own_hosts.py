"""Sessions in hosts of their own: what a client does to its host harms no other client."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN
from tests.hostile.test_hosts import counted, square
from tests.hostile.test_messages import GRAPH
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import Answer, ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One with `TestHold`, which clients may use; each test has addresses of its own, and deletes its sessions."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "sitecustomize.py").write_text("import tests.support.stand_ins.holding_ops")
    options: dict[str, Any] = {"hosts": "auto", "trust_graphs": True, "host_silence": "300ms", "example": True}
    process = ServerProcess(folder, first=folder, **options)
    yield process
    process.stop()


def holding() -> GraphBuilder:
    g = GraphBuilder()
    g("held", "TestHold")
    return g


def counter() -> GraphBuilder:
    """`total` is what `x` added up to in all runs of `add`."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [])
    g.const("zero", 0.0, dtypes.float32)
    g("v", "VarHandleOp", dtype=dtypes.float32, shape=[])
    g("start", "AssignVariableOp", "v", "zero", dtype=dtypes.float32)
    g("add", "AssignAddVariableOp", "v", "x", dtype=dtypes.float32)
    g("total", "ReadVariableOp", "v", dtype=dtypes.float32)
    return g


def addresses(place: int, count: int) -> list[str]:
    return [f"127.0.{place}.{n + 1}" for n in range(count)]


def host(handle: str) -> str:
    return handle.partition("-")[0]


def post(server: ServerProcess, address: str, query: str = "", **headers: str) -> Answer:
    """Ask for a session."""
    graph = square().graph_def.SerializeToString()
    return server.call("POST", f"/v1/sessions{query}", graph, GRAPH | headers, address=address)


def test_clients_of_a_trusted_proxy_have_hosts_of_their_own(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, hosts="auto", max_client_sessions=1, trusted_proxies="127.0.9.0/24,10.0.0.0/8")
    try:

        def asked(address: str, forwarded: str) -> Answer:
            return post(server, address, **{"X-Forwarded-For": forwarded})

        one, other = asked("127.0.9.1", "1.2.3.4, 203.0.113.9, 10.0.0.1"), asked("127.0.9.2", "203.0.113.8")
        assert (one.status, other.status) == (201, 201)
        assert host(one.body["session_handle"]) != host(other.body["session_handle"])
        refused = asked("127.0.9.3", "203.0.113.9")
        assert refused.status == 429 and "203.0.113.9" in refused.body["error"]
        # The words of one that is no proxy are not taken.
        assert asked("127.0.8.1", "203.0.113.7").status == 201
        refused = asked("127.0.8.1", "203.0.113.6")
        assert refused.status == 429 and "127.0.8.1" in refused.body["error"]
    finally:
        server.stop()


def test_graph_that_holds_its_host_ends_no_other_session(server: ServerProcess) -> None:
    attacker, *others = addresses(1, 7)
    sessions = [server.create(counter(), address=address) for address in others]
    for number, handle in enumerate(sessions):
        assert server.run(handle, targets=["start"]).status == 200
        assert server.run(handle, feeds={"x": number}, targets=["add"]).status == 200
    own = server.create(square(), address=attacker)
    holds = server.create(holding(), address=attacker)
    before = counted(server, "aexec_host_restarts_total")
    with server.watched() as watch:
        answer = server.run(holds, targets=["held"])
        assert answer.status == 503 and "did not answer for 0.3 s" in answer.body["error"]
        for number, handle in enumerate(sessions):
            assert server.run(handle, fetches=["total"]).body["outputs"] == {"total": number}
    assert watch.worst < LIVE_WITHIN and not watch.failures
    assert server.run(own, feeds={"x": [3]}, fetches=["y"]).status == 200
    gone = server.run(holds, targets=["held"])
    assert gone.status == 404 and "is gone: its host was ended" in gone.body["error"]
    assert counted(server, "aexec_host_restarts_total") == before + 1
    # Who breaks hosts waits, and nobody else does.
    refused = post(server, attacker)
    assert refused.status == 429 and refused.body["code"] == "RESOURCE_EXHAUSTED"
    assert refused.headers["Retry-After"] == "1" and "1 session host lately" in refused.body["error"]
    made = post(server, others[0])
    assert made.status == 201
    for handle in (*sessions, own, made.body["session_handle"]):
        server.delete(handle)


def test_host_ends_when_its_sessions_do(server: ServerProcess) -> None:
    (address,) = addresses(2, 1)
    handles = [server.create(square(), address=address) for _ in range(3)]
    assert len({host(handle) for handle in handles}) == 3
    processes = [server.host_of(handle) for handle in handles]
    ran = server.ran
    # Those of other tests' hosts are reported within some tenths of a second.
    server.until(lambda: counted(server, 'aexec_runs_total{code="OK",model=""}') == ran)
    for handle in handles:
        assert server.run(handle, feeds={"x": [3]}, fetches=["y"]).status == 200
        server.delete(handle)
    # One is kept for some seconds, for the client's next session.
    server.until(lambda: sum(os.path.exists(f"/proc/{pid}") for pid in processes) == 1)
    assert server.run(handles[0], fetches=["y"]).status == 404
    assert host(server.create(square(), address=address)) in map(host, handles)
    server.until(lambda: counted(server, 'aexec_runs_total{code="OK",model=""}') == ran + 3)


def test_hosts_of_failed_requests_are_used_again(server: ServerProcess) -> None:
    (address,) = addresses(3, 1)
    for _ in range(5):
        assert server.call("POST", "/v1/sessions", b"none", GRAPH, address=address).status == 400
    before = len(server.hosts)
    for _ in range(3):
        server.delete(server.create(square(), address=address))
    assert len(server.hosts) <= before + 2


def test_names_are_of_one_client(server: ServerProcess) -> None:
    mine, others = addresses(4, 2)
    assert post(server, mine, "?name=own-name").status == 201
    for address in (mine, others):
        answer = post(server, address, "?name=own-name")
        assert answer.status == 409 and answer.body["code"] == "ALREADY_EXISTS"
    assert post(server, others, "?name=example").status == 409
    assert post(server, others, "?name=no%20name").status == 400
    # Whoever knows a name may use it, where there are no tokens.
    answer = server.call("POST", "/v1/sessions/own-name:run", {"feeds": {"x": [3]}, "fetches": ["y"]}, address=others)
    assert answer.body["outputs"] == {"y": [9.0]}
    assert server.run("own-other", fetches=["y"]).status == 404
    server.delete("own-name")
    assert post(server, mine, "?name=own-name").status == 201
    server.delete("own-name")
    server.until(lambda: post(server, others, "?name=own-name").status == 201)


def test_name_of_a_failed_request_is_free_again(server: ServerProcess) -> None:
    mine, others = addresses(5, 2)
    assert server.call("POST", "/v1/sessions?name=failed", b"none", GRAPH, address=mine).status == 400
    assert post(server, mine, "?name=failed").status == 201
    server.delete("failed")
    server.until(lambda: post(server, others, "?name=failed").status == 201)


def test_keys_are_of_one_client(server: ServerProcess) -> None:
    mine, others = addresses(6, 2)
    key = {"Idempotency-Key": "key"}
    first, again, theirs = (post(server, address, **key) for address in (mine, mine, others))
    assert first.body == again.body and host(first.body["session_handle"]) != host(theirs.body["session_handle"])
    # What was carried out is never carried out again, though its host has ended.
    kept = post(server, mine).body["session_handle"]
    pid = server.host_of(first.body["session_handle"])
    for handle in (first.body["session_handle"], kept):
        server.delete(handle)
    server.until(lambda: not os.path.exists(f"/proc/{pid}"))
    spent = post(server, mine, **key)
    assert spent.status == 410 and spent.body["reason"] == "answer_forgotten"


def test_operations_outlive_their_session(server: ServerProcess) -> None:
    (address,) = addresses(7, 1)
    handle = server.create(square(), address=address)
    body = {"feeds": {"x": [3]}, "fetches": ["y"]}
    answer = server.call("POST", f"/v1/sessions/{handle}:run", body, {"Prefer": "respond-async"})
    path = f"/v1/{answer.body['name']}"
    assert server.call("GET", f"{path}?wait_s=30").body["response"]["outputs"] == {"y": [9.0]}
    server.delete(handle)
    other = server.create(square(), address=address)
    assert host(other) != host(handle)
    assert server.call("GET", path).body["response"]["outputs"] == {"y": [9.0]}


def test_killed_host_is_not_replaced_for_its_client(server: ServerProcess) -> None:
    (address,) = addresses(8, 1)
    handle = server.create(square(), address=address)
    os.kill(server.host_of(handle), signal.SIGKILL)
    server.until(lambda: server.run(handle, fetches=["y"]).status == 404)
    assert post(server, address).status == 429


def test_status_names_a_hundred_hosts_at_most(server: ServerProcess) -> None:
    server.until(lambda: server.call("GET", "/v1/status").body["hosts"])  # the first ones have begun
    status = server.call("GET", "/v1/status").body
    assert status["host_count"] >= len(status["hosts"]) > 0
    assert status["tensor_bytes_limit"] == counted(server, 'aexec_memory_bytes{kind="limit"}') > 0
    assert "host=" not in server.call("GET", "/metrics").body.decode()
