"""Fields of any message: TensorFlow's answers, what protobuf reads and writes, hostile descriptions and messages."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec import errors
from aexec.framework import dtypes, zeros
from aexec.framework.wire.wire_format import put_varint
from tests.kernels.answer_tables import INVALID, texts
from tests.kernels.array_support import I32
from tests.kernels.harness import in_tensorflow, registered, run_op
from tests.support.programs.graphs import GraphBuilder

ANSWERS = json.loads((Path(__file__).parent / "data" / "proto_answers.json").read_text())
# FileDescriptorSets; the first has the messages that the others vary.
SOURCES = [base64.b64decode(source) for source in ANSWERS["sources"]]
FILES = descriptor_pb2.FileDescriptorSet.FromString(SOURCES[0])
SOURCE = b"bytes://" + SOURCES[0]
_POOL = descriptor_pool.DescriptorPool()
for _file in FILES.file:
    _POOL.Add(_file)
Message: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("t.M"))
NUMBERS = {field.name: field.number for field in Message.DESCRIPTOR.fields}
DATA_LOSS = errors.DataLossError


def decode(data: Any, **fields: str) -> Any:
    """Sizes and values of the fields, given with their types."""
    return run_op(
        "DecodeProtoV2", [data], message_type=b"t.M", descriptor_source=SOURCE,
        field_names=[name.encode() for name in fields], output_types=list(fields.values()),
    )  # fmt: skip


def _value(recorded: Any) -> Any:
    if isinstance(recorded, list):
        return [_value(value) for value in recorded]
    if isinstance(recorded, str):
        return float("nan") if recorded == "nan" else recorded.removeprefix("b:").encode("latin-1")
    return recorded


def _attrs(case: dict[str, Any]) -> dict[str, Any]:
    source = case["source"]
    attrs = {"message_type": b"t.M", **{k: v.encode() if isinstance(v, str) else v for k, v in case["attrs"].items()}}
    attrs["descriptor_source"] = b"bytes://" + SOURCES[source] if isinstance(source, int) else source.encode()
    return {**attrs, "field_names": [name.encode() for name in case["names"]]}


def _answer(case: dict[str, Any]) -> Any:
    if case["op"] == "DecodeProtoV2":
        data = np.array(_value(case["bytes"]), object).reshape(case.get("shape", np.shape(case["bytes"])))
        return run_op("DecodeProtoV2", [data], output_types=case["types"], **_attrs(case))
    values = [
        np.array(_value(value), dtypes.as_dtype(kind).np).reshape(shape)
        for value, kind, shape in zip(case["values"], case["types"], case["shapes"], strict=True)
    ]
    sizes = np.array(case["sizes"], np.int32).reshape(case["sizes_shape"])
    return run_op("EncodeProto", [sizes, values], **_attrs(case))


@pytest.mark.parametrize("case", ANSWERS["cases"], ids=lambda case: f"{case['op']}-{'-'.join(case['names'])[:40]}")
def test_answers_and_refusals_are_those_of_tensorflow(case: dict[str, Any]) -> None:
    answer = case["answer"]
    if isinstance(answer, dict):
        with pytest.raises(getattr(errors, answer["error"])) as refused:
            _answer(case)
        assert refused.value.message.startswith(answer["text"])
        return
    found = _answer(case)
    outputs = found if isinstance(found, tuple) else (found,)
    if case["op"] == "EncodeProto":
        answer = [answer]
    elif len(case["names"]) == 0:
        answer = answer[:1]
    assert repr([output.tolist() for output in outputs]) == repr(_value(answer))


@pytest.mark.parametrize("op", ["DecodeProtoV2", "EncodeProto"])
def test_registrations(op):
    assert registered(op) == in_tensorflow(op)


WHOLE = st.integers(-(2**31), 2**31 - 1)
VALUES = {
    "int32": WHOLE, "r_int32": st.lists(WHOLE), "p_sint32": st.lists(WHOLE),
    "p_sint64": st.lists(st.integers(-(2**63), 2**63 - 1)), "r_uint64": st.lists(st.integers(0, 2**64 - 1)),
    "p_fixed32": st.lists(st.integers(0, 2**32 - 1)), "p_bool": st.lists(st.booleans()),
    "p_double": st.lists(st.floats(allow_nan=False)), "r_float": st.lists(st.floats(width=32, allow_nan=False)),
    "r_bytes": st.lists(st.binary(max_size=300)), "r_string": st.lists(st.text(max_size=5)),
}  # fmt: skip
TYPES = {
    "int32": "int64", "r_int32": "int32", "p_sint32": "int32", "p_sint64": "int64", "r_uint64": "uint64",
    "p_fixed32": "uint64", "p_bool": "bool", "p_double": "float64", "r_float": "float32", "r_bytes": "string",
    "r_string": "string",
}  # fmt: skip


@given(st.lists(st.fixed_dictionaries({}, optional=VALUES), min_size=1, max_size=4))
def test_random_messages_are_taken_apart_and_made_again(contents):
    messages = [Message(**content) for content in contents]
    sizes, *values = decode(texts(*[message.SerializeToString() for message in messages], shape=(-1,)), **TYPES)
    for row, message in enumerate(messages):
        for column, name in enumerate(TYPES):
            found = values[column][row, : sizes[row, column]].tolist()
            wanted = getattr(message, name) if name[1] == "_" else [message.int32] if message.HasField("int32") else []
            assert found == [value.encode() if isinstance(value, str) else value for value in wanted]
    again = run_op(
        "EncodeProto", [sizes, values], message_type=b"t.M", descriptor_source=SOURCE,
        field_names=[name.encode() for name in TYPES],
    )  # fmt: skip
    assert again.tolist() == [message.SerializeToString(deterministic=True) for message in messages]


def test_long_packed_field_is_read_in_pieces_as_a_whole():
    numbers = [i % 70_000 for i in range(100_000)]
    sizes, values = decode(texts(Message(p_int32=numbers).SerializeToString()), p_int32="int32")
    assert sizes.tolist() == [100_000] and values.tolist() == numbers


def test_places_of_strings_are_filled_in_pieces(monkeypatch):
    monkeypatch.setattr(zeros, "_AT_ONCE", 3)
    messages = texts(Message(r_string=["a"] * 5).SerializeToString(), b"", b"")
    sizes, values = decode(messages, r_string="string")
    assert sizes.tolist() == [[5], [0], [0]]
    assert values.tolist() == [[b"a"] * 5, [b""] * 5, [b""] * 5]


def test_descriptions_in_a_file(tmp_path):
    (tmp_path / "messages.pb").write_bytes(SOURCES[0])
    attrs = {"message_type": b"t.M", "field_names": [b"r_int32"], "descriptor_source": bytes(tmp_path / "messages.pb")}
    made = run_op("EncodeProto", [I32([[2]]), [I32([[1, 2, 3]])]], **attrs)
    assert made.tolist() == [Message(r_int32=[1, 2]).SerializeToString()]
    sizes, values = run_op("DecodeProtoV2", [made], output_types=["int32"], **attrs)
    assert (sizes.tolist(), values.tolist()) == ([[2]], [[1, 2]])


@pytest.mark.parametrize(("name", "field"), [("tensorflow.GraphDef", "version"), ("aexec.Summary.Value", "tag")])
def test_messages_of_this_process(name, field):
    attrs = {"message_type": name.encode(), "field_names": [field.encode()], "descriptor_source": b"local://"}
    dtype = "int32" if field == "version" else "string"
    sizes, _ = run_op("DecodeProtoV2", [texts(b"")], output_types=[dtype], **attrs)
    assert sizes.tolist() == [0]


@pytest.mark.parametrize("source", [b"local://x", b"local:///etc/passwd", b"bytes://" + b"\n\0" * 600_000])
def test_other_sources_are_refused(source):
    with pytest.raises(INVALID):
        run_op("DecodeProtoV2", [texts(b"")], message_type=b"t.M", field_names=[], output_types=[],
               descriptor_source=source)  # fmt: skip


def wide(fields: int) -> bytes:
    """Descriptions of a message with this many fields, and more of its kind within."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="w.proto", package="w", syntax="proto2")
    message = file.message_type.add(name="W")
    message.field.add(name="w", number=1, type=11, type_name=".w.W", label=3)
    for i in range(fields):
        message.field.add(name=f"f{i}", number=i + 2, type=3, label=1)
    return b"bytes://" + files.SerializeToString()


WIDE = wide(2000)
TEXT = b"w { } " * 20_000


@pytest.mark.parametrize(
    ("data", "attrs"), [(b"\x0a\x00" * 20_000, {"sanitize": True}), (TEXT, {"message_format": b"text"})]
)
async def test_objects_of_messages_are_counted_before_they_are_made(data, attrs):
    """Each two bytes become an object with room for 2000 fields."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.string)
    g("d", "DecodeProtoV2", "x", message_type=b"w.W", descriptor_source=WIDE, field_names=[b"w"],
      output_types=[dtypes.string], **attrs)  # fmt: skip
    graph = g.graph()
    async with aexec.Session(graph, config=aexec.SessionConfig(step_bytes=100 << 20)) as session:
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run("d:0", {"x:0": np.array(data, object)})
        sizes = await session.run("d:0", {"x:0": np.array(data[:60], object)})
        assert sizes.tolist() == [60 // (2 if "sanitize" in attrs else 6)]


def test_negative_and_zero_sizes_write_nothing():
    attrs = {"message_type": b"t.M", "descriptor_source": SOURCE, "field_names": [b"p_int32"]}
    assert run_op("EncodeProto", [I32([[-1], [0]]), [I32([[1], [2]])]], **attrs).tolist() == [b"", b""]


def test_cut_messages_never_fail_otherwise():
    """Every beginning of a message, and each with a byte changed, is read or refused."""
    data = Message(int32=5, p_int32=[1, 300], message=Message(int32=1), r_string=["ab"]).SerializeToString()
    data += put_varint(NUMBERS["g"] << 3 | 3) + b"\x08\x03" + put_varint(NUMBERS["g"] << 3 | 4)
    fields = {"int32": "int32", "p_int32": "int32", "message": "string", "r_string": "string", "g": "string"}
    outcomes = set()
    for end in range(len(data)):
        for byte in (0, 7, 12, 127, 128, 255):
            for changed in (data[:end], data[:end] + bytes([byte]) + data[end + 1 :]):
                try:
                    decode(texts(changed), **fields)
                except DATA_LOSS:
                    outcomes.add("refused")
                else:
                    outcomes.add("read")
    assert outcomes == {"refused", "read"}
