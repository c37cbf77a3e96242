"""Variables in sessions: updates in place, unchanged fetched values, and long updates in threads."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.ref_cell import RefCell
from aexec.framework.state.resource_variable import ResourceVariable
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

pytestmark = pytest.mark.both_executors

F = dtypes.float32
MB = 1 << 20


def variables(shape: list[int] | None = None) -> GraphBuilder:
    """A ref variable `v` and a resource variable `r`, with ops that read and change them."""
    g = GraphBuilder()
    declared = PartialTensorShape(shape)
    g.placeholder("x")
    g.placeholder("i", dtypes.int32)
    g("v", "VariableV2", dtype=F, shape=declared)
    g("v/assign", "Assign", "v", "x", T=F, validate_shape=False)
    g("v/read", "Identity", "v", T=F)
    g("v/add", "AssignAdd", "v", "x", T=F)
    g("v/scatter", "ScatterAdd", "v", "i", "x", T=F, Tindices=dtypes.int32)
    g("r", "VarHandleOp", dtype=F, shape=declared, shared_name=b"r")
    g("r/assign", "AssignVariableOp", "r", "x", dtype=F)
    g("r/read", "ReadVariableOp", "r", dtype=F)
    g("r/add", "AssignAddVariableOp", "r", "x", dtype=F)
    g("r/scatter", "ResourceScatterAdd", "r", "i", "x", dtype=F, Tindices=dtypes.int32)
    g("twice", "AddV2", "x", "x", T=F)
    g("v/assign_sum", "Assign", "v", "twice", T=F, validate_shape=False)
    g("r/assign_sum", "AssignVariableOp", "r", "twice", dtype=F)
    return g


def held_in(session: aexec.Session, name: str) -> Any:
    """The array in a variable's cell, as an address that keeps nothing alive."""
    kind = RefCell if name == "v" else ResourceVariable
    return session.resources.lookup("localhost", name, kind).value.ctypes.data


async def test_variable_made_anew_is_read_after_its_destruction() -> None:
    g = variables()
    g("r/destroy", "DestroyResourceOp", "r")
    async with aexec.Session(g.graph()) as session:
        read = session.make_callable("r/read:0", [])
        for value in (1, 2):
            await session.run([], {"x:0": np.float32([value])}, targets=["r/assign"])
            for _ in range(4):  # so often that the plan is compiled
                assert (await read()).tolist() == [value]
            await session.run([], targets=["r/destroy"])
            with pytest.raises(errors.FailedPreconditionError, match="Could not find variable r"):
                await read()


@pytest.mark.parametrize("name", ["v", "r"])
class TestInPlace:
    @pytest.mark.default_executor
    async def test_updates_of_100_mb_allocate_nothing_of_that_size(self, name: str) -> None:
        rows = 25 * MB // 64
        big = np.ones((rows, 64), np.float32)  # 100 MB
        few = np.ones((4, 64), np.float32)
        async with aexec.Session(variables().graph()) as session:
            await session.run([], {"x:0": big}, targets=[f"{name}/assign"])
            before = held_in(session, name)
            tracemalloc.start()
            try:
                await session.run([], {"x:0": big}, targets=[f"{name}/add"])
                await session.run([], {"x:0": few, "i:0": [0, 1, 1, rows - 1]}, targets=[f"{name}/scatter"])
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert held_in(session, name) == before
            assert peak < MB
            # Only what goes over all of it is worth a thread: the assignment and the addition.
            assert session.statistics().pool.submitted == 2
            value = await session.run(f"{name}/read:0")
            assert value[[0, 1, 2, -1], 0].tolist() == [3, 4, 2, 3]
            assert value.sum(dtype=np.float64) == 2 * big.size + few.size

    async def test_fetched_value_is_never_changed(self, name: str) -> None:
        async with aexec.Session(variables().graph()) as session:
            await session.run([], {"x:0": [1, 2, 3]}, targets=[f"{name}/assign"])
            fetched = await session.run(f"{name}/read:0")
            view = fetched[1:]
            await session.run([], {"x:0": [5], "i:0": [1]}, targets=[f"{name}/scatter"])
            second = await session.run(f"{name}/read:0")
            await session.run([], {"x:0": [1, 1, 1]}, targets=[f"{name}/add"])
            assert (fetched.tolist(), view.tolist(), second.tolist()) == ([1, 2, 3], [2, 3], [1, 7, 3])
            with pytest.raises(ValueError, match="read-only"):
                fetched[0] = 9
            del fetched
            kept_alive_by_its_view = held_in(session, name)
            await session.run([], {"x:0": [5], "i:0": [1]}, targets=[f"{name}/scatter"])
            assert view.tolist() == [2, 3]
            assert held_in(session, name) == kept_alive_by_its_view  # the view is of the first value
            assert (await session.run(f"{name}/read:0")).tolist() == [2, 13, 4]

    async def test_fetched_view_keeps_the_value(self, name: str) -> None:
        g = variables()
        g.const("all", [-1], dtypes.int32)
        g("flat", "Reshape", f"{name}/read", "all", T=F)
        async with aexec.Session(g.graph()) as session:
            await session.run([], {"x:0": [[1, 2], [3, 4]]}, targets=[f"{name}/assign"])
            flat = await session.run("flat:0")
            await session.run([], {"x:0": np.ones((2, 2))}, targets=[f"{name}/add"])
            assert flat.tolist() == [1, 2, 3, 4]
            assert (await session.run("flat:0")).tolist() == [2, 3, 4, 5]

    @pytest.mark.default_executor
    async def test_assignment_copies_fed_values_and_not_computed_ones(self, name: str) -> None:
        fed = np.ones(1000, np.float32)
        async with aexec.Session(variables().graph()) as session:
            await session.run([], {"x:0": fed}, targets=[f"{name}/assign"])
            await session.run([], {"x:0": fed}, targets=[f"{name}/add"])
            assert (fed == 1).all()
            fed[:] = 7
            assert ((await session.run(f"{name}/read:0")) == 2).all()
            big = np.ones(5 * MB, np.float32)
            await session.run([], {"x:0": big}, targets=[f"{name}/assign_sum"])
            tracemalloc.start()
            try:
                await session.run([], {"x:0": big}, targets=[f"{name}/assign_sum"])
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert big.nbytes < peak < 1.5 * big.nbytes  # the sum itself, and no copy of it

    async def test_result_that_is_also_fetched_is_not_the_variable(self, name: str) -> None:
        async with aexec.Session(variables().graph()) as session:
            fetched = await session.run("twice:0", {"x:0": [1, 2]}, targets=[f"{name}/assign_sum"])
            fetched[0] = 99
            assert (await session.run(f"{name}/read:0")).tolist() == [2, 4]

    async def test_concurrent_updates_are_all_there(self, name: str) -> None:
        """Some updates are inline, some in threads, with reads between them."""
        size = 3 * MB
        one = np.ones(size, np.float32)
        async with aexec.Session(variables().graph()) as session:
            await session.run([], {"x:0": np.zeros(size, np.float32)}, targets=[f"{name}/assign"])

            async def update() -> None:
                await session.run([], {"x:0": one}, targets=[f"{name}/add"])

            async def scatter() -> None:
                await session.run([], {"x:0": [1], "i:0": [0]}, targets=[f"{name}/scatter"])

            async def read() -> None:
                value = await session.run(f"{name}/read:0")
                assert value[1] == value[-1] == value[size // 2]

            await asyncio.gather(*(work() for _ in range(8) for work in (update, scatter, read)))
            value = await session.run(f"{name}/read:0")
            assert (value[0], value[1], value[-1]) == (16, 8, 8)
            assert session.statistics().pool.submitted >= 8  # the updates of all elements

    async def test_large_update_is_made_in_threads(self, name: str) -> None:
        big = np.ones(50 * MB, np.float32)  # 200 MB
        async with aexec.Session(variables().graph()) as session:
            await session.run([], {"x:0": big}, targets=[f"{name}/assign"])
            await session.run([], {"x:0": big}, targets=[f"{name}/add"])
            held = await session.run(f"{name}/read:0")
            await session.run([], {"x:0": [1], "i:0": [0]}, targets=[f"{name}/scatter"])  # copies 200 MB
            assert (held[0], (await session.run(f"{name}/read:0"))[0]) == (2, 3)
            assert session.statistics().pool.submitted >= 3


class TestWithinAStep:
    async def test_read_of_a_ref_after_an_update_sees_the_update(self) -> None:
        """The read precedes the update: as in TensorFlow, both have one buffer."""
        g = variables()
        g("after", "AddV2", "v/read", "zero", "^v/add", T=F)
        g.const("zero", np.float32(0))
        async with aexec.Session(g.graph()) as session:
            await session.run([], {"x:0": [1]}, targets=["v/assign"])
            assert (await session.run("after:0", {"x:0": [10]})).tolist() == [11]

    async def test_uninitialised(self) -> None:
        async with aexec.Session(variables().graph()) as session:
            for fetch in ("v:0", "v/read:0", "v/add:0"):
                with pytest.raises(errors.FailedPreconditionError, match="Attempting to use uninitialized value v"):
                    await session.run(fetch, {"x:0": [1]} if fetch == "v/add:0" else {})
            with pytest.raises(errors.FailedPreconditionError, match="Could not find variable r"):
                await session.run("r/read:0")
            with pytest.raises(
                errors.NotFoundError, match=r"Container localhost does not exist.*localhost/r\)|localhost/r"
            ):
                await session.run([], {"x:0": [1]}, targets=["r/add"])

    async def test_feed_in_place_of_an_updated_variable_is_refused(self) -> None:
        async with aexec.Session(variables().graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="0-th input expects a ref type"):
                await session.run("v/add:0", {"v:0": [1], "x:0": [1]})
            assert (await session.run("v/read:0", {"v:0": [1]})).tolist() == [1]

    async def test_readers_wait_while_a_thread_writes(self) -> None:
        """Readers are a kernel, a fetch, a Switch and a coroutine."""
        g, gate = variables(), gates.Gate()
        gate.open.set()
        g.const("yes", True, dtypes.bool_)
        g("switch", "Switch", "v", "yes", T=F)
        g("async", "TestGate", "v", key=gate.key, T=F)
        g("square", "Square", "v", T=F)
        g("product", "BatchMatMulV2", "v", "v", T=F)  # its cost is a function of the value
        fetches = ["v:0", "switch:1", "async:0", "square:0", "product:0"]
        async with aexec.Session(g.graph()) as session:
            await session.run([], {"x:0": [[1]]}, targets=["v/assign"])
            await session.run(fetches)
            cell = session.resources.lookup("localhost", "v", RefCell)
            array = cell._take()  # what an update does that is under way
            step = session.start(fetches)
            update = session.start([], {"x:0": [[1]]}, targets=["v/add"])
            for _ in range(20):
                await asyncio.sleep(0)
            assert not step.done
            assert not update.done
            cell._release(array)
            del array
            values = await step
            await update
            assert all(value.item() in (1, 2, 4) for value in values)  # each before or after the update
            assert (await session.run("v:0")).tolist() == [[2]]

    async def test_step_that_waits_for_a_variable_can_be_cancelled(self) -> None:
        async with aexec.Session(variables().graph()) as session:
            await session.run([], {"x:0": [1, 2]}, targets=["v/assign"])
            cell = session.resources.lookup("localhost", "v", RefCell)
            array = cell._take()
            step = session.start("v:0")
            await asyncio.sleep(0)
            step.cancel()
            cell._release(array)
            with pytest.raises(errors.CancelledError):
                await step


async def test_variables_of_one_name_must_agree_on_the_type() -> None:
    g = GraphBuilder()
    g("a", "VariableV2", dtype=F, shape=PartialTensorShape([]), shared_name=b"s")
    g("b", "VariableV2", dtype=dtypes.int32, shape=PartialTensorShape([]), shared_name=b"s")
    g("ai", "IsVariableInitialized", "a", dtype=F)
    g("bi", "IsVariableInitialized", "b", dtype=dtypes.int32)
    async with aexec.Session(g.graph()) as session:
        assert not await session.run("ai:0")
        with pytest.raises(
            errors.InvalidArgumentError, match="Output 0 of type float_ref does not match declared output type"
        ):
            await session.run("bi:0")
