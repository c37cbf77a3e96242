"""Nodes whose kernels are queued on a device: outputs travel at once, the step's end waits for the streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.devices.simulated_device import (
    SimulatedArray,
    SimulatedDevice,
    make_simulated_devices,
    simulated_devices,
)
from aexec.framework.dtypes import float32, int32
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.graph.graph import Graph
from aexec.runtime.plans.device_constants import DeviceConstants
from aexec.runtime.plans.plan import Kind
from tests.support.programs.graphs import GraphBuilder
from tests.support.programs.queued_plans import on_host, plan_on, run_on, run_plan

F = float32
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
async def sim() -> AsyncIterator[SimulatedDevice]:
    (device,) = make_simulated_devices("/job:localhost/replica:0/task:0", 1)
    yield device
    await device.close()


def chain(length: int) -> Graph:
    """`x`, then this many nodes `n0`, `n1`, …, each a square root."""
    g = GraphBuilder()
    g.placeholder("x")
    last = "x"
    for number in range(length):
        last = g(f"n{number}", "Sqrt", last, T=F)
    return g.graph()


def reshaped() -> Graph:
    """`y`, the shape of `r`, which is `x` by a constant matrix, reshaped."""
    g = GraphBuilder()
    g.placeholder("x")
    g.const("w", 2 * np.eye(3, dtype=np.float32))
    g.const("to", [3, -1], int32)
    g("product", "MatMul", "x", "w", T=F)
    g("same", "Identity", "product", T=F)
    g("r", "Reshape", "same", "to", T=F, Tshape=int32)
    g("y", "Shape", "r", T=F, out_type=int32)
    g("more", "AddV2", "y", "y", T=int32)
    return g.graph()


class TestRunning:
    @pytest.mark.parametrize("executor", ["DEFAULT", "SHUFFLED", "COMPILED"])
    async def test_values_stay_on_the_device_and_shapes_come_to_the_host(
        self, sim: SimulatedDevice, executor: str
    ) -> None:
        plan = plan_on(sim, reshaped(), ("x:0",), ("r:0", "y:0", "more:0"))
        kinds = {node.name: node.kind for node in plan.nodes}
        assert kinds == {**dict.fromkeys(("product", "same", "r", "y"), Kind.QUEUED), "more": Kind.PLAIN}
        r, y, more = await run_plan(plan, [sim.copy_in(X, node="x")], executor=executor)
        assert isinstance(r, SimulatedArray)
        np.testing.assert_array_equal(await on_host(sim, r), 2 * X.reshape(3, 2))
        assert [type(y), type(more)] == [np.ndarray, np.ndarray]
        assert (y.tolist(), more.tolist()) == ([3, 2], [6, 4])

    async def test_calls_are_queued_without_waits_between_nodes(self, sim: SimulatedDevice) -> None:
        """All calls are queued while the first is still held."""
        plan = plan_on(sim, chain(20), ("x:0",), ("n19:0",))
        stall = sim.faults.stall(node="n0")
        run = asyncio.ensure_future(run_plan(plan, [sim.copy_in(X, node="x")]))
        await asyncio.to_thread(stall.reached.wait)
        for _ in range(100):
            await asyncio.sleep(0)  # a slice may have ended before all was queued
        queued = sim.compute_stream.last
        assert not run.done(), "a step ends when its streams are through"
        stall.release()
        (result,) = await run
        assert sim.compute_stream.last is queued, "nothing was queued after the first call had ended"
        np.testing.assert_allclose(await on_host(sim, result), X ** (0.5**20), rtol=1e-6)

    async def test_constant_is_copied_in_once_for_all_plans(self, sim: SimulatedDevice) -> None:
        constants, array = DeviceConstants(), np.ones(3)
        one, other = (constants.of(sim, array, node="c") for _ in range(2))
        assert one is other
        assert constants.of(sim, array.copy(), node="c") is not one
        value = one.value
        del one, other
        assert constants.of(sim, array, node="c").value is not value, "a constant that no plan has is given back"

    async def test_plans_of_queued_nodes_are_left_to_the_interpreter(self, sim: SimulatedDevice) -> None:
        plan = plan_on(sim, chain(1), ("x:0",), ("n0:0",))
        assert plan.compilation.refused == f"its nodes are queued on {sim.name}"

    async def test_memory_goes_when_the_last_consumer_is_through(self, sim: SimulatedDevice) -> None:
        plan = plan_on(sim, chain(50), ("x:0",), ("n49:0",))
        for _ in range(3):
            value = sim.copy_in(np.ones(1000, np.float32), node="x")
            (result,) = await run_plan(plan, [value])
            del value
        await sim.synchronise()
        assert sim.stats().bytes_in_use == 4000
        assert result is not None


class TestFailing:
    async def test_error_names_the_node_and_the_cause(self, sim: SimulatedDevice) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=r"In\[0\]: \[2,4\], In\[1\]: \[3,3\]") as caught:
            await run_on(sim, reshaped(), ["r:0"], {"x:0": np.ones((2, 4), np.float32)})
        assert (caught.value.node, caught.value.op) == ("product", "MatMul")

    async def test_out_of_memory_fails_one_step_only(self, sim: SimulatedDevice) -> None:
        sim.faults.run_out_of_memory(node="product")
        with pytest.raises(errors.ResourceExhaustedError, match=r"of {{node w}}") as caught:
            await run_on(sim, reshaped(), ["y:0"], {"x:0": X})
        assert caught.value.node == "product"
        (y,) = await run_on(sim, reshaped(), ["y:0"], {"x:0": X})
        assert y.tolist() == [3, 2]

    async def test_error_after_the_last_queued_call_fails_the_step(self, sim: SimulatedDevice) -> None:
        """Only the end of the step waits for the call."""
        sim.faults.fail(node="n2", error=ValueError("late"))
        with pytest.raises(errors.UnknownError, match="ValueError: late") as caught:
            await run_on(sim, chain(3), ["n2:0"], {"x:0": X})
        assert caught.value.node == "n2"

    async def test_use_of_a_freed_buffer_fails_the_step(self, sim: SimulatedDevice) -> None:
        x = sim.copy_in(X, node="x")
        await sim.synchronise()
        sim.free(x)
        with pytest.raises(errors.InternalError, match=r"node n0}} uses the buffer of {{node x}}"):
            await run_plan(plan_on(sim, chain(1), ("x:0",), ("n0:0",)), [x])


class TestCancelling:
    async def test_cancelled_step_ends_at_once_and_the_next_does_not_wait(self, sim: SimulatedDevice) -> None:
        cancellation, stall = CancellationManager(), sim.faults.stall(node="n3")
        plan = plan_on(sim, chain(10), ("x:0",), ("n9:0",))
        run = asyncio.ensure_future(run_plan(plan, [sim.copy_in(X, node="x")], cancellation))
        await asyncio.to_thread(stall.reached.wait)
        cancellation.start_cancel()
        with pytest.raises(errors.CancelledError):
            await run
        (y,) = await run_on(sim, reshaped(), ["y:0"], {"x:0": X})
        assert y.tolist() == [3, 2], "while the call that was begun is still held"
        stall.release()
        await sim.synchronise()
        assert not {f"n{i}" for i in range(10)} & {node for _, node in sim.live_allocations()}

    async def test_cancelled_task_ends_its_step(self, sim: SimulatedDevice) -> None:
        stall = sim.faults.stall(node="n0")
        plan = plan_on(sim, chain(3), ("x:0",), ("n2:0",))
        run = asyncio.ensure_future(run_plan(plan, [sim.copy_in(X, node="x")]))
        await asyncio.to_thread(stall.reached.wait)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        stall.release()

    async def test_step_that_waits_for_a_shape_is_cancelled(self, sim: SimulatedDevice) -> None:
        cancellation, stall = CancellationManager(), sim.faults.stall(node="y")
        plan = plan_on(sim, reshaped(), ("x:0",), ("more:0",))
        run = asyncio.ensure_future(run_plan(plan, [sim.copy_in(X, node="x")], cancellation))
        await asyncio.to_thread(stall.reached.wait)
        cancellation.start_cancel()
        with pytest.raises(errors.CancelledError):
            await run
        stall.release()


SIM = "/device:SIM:0"


def loop_on_device() -> GraphBuilder:
    """`v = x; i = 0; while i < n: v = v * 2; i += 1`, with `v` on the device; feed `x` and `n`, fetch `result`."""
    g = GraphBuilder()
    g.placeholder("x")
    g.placeholder("n", int32, [])
    g.const("zero", 0, int32)
    g.const("one", 1, int32)
    g.const("two", 2, F)
    for name, of, dtype, constant in (
        ("i0", "zero", int32, False),
        ("v0", "x", F, False),
        ("n0", "n", int32, True),
        ("one0", "one", int32, True),
        ("two0", "two", F, True),
    ):
        g(name, "Enter", of, T=dtype, frame_name="loop", is_constant=constant, parallel_iterations=10)
    g("i", "Merge", "i0", "i_next", T=int32, N=2)
    g("v", "Merge", "v0", "v_next", T=F, N=2)
    g("more", "LoopCond", g("less", "Less", "i", "n0", T=int32))
    g("i_switch", "Switch", "i", "more", T=int32)
    g("v_switch", "Switch", "v", "more", T=F)
    g("i_next", "NextIteration", g("i_add", "AddV2", "i_switch:1", "one0", T=int32), T=int32)
    g("v_next", "NextIteration", g("v_twice", "Mul", "v_switch:1", "two0", T=F, device=SIM), T=F)
    g("result", "Exit", "v_switch:0", T=F)
    return g


class TestSessions:
    CONFIG = aexec.SessionConfig(device_count={"SIM": 1})

    async def test_loop_keeps_its_values_on_the_device(self) -> None:
        async with aexec.Session(loop_on_device().graph(), config=self.CONFIG) as session:
            for n in (0, 1, 25):
                got = await session.run("result:0", {"x:0": X, "n:0": n})
                np.testing.assert_array_equal(got, X * 2.0**n)

    async def test_variable_is_assigned_and_read_on_the_device(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("w", "VarHandleOp", dtype=F, shape=PartialTensorShape([2, 3]), shared_name="w", device=SIM)
        g("assign", "AssignVariableOp", "w", "x", dtype=F, device=SIM)
        g("read", "ReadVariableOp", "w", dtype=F, device=SIM)
        g("y", "Square", "read", T=F, device=SIM)
        async with aexec.Session(g.graph(), config=self.CONFIG) as session:
            await session.run([], {"x:0": X}, targets=["assign"])
            np.testing.assert_array_equal(await session.run("y:0"), X * X)

    async def test_op_without_a_device_kernel_moves_its_variable_to_the_host(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("w", "VarHandleOp", dtype=F, shape=PartialTensorShape([2, 3]), shared_name="w")
        g("assign", "AssignVariableOp", "w", "x", dtype=F)
        g("add", "AssignAddVariableOp", "w", "x", "^assign", dtype=F, device=SIM)
        g("read", "ReadVariableOp", "w", "^add", dtype=F)
        config = aexec.SessionConfig(device_count={"SIM": 1}, allow_soft_placement=True)
        async with aexec.Session(g.graph(), config=config) as session:
            np.testing.assert_array_equal(await session.run("read:0", {"x:0": X}), 2 * X)

    @staticmethod
    def squared() -> GraphBuilder:
        g = GraphBuilder()
        g.placeholder("x")
        g("y", "Square", "x", T=F, device=SIM)
        g("after", "Neg", "y", T=F)
        return g

    async def test_loop_is_free_while_the_device_works(self) -> None:
        with simulated_devices() as devices:
            async with aexec.Session(self.squared().graph(), config=self.CONFIG) as session:
                with devices[0].faults.stall(node="y") as stall:
                    step = session.start("after:0", {"x:0": X})
                    await asyncio.to_thread(stall.reached.wait)
                    for _ in range(10):
                        await asyncio.sleep(0)  # nothing holds this one
                    assert not step.done
                np.testing.assert_array_equal(await step, -(X * X))

    async def test_repr_of_a_step_names_the_device_it_waits_for(self) -> None:
        with simulated_devices() as devices:
            async with aexec.Session(self.squared().graph(), config=self.CONFIG) as session:
                with devices[0].faults.stall(node="y") as stall:
                    step = session.start("y:0", {"x:0": X})
                    await asyncio.to_thread(stall.reached.wait)
                    assert f"queued on {devices[0].name}" in repr(step)
                await step

    async def test_cancelled_step_ends_although_the_device_is_held(self) -> None:
        with simulated_devices() as devices:
            async with aexec.Session(self.squared().graph(), config=self.CONFIG) as session:
                with devices[0].faults.stall(node="y") as stall:
                    step = session.start("y:0", {"x:0": X})
                    await asyncio.to_thread(stall.reached.wait)
                    step.cancel()
                    with pytest.raises(errors.CancelledError):
                        await step
                    np.testing.assert_array_equal(await session.run("y:0", {"x:0": X}), X * X)
