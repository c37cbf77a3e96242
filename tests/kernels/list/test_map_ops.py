"""Maps of tensors; the answers to graphs of them are among those to `list_cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.wire import variant
from aexec.resources.tensor_map import TensorMap
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op


def test_registered_as_in_tensorflow() -> None:
    names = ops_of("list.map_ops")
    assert len(names) == 7
    for op in names:
        assert registered(op) == in_tensorflow(op)


def _map(*pairs: tuple[Any, Any]) -> TensorMap:
    made = TensorMap()
    for key, value in pairs:
        made = made.with_item(np.array(key), np.array(value, np.float32))
    return made


def test_keys_are_told_apart_by_type_shape_and_elements() -> None:
    made = _map((1, 10), ([1], 20), (np.int8(1), 30), (1, 40))
    assert len(made) == 3 and made.get(np.array(1)) == 40
    assert np.array([1]) in made and np.array([[1]]) not in made


def test_keys_are_stacked_in_the_order_in_which_they_came() -> None:
    box = np.array(_map((5, 0), (1, 0), (3, 0)), object)
    assert run_op("TensorMapStackKeys", [box], key_dtype=dtypes.int64).tolist() == [5, 1, 3]


def test_wire_form() -> None:
    """Keys and values by turns."""
    message = variant.encode(_map((1, 10), (2, 20)))
    assert [message.type_name, len(message.tensors)] == ["tensorflow::TensorMap", 4]
    again = variant.decode(message)
    assert [key.tolist() for key in again.keys] == [1, 2] and again.get(np.array(2)) == 20
    del message.tensors[-1]
    with pytest.raises(errors.InvalidArgumentError, match="TensorMap"):
        variant.decode(message)
