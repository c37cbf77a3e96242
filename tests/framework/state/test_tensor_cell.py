"""Cells: values that were read stay what they are, updates of values that nobody holds write in place."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from aexec.framework.state.tensor_cell import TensorCell, Writing
from aexec.framework.waiting.inline_call import NeedsThreadError, PostponedError, check_inline


def cell(*values: float) -> TensorCell:
    return TensorCell(dtypes.float32, np.array(values, np.float32))


def address(of: TensorCell) -> int:
    return int(of.value.ctypes.data)


def add_one(value: Any, out: Any) -> Any:
    return np.add(value, np.float32(1), out)


class TestUpdate:
    def test_unshared_value_is_updated_in_place(self) -> None:
        c = cell(1, 2)
        before = address(c)
        c.update(add_one)
        assert c.value.tolist() == [2, 3]
        assert address(c) == before

    @pytest.mark.parametrize("hold", [lambda v: v, lambda v: v[:1], lambda v: v.reshape(2, 1)[::-1].T, memoryview])
    def test_copy_if_somebody_does(self, hold: Any) -> None:
        c = cell(1, 2)
        held = hold(c.value)
        kept = np.array(held)
        c.update(add_one)
        np.testing.assert_array_equal(np.array(held), kept)
        assert c.value.tolist() == [2, 3]
        del held
        before = address(c)
        c.update(add_one)
        assert address(c) == before

    def test_values_are_read_only(self) -> None:
        c = cell(1, 2)
        c.update(add_one)
        with pytest.raises(ValueError, match="read-only"):
            c.value[0] = 9
        with pytest.raises(ValueError, match="WRITEABLE"):
            c.value[:1].flags.writeable = True

    def test_update_that_fails_leaves_it_as_it_was(self) -> None:
        c = cell(1, 2)

        def fail(value: Any, out: Any) -> Any:
            raise errors.InvalidArgumentError("no")

        with pytest.raises(errors.InvalidArgumentError):
            c.update(fail)
        assert c.value.tolist() == [1, 2]
        assert not c.value.flags.writeable

    def test_scalars_stay_arrays(self) -> None:
        c = TensorCell(dtypes.int64, np.int64(4))
        held = c.value
        c.update(lambda value, out: np.add(value, 1, out))
        assert (held, c.value, c.value.shape, c.value.dtype) == (4, 5, (), np.int64)

    def test_uninitialised(self) -> None:
        c = TensorCell(dtypes.float32)
        assert c.value is None
        assert repr(c) == "<TensorCell float uninitialized>"
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized"):
            c.update(add_one)
        with pytest.raises(errors.FailedPreconditionError), Writing(c):
            pass
        c.value = np.ones(3, np.float32)
        assert (c.size, repr(c)) == (3, "<TensorCell float shape=(3,)>")
        c.value = None
        assert c.value is None

    @given(st.lists(st.tuples(st.sampled_from(["update", "write", "hold", "drop", "set"]), st.integers(0, 3))))
    def test_read_value_never_changes(self, actions: list[tuple[str, int]]) -> None:
        c, model, held = cell(0, 0, 0, 0), [0.0] * 4, []
        for action, i in actions:
            if action == "update":
                c.update(add_one)
                model = [x + 1 for x in model]
            elif action == "write":
                with Writing(c) as (array,):
                    array[i] = 7
                model[i] = 7
            elif action == "hold":
                held.append((c.value[i:], model[i:]))
            elif action == "drop" and held:
                held.pop(i % len(held))
            elif action == "set":
                c.value = np.full(4, i, np.float32)
                model = [float(i)] * 4
            assert c.value.tolist() == model
            assert all(array.tolist() == then for array, then in held)


class TestWriting:
    def test_several_cells(self) -> None:
        a, b = cell(1), cell(2)
        addresses = address(a), address(b)
        with Writing(b, a) as (y, x):
            x += y
            y *= 10
        assert (a.value.tolist(), b.value.tolist()) == ([3], [20])
        assert (address(a), address(b)) == addresses

    def test_cell_named_twice_gives_one_array_twice(self) -> None:
        a = cell(1)
        with Writing(a, a) as (x, y):
            assert x is y
            x += 1
        assert a.value.tolist() == [2]

    def test_value_read_before_stays(self) -> None:
        a, b = cell(1), cell(2)
        held = a.value
        with Writing(a, b) as (x, y):
            x += 1
            y += 1
        assert (held.tolist(), a.value.tolist(), b.value.tolist()) == ([1], [2], [3])

    def test_cell_without_a_value_leaves_the_others_alone(self) -> None:
        a, b = cell(1), TensorCell(dtypes.float32)
        for cells in ((a, b), (b, a)):
            with pytest.raises(errors.FailedPreconditionError), Writing(*cells):
                pass
        a.update(add_one)
        assert a.value.tolist() == [2]

    async def test_large_copy_is_not_made_on_the_loop(self) -> None:
        c = TensorCell(dtypes.float32, np.zeros(4_000_000, np.float32))
        with Writing(c) as (array,):  # nobody else has it: nothing is copied
            array[0] = 1
        held = c.value
        with pytest.raises(NeedsThreadError), Writing(c):
            pass

        def in_a_thread() -> None:
            with Writing(c) as (array,):
                array[0] = 2

        await asyncio.to_thread(in_a_thread)
        assert (held[0], c.value[0]) == (1, 2)

    async def test_thread_may_do_what_takes_long(self) -> None:
        done = []
        with pytest.raises(NeedsThreadError):
            check_inline(1e12)
        await asyncio.to_thread(lambda: (check_inline(1e12), done.append("in a thread")))
        assert done == ["in a thread"]


class TestWaiting:
    async def test_loop_is_told_to_come_again(self) -> None:
        """Who reads, assigns or updates while a thread writes is postponed until it has written."""
        c = cell(1)
        began, go_on = threading.Event(), threading.Event()

        def slow(value: Any, out: Any) -> Any:
            began.set()
            assert go_on.wait(60)
            return add_one(value, out)

        work = asyncio.create_task(asyncio.to_thread(c.update, slow))
        await asyncio.to_thread(began.wait, 30)
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        for call in (lambda: c.value, lambda: c.replace(np.ones(1, np.float32)), lambda: c.update(add_one)):
            with pytest.raises(PostponedError) as caught:
                call()
        caught.value.when_ready(lambda: loop.call_soon_threadsafe(ready.set))
        reader = asyncio.create_task(asyncio.to_thread(lambda: c.value.tolist()))
        await asyncio.sleep(0)
        assert not ready.is_set()
        go_on.set()
        await ready.wait()
        await work
        assert c.value.tolist() == [2] == await reader

    def test_threads_lose_no_update(self) -> None:
        c, d = cell(0), cell(0)

        def work(first: TensorCell, second: TensorCell) -> None:
            for _ in range(200):
                c.update(add_one)
                with Writing(first, second) as (x, y):
                    x += 1
                    y += 1
                assert c.value[0] > 0

        threads = [threading.Thread(target=work, args=args) for args in [(c, d), (d, c)] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (c.value.tolist(), d.value.tolist()) == ([3200], [1600])
