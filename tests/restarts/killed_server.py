"""A server that is killed under load again and again, and a model of what its durable session may hold then.

Each client adds 1 to its own element of a variable, and puts numbers that no other has into a queue, one request after
the other, each with a key of its own.  When the server is killed, it repeats its last request at the next server.
Requests without keys, whose runs are direct, cannot be repeated: nobody knows whether the last was carried out.
What a relaxed session had acknowledged within the last second may be lost then, and nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aexec_server.durable.state_database import DATABASE

from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

__all__ = ["Rounds"]

CLIENTS = 4
# A relaxed session may lose what it acknowledged in the last second; the machine may be busy besides.
_LOST_SECONDS = 1.5
_PAUSE_SECONDS = 0.05
_BROKEN = (OSError, http.client.HTTPException, socket.timeout)


def _graph() -> GraphBuilder:
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=dtypes.float64, shape=[CLIENTS], shared_name="v")
    g.placeholder("x", dtypes.float64, [CLIENTS])
    g("set", "AssignVariableOp", "v", "x", dtype=dtypes.float64)
    g("add", "AssignAddVariableOp", "v", "x", dtype=dtypes.float64)
    g("read", "ReadVariableOp", "v", dtype=dtypes.float64)
    g("after", "ReadVariableOp", "v", "^add", dtype=dtypes.float64)
    g("q", "FIFOQueueV2", component_types=[dtypes.int64], shapes=[[]])
    g.placeholder("i", dtypes.int64, [])
    g("put", "QueueEnqueueV2", "q", "i", Tcomponents=[dtypes.int64])
    return g


@dataclass
class _Client:
    """What one client knows.

    Attributes:
        added, put: the number of additions, and the numbers put, that were acknowledged.
        unsure: those of which it was told that they may have been done or not.
        pending: its last request, while it has no answer to it.
        seen: the largest value of its element that an answer told.
        log: when it was answered, and `added` and `put` then.
    """

    number: int
    keyed: bool
    added: int = 0
    put: frozenset[int] = frozenset()
    unsure: Counter[str] = field(default_factory=Counter)
    unsure_put: set[int] = field(default_factory=set)
    pending: tuple[str, str, Any] | None = None
    seen: float = 0.0
    requests: int = 0
    log: list[tuple[float, int, frozenset[int]]] = field(default_factory=list)

    def next_request(self) -> tuple[str, str, Any]:
        self.requests += 1
        key = f"{self.number}-{self.requests}"
        if self.requests % 3:
            x = [float(i == self.number) for i in range(CLIENTS)]
            return "add", key, {"feeds": {"x": x}, "fetches": ["after"]}
        return "put", key, {"feeds": {"i": self.number * 1_000_000 + self.requests}, "targets": ["put"]}

    def answered(self, status: int, answer: Any, *, repeated: bool) -> None:
        assert self.pending is not None
        what, _, body = self.pending
        element = body["feeds"].get("i")
        if status == 409 and answer["reason"] == "interrupted" and repeated:
            self.unsure[what] += 1
            self.unsure_put |= {element} - {None}
        else:
            assert status == 200, (status, answer)
            if what == "add":
                self.added += 1
                self.seen = max(self.seen, answer["outputs"]["after"][self.number])
            else:
                self.put |= {element}
            self.log.append((time.monotonic(), self.added, self.put))
        self.pending = None

    def give_up(self) -> None:
        """Take a pending request that has no key to be unsure."""
        if self.pending is not None and not self.keyed:
            what, _, body = self.pending
            self.unsure[what] += 1
            self.unsure_put |= {body["feeds"].get("i")} - {None}
            self.pending = None

    def forget_from(self, when: float) -> None:
        """Take what was acknowledged since then to be unsure."""
        sure = [entry for entry in self.log if entry[0] < when]
        _, added, put = sure[-1] if sure else self.log[0]
        self.unsure["add"] += self.added - added
        self.unsure_put |= self.put - put
        self.added, self.put, self.seen = added, put, 0.0

    def settle(self, value: int) -> None:
        """Take what the next server has from the disk to be acknowledged."""
        self.added = value
        self.unsure.clear()
        self.log = [(0.0, self.added, self.put)]


class Rounds:
    """Kills a server in rounds.

    Args:
        folder: for the store and the log.
        seed: decides when the server is killed.
        durability: of the session.
        keyed: True if each request has a key.
        options: flags of the server.
    """

    def __init__(
        self, folder: Path, seed: int, *, durability: str = "strict", keyed: bool = True, **options: Any
    ) -> None:
        self._folder = folder
        self._durability = durability
        self._options = {"state": folder / "state", **options}
        self._random = random.Random(seed)
        self._clients = [_Client(number, keyed) for number in range(CLIENTS)]
        self._answers = 0
        self._failures: list[BaseException] = []
        self._handle = ""

    def run(self, rounds: int) -> None:
        """Kill the server so many times; check after each time."""
        for number in range(rounds):
            server = ServerProcess(self._folder, watch=False, **self._options)
            try:
                if not number:
                    self._handle = server.create(_graph(), durable=True, durability=self._durability)
                    answer = server.run(self._handle, feeds={"x": [0.0] * CLIENTS}, targets=["set"])
                    assert answer.status == 200, answer
                    server.until(self._is_written)  # which a relaxed session does not wait for
                for client in self._clients:
                    client.give_up()
                if self._durability == "relaxed":
                    self._check_relaxed(server)  # before anything is changed, which it need not keep
                    self._repeat_pending(server)
                else:
                    self._repeat_pending(server)
                    self._check(server)
                self._load_and_kill(server)
            finally:
                server.expect_killed()
                server.process.kill()
                server.stop()

    def _is_written(self) -> bool:
        with contextlib.closing(sqlite3.connect(self._folder / "state" / DATABASE)) as database:
            return bool(database.execute("SELECT count(*) FROM tensors").fetchone()[0])

    def _load_and_kill(self, server: ServerProcess) -> None:
        enough = self._answers + self._random.randrange(1, 120)
        threads = [threading.Thread(target=self._load, args=(server.port, client)) for client in self._clients]
        for thread in threads:
            thread.start()
        server.until(lambda: self._answers >= enough or self._failures)
        server.process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for thread in threads:
            thread.join()
        assert not self._failures, self._failures
        if self._durability == "relaxed":
            for client in self._clients:
                client.forget_from(killed - _LOST_SECONDS)

    def _load(self, port: int, client: _Client) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while True:
                client.pending = client.pending or client.next_request()
                self._ask(connection, client)
        except _BROKEN:
            pass  # the server was killed
        except BaseException as error:
            self._failures.append(error)
        finally:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection, client: _Client, *, repeated: bool = False) -> None:
        assert client.pending is not None
        _, key, body = client.pending
        response = self._response(connection, json.dumps(body).encode(), key if client.keyed else "")
        answer = json.loads(response.read())
        if response.status == 429:  # the machine is busy, and nothing was done
            time.sleep(_PAUSE_SECONDS)
            return
        client.answered(response.status, answer, repeated=repeated)
        self._answers += 1

    def _response(self, connection: http.client.HTTPConnection, body: bytes, key: str) -> http.client.HTTPResponse:
        """The response to a request, which is sent as a whole, as it has to be for a direct run."""
        if connection.sock is None:
            connection.connect()
        head = f"POST /v1/sessions/{self._handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f'Idempotency-Key: "{key}"\r\n' if key else ""
        connection.sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        response = http.client.HTTPResponse(connection.sock, method="POST")
        response.begin()
        return response

    def _repeat_pending(self, server: ServerProcess) -> None:
        for client in self._clients:
            while client.pending is not None:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                self._ask(connection, client, repeated=True)
                connection.close()

    def _check(self, server: ServerProcess) -> None:
        """Nothing that was acknowledged is lost, and nothing was done twice."""
        values = server.run(self._handle, fetches=["read"]).body["outputs"]["read"]
        for client, value in zip(self._clients, values, strict=True):
            assert client.added <= value <= client.added + client.unsure["add"], (client, value)
            assert value >= client.seen, (client, value)
        acknowledged = set().union(*(client.put for client in self._clients))
        allowed = acknowledged.union(*(client.unsure_put for client in self._clients))
        found = self._elements(server)
        assert len(found) == len(set(found)) and acknowledged <= set(found) <= allowed

    def _check_relaxed(self, server: ServerProcess) -> None:
        """What was acknowledged in time is there, and nothing was added twice."""
        values = server.run(self._handle, fetches=["read"]).body["outputs"]["read"]
        for client, value in zip(self._clients, values, strict=True):
            more = client.unsure["add"] + (client.pending is not None and client.pending[0] == "add")
            assert client.added <= value <= client.added + more, (client, value)
            client.settle(int(value))
        queues = server.call("GET", f"/v1/sessions/{self._handle}/queues").body["queues"]
        size = queues[0]["size"] if queues else 0
        assert size >= sum(len(client.put) for client in self._clients)

    def _elements(self, server: ServerProcess) -> list[int]:
        """All elements of the queue, which are put back in their order."""
        path = f"/v1/sessions/{self._handle}/queues/q"
        queues = server.call("GET", f"/v1/sessions/{self._handle}/queues").body["queues"]
        size = queues[0]["size"] if queues else 0
        if not size:
            return []
        answer = server.call("POST", f"{path}:dequeue", {"count": size})
        elements: list[int] = answer.body["components"][0]
        put = server.call("POST", f"{path}:enqueue", {"components": [elements], "many": True})
        assert (answer.status, put.status) == (200, 200), (answer, put)
        return elements
