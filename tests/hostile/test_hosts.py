"""Session hosts: one that hangs, dies or grows takes only its own sessions with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from aexec import errors
from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.hostile.test_clients_that_leave import forever
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess


def square() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    return g


def on_each_host(server: ServerProcess) -> tuple[str, str]:
    """Handles of two sessions that are on different hosts."""
    one, other = server.create(square()), server.create(square())
    assert one.partition("-")[0] != other.partition("-")[0]
    return one, other


def counted(server: ServerProcess, name: str) -> float:
    """One of the front's metrics, 0 if it is not there."""
    for line in server.call("GET", "/metrics").body.decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    return 0.0


@pytest.mark.parametrize(
    ("length", "why"),
    [
        (80, "A session host could not be started, with {} for temporary files: "),
        (120, "cannot listen on 127.0.0.1:0: "),
    ],
)
def test_server_that_cannot_have_hosts_ends_and_says_why(length: int, why: str) -> None:
    """Unix sockets have short paths: in folders of 80 characters multiprocessing's do not fit, then none do."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / ("f" * (length - len(base) - 1))
        folder.mkdir()
        command = [sys.executable, "-m", "aexec", "serve", "--port", "0", "--hosts", "2"]
        environment = os.environ | {"TMPDIR": str(folder)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 10 + errors.Code.UNAVAILABLE
        assert ended.stderr.splitlines()[-1] == f"aexec: UNAVAILABLE: {why.format(folder)}AF_UNIX path too long"
        assert "Traceback" not in ended.stderr
        assert not list(folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_host_that_dies_or_hangs_is_replaced(hostile_server: HostileServer, number: int) -> None:
    server = hostile_server(hosts=2)
    first, second = on_each_host(server)
    waiting = server.create(forever())
    with server.watched() as watch, server.connection() as connection:
        server.send_run(connection, waiting, fetches=["element"])
        server.until(lambda: server.runs(waiting))
        victim = server.host_of(waiting)
        lost, kept = (first, second) if waiting.partition("-")[0] == first.partition("-")[0] else (second, first)
        stop = threading.Event()
        statuses: list[int] = []

        def load() -> None:
            while not stop.is_set():
                statuses.append(server.run(kept, feeds={"x": [3]}, fetches=["y"]).status)

        others = threading.Thread(target=load)
        others.start()
        os.kill(victim, number)
        answer = connection.recv(4000)
        stop.set()
        others.join()
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code": "UNAVAILABLE"' in answer
    assert (b"SIGKILL" if number == signal.SIGKILL else b"did not answer for 1 s") in answer
    assert set(statuses) == {200}
    # Until the process has ended, which takes its time on a busy machine, the answer is 503 with Retry-After.
    server.until(lambda: server.run(lost, feeds={"x": [3]}, fetches=["y"]).status != 503)
    gone = server.run(lost, feeds={"x": [3]}, fetches=["y"])
    assert gone.status == 404 and "is gone: its host was ended" in gone.body["error"]
    assert gone.body["reason"] == "host_ended"
    assert server.run(server.create(square()), feeds={"x": [3]}, fetches=["y"]).body["outputs"] == {"y": [9.0]}
    ran = len(statuses) + 1
    server.until(lambda: counted(server, 'aexec_runs_total{code="OK",model=""}') >= ran)
    assert counted(server, "aexec_host_restarts_total") == 1 and counted(server, "aexec_sessions") == 2
    assert watch.worst < LIVE_WITHIN and not watch.failures


def test_host_that_grows_is_ended(hostile_server: HostileServer) -> None:
    # With limits that its session would reach before, its runs would be refused.
    server = hostile_server(hosts=1, max_host_mb=400, max_session_mb=1000, max_memory_mb=1000)
    g = GraphBuilder()
    g.placeholder("shape", dtypes.int32)
    g.const("one", 1.0, dtypes.float32)
    g("y", "Fill", "shape", "one", T=dtypes.float32, index_type=dtypes.int32)
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32], capacity=100)
    g("put", "QueueEnqueueV2", "queue", "y", Tcomponents=[dtypes.float32])
    handle = server.create(g)
    with server.watched() as watch:
        statuses = []
        while 503 not in statuses and 404 not in statuses and len(statuses) < 50:
            answer = server.run(handle, feeds={"shape": [2_000_000]}, targets=["put"])
            statuses.append(answer.status)
        server.until(lambda: server.run(handle, targets=["put"]).status == 404)
    assert "and may have 400" in server.run(handle, targets=["put"]).body["error"]
    assert watch.worst < LIVE_WITHIN
    assert server.create(square())


@pytest.mark.parametrize("hosts", [0, 1])
def test_access_log_keeps_handles_secret(hostile_server: HostileServer, hosts: int) -> None:
    server = hostile_server(hosts=hosts, access_log=True, step_log=True)
    handle = server.create(square())
    body = {"feeds": {"x": [3]}, "fetches": ["y"], "run_id": "named"}
    headers = {"traceparent": f"00-{'5a' * 16}-{'0b' * 8}-01"}
    answer = server.call("POST", f"/v1/sessions/{handle}:run", body, headers)
    assert answer.status == 200 and answer.headers["Aexec-Run-Id"] == "named"
    secret = handle.rpartition("-")[2]
    server.until(lambda: f"{secret[:6]}…:run 200 0." in server.log)
    (line,) = [line for line in server.log.splitlines() if ":run 200" in line and "aexec_server.access" in line]
    assert line.endswith(f"s run=named trace={'5a' * 16}")
    server.until(lambda: "run named of session" in server.log)
    assert handle not in server.log


def test_stopped_host_does_not_hold_up_the_end(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts=1, drain="0.1s")
    os.kill(server.hosts[0], signal.SIGSTOP)
    server.signal()
    assert server.wait(5) == 0


def test_hosts_end_with_their_front(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts=2)
    hosts = server.hosts
    assert len(hosts) == 2
    server.signal(signal.SIGKILL)
    server.until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in hosts), 5)
    server.expect_killed()


def test_clients_of_hosts_that_vanish(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts=1, example=True)
    handle = server.create(forever())
    with server.connection() as connection:
        server.send_run(connection, handle, fetches=["element"])
        server.until(lambda: server.runs(handle))
    server.until(lambda: not server.runs(handle))
    assert server.run("example", feeds={"x:0": [[1, 2, 3]]}, fetches=["y:0"]).status == 200
    handles = [one["session_handle"] for one in server.call("GET", "/v1/sessions").body["sessions"]]
    assert handles == ["example"]


def test_models_are_in_a_host_of_their_own(hostile_server: HostileServer, tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / "m" / str(number)
        folder.mkdir(parents=True)
        (folder / "model.pb").write_bytes(square().graph_def.SerializeToString())
    server = hostile_server(hosts=1, model_repository=str(tmp_path))
    assert len(server.hosts) == 2
    server.until(lambda: server.call("GET", "/readyz").status == 200)
    assert server.call("GET", "/v2/models/m").body["versions"] == ["2"]
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [3]}
    assert server.call("POST", "/v2/models/m/infer", {"inputs": [x]}).body["outputs"][0]["data"] == [9.0]
    assert server.call("POST", "/V1/models/m:predict", {"instances": [3]}).body == {"predictions": [9.0]}
    assert server.run("m", inputs={"x": [3]}).body["outputs"] == {"y": [9.0]}
    assert server.call("POST", "/v2/repository/index", {}).body[0]["state"] == "READY"
    assert server.run("nobody", inputs={"x": [3]}).status == 404


def test_sessions_with_names_are_found_in_their_hosts(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts=2, example=True)
    graph = square().graph_def.SerializeToString()
    octets = {"Content-Type": "application/octet-stream"}
    names = [f"name-{n}" for n in range(6)] + ["1-f"]
    for status in (201, 409):
        for name in names:
            assert server.call("POST", f"/v1/sessions?name={name}", graph, octets).status == status
    for name in names:
        assert server.run(name, feeds={"x": [3]}, fetches=["y"]).body["outputs"] == {"y": [9.0]}
    setup = {"feeds": ["x"], "fetches": ["y"]}
    handle = server.call("POST", "/v1/sessions/name-0:partialRunSetup", setup).body["partial_run_handle"]
    part = {"feeds": {"x": [4]}, "fetches": ["y"]}
    assert server.call("POST", f"/v1/sessions/name-0/partialRuns/{handle}:run", part).body["outputs"] == {"y": [16.0]}
    assert server.call("POST", "/v1/sessions?name=example", graph, octets).status == 409
    assert server.run("example", feeds={"x:0": [[1, 2, 3]]}, fetches=["y:0"]).status == 200


def test_operations_and_keys_are_found_in_their_hosts(hostile_server: HostileServer) -> None:
    server = hostile_server(hosts=2, example=True)
    sessions = [server.create(square()) for _ in range(2)]
    runs = [(handle, {"feeds": {"x": [3]}, "fetches": ["y"]}) for handle in sessions]
    runs.append(("example", {"inputs": {"x": [[1, 2, 3]]}}))
    for handle, body in runs:
        answer = server.call("POST", f"/v1/sessions/{handle}:run", body, {"Prefer": "respond-async"})
        assert answer.status == 202
        path = f"/v1/{answer.body['name']}"
        assert server.call("GET", f"{path}?wait_s=30").body["response"]["outputs"]
        assert server.call("DELETE", path).status == 204
        assert server.call("GET", path).status == 404
    made = [
        server.call(
            "POST",
            "/v1/sessions",
            square().graph_def.SerializeToString(),
            {"Content-Type": "application/octet-stream", "Idempotency-Key": f"key-{i % 4}"},
        ).body["session_handle"]
        for i in range(8)
    ]
    assert made[:4] == made[4:] and len(set(made)) == 4
    answer = server.call("POST", f"/v1/sessions/{made[0]}:run", runs[0][1], {"Accept": "text/event-stream"})
    assert b"event: done" in answer.body
