"""Messages in pieces: together they are what protobuf writes at once, and each is small."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from google.protobuf import json_format, text_format
from google.protobuf.message import Message

from aexec import proto
from aexec.framework.wire import message_pieces
from aexec.framework.wire.message_pieces import Apart, Fields, json_pieces, text_pieces

# Of base64, the largest; with the brackets around it.
MOST = 4 * message_pieces._BASE64_AT_ONCE // 3


def messages(scale: int = 1) -> list[Message]:
    """Of each kind of field many, or large ones, in one of so many parts of their size."""
    rng = np.random.default_rng(0)
    noise = rng.bytes(200_000 // scale)
    tensors = [
        proto.TensorProto(dtype=1, float_val=[*rng.standard_normal(5000 // scale), float("nan"), float("-inf")]),
        proto.TensorProto(dtype=9, int64_val=range(-3000 // scale, 3000 // scale)),
        proto.TensorProto(dtype=7, string_val=[b"", b"\xff\x00", noise[: 50_000 // scale], *[b"ab"] * (3000 // scale)]),
        proto.TensorProto(dtype=4, tensor_content=noise, tensor_shape={"dim": [{"size": 200_000}]}),
        proto.TensorProto(dtype=10, bool_val=[True, False] * (3000 // scale), half_val=[7] * (1500 // scale)),
    ]
    text = 'a"\n\\é\U0001f600' * (5000 // scale)
    attr = {
        "list": {
            "list": {
                "s": [noise[: 9000 // scale], b"x"],
                "tensor": tensors[:2],
                "type": [1, 3] * (2000 // scale),
                "b": [True] * (3000 // scale),
            }
        },
        "bytes": {"s": noise},
        "none": {},
        "func": {"func": {"name": text, "attr": {"deep": {"tensor": tensors[3]}}}},
        **{f"small {i}": {"i": i} for i in range(500 // scale)},
    }
    node = proto.NodeDef(name="n", op="Op", input=[f"in{i}" for i in range(4000 // scale)], device=text, attr=attr)
    function = proto.FunctionDef(node_def=[node, proto.NodeDef()], ret={f"r{i}": "n:z" for i in range(900 // scale)})
    function.signature.name = text
    function.arg_attr[3].attr["x"].s = noise[: 5000 // scale]
    for number in range(2000 // scale):
        function.resource_arg_unique_id[number] = number
    graph = proto.GraphDef(node=[proto.NodeDef(name=f"n{i}", op="NoOp") for i in range(2000 // scale)])
    graph.library.function.append(function)
    graph.versions.SetInParent()
    return [proto.NodeDef(), proto.NodeDef(name="small"), *tensors, node, function, graph]


@pytest.mark.parametrize(
    ("message", "small"),
    [(message, small) for small, scale in ((2048, 5), (40, 25), (8, 60)) for message in messages(scale)],
    ids=lambda one: str(one) if isinstance(one, int) else type(one).__name__,
)
def test_pieces_are_the_text_that_protobuf_writes(
    message: Message, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_pieces, "_SMALL", small)  # bytes that protobuf writes at a stretch
    pieces = list(json_pieces(message))
    whole = json_format.MessageToJson(message, preserving_proto_field_name=True)
    text = "".join(pieces)
    assert sorted(text.replace(",", "").splitlines()) == sorted(whole.replace(",", "").splitlines())
    assert json.loads(text, object_pairs_hook=_once) == json.loads(whole) and max(map(len, pieces)) <= MOST
    pieces = list(text_pieces(message))
    assert "".join(pieces) == text_format.MessageToString(message)
    assert max(map(len, pieces), default=0) <= MOST


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_unknown_fields_are_left_out_as_by_protobuf() -> None:
    message = proto.NodeDef.FromString(b"\xfa\x07\xff\x7f" + bytes(127 * 128 + 127))
    assert message.ByteSize() > message_pieces._SMALL
    assert "".join(json_pieces(message)) == "{}" and "".join(text_pieces(message)) == ""


def test_message_that_is_made_while_it_is_written() -> None:
    made: list[int] = []

    def nodes() -> Iterator[proto.NodeDef]:
        for number in range(1000):
            made.append(number)
            yield proto.NodeDef(name=f"n{number}", op="NoOp")

    def fields() -> Iterator[tuple[str, object]]:
        yield "node", nodes()
        yield "library", Fields(proto.FunctionDefLibrary, [("function", [])])
        yield "versions", proto.VersionDef(producer=3)

    graph = proto.GraphDef(node=nodes(), versions=proto.VersionDef(producer=3))
    graph.library.SetInParent()
    assert "".join(text_pieces(Fields(proto.GraphDef, fields()))) == text_format.MessageToString(graph)
    made.clear()
    pieces = json_pieces(Fields(proto.GraphDef, fields()))
    first = [next(pieces) for _ in range(2)]
    assert 0 < len(made) < 300
    assert json.loads("".join([*first, *pieces])) == json_format.MessageToDict(graph, preserving_proto_field_name=True)


def test_bytes_apart() -> None:
    """They are written in the places of their marks, and not looked at as text."""
    marks = ["mark1" * 5 + "-----", "mark2" * 5 + "-----"]
    contents = dict(zip(marks, [marks[1].encode(), b"\x00'\xff"], strict=True))
    marked, whole = proto.NodeDef(name="n"), proto.NodeDef(name="n")
    for name, (mark, content) in zip("ab", contents.items(), strict=True):
        marked.attr[name].s, whole.attr[name].s = mark.encode(), content
    apart = Apart(marked, {mark: memoryview(content) for mark, content in contents.items()})
    fields = Fields(proto.GraphDef, [("node", [proto.NodeDef(name="before"), apart])])
    graph = proto.GraphDef(node=[proto.NodeDef(name="before"), whole])
    assert "".join(text_pieces(fields)) == text_format.MessageToString(graph)
    assert json.loads("".join(json_pieces(fields))) == json_format.MessageToDict(
        graph, preserving_proto_field_name=True
    )
