"""Sets: known answers, messages, and Python's own sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import errors
from tests.kernels.answer_tables import INDICES, INVALID, SHAPE, known_answers, refused, texts
from tests.kernels.array_support import I32, I64
from tests.kernels.harness import run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    ("SetSize", [INDICES, I32([1, 2, 3]), SHAPE], {}, [I32([1, 1, 1])]),
    ("SetSize", [np.empty((0, 2), np.int64), I32([]), SHAPE], {}, [I32([0, 0, 0])]),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        [I64([[0, 0], [1, 0], [1, 1], [2, 0], [2, 1]]), I32([1, 1, 2, 1, 3]), I64([3, 2])],
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), np.empty((0, 2), np.int64), I32([]), SHAPE],
        {'set_operation': 'union'},
        [I64([[0, 0], [1, 0], [2, 0]]), I32([1, 1, 1]), I64([3, 1])],
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([1, 2, 3]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        [I64([[0, 0], [1, 0], [2, 0]]), I32([1, 2, 3]), I64([3, 1])],
    ),
    (
        "SparseToSparseSetOperation",
        [np.empty((0, 2), np.int64), I32([]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        [I64([[0, 0], [1, 0], [2, 0]]), I32([1, 2, 3]), I64([3, 1])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1, 2, 2], [3, 4, 4]]), I32([[2, 5], [4, 4]])],
        {'set_operation': 'union'},
        [I64([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]), I32([1, 2, 5, 3, 4]), I64([2, 3])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1, 2, 2], [3, 4, 4]]), I32([[2, 5], [4, 4]])],
        {'set_operation': 'a-b'},
        [I64([[0, 0], [1, 0]]), I32([1, 3]), I64([2, 1])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1, 2, 2], [3, 4, 4]]), I32([[2, 5], [4, 4]])],
        {'set_operation': 'b-a'},
        [I64([[0, 0]]), I32([5]), I64([2, 1])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1, 2, 2], [3, 4, 4]]), I32([[2, 5], [4, 4]])],
        {'set_operation': 'intersection'},
        [I64([[0, 0], [1, 0]]), I32([2, 4]), I64([2, 1])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1]]), I32([[2]])],
        {'set_operation': 'UNION'},
        [I64([[0, 0], [0, 1]]), I32([1, 2]), I64([1, 2])],
    ),
    (
        "DenseToDenseSetOperation",
        [np.empty((2, 0), np.int32), np.empty((2, 0), np.int32)],
        {'set_operation': 'union'},
        [np.empty((0, 2), np.int64), I32([]), I64([2, 0])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1], [2]]), np.empty((2, 0), np.int32)],
        {'set_operation': 'a-b'},
        [I64([[0, 0], [1, 0]]), I32([1, 2]), I64([2, 1])],
    ),
    (
        "DenseToDenseSetOperation",
        [np.empty((0, 2), np.int32), np.empty((0, 3), np.int32)],
        {'set_operation': 'union'},
        [np.empty((0, 2), np.int64), I32([]), I64([0, 0])],
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[[1, 2], [3, 4]]]), I32([[[1], [9]]])],
        {'set_operation': 'union'},
        [I64([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]]), I32([1, 2, 3, 4, 9]), I64([1, 2, 3])],
    ),
    (
        "DenseToDenseSetOperation",
        [texts(b'b', b'a', b'\xff', shape=(1, 3)), texts(b'c', b'ab', shape=(1, 2))],
        {'set_operation': 'union'},
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]]), texts(b'a', b'ab', b'b', b'c', b'\xff'), I64([1, 5])],
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 2], [3, 4]]), I64([[0, 0], [0, 0]]), I32([1, 2]), I64([2, 2])],
        {'set_operation': 'union', 'validate_indices': False},
        [I64([[0, 0], [0, 1], [1, 0], [1, 1]]), I32([1, 2, 3, 4]), I64([2, 2])],
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 0], [0, 1], [2, 0]]), I32([5, 1, 3]), I64([3, 2]), I64([[1, 0], [2, 0]]), I32([4, 3]), I64([3, 7])],
        {'set_operation': 'union'},
        [I64([[0, 0], [0, 1], [1, 0], [2, 0]]), I32([1, 5, 4, 3]), I64([3, 2])],
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 0], [0, 1], [2, 0]]), I32([5, 1, 3]), I64([3, 2]), I64([[1, 0], [2, 0]]), I32([4, 3]), I64([3, 7])],
        {'set_operation': 'intersection'},
        [I64([[2, 0]]), I32([3]), I64([3, 1])],
    ),
    ("SetSize", [I64([[0, 0], [0, 1], [2, 1]]), I32([1, 1, 2]), I64([3, 2])], {}, [I32([1, 0, 1])]),
    ("SetSize", [I64([[0, 0, 0]]), I32([1]), I64([2, 3, 2])], {}, [I32([[1, 0, 0], [0, 0, 0]])]),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    ("SetSize", [I64([0, 1, 2]), I32([1, 2, 3]), SHAPE], {}, "indices must be a matrix, but got: [3]", INVALID),
    ("SetSize", [INDICES, I32([[1, 2, 3]]), SHAPE], {}, "vals must be a vec, but got: [1,3]", INVALID),
    ("SetSize", [INDICES, I32(1), SHAPE], {}, "vals must be a vec, but got: []", INVALID),
    ("SetSize", [INDICES, I32([1, 2, 3]), I64(3)], {}, "Shape must be a 1D tensor.", INVALID),
    (
        "SetSize",
        [INDICES, I32([1, 2]), SHAPE],
        {},
        "indices and values rows (indexing dimension) must match. (indices = 3, values = 2)",
        INVALID,
    ),
    ("SetSize", [INDICES, I32([1, 2, 3]), I64([3, 4, 5])], {}, "Order length must be SparseTensor rank.", INVALID),
    (
        "SetSize",
        [I64([[0, 1], [1, 9], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {},
        "indices[1] = [1,9] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "SetSize",
        [I64([[0, 1], [-1, 0], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {},
        "indices[1] = [-1,0] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    ("SetSize", [I64([[0, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE], {}, "indices[1] = [0,1] is repeated", INVALID),
    (
        "SetSize",
        [I64([[1, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {},
        "indices[1] = [0,1] is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",  # noqa: E501
        INVALID,
    ),
    (
        "SetSize",
        [INDICES, I32([1, 2, 3]), I64([-3, 4])],
        {},
        "Expected shape dimensions to be non-negative, got -3",
        INVALID,
    ),
    (
        "SetSize",
        [INDICES, I32([1, 2, 3]), I64([1099511627776, 1099511627776])],
        {},
        "Encountered overflow when multiplying 1099511627776 with 1099511627776, result: -1",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), I64([0, 1, 2]), I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices must be a matrix, but got: [3]",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([[1, 2, 3]]), SHAPE],
        {'set_operation': 'union'},
        "vals must be a vec, but got: [1,3]",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32(1), SHAPE],
        {'set_operation': 'union'},
        "vals must be a vec, but got: []",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([1, 2, 3]), I64(3)],
        {'set_operation': 'union'},
        "Shape must be a 1D tensor.",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([1, 2]), SHAPE],
        {'set_operation': 'union'},
        "indices and values rows (indexing dimension) must match. (indices = 3, values = 2)",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([1, 2, 3]), I64([3, 4, 5])],
        {'set_operation': 'union'},
        "Order length must be SparseTensor rank.",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), I64([[0, 1], [1, 9], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [1,9] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), I64([[0, 1], [-1, 0], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [-1,0] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), I64([[0, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [0,1] is repeated",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), I64([[1, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [0,1] is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",  # noqa: E501
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([1, 2, 3]), I64([-3, 4])],
        {'set_operation': 'union'},
        "Expected shape dimensions to be non-negative, got -3",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 1], [1, 1], [1, 1]]), INDICES, I32([1, 2, 3]), I64([1099511627776, 1099511627776])],
        {'set_operation': 'union'},
        "Encountered overflow when multiplying 1099511627776 with 1099511627776, result: -1",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([0, 1, 2]), I32([1, 2, 3]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices must be a matrix, but got: [3]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([[1, 2, 3]]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "vals must be a vec, but got: [1,3]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32(1), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "vals must be a vec, but got: []",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([1, 2, 3]), I64(3), INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "Shape must be a 1D tensor.",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([1, 2]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices and values rows (indexing dimension) must match. (indices = 3, values = 2)",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([1, 2, 3]), I64([3, 4, 5]), INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "Order length must be SparseTensor rank.",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 1], [1, 9], [2, 2]]), I32([1, 2, 3]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [1,9] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 1], [-1, 0], [2, 2]]), I32([1, 2, 3]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [-1,0] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [0,1] is repeated",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[1, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE, INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "indices[1] = [0,1] is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",  # noqa: E501
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([1, 2, 3]), I64([-3, 4]), INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "Expected shape dimensions to be non-negative, got -3",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [INDICES, I32([1, 2, 3]), I64([1099511627776, 1099511627776]), INDICES, I32([1, 2, 3]), SHAPE],
        {'set_operation': 'union'},
        "Encountered overflow when multiplying 1099511627776 with 1099511627776, result: -1",
        INVALID,
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1]]), I32([[2]])],
        {'set_operation': 'foo'},
        "Invalid set_operation foo.",
        INVALID,
    ),
    ("DenseToDenseSetOperation", [I32([1]), I32([2])], {'set_operation': 'union'}, "Shape [1] has rank 1 < 2", INVALID),
    (
        "DenseToDenseSetOperation",
        [I32([[1]]), I32([[[2]]])],
        {'set_operation': 'union'},
        "Mismatched shapes [1] vs [1,1]",
        INVALID,
    ),
    (
        "DenseToDenseSetOperation",
        [I32([[1]]), I32([[2], [3]])],
        {'set_operation': 'union'},
        "Mismatched shapes [1] vs [2]",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 2], [3, 4]]), I64([[0, 5]]), I32([1]), I64([2, 2])],
        {'set_operation': 'union', 'validate_indices': False},
        "indices[0, 1] expected < 2, got 5.",
        errors.InvalidArgumentError,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([1, 2]), I64([[0]]), I32([1]), I64([2])],
        {'set_operation': 'union'},
        "Invalid rank 1.",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[[1, 2]]]), I64([[0, 0]]), I32([1]), I64([2, 1])],
        {'set_operation': 'union'},
        "Mismatched shapes [1,1] vs [2]",
        INVALID,
    ),
    (
        "DenseToSparseSetOperation",
        [I32([[1, 2]]), I64([[0, 0]]), I32([1]), I64([2, 1])],
        {'set_operation': 'union'},
        "Mismatched shapes [1] vs [2]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 0], [0, 1], [2, 0]]), I32([5, 1, 3]), I64([3, 2]), I64([[1, 0], [2, 0]]), I32([4, 3]), I64([4, 7])],
        {'set_operation': 'a-b'},
        "Mismatched shapes [3] vs [4]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0, 0]]), I32([5]), I64([3, 2]), I64([[1, 0, 0]]), I32([4]), I64([4, 7, 1])],
        {'set_operation': 'a-b'},
        "Mismatched shapes [3] vs [4,7]",
        INVALID,
    ),
    (
        "SparseToSparseSetOperation",
        [I64([[0]]), I32([5]), I64([3]), I64([[1]]), I32([4]), I64([4])],
        {'set_operation': 'a-b'},
        "Invalid rank 1.",
        INVALID,
    ),
    (
        "SetSize",
        [I64([[0, 0], [0, 1], [9, 1]]), I32([1, 1, 2]), I64([3, 2])],
        {'validate_indices': False},
        "indices[0, 0] expected < 3, got 9.",
        errors.InvalidArgumentError,
    ),
    (
        "SetSize",
        [I64([[0, 0], [0, 1], [1, 9]]), I32([1, 1, 2]), I64([3, 2])],
        {'validate_indices': False},
        "indices[0, 1] expected < 2, got 9.",
        errors.InvalidArgumentError,
    ),
    ("SetSize", [I64([[0]]), I32([1]), I64([3])], {}, "Invalid rank 1.", INVALID),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


def test_sets_of_an_array_too_large_to_number_its_elements():
    last, shape = [2**31 - 1, 2**30 - 1], I64([2**31, 2**30, 2])
    first = [I64([[*last, 0], [*last, 1]]), I32([5, 3]), shape]
    second = [I64([[0, 7, 0], [0, 7, 1], [3, 0, 0], [*last, 0]]), I32([8, 4, 9, 3]), shape]
    indices, values, out_shape = run_op("SparseToSparseSetOperation", [*first, *second], set_operation="union")
    assert indices.tolist() == [[0, 7, 0], [0, 7, 1], [3, 0, 0], [*last, 0], [*last, 1]]
    assert values.tolist() == [4, 8, 9, 3, 5]
    assert out_shape.tolist() == [2**31, 2**30, 2]
