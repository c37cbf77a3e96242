"""Clients that vanish, and servers that are told to stop while clients wait."""

from __future__ import annotations

import contextlib
import time

import pytest
from aexec_server.connections.listening import GRACE_SECONDS

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess


def forever() -> GraphBuilder:
    """`element` is dequeued from a queue into which nothing is put."""
    g = GraphBuilder()
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32], capacity=1)
    g("element", "QueueDequeueV2", "queue", component_types=[dtypes.float32])
    return g


def factorisation() -> GraphBuilder:
    """`s` are singular values of what `fill` makes, which one call of LAPACK computes for minutes."""
    g = GraphBuilder()
    g.const("shape", [4000, 4000], dtypes.int32)
    g("matrix", "RandomUniform", "shape", T=dtypes.int32, dtype=dtypes.float64)
    g("kept", "VarHandleOp", dtype=dtypes.float64, shape=[4000, 4000])
    g("fill", "AssignVariableOp", "kept", "matrix", dtype=dtypes.float64)
    g("read", "ReadVariableOp", "kept", dtype=dtypes.float64)
    g("s", "Svd", "read", T=dtypes.float64, compute_uv=True, full_matrices=True)
    return g


def test_runs_of_clients_that_vanish_are_cancelled(server: ServerProcess) -> None:
    handle = server.create(forever())
    with server.watched() as watch:
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                server.send_run(stack.enter_context(server.connection()), handle, fetches=["element"])
            server.until(lambda: len(server.runs(handle)) == 200)
            before = time.monotonic()
        server.until(lambda: not server.runs(handle))
        assert time.monotonic() - before < 5
    assert watch.worst < LIVE_WITHIN and not watch.failures
    server.delete(handle)


@pytest.mark.parametrize("hosts", [0, 1])
def test_told_to_stop_while_a_client_waits(hostile_server: HostileServer, hosts: int) -> None:
    server = hostile_server(hosts=hosts, drain="0.2s")
    handle = server.create(forever())
    with server.connection() as connection:
        server.send_run(connection, handle, fetches=["element"])
        server.until(lambda: server.runs(handle))
        server.signal()
        assert server.wait(5) == 0
        assert b"499" in connection.recv(1000)


def test_told_to_stop_while_a_thread_computes_what_cannot_be_stopped(hostile_server: HostileServer) -> None:
    server = hostile_server(drain="0.2s")
    handle = server.create(factorisation())
    assert server.run(handle, targets=["fill"]).status == 200
    with server.connection() as connection:
        server.send_run(connection, handle, fetches=["s"])
        server.until(lambda: any(run.get("running") for run in server.runs(handle)))
        server.signal()
        assert b"499" in connection.recv(1000)
        assert server.wait(0.2 + GRACE_SECONDS + 1) == 1
    assert "Svd" in server.log or "linalg" in server.log
    server.expected_status = 1
