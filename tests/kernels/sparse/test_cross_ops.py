"""Feature crosses: known answers and messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.answer_tables import INVALID, SHAPE, known_answers, refused, texts
from tests.kernels.array_support import I64

# As TensorFlow 2.21 answers: op, inputs, attrs, outputs.
# fmt: off
KNOWN: list[Any] = [
    (  # one feature in a row
        "SparseCrossV2",
        [[I64([[0, 0], [1, 0], [3, 0]]), I64([[1, 0], [2, 0], [3, 0]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([4, 1]), I64([4, 1])], [], texts(b'-')],  # noqa: E501
        {},
        [I64([[1, 0], [3, 0]]), texts(b'b-x', b'c-z'), I64([4, 1])],
    ),
    (  # in one column only
        "SparseCrossV2",
        [[I64([[0, 0], [1, 0]]), I64([[0, 0], [1, 0], [1, 1]])], [texts(b'a', b'b'), texts(b'x', b'y', b'z')], [I64([2, 1]), I64([2, 2])], [], texts(b'-')],  # noqa: E501
        {},
        [I64([[0, 0], [1, 0], [1, 1]]), texts(b'a-x', b'b-y', b'b-z'), I64([2, 2])],
    ),
    (  # and in no row of both
        "SparseCrossV2",
        [[I64([[0, 0]]), I64([[1, 0]])], [texts(b'a', shape=(1,)), texts(b'x', shape=(1,))], [I64([2, 1]), I64([2, 1])], [], texts(b'-')],  # noqa: E501
        {},
        [np.zeros((0, 2), np.int64), np.empty(0, object), I64([2, 0])],
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [], texts(b'-')],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), texts(b'a-x', b'b-x', b'c-y', b'c-z'), I64([3, 2])],
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([1484974617627318892, 3552177129620670004, 6571367263544129360, 5890530401397985473]), I64([3, 2])],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 100, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([92, 4, 60, 80]), I64([3, 2])],
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'string'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), texts(b'a_X_x', b'b_X_x', b'c_X_y', b'c_X_z'), I64([3, 2])],
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), texts(b'a_X_x', b'b_X_x', b'c_X_y', b'c_X_z'), I64([3, 2])],
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [], I64(100), np.array(False, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([38, 20, 96, 18]), I64([3, 2])],
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [], I64(100), np.array(True, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([10, 39, 55, 93]), I64([3, 2])],
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))], texts(b'-')],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), texts(b'a-x-p', b'a-x-q', b'b-x-p', b'b-x-q', b'c-y-t', b'c-y-u', b'c-z-t', b'c-z-u'), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))]],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([697207428480403723, 4288321307240949893, 88240135749194384, 4034762758260222356, 5338205891067109646, 2276623998355435666, 5450292645502832203, 4011626254168680220]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))]],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 100, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([30, 93, 84, 56, 53, 66, 10, 20]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))]],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'string'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), texts(b'a_X_x_X_p', b'a_X_x_X_q', b'b_X_x_X_p', b'b_X_x_X_q', b'c_X_y_X_t', b'c_X_y_X_u', b'c_X_z_X_t', b'c_X_z_X_u'), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))]],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), texts(b'a_X_x_X_p', b'a_X_x_X_q', b'b_X_x_X_p', b'b_X_x_X_q', b'c_X_y_X_t', b'c_X_y_X_u', b'c_X_z_X_t', b'c_X_z_X_u'), SHAPE],  # noqa: E501
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))], I64(100), np.array(False, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([56, 72, 27, 13, 98, 47, 40, 93]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [texts(b'a', b'b', b'c'), texts(b'x', b'y', b'z')], [I64([3, 2]), I64([3, 2])], [texts(b'p', b'q', b'r', b's', b't', b'u', shape=(3, 2))], I64(100), np.array(True, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([98, 95, 10, 96, 58, 68, 3, 54]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [], texts(b'-')],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), texts(b'1-1099511627776', b'-2-1099511627776', b'3-5', b'3-6'), I64([3, 2])],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([5588446726246780598, 3545667124351706812, 2006280100988443412, 8368195123215603543]), I64([3, 2])],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 100, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([5, 19, 12, 43]), I64([3, 2])],
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), texts(b'1_X_1099511627776', b'-2_X_1099511627776', b'3_X_5', b'3_X_6'), I64([3, 2])],  # noqa: E501
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [], I64(100), np.array(False, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([31, 86, 1, 56]), I64([3, 2])],
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [], I64(100), np.array(True, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0], [2, 1]]), I64([39, 63, 48, 84]), I64([3, 2])],
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [I64([[1, 2], [3, 4], [5, 35184372088832]])], texts(b'-')],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), texts(b'1-1099511627776-1', b'1-1099511627776-2', b'-2-1099511627776-1', b'-2-1099511627776-2', b'3-5-5', b'3-5-35184372088832', b'3-6-5', b'3-6-35184372088832'), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [I64([[1, 2], [3, 4], [5, 35184372088832]])]],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([3467594449808642960, 6532679417794504209, 2564001510714887353, 5220961604221578343, 8645127313676116600, 6121861731404272650, 8308918129379792837, 1305492205724449981]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [I64([[1, 2], [3, 4], [5, 35184372088832]])]],  # noqa: E501
        {'hashed_output': True, 'num_buckets': 100, 'hash_key': 956888297470, 'out_type': 'int64', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([60, 16, 60, 43, 7, 57, 37, 88]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [I64([[1, 2], [3, 4], [5, 35184372088832]])]],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'int64'},  # noqa: E501
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), texts(b'1_X_1099511627776_X_1', b'1_X_1099511627776_X_2', b'-2_X_1099511627776_X_1', b'-2_X_1099511627776_X_2', b'3_X_5_X_5', b'3_X_5_X_35184372088832', b'3_X_6_X_5', b'3_X_6_X_35184372088832'), SHAPE],  # noqa: E501
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], [I64([[1, 2], [3, 4], [5, 35184372088832]])], I64(100), np.array(False, np.bool), I64([137, 173])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1], [2, 2], [2, 3]]), I64([77, 51, 47, 42, 46, 82, 58, 43]), SHAPE],  # noqa: E501
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], I64(-3), np.array(True, np.bool), I64([137, 1])],  # noqa: E501
        {},
        [I64([[0, 0], [0, 1], [2, 0]]), I64([9053983888751565495, 5901077266775808133, 7349965141934768294]), I64([3, 2])],  # noqa: E501
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [2, 0], [1, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], texts(b'-')],
        {},
        [I64([[0, 0], [2, 0]]), texts(b'a', b'b'), I64([3, 1])],
    ),
]

# Op, inputs, attrs, message, error.
REFUSED: list[Any] = [
    (
        "SparseCross",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [2, 0], [2, 1]])], [I64([1, -2, 3]), I64([1099511627776, 5, 6])], [I64([3, 2]), I64([3, 2])], []],  # noqa: E501
        {'hashed_output': False, 'num_buckets': 0, 'hash_key': 956888297470, 'out_type': 'string', 'internal_type': 'string'},  # noqa: E501
        "Input values should be of internal type 7 but received 9",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], texts(b'-', shape=(1,))],
        {},
        "Input separator should be a scalar. Received: Tensor<type: string shape: [1] values: ->",
        INVALID,
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], I64(100), np.array(True, np.bool), I64([137])],  # noqa: E501
        {},
        'Input "salt" must have length 2 but has length 1',
        INVALID,
    ),
    (
        "SparseCrossHashed",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], I64(100), np.array(True, np.bool), I64([137, 1, 2])],  # noqa: E501
        {},
        'Input "salt" must have length 2 but has length 3',
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]]), I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c'), texts(b'a', b'b', b'c')], [I64([3, 2]), I64([4, 2])], [], texts(b'-')],  # noqa: E501
        {},
        "Expected batch size 3 got 4 at position 1",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([0])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], texts(b'-')],
        {},
        "Input indices should be a matrix but received shape [1] at position 0",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [], texts(b'-')],
        {},
        "Expected D2 of index to be 2 got 1 at position 0",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b')], [I64([3, 2])], [], texts(b'-')],
        {},
        "Expected size of values to be 3 got 2 at position 0",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3])], [], texts(b'-')],
        {},
        "shape should imply a 2D tensor, but got [1] at position 0",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64(3)], [], texts(b'-')],
        {},
        "Input shapes should be a vector but received shape [] at position 0",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [texts(b'x', shape=(1,))], texts(b'-')],  # noqa: E501
        {},
        "Dense inputs should be a matrix but received shape [1] at position 0",
        INVALID,
    ),
    (
        "SparseCrossV2",
        [[I64([[0, 0], [0, 1], [2, 0]])], [texts(b'a', b'b', b'c')], [I64([3, 2])], [texts(b'x', shape=(1, 1))], texts(b'-')],  # noqa: E501
        {},
        "Expected batch size 3 got 1 at dense tensor 0",
        INVALID,
    ),
]
# fmt: on

test_known_answers = known_answers(KNOWN)
test_refused = refused(REFUSED)
