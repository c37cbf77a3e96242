"""Graphs of one op with extreme attrs, shapes and values, sent to a server as a client sends them; and graphs of a few
ops that cost much and are made of little.

`tests/kernels/test_every_op.py` makes the same calls within a process, and sees more of each; here it is seen what a
client does to all others, with session hosts and without.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from aexec import proto
from aexec.framework import tensor_codec
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.hostile.test_hosts import counted
from tests.support.attacks import chained_attack
from tests.support.extreme_calls import ExtremeCall, extreme_call, ops_to_run
from tests.support.foreign_errors import foreign_words
from tests.support.seeds import Seeds
from tests.support.server_process import Answer, ServerProcess

MB = 2**20
GRAPH = {"Content-Type": "application/octet-stream"}
RUN = {"Content-Type": "application/x-protobuf"}
# Seconds: a run's deadline, how much later it may be answered, and after which nothing of it may be left.
DEADLINE, LATE, FREED = 0.3, 0.1, 1.0
# What tensors may take, and what more there is when they take it: what kernels need for themselves, and the process.
RUN_MB, MORE_MB = 200, 400
Make = Callable[[str, int], ExtremeCall]
MAKERS: list[Make] = [extreme_call, chained_attack]
_MAY_ANSWER = {501, 503, 504}
_IN_USE = 'aexec_memory_bytes{kind="in_use"}'


def ask(server: ServerProcess, call: ExtremeCall) -> Answer:
    """The answer to its run, or to its session if that cannot be had."""
    made = server.call("POST", "/v1/sessions", call.graph_def.SerializeToString(), GRAPH)
    if made.status != 201:
        return made
    handle = made.body["session_handle"]
    feeds = [
        proto.NamedTensorProto(name=name, tensor=tensor_codec.to_proto(value)) for name, value in call.feeds.items()
    ]
    request = proto.RunStepRequest(feed=feeds, fetch=call.fetches, target=call.targets)
    request.options.timeout_in_ms = round(1000 * DEADLINE)
    waited = -server.waited
    answer = server.call("POST", f"/v1/sessions/{handle}:run", request.SerializeToString(), RUN)
    waited += server.waited
    server.delete(handle)  # or what it keeps would count for the next
    assert answer.seconds < DEADLINE + LATE + waited, f"answered after {answer.seconds:.2f} s"
    return answer


def check(server: ServerProcess, make: Make, op: str, seed: int) -> float:
    """Make a call.  Returns the most seconds that `/livez` took; AssertionError if something is wrong."""
    call = make(op, seed)
    try:
        with server.watched() as watch:
            answer = ask(server, call)
        assert answer.status < 500 or answer.status in _MAY_ANSWER, answer
        assert answer.status == 200 or not foreign_words(json.dumps(answer.body)), answer
        assert watch.worst < LIVE_WITHIN and not watch.failures, watch
        assert watch.grown < (RUN_MB + MORE_MB) * MB, watch
        server.until(lambda: counted(server, _IN_USE) == 0, FREED)
    except AssertionError as error:
        raise AssertionError(f"{op} {seed}: {error}: {call}") from None
    return watch.worst


def limits(**more: Any) -> dict[str, Any]:
    return {"max_run_mb": RUN_MB, "max_session_mb": 2 * RUN_MB, "max_memory_mb": 4 * RUN_MB, **more}


@pytest.mark.parametrize("hosts", [0, 1])
def test_some(hostile_server: HostileServer, hosts: int) -> None:
    server = hostile_server(**limits(hosts=hosts))
    for number, op in enumerate(random.Random(hosts).sample(ops_to_run(), 30)):
        check(server, MAKERS[number % 2], op, 0)


@pytest.mark.soak
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("hosts", [0, 1], ids="{}hosts".format)
def test_many(hostile_server: HostileServer, hosts: int, make: Make) -> None:
    server = hostile_server(**limits(hosts=hosts))
    ops, seeds = ops_to_run(), Seeds(100_000 if make is chained_attack else 20_000)
    worst = 0.0
    for seed in seeds:
        with seeds.trying(seed):
            again, number = divmod(seed, len(ops))
            worst = max(worst, check(server, make, ops[number], again + 1))
    print(f"/livez was answered within {1000 * worst:.0f} ms")
    seeds.check()
