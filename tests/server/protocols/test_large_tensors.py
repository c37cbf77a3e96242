"""Large tensors are taken out of requests as they are; what is unusual is left to protobuf."""

from __future__ import annotations

import numpy as np
import pytest
from aexec_server.protocols.large_tensors import infer_apart, predict_apart, run_step_apart
from aexec_server.requests.protobuf import read_run_step

from aexec import proto
from aexec.framework.wire import tensor_codec
from aexec.framework.wire.wire_format import enclosed
from aexec.proto import inference, serving

LARGE = np.arange(2**15, dtype=np.float32).tobytes()
UNKNOWN = b"".join(b"".join(enclosed(number, [b"x"])) for number in range(100, 150))


def dense(content: bytes, dtype: int = 1) -> proto.TensorProto:
    message = proto.TensorProto(dtype=dtype, tensor_content=content)
    message.tensor_shape.dim.add(size=len(content) // 4)
    return message


def request(**inputs: proto.TensorProto) -> serving.PredictRequest:
    return serving.PredictRequest(model_spec=serving.ModelSpec(name="m"), inputs=inputs, output_filter=["y"])


class TestPredict:
    def test_large_contents_are_views_and_the_rest_is_the_rest(self) -> None:
        data = request(a=dense(LARGE), b=dense(b"abcd"), ü=dense(LARGE[::-1])).SerializeToString()
        rest, contents = predict_apart(data)
        assert contents == {"a": LARGE, "ü": LARGE[::-1]} and len(rest) < 200
        expected = request(a=dense(LARGE), b=dense(b"abcd"), ü=dense(LARGE))
        for name in contents:
            expected.inputs[name].ClearField("tensor_content")
        assert serving.PredictRequest.FromString(rest) == expected
        assert all(view.obj is data for view in contents.values())

    @pytest.mark.parametrize(
        "data",
        [
            request(a=dense(b"abcd")).SerializeToString(),
            request(a=proto.TensorProto(dtype=1, float_val=[1.5] * 2**15)).SerializeToString(),
            request(a=dense(LARGE)).SerializeToString() + request(a=dense(LARGE)).SerializeToString(),
            request(a=dense(LARGE)).SerializeToString()[:-1],
            b"\x0a" * 2**17,
            b"".join(enclosed(2, [*enclosed(1, [b"a"]), *enclosed(2, [dense(LARGE).SerializeToString()] * 2)])),
            b"".join(enclosed(2, enclosed(2, [dense(LARGE).SerializeToString()]))),
            b"".join(enclosed(2, [*enclosed(1, [b"\xff"]), *enclosed(2, [dense(LARGE).SerializeToString()])])),
            b"\x18\x01" * 2**16,
            b"".join(enclosed(2, [*enclosed(1, [b"a"]), *enclosed(2, [dense(LARGE).SerializeToString(), UNKNOWN])])),
        ],
        ids=[
            "small",
            "values",
            "name twice",
            "cut off",
            "garbage",
            "content twice",
            "no key",
            "no text",
            "many fields",
            "many fields in a tensor",
        ],
    )
    def test_unusual_message_is_left_unchanged(self, data: bytes) -> None:
        rest, contents = predict_apart(data)
        assert rest == data and not contents


class TestInfer:
    def test_raw_contents_are_views_in_their_order(self) -> None:
        message = inference.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"a", LARGE, b""])
        rest, raw = infer_apart(message.SerializeToString())
        assert raw == [b"a", LARGE, b""]
        assert inference.ModelInferRequest.FromString(rest) == inference.ModelInferRequest(model_name="m", id="7")

    @pytest.mark.parametrize("size", [10, 2**17])
    def test_small_requests_and_no_requests_are_left_as_they_are(self, size: int) -> None:
        data = inference.ModelInferRequest(model_name="m", raw_input_contents=[bytes(size)]).SerializeToString()[:-1]
        assert infer_apart(data) == (data, [])


def test_run_step_without_its_large_feeds_is_the_same_run() -> None:
    large, small = np.arange(2**15, dtype=np.float32), np.float32([1, 2])
    message = proto.RunStepRequest(session_handle="s", fetch=["y:0"], options=proto.RunOptions(timeout_in_ms=7))
    for name, value in (("a:0", small), ("b:0", large), ("c:0", large[::-1].copy())):
        message.feed.add(name=name).tensor.CopyFrom(tensor_codec.to_proto(value, compact=False))
    data = message.SerializeToString()
    rest, contents = run_step_apart(data)
    assert len(rest) < 1000 and contents.keys() == {1, 2}
    asked = read_run_step(proto.RunStepRequest.FromString(rest), contents)
    expected = read_run_step(message)
    assert (asked.timeout, asked.fetches, [*asked.feeds]) == (0.007, ("y:0",), ["a:0", "b:0", "c:0"])
    for name, value in expected.feeds.items():
        np.testing.assert_array_equal(asked.feeds[name], value)
    assert run_step_apart(message.feed[0].SerializeToString())[1] == {}
