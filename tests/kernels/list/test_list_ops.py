"""Lists of tensors: scattering, splitting, joining, adding, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.wire import variant
from aexec.resources.tensor_list import TensorList
from aexec.runtime.interpreter.memory_accountant import _arrays
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op
from tests.kernels.list.list_cases import CASES, OURS
from tests.kernels.recorded_answers import recorded_answers

UNKNOWN = np.int32(-1)


def _boxed(*lists: TensorList) -> Any:
    box = np.empty(len(lists), object)
    box[:] = lists
    return box if len(lists) > 1 else box.reshape(())


def _list(*values: Any, dtype: dtypes.DType = dtypes.float32, shape: Any = UNKNOWN_RANK) -> TensorList:
    return TensorList(dtype, shape, [None if v is None else np.array(v, dtype.np) for v in values])


def _elements(boxed: Any) -> list[Any]:
    values = boxed.item()
    return [None if e is None else e.tolist() for e in values.elements_up_to(len(values))]


def _run(op: str, *inputs: Any, **attrs: Any) -> Any:
    return run_op(op, [np.array(i, object) if isinstance(i, TensorList) else i for i in inputs], **attrs)


def test_scatter() -> None:
    """Rows go where the indices say; the rest is unset, and there may be more room than is needed."""
    rows = np.array([[1, 2], [3, 4]], np.float32)
    assert _elements(_run("TensorListScatter", rows, [2, 0], UNKNOWN)) == [[3, 4], None, [1, 2]]
    assert _elements(_run("TensorListScatterV2", rows, [1, 0], UNKNOWN, 4)) == [[3, 4], [1, 2], None, None]
    assert _elements(_run("TensorListScatterV2", rows[:0], np.zeros(0, np.int32), UNKNOWN, 1)) == [None]


def test_scatter_into_existing_list() -> None:
    """The list grows if need be; the one it was made from stays."""
    before = _list(1, 2)
    after = run_op(
        "TensorListScatterIntoExistingList", [_boxed(before), np.array([7, 8], np.float32), [1, 3]],
        element_dtype=dtypes.float32,
    )  # fmt: skip
    assert _elements(after) == [1, 7, None, 8]
    assert len(before) == 2


def test_strings_are_scattered_into_a_list() -> None:
    strings = _boxed(TensorList(dtypes.string, UNKNOWN_RANK, [None]))
    rows = np.array([b"a", b"b"], object)
    after = run_op("TensorListScatterIntoExistingList", [strings, rows, [0, 2]], element_dtype=dtypes.string)
    assert _elements(after) == [b"a", None, b"b"]


@pytest.mark.parametrize(
    ("op", "arguments", "words"),
    [
        ("TensorListScatterV2", ([1.0], [-1], UNKNOWN, 4), "must all be non-negative"),
        ("TensorListScatterV2", ([1.0], [4], UNKNOWN, 4), "Trying to scatter at index 4 in list with size 4"),
        ("TensorListScatterV2", ([1.0], [0], UNKNOWN, -2), "expects num_elements >= -1, found: -2"),
        (
            "TensorListScatterV2",
            ([1.0], [0, 1], UNKNOWN, 4),
            "Invalid number of rows in input tensor. Expected: 2 Actual: 1",
        ),
        ("TensorListScatterV2", (1.0, [0], UNKNOWN, 4), "Tensor must be at least a vector"),
        ("TensorListScatterV2", ([[1.0]], [0], [2], 4), r"a list with shape \[2\] from a tensor with shape \[1\]"),
        ("TensorListSplit", ([1.0, 2.0], UNKNOWN, np.array([1])), "Length of tensor: 2 Values used: 1"),
        ("TensorListSplit", ([1.0, 2.0], UNKNOWN, np.array([3])), "from tensor with length 2"),
        ("TensorListSplit", ([1.0, 2.0], UNKNOWN, np.array([3, -1])), r"slice \[0, 3\]"),
        ("TensorListSplit", ([1.0, 2.0], UNKNOWN, np.array([-1, 3])), "Invalid value in lengths: -1"),
        ("TensorListSplit", ([1.0, 2.0], UNKNOWN, np.array([[2]])), "Expected lengths to be a vector"),
        ("TensorListSplit", (1.0, UNKNOWN, np.array([2])), "Tensor must be at least a vector"),
        ("TensorListSplit", ([1.0, 2.0], [1, 1], np.array([2])), "is not compatible with element_shape"),
    ],
)
def test_mismatched_arguments_are_refused(op: str, arguments: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        _run(op, *arguments)


def test_lists_longer_than_memory() -> None:
    """A few bytes may not ask for a list of billions."""
    huge = 2**31 - 1
    boxed = _boxed(_list(1))
    for op, arguments, attrs in (
        ("TensorListScatter", [np.ones(1, np.float32), [huge], UNKNOWN], {}),
        ("TensorListReserve", [UNKNOWN, huge], {"element_dtype": dtypes.float32}),
        ("TensorListResize", [boxed, huge], {}),
        ("TensorListSetItem", [boxed, huge, np.float32(1)], {"resize_if_index_out_of_bounds": True}),
    ):
        with pytest.raises(errors.ResourceExhaustedError, match="is longer than the limit"):
            run_op(op, arguments, **attrs)


def test_split() -> None:
    parts = _run("TensorListSplit", np.arange(6, dtype=np.float32), UNKNOWN, np.array([1, 0, 5]))
    assert _elements(parts) == [[0], [], [1, 2, 3, 4, 5]]


def test_concat_lists() -> None:
    """One list behind the other, for tensors of lists pair by pair."""
    attrs = {"element_dtype": dtypes.float32}
    joined = run_op("TensorListConcatLists", [_boxed(_list(1, None)), _boxed(_list(2))], **attrs)
    assert _elements(joined) == [1, None, 2]
    pairs = run_op("TensorListConcatLists", [_boxed(_list(1), _list(2)), _boxed(_list(3), _list())], **attrs)
    assert [[float(e) for e in values.elements] for values in pairs] == [[1, 3], [2]]
    with pytest.raises(errors.InvalidArgumentError, match="must have the same shape"):
        run_op("TensorListConcatLists", [_boxed(_list(1), _list(2)), _boxed(_list(3))], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="Invalid data types"):
        run_op("TensorListConcatLists", [_boxed(_list(1)), _boxed(_list(2, dtype=dtypes.int32))], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="input_a is not a TensorList at index 0"):
        run_op("TensorListConcatLists", [np.array(None, object), np.array(None, object)], **attrs)


def test_push_back_batch() -> None:
    """Row i goes to list i."""
    lists = run_op("TensorListPushBackBatch", [_boxed(_list(1), _list()), np.array([5, 6], np.float32)])
    assert [[float(e) for e in values.elements] for values in lists] == [[1, 5], [6]]
    with pytest.raises(
        errors.InvalidArgumentError, match=r"Expected tensor.shape\[0\] == input_handles.size, but saw 1 vs. 2"
    ):
        run_op("TensorListPushBackBatch", [_boxed(_list(1), _list()), np.array([5], np.float32)])


def test_lists_are_added_and_zeroed() -> None:
    """Element by element; what is unset in one is taken from the other."""
    total = variant.add(_list(1, None, 3), _list(10, 20, None))
    assert [float(e) for e in total.elements] == [11, 20, 3]
    zeros = variant.zeros_like(_list([1, 2], None))
    assert zeros.elements[0].tolist() == [0, 0]
    assert zeros.elements[1] is None
    nested = TensorList(dtypes.variant, UNKNOWN_RANK, [_boxed(_list(1))])
    assert float(variant.add(nested, nested).elements[0].item().elements[0]) == 2
    for other, words in (
        (_list(1), "different lengths. One is 2 and the other is 1"),
        (_list(1, 2, dtype=dtypes.int32), "different dtypes. One is float and the other is int32"),
        (_list([1], 2), r"incompatible element shapes. One is \[\] and the other is \[1\]"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            variant.add(_list(1, 2), other)


def test_tensor_of_lists_is_no_list() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Input list must be a scalar"):
        run_op("TensorListLength", [_boxed(_list(1), _list())])


def test_element_shapes_are_kept() -> None:
    shape = PartialTensorShape([None])
    values = _run("TensorListSplit", np.arange(2, dtype=np.float32), np.array([-1], np.int32), np.array([2]))
    assert values.item().element_shape == shape


def test_registered_for_tensorflows_types() -> None:
    """Every list op, for the types that TensorFlow has on the CPU."""
    ops = ops_of("list.list_ops", "list.joining_ops")
    assert len(ops) == 20
    for op in ops:
        theirs = in_tensorflow(op)
        assert theirs is not None
        assert {r[3] for r in registered(op)} >= {r[3] for r in theirs if r[0] == "CPU"}, op


# By TensorFlow, of graphs with lists and maps.
test_answers = recorded_answers("list", CASES, OURS)


def _nested(depth: int) -> TensorList:
    """A list of two lists, which are one, and so on: in the end there are two to the power of `depth` numbers."""
    values = _list(1.0, 2.0)
    for _ in range(depth):
        box = np.array(values, object)
        values = TensorList(dtypes.variant, UNKNOWN_RANK, [box, box])
    return values


def test_zeros_and_sums_of_nested_lists_are_made_once_for_each_list() -> None:
    nested = _nested(60)
    zeros = _run("ZerosLike", nested, T=dtypes.variant)
    total = _run("AddN", [np.array(nested, object)] * 2, T=dtypes.variant)
    for _ in range(60):
        zeros, total = (values.item().elements[1] for values in (zeros, total))
    assert _elements(zeros) == [0, 0] and _elements(total) == [2, 4]


async def test_memory_of_nested_lists_is_looked_for_once_for_each_list() -> None:
    found = list(_arrays([np.array(_nested(60), object)]))
    assert sum(array.dtype != object for array in found) == 2


def test_sums_of_lists_of_many_elements_are_not_for_the_loop() -> None:
    values = TensorList(dtypes.float32, UNKNOWN_RANK, [np.zeros(0, np.float32)] * 100_000)
    box = np.array(values, object)
    built, _, _ = build("AddN", [[box, box]], T=dtypes.variant)

    async def on_the_loop() -> None:
        with pytest.raises(NeedsThreadError):
            built.compute(box, box)

    asyncio.run(on_the_loop())
    assert len(built.compute(box, box).item()) == 100_000


@pytest.mark.parametrize("op", ["TensorListSetItem", "TensorListPopBack", "TensorListResize"])
def test_copies_of_long_lists_are_not_for_the_loop(op: str) -> None:
    """Though only the first element, or the last, is another."""
    box = np.array(TensorList(dtypes.float32, UNKNOWN_RANK, [np.float32(0)] * 1_000_000), object)
    inputs: dict[str, list[Any]] = {
        "TensorListSetItem": [box, np.int32(0), np.float32(1)],
        "TensorListPopBack": [box, UNKNOWN],
        "TensorListResize": [box, np.int32(999_999)],
    }
    attrs = {} if op == "TensorListResize" else {"element_dtype": dtypes.float32}
    built, arrays, _ = build(op, inputs[op], **attrs)

    async def on_the_loop() -> None:
        with pytest.raises(NeedsThreadError):
            built.compute(*arrays)

    asyncio.run(on_the_loop())
