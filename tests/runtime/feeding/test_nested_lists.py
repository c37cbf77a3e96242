"""Arrays of nested lists are those that NumPy makes, in however many pieces they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.runtime.feeding import nested_lists
from aexec.runtime.feeding.nested_lists import list_to_array, num_leaves

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.sampled_from(["a", "longer", b"bytes", np.float32(1.5), np.int8(3)]),
)
# Rectangular mostly, sometimes not.
LISTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=7) | st.lists(inner, min_size=3, max_size=3))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_lists, "_AT_ONCE", 2)
    monkeypatch.setattr(nested_lists, "let_others_run", lambda: None)


def made(make: Any, value: Any, dtype: Any) -> Any:
    try:
        array = make(value, dtype)
    except Exception as error:
        return type(error), str(error)
    return array.dtype, array.shape, array.tolist()


def test_arrays_are_returned_as_they_are() -> None:
    array = np.ones((3, 4))
    assert list_to_array(array) is array


@given(LISTS, st.sampled_from([None, object]))
def test_nested_lists_become_the_arrays_that_numpy_makes(value: Any, dtype: Any) -> None:
    assert made(list_to_array, value, dtype) == made(np.asarray, value, dtype)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 2.5, 3],
        [True, 2, 3, 4],
        [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
        [[[1.0] * 5] * 3] * 4,
        [[1, 2, 3], [4, 5]],
        [1, 2, [3, 4]],
        [[], [], []],
        [np.ones(3), np.zeros(3), np.ones(3)],
        [2**63, 1, -1],
        [2**64, 1, 2],
        ["a", "bcd", "ef"],
        ["a", 1, 2.0],
        [False, 0, "a"],
        (1, 2, 3),
        [None, 1, 2],
        [{}, 1, 2],
    ],
)
def test_odd_nested_lists_become_the_arrays_that_numpy_makes(value: Any) -> None:
    for dtype in (None, object):
        assert made(list_to_array, value, dtype) == made(np.asarray, value, dtype)


def test_leaves_are_counted_by_the_first_of_each_level() -> None:
    assert num_leaves(3) == num_leaves("abc") == 1
    assert num_leaves([1, 2, 3]) == 3
    assert num_leaves([[1, 2, 3], [4, 5, 6]]) == 6
    assert num_leaves([]) == 0
    assert num_leaves([np.ones(5), np.ones(5)]) == 10
