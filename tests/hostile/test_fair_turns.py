"""Many who compute for ever: nobody else waits for all of them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time

import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.support.programs.graphs import GraphBuilder


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


# Seconds that a run is allowed, and that its answer may come later.
DEADLINE, LATE = 2.0, 0.1


@pytest.mark.parametrize(("loops", "sessions"), [(60, 60), pytest.param(500, 100, marks=pytest.mark.soak)])
def test_endless_loops_in_many_sessions(hostile_server: HostileServer, loops: int, sessions: int) -> None:
    """Deadlines, which count from when a request came, end them in time, and other requests are answered meanwhile."""
    server = hostile_server(run_slots=loops)
    handles = [server.create(endless()) for _ in range(sessions)]
    options = {"timeout_in_ms": round(1000 * DEADLINE)}
    with contextlib.ExitStack() as stack, server.watched() as watch:
        connections = [stack.enter_context(server.connection()) for _ in range(loops)]
        sent: dict[socket.socket, float] = {}
        waited = -server.waited
        for number, connection in enumerate(connections):
            sent[connection] = time.monotonic()
            server.send_run(connection, handles[number % sessions], fetches=["exit"], options=options)
        server.until(lambda: server.runs(handles[-1]))
        waited += server.waited
        time.sleep(max(0.0, next(iter(sent.values())) + DEADLINE - time.monotonic()))
        waited -= server.waited
        answers = _answers(sent)
        waited += server.waited
    assert {status for status, _ in answers} == {504}
    latest = max(seconds for _, seconds in answers)
    # Where other tests hold the processors, they are read later, and told later.
    assert latest < DEADLINE + LATE + waited, (latest, waited)
    assert watch.worst < LIVE_WITHIN and not watch.failures


def _answers(sent: dict[socket.socket, float]) -> list[tuple[int, float]]:
    """The status of each answer, and how long after the request it came."""
    answers = []
    with selectors.DefaultSelector() as selector:
        for connection in sent:
            selector.register(connection, selectors.EVENT_READ)
        while len(answers) < len(sent):
            for key, _ in selector.select(30):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                answers.append((int(connection.recv(1000)[9:12]), time.monotonic() - sent[connection]))
                selector.unregister(connection)
    return answers
