"""Crosses of ragged, sparse and dense columns: known answers and messages."""

from __future__ import annotations

from typing import Any

from tests.kernels.answer_tables import INVALID, known_answers, refused, texts
from tests.kernels.array_support import I64

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (
        "RaggedCross",
        [[I64([1, -2, 3])], [I64([0, 2, 3])], [I64([[0, 0], [1, 0], [1, 1]])], [I64([1099511627776, 5, 6])], [I64([2, 2])], [I64([[7, 8], [9, 10]])]],  # noqa: E501
        {'input_order': 'DSR', 'hashed_output': True, 'num_buckets': 0, 'hash_key': 956888297470, 'out_values_type': 'int64', 'out_row_splits_type': 'int64'},  # noqa: E501
        [I64([884313791873495310, 1756019771312806184, 6595145707970913274, 2363008133241967070, 1787386280763803063, 8717502840710704421, 7724608936388165206, 6316331691835071670]), I64([0, 4, 8])],  # noqa: E501
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [], [], [], []],
        {'input_order': 'R', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        [texts(b'a', b'b', b'c'), I64([0, 2, 3])],
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [I64([[0, 0], [1, 0], [1, 1]])], [texts(b'x', b'y', b'z')], [I64([2, 2])], [texts(b'p', b'q', shape=(2, 1))]],  # noqa: E501
        {'input_order': 'RSD', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        [texts(b'a_X_x_X_p', b'b_X_x_X_p', b'c_X_y_X_q', b'c_X_z_X_q'), I64([0, 2, 4])],
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [I64([[0, 0], [1, 0], [1, 1]])], [texts(b'x', b'y', b'z')], [I64([2, 2])], [texts(b'p', b'q', shape=(2, 1))]],  # noqa: E501
        {'input_order': 'DSR', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        [texts(b'p_X_x_X_a', b'p_X_x_X_b', b'q_X_y_X_c', b'q_X_z_X_c'), I64([0, 2, 4])],
    ),
    (
        "RaggedCross",
        [[I64([1, -2, 3])], [I64([0, 2, 3])], [I64([[0, 0], [1, 0], [1, 1]])], [I64([1099511627776, 5, 6])], [I64([2, 2])], [I64([[7, 8], [9, 10]])]],  # noqa: E501
        {'input_order': 'DSR', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        [texts(b'7_X_1099511627776_X_1', b'7_X_1099511627776_X_-2', b'8_X_1099511627776_X_1', b'8_X_1099511627776_X_-2', b'9_X_5_X_3', b'9_X_6_X_3', b'10_X_5_X_3', b'10_X_6_X_3'), I64([0, 4, 8])],  # noqa: E501
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [I64([[0, 0], [1, 0], [1, 1]])], [texts(b'x', b'y', b'z')], [I64([2, 2])], [texts(b'p', b'q', shape=(2, 1))]],  # noqa: E501
        {'input_order': 'DSR', 'hashed_output': True, 'num_buckets': 100, 'hash_key': 956888297470, 'out_values_type': 'int64', 'out_row_splits_type': 'int64'},  # noqa: E501
        [I64([84, 25, 24, 63]), I64([0, 2, 4])],
    ),
    (
        "RaggedCross",
        [[], [], [I64([[0, 0], [1, 0], [9, 1]])], [texts(b'x', b'y', b'z')], [I64([2, 2])], []],
        {'input_order': 'S', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        [texts(b'x', b'y'), I64([0, 1, 2])],
    ),
    (
        "RaggedCross",
        [[], [], [], [], [], []],
        {'input_order': '', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        [texts(shape=(0,)), I64([0])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [], [], [], []],
        {'input_order': 'RR', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Invalid length for input_order",
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [], [], [], []],
        {'input_order': 'X', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Unexpected input_order value.",
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 2, 3])], [], [], [], []],
        {'input_order': 'D', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        'input_order "D" specifies reading a dense tensor at index 0 from a list of 0 tensors.',
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c'), texts(b'a', b'b', b'c')], [I64([0, 2, 3]), I64([0, 3])], [], [], [], []],
        {'input_order': 'RR', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "inputs must all have the same batch dimension size.",
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 9])], [], [], [], []],
        {'input_order': 'R', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Invalid ragged splits: last element of ragged splits must be the number of ragged values(3) but is 9",
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([1, 3])], [], [], [], []],
        {'input_order': 'R', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Invalid ragged splits: first element of ragged splits  must be 0 but is 1",
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([0, 3, 2])], [], [], [], []],
        {'input_order': 'R', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Invalid ragged splits: ragged splits must be monotonically increasing, but ragged_splits[2]=2 is smaller than row_splits[1]=3",  # noqa: E501
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', b'b', b'c')], [I64([])], [], [], [], []],
        {'input_order': 'R', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Invalid ragged splits: ragged splits must have at least one splits, but is empty",
        INVALID,
    ),
    (
        "RaggedCross",
        [[texts(b'a', shape=(1, 1))], [I64([0, 1])], [], [], [], []],
        {'input_order': 'R', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "tf.ragged.cross only supports inputs with rank=2.",
        INVALID,
    ),
    (
        "RaggedCross",
        [[], [], [I64([0])], [texts(b'x', b'y', b'z')], [I64([2, 2])], []],
        {'input_order': 'S', 'hashed_output': False, 'num_buckets': 0, 'hash_key': 0, 'out_values_type': 'string', 'out_row_splits_type': 'int64'},  # noqa: E501
        "Invalid SparseTensor 0",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)
