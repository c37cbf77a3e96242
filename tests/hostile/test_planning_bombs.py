"""Graphs that take long, or much memory, to plan: the server answers others meanwhile, and the run by its deadline."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aexec import proto
from tests.hostile.conftest import LIVE_WITHIN, HostileServer
from tests.support.foreign_errors import foreign_words
from tests.support.programs.planning_bombs import BOMBS, random_bomb
from tests.support.programs.seeds import Seeds
from tests.support.server_process import Answer, ServerProcess

MB = 2**20
GRAPH = {"Content-Type": "application/octet-stream"}
# Seconds: a run's deadline, and how much later it may be answered.
DEADLINE, LATE = 0.5, 0.3
# What tensors may take; what graph, plan and the process may take besides, and for each byte of the graph.
RUN_MB, MORE_MB, FOR_A_BYTE = 256, 200, 150
MAY_ANSWER = {200, 400, 404, 413, 429, 503, 504}

# Large enough that it would be seen.
SIZES = {
    "functions that double": 30,
    "functions of ever new attrs": 24,
    "functions in a row": 2000,
    "functions that call each other": 50,
    "function fan": 100,
    "branches": 20_000,
    "nested conditions": 60,
    "gradients of gradients": 6,
    "gradient of a long body": 1000,
    "many arguments": 3000,
    "large library": 10_000,
    "dense strings": 3000,
    "numbers one by one": 3000,
    "halves one by one": 3000,
    "strings one by one": 1000,
    "dense constant": 5000,
    "dense booleans": 10_000,
    "constant that is filled": 60_000,
    "strings that are filled": 30_000,
    "constant of one value": 200_000,
    "constant of no value": 100_000,
    "products with repeated values": 190,
    "long chain": 10_000,
    "identities": 10_000,
    "nested frames": 500,
    "one consumer of many": 20_000,
    "many consumers of one": 10_000,
    "wide nodes": 100,
    "reads and updates": 1500,
    "updates in a row": 1500,
    "updates in frames": 200,
    "groups": 500,
    "known shapes": 10_000,
    "long lists": 50_000,
    "long names": 5000,
    "patterns": 150,
    "groups of patterns": 10_000,
}


def ask(server: ServerProcess, graph: bytes, request: dict[str, Any], runs: int) -> list[Answer]:
    """The answers to its session and its runs, each of which came in time."""
    made = server.call("POST", "/v1/sessions", graph, GRAPH)
    answers = [made]
    if made.status == 201:
        for _ in range(runs):
            waited = -server.waited_in_threads
            timeout = {"timeout_in_ms": round(1000 * DEADLINE)}
            answers.append(server.run(made.body["session_handle"], **request, options=timeout))
            waited += server.waited_in_threads
            seconds = answers[-1].seconds
            assert seconds < DEADLINE + LATE + waited, f"answered after {seconds:.2f} s of which {waited:.2f} s waited"
        server.delete(made.body["session_handle"])
    return answers


def check(server: ServerProcess, graph_def: proto.GraphDef, request: dict[str, Any], runs: int = 4) -> float:
    """Returns the most seconds that `/livez` took; AssertionError if something is wrong."""
    graph = graph_def.SerializeToString()
    with server.watched() as watch:
        answers = ask(server, graph, request, runs)
    for answer in answers[1:] or answers:
        assert answer.status in MAY_ANSWER, answer
        assert answer.status == 200 or not foreign_words(json.dumps(answer.body)), answer
    assert watch.worst < LIVE_WITHIN and not watch.failures, watch
    assert watch.grown < (RUN_MB + MORE_MB) * MB + FOR_A_BYTE * len(graph), watch
    return watch.worst


def limits(**more: Any) -> dict[str, Any]:
    return {"max_run_mb": RUN_MB, "max_session_mb": RUN_MB, "max_memory_mb": 2 * RUN_MB, **more}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Any:
    server = ServerProcess(tmp_path_factory.mktemp("server"), **limits())
    yield server
    server.stop()


def test_every_bomb_has_a_size() -> None:
    assert SIZES.keys() == BOMBS.keys()


# Of each kind one that takes no time to make.
SOME = ("function fan", "patterns", "products with repeated values", "groups of patterns", "known shapes")


@pytest.mark.parametrize("name", SOME)
def test_other_requests_are_answered_while_some_bombs_are_planned(limited: ServerProcess, name: str) -> None:
    check(limited, *BOMBS[name](SIZES[name]), runs=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", SIZES)
def test_other_requests_are_answered_while_a_bomb_is_planned(limited: ServerProcess, name: str) -> None:
    check(limited, *BOMBS[name](SIZES[name]))


@pytest.mark.soak
def test_bombs_of_random_sizes_delay_no_request(hostile_server: HostileServer) -> None:
    server = hostile_server(**limits())
    seeds = Seeds(3000)
    worst = 0.0
    for seed in seeds:
        with seeds.trying(seed):
            name, size, graph_def, request = random_bomb(seed)
            try:
                worst = max(worst, check(server, graph_def, request, 2))
            except AssertionError as error:
                raise AssertionError(f"{name} {size}: {error}") from None
    print(f"/livez was answered within {1000 * worst:.0f} ms")
    seeds.check()
