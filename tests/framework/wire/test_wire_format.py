"""The wire format: fields one by one, and large messages parsed in pieces."""

from __future__ import annotations

import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework.wire import wire_format


def graph(nodes: int) -> proto.GraphDef:
    return proto.GraphDef(
        node=[
            proto.NodeDef(name=f"n{i}", op="Add", input=["a", f"n{i - 1}"], attr={"T": {"type": 1}})
            for i in range(nodes)
        ]
    )


def large_messages() -> list[Message]:
    rng = np.random.default_rng(0)
    many = graph(3000)
    library = proto.GraphDef(versions=proto.VersionDef(producer=5))
    library.library.function.add(ret={"r": "n:z"}).node_def.extend(many.node)
    library.library.function.add().signature.name = "other"
    constant = proto.NodeDef(name="c", attr={"value": {"tensor": {"tensor_content": bytes(10**6)}}})
    tensors = [
        proto.TensorProto(dtype=9, int64_val=[int(v) for v in rng.integers(-5, 2**40, 40_000)], version_number=3),
        proto.TensorProto(dtype=1, float_val=rng.random(40_000).tolist()),
        proto.TensorProto(dtype=2, double_val=rng.random(40_000).tolist()),
        proto.TensorProto(dtype=7, string_val=[b"ab"] * 40_000),
        proto.TensorProto(dtype=10, bool_val=[True] * 100_000, uint64_val=[2**63] * 20_000),
    ]
    request = proto.RunStepRequest(feed=[proto.NamedTensorProto(name="x", tensor=t) for t in tensors], fetch=["y"])
    created = proto.CreateSessionRequest(graph_def=many, target="t")
    created.config.device_count["CPU"] = 2
    values = proto.AttrValue(list=proto.AttrValue.ListValue(s=[b"s"] * 50_000, tensor=tensors))
    return [many, library, proto.GraphDef(node=[constant] * 3), request, created, values, *tensors]


@pytest.mark.parametrize("message", large_messages(), ids=lambda message: type(message).__name__)
def test_parsed_in_pieces_it_is_the_same(message: Message) -> None:
    data = message.SerializeToString()
    assert len(data) > 2 * wire_format._PIECE
    assert wire_format.parse_in_pieces(type(message), data) == message


def test_message_that_is_given_in_several_parts() -> None:
    one, other = graph(2000), graph(1500)
    parts = [proto.CreateSessionRequest(graph_def=part).SerializeToString() for part in (one, other)]
    data = b"".join([parts[0], b"\x1a\x01t", parts[1], b"\xfa\x07\x03abc"])
    whole = proto.CreateSessionRequest.FromString(data)
    assert wire_format.parse_in_pieces(proto.CreateSessionRequest, data) == whole
    graphs, rest = wire_format.without(data, 1)
    assert proto.GraphDef.FromString(graphs) == whole.graph_def
    whole.ClearField("graph_def")
    assert proto.CreateSessionRequest.FromString(rest) == whole


def test_unknown_groups() -> None:
    group = b"\xfb\x07" + b"\x0b\x08\x05\x0c" + b"\x15abcd" + b"\xfc\x07"
    data = b"\x0a\x01x" + group * 10_000
    assert wire_format.parse_in_pieces(proto.NodeDef, data) == proto.NodeDef.FromString(data)
    assert [tag for tag, *_ in wire_format.fields(data[: 3 + len(group)], 0, 3 + len(group))] == [0x0A, 0x3FB]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x08\x80",
        b"\x08" + b"\x80" * 10 + b"\x01",
        b"\x0c",
        b"\x0b\x08\x01",
        b"\x0b\x14",
        b"\x0b" * 200,
        b"\x0e",
        b"\x0b\x0e",
        b"\x02\x00",
        b"\x0d\x00",
    ],
)
def test_invalid_message_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        proto.NodeDef.FromString(data)
    with pytest.raises((DecodeError, IndexError)):
        list(wire_format.fields(data, 0, len(data)))
    with pytest.raises(DecodeError):
        wire_format.parse_in_pieces(proto.NodeDef, b"\x1a\x00" * 40_000 + data)


def test_broken_messages_are_refused_as_protobuf_refuses_them() -> None:
    rng = random.Random(1)
    message = proto.CreateSessionRequest(graph_def=graph(1500))
    data = bytearray(message.SerializeToString())
    for _ in range(50):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            whole = proto.CreateSessionRequest.FromString(bytes(broken))
        except DecodeError:
            with pytest.raises(DecodeError):
                wire_format.parse_in_pieces(proto.CreateSessionRequest, bytes(broken))
        else:
            assert wire_format.parse_in_pieces(proto.CreateSessionRequest, bytes(broken)) == whole
