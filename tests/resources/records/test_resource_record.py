"""Records of resources: what is made of a record behaves as the resource did."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.queues.kinds import queue_class
from aexec.queues.queue_base import QueueBase, QueueSpec
from aexec.resources.lookup_table import DenseHashTable, HashTable, LookupTable, MutableHashTable
from aexec.resources.records.resource_record import ResourceRecord, adopt_record, record_of, version_of


def _again(resource_type: type, resource: Any) -> Any:
    """The resource that another manager makes of its record; facts go through JSON, as in a store."""
    record = record_of(resource_type, "localhost", "it", resource)
    facts = json.loads(json.dumps(record.facts))
    stored = ResourceRecord(record.kind, "localhost", "it", facts, record.tensors, record.elements)
    manager = ResourceManager()
    made = adopt_record(manager, stored)
    assert manager.lookup("localhost", "it", resource_type) is made
    return made


def _texts(*values: bytes) -> Any:
    out = np.empty(len(values), object)
    out[:] = values
    return out


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(3, dtypes.bfloat16.np),
        np.zeros((0, 4), np.int64),
        np.array([True, False]),
        _texts(b"", b"\xff\x00", b"text"),
    ],
)
def test_variable_is_made_again(value: Any) -> None:
    dtype = dtypes.from_numpy(value.dtype)
    made = _again(ResourceVariable, ResourceVariable(dtype, value))
    assert made.dtype is dtype
    np.testing.assert_array_equal(made.value, value)


def test_variable_without_value_is_made_again() -> None:
    assert _again(ResourceVariable, ResourceVariable(dtypes.float32)).value is None


def test_reference_variable_keeps_its_shape() -> None:
    made = _again(RefCell, RefCell(dtypes.int32, PartialTensorShape([None, 2]), np.ones((3, 2), np.int32)))
    assert made.shape == PartialTensorShape([None, 2]) and made.value.shape == (3, 2)


def test_version_of_variable_changes_with_each_update() -> None:
    variable = ResourceVariable(dtypes.float32, np.zeros(3, np.float32))
    record = record_of(ResourceVariable, "localhost", "v", variable)
    assert version_of(ResourceVariable, variable) == record.version

    def add(value: Any, out: Any) -> Any:
        return np.add(value, 1, out=out)

    variable.update(add)
    assert version_of(ResourceVariable, variable) != record.version
    assert record.tensors["value"].tolist() == [0, 0, 0]  # what was recorded did not change


def test_table_is_made_again() -> None:
    table = MutableHashTable(dtypes.string, dtypes.float32, value_shape=(2,))
    table.insert(_texts(b"a", b"b", b"c"), np.arange(6, dtype=np.float32).reshape(3, 2))
    table.remove(_texts(b"b"))
    made = _again(LookupTable, table)
    found = made.find(_texts(b"a", b"b", b"c"), np.full(2, -1, np.float32))
    assert found.tolist() == [[0, 1], [-1, -1], [4, 5]] and len(made) == 2


@pytest.mark.parametrize("filled", [False, True])
def test_table_filled_once_stays_so(filled: bool) -> None:
    table = HashTable(dtypes.int64, dtypes.string)
    if filled:
        table.initialize(np.array([7]), _texts(b"seven"))
    made = _again(LookupTable, table)
    assert made.is_initialized == filled
    if filled:
        with pytest.raises(errors.FailedPreconditionError, match="different data"):
            made.initialize(np.array([7]), _texts(b"eight"))


def test_dense_table_keeps_its_reserved_keys() -> None:
    table = DenseHashTable(dtypes.int64, dtypes.int64, (), np.array(0), np.array(-1))
    table.insert(np.array([5]), np.array([50]))
    made = _again(LookupTable, table)
    assert made.find(np.array([5]), np.array(0)).tolist() == [50]
    with pytest.raises(errors.InvalidArgumentError, match="deleted_key"):
        made.insert(np.array([-1]), np.array([1]))


def test_version_of_table_changes_with_each_change() -> None:
    table = MutableHashTable(dtypes.int64, dtypes.int64)
    versions = [version_of(LookupTable, table)]
    for change in (
        lambda: table.insert(np.array([1]), np.array([2])),
        lambda: table.remove(np.array([1])),
        lambda: table.replace(np.array([3]), np.array([4])),
    ):
        change()
        versions.append(version_of(LookupTable, table))
    table.find(np.array([3]), np.array(0))
    assert versions[-1] == version_of(LookupTable, table) and len(set(versions)) == 4


def _queue(kind: str, **settings: Any) -> QueueBase:
    made = queue_class(kind)
    assert made is not None
    types, shapes = made.with_leading([dtypes.int64], [PartialTensorShape([])])
    return made("q", QueueSpec(tuple(types), tuple(shapes), **settings))


def _element(queue: QueueBase, number: int) -> Any:
    priority = (np.int64(number % 3),) if len(queue.spec.types) == 2 else ()
    return (*priority, np.int64(number))


@pytest.mark.parametrize("kind", ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"])
@given(moves=st.lists(st.booleans(), max_size=90), closed=st.booleans())
def test_queue_goes_on_as_it_would_have(kind: str, moves: list[bool], closed: bool) -> None:
    """After any puts and takes, the queue and that made of its record give the same elements in the same order."""
    queue = _queue(kind, **({"min_after_dequeue": 2, "seed": 4} if kind == "RandomShuffleQueue" else {}))
    for number, put in enumerate(moves):
        if put:
            queue.enqueue(_element(queue, number))
        elif queue.available_locked():
            queue.dequeue()
    if closed:
        queue.request_close()
    made = _again(QueueBase, queue)
    assert made.closed == closed and len(made) == len(queue)
    while queue.available_locked():
        assert [x.item() for x in made.dequeue()] == [x.item() for x in queue.dequeue()]
    made.check_same(kind, queue.spec)


def test_version_of_queue_tells_a_withdrawn_element_from_none() -> None:
    queue = _queue("FIFOQueue")
    first, second = (np.int64(1),), (np.int64(2),)
    queue.enqueue(first)
    before = version_of(QueueBase, queue)
    queue.withdraw_locked(first)
    queue.enqueue(second)
    assert version_of(QueueBase, queue) != before


def test_private_queue_belongs_to_the_node_of_its_name() -> None:
    """A node's private name differs in each process; its queue is found under the new one."""
    record = record_of(QueueBase, "localhost", "_41_input", _queue("FIFOQueue"))
    manager = ResourceManager()
    made = adopt_record(manager, record)
    assert manager.lookup_or_create("localhost", "_7_other", QueueBase, lambda: _queue("FIFOQueue")) is not made
    assert manager.lookup_or_create("localhost", "_8_input", QueueBase, lambda: _queue("FIFOQueue")) is made
    assert manager.lookup("localhost", "_8_input", QueueBase) is made
    assert len(manager.of_type(QueueBase)) == 2


@pytest.mark.parametrize("dtype", [dtypes.variant, dtypes.resource])
def test_values_of_this_process_are_refused(dtype: Any) -> None:
    with pytest.raises(errors.UnimplementedError, match="'it' holds"):
        record_of(ResourceVariable, "localhost", "it", ResourceVariable(dtype))


def test_other_resources_are_refused() -> None:
    with pytest.raises(errors.UnimplementedError, match="A dict cannot be recorded"):
        version_of(dict, {})
