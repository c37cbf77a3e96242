"""Accounts of memory: buffers, limits, reservations, reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.framework import dtypes, errors
from aexec.framework.memory.allocator import cpu_allocator, watching
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount, bytes_text
from aexec.framework.state.tensor_cell import private_copy


def account(limit: int | None = None, within: MemoryAccount | None = None) -> MemoryAccount:
    return MemoryAccount("step", "step_bytes", limit, within)


def test_buffer_counts_once_and_until_its_memory_dies() -> None:
    memory = account()
    array = np.zeros(100, np.uint8)
    memory.add(array, "a")
    memory.add(array[10:], "b")
    assert memory.in_use == 100
    view = array.reshape(10, 10)
    del array
    assert memory.in_use == 100
    del view
    assert (memory.in_use, memory.peak) == (0, 100)
    assert repr(memory) == "<MemoryAccount of a step: 0 bytes, at most 100>"


def test_forgotten_array_is_subtracted_once() -> None:
    memory = account()
    array = np.zeros(100, np.uint8)
    memory.add(array, "a")
    memory.forget([array[1:]])
    memory.forget([array])
    assert memory.in_use == 0
    del array
    assert memory.in_use == 0


def test_memory_that_is_nobodys_is_not_counted() -> None:
    memory = account()
    memory.add(np.frombuffer(b"12345678"), "a")
    assert memory.in_use == 0


def test_reservation_beyond_the_limit_is_refused() -> None:
    memory = account(100)
    kept = np.zeros(60, np.uint8)
    memory.add(kept, "a")
    memory.reserve(30)
    with pytest.raises(
        errors.ResourceExhaustedError, match="take 90 bytes, 20 more would exceed the 100 of step_bytes"
    ):
        memory.reserve(20)
    memory.give_back(30)
    memory.reserve(20)
    assert memory.peak == 90


def test_excess_over_a_reservation_is_found_afterwards() -> None:
    memory = account(100)
    memory.check()
    made = np.zeros(101, np.uint8)
    memory.add(made, "a")
    with pytest.raises(errors.ResourceExhaustedError, match="take 101 bytes, which is more than the 100 of step_bytes"):
        memory.check()


def test_held_values_are_refused_together() -> None:
    memory = account(100)
    known = np.zeros(50, np.uint8)
    memory.add(known, "a")
    with pytest.raises(errors.ResourceExhaustedError):
        memory.hold({"b": known, "c": (new := np.zeros(30, np.uint8)), "d": np.zeros(30, np.uint8)})
    assert memory.in_use == 50
    memory.hold({"b": known, "c": new, "d": new[1:]})
    assert memory.in_use == 80
    memory.reserve(20)


def test_report_names_the_nodes_with_most() -> None:
    memory = account()
    arrays = [np.zeros(1000 * (i + 1), np.uint8) for i in range(12)]
    for i, array in enumerate(arrays):
        memory.add(array, f"n{i}")
    more = np.zeros(5 << 20, np.uint8)
    memory.add(more, "n3")
    lines = memory.report()
    assert lines[:2] == ["5.00MiB from n3", "11.7KiB from n11"]
    assert lines[10:] == ["Remaining 2 nodes with 2.9KiB"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (5 << 20, "5.00MiB"), (3 << 30, "3.00GiB")]
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert bytes_text(count) == text


class TestCallMemory:
    def test_outputs_take_what_was_reserved_for_them(self) -> None:
        session = account(1000)
        step = account(1000, session)
        call = CallMemory(step, "n")
        call.begin(800)
        assert step.peak == session.peak == 800
        given, made = np.zeros(100, np.uint8), np.zeros(700, np.uint8)
        call.end([made, made[1:], given[2:], np.zeros(0)], [given])
        assert step.in_use == session.in_use == 700
        step.reserve(300)

    def test_refusal_of_one_account_reserves_nothing_in_the_other(self) -> None:
        session = account(100)
        step = account(1000, session)
        with pytest.raises(errors.ResourceExhaustedError):
            CallMemory(step, "n").begin(500)
        session.limit = 1000
        step.reserve(1000)

    def test_allocation_uses_the_reservation(self) -> None:
        step = account(1000)
        call = CallMemory(step, "n")
        call.begin(600)
        with watching(call):
            tensor: Any = cpu_allocator().allocate_tensor([150], dtypes.float32)
            with pytest.raises(errors.ResourceExhaustedError, match="500 more would exceed"):
                cpu_allocator().allocate(500)
        call.end([tensor])
        assert step.in_use == 664
        step.reserve(336)

    def test_failed_call_gives_back_all(self) -> None:
        step = account(1000)
        call = CallMemory(step, "n")
        call.begin(600)
        call.end()
        assert step.in_use == 0
        step.reserve(1000)

    def test_read_only_value_counts_in_the_session(self) -> None:
        session = account()
        step = account(within=session)
        value = np.zeros(100, np.uint8)
        value.flags.writeable = False
        CallMemory(step, "read").end([value])
        assert (step.in_use, session.in_use) == (0, 100)

    def test_copies_that_are_kept_are_announced(self) -> None:
        session = account(1000)
        step = account(1000, session)
        call = CallMemory(step, "assign")
        with watching(call):
            kept = private_copy(np.zeros(600, np.uint8))
            with pytest.raises(errors.ResourceExhaustedError, match="600 bytes, 600 more would exceed"):
                private_copy(kept)
        call.end()
        assert (step.in_use, session.in_use) == (0, 600)
