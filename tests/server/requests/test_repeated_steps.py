"""Messages that repeat an earlier one are read as protobuf reads them; others are left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aexec_server.requests import protobuf
from aexec_server.requests.repeated_steps import RepeatedSteps

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec


def message(value: Any, request_id: int = 2**62 + 5, **fields: Any) -> proto.RunStepRequest:
    feed = proto.NamedTensorProto(name="x:0", tensor=tensor_codec.to_proto(value, compact=False))
    return proto.RunStepRequest(session_handle="s1", feed=[feed], fetch=["y:0"], request_id=request_id, **fields)


def reader_of(*known: proto.RunStepRequest) -> RepeatedSteps:
    steps = RepeatedSteps()
    for one in known:
        for _ in range(2):
            assert steps.read(one.SerializeToString()) is not None
    return steps


def parses(steps: RepeatedSteps, body: bytes, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if protobuf is asked to parse the message."""
    asked: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr(protobuf, "parse_small_run", lambda data: asked.append(data))
        steps.read(body)
    return bool(asked)


@pytest.mark.parametrize("request_id", [0, 1, 2**40, 2**63 - 1, -1])
def test_repeated_message_has_its_own_numbers(request_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = reader_of(message(np.float32([1, 2]), store_errors_in_response_body=True))
    sent = message(np.float32([3, 4]), request_id, store_errors_in_response_body=True).SerializeToString()
    found = steps.read(sent)
    assert found is not None
    assert found.session_handle == "s1" and found.errors_in_body
    assert found.asked.fetches == ("y:0",)
    assert found.asked.feeds["x:0"].tolist() == [3, 4]
    assert not found.asked.feeds["x:0"].flags.writeable
    assert not parses(steps, sent, monkeypatch)


@pytest.mark.parametrize(
    "other",
    [
        message(np.float32([[1], [2]])),
        message(np.int32([1, 2])),
        message(np.float32([1, 2]), store_errors_in_response_body=True),
        message(np.float32([1, 2]), partial_run_handle="p"),
        message(np.float32([1, 2]), target=["t"]),
    ],
)
def test_message_of_another_form_is_parsed(other: proto.RunStepRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parses(reader_of(message(np.float32([1, 2]))), other.SerializeToString(), monkeypatch)


@pytest.mark.parametrize("rest", [b"\x40", b"\x40\x80", b"\x40\x01\x01", b"\x48\x01", b"\x40" + b"\x80" * 10 + b"\x01"])
def test_message_with_another_end_is_parsed(rest: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    known = message(np.float32([1, 2]), 0)
    assert parses(reader_of(known), known.SerializeToString() + rest, monkeypatch)


def test_repeated_message_with_an_invalid_bool_is_left_to_others() -> None:
    known = message(np.array([True, False]))
    sent = known.SerializeToString().replace(b"\x22\x02\x01\x00", b"\x22\x02\x01\x02")
    assert sent != known.SerializeToString()
    assert reader_of(known).read(sent) is None


def test_forms_of_several_sessions_and_feeds_are_kept_apart() -> None:
    one, other = message(np.float32([1, 2])), message(np.float32([[5, 6], [7, 8]]))
    other.session_handle = "s2"
    steps = reader_of(one, other)
    for sent in (one, other, one):
        found = steps.read(sent.SerializeToString())
        assert found is not None and found.session_handle == sent.session_handle
        want = tensor_codec.from_proto(sent.feed[0].tensor)
        np.testing.assert_array_equal(found.asked.feeds["x:0"], want)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (200, 40)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_, dtypes.complex128, dtypes.bfloat16, dtypes.qint8])
def test_answer_is_the_message_of_its_tensors(dtype: Any, shape: tuple[int, ...]) -> None:
    value = np.ones(shape, dtype.np)
    for name in ("y:0", "n" * 300):
        tensor = tensor_codec.to_proto(value, dtype, compact=False)
        tensor.tensor_shape.SetInParent()
        want = proto.RunStepResponse(tensor=[proto.NamedTensorProto(name=name, tensor=tensor)])
        want.metadata.SetInParent()
        assert protobuf.run_step_response([name], [dtype], [value], None) == want.SerializeToString()
