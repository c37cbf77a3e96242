"""`SessionRecorder`: reports each change once, and what it reports makes the state again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.state.session_state import SessionState
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueBase, QueueSpec
from aexec.resources.lookup_table import LookupTable, MutableHashTable
from aexec.resources.records.session_recorder import SessionRecorder, restore_state


def _recorder() -> tuple[SessionRecorder, ResourceManager, SessionState]:
    manager, state = ResourceManager(), SessionState()
    return SessionRecorder(manager, state, asyncio.to_thread), manager, state


def _variable(value: float) -> ResourceVariable:
    return ResourceVariable(dtypes.float64, np.full(2, value))


async def _names(recorder: SessionRecorder) -> list[str]:
    """The names of what has changed, which counts as written."""
    changes = await recorder.look()
    recorder.written(changes)
    written = [record.name for record in changes.written]
    dropped = [f"-{name}" for _, _, name in changes.dropped]
    return sorted([*written, *dropped, *changes.kept, *[f"-{handle}" for handle in changes.dropped_tensors]])


async def test_only_changes_are_reported() -> None:
    recorder, manager, state = _recorder()
    assert not await recorder.look()
    for name in ("a", "b"):
        manager.create("localhost", name, _variable(0))
    state.add_tensor("t;0;", np.arange(3))
    assert await _names(recorder) == ["a", "b", "t;0;"]
    assert await _names(recorder) == []
    manager.lookup("localhost", "b", ResourceVariable).replace(np.ones(2))
    assert await _names(recorder) == ["b"]
    manager.delete("localhost", "a", ResourceVariable)
    state.delete_tensor("t;0;")
    assert await _names(recorder) == ["-a", "-t;0;"]


async def test_changes_that_were_not_written_are_reported_again() -> None:
    recorder, manager, _ = _recorder()
    manager.create("localhost", "a", _variable(1))
    assert (await recorder.look()).written[0].name == "a"
    assert await _names(recorder) == ["a"]


async def test_resources_of_steps_and_without_names_are_left_out() -> None:
    recorder, manager, _ = _recorder()
    manager.create("__per_step_3", "v", _variable(0))
    manager.create("localhost", "_AnonymousLookupTable4", MutableHashTable(dtypes.int64, dtypes.int64), LookupTable)
    assert not await recorder.look()


async def test_what_cannot_be_recorded_is_named() -> None:
    recorder, manager, _ = _recorder()
    manager.create("localhost", "it", {"a": 1})
    with pytest.raises(errors.UnimplementedError, match="A dict cannot be recorded"):
        await recorder.look()


async def test_two_private_resources_of_one_name_are_refused() -> None:
    recorder, manager, _ = _recorder()
    for name in ("_1_q", "_2_q"):
        manager.create("localhost", name, FIFOQueue(name, QueueSpec((dtypes.int64,))), QueueBase)
    with pytest.raises(errors.UnimplementedError, match="Several nodes 'q'"):
        await recorder.look()


async def test_private_resource_is_recorded_under_one_name() -> None:
    """Its name here changes when its node takes it over, which is no change of the state."""
    recorder, manager, _ = _recorder()
    manager.adopt("localhost", "_0_q", FIFOQueue("q", QueueSpec((dtypes.int64,))), QueueBase)
    assert await _names(recorder) == ["_0_q"]
    manager.lookup_or_create("localhost", "_99_q", QueueBase, lambda: FIFOQueue("q", QueueSpec((dtypes.int64,))))
    assert await _names(recorder) == []


async def test_update_in_a_thread_is_waited_for() -> None:
    recorder, manager, _ = _recorder()
    variable = _variable(0)
    manager.create("localhost", "v", variable)
    began, go_on = threading.Event(), threading.Event()

    def compute(value: Any, out: Any) -> Any:
        began.set()
        go_on.wait()
        return value + 5

    updating = asyncio.create_task(asyncio.to_thread(variable.update, compute))
    await asyncio.to_thread(began.wait)
    looking = asyncio.create_task(recorder.look())
    await asyncio.sleep(0)
    assert not looking.done()
    go_on.set()
    changes = await looking
    await updating
    assert changes.written[0].tensors["value"].tolist() == [5, 5]


async def test_large_table_is_recorded_in_a_thread() -> None:
    recorder, manager, _ = _recorder()
    table = MutableHashTable(dtypes.int64, dtypes.int64)
    count = 100_000
    await asyncio.to_thread(table.insert, np.arange(count), np.arange(count))
    manager.create("localhost", "t", table, LookupTable)
    (record,) = (await recorder.look()).written
    assert record.tensors["keys"].shape == (count,)


async def test_state_is_made_again() -> None:
    recorder, manager, state = _recorder()
    manager.create("localhost", "v", _variable(4))
    state.add_tensor(f"t;{state.get_new_id()};", np.arange(3))
    changes = await recorder.look()

    again, other, other_state = _recorder()
    restore_state(other, other_state, changes.written, changes.kept, changes.next_tensor)
    assert other.lookup("localhost", "v", ResourceVariable).value.tolist() == [4, 4]
    assert other_state.get_tensor("t;0;").tolist() == [0, 1, 2] and other_state.get_new_id() == 1
    assert {record.name for record in (await again.look()).written} == {"v"}
