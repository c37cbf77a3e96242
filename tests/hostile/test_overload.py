"""More runs than can be done: some are refused, soon, and the others do not wait for longer and longer."""

from __future__ import annotations

import statistics
import threading
import time

from aexec.framework import dtypes
from tests.hostile.conftest import HostileServer
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import Answer, ServerProcess

SLOTS = 4


def chain() -> GraphBuilder:
    """`y` takes ten milliseconds and more on the loop: of forty such runs the last would wait for too long."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    last = "x"
    for number in range(12_000):
        last = g(f"n{number}", "Tanh", last, T=dtypes.float32)
    g("y", "Identity", last, T=dtypes.float32)
    return g


def answers_of(server: ServerProcess, handle: str, clients: int, seconds: float) -> list[Answer]:
    """What so many clients are answered, each of which asks again at once."""
    answers: list[Answer] = []
    end = time.monotonic() + seconds

    def ask() -> None:
        while time.monotonic() < end:
            answers.append(server.run(handle, feeds={"x": [0.5]}, fetches=["y"]))

    asking = [threading.Thread(target=ask) for _ in range(clients)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    return answers


def test_run_that_cannot_begin_soon_is_refused(hostile_server: HostileServer) -> None:
    server = hostile_server(run_slots=SLOTS, queue_timeout="20ms")
    handle = server.create(chain())
    assert {answer.status for answer in answers_of(server, handle, SLOTS, 1)} == {200}
    overloaded: list[Answer] = []
    with server.watched() as watch:
        # Where clients get no processor they are no overload, and have to go on.
        for _ in range(5):
            overloaded += answers_of(server, handle, 40, 1.5)
            if any(answer.status == 429 for answer in overloaded):
                break
    refused = [answer for answer in overloaded if answer.status == 429]
    assert {answer.status for answer in overloaded} == {200, 429}
    assert all(answer.headers["Retry-After"] == "1" for answer in refused)
    assert all("more to do than it can" in answer.body["error"] for answer in refused)
    assert not watch.failures
    # By the clock on the wall, beside other tests: several times what it takes.
    assert statistics.median(answer.seconds for answer in refused) < 1
    after = answers_of(server, handle, 1, 0.2)
    assert {answer.status for answer in after} == {200}
