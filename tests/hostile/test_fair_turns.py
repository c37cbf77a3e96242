"""Many who compute for ever: nobody else waits for all of them."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.support.graphs import GraphBuilder


def endless() -> GraphBuilder:
    """`exit` comes when counting ends, which it never does."""
    g = GraphBuilder()
    constants = [("zero", 0.0, dtypes.float32), ("one", 1.0, dtypes.float32), ("true", True, dtypes.bool_)]
    for name, value, dtype in constants:
        g.const(name, value, dtype)
        g(f"{name}_in", "Enter", name, T=dtype, frame_name="counting", is_constant=name != "zero")
    g("merge", "Merge", "zero_in", "next", T=dtypes.float32, N=2)
    g("condition", "LoopCond", "true_in")
    g("switch", "Switch", "merge", "condition", T=dtypes.float32)
    g("add", "AddV2", "switch:1", "one_in", T=dtypes.float32)
    g("next", "NextIteration", "add", T=dtypes.float32)
    g("exit", "Exit", "switch:0", T=dtypes.float32)
    return g


@pytest.mark.parametrize(
    ("loops", "sessions", "late", "live_within"),
    # `late` is by the clock on the wall: other tests run beside this one, and may hold the processors.
    [(60, 60, 2.0, LIVE_WITHIN), pytest.param(500, 100, 0.5, 3 * LIVE_WITHIN, marks=pytest.mark.soak)],
)
def test_endless_loops_in_many_sessions(
    hostile_server: HostileServer, loops: int, sessions: int, late: float, live_within: float
) -> None:
    """Deadlines end them in time, and other requests are answered meanwhile."""
    server = hostile_server(run_slots=loops)
    handles = [server.create(endless()) for _ in range(sessions)]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connection()) for _ in range(loops)]
        for number, connection in enumerate(connections):
            server.send_run(connection, handles[number % sessions], fetches=["exit"], options={"timeout_in_ms": 1000})
        began = time.monotonic()
        server.until(lambda: server.runs(handles[-1]))
        with server.watched() as watch:
            answers = [_status(connection) for connection in connections]
            assert time.monotonic() - began < 1 + late
        assert watch.worst < live_within and not watch.failures
    assert set(answers) == {504}


def _status(connection: socket.socket) -> int:
    return int(connection.recv(1000)[9:12])
