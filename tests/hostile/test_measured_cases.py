"""Small graphs that once stopped a server or took its memory: each has a deadline of a second, to one server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.op_def import MAX_OUTPUTS
from tests.hostile.conftest import LIVE_WITHIN
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder, counting_loop
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


def multinomial(g: GraphBuilder, classes: int, samples: int) -> None:
    g.const("logits", np.zeros((1, classes), np.float32))
    g.const("samples", samples, dtypes.int32)
    g("y", "Multinomial", "logits", "samples", T=dtypes.float32, output_dtype=dtypes.int64, seed=0, seed2=0)


def pieces(g: GraphBuilder, op: str, count: int) -> None:
    """A node of so many outputs."""
    filled(g, count)
    if op == "Split":
        g.const("axis", 0, dtypes.int32)
        g("y", "Split", "axis", "v", num_split=count, T=dtypes.float32)
    else:
        g("y", "Unpack", "v", num=count, T=dtypes.float32, axis=0)


def far_axis(g: GraphBuilder) -> None:
    g.const("v", [1.0, 2.0], dtypes.float32)
    g("y", "Unpack", "v", num=2, T=dtypes.float32, axis=2**31 - 1)


def long_shape(g: GraphBuilder, op: str) -> None:
    """A million dimensions of 3: their product alone would take hours, in which nobody else has the interpreter."""
    g.const("count", [1_000_000], dtypes.int32)
    g.const("three", 3, dtypes.int64)
    g("shape", "Fill", "count", "three", T=dtypes.int64, index_type=dtypes.int32)
    g.const("one", [1.0], dtypes.float32)
    g.const("i", [[0]], dtypes.int64)
    g.const("at", 0, dtypes.int64)
    match op:
        case "UnravelIndex":
            g("y", op, "at", "shape", Tidx=dtypes.int64)
        case "ScatterNd":
            g("y", op, "i", "one", "shape", T=dtypes.float32, Tindices=dtypes.int64)
        case "Tile":
            g("y", op, "one", "shape", T=dtypes.float32, Tmultiples=dtypes.int64)
        case "SparseReshape":
            g.const("dims", [5], dtypes.int64)
            g("y", op, "i", "dims", "shape")
        case _:
            parts = ["i", "i", "one", "one", "shape", "shape"]
            g("y", "SparseConcat", *parts, concat_dim=0, N=2, T=dtypes.float32)


def shape_of_unique(g: GraphBuilder, size: int) -> None:
    g.const("one", [1], dtypes.int32)
    g.const("size", [size], dtypes.int32)
    g("ones", "Tile", "one", "size", T=dtypes.int32, Tmultiples=dtypes.int32)
    g("unique", "Unique", "ones", T=dtypes.int32, out_idx=dtypes.int32)
    g("y", "Tile", "one", "unique", T=dtypes.int32, Tmultiples=dtypes.int32)


def doubling(g: GraphBuilder) -> None:
    """Thirty functions, each of which calls the next one twice."""
    for number in range(30):
        if number < 29:
            one = ("one", f"F{number + 1}", ["x"], {})
            two = ("two", f"F{number + 1}", ["one:y:0"], {})
        else:
            one, two = ("one", "Neg", ["x"], {"T": dtypes.float32}), ("two", "Neg", ["one:y:0"], {"T": dtypes.float32})
        body = g.graph_def.library.function
        body.append(function_def(f"F{number}(x: float) -> y: float", body=[one, two], ret={"y": "two:y:0"}))
    g.const("x", 1.0, dtypes.float32)
    g("y", "F0", "x")


def waiting_batch(g: GraphBuilder) -> None:
    """A function that waits for an element of an empty queue, called by batches."""
    body = [("got", "QueueDequeueV2", ["queue"], {"component_types": [dtypes.float32]})]
    signature = "Waits(x: float, queue: resource) -> y: float"
    ret = {"y": "got:components:0"}
    g.graph_def.library.function.append(function_def(signature, body=body, ret=ret, stateful=True))
    g.const("x", [1.0], dtypes.float32)
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32])
    types = {"Tin": [dtypes.float32], "Tcaptured": [dtypes.resource], "Tout": [dtypes.float32]}
    sizes = {"num_batch_threads": 1, "max_batch_size": 1, "batch_timeout_micros": 0}
    g("y", "BatchFunction", "x", "queue", f=NameAttrList("Waits"), **types, **sizes)


def reserve(g: GraphBuilder) -> None:
    g.const("shape", [2], dtypes.int32)
    g.const("count", np.array([1, 2], np.int32), dtypes.int32)
    g("y", "TensorListReserve", "shape", "count", element_dtype=dtypes.float32, shape_type=dtypes.int32)


def list_op(g: GraphBuilder, op: str, *inputs: tuple[Any, DType], **attrs: Any) -> None:
    """`op` of a list of two elements that are not there."""
    g.const("shape", [2], dtypes.int32)
    g.const("count", 2, dtypes.int32)
    g("list", "TensorListReserve", "shape", "count", element_dtype=dtypes.float32, shape_type=dtypes.int32)
    names = [g.const(f"x{number}", value, dtype) for number, (value, dtype) in enumerate(inputs)]
    g("y", op, "list", *names, **attrs)


def gather(g: GraphBuilder, batch_dims: int) -> None:
    g("variable", "VarHandleOp", dtype=dtypes.float32, shape=[2, 2])
    g.const("value", [[1, 2], [3, 4]], dtypes.float32)
    g("assign", "AssignVariableOp", "variable", "value", dtype=dtypes.float32)
    g("assigned", "Identity", "variable", "^assign", T=dtypes.resource)
    g.const("i", [[0], [1], [0]], dtypes.int32)
    attrs = {"dtype": dtypes.float32, "Tindices": dtypes.int32, "batch_dims": batch_dims, "validate_indices": True}
    g("y", "ResourceGather", "assigned", "i", **attrs)


def diagonal(g: GraphBuilder) -> None:
    """Of an empty matrix, beside which there is none."""
    g.const("shape", [0, 0], dtypes.int32)
    g.const("zero", 0.0, dtypes.float32)
    g("v", "Fill", "shape", "zero", T=dtypes.float32, index_type=dtypes.int32)
    g.const("k", [0, 1], dtypes.int32)
    g("y", "MatrixDiagPartV2", "v", "k", "zero", T=dtypes.float32)


def integers(g: GraphBuilder, shape: list[int]) -> None:
    g.const("shape", shape, dtypes.int32)
    g("y", "NonDeterministicInts", "shape", dtype=dtypes.int64, shape_dtype=dtypes.int32)


# Name → (what makes the graph, statuses that are right).
CASES: dict[str, tuple[Callable[[GraphBuilder], object], set[int]]] = {
    "many candidates": (lambda g: sampler(g, "LogUniformCandidateSampler", 2**31 - 1, unique=False), {429}),
    "all candidates": (lambda g: sampler(g, "UniformCandidateSampler", 10**7, unique=True), {504}),
    "failing assert": (failing_assert, {429, 504}),
    "print": (printing, {429, 504}),
    "shuffle": (random_shuffle, {200, 504}),
    "many samples": (lambda g: multinomial(g, 10, 20_000_000), {200, 504}),
    "too many samples": (lambda g: multinomial(g, 10, 2**31 - 1), {429}),
    "a million pieces": (lambda g: pieces(g, "Split", 1_000_000), {400}),
    "a million elements": (lambda g: pieces(g, "Unpack", 1_000_000), {400}),
    "as many pieces as a node may have": (lambda g: pieces(g, "Split", MAX_OUTPUTS), {200}),
    "as many elements as a node may have": (lambda g: pieces(g, "Unpack", MAX_OUTPUTS), {200}),
    "far axis": (far_axis, {400}),
    "unique as a shape": (lambda g: shape_of_unique(g, 10_000_000), {200, 504}),
    "large unique as a shape": (lambda g: shape_of_unique(g, 2**31 - 1), {429}),
    "thirty functions": (doubling, {429, 504}),
    **{
        f"long shape of {op}": (partial(long_shape, op=op), {400})
        for op in ("UnravelIndex", "ScatterNd", "Tile", "SparseReshape", "SparseConcat")
    },
    "batch that waits": (waiting_batch, {504}),
    "vector depth": (one_hot, {400}),
    "vector algorithm": (truncated_normal, {400}),
    "vector count": (reserve, {400}),
    "vector index": (
        lambda g: list_op(
            g, "TensorListGetItem", ([0, 1], dtypes.int32), ([-1], dtypes.int32), element_dtype=dtypes.float32
        ),
        {400},
    ),
    "long list": (lambda g: list_op(g, "TensorListResize", (2**31 - 1, dtypes.int32)), {429}),
    "large elements": (
        lambda g: list_op(g, "TensorListStack", ([2**30], dtypes.int32), element_dtype=dtypes.float32, num_elements=-1),
        {400, 429},
    ),
    "join of nothing": (lambda g: g("y", "StringJoin", N=0, separator=b""), {200}),
    "no diagonal": (diagonal, {400}),
    "negative size of integers": (lambda g: integers(g, [-1]), {400}),
    "too many integers": (lambda g: integers(g, [2**31 - 1] * 2), {429}),
    "batch dimensions": (lambda g: gather(g, 1), {400}),
    "too many batch dimensions": (lambda g: gather(g, 5), {400}),
    "handles of other numbers": (
        lambda g: g(
            "y", "_VarHandlesOp", containers=[b""], shared_names=[b"a", b"b"], N=1, dtypes=[dtypes.float32], shapes=[[]]
        ),
        {400},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_measured_cases_end_in_time_with_the_right_answer(server: ServerProcess, name: str) -> None:
    build, statuses = CASES[name]
    # A run that succeeds needs its time on the processor, which a busy machine gives it late.
    deadline = 30 * DEADLINE if statuses == {200} else DEADLINE
    g = GraphBuilder()
    build(g)
    with server.watched() as watch:
        waited = -server.waited_in_threads
        answer = server.call("POST", "/v1/sessions", g.graph_def.SerializeToString(), GRAPH)
        if answer.status == 201:
            handle = answer.body["session_handle"]
            answer = server.run(handle, targets=["y"], options={"timeout_in_ms": round(1000 * deadline)})
            server.delete(handle)
        waited += server.waited_in_threads
    assert answer.status in statuses, answer
    assert answer.seconds < DEADLINE + LATE + waited
    assert watch.grown < 512 * MB and watch.worst < LIVE_WITHIN and not watch.failures


def test_value_of_a_loop_that_comes_more_than_once(server: ServerProcess) -> None:
    """Fetched within the loop, it has no one value."""
    handle = server.create(counting_loop())
    for fetch in ("add", "switch:1", "less", "next"):
        answer = server.run(handle, feeds={"n": 10}, fetches=[fetch])
        assert answer.status == 400 and answer.body["code"] == "INVALID_ARGUMENT", answer
    server.delete(handle)


@pytest.mark.parametrize(
    "fields",
    [
        b'"options": {"trace_level": Infinity}',
        b'"options": {"trace_level": NaN}',
        b'"options": {"timeout_in_ms": Infinity}',
        rb'"run_id": "\ud800"',
        rb'"feeds": {"x": "\udfff"}',
    ],
)
def test_numbers_and_characters_that_are_none(server: ServerProcess, fields: bytes) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.string)
    handle = server.create(g)
    answer = server.call("POST", f"/v1/sessions/{handle}:run", b'{"fetches": ["x"], ' + fields + b"}")
    assert answer.status == 400 and answer.body["code"] == "INVALID_ARGUMENT", answer
    server.delete(handle)


@pytest.mark.parametrize("value", [b"[]", b'""'])
def test_json_of_very_many_values(server: ServerProcess, value: bytes) -> None:
    """It is refused by count, before anything is made of it."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.string)
    handle = server.create(g)
    body = b'{"fetches": ["x"], "feeds": {"x": [' + b",".join([value] * 10_000_000) + b"]}}"
    with server.watched() as watch:
        answer = server.call("POST", f"/v1/sessions/{handle}:run", body)
    assert answer.status == 429 and "send tensors as binary data" in answer.body["error"]
    assert watch.grown < 3 * len(body) + 64 * MB and watch.worst < LIVE_WITHIN and not watch.failures
    server.delete(handle)


def test_too_many_fetches_are_refused(server: ServerProcess) -> None:
    g = GraphBuilder()
    g.const("y", 1.0, dtypes.float32)
    handle = server.create(g)
    for count, status in ((16_384, 400), (4096, 200)):
        with server.watched() as watch:
            answer = server.run(handle, fetches=["y"] * count)
        assert answer.status == status
        assert watch.worst < LIVE_WITHIN and not watch.failures
    server.delete(handle)


NASTY = "one\nERROR forged\r\x1b[2J\x1b]0;owned\x07"


def test_printed_text_is_one_line_of_the_log_without_escapes(server: ServerProcess) -> None:
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


def printing_forever() -> GraphBuilder:
    """`y` is a loop without an end that prints."""
    attrs = {"T": dtypes.float32, "U": [dtypes.float32], "message": b"again and again", "first_n": -1, "summarize": 3}
    printed = ("printed", "Print", ["x", "x"], attrs)
    goes_on = ("goes_on", "Equal", ["printed:output:0", "x"], {"T": dtypes.float32})
    g = GraphBuilder()
    g.graph_def.library.function.extend(
        [
            function_def("Goes(x: float) -> y: bool", body=[printed, goes_on], ret={"y": "goes_on:z:0"}, stateful=True),
            function_def("Same(x: float) -> y: float", body=[printed], ret={"y": "printed:output:0"}, stateful=True),
        ]
    )
    g.const("x", 1.0, dtypes.float32)
    g("y", "While", "x", T=[dtypes.float32], cond=NameAttrList("Goes"), body=NameAttrList("Same"))
    return g


def test_endless_printing_is_dropped_and_counted(server: ServerProcess) -> None:
    handle = server.create(printing_forever())
    before = len(server.log)
    assert server.run(handle, fetches=["y"], options={"timeout_in_ms": 1500}).status == 504
    server.delete(handle)
    server.until(lambda: "bytes were left out: it may print 16384 bytes a second" in server.log[before:])
    log = server.log[before:]
    assert 5000 < len(log) < 5 * 16384
    assert all("aexec_server.printed" in line for line in log.splitlines() if "left out" in line)
