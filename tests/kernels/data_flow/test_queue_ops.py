"""Kernels of queues: which there are, what they refuse, in TensorFlow's words, and what they copy."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.queues.kinds import queue_kinds
from tests.kernels import harness
from tests.support import gates  # noqa: F401  (registers TestFail)
from tests.support.waiting import until

QUEUES = ("FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue", "PriorityQueue")


def test_kernels_are_those_of_tensorflow() -> None:
    assert set(QUEUES) == set(queue_kinds())
    for op in harness.ops_of("data_flow.queue_ops"):
        assert harness.registered(op) == harness.in_tensorflow(op), op
    assert {f"{kind}{version}" for kind in QUEUES for version in ("", "V2")} < set(
        harness.ops_of("data_flow.queue_ops")
    )


MAKE = {
    "fifo": ops.fifo_queue_v2,
    "pad": ops.padding_fifo_queue_v2,
    "rand": ops.random_shuffle_queue_v2,
    "prio": ops.priority_queue_v2,
}


def make(kind: str = "fifo", types: Any = ("float32",), shapes: Any = ([],), capacity: int = 10, **attrs: Any) -> Any:
    return MAKE[kind](component_types=list(types), shapes=list(shapes), capacity=capacity, **attrs)


async def refused(build: Any, message: str, *, error: type[errors.OpError] = errors.InvalidArgumentError) -> None:
    with aexec.Graph() as graph:
        built = build()
        node = built[0].node if isinstance(built, list) else built if isinstance(built, aexec.Node) else built.node
    async with aexec.Session(graph) as session:
        with pytest.raises(error) as caught:
            await session.run([], targets=[node])
    assert message in caught.value.message


def placeholder_with(value: Any, dtype: str = "int32") -> Any:
    return ops.placeholder_with_default(aexec.constant(value, dtype), shape=PartialTensorShape(None))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make(shapes=([], [])), "Different number of component types"),
        (lambda: make(shapes=([None],)), "Shape [?] is not fully defined"),
        (lambda: make("pad", shapes=(None,)), "must have known rank"),
        (
            lambda: make("pad", shapes=()),
            "Shapes must be provided for all components, but received 1 dtypes and 0 shapes.",
        ),
        (lambda: make("rand", capacity=3, min_after_dequeue=3), "min_after_dequeue 3 must be < capacity 3"),
        (lambda: make("rand", min_after_dequeue=-1), "min_after_dequeue -1 must be >= 0"),
        (lambda: make(shared_name="_x"), "shared_name cannot start with '_'"),
        (
            lambda: ops.queue_enqueue_v2(make(), [aexec.constant(1)]),
            "Signature mismatch, have: resource, int32-> expected: resource, float->",
        ),
        (lambda: ops.queue_enqueue_v2(make(), [aexec.constant(1.0)] * 2), "Signature mismatch"),
        (
            lambda: ops.queue_dequeue_v2(make(), component_types=["int32"]),
            "Signature mismatch, have: resource->int32 expected: resource->float",
        ),
        (
            lambda: ops.queue_dequeue_many_v2(make(), 3, component_types=["int32"]),
            "Signature mismatch, have: resource, int32->int32 expected: resource, int32->float",
        ),
        (
            lambda: ops.queue_enqueue_v2(make(shapes=([2],)), [aexec.constant([1.0, 2.0, 3.0])]),
            "Shape mismatch in tuple component 0. Expected [2], got [3]",
        ),
        (
            lambda: ops.queue_enqueue_many_v2(make(shapes=([2],)), [aexec.constant([1.0, 2.0, 3.0])]),
            "Shape mismatch in tuple component 0. Expected [3,2], got [3]",
        ),
        (
            lambda: ops.queue_enqueue_many_v2(make(), [aexec.constant(1.0)]),
            "Component 0 is a scalar",
        ),
        (
            lambda: ops.queue_enqueue_many_v2(
                make(types=["float32"] * 2, shapes=()), [aexec.constant([1.0, 2.0]), aexec.constant([1.0])]
            ),
            "All input tensors must have the same size in the 0th dimension. Component 1 has 1, and should have 2",
        ),
        (
            lambda: ops.queue_enqueue_many_v2(
                make(types=["float32"] * 2, shapes=([], [])), [aexec.constant([1.0, 2.0]), aexec.constant([1.0])]
            ),
            "Shape mismatch in tuple component 1. Expected [2], got [1]",
        ),
        (
            lambda: ops.queue_dequeue_up_to_v2(make("rand", shapes=()), 2, component_types=["float32"]),
            "RandomShuffleQueue's DequeueMany and DequeueUpTo require the components to have specified shapes.",
        ),
        (
            lambda: ops.queue_dequeue_many_v2(make(), placeholder_with(-2), component_types=["float32"]),
            "DequeueManyOp requested -2 < 0 elements",
        ),
        (
            lambda: ops.queue_dequeue_up_to_v2(make(), placeholder_with(-2), component_types=["float32"]),
            "DequeueUpToOp requested -2 < 0 elements",
        ),
        (
            lambda: ops.queue_dequeue_many_v2(make(), placeholder_with([1, 2]), component_types=["float32"]),
            "n must be a scalar",
        ),
        (
            lambda: ops.queue_enqueue_v2(make("pad", shapes=([None, 2],)), [aexec.constant([[1.0]])]),
            "Shape mismatch in tuple component 0. Expected [?,2], got [1,1]",
        ),
        (
            lambda: ops.queue_enqueue_many_v2(make("pad", shapes=([None, 2],)), [aexec.constant([[1.0]])]),
            "Shape mismatch in tuple component 0. Expected [1,?,2], got [1,1]",
        ),
        (
            lambda: ops.queue_dequeue_v2(make(), component_types=["float32"], timeout_ms=5),
            "Timeout not supported yet.",
        ),
        (lambda: ops.queue_enqueue_v2(make(), [1.0], timeout_ms=5), "Timeout not supported yet."),
        (
            lambda: ops.queue_enqueue_v2(make("prio", shapes=()), [aexec.constant([1], "int64"), 1.0]),
            "Expected the priority element to be a scalar, but received shape: [1]",
        ),
        (
            lambda: ops.queue_enqueue_many_v2(make("prio", shapes=()), [aexec.constant([[1]], "int64"), [1.0]]),
            "Expected the priority element to be a scalar, but received shape: [1]",
        ),
    ],
)
async def test_refused(build: Any, message: str) -> None:
    await refused(build, message)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"capacity": 5}, "Shared queue 'sh' has capacity 10 but requested capacity was 5"),
        ({"capacity": -1}, {"capacity": 5}, "has capacity 2147483647 but requested capacity was 5"),
        ({}, {"kind": "rand"}, "Expected FIFOQueue, found RandomShuffleQueueV2"),
        ({"kind": "prio"}, {}, "Expected PriorityQueue, found FIFOQueueV2"),
        ({}, {"types": ["int32"]}, "has component types float but requested component types were int32"),
        ({}, {"shapes": ([2],)}, "has component shapes [[]] but requested component shapes were [[2]]"),
        (
            {"kind": "rand"},
            {"kind": "rand", "min_after_dequeue": 2},
            "has min_after_dequeue 0 but requested min_after_dequeue was 2.",
        ),
        (
            {"kind": "rand", "seed": 3},
            {"kind": "rand", "seed": 2, "seed2": 1},
            "has random seeds (3, 0) but requested seeds are (2, 1).",
        ),
    ],
)
async def test_nodes_that_share_a_queue_must_agree(first: Any, second: Any, message: str) -> None:
    with aexec.Graph() as graph:
        make(**first, shared_name="sh", name="first")
        make(**second, shared_name="sh", name="second")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["first"])
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run([], targets=["second"])
        assert message in caught.value.message
        assert caught.value.node == "second"
        assert session.queue("sh").resource is session.queue("first").resource


async def test_padded_and_unbounded_queues_are_shared_if_compatible() -> None:
    with aexec.Graph() as graph:
        make("pad", shapes=([None, 2],), capacity=-1, shared_name="sh", name="first")
        make("pad", shapes=([2, 2],), capacity=-5, shared_name="sh", name="second")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["first", "second"])
        first, second = session.queue("first"), session.queue("second")
        assert first.resource is second.resource
        assert first.statistics().capacity == 2**31 - 1
        await first.put(np.ones((1, 2)))
        assert second.statistics().size == 1


async def test_queue_that_is_not_there() -> None:
    with aexec.Graph() as graph:
        handle = aexec.placeholder("resource", [], name="h")
        ops.queue_size_v2(handle, name="size")
        make(name="q")
        ops.var_handle_op(dtype="float32", shape=[], name="v")
    async with aexec.Session(graph) as session:
        value = await session.run("q:0")
        assert await session.run("size:0", {"h:0": value}) == 0
        session.resources.clear()
        with pytest.raises(errors.NotFoundError):
            await session.run("size:0", {"h:0": value})
        with pytest.raises(errors.InvalidArgumentError):
            await session.run("size:0", {"h:0": await session.run("v:0")})


async def test_handles_of_the_first_kind() -> None:
    with aexec.Graph() as graph:
        new = make(name="new")
        old = ops.fake_queue(new, name="old")
        ops.queue_enqueue(old, [aexec.constant(2.0)], name="put")
        ops.queue_dequeue_v2(new, component_types=["float32"], name="get")
        ops.queue_is_closed(old, name="closed")
        ops.queue_close(old, name="close")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["put"])
        assert await session.run("get:0") == 2.0
        assert not await session.run("closed:0")
        await session.run([], targets=["close"])
        assert await session.run("closed:0")
        container, name = await session.run("old:0")
        assert (container, name) == (b"localhost", session.queue("new").name.encode())


@pytest.mark.parametrize("dtype", [t.name for t in dtypes.ALL if t not in (dtypes.resource, dtypes.variant)])
@pytest.mark.parametrize("kind", ["fifo", "pad"])
async def test_queue_takes_all_types(dtype: str, kind: str) -> None:
    kinds = dtypes.as_dtype(dtype)
    if kinds is dtypes.string:
        rows = harness.strings("a", "bc", "", "def", shape=(2, 2))
    else:
        rows = np.array([[0, 1], [1, 0]]).astype(kinds.np)
    with aexec.Graph() as graph:
        handle = make(kind, types=[dtype], shapes=([2],))
        x = aexec.placeholder(dtype, None, name="x")
        ops.queue_enqueue_many_v2(handle, [x], name="put")
        ops.queue_dequeue_many_v2(handle, 2, component_types=[dtype], name="get")
    async with aexec.Session(graph) as session:
        await session.run([], {"x:0": rows}, targets=["put"])
        got = await session.run("get:0")
        assert got.dtype == rows.dtype
        assert (got == rows).all()


async def test_fed_array_may_be_written_to_afterwards() -> None:
    with aexec.Graph() as graph:
        handle = make(shapes=([2],))
        x = aexec.placeholder("float32", None, name="x")
        ops.queue_enqueue_v2(handle, [x], name="put")
        ops.queue_enqueue_many_v2(handle, [x], name="put_many")
        ops.queue_dequeue_many_v2(handle, 3, component_types=["float32"], name="get")
    buffer = np.array([1, 2], np.float32)
    buffers = np.array([[3, 4], [5, 6]], np.float32)
    async with aexec.Session(graph) as session:
        await session.run([], {"x:0": buffer}, targets=["put"])
        await session.run([], {"x:0": buffers}, targets=["put_many"])
        buffer[:] = 0
        buffers[:] = 0
        assert (await session.run("get:0")).tolist() == [[1, 2], [3, 4], [5, 6]]


async def test_kernel_output_is_not_copied() -> None:
    addresses = []

    @aexec.op("QueueTestMake() -> y: float", stateful=True)
    def make_array() -> Any:
        array = np.arange(4, dtype=np.float32)
        addresses.append(array.ctypes.data)
        return array

    with aexec.Graph() as graph:
        handle = make(shapes=([4],), name="q")
        ops.queue_enqueue_v2(handle, [make_array()], name="put")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["put"])
        (kept,) = session.queue("q").resource.dequeue()
        assert [kept.ctypes.data] == addresses


async def test_much_data_is_copied_and_joined_in_threads() -> None:
    rows = np.arange(4 * 500_000, dtype=np.float32).reshape(4, -1)
    with aexec.Graph() as graph:
        handle = make(shapes=([500_000],), name="q")
        x = aexec.placeholder("float32", None, name="x")
        ops.queue_enqueue_many_v2(handle, [x], name="put")
        ops.queue_dequeue_many_v2(handle, 4, component_types=["float32"], name="get")
    async with aexec.Session(graph) as session:
        waiting = session.start("get:0")
        await asyncio.sleep(0)
        await session.run([], {"x:0": rows}, targets=["put"])
        assert (await waiting == rows).all()
        assert session.statistics().pool.submitted == 2


async def test_cancelled_step_gives_back_what_its_dequeue_had() -> None:
    with aexec.Graph() as graph:
        handle = make(name="q")
        ops.queue_dequeue_many_v2(handle, 3, component_types=["float32"], name="get")
        ops.queue_dequeue_v2(handle, component_types=["float32"], name="one")
    async with aexec.Session(graph) as session:
        queue = session.queue("q")
        await queue.put(1.0)
        await queue.put(2.0)
        step = session.start("get:0")
        await until(lambda: len(queue) == 0)
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert [await queue.get(), await queue.get()] == [1, 2]
        step = session.start("one:0")
        await asyncio.sleep(0)
        await queue.put(3.0)
        step.cancel()  # after the delivery, before the step's turn
        with pytest.raises(errors.CancelledError):
            await step
        assert await queue.get() == 3


async def test_padding_that_takes_too_much_memory_is_refused() -> None:
    with aexec.Graph() as graph:
        handle = make("pad", types=["int8"], shapes=([None] * 4,), name="q")
        ops.queue_dequeue_many_v2(handle, 4, component_types=["int8"], name="get")
    async with aexec.Session(graph) as session:
        queue = session.queue("q")
        for axis in range(4):
            await queue.put(np.zeros([50_000 if i == axis else 1 for i in range(4)], np.int8))
        with pytest.raises((errors.ResourceExhaustedError, errors.InvalidArgumentError)):
            await session.run("get:0")
        assert len(queue) == 4  # nothing was taken


async def test_traced_step_that_waits() -> None:
    with aexec.Graph() as graph:
        handle = make(name="q")
        ops.queue_dequeue_v2(handle, component_types=["float32"], name="one")
        ops.queue_dequeue_many_v2(handle, 2, component_types=["float32"], name="two")
    metadata = aexec.RunMetadata()
    async with aexec.Session(graph) as session:
        for fetch in ("one:0", "two:0"):
            step = session.start(fetch, options=aexec.RunOptions(trace=True), metadata=metadata)
            await asyncio.sleep(0)
            await session.queue("q").put_many([1, 2])
            assert await step is not None
            (device,) = metadata.step_stats.dev_stats
            (waited,) = (node for node in device.node_stats if node.node_name == fetch[:-2])
            assert waited.output[0].tensor_description.dtype == 1
            await session.queue("q").put(3)
            await session.queue("q").get_many(len(session.queue("q")))


async def test_many_small_rows_are_cut_in_a_thread() -> None:
    with aexec.Graph() as graph:
        handle = make(types=["int64", "string"], shapes=([], []), capacity=-1, name="q")
        x = aexec.placeholder("int64", None, name="x")
        ops.queue_enqueue_many_v2(handle, [x, ops.as_string(x)], name="put")
        ops.queue_dequeue_many_v2(handle, 20_000, component_types=["int64", "string"], name="get")
    async with aexec.Session(graph) as session:
        await session.run([], {"x:0": np.arange(20_000)}, targets=["put"])
        assert session.statistics().pool.submitted >= 1
        numbers, words = await session.run(["get:0", "get:1"])
        assert numbers.tolist() == [int(word) for word in words] == list(range(20_000))


async def test_more_rows_than_memory_are_refused() -> None:
    """They have no bytes, but each would be an object."""
    with aexec.Graph() as graph:
        handle = make(shapes=([0],), capacity=-1)
        x = aexec.placeholder("float32", None, name="x")
        ops.queue_enqueue_many_v2(handle, [x], name="put")
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="cutting a batch"):
            await session.run([], {"x:0": np.empty((2**50, 0), np.float32)}, targets=["put"])


async def test_sessions_in_different_loops_share_a_queue() -> None:
    def build() -> aexec.Graph:
        with aexec.Graph() as graph:
            handle = make(shared_name="across", name="q")
            ops.queue_dequeue_v2(handle, component_types=["float32"], name="get")
        return graph

    config = aexec.SessionConfig(share=("localhost",))

    async def elsewhere() -> None:
        async with aexec.Session(build(), config=config) as session:
            await session.queue("q").put(9)

    async with aexec.Session(build(), config=config) as session:
        waiting = session.start("get:0")
        await asyncio.sleep(0)
        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await waiting == 9


async def test_loop_empties_a_queue() -> None:
    """Each iteration waits on its own, and an error ends the loop."""
    frame = {"frame_name": "loop", "parallel_iterations": 1}
    with aexec.Graph() as graph:
        handle = make(types=["int32"], name="q")
        total = ops.enter(aexec.constant(0), **frame)
        inner = ops.enter(handle, is_constant=True, **frame)
        limit = ops.enter(aexec.constant(10), is_constant=True, **frame)
        merged, _ = ops.merge([total, total], name="merge")
        done, body = ops.switch(merged, ops.loop_cond(ops.less(merged, limit)))
        with aexec.control_dependencies([ops.identity(body)]):
            (taken,) = ops.queue_dequeue_v2(inner, component_types=["int32"])
        ops.next_iteration(ops.add_v2(body, taken), name="next")
        ops.exit(done, name="total")
    graph_def = graph.to_graph_def()
    for node in graph_def.node:
        if node.name == "merge":
            node.input[1] = "next"
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def)) as session:
        queue = session.queue("q")
        step = session.start("total:0")
        for value in (3, 3, 3, 3):
            await queue.put(value)
            await asyncio.sleep(0)
        assert await step == 12
        step = session.start("total:0")
        await queue.put(3)
        await queue.close()
        with pytest.raises(errors.OutOfRangeError) as caught:
            await step
        assert caught.value.op == "QueueDequeueV2"


async def test_batch_being_joined_in_a_thread_is_given_back_by_a_cancelled_step() -> None:
    with aexec.Graph() as graph:
        handle = make(shapes=([500_000],), name="q")
        ops.queue_dequeue_many_v2(handle, 3, component_types=["float32"], name="get")
    async with aexec.Session(graph) as session:
        queue = session.queue("q")
        for i in range(3):
            await queue.put(np.full(500_000, i, np.float32))
        step = session.start("get:0")
        await until(lambda: len(queue) == 0)
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert [(await queue.get())[0] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("there", [3, 1, 0])
async def test_batch_whose_step_fails_before_the_loop_gets_its_turn_has_taken_nothing(there: int) -> None:
    with aexec.Graph() as graph:
        handle = make(shapes=([500_000],), name="q")
        ops.queue_dequeue_many_v2(handle, 3, component_types=["float32"], name="get")
        ops.test_fail(aexec.constant(1.0), name="bad")
    async with aexec.Session(graph) as session:
        queue = session.queue("q")
        for _ in range(there):
            await queue.put(np.zeros(500_000, np.float32))
        with pytest.raises(errors.InvalidArgumentError):
            await session.run(["get:0", "bad:0"])
        assert len(queue) == there
        assert queue.statistics().waiting_dequeues == 0


async def test_batch_that_cannot_be_joined_is_given_back_in_a_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with aexec.Graph() as graph:
        handle = make(shapes=([500_000],), name="q")
        ops.queue_dequeue_many_v2(handle, 3, component_types=["float32"], name="get")
    async with aexec.Session(graph) as session:
        queue = session.queue("q")

        def fail(*_: Any) -> Any:
            raise MemoryError

        monkeypatch.setattr(queue.resource, "join", fail)
        step = session.start("get:0")
        for i in range(3):
            await queue.put(np.full(500_000, i, np.float32))
        with pytest.raises(errors.ResourceExhaustedError):
            await step
        assert [(await queue.get())[0] for _ in range(3)] == [0, 1, 2]
