"""The contents of large tensors with names are taken out of a message as views of its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from aexec import proto
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from aexec.framework.wire.tensors_apart import named_tensors_apart

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
