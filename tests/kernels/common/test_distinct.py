"""Distinct elements and their numbers, as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from aexec.framework import errors
from aexec.framework.memory.allocator import watching
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from aexec.kernels.common.distinct import distinct


@given(arrays.arrays(np.int8, arrays.array_shapes(min_dims=1, max_dims=1, min_side=0, max_side=50)))
def test_distinct_values_are_those_of_numpy(values: Any) -> None:
    found, which = distinct(values)
    expected = np.unique(values, return_inverse=True)
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(which, expected[1])
    assert which.dtype == np.int64


def test_nans_are_equal() -> None:
    found, which = distinct(np.array([np.nan, 1.0, np.nan, 1.0]))
    assert len(found) == 3 and which.tolist()[1] == which.tolist()[3] == 0 and set(which[::2].tolist()) == {1, 2}


def test_strings() -> None:
    found, which = distinct(np.array([b"b", b"a", b"b"], object))
    assert (found.tolist(), which.tolist()) == ([b"a", b"b"], [1, 0, 1])


def test_memory_of_distinct_is_counted() -> None:
    call = CallMemory(MemoryAccount("step", "limit", 30_000), "n")
    with watching(call):
        distinct(np.zeros(1000, np.float32))
        with pytest.raises(errors.ResourceExhaustedError, match="more would exceed the 30000 of limit"):
            distinct(np.zeros(1000, np.float32))
    call.end()
