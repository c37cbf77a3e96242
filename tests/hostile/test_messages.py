"""Messages of few bytes that would become much: they are measured before they are parsed."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire import wire_format
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import Answer, ServerProcess

MB = 2**20
PROTOBUF = {"Content-Type": "application/x-protobuf"}
GRAPH = {"Content-Type": "application/octet-stream"}
# What a message may take once decoded, besides its body, which is there up to three times.
EXPANDED = 512 * MB
# Threads and modules that came to be used.
LEFT = 64 * MB
# Seconds for which the loop may be held: a tenth on a machine with nothing else to do, where it was many.
HELD = 1.0


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | wire_format.LENGTH) + varint(len(data)) + data


def zeros(dtype: Any, size: int) -> proto.TensorProto:
    shape = proto.TensorShapeProto(dim=[proto.TensorShapeProto.Dim(size=size)])
    return proto.TensorProto(dtype=dtype.enum, tensor_shape=shape)


def constant(dtype: Any, size: int) -> bytes:
    """A graph of few bytes: `c` is a constant of so many elements, `s` their number."""
    graph = proto.GraphDef()
    node = graph.node.add(name="c", op="Const")
    node.attr["dtype"].type = dtype.enum
    node.attr["value"].tensor.CopyFrom(zeros(dtype, size))
    count = graph.node.add(name="s", op="Size", input=["c"])
    count.attr["T"].type = dtype.enum
    return graph.SerializeToString()


@pytest.fixture(scope="module")
def handle(server: ServerProcess) -> str:
    g = GraphBuilder()
    g.const("y", 1.0)
    return server.create(g)


def run(server: ServerProcess, handle: str, message: proto.RunStepRequest | bytes) -> Answer:
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return server.call("POST", f"/v1/sessions/{handle}:run", body, PROTOBUF)


def test_two_hundred_filled_feeds_are_refused(server: ServerProcess, handle: str) -> None:
    """Each by itself would do."""
    feeds = [proto.NamedTensorProto(name=f"x{i}", tensor=zeros(dtypes.float32, 2**24)) for i in range(200)]
    with server.watched() as watch:
        answer = run(server, handle, proto.RunStepRequest(feed=feeds))
    assert answer.status == 429 and f"more than {EXPANDED} bytes of memory once decoded" in answer.body["error"]
    assert watch.grown < LEFT
    assert watch.worst < HELD and not watch.failures


def test_one_feed_that_is_filled_is_decoded_in_a_thread(server: ServerProcess, handle: str) -> None:
    for dtype, size in [
        (dtypes.string, 2**23),
        (dtypes.resource, 2**23),
        (dtypes.variant, 2**23),
        (dtypes.int8, 2**28),
    ]:
        with server.watched() as watch:
            answer = run(server, handle, proto.RunStepRequest(feed=[{"name": "y", "tensor": zeros(dtype, size)}]))
        assert answer.status == 400
        assert watch.worst < HELD and not watch.failures


@pytest.mark.parametrize("dtype", [dtypes.string, dtypes.variant, dtypes.float64])
def test_constant_of_few_bytes(server: ServerProcess, dtype: Any) -> None:
    with server.watched() as watch:
        answer = server.call("POST", "/v1/sessions", constant(dtype, 2**27), GRAPH)
        assert answer.status == 429 and f"1 tensors that fill {2**30} bytes" in answer.body["error"]
        handle = server.create(constant(dtype, 2**22))
        assert server.run(handle, fetches=["s"]).body["outputs"] == {"s": 2**22}
        server.delete(handle)
    assert watch.worst < HELD and not watch.failures


def test_thirty_million_empty_nodes(server: ServerProcess) -> None:
    body = gzip.compress(b"\x0a\x00" * 30_000_000)
    assert len(body) < 100_000
    with server.watched() as watch:
        answer = server.call("POST", "/v1/sessions", body, GRAPH | {"Content-Encoding": "gzip"})
    assert answer.status == 429 and "more than 500000 nodes and functions" in answer.body["error"]
    assert watch.grown < 3 * 64 * MB + LEFT
    assert watch.worst < HELD and not watch.failures


def test_graph_of_many_nodes(server: ServerProcess) -> None:
    """Parsing it takes a second if it is done at one go."""
    graph = proto.GraphDef(node=[proto.NodeDef(name=f"n{i}", op="NoOp") for i in range(50_000)])
    graph.node.add(name="bad", op="NoSuchOp")
    with server.watched() as watch:
        answer = server.call("POST", "/v1/sessions", graph.SerializeToString(), GRAPH)
    assert answer.status == 404 and "NoSuchOp" in answer.body["error"]
    assert watch.worst < HELD and not watch.failures


def test_large_constants_are_no_small_nodes(server: ServerProcess) -> None:
    g = GraphBuilder()
    for i in range(10):
        g.const(f"w{i}", np.arange(2**20, dtype=np.float32))
    with server.watched() as watch:
        answer = server.call("POST", "/v1/sessions", g.graph_def.SerializeToString(), GRAPH)
        assert answer.status == 201
        server.delete(answer.body["session_handle"])
    assert watch.worst < HELD and not watch.failures


# Every repeated field of every message of a request


def repeated_fields(descriptor: Any, seen: frozenset[str] = frozenset()) -> Iterator[tuple[Any, ...]]:
    """Paths to them, each of them entered once."""
    for one in descriptor.fields:
        if wire_format.is_repeated(one):
            yield (one,)
        if one.message_type is not None and one.message_type.full_name not in seen:
            for path in repeated_fields(one.message_type, seen | {one.message_type.full_name}):
                yield (one, *path)


def flooded(path: tuple[Any, ...], size: int) -> bytes:
    """A message in which the field at the end of a path comes as often as so many bytes allow."""
    *outer, last = path
    if last.message_type is None and last.type not in (last.TYPE_STRING, last.TYPE_BYTES):
        data = field(last.number, b"\x00" * size)
    else:
        smallest = field(last.number, b"")
        data = smallest * (size // len(smallest))
    for one in reversed(outer):
        data = field(one.number, data)
    return data


def flood(server: ServerProcess, handle: str, kind: Any, path: tuple[Any, ...], size: int) -> None:
    body = flooded(path, size)
    with server.watched() as watch:
        if kind is proto.RunStepRequest:
            answer = run(server, handle, body)
        else:
            answer = server.call("POST", "/v1/sessions", body, PROTOBUF)
    where = ".".join(one.name for one in path)
    assert answer.status in (200, 201, 400, 404, 413, 429, 501), (where, size, answer)
    assert watch.worst < HELD and not watch.failures, (where, size, watch)
    assert watch.grown < EXPANDED + 4 * 64 * MB + LEFT, (where, size, watch)
    if answer.status == 201:
        created = proto.CreateSessionResponse.FromString(answer.body)
        server.delete(created.session_handle)


PATHS = [
    (kind, path)
    for kind in (proto.RunStepRequest, proto.CreateSessionRequest)
    for path in repeated_fields(kind.DESCRIPTOR)
]


def test_floods_of_some_repeated_fields(server: ServerProcess, handle: str) -> None:
    rng = random.Random(0)
    for kind, path in rng.sample(PATHS, 8):
        flood(server, handle, kind, path, int(2 ** rng.uniform(10, 17)))


@pytest.mark.soak
@pytest.mark.parametrize("size", [200_000, 3 * MB, 60 * MB])
def test_floods_of_all_repeated_fields(server: ServerProcess, handle: str, size: int) -> None:
    for kind, path in PATHS:
        flood(server, handle, kind, path, size)
