"""Stacking, gathering and concatenating the elements of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.resources.tensor_list import TensorList
from tests.kernels.harness import run_op

UNKNOWN = np.int32(-1)


def _list(*values: Any, shape: Any = UNKNOWN_RANK) -> Any:
    elements = [None if v is None else np.array(v, np.float32) for v in values]
    return np.array(TensorList(dtypes.float32, shape, elements), object)


def test_gathering_often_looks_each_element_up_once() -> None:
    """What was never set is made then."""
    boxed = _list([1, 2], None, shape=PartialTensorShape([2]))
    indices = np.resize(np.int32([1, 0, 1]), 300_000)
    got = run_op("TensorListGather", [boxed, indices, UNKNOWN], element_dtype=dtypes.float32)
    assert got.shape == (300_000, 2) and got[:3].tolist() == [[0, 0], [1, 2], [0, 0]]
    with pytest.raises(errors.InvalidArgumentError, match="Index 7 out o range; list only has 2 elements"):
        run_op("TensorListGather", [boxed, np.int32([0, 7, 5]), UNKNOWN], element_dtype=dtypes.float32)


def test_concatenation() -> None:
    """Elements one behind the other, and their lengths; rows of what is unset are zeros of the length given."""
    values = _list([1, 2], [3], shape=PartialTensorShape([None]))
    attrs: dict[str, Any] = {"element_dtype": dtypes.float32}
    joined, lengths = run_op("TensorListConcat", [values], **attrs)
    assert (joined.tolist(), lengths.tolist()) == ([1, 2, 3], [2, 1])
    unset = _list([1, 2], None, shape=PartialTensorShape([None]))
    with pytest.raises(errors.InvalidArgumentError, match="leading_dims must be >= 0, got -2"):
        run_op("TensorListConcatV2", [unset, UNKNOWN, np.array([0, -2])], **attrs)
    joined, lengths = run_op("TensorListConcatV2", [unset, UNKNOWN, np.array([0, 2])], **attrs)
    assert (joined.tolist(), lengths.tolist()) == ([1, 2, 0, 0], [2, 2])
    for element, words in ((1, "saw a scalar shape at index 1"), ([[1.0]], "Incompatible ranks during merge: 0 vs. 1")):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            run_op("TensorListConcat", [_list([1, 2], element)], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="must be fully defined"):
        run_op("TensorListConcat", [_list()], **attrs)
    joined, lengths = run_op("TensorListConcat", [_list()], element_shape=PartialTensorShape([None, 3]), **attrs)
    assert (joined.shape, lengths.shape) == ((0, 3), (0,))
    with pytest.raises(errors.InvalidArgumentError, match="leading_dims must be a vector, got rank 2"):
        run_op("TensorListConcatV2", [unset, UNKNOWN, np.array([[0, 2]])], **attrs)


MANY = 100_000_000


def _reserved(shape: Any, count: int) -> Any:
    return ops.tensor_list_reserve(np.array(shape, np.int32), count, element_dtype="float32")


def _stacked(values: Any) -> Any:
    return ops.tensor_list_stack(values, np.zeros(0, np.int32), element_dtype="float32")


def _array(count: int, shape: Any) -> Any:
    return ops.tensor_array_v3(count, dtype="float32", element_shape=shape)


@pytest.mark.parametrize(
    "build",
    [
        lambda: _stacked(_reserved([], MANY)),
        lambda: _stacked(ops.tensor_list_resize(_reserved([], 1), MANY)),
        lambda: ops.tensor_list_concat_v2(_reserved([1], MANY), [1], np.zeros(0, np.int64), element_dtype="float32"),
        lambda: ops.tensor_list_get_item(_reserved([MANY], 3), 0, -1, element_dtype="float32"),
        lambda: ops.tensor_list_pop_back(_reserved([MANY], 3), -1, element_dtype="float32")[1],
        lambda: ops.tensor_list_length(ops.tensor_list_set_item(_reserved([], MANY), MANY - 1, np.float32(1))),
        lambda: ops.tensor_array_write_v3(_array(MANY, [])[0], MANY - 1, np.float32(1), np.float32(0)),
        lambda: ops.tensor_array_read_v3(_array(3, [MANY])[0], 0, np.float32(0), dtype="float32"),
        lambda: ops.tensor_array_concat_v3(*_array(1000, [1_000_000]), dtype="float32")[0],
        lambda: ops.tensor_array_gather_v3(
            _array(1000, None)[0], ops.range(0, 1000, 1), np.float32(0), dtype="float32", element_shape=[1_000_000]
        ),
    ],
)
@pytest.mark.parametrize("limit", [100 << 20, 300 << 20])
async def test_unwritten_elements_beyond_the_limit_are_refused_before_they_are_made(build: Any, limit: int) -> None:
    with aexec.Graph() as graph:
        y = build()
    async with aexec.Session(graph, config=aexec.SessionConfig(step_bytes=limit)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match=r"of SessionConfig\.step_bytes"):
            await session.run(y)


async def test_places_that_were_never_written_to_take_no_memory() -> None:
    with aexec.Graph() as graph:
        length = ops.tensor_list_length(_reserved([], MANY))
        handle, flow = _array(MANY, [])
        size = ops.tensor_array_size_v3(handle, flow)
    async with aexec.Session(graph, config=aexec.SessionConfig(step_bytes=1 << 20)) as session:
        assert await session.run([length, size]) == [MANY, MANY]
