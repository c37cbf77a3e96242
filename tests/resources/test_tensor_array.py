"""Arrays of tensors that grow by one element at a time, as in loops with gradients."""

from __future__ import annotations

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.resources.tensor_array import TensorArray


def growing(size: int = 0) -> TensorArray:
    return TensorArray("array", dtypes.float32, size, PartialTensorShape([]), dynamic_size=True)


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_array_grows_by_one_element_at_a_time(size: int) -> None:
    array = growing(size)
    for index in range(2500):
        array.write(index, np.float32(index))
        assert len(array) == max(size, index + 1)
    assert [float(array.read(index)) for index in range(2500)] == list(range(2500))


def test_array_grows_over_a_gap() -> None:
    array = growing()
    array.write(0, np.float32(1))
    array.write(5, np.float32(2))
    array.write(6, np.float32(3))
    assert len(array) == 7
    assert [float(value) for value in array.read_many(range(7))] == [1, 0, 0, 0, 0, 2, 3]


def test_element_before_the_first_is_refused() -> None:
    array = growing()
    with pytest.raises(errors.InvalidArgumentError, match="index -1"):
        array.write(-1, np.float32(1))
    assert len(array) == 0
