"""Select and SelectV2: which shapes go together, and what is picked."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import errors
from tests.kernels.harness import build, run_op, strings

ONES, TWOS = np.ones((2, 3), np.float32), 2 * np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("condition", "then", "otherwise", "want"),
    [
        (True, [1, 2], [3, 4], [1, 2]),
        (False, [1, 2], [3, 4], [3, 4]),
        (True, 1, 2, 1),
        ([True, False], [1, 2], [3, 4], [1, 4]),
        ([True, False], ONES, TWOS, [[1, 1, 1], [2, 2, 2]]),
        ([[True, False, True]] * 2, ONES, TWOS, [[1, 2, 1]] * 2),
        ([True], [1], [2], [1]),
        (np.zeros(0, bool), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2))),
    ],
)
def test_select(condition, then, otherwise, want):
    got = run_op("Select", [condition, np.float32(then), np.float32(otherwise)])
    np.testing.assert_array_equal(np.asarray(got), np.float32(want), strict=True)


@pytest.mark.parametrize(
    ("condition", "then", "otherwise", "message"),
    [
        ((2,), (3,), (3,), r"Input 0: \[2\] != input 1: \[3\]"),
        ((), (2,), (1,), r"'then' and 'else' must have the same size.  but received: \[2\] vs. \[1\]"),
        ((3,), (2, 3), (2, 3), "Number of batches of 'then' must match size of 'cond', but saw: 2 vs. 3"),
        ((1, 2), (2, 3), (2, 3), r"Input 0: \[1,2\] != input 1: \[2,3\]"),
        ((1,), (), (), r"'then' must be at least a vector, but saw shape: \[\]"),
        ((2,), (2, 3), (2, 1), r"'then' and 'else' must have the same size"),
        ((2, 3), (2, 3), (3,), r"Input 0: \[2,3\] != input 2: \[3\]"),
    ],
)
def test_select_refuses_other_shapes(condition, then, otherwise, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        run_op("Select", [np.ones(condition, bool), np.ones(then), np.ones(otherwise)])


@pytest.mark.parametrize("op", ["Select", "SelectV2"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_, np.complex64, np.float16, ml_dtypes.bfloat16])
def test_types_pass_unchanged(op, dtype):
    got = run_op(op, [[True, False], np.array([1, 0], dtype), np.array([0, 1], dtype)])
    np.testing.assert_array_equal(got, np.array([1, 1], dtype), strict=True)


@pytest.mark.parametrize("op", ["Select", "SelectV2"])
def test_objects_are_picked_too(op):
    x, y = strings("a", "b"), strings("c", "d")
    assert run_op(op, [[True, False], x, y]).tolist() == [b"a", b"d"]
    one = run_op(op, [True, strings("a", shape=()), strings("b", shape=())])
    assert one.shape == ()
    assert one.item() == b"a"
    handle = object()
    box = np.empty((), object)
    box[()] = handle
    assert run_op(op, [False, box, box], T="resource").item() is handle


def test_select_v2_refuses_what_does_not_broadcast():
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op("SelectV2", [[True, False], np.ones(3), np.ones(3)])
    assert caught.value.message == "condition [2], then [3], and else [3] must be broadcastable"


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=3),
    bits=st.integers(0, 2**20),
)
def test_select_v2_broadcasts_all_three(shapes, bits):
    c, t, e = shapes.input_shapes
    condition = np.array([bits >> i & 1 for i in range(int(np.prod(c)))], bool).reshape(c)
    got = run_op("SelectV2", [condition, np.full(t, 1, np.int16), np.full(e, 2, np.int16)])
    want = np.broadcast_to(np.where(condition, np.full(t, 1, np.int16), np.full(e, 2, np.int16)), shapes.result_shape)
    np.testing.assert_array_equal(np.asarray(got), want, strict=True)


@pytest.mark.parametrize("condition", [(3, 1), (1, 4), (4,), (1,), (1, 1), (2, 1, 1), (0, 1), (3, 4), (1, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64, object])
@pytest.mark.parametrize("columns", [1, 4])
def test_condition_that_is_broadcast_selects_as_numpy_does(condition: Any, dtype: Any, columns: int) -> None:
    built, _, _ = build("SelectV2", [np.ones(condition, bool), *[np.zeros((3, columns), dtype)] * 2])
    chosen = np.arange(np.prod(condition)).reshape(condition) % 3 > 0
    then, otherwise = np.arange(3 * columns).reshape(3, columns).astype(dtype), np.full((3, columns), 7).astype(dtype)
    before = then.copy(), otherwise.copy()
    try:
        wanted = np.where(chosen, then, otherwise)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            built.compute(chosen, then, otherwise)
        return
    got = built.compute(chosen, then, otherwise)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    assert not np.may_share_memory(got, then) and not np.may_share_memory(got, otherwise)
    np.testing.assert_array_equal((then, otherwise), before)


def test_condition_without_elements_selects_from_numbers() -> None:
    built, _, _ = build("SelectV2", [np.ones(0, bool), np.float32(1), np.float32(2)])
    assert built.compute(np.ones(0, bool), np.float32(1), np.float32(2)).shape == (0,)
