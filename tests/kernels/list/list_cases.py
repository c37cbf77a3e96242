"""Graphs of lists and maps of tensors: valid ones, edges, and what is refused.

TensorFlow's answers are in `tests/kernels/data/list_answers.json`; `tests/kernels/recorded_answers.py` records them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.recorded_answers import UNKNOWN, Case, Kit

__all__ = ["CASES", "OURS"]

ONES = np.ones((2, 3))


def rows(k: Kit, value: Any, shape: Any = UNKNOWN, dtype: str = "float32") -> Any:
    return k.ops.TensorListFromTensor(tensor=k.tensor(value, dtype), element_shape=k.whole(shape))


def split(k: Kit, value: Any, shape: Any, lengths: Any, dtype: str = "float32") -> Any:
    return k.ops.TensorListSplit(
        tensor=k.tensor(value, dtype), element_shape=k.whole(shape), lengths=k.tensor(lengths, "int64")
    )


def get(k: Kit, values: Any, index: Any, shape: Any = UNKNOWN, dtype: str = "float32") -> Any:
    return k.ops.TensorListGetItem(
        input_handle=values, index=k.whole(index), element_shape=k.whole(shape), element_dtype=k.tf.as_dtype(dtype)
    )


def pop(k: Kit, values: Any, shape: Any = UNKNOWN, dtype: str = "float32") -> Any:
    return k.ops.TensorListPopBack(
        input_handle=values, element_shape=k.whole(shape), element_dtype=k.tf.as_dtype(dtype)
    )


def gather(k: Kit, values: Any, indices: Any, shape: Any = UNKNOWN, dtype: str = "float32") -> Any:
    return k.ops.TensorListGather(
        input_handle=values, indices=k.whole(indices), element_shape=k.whole(shape), element_dtype=k.tf.as_dtype(dtype)
    )


def concat(k: Kit, values: Any, shape: Any = UNKNOWN, lengths: Any = (), dtype: str = "float32") -> Any:
    return k.ops.TensorListConcatV2(
        input_handle=values,
        element_shape=k.whole(shape),
        leading_dims=k.tensor(np.array(lengths, np.int64), "int64"),
        element_dtype=k.tf.as_dtype(dtype),
    )


def concat_first(k: Kit, values: Any, shape: Any = None, dtype: str = "float32") -> Any:
    return k.ops.TensorListConcat(input_handle=values, element_dtype=k.tf.as_dtype(dtype), element_shape=shape)


def scatter(k: Kit, value: Any, indices: Any, shape: Any = UNKNOWN, room: Any = None, dtype: str = "float32") -> Any:
    given = {"tensor": k.tensor(value, dtype), "indices": k.whole(indices), "element_shape": k.whole(shape)}
    if room is None:
        return k.ops.TensorListScatter(**given)
    return k.ops.TensorListScatterV2(num_elements=k.whole(room), **given)


def scatter_into(k: Kit, values: Any, value: Any, indices: Any, dtype: str = "float32") -> Any:
    return k.ops.TensorListScatterIntoExistingList(
        input_handle=values, tensor=k.tensor(value, dtype), indices=k.whole(indices)
    )


def length(k: Kit, values: Any) -> Any:
    return k.ops.TensorListLength(input_handle=values)


def element_shape(k: Kit, values: Any) -> Any:
    return k.ops.TensorListElementShape(input_handle=values, shape_type=k.tf.int32)


def resize(k: Kit, values: Any, size: Any) -> Any:
    return k.ops.TensorListResize(input_handle=values, size=k.whole(size))


def join(k: Kit, first: Any, second: Any, dtype: str = "float32") -> Any:
    return k.ops.TensorListConcatLists(input_a=first, input_b=second, element_dtype=k.tf.as_dtype(dtype))


def push_batch(k: Kit, values: Sequence[Any], value: Any, dtype: str = "float32") -> Any:
    return k.ops.TensorListPushBackBatch(
        input_handles=k.ops.Pack(values=list(values), axis=0), tensor=k.tensor(value, dtype)
    )


def unpack(k: Kit, lists: Any, count: int) -> Any:
    return k.ops.Unpack(value=lists, num=count, axis=0)


def zeros(k: Kit, values: Any) -> Any:
    return k.ops.ZerosLike(x=values)


def add(k: Kit, *values: Any) -> Any:
    return k.ops.AddN(inputs=list(values))


def filled(k: Kit, shape: Any, elements: Sequence[Any], dtype: str = "float32") -> Any:
    """A list of these elements, those of them that are None not set."""
    values = k.reserve(shape, len(elements), dtype)
    for index, element in enumerate(elements):
        if element is not None:
            values = k.set(values, index, element, dtype)
    return values


def nested(k: Kit, *inner: Any, shape: Any = ()) -> Any:
    """A list of lists."""
    values = k.empty(list(shape), dtype="variant")
    for element in inner:
        values = k.push(values, element)
    return values


def in_map(k: Kit, *pairs: tuple[Any, Any], dtype: str = "float32", key: str = "int32") -> Any:
    values = k.ops.EmptyTensorMap()
    for name, value in pairs:
        values = k.ops.TensorMapInsert(input_handle=values, key=k.tensor(name, key), value=k.tensor(value, dtype))
    return values


def look_up(k: Kit, values: Any, name: Any, dtype: str = "float32", key: str = "int32") -> Any:
    return k.ops.TensorMapLookup(input_handle=values, key=k.tensor(name, key), value_dtype=k.tf.as_dtype(dtype))


def has_key(k: Kit, values: Any, name: Any, key: str = "int32") -> Any:
    return k.ops.TensorMapHasKey(input_handle=values, key=k.tensor(name, key))


def erase(k: Kit, values: Any, name: Any, key: str = "int32") -> Any:
    return k.ops.TensorMapErase(input_handle=values, key=k.tensor(name, key), value_dtype=k.tf.float32)


def map_size(k: Kit, values: Any) -> Any:
    return k.ops.TensorMapSize(input_handle=values)


def keys(k: Kit, values: Any, key: str = "int32") -> Any:
    return k.ops.TensorMapStackKeys(input_handle=values, key_dtype=k.tf.as_dtype(key))


CASES: dict[str, Case] = {
    # Making
    "reserve: unset elements of a known shape": lambda k: k.stack(k.reserve([2], 2)),
    "reserve: strings are empty": lambda k: k.stack(k.reserve([2], 2, "string"), dtype="string"),
    "reserve: bools are false": lambda k: k.stack(k.reserve([], 2, "bool"), dtype="bool"),
    "reserve: a shape asked for as int64": lambda k: k.ops.TensorListLength(
        input_handle=k.ops.TensorListReserve(
            element_shape=k.tensor([2], "int64"), num_elements=k.whole(2), element_dtype=k.tf.float32
        )
    ),
    "reserve: a negative size": lambda k: length(k, k.reserve([2], -1)),
    "reserve: a size that is no scalar": lambda k: length(k, k.reserve([2], [1, 2])),
    "reserve: a size in a vector of one": lambda k: length(k, k.reserve([2], [3])),
    "reserve: a scalar shape that is not -1": lambda k: length(k, k.reserve(3, 1)),
    "reserve: a shape with -2": lambda k: length(k, k.reserve([-2], 1)),
    "reserve: a matrix for a shape": lambda k: length(k, k.reserve([[1]], 1)),
    "empty: a size that is no scalar": lambda k: length(k, k.empty([2], [1, 2])),
    "empty: a scalar shape that is not -1": lambda k: length(k, k.empty(0)),
    "empty: a shape with -2": lambda k: length(k, k.empty([-2])),
    "empty: its element shape": lambda k: element_shape(k, k.empty([2, -1])),
    "empty: its element shape of unknown rank": lambda k: element_shape(k, k.empty(UNKNOWN)),
    "empty: its element shape, a scalar's": lambda k: element_shape(k, k.empty([])),
    "from tensor": lambda k: k.stack(rows(k, [[1, 2], [3, 4]], [2])),
    "from tensor: strings": lambda k: k.stack(rows(k, [b"a", b"b"], [], "string"), dtype="string"),
    "from tensor: no rows": lambda k: k.stack(rows(k, np.zeros((0, 2)), [2])),
    "from tensor: no rows, unknown shape": lambda k: k.stack(rows(k, np.zeros((0, 2)))),
    "from tensor: a scalar": lambda k: length(k, rows(k, 1)),
    "from tensor: another shape": lambda k: length(k, rows(k, [[1, 2]], [3])),
    "from tensor: another rank": lambda k: length(k, rows(k, [[1, 2]], [])),
    "from tensor: a matrix for a shape": lambda k: length(k, rows(k, [[1, 2]], [[2]])),
    "from tensor: a scalar shape that is not -1": lambda k: length(k, rows(k, [[1, 2]], 2)),
    # Setting and getting
    "set: an index that is negative": lambda k: length(k, k.set(k.reserve([2], 2), -1, [1, 2])),
    "set: an index past the end": lambda k: length(k, k.set(k.reserve([2], 2), 2, [1, 2])),
    "set: an index past the end, growing": lambda k: k.stack(
        k.set(k.reserve([2], 1), 2, [1, 2], resize_if_index_out_of_bounds=True)
    ),
    "set: an index within, growing": lambda k: length(
        k, k.set(k.reserve([2], 1), 0, [1, 2], resize_if_index_out_of_bounds=True)
    ),
    "set: another shape": lambda k: length(k, k.set(k.reserve([2], 2), 0, [1])),
    "set: another rank": lambda k: length(k, k.set(k.reserve([2], 2), 0, 1)),
    "set: another type": lambda k: length(k, k.set(k.reserve([2], 2), 0, [b"a", b"b"], "string")),
    "set: a list of lists is no list": lambda k: length(k, k.set(k.reserve([], 2), 0, k.reserve([], 1))),
    "get": lambda k: get(k, rows(k, [[1, 2], [3, 4]]), 1),
    "get: an unset one of a known shape": lambda k: get(k, k.reserve([2], 2), 1),
    "get: an unset string": lambda k: get(k, k.reserve([2], 2, "string"), 1, dtype="string"),
    "get: an unset one of a shape asked for": lambda k: get(k, k.reserve(UNKNOWN, 2), 1, [3]),
    "get: an unset one, half of the shape in the list": lambda k: get(k, k.reserve([-1, 2], 2), 1, [3, -1]),
    "get: an unset one, shape of another": lambda k: get(k, filled(k, UNKNOWN, [[1, 2], None]), 1),
    "get: an unset one, shape of another and asked for": lambda k: get(k, filled(k, UNKNOWN, [[1, 2], None]), 1, [2]),
    "get: an unset one, another has another than asked for": lambda k: get(
        k, filled(k, UNKNOWN, [[1, 2], None]), 1, [3]
    ),
    "get: an unset one, asked for half, another has the rest": lambda k: get(
        k, filled(k, UNKNOWN, [ONES, None]), 1, [-1, 3]
    ),
    "get: an unset one, asked for half, another does not fit": lambda k: get(
        k, filled(k, UNKNOWN, [ONES, None]), 1, [-1, 2]
    ),
    "get: an unset one, others differ": lambda k: get(k, filled(k, UNKNOWN, [[1, 2], [1], None]), 2),
    "get: an unset one, others differ in rank": lambda k: get(k, filled(k, UNKNOWN, [[1, 2], 1, None]), 2),
    "get: an unset one of unknown shape": lambda k: get(k, k.reserve(UNKNOWN, 2), 1),
    "get: an unset one of unknown shape, rank known": lambda k: get(k, k.reserve([-1], 2), 1),
    "get: an unset one, the list has another shape": lambda k: get(k, k.reserve([2], 2), 1, [3]),
    "get: a set one, the list has another shape": lambda k: get(k, rows(k, [[1, 2]], [2]), 0, [3]),
    "get: a set one of another shape": lambda k: get(k, rows(k, [[1, 2]]), 0, [3]),
    "get: an index past the end": lambda k: get(k, k.reserve([2], 2), 2),
    "get: another type": lambda k: get(k, k.reserve([2], 2), 0, dtype="int32"),
    "get: a shape that is a matrix, of a set one": lambda k: get(k, rows(k, [[1, 2]]), 0, [[2]]),
    # Pushing and popping
    "push": lambda k: k.stack(k.push(k.push(k.empty([2]), [1, 2]), [3, 4])),
    "push: another shape": lambda k: length(k, k.push(k.empty([2]), [1])),
    "push: another type": lambda k: length(k, k.push(k.empty([2]), [b"a", b"b"], "string")),
    "push: a full list": lambda k: length(k, k.push(k.push(k.empty([], 1), 1), 2)),
    "push: a list of no elements at most": lambda k: length(k, k.push(k.empty([], 0), 1)),
    "push: a reserved list": lambda k: k.stack(k.push(k.reserve([], 1), 2)),
    "pop": lambda k: (lambda popped: [length(k, popped[0]), popped[1]])(pop(k, rows(k, [[1, 2], [3, 4]]))),
    "pop: an empty list": lambda k: pop(k, k.empty([]))[1],
    "pop: an unset one": lambda k: pop(k, k.reserve([2], 1))[1],
    "pop: an unset string": lambda k: pop(k, k.reserve([2], 1, "string"), dtype="string")[1],
    "pop: an unset one of a shape asked for": lambda k: pop(k, k.reserve(UNKNOWN, 1), [2])[1],
    "pop: an unset one, shape of another": lambda k: pop(k, filled(k, UNKNOWN, [[1, 2], None]))[1],
    "pop: an unset one of unknown shape": lambda k: pop(k, k.reserve([-1], 1))[1],
    "pop: an unset one, the list has another shape": lambda k: pop(k, k.reserve([2], 1), [3])[1],
    "pop: a set one, the list has another shape": lambda k: pop(k, rows(k, [[1, 2]], [2]), [3])[1],
    "pop: another type": lambda k: pop(k, k.reserve([2], 1), dtype="int32")[1],
    "push batch": lambda k: [
        k.stack(values) for values in unpack(k, push_batch(k, [k.empty([]), k.empty([])], [1, 2]), 2)
    ],
    "push batch: a matrix": lambda k: [
        k.stack(values) for values in unpack(k, push_batch(k, [k.empty([2]), k.empty(UNKNOWN)], [[1, 2], [3, 4]]), 2)
    ],
    "push batch: too few rows": lambda k: push_and_count(k, [k.empty([]), k.empty([])], [1]),
    "push batch: a scalar": lambda k: push_and_count(k, [k.empty([])], 1),
    "push batch: another shape": lambda k: push_and_count(k, [k.empty([]), k.empty([2])], [[1], [2]]),
    "push batch: another type": lambda k: push_and_count(k, [k.empty([]), k.empty([], dtype="int32")], [1, 2]),
    "push batch: past the most elements": lambda k: push_and_count(k, [k.empty([], 0)], [1]),
    "push batch: a single list": lambda k: k.ops.TensorListLength(
        input_handle=k.ops.TensorListPushBackBatch(input_handles=k.empty([]), tensor=k.tensor([1]))
    ),
    # Lengths
    "length: of a tensor of lists": lambda k: length(k, k.ops.Pack(values=[k.empty([])], axis=0)),
    "length: of a map": lambda k: length(k, k.ops.EmptyTensorMap()),
    "resize: longer": lambda k: k.stack(resize(k, rows(k, [1, 2], []), 3)),
    "resize: shorter": lambda k: k.stack(resize(k, rows(k, [1, 2], []), 1)),
    "resize: a negative size": lambda k: length(k, resize(k, k.reserve([], 2), -1)),
    "resize: a size that is no scalar": lambda k: length(k, resize(k, k.reserve([], 2), [1, 2])),
    # Stacking
    "stack: one set, one unset": lambda k: k.stack(filled(k, [2], [[1, 2], None])),
    "stack: shape of another": lambda k: k.stack(filled(k, UNKNOWN, [None, [1, 2]])),
    "stack: half of the shape of another": lambda k: k.stack(filled(k, [2, -1], [None, ONES])),
    "stack: strings, shape of another": lambda k: k.stack(filled(k, UNKNOWN, [None, b"ab"], "string"), dtype="string"),
    "stack: shape asked for": lambda k: k.stack(k.reserve(UNKNOWN, 2), [2]),
    "stack: half of the shape asked for": lambda k: k.stack(k.reserve([-1, 3], 2), [2, -1]),
    "stack: an empty list": lambda k: k.stack(k.empty([2])),
    "stack: an empty list, unknown shape": lambda k: k.stack(k.empty([-1])),
    "stack: an empty list, shape asked for": lambda k: k.stack(k.empty(UNKNOWN), [2, 3]),
    "stack: unset ones, unknown shape": lambda k: k.stack(k.reserve([-1, 2], 2)),
    "stack: elements differ": lambda k: k.stack(filled(k, UNKNOWN, [[1, 2, 3], [1, 2]])),
    "stack: elements differ in rank": lambda k: k.stack(filled(k, UNKNOWN, [1, [1]])),
    "stack: another than asked for": lambda k: k.stack(filled(k, UNKNOWN, [[1, 2]]), [3]),
    "stack: the list has another than asked for": lambda k: k.stack(k.reserve([2], 1), [3]),
    "stack: the list has another rank than asked for": lambda k: k.stack(k.reserve([2], 1), []),
    "stack: other count": lambda k: k.stack(k.reserve([2], 1), count=2),
    "stack: other type": lambda k: k.stack(k.reserve([2], 1), dtype="int32"),
    "stack: zero-size elements": lambda k: k.stack(k.reserve([0, 2], 2)),
    "stack: elements of quantised numbers": lambda k: k.ops.Shape(
        input=k.stack(k.reserve([2], 2, "qint8"), dtype="qint8")
    ),
    # Gathering
    "gather": lambda k: gather(k, rows(k, [[1, 2], [3, 4]]), [1, 0, 1]),
    "gather: unset ones": lambda k: gather(k, k.reserve([2], 3), [0, 2]),
    "gather: unset strings": lambda k: gather(k, k.reserve([], 3, "string"), [0, 2], dtype="string"),
    "gather: an unset one, shape of another gathered": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2], None]), [1, 0]),
    "gather: an unset one, shape of another not gathered": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2], None]), [1]),
    "gather: nothing": lambda k: gather(k, k.reserve([2], 3), []),
    "gather: nothing of unknown shape": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2]]), []),
    "gather: nothing of a shape asked for": lambda k: gather(k, k.reserve(UNKNOWN, 3), [], [2]),
    "gather: an index past the end": lambda k: gather(k, k.reserve([2], 3), [0, 3]),
    "gather: an index past the end, unknown shape": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2]]), [0, 3]),
    "gather: a negative index, unknown shape": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2]]), [0, -1]),
    "gather: elements differ": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2], [1]]), [0, 1]),
    "gather: elements not gathered differ": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2], [1]]), [0, 0]),
    "gather: another than asked for": lambda k: gather(k, filled(k, UNKNOWN, [[1, 2]]), [0], [3]),
    "gather: a matrix of indices": lambda k: gather(k, k.reserve([2], 3), [[0, 2]]),
    "gather: other type": lambda k: gather(k, k.reserve([2], 3), [0], dtype="int32"),
    # Joining elements
    "concat": lambda k: concat(k, filled(k, UNKNOWN, [[[1, 2]], [[3, 4], [5, 6]]])),
    "concat: 2 unset of [2,3]": lambda k: concat(k, k.reserve([2, 3], 2)),
    "concat: 2 unset of [-1,3], no lengths": lambda k: concat(k, k.reserve([-1, 3], 2)),
    "concat: 2 unset of [-1,3], lengths": lambda k: concat(k, k.reserve([-1, 3], 2), lengths=[2, 4]),
    "concat: 2 unset of [2,3], lengths differ": lambda k: concat(k, k.reserve([2, 3], 2), lengths=[1, 4]),
    "concat: 2 unset of [-1,3], one length": lambda k: concat(k, k.reserve([-1, 3], 2), lengths=[2]),
    "concat: 2 unset of [2,3], one length": lambda k: concat(k, k.reserve([2, 3], 2), lengths=[1]),
    "concat: an unset one, length of another": lambda k: concat(k, filled(k, [-1, 3], [ONES, None])),
    "concat: an unset one, length of two others": lambda k: concat(k, filled(k, [-1, 3], [ONES, None, ONES])),
    "concat: an unset one, others' lengths differ": lambda k: concat(k, filled(k, [-1, 3], [ONES, None, ONES[:1]])),
    "concat: an unset one, others' lengths differ, lengths": lambda k: concat(
        k, filled(k, [-1, 3], [ONES, None, ONES[:1]]), lengths=[0, 1, 0]
    ),
    "concat: an unset one, unknown shape, lengths": lambda k: concat(
        k, filled(k, UNKNOWN, [ONES, None]), lengths=[0, 4]
    ),
    "concat: 2 unset of unknown shape, lengths": lambda k: concat(k, k.reserve(UNKNOWN, 2), lengths=[1, 1]),
    "concat: unset ones of a shape asked for": lambda k: concat(k, k.reserve(UNKNOWN, 2), [1, 2]),
    "concat: unset strings": lambda k: concat(k, k.reserve([-1], 2, "string"), lengths=[1, 2], dtype="string"),
    "concat: a set and an unset string": lambda k: concat(
        k, filled(k, [2], [[b"a", b"b"], None], "string"), dtype="string"
    ),
    "concat: lengths of set ones do not count": lambda k: concat(k, filled(k, UNKNOWN, [ONES]), lengths=[7]),
    "concat: a scalar's shape asked for": lambda k: concat(k, rows(k, [[1, 2]]), []),
    "concat: elements are scalars": lambda k: concat(k, rows(k, [1, 2])),
    "concat: elements are scalars, and the list says so": lambda k: concat(k, rows(k, [1, 2], [])),
    "concat: another than asked for": lambda k: concat(k, rows(k, [[[1, 2, 3]]]), [-1, 2]),
    "concat: another first dimension than asked for": lambda k: concat(k, rows(k, [[1, 2, 3]]), [2]),
    "concat: the list has another than asked for": lambda k: concat(k, rows(k, [[1, 2, 3]], [3]), [2]),
    "concat: elements differ": lambda k: concat(k, filled(k, UNKNOWN, [[[1, 2]], [[3]]])),
    "concat: elements differ in rank": lambda k: concat(k, filled(k, UNKNOWN, [[[1, 2]], [3]])),
    "concat: an empty list": lambda k: concat(k, k.empty([-1, 3])),
    "concat: an empty list of unknown shape": lambda k: concat(k, k.empty([-1, -1])),
    "concat: an empty list of unknown rank": lambda k: concat(k, k.empty(UNKNOWN)),
    "concat: an empty list, shape asked for": lambda k: concat(k, k.empty(UNKNOWN), [-1, 3]),
    "concat: other type": lambda k: concat(k, k.reserve([2], 2), dtype="int32"),
    "concat: empty elements": lambda k: concat(k, filled(k, UNKNOWN, [[], [1.0]])),
    "concat, first version": lambda k: concat_first(k, filled(k, UNKNOWN, [[[1, 2]], [[3, 4], [5, 6]]])),
    "concat, first version: 2 unset of [2,3]": lambda k: concat_first(k, k.reserve([2, 3], 2)),
    "concat, first version: 2 unset of [-1,3]": lambda k: concat_first(k, k.reserve([-1, 3], 2)),
    "concat, first version: attr has the shape": lambda k: concat_first(k, k.reserve(UNKNOWN, 2), [2, 3]),
    "concat, first version: one set, one unset": lambda k: concat_first(k, filled(k, UNKNOWN, [ONES, None])),
    "concat, first version: an unset one, others' lengths differ": lambda k: concat_first(
        k, filled(k, UNKNOWN, [ONES, None, ONES[:1]])
    ),
    "concat, first version: an empty list, shape in the list": lambda k: concat_first(k, k.empty([-1, 3])),
    "concat, first version: an empty list, shape in the attr": lambda k: concat_first(k, k.empty(UNKNOWN), [None, 3]),
    "concat, first version: a scalar's shape": lambda k: concat_first(k, rows(k, [[1, 2]]), []),
    "concat, first version: another than the attr's": lambda k: concat_first(k, rows(k, [[[1, 2, 3]]]), [None, 2]),
    # Taking apart
    "split": lambda k: concat(k, split(k, [1, 2, 3], [-1], [2, 1])),
    "split: the first dimension is that of the whole": lambda k: concat(k, split(k, [1, 2, 3], [3], [1, 2])),
    "split: its element shape": lambda k: element_shape(k, split(k, [1, 2, 3], [3], [1, 2])),
    "split: a part's length as the shape": lambda k: length(k, split(k, [1, 2, 3], [1], [1, 2])),
    "split: a part's length as the shape, and concat": lambda k: concat(k, split(k, [1, 2, 3], [2], [2, 1])),
    "split: a part's length as the shape, and stack": lambda k: k.stack(split(k, [1, 2, 3, 4], [2], [2, 2])),
    "split: parts of unknown shape, and stack": lambda k: k.stack(split(k, [1, 2, 3, 4], [-1], [2, 2])),
    "split: parts differ, and stack": lambda k: k.stack(split(k, [1, 2, 3, 4], [-1], [3, 1])),
    "split: unknown rank": lambda k: concat(k, split(k, [1, 2, 3], UNKNOWN, [0, 3])),
    "split: strings": lambda k: concat(k, split(k, [b"a", b"b"], [-1], [1, 1], "string"), dtype="string"),
    "split: a scalar": lambda k: length(k, split(k, 1, [-1], [1])),
    "split: a scalar's shape": lambda k: length(k, split(k, [1, 2], [], [1, 1])),
    "split: another shape": lambda k: length(k, split(k, [[1], [2]], [-1, 2], [1, 1])),
    "split: another rank": lambda k: length(k, split(k, [[1], [2]], [-1], [1, 1])),
    "split: too long": lambda k: length(k, split(k, [1, 2], [-1], [1, 2])),
    "split: far too long": lambda k: length(k, split(k, [1, 2], [-1], [3])),
    "split: too short": lambda k: length(k, split(k, [1, 2], [-1], [1])),
    "split: a negative length": lambda k: length(k, split(k, [1, 2], [-1], [3, -1])),
    "split: a negative length first": lambda k: length(k, split(k, [1, 2], [-1], [-1, 3])),
    "split: a matrix of lengths": lambda k: length(k, split(k, [1, 2], [-1], [[1, 1]])),
    "split: no lengths": lambda k: length(k, split(k, [1, 2], [-1], np.zeros(0, np.int64))),
    "split: no rows": lambda k: length(k, split(k, np.zeros((0, 2)), [-1, 2], [0, 0])),
    # Scattering
    "scatter": lambda k: k.stack(scatter(k, [[1, 2], [3, 4]], [2, 0], [2])),
    "scatter: with room": lambda k: k.stack(scatter(k, [[1, 2], [3, 4]], [1, 0], [2], 4)),
    "scatter: an index twice": lambda k: k.stack(scatter(k, [1, 2], [0, 0], [])),
    "scatter: nothing": lambda k: k.stack(scatter(k, np.zeros((0, 2)), [], [2], 2)),
    "scatter: a negative index": lambda k: length(k, scatter(k, [1], [-1])),
    "scatter: an index past the end": lambda k: length(k, scatter(k, [1], [4], [], 4)),
    "scatter: room below -1": lambda k: length(k, scatter(k, [1], [0], [], -2)),
    "scatter: room that is no scalar": lambda k: length(k, scatter(k, [1], [0], [], [1, 2])),
    "scatter: too many indices": lambda k: length(k, scatter(k, [1], [0, 1])),
    "scatter: a scalar": lambda k: length(k, scatter(k, 1, [0])),
    "scatter: another shape": lambda k: length(k, scatter(k, [[1]], [0], [2])),
    "scatter: a matrix for a shape": lambda k: length(k, scatter(k, [[1]], [0], [[1]])),
    "scatter into": lambda k: k.stack(scatter_into(k, rows(k, [1, 2, 3], []), [7, 8], [2, 0])),
    "scatter into: another type": lambda k: length(k, scatter_into(k, rows(k, [1], []), [b"a"], [0], "string")),
    "scatter into: another shape": lambda k: length(k, scatter_into(k, rows(k, [1], []), [[7, 8]], [0])),
    "scatter into: too many indices": lambda k: length(k, scatter_into(k, rows(k, [1], []), [7], [0, 1])),
    "scatter into: a matrix of indices": lambda k: length(k, scatter_into(k, rows(k, [1], []), [7], [[0]])),
    "scatter into: a scalar": lambda k: length(k, scatter_into(k, rows(k, [1], []), 7, [0])),
    # Joining lists
    "concat lists": lambda k: k.stack(join(k, rows(k, [1, 2], []), rows(k, [3], []))),
    "concat lists: unset ones": lambda k: k.stack(join(k, k.reserve([], 1), rows(k, [3], []))),
    "concat lists: [-1] and [2]": lambda k: length(k, join(k, k.empty([-1]), k.empty([2]))),
    "concat lists: [2] and [3]": lambda k: length(k, join(k, k.empty([2]), k.empty([3]))),
    "concat lists: unknown rank and [2]": lambda k: length(k, join(k, k.empty(UNKNOWN), k.empty([2]))),
    "concat lists: [-1] and [-1]": lambda k: length(k, join(k, k.empty([-1]), k.empty([-1]))),
    "concat lists: types": lambda k: length(k, join(k, k.empty([]), k.empty([], dtype="int32"))),
    "concat lists: the op's type": lambda k: length(k, join(k, k.empty([]), k.empty([]), "int32")),
    "concat lists: shapes": lambda k: k.ops.Shape(input=join(k, k.ops.Pack(values=[k.empty([])], axis=0), k.empty([]))),
    "concat lists: no list": lambda k: length(k, join(k, k.ops.EmptyTensorMap(), k.empty([]))),
    "concat lists: no list second": lambda k: length(k, join(k, k.empty([]), k.ops.EmptyTensorMap())),
    # Zeros and sums
    "zeros: set and unset": lambda k: k.stack(zeros(k, filled(k, [2], [[1, 2], None]))),
    "zeros: strings": lambda k: k.stack(zeros(k, rows(k, [b"a"], [], "string")), dtype="string"),
    "zeros: shapes stay": lambda k: concat(k, zeros(k, filled(k, UNKNOWN, [[1, 2], [3]]))),
    "zeros: element shape stays": lambda k: element_shape(k, zeros(k, k.reserve([-1, 2], 1))),
    "zeros: length of a list in a list": lambda k: length(
        k, get(k, zeros(k, nested(k, k.push(k.empty(UNKNOWN), 1))), 0, dtype="variant")
    ),
    "zeros: a list in a list": lambda k: k.stack(
        get(k, zeros(k, nested(k, k.push(k.empty(UNKNOWN), 1))), 0, dtype="variant")
    ),
    "zeros: a list in a list in a list": lambda k: k.stack(
        get(k, get(k, zeros(k, nested(k, nested(k, rows(k, [1, 2])))), 0, dtype="variant"), 0, dtype="variant")
    ),
    "zeros: an empty list": lambda k: length(k, zeros(k, k.empty([]))),
    "zeros: a map": lambda k: map_size(k, zeros(k, in_map(k, (1, 2.0)))),
    "zeros: an unset element of lists": lambda k: length(k, get(k, k.reserve([], 1, "variant"), 0, dtype="variant")),
    "zeros: of a list with an unset element of lists": lambda k: length(k, zeros(k, k.reserve([], 1, "variant"))),
    "add": lambda k: k.stack(add(k, rows(k, [1, 2]), rows(k, [10, 20]))),
    "add: three": lambda k: k.stack(add(k, rows(k, [1, 2]), rows(k, [10, 20]), rows(k, [100, 200]))),
    "add: one": lambda k: k.stack(add(k, rows(k, [1, 2]))),
    "add: unset ones": lambda k: k.stack(add(k, filled(k, [], [1, None, None]), filled(k, [], [None, 2, None]))),
    "add: bools": lambda k: k.stack(add(k, rows(k, [True], [], "bool"), rows(k, [True], [], "bool")), dtype="bool"),
    "add: strings": lambda k: k.stack(
        add(k, rows(k, [b"a"], [], "string"), rows(k, [b"b"], [], "string")), dtype="string"
    ),
    "add: lengths": lambda k: length(k, add(k, rows(k, [1, 2]), rows(k, [1]))),
    "add: types": lambda k: length(k, add(k, rows(k, [1]), rows(k, [1], dtype="int32"))),
    "add: shapes of elements": lambda k: length(k, add(k, rows(k, [1]), rows(k, [[1, 2]]))),
    "add: element shapes": lambda k: length(k, add(k, k.reserve([2], 1), k.reserve([3], 1))),
    "add: element shapes merge": lambda k: element_shape(k, add(k, k.reserve([2, -1], 1), k.reserve([-1, 3], 1))),
    "add: an element shape that is not known": lambda k: element_shape(
        k, add(k, k.reserve([2, -1], 1), k.reserve(UNKNOWN, 1))
    ),
    "add: a list in a list": lambda k: k.stack(
        get(k, add(k, nested(k, rows(k, [1, 2])), nested(k, rows(k, [3, 4]))), 0, dtype="variant")
    ),
    "add: a list and a map": lambda k: length(k, add(k, k.empty([]), k.ops.EmptyTensorMap())),
    "add: maps": lambda k: (
        lambda total: [map_size(k, total), look_up(k, total, 1), look_up(k, total, 2), look_up(k, total, 3)]
    )(add(k, in_map(k, (1, 1.0), (2, 2.0)), in_map(k, (2, 20.0), (3, 30.0)))),
    "add: maps with shapes that differ": lambda k: map_size(k, add(k, in_map(k, (1, 1.0)), in_map(k, (1, [1.0, 2.0])))),
    "add: tensors of lists": lambda k: [
        k.stack(values)
        for values in unpack(
            k,
            add(
                k,
                k.ops.Pack(values=[rows(k, [1]), rows(k, [2])], axis=0),
                k.ops.Pack(values=[rows(k, [10]), rows(k, [20])], axis=0),
            ),
            2,
        )
    ],
    # Lists of lists
    "nested: length": lambda k: length(k, get(k, nested(k, rows(k, [1, 2])), 0, dtype="variant")),
    "nested: popped": lambda k: k.stack(pop(k, nested(k, rows(k, [1, 2])), dtype="variant")[1]),
    "nested: stacked": lambda k: [
        k.stack(values)
        for values in unpack(k, k.stack(nested(k, rows(k, [1, 2]), rows(k, [3, 4])), dtype="variant"), 2)
    ],
    "nested: gathered": lambda k: [
        k.stack(values)
        for values in unpack(k, gather(k, nested(k, rows(k, [1, 2]), rows(k, [3, 4])), [1, 0], dtype="variant"), 2)
    ],
    "nested: from a tensor of lists": lambda k: k.stack(
        get(
            k,
            k.ops.TensorListFromTensor(
                tensor=k.ops.Pack(values=[rows(k, [1, 2]), rows(k, [3, 4])], axis=0), element_shape=k.whole([])
            ),
            1,
            dtype="variant",
        )
    ),
    "nested: split and concat": lambda k: k.ops.Shape(
        input=concat(
            k,
            k.ops.TensorListSplit(
                tensor=k.ops.Pack(values=[rows(k, [1, 2]), rows(k, [3, 4])], axis=0),
                element_shape=k.whole([-1]),
                lengths=k.tensor([1, 1], "int64"),
            ),
            dtype="variant",
        )[0]
    ),
    # Maps
    "map: size": lambda k: map_size(k, in_map(k, (1, 2.0), (2, 3.0))),
    "map: a key twice": lambda k: (lambda m: [map_size(k, m), look_up(k, m, 1)])(in_map(k, (1, 2.0), (1, 3.0))),
    "map: look up": lambda k: look_up(k, in_map(k, (1, [2.0, 3.0])), 1),
    "map: look up by a string": lambda k: look_up(k, in_map(k, (b"a", 2.0), key="string"), b"a", key="string"),
    "map: look up by a vector": lambda k: look_up(k, in_map(k, ([1, 2], 2.0)), [1, 2]),
    "map: look up what is not there": lambda k: look_up(k, in_map(k, (1, 2.0)), 2),
    "map: look up a string that is not there": lambda k: look_up(k, k.ops.EmptyTensorMap(), b"ab", key="string"),
    "map: look up a vector that is not there": lambda k: look_up(k, k.ops.EmptyTensorMap(), [1, 2]),
    "map: look up by a key of another shape": lambda k: look_up(k, in_map(k, (1, 2.0)), [1]),
    "map: look up by a key of another type": lambda k: look_up(k, in_map(k, (1, 2.0)), 1, key="int64"),
    "map: a value of another type": lambda k: look_up(k, in_map(k, (1, 2.0)), 1, dtype="int32"),
    "map: has": lambda k: (lambda m: [has_key(k, m, 1), has_key(k, m, 2)])(in_map(k, (1, 2.0))),
    "map: erase": lambda k: (lambda m: [map_size(k, m), has_key(k, m, 1)])(erase(k, in_map(k, (1, 2.0)), 1)),
    "map: erase what is not there": lambda k: map_size(k, erase(k, in_map(k, (1, 2.0)), 3)),
    "map: what it was made from stays": lambda k: (
        lambda m: [map_size(k, m), map_size(k, erase(k, m, 1)), map_size(k, m)]
    )(in_map(k, (1, 2.0))),
    "map: keys": lambda k: k.ops.Shape(input=keys(k, in_map(k, (1, 2.0), (5, 3.0)))),
    "map: the only key": lambda k: keys(k, in_map(k, ([1, 2], 2.0))),
    "map: the only key, a string": lambda k: keys(k, in_map(k, (b"a", 2.0), key="string"), "string"),
    "map: keys of an empty map": lambda k: keys(k, k.ops.EmptyTensorMap()),
    "map: keys of another type": lambda k: keys(k, in_map(k, (1, 2.0)), "int64"),
    "map: keys of differing shapes": lambda k: k.ops.Shape(input=keys(k, in_map(k, (1, 2.0), ([1, 2], 3.0)))),
    "map: a list is no map": lambda k: map_size(k, k.empty([])),
    "map: a tensor of maps": lambda k: map_size(k, k.ops.Pack(values=[k.ops.EmptyTensorMap()], axis=0)),
    "map: a map in a list": lambda k: look_up(k, get(k, nested(k, in_map(k, (1, 2.0))), 0, dtype="variant"), 1),
}


def push_and_count(k: Kit, lists: Sequence[Any], value: Any) -> Any:
    return [length(k, values) for values in unpack(k, push_batch(k, lists, value), len(lists))]


# What aexec answers where it does not answer as TensorFlow does, and why.
OURS: dict[str, str] = {
    # TensorFlow looks at elements' shapes only as they are read, where shapes are inferred by then.
    "scatter into: another shape": "Tried to append a tensor with incompatible shape to a list",
    # An element of strings has zeros as a tensor of strings has.
    "zeros: strings": "[['string', [1], ['']]]",
    # The graph is wrong, and not aexec.
    "add: a list and a map": "InvalidArgumentError",
    "map: a value of another type": "InvalidArgumentError",
}
