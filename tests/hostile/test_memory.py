"""Graphs that ask for more memory than there is to be had: refused before it is taken, and all is freed afterwards."""

from __future__ import annotations

import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from tests.hostile.conftest import LIVE_WITHIN
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.server_process import ServerProcess

MB = 2**20
RUN, SESSION, ALL = 300, 400, 500
# Between calls that are looked at: what was made on the loop, what NumPy needs within a call, threads, modules.
LEFT = 150 * MB


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("server")
    process = ServerProcess(folder, max_run_mb=RUN, max_session_mb=SESSION, max_memory_mb=ALL)
    yield process
    process.stop()


def loop_with_value(of: str, dtype: DType, parallel_iterations: int) -> GraphBuilder:
    """A counting loop with another variable `taken:1`, which begins as the value of node `of`; `step` gives the next.

    `n` is fed; `y` is the last value.  Its control flow is written out, as clients may.
    """
    g = counting_loop(parallel_iterations)
    frame = {"frame_name": b"loop", "parallel_iterations": parallel_iterations}
    g("enter_value", "Enter", of, T=dtype, **frame)
    g("value", "Merge", "enter_value", "next_value", N=2, T=dtype)
    g("taken", "Switch", "value", "cond", T=dtype)
    g("next_value", "NextIteration", "step", T=dtype)
    g("y", "Exit", "taken", T=dtype)
    return g


def graph(build: Callable[..., Any]) -> bytes:
    """What `build` makes of a vector `d` of integers."""
    with aexec.Graph() as made:
        build(aexec.placeholder("int32", [None], name="d"))
    return made.to_bytes()


def ones(n: Any) -> Any:
    return ops.fill(n, 1.0)


def scalar(d: Any) -> Any:
    return ops.sum(d, [0])


MANY, SIDE = 500_000_000, 30_000
# Name → (graph of `d`, `d`, bytes that are asked for).
LARGE: dict[str, tuple[Callable[[Any], Any], list[int], int]] = {
    "Fill": (lambda d: ops.fill(d, 1.0, name="y"), [MANY], 4 * MANY),
    "Range": (lambda d: ops.range(0, scalar(d), 1, name="y"), [MANY], 4 * MANY),
    "Tile": (lambda d: ops.tile(ones([1000]), d, name="y"), [MANY // 1000], 4 * MANY),
    "Pad": (lambda d: ops.pad(ones([1]), ops.reshape(d, [1, 2]), name="y"), [0, MANY], 4 * MANY + 4),
    "BroadcastTo": (lambda d: ops.broadcast_to(ones([1]), d, name="y"), [MANY], 4 * MANY),
    "outer": (
        lambda d: ops.add_v2(ops.reshape(ones(d), [-1, 1]), ones(d), name="y"),
        [SIDE],
        4 * SIDE**2,
    ),
    "MatMul": (
        lambda d: ops.mat_mul(ops.reshape(ones(d), [-1, 1]), ops.reshape(ones(d), [1, -1]), name="y"),
        [SIDE],
        4 * SIDE**2,
    ),
    "OneHot": (lambda d: ops.one_hot(ops.fill(d, 1), SIDE, 1.0, 0.0, name="y"), [SIDE], 4 * SIDE**2),
    "GatherV2": (
        lambda d: ops.gather_v2(ops.reshape(ones([SIDE]), [1, -1]), ops.fill(d, 0), 0, name="y"),
        [SIDE],
        4 * SIDE**2,
    ),
}
STRINGS: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "StringJoin": (lambda d: ops.string_join([ops.fill(d, "ab" * 500), "c" * 1000], name="y"), [300_000]),
    "AsString": (lambda d: ops.as_string(ops.fill(d, 1), width=1_000_000, name="y"), [1000]),
    "RegexReplace": (lambda d: ops.regex_replace(ops.fill(d, "a" * 100), "a", "b" * 100_000, name="y"), [1000]),
    "ReduceJoin": (lambda d: ops.reduce_join(ops.fill(d, "ab" * 5000), [0], name="y"), [100_000]),
}


def refused(
    server: ServerProcess, build: Callable[[Any], Any], dims: list[int], fetches: Any = "y", most: int = RUN * MB
) -> dict[str, Any]:
    """The error of a run that asks for too much: it takes no memory beyond the limit, or `most` bytes."""
    handle = server.create(graph(build))
    with server.watched() as watch:
        answer = server.run(handle, feeds={"d": dims}, fetches=[fetches] if isinstance(fetches, str) else fetches)
    server.delete(handle)
    assert answer.status == 429 and answer.body["code"] == "RESOURCE_EXHAUSTED", answer.body
    assert watch.grown < most + LEFT and watch.worst < LIVE_WITHIN and not watch.failures, watch
    body: dict[str, Any] = answer.body
    return body


@pytest.mark.parametrize("name", LARGE)
def test_large_tensor_is_refused(server: ServerProcess, name: str) -> None:
    build, dims, size = LARGE[name]
    error = refused(server, build, dims, most=0)
    assert error["node"] == "y"
    assert f"{size} more would exceed the {RUN * MB} of SessionConfig.step_bytes" in error["error"]


@pytest.mark.parametrize("name", STRINGS)
def test_growing_strings(server: ServerProcess, name: str) -> None:
    build, dims = STRINGS[name]
    error = refused(server, build, dims)
    assert error["node"] == "y" and f"the {RUN * MB} of SessionConfig.step_bytes" in error["error"]


def test_compressed_bomb_is_refused(server: ServerProcess) -> None:
    data = b"\0" * MB
    bomb = zlib.compress(zlib.compress(data * 170, 1), 9)

    def build(d: Any) -> Any:
        text = ops.decode_compressed(aexec.placeholder("string", [], name="s"), compression_type="ZLIB")
        return ops.decode_compressed(text, compression_type="ZLIB", name="y")

    handle = server.create(graph(build))
    with server.watched() as watch:
        answer = server.run(handle, feeds={"s": {"b64": b64encode(bomb).decode()}}, fetches=["y"])
    server.delete(handle)
    assert answer.status == 429 and answer.body["node"] == "y", answer.body
    assert watch.grown < RUN * MB + LEFT and watch.worst < LIVE_WITHIN


def test_many_small_tensors_are_refused(server: ServerProcess) -> None:
    """None of which is worth a thread."""

    def build(d: Any) -> Any:
        x = ones(d)
        for i in range(1000):
            x = ops.add_v2(x, 1.0, name=f"n{i}")

    error = refused(server, build, [200_000], [f"n{i}" for i in range(1000)])
    assert f"the {RUN * MB} of SessionConfig.step_bytes" in error["error"]


def test_values_gathered_by_a_loop_are_bounded(server: ServerProcess) -> None:
    g = loop_with_value("array:1", dtypes.float32, 10)
    frame = {"frame_name": b"loop", "is_constant": True, "parallel_iterations": 10}
    g.const("size", 0, dtypes.int32)
    g("array", "TensorArrayV3", "size", dtype=dtypes.float32, dynamic_size=True)
    g("enter_array", "Enter", "array", T=dtypes.resource, **frame)
    g.const("row", np.ones(50_000, np.float32))
    g("enter_row", "Enter", "row", T=dtypes.float32, **frame)
    g("number", "Cast", "body", SrcT=dtypes.int32, DstT=dtypes.float32)
    g("changed", "AddV2", "enter_row", "number", T=dtypes.float32)
    g("step", "TensorArrayWriteV3", "enter_array", "body", "changed", "taken:1", T=dtypes.float32)
    handle = server.create(g)
    for _ in range(3):  # interpreted, then compiled
        with server.watched() as watch:
            answer = server.run(handle, feeds={"n": 1_000_000}, fetches=["y"])
        assert answer.status == 429, answer.body
        assert f"the {RUN * MB} of SessionConfig.step_bytes" in answer.body["error"]
        assert watch.grown < RUN * MB + LEFT and watch.worst < LIVE_WITHIN
    server.delete(handle)


def test_queue_counts_until_its_session_is_deleted(server: ServerProcess) -> None:
    def build(d: Any) -> Any:
        queue = ops.fifo_queue_v2(component_types=["float32"], name="queue")
        ops.queue_enqueue_v2(queue, [ones(d)], name="put")
        ops.queue_dequeue_v2(queue, component_types=["float32"], name="taken")
        ops.queue_size_v2(queue, name="size")

    before = server.resident
    handle = server.create(graph(build))
    with server.watched() as watch:
        answers = [server.run(handle, feeds={"d": [10 * MB]}, targets=["put"]) for _ in range(15)]
    assert [answer.status for answer in answers] == [200] * 9 + [429] * 6
    assert answers[-1].body["node"] and "SessionConfig.session_bytes" in answers[-1].body["error"]
    assert watch.grown < SESSION * MB + LEFT and watch.worst < LIVE_WITHIN
    # What leaves the queue makes room.
    assert server.run(handle, targets=["taken"]).status == 200
    assert server.run(handle, feeds={"d": [10 * MB]}, targets=["put"]).status == 200
    server.delete(handle)
    assert server.until(lambda: server.resident < before + LEFT) < 1


def test_memory_kept_by_sessions_counts_together(server: ServerProcess) -> None:
    def build(d: Any) -> Any:
        variable = ops.var_handle_op(dtype="float32", shape=[None], name="v")
        ops.assign_variable_op(variable, ones(d), name="assign")

    handles = [server.create(graph(build)) for _ in range(3)]
    statuses = [server.run(handle, feeds={"d": [35 * MB]}, targets=["assign"]).status for handle in handles]
    assert statuses == [200, 200, 429]
    server.delete(handles[0])
    assert server.run(handles[2], feeds={"d": [35 * MB]}, targets=["assign"]).status == 200
    for handle in handles[1:]:
        server.delete(handle)


def test_twenty_runs_at_once(server: ServerProcess) -> None:
    """Each fits, and together they do not: some are refused, and the others are answered."""
    handle = server.create(graph(lambda d: ops.sum(ops.exp(ones(d)), [0], name="y")))
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(server.run(handle, feeds={"d": [20 * MB]}, fetches=["y"]).status)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    with server.watched() as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    server.delete(handle)
    assert set(statuses) <= {200, 429} and 200 in statuses
    assert watch.grown < ALL * MB + LEFT and watch.worst < LIVE_WITHIN


def test_iterations_at_once_are_bounded(server: ServerProcess) -> None:
    """A loop that counts on while none of its iterations has what it waits for."""
    g = loop_with_value("start", dtypes.float32, 2**31 - 1)
    g.const("start", np.float32(0))
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32])
    g("enter_queue", "Enter", "queue", T=dtypes.resource, frame_name=b"loop", is_constant=True)
    g("got", "QueueDequeueV2", "enter_queue", "^body", component_types=[dtypes.float32])
    g("step", "AddV2", "got", "taken:1", T=dtypes.float32)
    handle = server.create(g)
    with server.watched() as watch:
        answer = server.run(handle, feeds={"n": 2**31 - 1}, fetches=["y"], options={"timeout_in_ms": 1000})
    server.delete(handle)
    assert answer.status == 504, answer.body
    assert watch.grown < LEFT and watch.worst < LIVE_WITHIN
