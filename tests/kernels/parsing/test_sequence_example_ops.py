"""SequenceExample protos: known answers and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import proto
from tests.kernels.answer_tables import INVALID, known_answers, refused, texts
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [texts(b'b')], [texts(b'a')], [texts(b'y')], [texts(b'x')], [F32([0, 0])], texts(b'')],  # noqa: E501
        {'context_sparse_types': ['int64'], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [[2]], 'feature_list_sparse_types': ['int64'], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [I64([[0]]), I64([3]), I64([1]), F32([1, 2]), I64([[0, 0], [0, 1], [1, 0]]), I64([1, 2, 3]), I64([2, 2]), F32([[1], [2]])],  # noqa: E501
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [texts(b'b')], [texts(b'a')], [texts(b'y')], [texts(b'x')], [F32([0, 0])], texts(b'')],  # noqa: E501
        {'context_sparse_types': ['int64'], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [[2]], 'feature_list_sparse_types': ['int64'], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [np.empty((0, 1), np.int64), I64([]), I64([0]), F32([5, 6]), I64([[0, 0]]), I64([4]), I64([1, 1]), F32([[7]])],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(b'q', shape=(1,)), [], [], [], [texts(b'q')], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [np.empty((0, 1), np.float32)],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [], [], [texts(b'q')], [], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['float32'], 'feature_list_dense_shapes': []},  # noqa: E501
        [np.empty((0, 2), np.int64), F32([]), I64([0, 0])],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [], [texts(b'q')], [], [], [F32([4])], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        [F32([4])],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [], [], [], [texts(b'x')], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[]]},  # noqa: E501
        [F32([1, 2])],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [], [], [texts(b'w')], [], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['string'], 'feature_list_dense_shapes': []},  # noqa: E501
        [I64([[0, 0], [1, 0], [1, 1]]), texts(b'p', b'q', b'r'), I64([2, 2])],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(b'zz', shape=(1,)), [], [], [], [texts(b'x')], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [F32([[1], [2]])],
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\x12\x13\n\x11\n\x01x\x12\x0c\n\x00\n\x08\x12\x06\n\x04\x00\x00\x80?'), texts(shape=(0,)), [], [], [texts(b'x')], [], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['float32'], 'feature_list_dense_shapes': []},  # noqa: E501
        [I64([[1, 0]]), F32([1]), I64([2, 1])],
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [b'q'], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [b'q'], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [np.empty((2, 0, 1), np.float32), I64([0, 0])],
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [b'q'], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['float32'], 'feature_list_dense_shapes': []},  # noqa: E501
        [np.empty((0, 3), np.int64), F32([]), I64([2, 0, 0])],
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [F32([4])]],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [b'q'], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 1, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        [F32([[4], [4]])],
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [b'w'], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['string'], 'feature_list_dense_shapes': []},  # noqa: E501
        [I64([[0, 0, 0], [0, 1, 0], [0, 1, 1]]), texts(b'p', b'q', b'r'), I64([2, 2, 2])],
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [F32([0, 0])]],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [b'b'], 'context_dense_keys': [b'a'], 'feature_list_sparse_keys': [b'y'], 'feature_list_dense_keys': [b'x'], 'Ncontext_sparse': 1, 'Ncontext_dense': 1, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 1, 'context_sparse_types': ['int64'], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [[2]], 'feature_list_sparse_types': ['int64'], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [I64([[0]]), I64([3]), I64([1]), F32([1, 2]), I64([[0, 0], [0, 1], [1, 0]]), I64([1, 2, 3]), I64([2, 2]), F32([[1], [2]]), I64(2)],  # noqa: E501
    ),
    (
        "ParseSequenceExample",
        [texts(shape=(0,)), texts(shape=(0,)), [F32([0, 0])]],
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [b'b'], 'context_dense_keys': [b'a'], 'feature_list_sparse_keys': [b'y'], 'feature_list_dense_keys': [b'x'], 'Ncontext_sparse': 1, 'Ncontext_dense': 1, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 1, 'context_sparse_types': ['int64'], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [[2]], 'feature_list_sparse_types': ['int64'], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [np.empty((0, 2), np.int64), I64([]), I64([0, 0]), np.empty((0, 2), np.float32), np.empty((0, 3), np.int64), I64([]), I64([0, 0, 0]), np.empty((0, 0, 1), np.float32), I64([])],  # noqa: E501
    ),
    (
        "ParseSequenceExample",
        [texts(b'\x12\x13\n\x11\n\x01x\x12\x0c\n\x00\n\x08\x12\x06\n\x04\x00\x00\x80?', shape=(1,)), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [b'x'], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['float32'], 'feature_list_dense_shapes': []},  # noqa: E501
        [I64([[0, 1, 0]]), F32([1]), I64([1, 2, 1])],
    ),
    (
        "ParseSequenceExampleV2",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), texts(b'b', shape=(1,)), texts(b'a', shape=(1,)), texts(shape=(0,)), texts(b'y', shape=(1,)), texts(b'x', shape=(1,)), texts(shape=(0,)), np.array([False], np.bool), [F32([0, 0])]],  # noqa: E501
        {'Ncontext_sparse': 1, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 1, 'context_sparse_types': ['int64'], 'context_ragged_value_types': [], 'context_ragged_split_types': [], 'context_dense_shapes': [[2]], 'feature_list_dense_types': ['float32'], 'feature_list_sparse_types': ['int64'], 'feature_list_ragged_value_types': [], 'feature_list_ragged_split_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [I64([[0]]), I64([3]), I64([1]), F32([1, 2]), I64([[0, 0], [0, 1], [1, 0]]), I64([1, 2, 3]), I64([2, 2]), F32([[1], [2]]), I64(2)],  # noqa: E501
    ),
    (
        "ParseSequenceExampleV2",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'b', shape=(1,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'y', b'w'), np.array([], np.bool), []],  # noqa: E501
        {'Ncontext_sparse': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'context_ragged_value_types': ['int64'], 'context_ragged_split_types': ['int32'], 'context_dense_shapes': [], 'feature_list_dense_types': [], 'feature_list_sparse_types': [], 'feature_list_ragged_value_types': ['int64', 'string'], 'feature_list_ragged_split_types': ['int64', 'int32'], 'feature_list_dense_shapes': []},  # noqa: E501
        [I64([3]), I32([0, 1, 1]), I64([1, 2, 3, 4]), texts(b'p', b'q', b'r'), I64([0, 2, 3]), I32([0, 2, 2]), I64([0, 2, 3, 4]), I32([0, 1, 3])],  # noqa: E501
    ),
    (
        "ParseSequenceExampleV2",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), np.array([True], np.bool), []],  # noqa: E501
        {'Ncontext_sparse': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'context_ragged_value_types': [], 'context_ragged_split_types': [], 'context_dense_shapes': [], 'feature_list_dense_types': ['float32'], 'feature_list_sparse_types': [], 'feature_list_ragged_value_types': [], 'feature_list_ragged_split_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        [np.empty((2, 0, 1), np.float32), I64([0, 0])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [], [], [], [texts(b'q')], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Name: , Feature list 'q' is required but could not be found.  Did you mean to include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",  # noqa: E501
        INVALID,
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [], [texts(b'q')], [], [], [F32([])], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Name: , Context feature 'q' is required but could not be found.",
        INVALID,
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [], [texts(b'a')], [], [], [F32([4])], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Name: , Key: a, Index: 0.  Number of float values != expected.  values size: 2 but output shape: [1]",
        INVALID,
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [], [], [], [texts(b'y')], [], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': ['int64'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Name: , Key: y, Index: 0.  Number of int64 values != expected.  values size: 2 but output shape: [1]",
        INVALID,
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'garbage!'), texts(shape=(0,)), [], [], [], [texts(b'y')], [], texts(b'')],
        {'context_sparse_types': [], 'feature_list_dense_types': ['int64'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Could not parse example input, value: 'garbage!'",
        INVALID,
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [], [texts(b'q')], [], [], [F32([4, 5])], texts(b'')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "def_value[0].shape() == [2] != context_dense_shapes_[0] == [1]",
        INVALID,
    ),
    (
        "ParseSingleSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03'), texts(shape=(0,)), [], [texts(b'q')], [], [], [F32([])], texts(b'nm')],  # noqa: E501
        {'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Name: nm, Context feature 'q' is required but could not be found.",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [b'q'], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Name: <unknown>, Feature list 'q' is required but could not be found.  Did you mean to include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",  # noqa: E501
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [F32([])]],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [b'q'], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 1, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Inconsistent max number of elements for feature q: expected 1, but found 0",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [I64([4])]],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [b'a'], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 1, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Name: <unknown>, Context feature: a.  Data types don't match. Expected type: int64",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), [F32([4])]],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [b'a'], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 1, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [[1]], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Inconsistent max number of elements for feature a: expected 1, but found 2",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [b'x'], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['int64'], 'feature_list_dense_shapes': []},  # noqa: E501
        "Name: <unknown>, Feature list: x, Index: 0.  Data types don't match. Expected type: int64",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [b'y'], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'feature_list_dense_types': ['int64'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Name: <unknown>, Key: y, Index: 0.  Number of values != expected.  values size: 2 but output shape: [1]",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'garbage!'), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [b'x'], 'feature_list_dense_keys': [], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 1, 'Nfeature_list_dense': 0, 'context_sparse_types': [], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': ['float32'], 'feature_list_dense_shapes': []},  # noqa: E501
        "Invalid protocol message input, example id: <unknown>",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(b'n1', shape=(1,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [b'q'], 'context_dense_keys': [], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [], 'Ncontext_sparse': 1, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': ['float32'], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "example_names must be empty or have the correct number of elements",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', shape=(1, 1)), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [b'q'], 'context_dense_keys': [], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [], 'Ncontext_sparse': 1, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 0, 'context_sparse_types': ['float32'], 'feature_list_dense_types': [], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': []},  # noqa: E501
        "Expected serialized to be a scalar or vector, got shape: [1,1]",
        INVALID,
    ),
    (
        "ParseSequenceExample",
        [texts(b'\x12\x13\n\x11\n\x01x\x12\x0c\n\x00\n\x08\x12\x06\n\x04\x00\x00\x80?', shape=(1,)), texts(shape=(0,)), []],  # noqa: E501
        {'feature_list_dense_missing_assumed_empty': [], 'context_sparse_keys': [], 'context_dense_keys': [], 'feature_list_sparse_keys': [], 'feature_list_dense_keys': [b'x'], 'Ncontext_sparse': 0, 'Ncontext_dense': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'feature_list_dense_types': ['float32'], 'context_dense_shapes': [], 'feature_list_sparse_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Name: <unknown>, Key: x, Index: 0.  Number of values != expected.  values size: 0 but output shape: [1]",
        INVALID,
    ),
    (
        "ParseSequenceExampleV2",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), np.array([False], np.bool), []],  # noqa: E501
        {'Ncontext_sparse': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'context_ragged_value_types': [], 'context_ragged_split_types': [], 'context_dense_shapes': [], 'feature_list_dense_types': ['float32'], 'feature_list_sparse_types': [], 'feature_list_ragged_value_types': [], 'feature_list_ragged_split_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Name: <unknown>, Feature list 'q' is required but could not be found.  Did you mean to include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",  # noqa: E501
        INVALID,
    ),
    (
        "ParseSequenceExampleV2",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), np.array([False], np.bool), []],  # noqa: E501
        {'Ncontext_sparse': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'context_ragged_value_types': [], 'context_ragged_split_types': [], 'context_dense_shapes': [], 'feature_list_dense_types': ['float32', 'int64'], 'feature_list_sparse_types': [], 'feature_list_ragged_value_types': [], 'feature_list_ragged_split_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "num_feature_list_dense (1) must match the size of feature_list_dense_types (2) and feature_list_dense_shapes (1)",  # noqa: E501
        INVALID,
    ),
    (
        "ParseSequenceExampleV2",
        [texts(b'\n\x1f\n\n\n\x01b\x12\x05\x1a\x03\n\x01\x03\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\x80?\x00\x00\x00@\x12I\n\x19\n\x01x\x12\x14\n\x08\x12\x06\n\x04\x00\x00\x80?\n\x08\x12\x06\n\x04\x00\x00\x00@\n\x16\n\x01w\x12\x11\n\x05\n\x03\n\x01p\n\x08\n\x06\n\x01q\n\x01r\n\x14\n\x01y\x12\x0f\n\x06\x1a\x04\n\x02\x01\x02\n\x05\x1a\x03\n\x01\x03', b'\n\x13\n\x11\n\x01a\x12\x0c\x12\n\n\x08\x00\x00\xa0@\x00\x00\xc0@\x12\x1f\n\x0f\n\x01x\x12\n\n\x08\x12\x06\n\x04\x00\x00\xe0@\n\x0c\n\x01y\x12\x07\n\x05\x1a\x03\n\x01\x04'), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(shape=(0,)), texts(b'q', shape=(1,)), texts(shape=(0,)), np.array([True, False], np.bool), []],  # noqa: E501
        {'Ncontext_sparse': 0, 'Nfeature_list_sparse': 0, 'Nfeature_list_dense': 1, 'context_sparse_types': [], 'context_ragged_value_types': [], 'context_ragged_split_types': [], 'context_dense_shapes': [], 'feature_list_dense_types': ['float32'], 'feature_list_sparse_types': [], 'feature_list_ragged_value_types': [], 'feature_list_ragged_split_types': [], 'feature_list_dense_shapes': [[1]]},  # noqa: E501
        "Expected len(feature_list_dense_missing_assumed_empty to match Nfeature_list_dense",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


@pytest.mark.parametrize(
    ("keys", "attrs", "message"),
    [
        ({"context_dense": "a"}, {}, "Context feature: a"),
        ({"context_sparse": "a"}, {"context_sparse_types": ["int64"]}, "Context feature: a"),
        ({"list_sparse": "x"}, {"feature_list_sparse_types": ["int64"]}, "Feature List: x, Index: 0"),
        (
            {"list_dense": "x"},
            {"feature_list_dense_types": ["int64"], "feature_list_dense_shapes": [[1]]},
            "Feature list: x, Index: 0",
        ),
    ],
)
def test_feature_of_another_type_is_shown(keys, attrs, message):
    example = proto.SequenceExample()
    example.context.feature["a"].float_list.value.append(1)
    example.feature_lists.feature_list["x"].feature.add().float_list.value.append(1)
    given = [
        [texts(keys[k])] if k in keys else [] for k in ("context_sparse", "context_dense", "list_sparse", "list_dense")
    ]
    defaults = [I64([4])] if "context_dense" in keys else []
    shapes = {"context_dense_shapes": [[1]] if defaults else []}
    with pytest.raises(INVALID) as caught:
        run_op(
            "ParseSingleSequenceExample",
            [texts(example.SerializeToString()), texts(shape=(0,)), *given, defaults, texts("n")],
            **{"feature_list_dense_types": [], "feature_list_dense_shapes": [], **shapes, **attrs},
        )
    assert caught.value.message.startswith(
        f"Name: n, {message}.  Data types don't match. Expected type: int64  Feature is:"
    )
    assert "float_list" in caught.value.message


def test_ragged_features_of_one_example():
    example = proto.SequenceExample()
    example.context.feature["c"].int64_list.value.extend([1, 2])
    for size in (1, 2):
        example.feature_lists.feature_list["x"].feature.add().int64_list.value.extend(range(size))
    none, flags = texts(shape=(0,)), np.empty(0, np.bool_)
    serialized = texts(example.SerializeToString())
    got = run_op(
        "ParseSequenceExampleV2",
        [serialized, none, none, none, texts("c", shape=(1,)), none, none, texts("x", shape=(1,)), flags, []],
        context_ragged_value_types=["int64"],
        context_ragged_split_types=["int32"],
        feature_list_ragged_value_types=["int64"],
        feature_list_ragged_split_types=["int64"],
    )
    assert [part.tolist() for part in got] == [[1, 2], 0, [0, 0, 1], 0, [0, 1, 3]]
