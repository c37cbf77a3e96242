"""Raw and compressed strings: known answers and messages."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.memory import allocator
from tests.kernels.answer_tables import INVALID, known_answers, refused, texts
from tests.kernels.array_support import I32, I64
from tests.kernels.harness import run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'uint8'},
        [np.array([[1, 0, 2, 0, 3, 0, 4, 0, 1, 0, 2, 0, 3, 0, 4, 0]], np.uint8)],
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'uint8', 'little_endian': False},
        [np.array([[1, 0, 2, 0, 3, 0, 4, 0, 1, 0, 2, 0, 3, 0, 4, 0]], np.uint8)],
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'int64'},
        [I64([[1125912791875585, 1125912791875585]])],
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'int64', 'little_endian': False},
        [I64([[72059793111516160, 72059793111516160]])],
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'float16'},
        [np.array([[5.960464477539063e-08, 1.1920928955078125e-07, 1.7881393432617188e-07, 2.384185791015625e-07, 5.960464477539063e-08, 1.1920928955078125e-07, 1.7881393432617188e-07, 2.384185791015625e-07]], np.float16)],  # noqa: E501
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'float16', 'little_endian': False},
        [np.array([[1.52587890625e-05, 3.0517578125e-05, 4.57763671875e-05, 6.103515625e-05, 1.52587890625e-05, 3.0517578125e-05, 4.57763671875e-05, 6.103515625e-05]], np.float16)],  # noqa: E501
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'bool'},
        [np.array([[True, False, True, False, True, False, True, False, True, False, True, False, True, False, True, False]], np.bool)],  # noqa: E501
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'bool', 'little_endian': False},
        [np.array([[True, False, True, False, True, False, True, False, True, False, True, False, True, False, True, False]], np.bool)],  # noqa: E501
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'complex64'},
        [np.array([[1.8367239361444675e-40+3.673461885273578e-40j, 1.8367239361444675e-40+3.673461885273578e-40j]], np.complex64)],  # noqa: E501
    ),
    (
        "DecodeRaw",
        [texts(b'\x01\x00\x02\x00\x03\x00\x04\x00\x01\x00\x02\x00\x03\x00\x04\x00', shape=(1,))],
        {'out_type': 'complex64', 'little_endian': False},
        [np.array([[2.351132194607322e-38+3.76204110011211e-37j, 2.351132194607322e-38+3.76204110011211e-37j]], np.complex64)],  # noqa: E501
    ),
    ("DecodeRaw", [texts(shape=(0,))], {'out_type': 'int32'}, [np.empty((0, 0), np.int32)]),
    ("DecodeRaw", [texts(b'', shape=(1,))], {'out_type': 'int32'}, [np.empty((1, 0), np.int32)]),
    ("DecodeRaw", [texts(b'abcd')], {'out_type': 'int32'}, [I32([1684234849])]),
    (
        "DecodeRaw",
        [texts(b'abcd', b'efgh', b'abcd', b'efgh', shape=(2, 2))],
        {'out_type': 'int16'},
        [np.array([[[25185, 25699], [26213, 26727]], [[25185, 25699], [26213, 26727]]], np.int16)],
    ),
    (
        "DecodeRaw",
        [texts(b'\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f')],
        {'out_type': 'complex128', 'little_endian': False},
        [np.array([1.40159977307889e-309+5.924543410270741e-270j], np.complex128)],
    ),
    ("DecodeRaw", [texts(b'', b'')], {'out_type': 'int32'}, [np.empty((2, 0), np.int32)]),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(4)],
        {'out_type': 'uint8'},
        [np.array([[97, 98, 99, 100], [120, 121, 0, 0]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(4)],
        {'out_type': 'uint8', 'little_endian': False},
        [np.array([[97, 98, 99, 100], [120, 121, 122, 0]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(3)],
        {'out_type': 'uint8'},
        [np.array([[97, 98, 99], [120, 121, 0]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(3)],
        {'out_type': 'uint8', 'little_endian': False},
        [np.array([[97, 98, 99], [120, 121, 122]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(8)],
        {'out_type': 'uint8'},
        [np.array([[97, 98, 99, 100, 101, 102, 0, 0], [120, 121, 0, 0, 0, 0, 0, 0]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(8)],
        {'out_type': 'uint8', 'little_endian': False},
        [np.array([[97, 98, 99, 100, 101, 102, 0, 0], [120, 121, 122, 0, 0, 0, 0, 0]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(2)],
        {'out_type': 'uint8'},
        [np.array([[97, 98], [120, 121]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(2)],
        {'out_type': 'uint8', 'little_endian': False},
        [np.array([[97, 98], [120, 121]], np.uint8)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(4)],
        {'out_type': 'int16'},
        [np.array([[25185, 25699], [31096, 0]], np.int16)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(4)],
        {'out_type': 'int16', 'little_endian': False},
        [np.array([[24930, 25444], [30841, 31232]], np.int16)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(8)],
        {'out_type': 'int16'},
        [np.array([[25185, 25699, 26213, 0], [31096, 0, 0, 0]], np.int16)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(8)],
        {'out_type': 'int16', 'little_endian': False},
        [np.array([[24930, 25444, 25958, 0], [30841, 31232, 0, 0]], np.int16)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(2)],
        {'out_type': 'int16'},
        [np.array([[25185], [31096]], np.int16)],
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32(2)],
        {'out_type': 'int16', 'little_endian': False},
        [np.array([[24930], [30841]], np.int16)],
    ),
    ("DecodePaddedRaw", [texts(shape=(0,)), I32(4)], {'out_type': 'int8'}, [np.empty((0, 4), np.int8)]),
    (
        "DecodeCompressed",
        [texts(b'hellohellohellohellohello', shape=(1,))],
        {'compression_type': ''},
        [texts(b'hellohellohellohellohello', shape=(1,))],
    ),
    (
        "DecodeCompressed",
        [texts(b'x\x9c\xcbH\xcd\xc9\xc9\xcf\xc0B\x00\x00\x86\xc4\ne', shape=(1,))],
        {'compression_type': ''},
        [texts(b'x\x9c\xcbH\xcd\xc9\xc9\xcf\xc0B\x00\x00\x86\xc4\ne', shape=(1,))],
    ),
    (
        "DecodeCompressed",
        [texts(b'\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcbH\xcd\xc9\xc9\xcf\xc0B\x00\x00\xc9Ad\xd5\x19\x00\x00\x00', shape=(1,))],  # noqa: E501
        {'compression_type': ''},
        [texts(b'\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcbH\xcd\xc9\xc9\xcf\xc0B\x00\x00\xc9Ad\xd5\x19\x00\x00\x00', shape=(1,))],  # noqa: E501
    ),
    ("DecodeCompressed", [texts(b'', shape=(1,))], {'compression_type': ''}, [texts(b'', shape=(1,))]),
    (
        "DecodeCompressed",
        [texts(b'x\x9c\xcbH\xcd\xc9\xc9\xcf\xc0B', shape=(1,))],
        {'compression_type': ''},
        [texts(b'x\x9c\xcbH\xcd\xc9\xc9\xcf\xc0B', shape=(1,))],
    ),
    (
        "DecodeCompressed",
        [texts(b'\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\x04\x00C\xbe\xb7\xe8\x01\x00\x00\x00\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\x02\x00\xf9\xef\xbeq\x01\x00\x00\x00', shape=(1,))],  # noqa: E501
        {'compression_type': ''},
        [texts(b'\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\x04\x00C\xbe\xb7\xe8\x01\x00\x00\x00\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\x02\x00\xf9\xef\xbeq\x01\x00\x00\x00', shape=(1,))],  # noqa: E501
    ),
    (
        "DecodeCompressed",
        [texts(b'x\x9c\xab\x00\x00\x00y\x00yjunk', shape=(1,))],
        {'compression_type': ''},
        [texts(b'x\x9c\xab\x00\x00\x00y\x00yjunk', shape=(1,))],
    ),
    (
        "DecodeCompressed",
        [texts(b'x\x9c\xcbH\xcd\xc9\xc9\xcf\xc0B\x00\x00\x86\xc4\ne', shape=(1,))],
        {'compression_type': 'ZLIB'},
        [texts(b'hellohellohellohellohello', shape=(1,))],
    ),
    ("DecodeCompressed", [texts(b'', shape=(1,))], {'compression_type': 'ZLIB'}, [texts(b'', shape=(1,))]),
    (
        "DecodeCompressed",
        [texts(b'x\x9c\xcbH\xcd\xc9\xc9\xcf\xc0B', shape=(1,))],
        {'compression_type': 'ZLIB'},
        [texts(b'helloh', shape=(1,))],
    ),
    (
        "DecodeCompressed",
        [texts(b'x\x9c\xab\x00\x00\x00y\x00yjunk', shape=(1,))],
        {'compression_type': 'ZLIB'},
        [texts(b'x', shape=(1,))],
    ),
    (
        "DecodeCompressed",
        [texts(b'\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcbH\xcd\xc9\xc9\xcf\xc0B\x00\x00\xc9Ad\xd5\x19\x00\x00\x00', shape=(1,))],  # noqa: E501
        {'compression_type': 'GZIP'},
        [texts(b'hellohellohellohellohello', shape=(1,))],
    ),
    ("DecodeCompressed", [texts(b'', shape=(1,))], {'compression_type': 'GZIP'}, [texts(b'', shape=(1,))]),
    (
        "DecodeCompressed",
        [texts(b'\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\x04\x00C\xbe\xb7\xe8\x01\x00\x00\x00\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\x02\x00\xf9\xef\xbeq\x01\x00\x00\x00', shape=(1,))],  # noqa: E501
        {'compression_type': 'GZIP'},
        [texts(b'ab', shape=(1,))],
    ),
    ("DecodeCompressed", [texts(b'x\x9cK\x04\x00\x00b\x00b')], {'compression_type': 'ZLIB'}, [texts(b'a')]),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "DecodeRaw",
        [texts(b'abc')],
        {'out_type': 'int32'},
        "Input to DecodeRaw has length 3 that is not a multiple of 4, the size of int32",
        INVALID,
    ),
    (
        "DecodeRaw",
        [texts(b'abcd', b'ab')],
        {'out_type': 'int16'},
        "DecodeRaw requires input strings to all be the same size, but element 1 has size 4 != 2",
        INVALID,
    ),
    (
        "DecodeRaw",
        [texts(b'abc')],
        {'out_type': 'complex64'},
        "Input to DecodeRaw has length 3 that is not a multiple of 8, the size of complex64",
        INVALID,
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(0)],
        {'out_type': 'uint8'},
        "fixed_length (0) must be greater than zero.",
        INVALID,
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(-1)],
        {'out_type': 'uint8'},
        "fixed_length (-1) must be greater than zero.",
        INVALID,
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(3)],
        {'out_type': 'int16'},
        "fixed_length (3) must be a multiple of the size of out_type (2)",
        INVALID,
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xy'), I32(-1)],
        {'out_type': 'int16'},
        "fixed_length (-1) must be a multiple of the size of out_type (2)",
        INVALID,
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', b'xyz'), I32([4])],
        {'out_type': 'int8'},
        "k must be scalar, got shape [1]",
        INVALID,
    ),
    (
        "DecodePaddedRaw",
        [texts(b'abcdef', shape=(1,)), I32(6)],
        {'out_type': 'float32'},
        "fixed_length (6) must be a multiple of the size of out_type (4)",
        INVALID,
    ),
    (
        "DecodeCompressed",
        [texts(b'hellohellohellohellohello', shape=(1,))],
        {'compression_type': 'ZLIB'},
        "inflate() failed with error -3: incorrect header check",
        errors.DataLossError,
    ),
    (
        "DecodeCompressed",
        [texts(b'x', shape=(1,))],
        {'compression_type': 'LZ'},
        "Only ZLIB, ZSTD, GZIP or NONE are supported compressions",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


def test_string_that_holds_more_than_memory_is_refused(monkeypatch):
    monkeypatch.setattr(allocator, "_UNCHECKED", 2 << 20)
    monkeypatch.setattr(allocator, "available_memory", lambda: 4 << 20)
    bomb = texts(zlib.compress(bytes(16 << 20)), shape=(1,))
    with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating strings"):
        run_op("DecodeCompressed", [bomb], compression_type="ZLIB")
    assert (
        len(run_op("DecodeCompressed", [texts(zlib.compress(bytes(1 << 20)))], compression_type="ZLIB").item())
        == 1 << 20
    )


def test_zstandard_is_not_there():
    with pytest.raises(errors.UnimplementedError, match="ZSTD"):
        run_op("DecodeCompressed", [texts("x")], compression_type="ZSTD")


def test_any_byte_but_zero_is_true():
    assert run_op("DecodeRaw", [texts(b"\x00\x02\xff")], out_type="bool").tolist() == [False, True, True]
