"""The contents of large tensors with names are taken out of a message as views of its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from aexec import proto
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from aexec.framework.wire.tensors_apart import attr_tensor_apart, named_tensors_apart

LARGE, SMALL = np.arange(2**15, dtype=np.float32), np.float32([1, 2])
FETCHED = proto.RunStepResponse.TENSOR_FIELD_NUMBER


def response(**values: object) -> bytes:
    message = proto.RunStepResponse()
    for name, value in values.items():
        message.tensor.add(name=name).tensor.CopyFrom(to_proto(value, compact=False))
    message.metadata.SetInParent()
    return message.SerializeToString()


def test_contents_are_views_of_the_message() -> None:
    data = response(a=SMALL, b=LARGE, c=LARGE[::-1])
    rest, names, contents = named_tensors_apart(data, FETCHED)
    assert names == ["a", "b", "c"] and contents.keys() == {1, 2} and len(rest) < 200
    assert all(view.obj is data for view in contents.values())
    tensors = proto.RunStepResponse.FromString(rest).tensor
    got = [from_proto(named.tensor, content=contents.get(i)) for i, named in enumerate(tensors)]
    assert [value.tolist() for value in got] == [SMALL.tolist(), LARGE.tolist(), LARGE[::-1].tolist()]


@pytest.mark.parametrize(
    "data",
    [response(a=SMALL), response(a=LARGE)[:-1], b"\x0a" * 2**17, b"\x18\x01" * 2**16],
    ids=["small", "cut off", "garbage", "many fields"],
)
def test_unusual_message_is_left_as_it_is(data: bytes) -> None:
    rest, names, contents = named_tensors_apart(data, FETCHED)
    assert rest is data and not names and not contents


def entry(**values: object) -> bytes:
    """An entry of a map of attrs, which has one value."""
    ((name, value),) = values.items()
    message = proto.NodeDef.AttrEntry(key=name)
    if isinstance(value, np.ndarray):
        message.value.tensor.CopyFrom(to_proto(value, compact=False))
    else:
        message.value.s = value
    return message.SerializeToString()


def test_content_of_an_attr_is_a_view_of_its_entry() -> None:
    data = entry(value=LARGE)
    found = attr_tensor_apart(data)
    assert found is not None
    rest, content = found
    assert content.obj is data and len(rest) < 100
    message = proto.NodeDef.AttrEntry.FromString(rest)
    assert message.key == "value" and not message.value.tensor.tensor_content
    assert from_proto(message.value.tensor, content=content).tolist() == LARGE.tolist()


@pytest.mark.parametrize(
    "data",
    [
        entry(value=SMALL),
        entry(value=b"\0" * 2**17),
        entry(value=LARGE)[:-1],
        entry(value=LARGE) + entry(value=LARGE),
        proto.NodeDef.AttrEntry(
            key="value", value=proto.AttrValue(tensor=proto.TensorProto(dtype=1, float_val=[1.5] * 2**15))
        ).SerializeToString(),
        b"\x0a" * 2**17,
    ],
    ids=["small", "string", "cut off", "twice", "values", "garbage"],
)
def test_entry_without_a_large_content_is_left_to_protobuf(data: bytes) -> None:
    assert attr_tensor_apart(data) is None
