"""_SumToShape: passes a gradient on, or sums it, and refuses shapes that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import errors
from tests.kernels.harness import build, run_op


def built(*, second: bool = False) -> Any:
    example = [np.ones((2, 3), np.float32), np.int32([3]), np.int32([2, 3])]
    return build("_SumToShape", example, second=second)[0].compute


def test_gradient_of_wanted_shape_is_passed_on() -> None:
    x = np.ones((2, 3), np.float32)
    assert built()(x, np.int32([2, 3]), np.int32([3])) is x


def test_shapes_change_between_calls() -> None:
    x, compute = np.ones((2, 3), np.float32), built()
    for shape, want in (([3], [2, 2, 2]), ([2, 1], [[3], [3]]), ([2, 3], x.tolist()), ([], 6), ([3], [2, 2, 2])):
        assert compute(x, np.int32(shape), np.int32([2, 3])).tolist() == want


def test_changed_shape_of_the_same_array_is_seen() -> None:
    x, compute, shape = np.ones((2, 3), np.float32), built(), np.int32([2, 3])
    assert compute(x, shape, np.int32([2, 3])) is x
    shape[0] = 1
    assert compute(x, shape, np.int32([2, 3])).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize(
    ("shape", "other", "message"),
    [
        ([2], [3], r"Incompatible shapes: \[2\] vs. \[3\]"),
        ([[2]], [2], "must be a vector"),
        ([2], 2, "must be a vector"),
        ([1] * 300, [2], "rank|dimensions"),
    ],
)
def test_wrong_shapes_are_refused(shape: Any, other: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        run_op("_SumToShape", [np.ones(2, np.float32), np.int32(shape), np.int32(other)])
    flipped = message.replace(r"\[2\] vs. \[3\]", r"\[3\] vs. \[2\]")
    with pytest.raises(errors.InvalidArgumentError, match=flipped):
        run_op("_SumToShape", [np.ones(2, np.float32), np.int32(shape), np.int32(other)], second=True)
