"""What resources keep counts for their session until its memory dies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueSpec
from aexec.resources.accumulator import ConditionalAccumulator, SparseAccumulator
from aexec.resources.barrier import Barrier
from aexec.resources.lookup_table import HashTable, MutableHashTable
from aexec.resources.staging_area import StagingArea, StagingMap

MB = 1 << 20
# What is reserved ahead, and what arrays take besides their elements.
ROUGHLY = 1 << 17


def account(limit: int | None = None, within: MemoryAccount | None = None) -> MemoryAccount:
    return MemoryAccount("session", "session_bytes", limit, within)


def array(num_bytes: int = MB) -> Any:
    return np.zeros(num_bytes, np.uint8)


def test_array_counts_once_and_until_its_memory_dies() -> None:
    session = account()
    kept = KeptMemory(session)
    value = array()
    kept.keep([value, value[1:], "no array", None])
    kept.keep([value])
    assert MB <= session.in_use < MB + ROUGHLY
    view = value[5:]
    del value
    assert kept.num_bytes > MB
    del view
    assert kept.num_bytes == 0
    assert session.in_use < ROUGHLY


def test_many_small_arrays_count() -> None:
    session = account()
    kept = KeptMemory(session)
    values = [np.zeros(100, np.uint8) for _ in range(10_000)]
    for value in values:
        kept.keep((value,))
    assert session.in_use > MB
    values.clear()
    del value
    assert kept.num_bytes == 0 and session.in_use < ROUGHLY


def test_strings_count_with_their_contents_once() -> None:
    session = account()
    kept = KeptMemory(session)
    value = np.array([b"x" * MB] * 10, object)
    kept.keep([value])
    assert MB < kept.num_bytes < MB + ROUGHLY


def test_arrays_that_do_not_fit_are_refused_together() -> None:
    session = account(3 * MB)
    kept = KeptMemory(session)
    first = array()
    kept.keep([first])
    with pytest.raises(errors.ResourceExhaustedError, match=r"OOM when keeping \d+ bytes: .* the 3145728 of session_b"):
        kept.keep([array(), array()])
    assert MB < session.in_use < MB + ROUGHLY


def test_freed_memory_is_found_before_a_refusal() -> None:
    server = account(3 * MB)
    first, second = KeptMemory(account(None, server)), KeptMemory(account(None, server))
    values = [array(2 * MB)]
    first.keep(values)
    with pytest.raises(errors.ResourceExhaustedError):
        second.keep([other := array(2 * MB)])
    values.clear()
    second.keep([other])


def test_array_in_the_account_is_not_counted_twice() -> None:
    session = account()
    value = array()
    session.add(value, "n")
    KeptMemory(session).keep([value])
    assert session.in_use == MB


def test_memory_of_another_owner_does_not_count() -> None:
    session = account()
    kept = KeptMemory(session)
    value = array()
    kept.keep([value])
    kept.forget([value[1:], array(10)])
    assert kept.num_bytes == 0
    kept.note([value])
    assert kept.num_bytes > MB
    kept.close()
    assert session.in_use == 0


def test_resource_may_say_what_it_takes() -> None:
    class Resource:
        pass

    session = account(2 * MB)
    kept, resource = KeptMemory(session), Resource()
    kept.hold(resource, MB)
    with pytest.raises(errors.ResourceExhaustedError, match="more bytes"):
        kept.hold(resource, 3 * MB)
    assert kept.num_bytes == MB
    kept.hold(resource, 10)
    assert kept.num_bytes == 10
    del resource
    assert kept.num_bytes == 0


# Resources


@pytest.fixture
def manager() -> ResourceManager:
    return ResourceManager(kept=KeptMemory(account(4 * MB)))


def kept_by(manager: ResourceManager, resource: Any, name: str = "r") -> Any:
    manager.create("c", name, resource)
    assert manager.kept is not None
    return resource


def used(manager: ResourceManager) -> float:
    """Megabytes that are kept, in tenths."""
    assert manager.kept is not None
    return round(manager.kept.num_bytes / MB, 1)


async def test_queues(manager: ResourceManager) -> None:
    queue = kept_by(manager, FIFOQueue("q", QueueSpec((dtypes.uint8,))))
    for _ in range(3):
        assert queue.enqueue((array(),)) is None
    assert used(manager) == 3
    with pytest.raises(errors.ResourceExhaustedError):
        queue.enqueue((array(),))
    assert len(queue) == 3
    taken = queue.dequeue()
    assert used(manager) == 3  # who has it has it still
    del taken
    assert used(manager) == 2
    queue.enqueue_many([np.zeros((10, MB // 10), np.uint8)])
    assert len(queue) == 12 and used(manager) == 3
    manager.cleanup("c")
    assert used(manager) == 0


async def test_elements_that_wait_for_room_count(manager: ResourceManager) -> None:
    queue = kept_by(manager, FIFOQueue("q", QueueSpec((dtypes.uint8,), capacity=1)))
    queue.enqueue((array(),))
    waiting = queue.enqueue((array(),))
    assert used(manager) == 2
    waiting.cancel()
    del waiting
    assert used(manager) == 1
    manager.clear()


async def test_staging_areas(manager: ResourceManager) -> None:
    area = kept_by(manager, StagingArea())
    await area.put((array(),), None)
    ordered = kept_by(manager, StagingMap(1, ordered=True))
    await ordered.put(1, [0], (array(),), None)
    assert used(manager) == 2
    with pytest.raises(errors.ResourceExhaustedError):
        await area.put((array(3 * MB),), None)
    assert len(area) == 1
    area.clear()
    assert used(manager) == 1


def test_barriers(manager: ResourceManager) -> None:
    barrier = kept_by(manager, Barrier("b", (dtypes.uint8, dtypes.uint8), ((MB,), (1,))))
    barrier.insert([b"k"], np.zeros((1, MB), np.uint8), 0)
    assert used(manager) == 1
    with pytest.raises(errors.ResourceExhaustedError):
        barrier.insert([b"a", b"b", b"c", b"d"], np.zeros((4, MB), np.uint8), 0)
    assert barrier.incomplete_size == 1


def test_variables(manager: ResourceManager) -> None:
    variable = kept_by(manager, ResourceVariable(dtypes.uint8))
    variable.value = array()
    assert used(manager) == 1
    with pytest.raises(errors.ResourceExhaustedError):
        variable.value = array(4 * MB)
    assert len(variable.value) == MB
    held = variable.value
    variable.update(lambda value, out: value + 1)
    assert used(manager) == 2  # `held` is the first value
    del held
    assert used(manager) == 1
    variable.value = None
    assert used(manager) == 0


def test_tables(manager: ResourceManager) -> None:
    table = kept_by(manager, MutableHashTable(dtypes.int64, dtypes.float64))
    table.insert(np.arange(1000), np.zeros(1000))
    assert used(manager) == 0.2  # mostly what Python needs for keys
    with pytest.raises(errors.ResourceExhaustedError):
        table.insert(np.arange(10**5), np.zeros(10**5))
    assert len(table) == 1000
    text = kept_by(manager, MutableHashTable(dtypes.string, dtypes.string), "text")
    key = np.array([b"k" * MB], object)
    for _ in range(5):
        text.insert(key, np.array([b"v" * MB], object))
    assert used(manager) == 2.2
    text.remove(key)
    assert used(manager) == 0.2
    fixed = kept_by(manager, HashTable(dtypes.int64, dtypes.float64))
    with pytest.raises(errors.ResourceExhaustedError):
        fixed.initialize(np.arange(10**5), np.zeros(10**5))
    assert not fixed.is_initialized


async def test_accumulators(manager: ResourceManager) -> None:
    dense = kept_by(manager, ConditionalAccumulator(dtypes.float32, PartialTensorShape(None), is_mean=False))
    for _ in range(5):
        dense.add(0, np.zeros(MB // 4, np.float32))
    assert used(manager) == 1
    sparse = kept_by(manager, SparseAccumulator(dtypes.float32, PartialTensorShape(None), is_mean=False))
    sparse.add(0, np.arange(10), np.zeros((10, MB // 40), np.float32), None)
    assert used(manager) == 2
    with pytest.raises(errors.ResourceExhaustedError):
        sparse.add(0, np.arange(10, 40), np.zeros((30, MB // 40), np.float32), None)
    assert (sparse.count, used(manager)) == (1, 2)
    await dense.take(1, None)
    assert used(manager) == 1


def test_rows_of_a_batch_count_though_they_have_no_bytes() -> None:
    account = MemoryAccount("session")
    kept = KeptMemory(account)
    batch = np.zeros((100_000, 0), np.float32)
    kept.keep([batch], len(batch))
    assert kept.num_bytes > 100 * len(batch)
    del batch
    assert kept.num_bytes == 0
