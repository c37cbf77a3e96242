"""Sessions: requests and their answers, errors, concurrency, deadlines, cancellation, close."""

from __future__ import annotations

import asyncio
import collections
import copy
import dataclasses
import gc
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.runtime.session import callable_cache
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_steps import SessionSteps
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, chain, counting_loop
from tests.support.virtual_clock import run_virtual
from tests.support.waiting import until

pytestmark = pytest.mark.both_executors

X = np.array([1.0, 2.0], np.float32)


def small() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g.const("one", np.float32(1))
    g("y", "AddV2", "x", "one", T=dtypes.float32)
    g("z", "Square", "y", T=dtypes.float32)
    g("noop", "NoOp", "^z")
    return g


def gated(op: str = "TestGate", **more: Any) -> tuple[GraphBuilder, Any]:
    gate = gates.Gate() if op == "TestGate" else gates.ThreadGate()
    g = small()
    g("gated", op, "y", key=gate.key, T=dtypes.float32)
    g("after", "Square", "gated", T=dtypes.float32)
    return g, gate


register_op("TestTakesTime(x: float) -> y: float")


@kernel("TestTakesTime", cost=0)
def _takes_time(_: Any) -> Any:
    def compute(x: Any) -> Any:
        end = time.perf_counter() + 0.3e-3
        while time.perf_counter() < end:
            pass
        return x

    return compute


class TestRun:
    async def test_run_returns_one_array(self) -> None:
        async with aexec.Session(small().graph()) as session:
            result = await session.run("z:0", {"x:0": X})
        np.testing.assert_array_equal(result, [4, 9])
        assert result.dtype == np.float32

    async def test_structure_of_fetches_comes_back(self) -> None:
        Pair = collections.namedtuple("Pair", "a b")

        @dataclasses.dataclass
        class Both:
            left: Any
            right: Any

        async with aexec.Session(small().graph()) as session:
            out = await session.run(
                ["y:0", {"k": ("z:0", "noop")}, Pair("y:0", "one:0"), Both("y:0", ["z:0"])], {"x:0": X}
            )
        np.testing.assert_array_equal(out[0], [2, 3])
        np.testing.assert_array_equal(out[1]["k"][0], [4, 9])
        assert out[1]["k"][1] is None
        assert isinstance(out[2], Pair)
        assert out[2].b == 1
        np.testing.assert_array_equal(out[3].right[0], [4, 9])

    async def test_empty_list_runs_nothing(self) -> None:
        async with aexec.Session(small().graph()) as session:
            assert await session.run([]) == []
            assert session.statistics().runs == 0

    async def test_tensor_objects_as_feeds_and_fetches(self) -> None:
        graph = small().graph()
        async with aexec.Session(graph) as session:
            result = await session.run(graph.tensor("y:0"), {graph.tensor("x:0"): X}, targets=[graph.node("noop")])
        np.testing.assert_array_equal(result, [2, 3])

    async def test_any_tensor_can_be_fed(self) -> None:
        async with aexec.Session(small().graph()) as session:
            np.testing.assert_array_equal(await session.run("z:0", {"y:0": X}), [1, 4])
            np.testing.assert_array_equal(await session.run("z:0", {"x": [1.0], "one:0": 9}), [100])

    async def test_scalars_come_back_as_numpy_scalars_and_strings_as_bytes(self) -> None:
        g = GraphBuilder()
        g.const("f", np.float32(2))
        g.const("s", b"abc")
        async with aexec.Session(g.graph()) as session:
            f, s = await session.run(["f:0", "s:0"])
        assert f == 2
        assert isinstance(f, np.float32)
        assert s == b"abc"

    async def test_feeds_are_converted_to_the_type_of_the_tensor(self) -> None:
        async with aexec.Session(small().graph()) as session:
            assert (await session.run("y:0", {"x:0": [1, 2]})).dtype == np.float32
            assert (await session.run("y:0", {"x:0": np.array([1.0])})).dtype == np.float32

    @pytest.mark.parametrize(
        ("fetches", "feeds", "targets", "error", "words"),
        [
            ("nope:0", {}, [], errors.NotFoundError, "nope"),
            ("yy:0", {}, [], errors.NotFoundError, "did you mean 'y'"),
            ("y:1", {}, [], errors.InvalidArgumentError, "must be < 1"),
            ("y:0", {"nope:0": 1}, [], errors.NotFoundError, "nope"),
            ("y:0", {"x:0": X, "x": X}, [], errors.InvalidArgumentError, "fed more than once"),
            ("y:0", {"x:0": np.zeros((2, 2), np.float32)}, [], errors.InvalidArgumentError, "(2, 2)"),
            ("y:0", {"x:0": np.zeros(2, np.int32)}, [], errors.InvalidArgumentError, "to be float but int32"),
            ("y:0", {"x:0": [b"s"]}, [], errors.InvalidArgumentError, "x:0"),
            ("y:0", {"x:0": [[1], [2, 3]]}, [], errors.InvalidArgumentError, "x:0"),
            ("y:0", {}, [], errors.InvalidArgumentError, "You must feed a value for placeholder tensor 'x'"),
            ([], {}, ["nope"], errors.NotFoundError, "nope"),
            ({}, {}, [], errors.InvalidArgumentError, "at least one target"),
            (7, {}, [], errors.InvalidArgumentError, "invalid type int"),
            ("noop:0", {}, [], errors.InvalidArgumentError, "must be < 0"),
        ],
    )
    async def test_bad_requests_are_refused_and_harm_nothing(
        self, fetches: Any, feeds: Any, targets: Any, error: Any, words: str
    ) -> None:
        async with aexec.Session(small().graph()) as session:
            with pytest.raises(error) as caught:
                await session.run(fetches, feeds, targets)
            assert words in str(caught.value)
            np.testing.assert_array_equal(await session.run("y:0", {"x:0": X}), [2, 3])

    async def test_kernel_errors_name_the_node(self) -> None:
        g = small()
        g("bad", "TestFail", "y", T=dtypes.float32)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
                await session.run("bad:0", {"x:0": X})
        assert (caught.value.node, caught.value.op) == ("bad", "TestFail")
        assert "{{node bad}}" in str(caught.value)

    async def test_fed_and_constant_arrays_cannot_be_changed_through_results(self) -> None:
        g = small()
        g.const("c", [1.0, 2.0], dtypes.float32)
        async with aexec.Session(g.graph()) as session:
            constant = await session.run("c:0")
            with pytest.raises(ValueError, match="read-only"):
                constant[0] = 7
            assert (await session.run("c:0"))[0] == 1

    async def test_concurrent_runs(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            runs = [asyncio.create_task(session.run("after:0", {"x:0": X + i})) for i in range(10)]
            await gate.entered.wait()
            while gate.count < 10:
                await asyncio.sleep(0)
            gate.open.set()
            results = await asyncio.gather(*runs)
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result, (X + i + 1) ** 2)

    async def test_large_graphs_are_planned_beside_the_loop_and_once(self) -> None:
        async with aexec.Session(chain(1000).graph()) as session:
            feeds = {"x:0": np.zeros((4, 4), np.float32)}
            results = await asyncio.gather(*(session.run("last:0", feeds) for _ in range(5)))
            assert all((r == 1000).all() for r in results)
            assert session.statistics().plans == 1


class TestPlans:
    @pytest.mark.parametrize(("limit", "value"), [("MAX_ENTRIES", 3), ("MAX_PLAN_NODES", 9)])
    async def test_oldest_plans_are_dropped_when_too_many_or_too_large(
        self, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(callable_cache, limit, value)
        async with aexec.Session(chain(10).graph()) as session:
            x = np.ones((4, 4), np.float32)

            def kept() -> list[str]:
                return [call.fetches[0] for call in session._callables._known.values()]

            for name in ("node0:0", "node1:0", "node2:0", "node3:0"):
                await session.run(name, {"x:0": x})
            out = await session.run("last:0", {"x:0": x})  # larger than the limit by itself: still run
            assert out[0, 0] == 11
            assert kept() == ["node2:0", "node3:0", "last:0"]
            await session.run("node0:0", {"x:0": x})
            assert kept() == (["node3:0", "last:0", "node0:0"] if limit == "MAX_ENTRIES" else ["node0:0"])
            assert session.statistics().plans == len(kept())


class TestExtend:
    async def test_new_nodes_may_name_old_ones(self) -> None:
        async with aexec.Session(small().graph()) as session:
            more = GraphBuilder()
            more("w", "Neg", "z", T=dtypes.float32)
            await session.extend(more.graph_def.SerializeToString())
            np.testing.assert_array_equal(await session.run("w:0", {"x:0": X}), [-4, -9])

    async def test_failed_extension_changes_nothing(self) -> None:
        graph = small().graph()
        async with aexec.Session(graph) as session:
            more = GraphBuilder()
            more("w", "Neg", "z", T=dtypes.float32)
            more("v", "Neg", "nowhere", T=dtypes.float32)
            with pytest.raises(errors.InvalidArgumentError, match="Unknown input node 'nowhere'"):
                await session.extend(more.graph_def.SerializeToString())
            assert "w" not in session.graph
            np.testing.assert_array_equal(await session.run("z:0", {"x:0": X}), [4, 9])
        assert "w" not in graph

    async def test_extension_with_a_taken_name_is_refused(self) -> None:
        async with aexec.Session(small().graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="includes node 'x'"):
                await session.extend(small().graph_def.SerializeToString())

    async def test_nodes_of_a_shared_graph_stay_apart(self) -> None:
        graph = small().graph()
        more = GraphBuilder()
        more("w", "Neg", "z", T=dtypes.float32)
        async with aexec.Session(graph) as one, aexec.Session(graph) as two:
            await one.extend(more.graph_def.SerializeToString())
            with pytest.raises(errors.NotFoundError):
                await two.run("w:0", {"x:0": X})

    async def test_cancelled_extension_adds_nothing_and_close_waits_for_it(self) -> None:
        """The thread, which is held, ends at its next check for cancellation."""
        more = GraphBuilder()
        for index in range(1000):
            more(f"more{index}", "NoOp")
        session = aexec.Session(small().graph())
        begun, opened = threading.Event(), threading.Event()
        extend = session._planner._extend

        def held(graph_def: Any) -> None:
            begun.set()
            opened.wait()
            extend(graph_def)

        session._planner._extend = held  # type: ignore[method-assign]
        async with session:
            extending = asyncio.create_task(session.extend(more.graph_def.SerializeToString()))
            await until(begun.is_set)
            extending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await extending
            closing = asyncio.create_task(session.close())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not closing.done()
            opened.set()
            await closing
        assert len(session.graph) == len(small().graph())

    async def test_nodes_of_a_cancelled_extension_have_no_place(self) -> None:
        """Other nodes get their indices."""

        def more(device: str) -> bytes:
            g = GraphBuilder()
            for index in range(300):
                g(f"more{index}", "NoOp", device=device)
            return g.graph_def.SerializeToString()

        async with aexec.Session(small().graph(), config=aexec.SessionConfig(device_count={"CPU": 2})) as session:
            with session._planner._work.lock:
                extending = asyncio.create_task(session.extend(more("/cpu:1")))
                await asyncio.sleep(0)
                extending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await extending
            await session.extend(more("/cpu:0"))
            metadata = aexec.RunMetadata()
            options = aexec.RunOptions(output_partition_graphs=True)
            await session.run([], targets=["more7"], options=options, metadata=metadata)
        (message,) = metadata.partition_graphs
        assert {node.device[-5:] for node in message.node} == {"CPU:0"}

    async def test_large_bytes_are_parsed_beside_the_loop(self) -> None:
        async with aexec.Session(small().graph()) as session:
            with session._planner._work.lock:
                extending = asyncio.create_task(session.extend(b"\0" * 50_000))
                await asyncio.sleep(0)
                assert session._planner._work.tasks
            with pytest.raises(errors.InvalidArgumentError, match="Cannot parse GraphDef"):
                await extending

    async def test_empty_session_can_be_extended(self) -> None:
        async with aexec.Session() as session:
            with pytest.raises(errors.InvalidArgumentError, match="graph is empty"):
                await session.run("y:0")
            await session.extend(small().graph_def.SerializeToString())
            np.testing.assert_array_equal(await session.run("y:0", {"x:0": X}), [2, 3])


class TestStep:
    @pytest.mark.default_executor
    async def test_start_await_state_and_repr(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            step = session.start("after:0", {"x:0": X})
            await gate.entered.wait()
            assert step.state.value == "running"
            assert session.steps == (step,)
            assert step.statistics().running == 1
            assert re.fullmatch(
                rf"<Step {step.id} running, 0 ready, 1 running "
                r"\(running gated \(TestGate\), awaited for \d\.\d+ s; waiting after \(Square\): waits for gated\)>",
                repr(step),
            )
            gate.open.set()
            np.testing.assert_array_equal(await step, [4, 9])
            np.testing.assert_array_equal(await step, [4, 9])
            assert step.state.value == "succeeded"
            assert session.steps == ()
            assert not step.cancel()

    async def test_cancel_stops_a_waiting_kernel(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            step = session.start("after:0", {"x:0": X})
            await gate.entered.wait()
            assert step.cancel("nobody wants it")
            assert not step.cancel()
            with pytest.raises(errors.CancelledError, match="nobody wants it"):
                await step
            assert step.state.value == "cancelled"
            assert gate.cancelled == 1
            gate.open.set()
            np.testing.assert_array_equal(await session.run("after:0", {"x:0": X}), [4, 9])

    async def test_cancel_before_the_step_has_run(self) -> None:
        async with aexec.Session(small().graph()) as session:
            step = session.start("z:0", {"x:0": X})
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step

    async def test_cancel_from_another_thread(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            step = session.start("after:0", {"x:0": X})
            await gate.entered.wait()
            await asyncio.to_thread(step.cancel, "from a thread")
            with pytest.raises(errors.CancelledError, match="from a thread"):
                await step

    async def test_cancelling_the_awaiting_task_ends_the_step(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            task = asyncio.create_task(session.run("after:0", {"x:0": X}))
            await gate.entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert gate.cancelled == 1
            assert session.steps == ()

    async def test_cancelled_waiter_cancels_its_step(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            step = session.start("after:0", {"x:0": X})

            async def wait() -> Any:
                return await step

            task = asyncio.create_task(wait())
            await gate.entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert step.state.value == "cancelled"

    @pytest.mark.default_executor
    async def test_running_offload_is_abandoned(self) -> None:
        g, gate = gated("TestThreadGate")
        session = aexec.Session(g.graph())
        step = session.start("after:0", {"x:0": X})
        await asyncio.to_thread(gate.entered.wait)
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert not gate.left.is_set()
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.open.set()
        await closing
        assert gate.left.is_set()

    async def test_stateful_offload_is_waited_for(self) -> None:
        g, gate = gated("TestStatefulThreadGate")
        async with aexec.Session(g.graph()) as session:
            step = session.start("after:0", {"x:0": X})
            await asyncio.to_thread(gate.entered.wait)
            step.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not step.done
            gate.open.set()
            with pytest.raises(errors.CancelledError):
                await step
            assert gate.left.is_set()

    @pytest.mark.default_executor
    async def test_queued_offloads_are_withdrawn(self) -> None:
        gate = gates.ThreadGate()
        g = small()
        for i in range(20):
            g(f"gated{i}", "TestThreadGate", "y", key=gate.key, T=dtypes.float32)
        session = aexec.Session(g.graph(), config=aexec.SessionConfig(inter_op_threads=1))
        step = session.start([f"gated{i}:0" for i in range(20)], {"x:0": X})
        await asyncio.to_thread(gate.entered.wait)
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert session.statistics().pool.outstanding <= 2
        gate.open.set()
        await session.close()

    async def test_no_node_starts_after_the_first_error(self) -> None:
        gate = gates.Gate()
        g = small()
        g("gated", "TestGate", "y", key=gate.key, T=dtypes.float32)
        g("bad", "TestFail", "y", T=dtypes.float32)
        second = gates.Gate()
        g("never", "TestGate", "gated", key=second.key, T=dtypes.float32)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
                await session.run(["never:0", "bad:0"], {"x:0": X})
        assert second.count == 0
        assert gate.cancelled == gate.count

    async def test_many_waiting_kernels_are_cancelled_together(self) -> None:
        gate = gates.Gate()
        g = small()
        for i in range(100):
            g(f"g{i}", "TestGate", "y", key=gate.key, T=dtypes.float32)
        async with aexec.Session(g.graph()) as session:
            step = session.start([f"g{i}:0" for i in range(100)], {"x:0": X})
            while gate.count < 100:
                await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step
        assert gate.cancelled == 100


class TestDeadline:
    def test_deadline_ends_the_step_when_it_passes(self) -> None:
        async def main() -> None:
            g, gate = gated()
            async with aexec.Session(g.graph()) as session:
                loop = asyncio.get_running_loop()
                began = loop.time()
                with pytest.raises(errors.DeadlineExceededError, match="Timed out waiting for notification"):
                    await session.run("after:0", {"x:0": X}, options=aexec.RunOptions(timeout=3600))
                assert loop.time() - began == pytest.approx(3600)
                assert gate.cancelled == 1

        run_virtual(main())

    def test_session_timeout_ends_a_run(self) -> None:
        async def main() -> None:
            g, _ = gated()
            config = aexec.SessionConfig(operation_timeout=5)
            async with aexec.Session(g.graph(), config=config) as session:
                with pytest.raises(errors.DeadlineExceededError):
                    await session.run("after:0", {"x:0": X})

        run_virtual(main())

    def test_deadline_of_a_finished_run_is_forgotten(self) -> None:
        """When the deadline of a finished run passes, nothing happens."""

        async def main() -> None:
            g, gate = gated()
            async with aexec.Session(g.graph()) as session:
                step = session.start("after:0", {"x:0": X}, options=aexec.RunOptions(timeout=60))
                asyncio.get_running_loop().call_later(59, gate.open.set)
                value = await step
                await asyncio.sleep(2)
                assert value.tolist() == (await session.run("after:0", {"x:0": X})).tolist()
                assert step.state.value == "succeeded"

        run_virtual(main())


class TestClose:
    async def test_close_cancels_and_waits(self) -> None:
        g, gate = gated()
        session = aexec.Session(g.graph())
        step = session.start("after:0", {"x:0": X})
        await gate.entered.wait()
        await session.close()
        assert step.state.value == "cancelled"
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await step
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await session.run("y:0", {"x:0": X})
        await session.close()

    async def test_kernel_that_refuses_to_end_is_waited_for(self) -> None:
        released = asyncio.Event()
        entered = asyncio.Event()

        @aexec.op(f"Stubborn{time.monotonic_ns()}(x: float) -> y: float", stateful=True)
        async def stubborn(x: Any) -> Any:
            entered.set()
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            return x

        with aexec.Graph() as graph:
            y = stubborn(aexec.constant([1.0]), name="y")
        session = aexec.Session(graph)
        step = session.start(y)
        await entered.wait()
        closing = asyncio.create_task(session.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        released.set()
        await closing
        assert step.done


class TestOwnership:
    def test_another_loop_is_refused(self) -> None:
        session = aexec.Session(small().graph())
        asyncio.run(session.run("y:0", {"x:0": X}))

        async def other() -> None:
            with pytest.raises(errors.FailedPreconditionError, match="belongs to the event loop"):
                await session.run("y:0", {"x:0": X})
            session._loop = asyncio.get_running_loop()
            await session.close()

        asyncio.run(other())

    async def test_closing_on_another_loop_is_refused(self) -> None:
        async with aexec.Session(small().graph()) as session:
            await session.run("y:0", {"x:0": X})
            with pytest.raises(errors.FailedPreconditionError, match="which has to close it"):
                await asyncio.to_thread(asyncio.run, session.close())
            await session.run("y:0", {"x:0": X})

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_forked_child_is_refused(self) -> None:
        session = aexec.Session(small().graph())
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(session.run("y:0", {"x:0": X}))
                os.write(write, b"no error")
            except errors.FailedPreconditionError as error:
                os.write(write, error.message.encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        message = os.read(read, 1000).decode()
        os.close(read)
        os.close(write)
        assert "spawn" in message


class TestQueues:
    @pytest.mark.parametrize("pruned", [False, True])
    async def test_queue_is_available_while_a_large_graph_is_planned(self, pruned: bool) -> None:
        """A thread holds the planner; the loop does not wait for it."""
        g = small()
        g("q", "FIFOQueueV2", component_types=[dtypes.float32], capacity=3)
        config = aexec.SessionConfig(place_pruned_graph=pruned)
        async with aexec.Session(g.graph(), config=config) as session:
            with session._planner._work.lock:
                queue = session.queue("q")
                await queue.put(np.float32(7))
            assert len(session.queue("q")) == 1
            assert await queue.get() == 7


class TestThreads:
    async def test_other_threads_may_run(self) -> None:
        async with aexec.Session(small().graph()) as session:
            out = await asyncio.to_thread(lambda: session.run_threadsafe("y:0", {"x:0": X}).result(10))
            assert out.tolist() == [2, 3]

    async def test_errors_reach_the_other_thread(self) -> None:
        async with aexec.Session(small().graph()) as session:
            future = await asyncio.to_thread(session.run_threadsafe, "nobody:0")
            with pytest.raises(errors.NotFoundError, match="nobody"):
                await asyncio.wrap_future(future)

    async def test_cancelling_the_future_cancels_the_step(self) -> None:
        g, gate = gated()
        async with aexec.Session(g.graph()) as session:
            future = await asyncio.to_thread(session.run_threadsafe, "after:0", {"x:0": X})
            await gate.entered.wait()
            assert await asyncio.to_thread(future.cancel)
            while session.steps:
                await asyncio.sleep(0)
            assert gate.cancelled == 1

    async def test_thread_of_the_loop_is_refused(self) -> None:
        async with aexec.Session(small().graph()) as session:
            with pytest.raises(errors.FailedPreconditionError, match="for other threads than that of"):
                session.run_threadsafe("y:0", {"x:0": X})

    def test_session_without_a_running_loop_is_refused(self) -> None:
        session = aexec.Session(small().graph())
        with pytest.raises(errors.FailedPreconditionError, match="belongs to no event loop that runs"):
            session.run_threadsafe("y:0", {"x:0": X})


class TestHeavyFeeds:
    """Feeds that take long to convert are converted in a worker thread."""

    @staticmethod
    def graph() -> aexec.Graph:
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32)
        g("y", "Size", "x", T=dtypes.float32, out_type=dtypes.int32)
        g.placeholder("s", dtypes.string)
        g("n", "Size", "s", T=dtypes.string, out_type=dtypes.int32)
        return g.graph()

    @pytest.mark.parametrize(
        ("fetch", "feed", "value", "threads"),
        [
            ("y:0", "x:0", np.zeros(1_000_000, np.float64), 1),
            ("y:0", "x:0", np.zeros(1_000_000, np.float32), 0),
            ("y:0", "x:0", np.zeros(1000, np.float64), 0),
            ("n:0", "s:0", np.full(20_000, b"x", object), 1),
            ("n:0", "s:0", np.full(20, b"x", object), 0),
        ],
    )
    async def test_heavy_feeds_are_converted_in_threads_by_type_and_size(
        self, fetch: str, feed: str, value: Any, threads: int
    ) -> None:
        async with aexec.Session(self.graph()) as session:
            assert await session.run(fetch, {feed: value}) == value.size
            assert session.statistics().pool.submitted == threads

    async def test_invalid_heavy_feeds_are_refused(self) -> None:
        async with aexec.Session(self.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="s:0"):
                await session.run("n:0", {"s:0": np.full(20_000, 1.5, object)})
            assert await session.run("n:0", {"s:0": ["a"]}) == 1

    async def test_cancelling_does_not_wait_for_heavy_feeds(self) -> None:
        entered, leave = threading.Event(), threading.Event()

        async with aexec.Session(self.graph()) as session:
            pool_submit = session._pools.first.submit

            def submit(loop: Any, call: Any, args: Any, done: Any) -> Any:
                def held(*inputs: Any) -> Any:
                    entered.set()
                    leave.wait()
                    return call(*inputs)

                return pool_submit(loop, held, args, done)

            session._pools.first.submit = submit  # type: ignore[method-assign]
            step = session.start("y:0", {"x:0": np.zeros(1_000_000)})
            await asyncio.to_thread(entered.wait)
            step.cancel("enough")
            with pytest.raises(errors.CancelledError, match="enough"):
                await step
            leave.set()


class TestLoopFairness:
    async def test_other_tasks_run_during_a_long_inline_step(self) -> None:
        turns = 0
        done = False

        async def ticker() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        async with aexec.Session(counting_loop().graph()) as session:
            task = asyncio.create_task(ticker())
            assert await session.run("result:0", {"n:0": 2000}) == 2000
            done = True
            await task
        assert turns > 5

    async def test_caller_in_a_loop_cannot_starve_other_tasks(self) -> None:
        """Runs that take at least 0.3 ms each: after at most four the slice of 1 ms is over, and others have the loop.

        On a busy machine runs take longer, and the slice is over after fewer.
        """
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g("y", "TestTakesTime", "x")
        turns = 0

        async def ticker() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        config = aexec.SessionConfig(slice_seconds=1e-3)
        async with aexec.Session(g.graph(), config=config) as session:
            await session.run("y:0", {"x:0": X})
            task = asyncio.create_task(ticker())
            await asyncio.sleep(0)
            before = turns
            for _ in range(100):
                await session.run("y:0", {"x:0": X})
            assert turns - before >= 24
            task.cancel()


class TestMetadata:
    async def test_step_stats(self) -> None:
        metadata = aexec.RunMetadata()
        async with aexec.Session(small().graph()) as session:
            await session.run("z:0", {"x:0": X}, options=aexec.RunOptions(trace=True), metadata=metadata)
        assert metadata.step_stats is not None
        names = {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}
        assert {"y", "z"} <= names

    async def test_step_ends_when_its_metadata_cannot_be_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: Any) -> Any:
            raise RuntimeError("no graphs today")

        monkeypatch.setattr(SessionSteps, "executed_graphs", fails)
        options = aexec.RunOptions(output_partition_graphs=True)
        async with aexec.Session(small().graph()) as session:
            with pytest.raises(RuntimeError, match="no graphs today"):
                await session.run("y:0", {"x:0": X}, options=options)
            assert session.steps == ()

    async def test_partition_graphs(self) -> None:
        metadata = aexec.RunMetadata()
        options = aexec.RunOptions(output_partition_graphs=True)
        async with aexec.Session(small().graph()) as session:
            await session.run("y:0", {"x:0": X}, options=options, metadata=metadata)
        assert {n.name for n in metadata.partition_graphs[0].node} >= {"y"}
        assert "z" not in {n.name for n in metadata.partition_graphs[0].node}


async def test_session_factories_are_found_by_target() -> None:
    with pytest.raises(errors.NotFoundError, match="No session class"):
        aexec.Session(small().graph(), "grpc://localhost:1")


class TestWarmUp:
    async def test_runs_until_the_plan_is_compiled(self) -> None:
        async with aexec.Session(small().graph()) as session:
            await session.warm_up(x=X)
            assert session.statistics().runs == 5
            assert session.statistics().plans == 1
            await session.call(x=X)
            assert session.statistics().plans == 1

    async def test_warm_up_without_inputs_makes_plans(self) -> None:
        async with aexec.Session(small().graph()) as session:
            await session.warm_up()
            assert (session.statistics().runs, session.statistics().plans) == (0, 1)
            await session.call(x=X)
            assert session.statistics().plans == 1

    async def test_warm_up_of_a_model_plans_all_signatures(self, tmp_path: Any) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", [None], name="x")
            y, z = aexec.ops.square(x, name="y"), aexec.ops.neg(x, name="z")
        signatures = {"a": Signature.of({"x": x}, {"y": y}), "b": Signature.of({"x": x}, {"z": z})}
        async with aexec.Session(MetaGraph(graph, signatures=signatures)) as session:
            await session.warm_up()
            assert session.statistics().plans == 2
            with pytest.raises(errors.NotFoundError, match="'c'"):
                await session.warm_up("c")


# Copies


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_session_is_not_copied(copied: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is one error; no half-made object raises another when it is collected."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    session = aexec.Session(aexec.Graph())
    with pytest.raises(TypeError, match="A session cannot be copied or pickled"):
        copied(session)
    gc.collect()
    assert not ignored


def test_unfinished_objects_are_collected_without_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes with a finaliser, instantiated without `__init__`."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    found = [cls for cls in _classes() if "__del__" in vars(cls)]
    assert {SessionLife} < set(found)
    for cls in found:
        cls.__new__(cls)
        assert not ignored, cls


def _classes() -> set[type]:
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "aexec"]
    classes = {item for module in modules for item in vars(module).values() if isinstance(item, type)}
    return {cls for cls in classes if cls.__module__.startswith("aexec")}
