"""Empty rows filled: known answers and messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.answer_tables import INDICES, INVALID, SHAPE, VALUES, known_answers, refused
from tests.kernels.array_support import F32, I64

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "SparseFillEmptyRows",
        [INDICES, VALUES, SHAPE, F32(0)],
        {},
        [INDICES, VALUES, np.array([False, False, False], np.bool), I64([0, 1, 2])],
    ),
    (
        "SparseFillEmptyRows",
        [I64([[0, 1], [1, 9], [2, 2]]), VALUES, SHAPE, F32(0)],
        {},
        [I64([[0, 1], [1, 9], [2, 2]]), VALUES, np.array([False, False, False], np.bool), I64([0, 1, 2])],
    ),
    (
        "SparseFillEmptyRows",
        [I64([[0, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32(0)],
        {},
        [I64([[0, 1], [0, 1], [1, 0], [2, 2]]), F32([1, 2, 0, 3]), np.array([False, True, False], np.bool), I64([0, 1, 3])],  # noqa: E501
    ),
    (
        "SparseFillEmptyRows",
        [I64([[1, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32(0)],
        {},
        [I64([[0, 1], [1, 1], [2, 2]]), F32([2, 1, 3]), np.array([False, False, False], np.bool), I64([1, 0, 2])],
    ),
    (
        "SparseFillEmptyRows",
        [np.empty((0, 2), np.int64), F32([]), SHAPE, F32(0)],
        {},
        [I64([[0, 0], [1, 0], [2, 0]]), F32([0, 0, 0]), np.array([True, True, True], np.bool), I64([])],
    ),
    (
        "SparseFillEmptyRows",
        [np.empty((0, 2), np.int64), F32([]), I64([0, 4]), F32(0)],
        {},
        [np.empty((0, 2), np.int64), F32([]), np.array([], np.bool), I64([])],
    ),
    ("SparseFillEmptyRowsGrad", [I64([0, 2]), VALUES], {}, [F32([1, 3]), F32(2)]),
    ("SparseFillEmptyRowsGrad", [I64([1, 1]), VALUES], {}, [F32([2, 2]), F32(4)]),
    (
        "RaggedFillEmptyRows",
        [I64([0, 0, 2]), VALUES, I64(3), F32(9)],
        {},
        [I64([0, 0, 1, 2]), F32([1, 2, 9, 3]), np.array([False, True, False], np.bool), I64([0, 1, 3])],
    ),
    (
        "RaggedFillEmptyRows",
        [I64([2, 0]), F32([1, 2]), I64(3), F32(9)],
        {},
        [I64([0, 1, 2]), F32([2, 9, 1]), np.array([False, True, False], np.bool), I64([2, 0])],
    ),
    (
        "RaggedFillEmptyRows",
        [I64([]), F32([]), I64(2), F32(9)],
        {},
        [I64([0, 1]), F32([9, 9]), np.array([True, True], np.bool), I64([])],
    ),
    ("RaggedFillEmptyRowsGrad", [I64([0, 2]), VALUES], {}, [F32([1, 3]), F32(2)]),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    ("SparseFillEmptyRows", [I64([0, 1, 2]), VALUES, SHAPE, F32(0)], {}, "indices must be a matrix, saw: [3]", INVALID),
    (
        "SparseFillEmptyRows",
        [INDICES, F32([[1, 2, 3]]), SHAPE, F32(0)],
        {},
        "values must be a vector, saw: [1,3]",
        INVALID,
    ),
    ("SparseFillEmptyRows", [INDICES, F32(1), SHAPE, F32(0)], {}, "values must be a vector, saw: []", INVALID),
    ("SparseFillEmptyRows", [INDICES, VALUES, I64(3), F32(0)], {}, "dense_shape must be a vector, saw: []", INVALID),
    (
        "SparseFillEmptyRows",
        [INDICES, F32([1, 2]), SHAPE, F32(0)],
        {},
        "The length of `values` (2) must match the first dimension of `indices` (3).",
        INVALID,
    ),
    (
        "SparseFillEmptyRows",
        [INDICES, VALUES, I64([3, 4, 5]), F32(0)],
        {},
        "The length of `dense_shape` (3) must match the second dimension of `indices` (2).",
        INVALID,
    ),
    (
        "SparseFillEmptyRows",
        [I64([[0, 1], [-1, 0], [2, 2]]), VALUES, SHAPE, F32(0)],
        {},
        "indices(1, 0) is invalid: -1 >= 3",
        INVALID,
    ),
    (
        "SparseFillEmptyRows",
        [INDICES, VALUES, I64([-3, 4]), F32(0)],
        {},
        "Expected shape dimensions to be non-negative, got -3",
        INVALID,
    ),
    (
        "SparseFillEmptyRows",
        [INDICES, VALUES, SHAPE, F32([0])],
        {},
        "default_value must be a scalar, saw: [1]",
        INVALID,
    ),
    (
        "SparseFillEmptyRows",
        [INDICES, VALUES, I64([]), F32(0)],
        {},
        "The length of `dense_shape` (0) must match the second dimension of `indices` (2).",
        INVALID,
    ),
    (
        "SparseFillEmptyRows",
        [INDICES, VALUES, I64([0, 4]), F32(0)],
        {},
        "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 3",
        INVALID,
    ),
    (
        "SparseFillEmptyRowsGrad",
        [I64([0, 5]), VALUES],
        {},
        "Elements in reverse index must be in [0, 3) but got 5",
        INVALID,
    ),
    ("SparseFillEmptyRowsGrad", [I64([[0, 5]]), VALUES], {}, "reverse_index_map must be a vector, saw: [1,2]", INVALID),
    ("SparseFillEmptyRowsGrad", [I64([0]), F32([[1, 2, 3]])], {}, "grad_values must be a vector, saw: [1,3]", INVALID),
    (
        "SparseFillEmptyRowsGrad",
        [I64([-1]), VALUES],
        {},
        "Elements in reverse index must be in [0, 3) but got -1",
        INVALID,
    ),
    (
        "RaggedFillEmptyRows",
        [I64([0, 5]), F32([1, 2]), I64(3), F32(9)],
        {},
        "indices(1, 0) is invalid: 5 >= 3",
        INVALID,
    ),
    (
        "RaggedFillEmptyRows",
        [I64([0]), F32([1]), I64(0), F32(9)],
        {},
        "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 1",
        INVALID,
    ),
    (
        "RaggedFillEmptyRows",
        [I64([[0]]), F32([1]), I64(2), F32(9)],
        {},
        "value_rowids must be a vector, saw: [1,1]",
        INVALID,
    ),
    ("RaggedFillEmptyRows", [I64([0]), F32([[1]]), I64(2), F32(9)], {}, "values must be a vector, saw: [1,1]", INVALID),
    ("RaggedFillEmptyRows", [I64([0]), F32([1]), I64([2]), F32(9)], {}, "nrows must be a scalar, saw: [1]", INVALID),
    (
        "RaggedFillEmptyRows",
        [I64([0]), F32([1]), I64(2), F32([9])],
        {},
        "default_value must be a scalar, saw: [1]",
        INVALID,
    ),
    (
        "RaggedFillEmptyRows",
        [I64([0, 1]), F32([1]), I64(2), F32(9)],
        {},
        "The length of `values` (1) must match the first dimension of `value_rowids` (2).",
        INVALID,
    ),
    (
        "RaggedFillEmptyRows",
        [I64([0]), F32([1]), I64(-2), F32(9)],
        {},
        "Expected shape dimensions to be non-negative, got -2",
        INVALID,
    ),
    ("RaggedFillEmptyRows", [I64([-1]), F32([1]), I64(2), F32(9)], {}, "indices(0, 0) is invalid: -1 >= 2", INVALID),
    ("RaggedFillEmptyRowsGrad", [I64([[0, 5]]), VALUES], {}, "reverse_index_map must be a vector, saw: [1,2]", INVALID),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)
