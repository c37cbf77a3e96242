"""Maps of tensors do not change."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from aexec.resources.tensor_map import TensorMap


def test_change_makes_a_new_map() -> None:
    key, value = np.array(b"k", object), np.float32(1)
    empty = TensorMap()
    one = empty.with_item(key, value)
    none = one.without(key)
    assert [len(empty), len(one), len(none)] == [0, 1, 0]
    assert one.get(key) == value and none.get(key) is None
    assert list(one.tensors) == [key, value]


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("of_strings", [False, True])
def test_keys_are_told_apart_by_shape_and_elements(size: int, of_strings: bool) -> None:
    def key(last: object) -> np.ndarray:
        made = np.array([b"a"] * size, object) if of_strings else np.ones(size, np.int64)
        made[-2:] = [b"", last] if of_strings else [0, last]
        return made

    last, other = (b"bc", b"b") if of_strings else (2, 3)
    one = TensorMap().with_item(key(last), 1.0)
    assert one.get(key(last)) == 1 and one.get(np.repeat(key(last), 2)[::2]) == 1
    assert one.get(key(other)) is None and one.get(key(last)[None]) is None
    moved = key(last)
    moved[-2:] = [b"b", b"c"] if of_strings else [2, 0]
    assert one.get(moved) is None


def test_key_of_one_string_in_many_places_takes_no_copy_of_each() -> None:
    key = np.full(2000, b"x" * 100_000, object)
    tracemalloc.start()
    try:
        assert key in TensorMap().with_item(key, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
