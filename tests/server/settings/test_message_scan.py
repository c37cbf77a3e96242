"""`scan`: what it counts is what parsing gives; nothing breaks it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from aexec_server.settings.message_scan import MessageLimits, MessageSize, scan
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec, wire_format
from tests.support.programs.mutations import mutate_bytes

PLENTY = MessageLimits(10**9, 10**15)


def measured(message: Message, limits: MessageLimits = PLENTY) -> MessageSize:
    return scan(message.DESCRIPTOR, message.SerializeToString(), limits)


# What a parsed message holds


def messages_in(message: Any) -> list[Any]:
    """A message, and all in it."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            value = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        elif not wire_format.is_repeated(field):
            value = [value]
        for part in value:
            found += messages_in(part)
    return found


def filled(tensor: proto.TensorProto) -> int:
    """Bytes of the array that it is decoded to, if its elements are not there as bytes."""
    if tensor.tensor_content:
        return 0
    try:
        return int(tensor_codec.from_proto(tensor).nbytes)
    except errors.OpError:
        return 0


# Messages


def _dims(sizes: list[int]) -> proto.TensorShapeProto:
    return proto.TensorShapeProto(dim=[proto.TensorShapeProto.Dim(size=size) for size in sizes])


@st.composite
def tensors(draw: st.DrawFn, depth: int = 1) -> proto.TensorProto:
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.int64, dtypes.uint8, dtypes.string, dtypes.float16]))
    tensor = proto.TensorProto(dtype=dtype.enum, tensor_shape=_dims(draw(st.lists(st.integers(0, 20), max_size=3))))
    values = draw(st.lists(st.integers(0, 200), max_size=4))
    match draw(st.sampled_from(["values", "content", "variants"])):
        case "values":
            field = tensor_codec.value_field(dtype)
            getattr(tensor, field).extend([b"s" * v if dtype is dtypes.string else v for v in values])
        case "content":
            tensor.tensor_content = bytes(values)
        case _ if depth:
            inner = draw(st.lists(tensors(depth - 1), max_size=2))
            tensor.variant_val.add(type_name="v").tensors.extend(inner)
    return tensor


@st.composite
def attrs(draw: st.DrawFn) -> proto.AttrValue:
    match draw(st.sampled_from(["type", "s", "i", "shape", "tensor", "func", "list", "nothing"])):
        case "type":
            return proto.AttrValue(type=draw(st.integers(1, 20)))
        case "s":
            return proto.AttrValue(s=draw(st.binary(max_size=200)))
        case "i":
            return proto.AttrValue(i=draw(st.integers(-(2**63), 2**63 - 1)))
        case "shape":
            return proto.AttrValue(shape=_dims(draw(st.lists(st.integers(-1, 5), max_size=3))))
        case "tensor":
            return proto.AttrValue(tensor=draw(tensors()))
        case "func":
            return proto.AttrValue(func=proto.NameAttrList(name="f", attr={"T": proto.AttrValue(f=1.5)}))
        case "list":
            values = proto.AttrValue.ListValue(
                i=draw(st.lists(st.integers(-3, 300), max_size=5)), tensor=draw(st.lists(tensors(), max_size=2))
            )
            return proto.AttrValue(list=values)
    return proto.AttrValue()


@st.composite
def nodes(draw: st.DrawFn) -> proto.NodeDef:
    node = proto.NodeDef(
        name=draw(st.sampled_from(["", "a", "n" * 200])), op="Const", input=draw(st.lists(st.just("x:1"), max_size=3))
    )
    for name, value in draw(st.dictionaries(st.sampled_from(["T", "value", "long" * 20]), attrs(), max_size=3)).items():
        node.attr[name].CopyFrom(value)
    node.experimental_debug_info.original_node_names.extend(draw(st.lists(st.just("o"), max_size=2)))
    return node


@st.composite
def graphs(draw: st.DrawFn) -> proto.GraphDef:
    graph = proto.GraphDef(node=draw(st.lists(nodes(), max_size=4)))
    graph.versions.bad_consumers.extend(draw(st.lists(st.integers(0, 300), max_size=3)))
    for body in draw(st.lists(st.lists(nodes(), max_size=2), max_size=2)):
        graph.library.function.add(node_def=body, ret={"a": "b"}).signature.attr.add().default_value.i = 1
    return graph


@st.composite
def requests(draw: st.DrawFn) -> Message:
    match draw(st.sampled_from(["create", "extend", "run"])):
        case "create":
            request = proto.CreateSessionRequest(graph_def=draw(graphs()))
            request.config.device_count["CPU"] = draw(st.integers(0, 3))
            return request
        case "extend":
            return proto.ExtendSessionRequest(session_handle="s", graph_def=draw(graphs()), current_graph_version=3)
    feeds = [proto.NamedTensorProto(name="x", tensor=tensor) for tensor in draw(st.lists(tensors(), max_size=3))]
    return proto.RunStepRequest(
        feed=feeds, fetch=draw(st.lists(st.just("y:0"), max_size=3)), options=proto.RunOptions(timeout_in_ms=5)
    )


@settings(max_examples=40)
@given(requests())
def test_counts_are_those_of_the_parsed_message(request: Message) -> None:
    inside = messages_in(request)
    size = measured(request)
    assert size.nodes == sum(isinstance(m, proto.NodeDef | proto.FunctionDef) for m in inside)
    assert size.tensors == sum(isinstance(m, proto.TensorProto) for m in inside)
    assert size.filled_bytes >= sum(filled(m) for m in inside if isinstance(m, proto.TensorProto))
    assert size.expanded_bytes >= size.filled_bytes + len(inside) - 1


def why_refused(kind: type[Message], data: bytes) -> str:
    """What is wrong with bytes that protobuf has no complaint of."""
    try:
        kind.FromString(data)
    except DecodeError:
        return ""
    try:
        scan(kind.DESCRIPTOR, data, PLENTY)
    except errors.OpError as error:
        return error.message
    return ""


@settings(max_examples=40)
@given(requests(), st.integers(0, 2**32))
def test_mutated_messages_that_protobuf_parses_are_measured(request: Message, seed: int) -> None:
    """Broken bytes too; but a tensor whose parts are spread over several parts of a message is refused."""
    why = why_refused(type(request), mutate_bytes(request.SerializeToString(), random.Random(seed)))
    assert not why or "twice in a field" in why or "would take more" in why


@settings(max_examples=40)
@given(st.binary(max_size=60))
def test_random_bytes_are_scanned_or_refused(data: bytes) -> None:
    for kind in (proto.RunStepRequest, proto.CreateSessionRequest, proto.TensorProto, proto.AttrValue):
        why = why_refused(kind, data)
        assert not why or "twice in a field" in why or "would take more" in why


# Limits


def many_nodes(count: int) -> bytes:
    return b"\x0a\x00" * count


def test_nodes_are_limited() -> None:
    limits = MessageLimits(1000, 10**15)
    assert scan(proto.GraphDef.DESCRIPTOR, many_nodes(1000), limits).nodes == 1000
    with pytest.raises(errors.ResourceExhaustedError, match=r"more than 1000 nodes and functions.*: 1001 in its first"):
        scan(proto.GraphDef.DESCRIPTOR, many_nodes(1001), limits)


def test_scan_stops_at_the_limit_on_nodes() -> None:
    with pytest.raises(errors.ResourceExhaustedError) as caught:
        scan(proto.GraphDef.DESCRIPTOR, many_nodes(20_000_000), MessageLimits(1000, 10**15))
    assert "in its first 8192 bytes" in caught.value.message


def test_nodes_of_functions_count_and_functions() -> None:
    graph = proto.GraphDef()
    graph.library.function.add().node_def.extend([proto.NodeDef()] * 5)
    graph.library.function.add()
    assert measured(graph).nodes == 7


def zeros(shape: list[int], dtype: Any = dtypes.float32) -> proto.TensorProto:
    return proto.TensorProto(dtype=dtype.enum, tensor_shape=_dims(shape))


def variants_in_content(inner: proto.TensorProto) -> proto.TensorProto:
    piece = proto.VariantTensorDataProto(tensors=[inner]).SerializeToString()
    tensor = zeros([1], dtypes.variant)
    tensor.tensor_content = bytes([len(piece)]) + piece
    return tensor


def in_attr(tensor: proto.TensorProto) -> proto.NodeDef:
    return proto.NodeDef(attr={"value": proto.AttrValue(tensor=tensor)})


@pytest.mark.parametrize(
    "holding",
    [
        lambda tensor: tensor,
        in_attr,
        lambda tensor: proto.GraphDef(node=[in_attr(tensor)]),
        lambda tensor: proto.RunStepRequest(feed=[proto.NamedTensorProto(tensor=tensor)]),
        lambda tensor: proto.AttrValue(list=proto.AttrValue.ListValue(tensor=[tensor])),
        lambda tensor: proto.TensorProto(variant_val=[proto.VariantTensorDataProto(tensors=[tensor])]),
        variants_in_content,
    ],
)
def test_tensors_that_are_filled_are_limited(holding: Callable[[proto.TensorProto], Message]) -> None:
    assert measured(holding(zeros([1000, 1000]))).filled_bytes == 4_000_000
    with pytest.raises(errors.ResourceExhaustedError, match=r"more than 3999999 bytes .* that fill 4000000 bytes"):
        measured(holding(zeros([1000, 1000])), MessageLimits(10, 3_999_999))


def test_request_is_limited_by_the_sum() -> None:
    request = proto.RunStepRequest(feed=[proto.NamedTensorProto(tensor=zeros([2**24])) for _ in range(200)])
    assert measured(request).filled_bytes == 200 * 2**26
    with pytest.raises(errors.ResourceExhaustedError, match="8 tensors that fill 536870912 bytes"):
        measured(request, MessageLimits(10, 2**29))


@pytest.mark.parametrize("dims", [[2**62] * 1000, [-1, 2**40], [2**40, 0]])
def test_shapes_that_no_tensor_can_have(dims: list[int]) -> None:
    tensor = zeros(dims)
    if 0 in dims or -1 in dims:
        assert measured(tensor).filled_bytes == 0
    else:
        with pytest.raises(errors.ResourceExhaustedError):
            measured(tensor, MessageLimits(1, 2**60))


def test_tensor_whose_parts_are_merged() -> None:
    """Each part says little: together they would be filled."""
    parts = [proto.TensorProto(dtype=1), zeros([2**24], dtypes.int8)]
    parts[1].dtype = 0
    feed = b"".join(proto.NamedTensorProto(tensor=part).SerializeToString() for part in parts)
    assert proto.NamedTensorProto.FromString(feed).tensor.tensor_shape.dim
    with pytest.raises(errors.InvalidArgumentError, match="TensorProto twice in a field that may hold one"):
        scan(proto.NamedTensorProto.DESCRIPTOR, feed, PLENTY)


def test_short_strings_and_entries_are_limited() -> None:
    for data in (b"\x1a\x00" * 100_000, b"\x2a\x04\x0a\x00\x12\x00" * 100_000):
        graph = b"\x0a" + varint(len(data)) + data
        with pytest.raises(errors.ResourceExhaustedError, match="more than 1000000 bytes of memory once decoded"):
            scan(proto.GraphDef.DESCRIPTOR, graph, MessageLimits(10, 1_000_000))


def varint(value: int) -> bytes:
    return value.to_bytes(1) if value < 128 else (value & 127 | 128).to_bytes(1) + varint(value >> 7)


def test_numbers_that_are_packed_are_limited() -> None:
    message = proto.TensorProto(dtype=9, int64_val=[1] * 10_000, tensor_shape=_dims([10_000]))
    assert measured(message).elements == 10_000
    assert measured(message).expanded_bytes >= 160_000


def nested(depth: int) -> bytes:
    """An AttrValue with a function, whose attr has a function, ..."""
    data = b""
    for tag in [b"\x12", b"\x12", b"\x52"] * depth:
        data = tag + varint(len(data)) + data
    return data


def test_messages_in_messages() -> None:
    proto.AttrValue.FromString(nested(30))
    scan(proto.AttrValue.DESCRIPTOR, nested(30), PLENTY)
    for data in (nested(50), nested(400)):
        with pytest.raises(DecodeError):
            proto.AttrValue.FromString(data)
        with pytest.raises(errors.InvalidArgumentError):
            scan(proto.AttrValue.DESCRIPTOR, data, PLENTY)


def test_large_tensors_cost_no_time() -> None:
    """Content is skipped by its length: it is looked at no more than that of a small one."""
    tensor = proto.TensorProto(dtype=1, tensor_shape=_dims([2**22]), tensor_content=bytes(2**24))
    size = measured(tensor)
    assert size.filled_bytes == 0 and np.isclose(size.expanded_bytes, 2**24, rtol=0.01)


def test_many_small_values_are_counted_about_as_fast_as_they_are_decoded() -> None:
    """Strings of a byte: counting them is no reason for an answer to be late."""
    tensor = proto.TensorProto(dtype=dtypes.string.enum, tensor_shape=_dims([200_000]), string_val=[b"a"] * 200_000)
    data = tensor.SerializeToString()

    def seconds(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    def scanned() -> None:
        assert scan(tensor.DESCRIPTOR, data, PLENTY).elements == 200_000

    def decoded() -> None:
        assert tensor_codec.from_proto(proto.TensorProto.FromString(data)).size == 200_000

    assert min(seconds(scanned) for _ in range(5)) < 3 * min(seconds(decoded) for _ in range(5))
