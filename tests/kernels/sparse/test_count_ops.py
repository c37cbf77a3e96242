"""Counting by rows: known answers, messages, and a plain count."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.answer_tables import INDICES, INVALID, SHAPE, VALUES, known_answers, refused
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "SparseBincount",
        [INDICES, I32([1, 2, 3]), SHAPE, I32(5), F32([])],
        {},
        [F32([[0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]])],
    ),
    (
        "SparseBincount",
        [I64([[0, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE, I32(5), F32([])],
        {},
        [F32([[0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]])],
    ),
    (
        "SparseBincount",
        [I64([[1, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE, I32(5), F32([])],
        {},
        [F32([[0, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]])],
    ),
    (
        "SparseBincount",
        [np.empty((0, 2), np.int64), I32([]), SHAPE, I32(5), F32([])],
        {},
        [F32([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])],
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32([1, 2, 3]), SHAPE, F32([])],
        {'binary_output': False},
        [I64([[0, 1], [1, 2], [2, 3]]), F32([1, 1, 1]), SHAPE],
    ),
    (
        "SparseCountSparseOutput",
        [I64([[0, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE, F32([])],
        {'binary_output': False},
        [I64([[0, 1], [0, 2], [2, 3]]), F32([1, 1, 1]), SHAPE],
    ),
    (
        "SparseCountSparseOutput",
        [I64([[1, 1], [0, 1], [2, 2]]), I32([1, 2, 3]), SHAPE, F32([])],
        {'binary_output': False},
        [I64([[0, 2], [1, 1], [2, 3]]), F32([1, 1, 1]), SHAPE],
    ),
    (
        "SparseCountSparseOutput",
        [np.empty((0, 2), np.int64), I32([]), SHAPE, F32([])],
        {'binary_output': False},
        [np.empty((0, 2), np.int64), F32([]), I64([3, 1])],
    ),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([1, 2, 5]), I32(6), F32([])],
        {},
        [F32([[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]])],
    ),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([1, 2, 9]), I32(6), F32([])],
        {},
        [F32([[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([1, 2, 5]), I32(6), VALUES],
        {},
        [F32([[0, 1, 2, 0, 0, 0], [0, 0, 0, 0, 0, 3]])],
    ),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([1, 2, 5]), I32(6), F32([1, 2])],
        {},
        [F32([[0, 1, 2, 0, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    (
        "RaggedBincount",
        [I64([0, 3, 2, 3]), I32([1, 2, 5]), I32(6), F32([])],
        {},
        [F32([[0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    (
        "RaggedBincount",
        [I64([[0, 2, 3]]), I32([1, 2, 5]), I32(6), F32([])],
        {},
        [F32([[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]])],
    ),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([[1, 2, 5]]), I32(6), F32([])],
        {},
        [F32([[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]])],
    ),
    ("RaggedBincount", [I64([0, 3]), I32([1, 1, 2]), I32(4), F32([])], {'binary_output': True}, [F32([[0, 1, 1, 0]])]),
    (
        "SparseBincount",
        [I64([[0, 0]]), I32([3]), I64([2, 3]), I32(6), F32([])],
        {},
        [F32([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    (
        "SparseBincount",
        [I64([[0, 0]]), I32([9]), I64([2, 3]), I32(6), F32([])],
        {},
        [F32([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    (
        "SparseBincount",
        [I64([[0, 0]]), I32([-1]), I64([2, 3]), I32(6), F32([])],
        {},
        [F32([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    (
        "SparseBincount",
        [I64([[0, 0]]), I32([3]), I64([2, 3]), I32(6), F32([1, 2])],
        {},
        [F32([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    ("SparseBincount", [I64([[0]]), I32([3]), I64([2]), I32(6), F32([2])], {}, [F32([0, 0, 0, 2, 0, 0])]),
    (
        "SparseBincount",
        [I64([[0, 0, 0]]), I32([3]), I64([2, 3, 4]), I32(6), F32([])],
        {},
        [F32([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]])],
    ),
    ("SparseBincount", [I64([[0, 0]]), I32([3]), I64([2, 3]), I32(0), F32([])], {}, [np.empty((2, 0), np.float32)]),
    (
        "DenseCountSparseOutput",
        [I64([1, 1, 3]), F32([])],
        {'binary_output': False},
        [I64([[1], [3]]), F32([2, 1]), I64([4])],
    ),
    (
        "DenseCountSparseOutput",
        [I64([[1, 1], [3, 0]]), F32([])],
        {'binary_output': False},
        [I64([[0, 1], [1, 0], [1, 3]]), F32([2, 1, 1]), I64([2, 4])],
    ),
    (
        "DenseCountSparseOutput",
        [I64([[1, 1], [3, 0]]), F32([[1, 2], [3, 4]])],
        {'binary_output': False},
        [I64([[0, 1], [1, 0], [1, 3]]), F32([3, 4, 3]), I64([2, 4])],
    ),
    (
        "DenseCountSparseOutput",
        [np.empty((3, 0), np.int64), F32([])],
        {'binary_output': False},
        [np.empty((0, 2), np.int64), F32([]), I64([3, 1])],
    ),
    (
        "DenseCountSparseOutput",
        [I64([1, 1, 9]), F32([])],
        {'binary_output': False, 'maxlength': 5},
        [I64([[1]]), F32([2]), I64([5])],
    ),
    (
        "DenseCountSparseOutput",
        [I64([1, 1, 9]), F32([])],
        {'binary_output': False, 'minlength': 15},
        [I64([[1], [9]]), F32([2, 1]), I64([15])],
    ),
    (
        "DenseCountSparseOutput",
        [I64([1, 1, 9]), F32([])],
        {'binary_output': False, 'maxlength': 0},
        [np.empty((0, 1), np.int64), F32([]), I64([0])],
    ),
    (
        "DenseCountSparseOutput",
        [I64([1, 2]), F32([])],
        {'binary_output': True},
        [I64([[1], [2]]), F32([1, 1]), I64([3])],
    ),
    ("DenseCountSparseOutput", [I64([1, 1]), F32([5, 6])], {'binary_output': True}, [I64([[1]]), F32([1]), I64([2])]),
    (
        "DenseCountSparseOutput",
        [I64([2147483647]), F32([])],
        {'binary_output': False},
        [I64([[2147483647]]), F32([1]), I64([2147483648])],
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0, 2, 3]), I64([1, 1, 3]), F32([])],
        {'binary_output': False},
        [I64([[0, 1], [1, 3]]), F32([2, 1]), I64([2, 4])],
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0, 2, 3]), I64([1, 1, 3]), VALUES],
        {'binary_output': False},
        [I64([[0, 1], [1, 3]]), F32([3, 3]), I64([2, 4])],
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0, 3, 2, 3]), I64([1, 1, 3]), F32([])],
        {'binary_output': False},
        [I64([[0, 1], [0, 3]]), F32([2, 1]), SHAPE],
    ),
    (
        "RaggedCountSparseOutput",
        [I64([[0, 3]]), I64([1, 1, 3]), F32([])],
        {'binary_output': False},
        [I64([[0, 1], [0, 3]]), F32([2, 1]), I64([1, 4])],
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0, 3]), I64([[1, 1, 3]]), F32([])],
        {'binary_output': False},
        [I64([[0, 1], [0, 3]]), F32([2, 1]), I64([1, 4])],
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I64([1, 1, 2]), SHAPE, VALUES],
        {'binary_output': False},
        [I64([[0, 1], [1, 1], [2, 2]]), VALUES, I64([3, 3])],
    ),
    (
        "SparseCountSparseOutput",
        [I64([[0], [1]]), I64([1, 1]), I64([5]), F32([])],
        {'binary_output': False},
        [I64([[1]]), F32([2]), I64([2])],
    ),
    (
        "SparseCountSparseOutput",
        [I64([[0, 0, 0]]), I64([1]), I64([5, 5, 5]), F32([])],
        {'binary_output': False},
        [I64([[0, 1]]), F32([1]), I64([5, 2])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "SparseBincount",
        [I64([0, 1, 2]), I32([1, 2, 3]), SHAPE, I32(5), F32([])],
        {},
        "Sparse indices must be rank 2 but is rank 1",
        INVALID,
    ),
    (
        "SparseBincount",
        [INDICES, I32([[1, 2, 3]]), SHAPE, I32(5), F32([])],
        {},
        "Sparse values must be rank 1 but is rank 2",
        INVALID,
    ),
    (
        "SparseBincount",
        [INDICES, I32(1), SHAPE, I32(5), F32([])],
        {},
        "Sparse values must be rank 1 but is rank 0",
        INVALID,
    ),
    (
        "SparseBincount",
        [INDICES, I32([1, 2, 3]), I64(3), I32(5), F32([])],
        {},
        "Sparse shape must be rank 1 but is rank 0",
        INVALID,
    ),
    (
        "SparseBincount",
        [INDICES, I32([1, 2]), SHAPE, I32(5), F32([])],
        {},
        "Number of elements in indices (3) and values (2) do not match",
        INVALID,
    ),
    (
        "SparseBincount",
        [INDICES, I32([1, 2, 3]), I64([3, 4, 5]), I32(5), F32([])],
        {},
        "Index rank (2) and shape rank (3) do not match",
        INVALID,
    ),
    (
        "SparseBincount",
        [I64([[0, 1], [1, 9], [2, 2]]), I32([1, 2, 3]), SHAPE, I32(5), F32([])],
        {},
        "Sparse index tuple indices[1, :] = [1, 9] is out of bounds",
        INVALID,
    ),
    (
        "SparseBincount",
        [I64([[0, 1], [-1, 0], [2, 2]]), I32([1, 2, 3]), SHAPE, I32(5), F32([])],
        {},
        "Sparse index tuple indices[1, :] = [-1, 0] is out of bounds",
        INVALID,
    ),
    (
        "SparseBincount",
        [INDICES, I32([1, 2, 3]), I64([-3, 4]), I32(5), F32([])],
        {},
        "Sparse index tuple indices[0, :] = [0, 1] is out of bounds",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [I64([0, 1, 2]), I32([1, 2, 3]), SHAPE, F32([])],
        {'binary_output': False},
        "Input indices must be a 2-dimensional tensor. Got: [3]",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32([[1, 2, 3]]), SHAPE, F32([])],
        {'binary_output': False},
        "Input values must be a vector. Got: [1,3]",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32(1), SHAPE, F32([])],
        {'binary_output': False},
        "Input values must be a vector. Got: []",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32([1, 2, 3]), I64(3), F32([])],
        {'binary_output': False},
        "Input shape must be a vector. Got: []",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32([1, 2]), SHAPE, F32([])],
        {'binary_output': False},
        "Number of values must match first dimension of indices.Got 2 values, indices shape: [3,2]",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32([1, 2, 3]), I64([3, 4, 5]), F32([])],
        {'binary_output': False},
        "Number of dimensions must match second dimension of indices.Got 3 dimensions, indices shape: [3,2]",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [I64([[0, 1], [1, 9], [2, 2]]), I32([1, 2, 3]), SHAPE, F32([])],
        {'binary_output': False},
        "Invalid index value at 1: dimension 1 has value 9 which is not in [0, 4) (as given by dense shape Tensor<type: int64 shape: [2] values: 3 4>",  # noqa: E501
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [I64([[0, 1], [-1, 0], [2, 2]]), I32([1, 2, 3]), SHAPE, F32([])],
        {'binary_output': False},
        "Invalid index value at 1: dimension 0 has value -1 which is not in [0, 3) (as given by dense shape Tensor<type: int64 shape: [2] values: 3 4>",  # noqa: E501
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I32([1, 2, 3]), I64([-3, 4]), F32([])],
        {'binary_output': False},
        "Invalid index value at 0: dimension 0 has value 0 which is not in [0, -3) (as given by dense shape Tensor<type: int64 shape: [2] values: -3 4>",  # noqa: E501
        INVALID,
    ),
    ("RaggedBincount", [I64([0, 2, 3]), I32([1, -2, 9]), I32(6), F32([])], {}, "Input must be non-negative", INVALID),
    (
        "RaggedBincount",
        [I64([0, 2]), I32([1, 2, 9]), I32(6), F32([])],
        {},
        "Splits must end with the number of values, got 2 instead of 3",
        INVALID,
    ),
    (
        "RaggedBincount",
        [I64([1, 3]), I32([1, 2, 9]), I32(6), F32([])],
        {},
        "Splits must start with 0, not with 1",
        INVALID,
    ),
    ("RaggedBincount", [I64([]), I32([1]), I32(6), F32([])], {}, "Splits must be non-empty", INVALID),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([1, 2, 5]), I32(-6), F32([])],
        {},
        "size (-6) must be non-negative",
        INVALID,
    ),
    (
        "RaggedBincount",
        [I64([0, 2, 3]), I32([1, 2, 5]), I32([6]), F32([])],
        {},
        "Shape must be rank 0 but is rank 1",
        INVALID,
    ),
    (
        "SparseBincount",
        [I64([[0, 0]]), I32([3]), I64([2, 3]), I32(-6), F32([])],
        {},
        "size (-6) must be non-negative",
        INVALID,
    ),
    (
        "SparseBincount",
        [I64([[0, 0]]), I32([3]), I64([2, 3]), I32([6]), F32([])],
        {},
        "Shape must be rank 0 but is rank 1",
        INVALID,
    ),
    (
        "DenseCountSparseOutput",
        [I64([1, -1, 3]), VALUES],
        {'binary_output': False},
        "Input values must all be non-negative",
        INVALID,
    ),
    (
        "DenseCountSparseOutput",
        [I64([1, 3]), F32([1])],
        {'binary_output': False},
        "Weights and data must have the same shape. Weight shape: [1]; data shape: [2]",
        INVALID,
    ),
    (
        "DenseCountSparseOutput",
        [I64(1), F32([])],
        {'binary_output': False},
        "Input must be a 1 or 2-dimensional tensor. Got: []",
        INVALID,
    ),
    (
        "DenseCountSparseOutput",
        [np.empty((0, 3), np.int64), F32([])],
        {'binary_output': False},
        "Invalid input: Shapes dimension cannot be 0.",
        INVALID,
    ),
    (
        "DenseCountSparseOutput",
        [I64([[[0]]]), F32([])],
        {'binary_output': False},
        "Input must be a 1 or 2-dimensional tensor. Got: [1,1,1]",
        INVALID,
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0, 2, 3]), I64([1, 1, 3]), F32([1, 2])],
        {'binary_output': False},
        "Weights and values must have the same shape. Weight shape: [2]; values shape: [3]",
        INVALID,
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0]), I64([1]), F32([])],
        {'binary_output': False},
        "Must provide at least 2 elements for the splits argument",
        INVALID,
    ),
    (
        "RaggedCountSparseOutput",
        [I64([1, 3]), I64([1, 1, 3]), F32([])],
        {'binary_output': False},
        "Splits must start with 0, not with 1",
        INVALID,
    ),
    (
        "RaggedCountSparseOutput",
        [I64([0, 2]), I64([1, 1, 3]), F32([])],
        {'binary_output': False},
        "Splits must end with the number of values, got 2 instead of 3",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [INDICES, I64([1, 1, 2]), SHAPE, F32([1])],
        {'binary_output': False},
        "Weights and values must have the same shape. Weight shape: [1]; values shape: [3]",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [I64([[0], [1]]), I64([1, -1]), I64([5]), F32([])],
        {'binary_output': False},
        "Input values must all be non-negative",
        INVALID,
    ),
    (
        "SparseCountSparseOutput",
        [np.empty((0, 2), np.int64), I64([]), I64([0, 4]), F32([])],
        {'binary_output': False},
        "Cannot allocate 0 batches, is the dense shape too wide?",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


def test_largest_integer_can_be_counted():
    indices, counts, shape = run_op("DenseCountSparseOutput", [I64([2**63 - 1, 0]), F32([])], binary_output=False)
    assert [indices.tolist(), counts.tolist(), shape.tolist()] == [[[0], [2**63 - 1]], [1, 1], [2**63 - 1]]
