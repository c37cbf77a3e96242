"""Serialised tensors: known answers, messages, round trips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.wire import tensor_codec
from tests.kernels.answer_tables import INVALID, known_answers, refused, texts
from tests.kernels.array_support import F32, I32
from tests.kernels.harness import run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "SerializeTensor",
        [F32([[1, 2], [3, 3]])],
        {},
        [texts(b'\x08\x01\x12\x08\x12\x02\x08\x02\x12\x02\x08\x02"\x10\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00@@')],
    ),
    (
        "ParseTensor",
        [texts(b'\x08\x01\x12\x08\x12\x02\x08\x02\x12\x02\x08\x02"\x10\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00@@')],
        {'out_type': 'float32'},
        [F32([[1, 2], [3, 3]])],
    ),
    (
        "SerializeTensor",
        [F32([1, 1, 1])],
        {},
        [texts(b'\x08\x01\x12\x04\x12\x02\x08\x03"\x0c\x00\x00\x80?\x00\x00\x80?\x00\x00\x80?')],
    ),
    (
        "ParseTensor",
        [texts(b'\x08\x01\x12\x04\x12\x02\x08\x03"\x0c\x00\x00\x80?\x00\x00\x80?\x00\x00\x80?')],
        {'out_type': 'float32'},
        [F32([1, 1, 1])],
    ),
    ("ParseTensor", [texts(b'\x08\x03\x12\x00"\x04\x03\x00\x00\x00')], {'out_type': 'int32'}, [I32(3)]),
    ("SerializeTensor", [texts(b'a', b'bb')], {}, [texts(b'\x08\x07\x12\x04\x12\x02\x08\x02B\x01aB\x02bb')]),
    (
        "ParseTensor",
        [texts(b'\x08\x07\x12\x04\x12\x02\x08\x02B\x01aB\x02bb')],
        {'out_type': 'string'},
        [texts(b'a', b'bb')],
    ),
    (
        "ParseTensor",
        [texts(b'\x08\n\x12\x04\x12\x02\x08\x02"\x02\x01\x00')],
        {'out_type': 'bool'},
        [np.array([True, False], np.bool)],
    ),
    ("SerializeTensor", [np.empty((0, 2), np.float32)], {}, [texts(b'\x08\x01\x12\x06\x12\x00\x12\x02\x08\x02')]),
    (
        "ParseTensor",
        [texts(b'\x08\x01\x12\x06\x12\x00\x12\x02\x08\x02')],
        {'out_type': 'float32'},
        [np.empty((0, 2), np.float32)],
    ),
    ("SerializeTensor", [texts(b'zz')], {}, [texts(b'\x08\x07\x12\x00B\x02zz')]),
    ("ParseTensor", [texts(b'\x08\x07\x12\x00B\x02zz')], {'out_type': 'string'}, [texts(b'zz')]),
    (
        "SerializeTensor",
        [np.array([1, 2], np.float16)],
        {},
        [texts(b'\x08\x13\x12\x04\x12\x02\x08\x02"\x04\x00<\x00@')],
    ),
    (
        "ParseTensor",
        [texts(b'\x08\x13\x12\x04\x12\x02\x08\x02"\x04\x00<\x00@')],
        {'out_type': 'float16'},
        [np.array([1, 2], np.float16)],
    ),
    (
        "SerializeTensor",
        [np.array([1+2j], np.complex64)],
        {},
        [texts(b'\x08\x08\x12\x04\x12\x02\x08\x01"\x08\x00\x00\x80?\x00\x00\x00@')],
    ),
    (
        "ParseTensor",
        [texts(b'\x08\x08\x12\x04\x12\x02\x08\x01"\x08\x00\x00\x80?\x00\x00\x00@')],
        {'out_type': 'complex64'},
        [np.array([1+2j], np.complex64)],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "ParseTensor",
        [texts(b'garbage')],
        {'out_type': 'float32'},
        "Could not parse `serialized` as TensorProto, base64: Z2FyYmFnZQ==",
        INVALID,
    ),
    (
        "ParseTensor",
        [texts(b'', shape=(1,))],
        {'out_type': 'float32'},
        "Expected `serialized` to be a scalar, got shape: [1]",
        INVALID,
    ),
    (
        "ParseTensor",
        [texts(b'\x08\x03\x12\x00"\x04\x03\x00\x00\x00')],
        {'out_type': 'float32'},
        "Type mismatch between parsed tensor (int32) and dtype (float)",
        INVALID,
    ),
]
# fmt: on


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex64])
def test_large_tensor_is_serialised_to_the_same_bytes(dtype):
    tensor = np.arange(6_000_000).reshape(3000, 2000).astype(dtype)[:, ::-1]
    message = proto.TensorProto.FromString(run_op("SerializeTensor", [tensor]).item())
    assert message == tensor_codec.to_proto(tensor, compact=False)
    assert message.SerializeToString(deterministic=True) == run_op("SerializeTensor", [tensor]).item()


test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


@pytest.mark.parametrize(
    "tensor",
    [
        np.arange(30_000, dtype=np.int64).reshape(3, -1),
        np.arange(30_000).astype(np.complex64)[::2],
        np.arange(30_000) % 3 > 0,
        np.array([b"a", b"bc" * 100] * 15_000, object).reshape(2, -1),
        np.broadcast_to(np.array(b"abc", object), (3, 10_000)),
    ],
)
def test_large_tensors_are_written_as_small_ones(tensor):
    dtype = dtypes.from_numpy(tensor.dtype)
    message = tensor_codec.to_proto(tensor, dtype, compact=False)
    wanted = message.SerializeToString(deterministic=True)
    assert run_op("SerializeTensor", [tensor]).item() == wanted
    summary = proto.Summary(value=[proto.Summary.Value(node_name="TensorSummary", tensor=message)])
    assert run_op("TensorSummary", [tensor]).item() == summary.SerializeToString()


def test_messages_do_not_repeat_long_strings():
    long = b"\xff" * 100_000
    for op, attrs in (("ParseTensor", {"out_type": "float32"}), ("StringToNumber", {})):
        with pytest.raises(errors.InvalidArgumentError, match="100000") as caught:
            run_op(op, [np.array(long, object)], **attrs)
        assert len(caught.value.message) < 2000
