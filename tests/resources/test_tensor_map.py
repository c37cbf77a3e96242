"""Maps of tensors do not change."""

from __future__ import annotations

import numpy as np

from aexec.resources.tensor_map import TensorMap


def test_a_change_makes_a_new_map() -> None:
    key, value = np.array(b"k", object), np.float32(1)
    empty = TensorMap()
    one = empty.with_item(key, value)
    none = one.without(key)
    assert [len(empty), len(one), len(none)] == [0, 1, 0]
    assert one.get(key) == value and none.get(key) is None
    assert list(one.tensors) == [key, value]
