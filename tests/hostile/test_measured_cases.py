"""Small graphs that once stopped a server or took its memory: each has a deadline of a second, to one server."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import LIVE_WITHIN
from tests.support.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

MB = 2**20
GRAPH = {"Content-Type": "application/octet-stream"}
DEADLINE, LATE = 1.0, 0.3


def filled(g: GraphBuilder, size: int) -> None:
    """`v` has so many zeros."""
    g.const("shape", [size], dtypes.int32)
    g.const("zero", 0.0, dtypes.float32)
    g("v", "Fill", "shape", "zero", T=dtypes.float32, index_type=dtypes.int32)


def sampler(g: GraphBuilder, op: str, num_sampled: int, *, unique: bool) -> None:
    g.const("true", [[1]], dtypes.int64)
    attrs = {"num_true": 1, "num_sampled": num_sampled, "unique": unique, "range_max": num_sampled}
    g("y", op, "true", **attrs, seed=0, seed2=0)


def failing_assert(g: GraphBuilder) -> None:
    filled(g, 20_000_000)
    g.const("false", False, dtypes.bool_)
    g("y", "Assert", "false", "v", T=[dtypes.float32], summarize=2**31 - 1)


def printing(g: GraphBuilder) -> None:
    filled(g, 20_000_000)
    g("y", "Print", "v", "v", T=dtypes.float32, U=[dtypes.float32], message=b"", first_n=-1, summarize=2**31 - 1)


def random_shuffle(g: GraphBuilder) -> None:
    filled(g, 3_000_000)
    g("y", "RandomShuffle", "v", T=dtypes.float32, seed=0, seed2=0)


def one_hot(g: GraphBuilder) -> None:
    g.const("i", [1, 2], dtypes.int32)
    g.const("depth", [3, 4], dtypes.int32)
    g.const("on", 1.0, dtypes.float32)
    g("y", "OneHot", "i", "depth", "on", "on", T=dtypes.float32, TI=dtypes.int32, axis=-1)


def truncated_normal(g: GraphBuilder) -> None:
    g("r", "VarHandleOp", dtype=dtypes.int64, shape=[3])
    g.const("algorithm", [1, 2], dtypes.int64)
    g.const("shape", [3], dtypes.int32)
    attrs = {"dtype": dtypes.float32, "shape_dtype": dtypes.int32}
    g("y", "StatefulTruncatedNormal", "r", "algorithm", "shape", **attrs)


def reserve(g: GraphBuilder) -> None:
    g.const("shape", [2], dtypes.int32)
    g.const("count", np.array([1, 2], np.int32), dtypes.int32)
    g("y", "TensorListReserve", "shape", "count", element_dtype=dtypes.float32, shape_type=dtypes.int32)


# Name → (what makes the graph, statuses that are right).
CASES: dict[str, tuple[Callable[[GraphBuilder], object], set[int]]] = {
    "many candidates": (lambda g: sampler(g, "LogUniformCandidateSampler", 2**31 - 1, unique=False), {429}),
    "all candidates": (lambda g: sampler(g, "UniformCandidateSampler", 10**7, unique=True), {504}),
    "failing assert": (failing_assert, {429, 504}),
    "print": (printing, {429, 504}),
    "shuffle": (random_shuffle, {200, 504}),
    "vector depth": (one_hot, {400}),
    "vector algorithm": (truncated_normal, {400}),
    "vector count": (reserve, {400}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_ends_in_time_with_the_right_answer(server: ServerProcess, name: str) -> None:
    build, statuses = CASES[name]
    g = GraphBuilder()
    build(g)
    with server.watched() as watch:
        waited = -server.waited
        answer = server.call("POST", "/v1/sessions", g.graph_def.SerializeToString(), GRAPH)
        if answer.status == 201:
            handle = answer.body["session_handle"]
            answer = server.run(handle, targets=["y"], options={"timeout_in_ms": round(1000 * DEADLINE)})
            server.delete(handle)
        waited += server.waited
    assert answer.status in statuses, answer
    assert answer.seconds < DEADLINE + LATE + waited
    assert watch.grown < 512 * MB and watch.worst < LIVE_WITHIN and not watch.failures


NASTY = "one\nERROR forged\r\x1b[2J\x1b]0;owned\x07"


def test_what_is_printed_is_one_line_of_the_log_without_escapes(server: ServerProcess) -> None:
    g = GraphBuilder()
    g.const("x", 1.0, dtypes.float32)
    g.const("s", NASTY, dtypes.string)
    g("old", "Print", "x", "s", T=dtypes.float32, U=[dtypes.string], message=NASTY.encode(), first_n=-1, summarize=3)
    g("new", "PrintV2", "s", output_stream=b"stderr", end=b"\n\x1b[1m")
    before = len(server.log)
    handle = server.create(g)
    assert server.run(handle, targets=["old", "new"]).status == 200
    server.delete(handle)
    lines = server.log[before:].splitlines()
    printed = [line for line in lines if "aexec_server.printed" in line]
    assert len(printed) == 2 and not any(line.startswith("ERROR forged") for line in lines)
    assert not any(char < " " for line in printed for char in line)
