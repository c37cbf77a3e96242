"""Zeros of every type, and arrays of objects that are filled in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, zeros


@pytest.mark.parametrize(
    ("dtype", "zero"), [(dtypes.string, b""), (dtypes.variant, None), (dtypes.float32, 0.0), (dtypes.int8, 0)]
)
def test_zeros_are_those_of_the_type(dtype: dtypes.DType, zero: object) -> None:
    found = zeros.zeros_of_type((2, 3), dtype)
    assert found.shape == (2, 3) and found.dtype == dtype.np and found.ravel().tolist() == [zero] * 6


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_objects_are_filled_some_at_a_time(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    starts: list[int] = []

    def watched(items: Iterable[int], _: float) -> Iterator[int]:
        for item in items:
            starts.append(item)
            yield item

    monkeypatch.setattr(zeros, "_AT_ONCE", 4)
    monkeypatch.setattr(zeros, "giving_way", watched)
    out = np.empty(shape, object)
    zeros.fill_objects(out, b"a\0")
    assert out.ravel().tolist() == [b"a\0"] * out.size
    assert starts == list(range(0, out.size, 4))


def test_objects_may_be_arrays() -> None:
    value: Any = np.empty((), object)
    value[()] = np.arange(3)
    out = np.empty((2, 2), object)
    zeros.fill_objects(out, value)
    assert all(element is value.item() for element in out.ravel())
