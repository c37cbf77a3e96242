"""Graphs of one op with extreme attrs, shapes and values, sent to a server as a client sends them; and graphs of a few
ops that cost much and are made of little.

`tests/kernels/test_every_op.py` makes the same calls within a process, and sees more of each; here it is seen what a
client does to all others, with session hosts and without.  A graph of the soak is repeated by
`python -m tests.hostile.test_one_op_graphs auto chained_attack Op seed`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aexec import proto
from aexec.framework.wire import tensor_codec
from tests.hostile.conftest import LIVE_WITHIN
from tests.hostile.test_hosts import counted
from tests.hostile.test_own_hosts import counter
from tests.support.foreign_errors import foreign_words
from tests.support.programs.attacks import chained_attack
from tests.support.programs.extreme_calls import ExtremeCall, enlarged_call, extreme_call, ops_to_run
from tests.support.programs.seeds import Seeds
from tests.support.server_process import Answer, ServerProcess
from tests.support.watcher import seconds_waited, seconds_waited_in_threads

MB = 2**20
GRAPH = {"Content-Type": "application/octet-stream"}
RUN = {"Content-Type": "application/x-protobuf"}
# Seconds: a run's deadline, how much later it may be answered, and after which nothing of it may be left.
DEADLINE, LATE, FREED = 0.3, 0.1, 2.0
# What tensors may take, and what more there is when they take it: what kernels need for themselves, and the process.
RUN_MB, MORE_MB = 200, 400
HOSTS: list[Any] = [0, 2, "auto"]
Make = Callable[[str, int], ExtremeCall]
MAKERS: list[Make] = [extreme_call, enlarged_call, chained_attack]
# Seconds in which `/livez` answers on a machine of its own, of a front without sessions too.
_LIVE, _LIVE_IN_FRONT = 0.1, 0.02
_MAY_ANSWER = {501, 503, 504}
_IN_USE = 'aexec_memory_bytes{kind="in_use"}'
_RESTARTS = "aexec_host_restarts_total"
_BYSTANDER = "127.0.9.1"
_BYSTANDERS = 2
# A busy machine makes much late: what is wrong each time counts.
_TRIES = 3


class Attacked:
    """A server that graphs are sent to, and on each of its hosts a session of another client, which keeps its value.

    Args:
        hosts: the server's setting.
        live_within: seconds in which it answers `/livez`.

    Attributes:
        worst: the most seconds that it took.
    """

    def __init__(self, hosts: Any, live_within: float) -> None:
        self.worst = 0.0
        self._hosts = hosts
        self._live_within = live_within
        self._folder = tempfile.TemporaryDirectory()
        self._started = 0
        self._server: ServerProcess | None = None

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _start(self) -> ServerProcess:
        self._started += 1
        folder = Path(self._folder.name, str(self._started))
        folder.mkdir()
        limits = {"max_run_mb": RUN_MB, "max_session_mb": 2 * RUN_MB, "max_memory_mb": 4 * RUN_MB}
        self._server = server = ServerProcess(folder, hosts=self._hosts, **limits)
        self._bystanders = [server.create(counter(), address=_BYSTANDER) for _ in range(_BYSTANDERS)]
        for number, handle in enumerate(self._bystanders):
            assert server.run(handle, targets=["start"]).status == 200
            assert server.run(handle, feeds={"x": number}, targets=["add"]).status == 200
        return server

    def send(self, make: Make, op: str, seed: int) -> None:
        """Raises AssertionError, with what was wrong each time that a graph was sent."""
        call = make(op, seed)
        wrong: list[str] = []
        while len(wrong) < _TRIES:
            try:
                return self._check(self._server or self._start(), call)
            except (AssertionError, OSError) as error:
                wrong.append(repr(error))
            if not self._is_whole():
                self._start_again(wrong)
        raise AssertionError(f"{make.__name__} {op} {seed}: {'; then '.join(wrong)}: {call}")

    def _is_whole(self) -> bool:
        """Does the server run, with all that it had?"""
        server = self._server
        try:
            assert server is not None
            self._ask_bystanders(server)
            return counted(server, _RESTARTS) == 0
        except (AssertionError, OSError):
            return False

    def _start_again(self, wrong: list[str]) -> None:
        try:
            self._stop()
        except AssertionError as error:
            wrong.append(str(error))

    def _check(self, server: ServerProcess, call: ExtremeCall) -> None:
        waited = -_waited_by_others(server)
        with server.watched() as watch:
            answer = _ask(server, call)
        waited += _waited_by_others(server)
        assert answer.status < 500 or answer.status in _MAY_ANSWER, answer
        assert answer.status == 200 or not foreign_words(json.dumps(answer.body)), answer
        assert watch.worst < self._live_within + max(0.0, waited) and not watch.failures, watch
        assert watch.grown < (RUN_MB + MORE_MB) * MB, watch
        self._ask_bystanders(server)
        # The bystanders' variables take some bytes.
        server.until(lambda: counted(server, _IN_USE) < 100, FREED)
        assert counted(server, _RESTARTS) == 0, f"a session host was ended: {answer}"
        self.worst = max(self.worst, watch.worst)

    def _ask_bystanders(self, server: ServerProcess) -> None:
        for number, handle in enumerate(self._bystanders):
            answer = server.run(handle, fetches=["total"])
            assert answer.status == 200 and answer.body["outputs"] == {"total": number}, answer


def _waited_by_others(server: ServerProcess) -> float:
    """Seconds for which threads beside its main one had no processor: they may have held the interpreter's lock."""
    return seconds_waited_in_threads(server.pid) - seconds_waited(server.pid)


def _ask(server: ServerProcess, call: ExtremeCall) -> Answer:
    """The answer to its run, or to its session if that cannot be had."""
    waited = -server.waited_in_threads
    made = server.call("POST", "/v1/sessions", call.graph_def.SerializeToString(), GRAPH)
    if made.status != 201:
        return made
    handle = made.body["session_handle"]
    feeds = [
        proto.NamedTensorProto(name=name, tensor=tensor_codec.to_proto(value)) for name, value in call.feeds.items()
    ]
    request = proto.RunStepRequest(feed=feeds, fetch=call.fetches, target=call.targets)
    request.options.timeout_in_ms = round(1000 * DEADLINE)
    answer = server.call("POST", f"/v1/sessions/{handle}:run", request.SerializeToString(), RUN)
    waited += server.waited_in_threads
    if answer.status != 503:  # it may have ended its host
        server.delete(handle)  # or what it keeps would count for the next
    assert answer.seconds < DEADLINE + LATE + max(0.0, waited), f"answered after {answer.seconds:.2f} s"
    return answer


@contextmanager
def attacked(hosts: Any, live_within: float) -> Iterator[Attacked]:
    server = Attacked(hosts, live_within)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("hosts", HOSTS, ids="{}-hosts".format)
def test_graphs_of_one_op_harm_nobody_else(hosts: Any) -> None:
    with attacked(hosts, LIVE_WITHIN) as server:
        for number, op in enumerate(random.Random(str(hosts)).sample(ops_to_run(), 8)):
            server.send(MAKERS[number % 3], op, 0)


@pytest.mark.soak
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("hosts", HOSTS, ids="{}-hosts".format)
def test_many_graphs_of_one_op_harm_nobody_else(hosts: Any, make: Make) -> None:
    ops, seeds = ops_to_run(), Seeds(100_000 if make is chained_attack else 20_000)
    with attacked(hosts, _LIVE_IN_FRONT if hosts else _LIVE) as server:
        for seed in seeds:
            with seeds.trying(seed):
                again, number = divmod(seed, len(ops))
                server.send(make, ops[number], again + 1)
    print(f"/livez was answered within {1000 * server.worst:.0f} ms")
    seeds.check()


if __name__ == "__main__":
    hosts, make, op, seed = sys.argv[1:]
    with attacked(hosts, _LIVE if hosts == "0" else _LIVE_IN_FRONT) as server:
        server.send(next(made for made in MAKERS if made.__name__ == make), op, int(seed))
