"""Example protos: known answers and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.memory.allocator import watching
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from aexec.kernels.parsing.example_records import key_texts
from tests.kernels.answer_tables import INVALID, SHAPE, VALUES, known_answers, refused, texts
from tests.kernels.array_support import F32, I32, I64

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "ParseExample",
        [texts(b"", b"\n\x0c\n\n\n\x01c\x12\x05\n\x03\n\x01a"), texts(shape=(0,)), [], [texts(b"c")], [texts(b"none", shape=())]],  # noqa: E501
        {"sparse_types": [], "dense_shapes": [[]]},
        [texts(b"none", b"a")],
    ),
    (
        "ParseExample",
        [texts(b"", shape=(1,)), texts(shape=(0,)), [], [texts(b"c")], [texts(b"none", shape=())]],
        {"sparse_types": [], "dense_shapes": [[]]},
        [texts(b"none", shape=(1,))],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [texts(b'c')], [texts(b'a')], [F32([0, 0])]],  # noqa: E501
        {'sparse_types': ['string'], 'dense_shapes': [[2]]},
        [I64([[0, 0], [0, 1], [1, 0]]), texts(b'x', b'y', b'z'), I64([2, 2]), F32([[1, 2], [5, 6]])],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [texts(b'q'), texts(b'b')], [], []],  # noqa: E501
        {'sparse_types': ['string', 'int64'], 'dense_shapes': []},
        [np.empty((0, 2), np.int64), I64([[0, 0]]), texts(shape=(0,)), I64([3]), I64([2, 0]), I64([2, 1])],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'b')], [I64([9])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[1]]},
        [I64([[3], [9]])],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'b')], [I64(9)]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[]]},
        [I64([3, 9])],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x0f\n\r\n\x01a\x12\x08\x12\x06\n\x04\x00\x00\xe0@'), texts(shape=(0,)), [], [texts(b'a')], [F32([-1])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1]]},
        [F32([[1, 2], [7, -1]])],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1b\n\x19\n\x01a\x12\x14\x12\x12\n\x10\x00\x00\xe0@\x00\x00\x00A\x00\x00\x10A\x00\x00 A'), texts(shape=(0,)), [], [texts(b'a')], [F32([-1])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1, 2]]},
        [F32([[[1, 2], [-1, -1]], [[7, 8], [9, 10]]])],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x0c\n\n\n\x01c\x12\x05\n\x03\n\x01a'), texts(shape=(0,)), [], [texts(b'a')], [F32([-1])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1]]},
        [F32([[1, 2], [-1, -1]])],
    ),
    (
        "ParseExample",
        [texts(b'\n\x07\n\x05\n\x01a\x12\x00', b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), [], [texts(b'a')], [F32([8, 9])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[2]]},
        [F32([[8, 9], [1, 2]])],
    ),
    (
        "ParseExample",
        [texts(b'\n\x07\n\x05\n\x01a\x12\x00', b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), [texts(b'a')], [], []],  # noqa: E501
        {'sparse_types': ['float32'], 'dense_shapes': []},
        [I64([[1, 0], [1, 1]]), F32([1, 2]), I64([2, 2])],
    ),
    (
        "ParseExample",
        [texts(shape=(0,)), texts(shape=(0,)), [texts(b'a')], [texts(b'b')], [I64([9])]],
        {'sparse_types': ['float32'], 'dense_shapes': [[1]]},
        [np.empty((0, 2), np.int64), F32([]), I64([0, 0]), np.empty((0, 1), np.int64)],
    ),
    (
        "ParseExample",
        [texts(shape=(0,)), texts(shape=(0,)), [], [texts(b'b')], [I64([9])]],
        {'sparse_types': [], 'dense_shapes': [[-1, 3]]},
        [np.empty((0, 0, 3), np.int64)],
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'c')], [texts(b'-', shape=(1,))]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1]]},
        [texts(b'x', b'y', b'z', b'-', shape=(2, 2))],
    ),
    (
        "ParseExample",
        [texts(b'', b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), [texts(b'a')], [], []],  # noqa: E501
        {'sparse_types': ['float32'], 'dense_shapes': []},
        [I64([[1, 0], [1, 1]]), F32([1, 2]), I64([2, 2])],
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), texts(shape=(0,)), texts(b'a', shape=(1,)), texts(shape=(0,)), [F32([0])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': [[-1]]},  # noqa: E501
        [F32([1, 2])],
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), texts(b'z', shape=(1,)), []],  # noqa: E501
        {'num_sparse': 1, 'sparse_types': ['float32'], 'ragged_value_types': ['int64'], 'ragged_split_types': ['int32'], 'dense_shapes': []},  # noqa: E501
        [np.empty((0, 1), np.int64), F32([]), I64([0]), I64([]), I32([])],
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([0, 0])]],  # noqa: E501
        {'num_sparse': 2, 'sparse_keys': [b'c', b'q'], 'dense_keys': [b'a'], 'sparse_types': ['string', 'int64'], 'dense_shapes': [[2]]},  # noqa: E501
        [I64([[0], [1]]), np.empty((0, 1), np.int64), texts(b'x', b'y'), I64([]), I64([2]), I64([0]), F32([1, 2])],
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([3, 4])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'q'], 'sparse_types': [], 'dense_shapes': [[2]]},
        [F32([3, 4])],
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([3])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'a'], 'sparse_types': [], 'dense_shapes': [[-1]]},
        [F32([1, 2])],
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([3])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'q'], 'sparse_types': [], 'dense_shapes': [[-1]]},
        [F32([])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'b')], [I64([])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[1]]},
        "Name: <unknown>, Feature: b (data type: int64) is required but could not be found.",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(b'n1', b'n2'), [], [texts(b'b')], [I64([])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[1]]},
        "Name: n2, Feature: b (data type: int64) is required but could not be found.",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'a')], [F32([])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[3]]},
        "Name: <unknown>, Key: a, Index: 0.  Number of float values != expected.  Values size: 2 but output shape: [3]",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'a')], [I64([])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[2]]},
        "Name: <unknown>, Key: a, Index: 0.  Data types don't match. Data type: float but expected type: int64",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [texts(b'a')], [], []],  # noqa: E501
        {'sparse_types': ['int64'], 'dense_shapes': []},
        "Name: <unknown>, Key: a, Index: 0.  Data types don't match. Expected type: int64, Actual type: float",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'garbage!'), texts(shape=(0,)), [texts(b'a')], [], []],  # noqa: E501
        {'sparse_types': ['float32'], 'dense_shapes': []},
        "Could not parse example input, value: 'garbage!'",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x17\n\x15\n\x01a\x12\x10\x12\x0e\n\x0c\x00\x00\xe0@\x00\x00\x00A\x00\x00\x10A'), texts(shape=(0,)), [], [texts(b'a')], [F32([-1])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1, 2]]},
        "Name: <unknown>, Key: a, Index: 1.  Number of float values is not a multiple of stride length. Saw 3 values but output shape is: [?,2]",  # noqa: E501
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x0c\n\n\n\x01c\x12\x05\n\x03\n\x01a'), texts(shape=(0,)), [], [texts(b'a')], [F32([])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1]]},
        "dense_shape[0] is a variable length shape: [?], therefore def_value[0] must contain a single element (the padding element).  But its shape is: [0]",  # noqa: E501
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x0c\n\n\n\x01c\x12\x05\n\x03\n\x01a'), texts(shape=(0,)), [], [texts(b'a')], [F32([1, 2])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[-1]]},
        "dense_shape[0] is a variable length shape: [?], therefore def_value[0] must contain a single element (the padding element).  But its shape is: [2]",  # noqa: E501
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', shape=(1,)), texts(shape=(0,)), [], [texts(b'a')], [VALUES]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[2]]},
        "def_value[0].shape() == [3] is not compatible with dense_shapes_[0] == [2]",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', shape=(1,)), texts(shape=(0,)), [], [texts(b'a')], [F32([1])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[2, -1]]},
        "dense_shapes[0] has unknown rank or unknown inner dimensions: [2,?]",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n\t\n\x07\n\x01a\x12\x02\x12\x00', b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), [], [texts(b'a')], [F32([8, 9])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[2]]},
        "Name: <unknown>, Key: a, Index: 0.  Number of float values != expected.  Values size: 0 but output shape: [2]",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(b'x', shape=(1,)), [texts(b'a')], [], []],  # noqa: E501
        {'sparse_types': ['float32'], 'dense_shapes': []},
        "Expected names have the same shape as serialized: name.shape=[1], serialized.shape=[2]",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', shape=(1, 1)), texts(shape=(0,)), [texts(b'a')], [], []],  # noqa: E501
        {'sparse_types': ['float32'], 'dense_shapes': []},
        "Expected serialized to be a vector, got shape: [1,1]",
        INVALID,
    ),
    (
        "ParseExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), [], [texts(b'a')], [F32([])]],  # noqa: E501
        {'sparse_types': [], 'dense_shapes': [[0]]},
        "Name: <unknown>, Key: a, Index: 0.  Number of float values != expected.  Values size: 2 but output shape: [0]",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), [F32([])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': [[1]]},  # noqa: E501
        "Feature: q (data type: float) is required but could not be found.",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'garbage!'), texts(shape=(0,)), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), [F32([])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': [[1]]},  # noqa: E501
        "Could not parse example input, value: 'garbage!'",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'a', shape=(1,)), []],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': ['int64'], 'ragged_split_types': ['int32'], 'dense_shapes': []},  # noqa: E501
        "Name: <unknown>, Key: a, Index: 0.  Data types don't match. Expected type: int64, Actual type: float",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', shape=(1, 1)), texts(shape=(0,)), texts(b'a', shape=(1,)), texts(shape=(0,)), texts(shape=(0,)), []],  # noqa: E501
        {'num_sparse': 1, 'sparse_types': ['float32'], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': []},  # noqa: E501
        "Expected serialized to be a scalar or vector, got shape: [1,1]",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', shape=(1,)), texts(shape=(0,)), texts(b'a', shape=(1,)), texts(shape=(0,)), texts(shape=(0,)), []],  # noqa: E501
        {'num_sparse': 1, 'sparse_types': ['float32', 'float32'], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': []},  # noqa: E501
        "len(sparse_keys) != len(sparse_types)",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', b'\n\x1f\n\n\n\x01c\x12\x05\n\x03\n\x01z\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@'), texts(b'x', shape=(1,)), texts(b'a', shape=(1,)), texts(shape=(0,)), texts(shape=(0,)), []],  # noqa: E501
        {'num_sparse': 1, 'sparse_types': ['float32'], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': []},  # noqa: E501
        "Expected names have the same shape as serialized: name.shape=[1], serialized.shape=[2]",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), texts(shape=(0,)), texts(b'a', shape=(1,)), texts(shape=(0,)), [I64([])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': [[1]]},  # noqa: E501
        "Key: a.  Data types don't match. Data type: float but expected type: int64",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), texts(shape=(0,)), texts(b'a', shape=(1,)), texts(shape=(0,)), [F32([])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': [[3]]},  # noqa: E501
        "Key: a.  Can't parse serialized Example: Some float_list slice was not parsed.",
        INVALID,
    ),
    (
        "ParseExampleV2",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), texts(shape=(0,)), texts(shape=(0,)), texts(b'a', shape=(1,)), texts(shape=(0,)), [F32([0])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_types': [], 'ragged_value_types': [], 'ragged_split_types': [], 'dense_shapes': [[-1, 3]]},  # noqa: E501
        "Error while parsing feature with key a: number of elements should be divisible by 3, found 2 instead",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'q'], 'sparse_types': [], 'dense_shapes': [[2]]},
        "Feature: q (data type: float) is required but could not be found.",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'garbage!'), [F32([3, 4])]],
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'q'], 'sparse_types': [], 'dense_shapes': [[2]]},
        "Could not parse example input, value: 'garbage!'",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [SHAPE]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'a'], 'sparse_types': [], 'dense_shapes': [[2]]},
        "Key: a.  Data types don't match. Data type: float but expected type: int64",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'a'], 'sparse_types': [], 'dense_shapes': [[3]]},
        "Key: a.  Can't parse serialized Example: Some float_list slice was not parsed.",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@', shape=(1,)), [F32([3, 4])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'a'], 'sparse_types': [], 'dense_shapes': [[2]]},
        "Expected serialized to be a scalar, got shape: [1]",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([3])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'a'], 'sparse_types': [], 'dense_shapes': [[2]]},
        "def_value[0].shape() == [1] is not compatible with dense_shapes_[0] == [2]",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), []],  # noqa: E501
        {'num_sparse': 1, 'sparse_keys': [b'a'], 'dense_keys': [], 'sparse_types': ['int64'], 'dense_shapes': []},
        "Key: a.  Data types don't match. Expected type: int64, Actual type: float",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), [F32([3])]],  # noqa: E501
        {'num_sparse': 0, 'sparse_keys': [], 'dense_keys': [b'a'], 'sparse_types': [], 'dense_shapes': [[-1, 3]]},
        "Error while parsing feature with key a: number of elements should be divisible by 3, found 2 instead",
        INVALID,
    ),
    (
        "ParseSingleExample",
        [texts(b'\n.\n\r\n\x01c\x12\x08\n\x06\n\x01x\n\x01y\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@'), []],  # noqa: E501
        {'num_sparse': 1, 'sparse_keys': [b'a'], 'dense_keys': [], 'sparse_types': ['int64', 'int64'], 'dense_shapes': []},  # noqa: E501
        "num_sparse (1) must match the size of sparse_keys (1) and sparse_types (2)",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


def test_keys_that_are_one_string_many_times() -> None:
    """Each becomes a string of its own, and counts."""
    call = CallMemory(MemoryAccount("step", "limit", 4_000_000), "n")
    with watching(call):
        assert key_texts([b"a", b"\xff"]) == ["a", "\ufffd"]
        with pytest.raises(errors.ResourceExhaustedError, match="more would exceed the 4000000 of limit"):
            key_texts([b"a" * 10_000] * 1000)
    call.end()
