"""Ragged tensors: known answers, messages, and lists of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.answer_tables import INVALID, VALUES, known_answers, refused, texts
from tests.kernels.array_support import F32, I32, I64
from tests.kernels.harness import run_op

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "RaggedRange",
        [I32([0, 5, 8]), I32([3, 7, 2]), I32([1, 1, -2])],
        {},
        [I64([0, 3, 5, 8]), I32([0, 1, 2, 5, 6, 8, 6, 4])],
    ),
    (
        "RaggedRange",
        [F32([0, 5, 8]), F32([3, 7, 2]), F32([1, 1, -2])],
        {'Tsplits': 'int32'},
        [I32([0, 3, 5, 8]), F32([0, 1, 2, 5, 6, 8, 6, 4])],
    ),
    ("RaggedRange", [I32(0), I32(5), I32(2)], {}, [I64([0, 3]), I32([0, 2, 4])]),
    ("RaggedRange", [F32(0), F32(5), F32(2)], {'Tsplits': 'int32'}, [I32([0, 3]), F32([0, 2, 4])]),
    ("RaggedRange", [I32([0, 1]), I32(5), I32(1)], {}, [I64([0, 5, 9]), I32([0, 1, 2, 3, 4, 1, 2, 3, 4])]),
    (
        "RaggedRange",
        [F32([0, 1]), F32(5), F32(1)],
        {'Tsplits': 'int32'},
        [I32([0, 5, 9]), F32([0, 1, 2, 3, 4, 1, 2, 3, 4])],
    ),
    ("RaggedRange", [I32([5]), I32([0]), I32([1])], {}, [I64([0, 0]), I32([])]),
    ("RaggedRange", [F32([5]), F32([0]), F32([1])], {'Tsplits': 'int32'}, [I32([0, 0]), F32([])]),
    ("RaggedRange", [I32(0), I32([3, 4]), I32(1)], {}, [I64([0, 3, 7]), I32([0, 1, 2, 0, 1, 2, 3])]),
    ("RaggedRange", [F32(0), F32([3, 4]), F32(1)], {'Tsplits': 'int32'}, [I32([0, 3, 7]), F32([0, 1, 2, 0, 1, 2, 3])]),
    ("RaggedRange", [I32([]), I32([]), I32([])], {}, [I64([0]), I32([])]),
    ("RaggedRange", [F32([]), F32([]), F32([])], {'Tsplits': 'int32'}, [I32([0]), F32([])]),
    ("RaggedRange", [I32(0), I32(1), I32([1, 2])], {}, [I64([0, 1, 2]), I32([0, 0])]),
    ("RaggedRange", [F32(0), F32(1), F32([1, 2])], {'Tsplits': 'int32'}, [I32([0, 1, 2]), F32([0, 0])]),
    ("RaggedRange", [F32([0, 1]), F32([1, 2]), F32([0.3, -0.5])], {}, [I64([0, 4, 4]), F32([0, 0.3, 0.6, 0.90000004])]),
    (
        "RaggedGather",
        [[I64([0, 2, 2, 5])], F32([1, 2, 3, 4, 5]), I64([2, 0, 1, 2])],
        {'OUTPUT_RAGGED_RANK': 1},
        [I64([0, 3, 5, 5, 8]), F32([3, 4, 5, 1, 2, 3, 4, 5])],
    ),
    (
        "RaggedGather",
        [[I64([0, 2, 2, 5])], F32([1, 2, 3, 4, 5]), I64([[2, 0], [1, 2]])],
        {'OUTPUT_RAGGED_RANK': 2},
        [I64([0, 2, 4]), I64([0, 3, 5, 5, 8]), F32([3, 4, 5, 1, 2, 3, 4, 5])],
    ),
    ("RaggedGather", [[I64([0, 2, 2, 5])], F32([1, 2, 3, 4, 5]), I64(2)], {'OUTPUT_RAGGED_RANK': 0}, [F32([3, 4, 5])]),
    (
        "RaggedGather",
        [[I64([0, 2, 3]), I64([0, 2, 2, 5])], F32([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]), I64([1, 0])],
        {'OUTPUT_RAGGED_RANK': 2},
        [I64([0, 1, 3]), I64([0, 3, 5, 5]), F32([[4, 5], [6, 7], [8, 9], [0, 1], [2, 3]])],
    ),
    (
        "RaggedGather",
        [[I64([1, 2, 5])], F32([1, 2, 3, 4, 5]), I64([1])],
        {'OUTPUT_RAGGED_RANK': 1},
        [I64([0, 3]), F32([3, 4, 5])],
    ),
    (
        "RaggedGather",
        [[I64([0, 2])], F32([1, 2, 3, 4, 5]), I64([0])],
        {'OUTPUT_RAGGED_RANK': 1},
        [I64([0, 2]), F32([1, 2])],
    ),
    (
        "RaggedTensorToSparse",
        [[I64([0, 2, 2, 5])], F32([1, 2, 3, 4, 5])],
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1], [2, 2]]), F32([1, 2, 3, 4, 5]), I64([3, 3])],
    ),
    ("RaggedTensorToSparse", [[I64([0])], F32([])], {}, [np.empty((0, 2), np.int64), F32([]), I64([0, 0])]),
    (
        "RaggedTensorToSparse",
        [[I64([0, 0])], np.empty((0, 2**40, 3), np.float32)],
        {},
        [np.empty((0, 4), np.int64), F32([]), I64([1, 0, 2**40, 3])],
    ),
    ("RaggedTensorToSparse", [[I64([0, 0, 0])], F32([])], {}, [np.empty((0, 2), np.int64), F32([]), I64([2, 0])]),
    (
        "RaggedTensorToSparse",
        [[I64([0, 0])], np.empty((0, 10**12), np.float32)],
        {},
        [np.empty((0, 3), np.int64), F32([]), I64([1, 0, 10**12])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [F32([[1, 2, 0], [0, 0, 0], [3, 4, 5]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64(-1), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [F32([[1, 2, 0], [0, 0, 0], [3, 4, 5]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([2, 2]), F32([1, 2, 3, 4, 5]), F32(9), [I64([0, 3, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [F32([[1, 2], [4, 5]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64(4), I64([0, 0, 2, 2, 2])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        [F32([[1, 2, 0], [0, 0, 0], [3, 4, 5], [0, 0, 0]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64(2), I64([0, 1, 1]), I64([0, 0, 2, 2, 2])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS', 'VALUE_ROWIDS']},
        [F32([[[1, 2, 0], [0, 0, 0]], [[0, 0, 0], [3, 4, 5]]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 3]), I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS', 'ROW_SPLITS']},
        [F32([[[1, 2, 0], [0, 0, 0]], [[3, 4, 5], [0, 0, 0]]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, 2]), F32([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [F32([[[0, 1], [2, 3], [0, 0]], [[0, 0], [0, 0], [0, 0]], [[4, 5], [6, 7], [8, 9]]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, 2]), F32([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]), F32([7, 8]), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [F32([[[0, 1], [2, 3], [7, 8]], [[7, 8], [7, 8], [7, 8]], [[4, 5], [6, 7], [8, 9]]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 3])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [F32([[1, 2], [3, 0]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), VALUES, F32(0), [I64(2), I64([0, 1])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        [F32([[1], [2]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), VALUES, F32(0), [I64([2]), I64([0, 1, 1])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        [F32([[1, 0], [2, 3]])],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([]), F32(0), [I64(2), I64([])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        [np.empty((2, 0), np.float32)],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([]), F32(0), [I64([0])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [np.empty((0, 0), np.float32)],
    ),
    (
        "RaggedTensorToTensor",
        [I64([3, 0]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [np.empty((3, 0), np.float32)],
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), texts(b'a', b'b'), texts(b'-'), [I64([0, 2, 2])]],
        {'row_partition_types': ['ROW_SPLITS']},
        [texts(b'a', b'b', b'-', b'-', shape=(2, 2))],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "RaggedRange",
        [I32([0, 1]), I32([1, 2, 3]), I32(1)],
        {},
        "starts, limits, and deltas must have the same shape",
        INVALID,
    ),
    ("RaggedRange", [I32([0]), I32([5]), I32([0])], {}, "Requires delta != 0", INVALID),
    ("RaggedRange", [I32([[0]]), I32([1]), I32([1])], {}, "starts must be a scalar or vector", INVALID),
    (
        "RaggedRange",
        [F32([0]), F32([np.nan]), F32([0.3])],
        {},
        "Requires ((limit - start) / delta) <= 9223372036854775807",
        INVALID,
    ),
    (
        "RaggedRange",
        [I32([0, 0]), I32([2147483647, 2147483647]), I32([1, 1])],
        {'Tsplits': 'int32'},
        "The total range size overflowed. Consider using int64 instead of int32 for row_splits_dtype.",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([0, 2, 2, 5])], F32([1, 2, 3, 4, 5]), I64([2, 3])],
        {'OUTPUT_RAGGED_RANK': 1},
        "indices[1] = 3 is not in [0, 3)",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([0, 2, 2, 5])], F32([1, 2, 3, 4, 5]), I64([-1])],
        {'OUTPUT_RAGGED_RANK': 1},
        "indices[0] = -1 is not in [0, 3)",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([0, 2, 9])], F32([1, 2, 3, 4, 5]), I64([1])],
        {'OUTPUT_RAGGED_RANK': 1},
        "Ragged splits must not point past values",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([0, 3, 2])], F32([1, 2, 3, 4, 5]), I64([1])],
        {'OUTPUT_RAGGED_RANK': 1},
        "Ragged splits must be sorted",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([])], F32([1, 2, 3, 4, 5]), I64([0])],
        {'OUTPUT_RAGGED_RANK': 1},
        "indices[0] = 0 is not in [0, -1)",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([-1, 3])], F32([1, 2, 3, 4, 5]), I64([0])],
        {'OUTPUT_RAGGED_RANK': 1},
        "Ragged splits must be non-negative",
        INVALID,
    ),
    (
        "RaggedGather",
        [[I64([0, 2])], F32(1), I64([0])],
        {'OUTPUT_RAGGED_RANK': 1},
        "params.rank must be nonzero",
        INVALID,
    ),
    (
        "RaggedTensorToSparse",
        [[I64([1, 5])], F32([1, 2, 3, 4, 5])],
        {},
        "First value of ragged splits must be 0.",
        INVALID,
    ),
    (
        "RaggedTensorToSparse",
        [[I64([0, 3])], F32([1, 2, 3, 4, 5])],
        {},
        "Final value of ragged splits must match the length the corresponding ragged values.",
        INVALID,
    ),
    (
        "RaggedTensorToSparse",
        [[I64([0, 3, 2, 5])], F32([1, 2, 3, 4, 5])],
        {},
        "Ragged splits should be non decreasing, but we got 3 followed by 2",
        INVALID,
    ),
    ("RaggedTensorToSparse", [[I64([])], F32([1, 2, 3, 4, 5])], {}, "ragged splits may not be empty.", INVALID),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, 3]), F32([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "rt_input.shape and shape=[?,?,3] are incompatible: rt_input.shape[2] = 2 but shape[2] = 3",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, 2]), F32([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]), VALUES, [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "default_value.shape=[3] and rt_input.flat_values.shape=[5,2] are incompatible: default_value.shape[-1] = 3 but rt_input.flat_values.shape[-1] = 2",  # noqa: E501
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32([[1]]), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "default_value.shape=[1,1] and rt_input.flat_values.shape=[5] are incompatible: default_value.rank = 2  must be less than rt_input.flat_values.rank = 1",  # noqa: E501
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32([1]), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "default_value.shape=[1] and rt_input.flat_values.shape=[5] are incompatible: default_value.rank = 1  must be less than rt_input.flat_values.rank = 1",  # noqa: E501
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "rt_input.shape and shape=[?,?,?] are incompatible: rt_input.rank = 2 but shape.rank = 3",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "rt_input.shape and shape=[?] are incompatible: rt_input.rank = 2 but shape.rank = 1",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([[1]]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "Shape must be at most rank 1 but is rank 2",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64(5), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "The only valid scalar shape tensor is the fully unknown shape specified as -1.",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-2, 2]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "Dimension -2 must be >= -1",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([1, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "Invalid row split size.",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "Invalid first partition input. Tensor requires at least one element.",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['FOO']},
        "Unknown string for partition info type: FOO",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 0, 2, 2, 2])]],
        {'row_partition_types': ['VALUE_ROWIDS']},
        "Cannot handle VALUE_ROWIDS in first dimension.",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([1, 2, 3, 4, 5]), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_LENGTHS']},
        "Cannot handle type ROW_LENGTHS",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), VALUES, F32(0), [I64(2), I64([0, 5, 1])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        "Got next_value_rowid=5 which is not less than 2",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), VALUES, F32(0), [I64(2), I64([-1, 1, 1])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        "Got current_value_rowid=-1 which is not less than 2",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1, -1]), F32([]), F32(0), [I64(-2), I64([])]],
        {'row_partition_types': ['FIRST_DIM_SIZE', 'VALUE_ROWIDS']},
        "Dimension -2 must be >= 0",
        INVALID,
    ),
    (
        "RaggedTensorToTensor",
        [I64([-1]), F32(1), F32(0), [I64([0, 2, 2, 5])]],
        {'row_partition_types': ['ROW_SPLITS']},
        "default_value.shape=[] and rt_input.flat_values.shape=[] are incompatible: default_value.rank = 0  must be less than rt_input.flat_values.rank = 0",  # noqa: E501
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)


def test_first_dimension_of_any_size():
    """Rows without values take no memory but in the output."""
    partitions = [I64(2**40), I64([0, 5])]
    kinds = ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]
    inputs = [I64([2, -1]), F32([1, 2]), F32(0), partitions]
    assert run_op("RaggedTensorToTensor", inputs, row_partition_types=kinds).tolist() == [[1], [0]]
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("RaggedTensorToTensor", [I64([-1, -1]), *inputs[1:]], row_partition_types=kinds)


def test_more_rows_than_fit_memory_are_refused():
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("RaggedGather", [[I64([0, 10**6])], np.zeros(10**6), np.zeros(10**6, np.int64)], OUTPUT_RAGGED_RANK=1)
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("RaggedRange", [F32([0]), F32([1e13]), F32([1])])
