"""What sessions of this process and of a server do alike."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pandas
import pyarrow
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.remote.remote_session import RemoteSession
from aexec.runtime.session.step_view import StepState
from tests.remote.conftest import Open
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


class DLPackArray:
    """An array of a library that nobody knows."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def small() -> aexec.Graph:
    """`y` is the square of `x`, `total` their sum; `v` counts."""
    with aexec.Graph() as graph:
        x = aexec.placeholder(aexec.float32, [None], name="x")
        aexec.ops.square(x, name="y")
        aexec.ops.sum(x, aexec.constant(0), name="total")
        aexec.ops.no_op(name="nothing")
    return graph


def waiting(gate: gates.Gate) -> aexec.Graph:
    g = GraphBuilder()
    g.const("c", 1.5, dtypes.float32)
    g("y", "TestGate", "c", key=gate.key, T=dtypes.float32)
    return g.graph()


async def test_run(open_session: Open) -> None:
    session = await open_session(small())
    y = await session.run("y:0", {"x:0": [1, 2]})
    assert (y.dtype, y.tolist()) == (np.float32, [1, 4])
    got = await session.run({"all": ["y:0", "total:0"], "op": session.graph.node("nothing")}, {"x": np.arange(3.0)})
    assert got["all"][0].tolist() == [0, 1, 4]
    assert (type(got["all"][1]), got["all"][1], got["op"]) == (np.float32, 3, None)
    assert await session.run([]) == []


async def test_tensors_and_operations_as_keys(open_session: Open) -> None:
    graph = small()
    session = await open_session(graph)
    x, y = graph.tensor("x:0"), graph.tensor("y:0")
    assert (await session.run(y, {x: [3.0]}, [graph.node("nothing")])).tolist() == [9]
    with pytest.raises(errors.InvalidArgumentError, match="is not an element of this graph"):
        await session.run(small().tensor("y:0"))


@pytest.mark.parametrize(
    "value",
    [
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array([[1 + 2j]], np.complex64),
        np.array([b"\xff", b""], object),
        np.array([2**63], np.uint64),
        np.array([True, False]),
        np.array([1, -2], np.float16),
        np.zeros((0, 3), np.int8),
        np.arange(400_000, dtype=np.float64),
    ],
    ids=lambda value: str(value.dtype),
)
async def test_types(open_session: Open, value: Any) -> None:
    dtype = dtypes.string if value.dtype.kind == "O" else dtypes.as_dtype(value.dtype)
    g = GraphBuilder()
    g.placeholder("x", dtype)
    g("y", "Identity", "x", T=dtype)
    session = await open_session(g.graph())
    got = await session.run("y:0", {"x:0": value})
    assert (got.dtype, got.shape) == (value.dtype, value.shape)
    assert np.array_equal(got, value)


async def test_arrays_of_other_libraries(open_session: Open) -> None:
    session = await open_session(small())
    for value in (pandas.Series([1.0, 2.0]), pyarrow.array([1.0, 2.0]), DLPackArray(np.array([1.0, 2.0]))):
        assert (await session.run("y:0", {"x:0": value})).tolist() == [1, 4]
        assert (await session.start("y:0", {"x:0": value})).tolist() == [1, 4]
        assert (await session.make_callable("y:0", ["x:0"])(value)).tolist() == [1, 4]
        assert (await known(session.tensors.get(await session.tensors.put(value)))).tolist() == [1, 2]
    with pytest.raises(errors.InvalidArgumentError, match=r"of type pyarrow.DoubleArray, is no tensor: 1 of"):
        await session.run("y:0", {"x:0": pyarrow.array([1.0, None])})


async def test_types_that_stand_for_several_tensors(open_session: Open) -> None:
    with aexec.Graph() as graph:
        values, indices = aexec.placeholder("float32", name="values"), aexec.placeholder("int32", name="indices")
        rows = aexec.IndexedSlices(values * 2.0, indices * 1)
    session = await open_session(graph)
    got = await session.run(rows, {aexec.IndexedSlices(values, indices): aexec.IndexedSlices([1.0], [3])})
    assert (type(got), got.values.tolist(), got.indices.tolist()) == (aexec.IndexedSlices, [2], [3])
    step = await session.partial_run_setup(rows, [aexec.IndexedSlices(values, indices)])
    got = await session.partial_run(step, rows, {aexec.IndexedSlices(values, indices): ([1.0], [3])})
    assert got.values.tolist() == [2]


@pytest.mark.parametrize(
    ("fetch", "feeds", "error", "message"),
    [
        ("z:0", {}, errors.NotFoundError, "z"),
        ("y:0", {}, errors.InvalidArgumentError, "You must feed a value for placeholder tensor 'x'"),
        ("y:0", {"x:0": [[1.0]]}, errors.InvalidArgumentError, "Cannot feed value of shape"),
        ("y:0", {"x:0": "text"}, errors.InvalidArgumentError, "x:0"),
    ],
)
async def test_errors(open_session: Open, fetch: str, feeds: Any, error: type[Exception], message: str) -> None:
    session = await open_session(small())
    with pytest.raises(error, match=message):
        await session.run(fetch, feeds)
    assert not session.steps


async def test_kernels_error_names_its_node(open_session: Open) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("fails", "CheckNumerics", "x", T=dtypes.float32, message="not a number")
    session = await open_session(g.graph())
    with pytest.raises(errors.InvalidArgumentError, match="not a number") as failed:
        await session.run("fails:0", {"x:0": float("nan")})
    assert (failed.value.node, failed.value.op) == ("fails", "CheckNumerics")


async def test_callables(open_session: Open) -> None:
    session = await open_session(small())
    call = session.make_callable(["y:0", "total:0"], ["x:0"])
    assert (call.fetches, call.feeds) == (("y:0", "total:0"), ("x:0",))
    for n in range(3):
        y, total = await call([float(n)])
        assert (y.tolist(), total) == ([n * n], n)
    with pytest.raises(errors.InvalidArgumentError, match="Expected 1 feed tensors, but got 0"):
        await call()
    call.release()
    with pytest.raises(errors.InvalidArgumentError, match="after handle was released"):
        await call([1.0])


async def test_signatures(open_session: Open) -> None:
    session = await open_session(small())
    assert not session.signatures
    assert {name: str(info) for name, info in session.inputs.items()} == {"x": "x:0  float[?]"}
    got = await session.call(x=[2.0])
    assert (got["y"].tolist(), got["total"]) == ([4], 2)


async def test_notebooks_show_sessions_and_steps(open_session: Open) -> None:
    gate = gates.Gate()
    session = await open_session(waiting(gate))
    step = session.start("y:0")
    await gate.entered.wait()
    shown = session._repr_html_()
    assert ">y:0<" in shown and ">running<" in shown and ">running<" in step._repr_html_()
    step.cancel("enough <seen>")
    with pytest.raises(errors.CancelledError):
        await step
    assert "enough &lt;seen&gt;" in step._repr_html_() and ">running<" not in session._repr_html_()


async def test_warm_up(open_session: Open) -> None:
    session = await open_session(small())
    await session.warm_up(x=[1.0])
    await session.warm_up(None, {"x": [2.0]}, runs=1, options=aexec.RunOptions(timeout=60))
    with pytest.raises(errors.InvalidArgumentError, match="no input 'z'"):
        await session.warm_up(z=[1.0])


async def test_traces(open_session: Open) -> None:
    session = await open_session(small())
    metadata = aexec.RunMetadata()
    await session.run("y:0", {"x:0": [1.0]}, options=aexec.RunOptions(trace=True), metadata=metadata)
    assert metadata.chrome_trace()["traceEvents"]


async def test_deadlines(open_session: Open) -> None:
    gate = gates.Gate()
    session = await open_session(waiting(gate))
    with pytest.raises(errors.DeadlineExceededError):
        await session.run("y:0", options=aexec.RunOptions(timeout=0.01))
    assert gate.cancelled == 1


async def test_step_is_cancelled(open_session: Open) -> None:
    gate = gates.Gate()
    session = await open_session(waiting(gate))
    step = session.start("y:0")
    await gate.entered.wait()
    assert (step.state, step.done, session.steps) == (StepState.RUNNING, False, (step,))
    assert step.cancel("changed my mind")
    assert not step.cancel()
    with pytest.raises(errors.CancelledError, match="changed my mind"):
        await step
    assert (step.state, step.done, session.steps, gate.cancelled) == (StepState.CANCELLED, True, (), 1)


async def test_cancelled_waiter_cancels_the_step(open_session: Open) -> None:
    gate = gates.Gate()
    session = await open_session(waiting(gate))
    task = asyncio.create_task(session.run("y:0"))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (gate.cancelled, session.steps) == (1, ())


async def test_closing_ends_steps(open_session: Open) -> None:
    gate = gates.Gate()
    session = await open_session(waiting(gate))
    step = session.start("y:0")
    await gate.entered.wait()
    await session.close()
    with pytest.raises(errors.CancelledError, match="closed"):
        await step
    assert gate.cancelled == 1
    with pytest.raises(errors.CancelledError, match="closed"):
        await session.run("y:0")
    await session.close()


async def test_steps_at_once(open_session: Open) -> None:
    session = await open_session(small())
    got = await asyncio.gather(*(session.run("total:0", {"x:0": [n]}) for n in range(50)))
    assert got == list(range(50))


async def test_extending(open_session: Open) -> None:
    graph = small()
    session = await open_session(graph)
    more = GraphBuilder()
    more("z", "Neg", "y", T=dtypes.float32)
    await session.extend(more.graph_def)
    assert (await session.run("z:0", {"x:0": [2.0]})).tolist() == [-4]


async def test_graph_that_grows(open_session: Open) -> None:
    graph = small()
    session = await open_session(graph)
    with graph:
        z = -graph.tensor("y:0")
    assert (await session.run(z, {"x:0": [2.0]})).tolist() == [-4]


# What the session keeps.  What asks a server is awaited, where this process knows it at once.


async def known(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def queues() -> aexec.Graph:
    """`q` has numbers, `pairs` vectors and strings."""
    g = GraphBuilder()
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]], capacity=3)
    g("pairs", "FIFOQueueV2", component_types=[dtypes.int64, dtypes.string], shapes=[[2], []])
    g("taken", "QueueDequeueV2", "q", component_types=[dtypes.float32])
    return g.graph()


async def test_queues(open_session: Open) -> None:
    session = await open_session(queues())
    q, pairs = session.queue("q"), session.queue("pairs")
    await q.put(1)
    await q.put_many([2.5, 3])
    assert await session.run("taken:0") == 1
    got = await q.get()
    assert (got, type(got)) == (2.5, np.float32)
    assert (await q.get_many(1)).tolist() == [3]
    await pairs.put(([1, 2], "one"))
    await pairs.put_many(([[3, 4], [5, 6]], [b"two", b"three"]))
    assert [part.tolist() for part in await pairs.get_many(2)] == [[[1, 2], [3, 4]], [b"one", b"two"]]
    vector, text = await pairs.get()
    assert (vector.tolist(), text) == ([5, 6], b"three")
    statistics = await known(pairs.statistics())
    assert (statistics.kind, statistics.enqueued, statistics.dequeued) == ("FIFOQueue", 3, 3)
    assert sorted(await known(session.queues())) == ["pairs", "q"]


async def test_waiting_at_queues(open_session: Open) -> None:
    session = await open_session(queues())
    q = session.queue("q")
    taking = asyncio.create_task(q.get())
    putting = asyncio.create_task(q.put(7))
    assert (await taking, await putting) == (7, None)
    waiting = asyncio.create_task(q.get_many(2))
    while not (await known(session.queue("q").statistics())).waiting_dequeues:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await q.put_many([1, 2])
    await q.close()
    with pytest.raises(errors.CancelledError, match="closed"):
        await q.put(3)
    assert [element async for element in q] == [1, 2]
    with pytest.raises(errors.OutOfRangeError, match="closed and has insufficient elements"):
        await q.get()


async def test_wrong_elements(open_session: Open) -> None:
    session = await open_session(queues())
    with pytest.raises(errors.InvalidArgumentError, match="Wrong number of components"):
        await session.queue("pairs").put((1, 2, 3))
    with pytest.raises(errors.InvalidArgumentError):
        await session.queue("q").put([1, 2])
    with pytest.raises(errors.NotFoundError, match="There is no queue 'none'"):
        await session.queue("none").get()


async def test_kept_tensors(open_session: Open) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("h", "GetSessionHandleV2", "x", T=dtypes.float32)
    g("y", "Square", "x", T=dtypes.float32)
    session = await open_session(g.graph())
    handle = await session.run("h:0", {"x:0": [1, 2]})
    assert (await known(session.tensors.get(handle))).tolist() == [1, 2]
    assert (await session.run("y:0", {"x:0": handle})).tolist() == [1, 4]
    own = await session.tensors.put(np.array([3, 4], np.float32), "50% mine")
    text = await session.tensors.put(["a", "ä"])
    assert (await session.run("y:0", {"x:0": own})).tolist() == [9, 16]
    assert (await known(session.tensors.get(text.name))).tolist() == [b"a", "ä".encode()]
    listed = await known(session.tensors.list())
    assert [(info.handle, info.dtype, info.shape) for info in listed] == [
        (handle.name, dtypes.float32, (2,)),
        (own.name, dtypes.float32, (2,)),
        (text.name, dtypes.string, (2,)),
    ]
    await known(session.tensors.delete(own))
    for lost in (own, "none;0;"):
        with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
            await known(session.tensors.get(lost))


def in_parts(gate: gates.Gate) -> aexec.Graph:
    g = GraphBuilder()
    for name in "abc":
        g.placeholder(name, dtypes.float32)
    g("r1", "Add", "a", "b", T=dtypes.float32)
    g("r2", "Mul", "r1", "c", T=dtypes.float32)
    g("waits", "TestGate", "r1", key=gate.key, T=dtypes.float32)
    return g.graph()


async def test_partial_runs(open_session: Open) -> None:
    graph = in_parts(gates.Gate())
    session = await open_session(graph)
    setup = await session.partial_run_setup(["r1:0", "r2:0"], ["a:0", "b", graph.tensor("c:0")])
    assert await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2}) == 3
    got = await session.partial_run(setup.handle, {"product": "r2:0"}, {graph.tensor("c:0"): 5})
    assert got == {"product": 15}
    with pytest.raises(errors.InvalidArgumentError, match="Must run 'setup'"):
        await session.partial_run(setup, "r2:0")
    with pytest.raises(errors.NotFoundError, match="none"):
        await session.partial_run_setup(["none:0"])


async def test_refused_parts(open_session: Open) -> None:
    session = await open_session(in_parts(gates.Gate()))
    setup = await session.partial_run_setup(["r1:0"], ["a:0", "b:0"])
    for fetches, feeds, message in (
        ("r2:0", {}, "r2:0 was not specified in partial_run_setup"),
        ("r1:0", {"c:0": 1}, "c:0 was not specified in partial_run_setup"),
        ("r1:0", {"a:0": 1}, "can't be computed"),
        ("r1", {"a:0": 1}, "requires empty target_list"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            await session.partial_run(setup, fetches, feeds)
    assert await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2}) == 3


async def test_feed_that_is_named_twice_is_refused(open_session: Open) -> None:
    graph = in_parts(gates.Gate())
    a, b = graph.tensor("a:0"), graph.tensor("b:0")
    session = await open_session(graph)
    with pytest.raises(errors.InvalidArgumentError, match='"a:0" fed more than once'):
        await session.run("r1:0", {a: 1, "a:0": 2, b: 3})
    with pytest.raises(errors.InvalidArgumentError, match='"a:0" fed more than once'):
        await session.make_callable("r1:0", [a, "a:0", b])(1, 2, 3)
    with pytest.raises(errors.InvalidArgumentError, match='"a:0" fed more than once'):
        await session.partial_run_setup(["r1:0"], [a, "a:0", b])
    setup = await session.partial_run_setup(["r1:0"], [a, b])
    with pytest.raises(errors.InvalidArgumentError, match='"a:0" fed more than once'):
        await session.partial_run(setup, "r1:0", {a: 1, "a:0": 2, b: 3})
    with pytest.raises(errors.InvalidArgumentError, match='"a:0" fed more than once'):
        await session.partial_run(setup, "r1:0", {"a": 1, "a:0": 2, b: 3})
    assert await session.partial_run(setup, "r1:0", {b: 2, a: 1}) == 3


async def test_input_that_is_given_twice_is_refused(open_session: Open) -> None:
    session = await open_session(small())
    with pytest.raises(errors.InvalidArgumentError, match="input 'x' is given twice"):
        await session.call(None, {"x": [1]}, x=[2])


async def test_partial_run_is_cancelled(open_session: Open) -> None:
    gate = gates.Gate()
    session = await open_session(in_parts(gate))
    setup = await session.partial_run_setup(["waits:0"], ["a:0", "b:0"])
    part = asyncio.create_task(session.partial_run(setup, "waits:0", {"a:0": 1, "b:0": 2}))
    await gate.entered.wait()
    assert setup.cancel("enough")
    with pytest.raises(errors.CancelledError, match="enough"):
        await part
    assert gate.cancelled == 1
    setup = await session.partial_run_setup(["r1:0"], ["a:0", "b:0"], options=aexec.RunOptions(timeout=0.001))
    while session.steps or (isinstance(session, RemoteSession) and await session.runs()):
        await asyncio.sleep(0)
    with pytest.raises((errors.DeadlineExceededError, errors.InvalidArgumentError)):  # late, or over
        await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2})


async def test_containers_are_dropped(open_session: Open) -> None:
    session = await open_session(queues())
    await session.queue("q").put(1)
    await session.reset()
    assert not await known(session.queues())
    with pytest.raises(errors.InvalidArgumentError, match="invalid characters"):
        await session.reset(["a b"])
