"""Sparse tensors together with dense ones: known answers, messages, and products against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.answer_tables import INDICES, INVALID, SHAPE, VALUES, known_answers, refused
from tests.kernels.array_support import F32, I32, I64

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "SparseToDense",
        [INDICES, SHAPE, VALUES, F32(0)],
        {'validate_indices': True},
        [F32([[0, 1, 0, 0], [2, 0, 0, 0], [0, 0, 3, 0]])],
    ),
    (
        "SparseToDense",
        [INDICES, SHAPE, F32(1), F32(0)],
        {'validate_indices': True},
        [F32([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]])],
    ),
    (
        "SparseToDense",
        [np.empty((0, 2), np.int64), SHAPE, F32([]), F32(0)],
        {'validate_indices': True},
        [F32([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])],
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        [F32([[1, 1], [2, 2], [3, 3]])],
    ),
    (
        "SparseTensorDenseMatMul",
        [I64([[0, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        [F32([[3, 3], [0, 0], [3, 3]])],
    ),
    (
        "SparseTensorDenseMatMul",
        [I64([[1, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        [F32([[2, 2], [1, 1], [3, 3]])],
    ),
    (
        "SparseTensorDenseMatMul",
        [np.empty((0, 2), np.int64), F32([]), SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        [F32([[0, 0], [0, 0], [0, 0]])],
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([[1, 2, 1, 1], [3, 1, 1, 1], [1, 1, 4, 1]])],
    ),
    (
        "SparseTensorDenseAdd",
        [I64([[0, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([[1, 4, 1, 1], [1, 1, 1, 1], [1, 1, 4, 1]])],
    ),
    (
        "SparseTensorDenseAdd",
        [I64([[1, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([[1, 3, 1, 1], [1, 2, 1, 1], [1, 1, 4, 1]])],
    ),
    (
        "SparseTensorDenseAdd",
        [np.empty((0, 2), np.int64), F32([]), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([2, 3, 4])],
    ),
    (
        "SparseDenseCwiseAdd",
        [I64([[0, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([2, 3, 4])],
    ),
    (
        "SparseDenseCwiseAdd",
        [I64([[1, 1], [0, 1], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([2, 3, 4])],
    ),
    (
        "SparseDenseCwiseAdd",
        [np.empty((0, 2), np.int64), F32([]), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        [F32([])],
    ),
    ("SparseDenseCwiseAdd", [INDICES, VALUES, SHAPE, F32([1, 1, 1, 1])], {}, [F32([2, 3, 4])]),
    ("SparseDenseCwiseAdd", [INDICES, VALUES, SHAPE, F32(5)], {}, [F32([6, 7, 8])]),
    ("SparseDenseCwiseAdd", [INDICES, VALUES, SHAPE, F32([[1, 1, 1, 1]])], {}, [F32([2, 3, 4])]),
    (
        "SparseDenseCwiseDiv",
        [INDICES, I32([1, -7, 3]), SHAPE, I32([[1, 2, 3, 4], [2, 2, 2, 2], [2, 2, 2, 2]])],
        {},
        [I32([0, -3, 1])],
    ),
    (
        "SparseToDense",
        [I64([[0, 1], [0, 1]]), SHAPE, F32([1, 2]), F32(0)],
        {'validate_indices': False},
        [F32([[0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])],
    ),
    ("SparseToDense", [I64(2), I64([4]), F32(1), F32(0)], {}, [F32([0, 0, 1, 0])]),
    ("SparseToDense", [I64([1, 2]), I64([4]), F32(1), F32(0)], {}, [F32([0, 1, 1, 0])]),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "SparseToDense",
        [I64([0, 1, 2]), SHAPE, VALUES, F32(0)],
        {'validate_indices': True},
        "output_shape has incorrect number of elements: 2 should be: 1",
        INVALID,
    ),
    (
        "SparseToDense",
        [INDICES, SHAPE, F32([[1, 2, 3]]), F32(0)],
        {'validate_indices': True},
        "sparse_values has incorrect shape [1,3], should be [] or [3]",
        INVALID,
    ),
    (
        "SparseToDense",
        [INDICES, I64(3), VALUES, F32(0)],
        {'validate_indices': True},
        "output_shape must be rank 1, got shape []",
        INVALID,
    ),
    (
        "SparseToDense",
        [INDICES, SHAPE, F32([1, 2]), F32(0)],
        {'validate_indices': True},
        "sparse_values has incorrect shape [2], should be [] or [3]",
        INVALID,
    ),
    (
        "SparseToDense",
        [INDICES, I64([3, 4, 5]), VALUES, F32(0)],
        {'validate_indices': True},
        "output_shape has incorrect number of elements: 3 should be: 2",
        INVALID,
    ),
    (
        "SparseToDense",
        [I64([[0, 1], [1, 9], [2, 2]]), SHAPE, VALUES, F32(0)],
        {'validate_indices': True},
        "indices[1] = [1,9] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "SparseToDense",
        [I64([[0, 1], [-1, 0], [2, 2]]), SHAPE, VALUES, F32(0)],
        {'validate_indices': True},
        "indices[1] = [-1,0] is out of bounds: need 0 <= index < [3,4]",
        INVALID,
    ),
    (
        "SparseToDense",
        [I64([[0, 1], [0, 1], [2, 2]]), SHAPE, VALUES, F32(0)],
        {'validate_indices': True},
        "indices[1] = [0,1] is repeated",
        INVALID,
    ),
    (
        "SparseToDense",
        [I64([[1, 1], [0, 1], [2, 2]]), SHAPE, VALUES, F32(0)],
        {'validate_indices': True},
        "indices[1] = [0,1] is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",  # noqa: E501
        INVALID,
    ),
    (
        "SparseToDense",
        [INDICES, I64([-3, 4]), VALUES, F32(0)],
        {'validate_indices': True},
        "Dimension -3 must be >= 0",
        INVALID,
    ),
    (
        "SparseToDense",
        [INDICES, I64([1099511627776, 1099511627776]), VALUES, F32(0)],
        {'validate_indices': True},
        "Shape [1099511627776,1099511627776] would have more than 2**63 - 1 elements",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [I64([0, 1, 2]), VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Tensor 'a_indices' is not a matrix",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, F32([[1, 2, 3]]), SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Tensor 'a_values' is not a vector",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, I64(3), F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Tensor 'a_shape' is not a vector",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, F32([1, 2]), SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Number of rows of a_indices does not match number of entries in a_values",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, I64([3, 4, 5]), F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Tensor 'a_shape' must have 2 elements",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [I64([[0, 1], [1, 9], [2, 2]]), VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "k (9) from index[1,1] out of bounds (>=4)",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [I64([[0, 1], [-1, 0], [2, 2]]), VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "m (-1) from index[1,0] out of bounds (>=3)",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, I64([1099511627776, 1099511627776]), F32([[1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Cannot multiply A and B because inner dimension does not match: 1099511627776 vs. 4.  Did you forget a transpose?  Dimensions of A: [1099511627776, 1099511627776).  Dimensions of B: [4,2]",  # noqa: E501
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [I64([0, 1, 2]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Input a_indices should be a matrix but received shape: [3]",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, F32([[1, 2, 3]]), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Inputs a_values and a_shape should be vectors but received shapes: [1,3] and [2]",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, F32(1), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Inputs a_values and a_shape should be vectors but received shapes: [] and [2]",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, VALUES, I64(3), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Inputs a_values and a_shape should be vectors but received shapes: [3] and []",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, F32([1, 2]), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Dimensions 3 and 2 are not compatible",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, VALUES, I64([3, 4, 5]), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Dimensions 2 and 3 are not compatible",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [I64([[0, 1], [1, 9], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Sparse tensor has an invalid index on dimension 1: a_indices(1,1) = 9, dense tensor shape: 3 4",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [I64([[0, 1], [-1, 0], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Sparse tensor has an invalid index on dimension 0: a_indices(1,0) = -1, dense tensor shape: 3 4",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, VALUES, I64([-3, 4]), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Dimension 0 does not equal (no broadcasting is supported): sparse side -3 vs dense side 3",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, VALUES, I64([1099511627776, 1099511627776]), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Dimension 0 does not equal (no broadcasting is supported): sparse side 1099511627776 vs dense side 3",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [I64([0, 1, 2]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Input sp_indices should be a matrix but received shape: [3]",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, F32([[1, 2, 3]]), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Inputs sp_values and sp_shape should be vectors but received shapes: [1,3] and [2]",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, F32(1), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Inputs sp_values and sp_shape should be vectors but received shapes: [] and [2]",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, I64(3), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Inputs sp_values and sp_shape should be vectors but received shapes: [3] and []",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, F32([1, 2]), SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "The first dimension of values and indices should match. (2 vs. 3)",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, I64([3, 4, 5]), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Number of dimensions must match second dimension of indices. Got 3 dimensions, indices shape: [3,2]",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [I64([[0, 1], [1, 9], [2, 2]]), VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, I64([-3, 4]), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Expected shape dimensions to be non-negative, got -3",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, I64([1099511627776, 1099511627776]), F32([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "Encountered overflow when multiplying 1099511627776 with 1099511627776, result: -1",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, SHAPE, F32([[1, 1, 1, 1], [1, 1, 1, 1]])],
        {},
        "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: [3,4] vs. [2,4]",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [INDICES, VALUES, SHAPE, F32([[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]])],  # noqa: E501
        {},
        "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: [3,4] vs. [5,3,4]",
        INVALID,
    ),
    (
        "SparseDenseCwiseDiv",
        [INDICES, I32([1, -7, 3]), SHAPE, I32([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])],
        {},
        "SparseDenseCwiseDiv cannot divide by zero,but input dense tensor contains zero",
        INVALID,
    ),
    (
        "SparseDenseCwiseAdd",
        [I64([[0, 0, 0, 0, 0, 0]]), F32([1]), I64([1, 1, 1, 1, 1, 1]), F32([[[[[[1]]]]]])],
        {},
        "Only tensors with ranks between 1 and 5 are currently supported.  Tensor rank: 6",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [INDICES, VALUES, SHAPE, F32([[[1], [1], [1], [1]], [[1], [1], [1], [1]], [[1], [1], [1], [1]]])],
        {},
        "Two operands have different ranks; received: 2 and 3",
        INVALID,
    ),
    (
        "SparseTensorDenseAdd",
        [I64([[0, 0, 0, 0, 0, 0]]), F32([1]), I64([1, 1, 1, 1, 1, 1]), F32([[[[[[1]]]]]])],
        {},
        "Only tensors with ranks between 1 and 5 are currently supported.  Tensor rank: 6",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]])],
        {},
        "Cannot multiply A and B because inner dimension does not match: 4 vs. 5.  Did you forget a transpose?  Dimensions of A: [3, 4).  Dimensions of B: [5,2]",  # noqa: E501
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, SHAPE, F32([1, 1, 1, 1, 1])],
        {},
        "Tensor 'b' is not a matrix",
        INVALID,
    ),
    (
        "SparseTensorDenseMatMul",
        [INDICES, VALUES, SHAPE, F32([[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]])],
        {'adjoint_a': True, 'adjoint_b': True},
        "Cannot multiply A and B because inner dimension does not match: 3 vs. 2.  Did you forget a transpose?  Dimensions of A: [3, 4).  Dimensions of B: [5,2]",  # noqa: E501
        INVALID,
    ),
    ("SparseToDense", [INDICES, SHAPE, VALUES, F32([0])], {}, "default_value should be a scalar.", INVALID),
    (
        "SparseToDense",
        [I64([[[0, 1], [1, 0], [2, 2]]]), SHAPE, VALUES, F32(0)],
        {},
        "sparse_indices should be a scalar, vector, or matrix, got shape [1,3,2]",
        INVALID,
    ),
    (
        "SparseToDense",
        [I64([[0, 9], [1, 1]]), SHAPE, F32([1, 2]), F32(0)],
        {'validate_indices': False},
        "Indices are not valid (out of bounds).  Shape: [3,4]",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)
