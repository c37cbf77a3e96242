"""All classes of session do what the protocols promise, alike, and refuse what they do not promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors
from aexec.framework import dtypes
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.session_ways import NATIVE, WAYS, Asked

Kind = type[BaseException]

# Fetches and feeds that are refused.
WRONG: list[tuple[Any, dict[Any, Any]]] = [
    ("none:0", {}),
    ("none", {}),
    ("y:3", {"x:0": [1.0]}),
    ("y:0", {}),
    ("y:0", {"x:0": "text"}),
    ("y:0", {"x:0": [[1.0], [2.0, 3.0]]}),
    ("y:0", {"x:0": [[1.0]]}),
    ("checked:0", {"x:0": [np.nan]}),
    (3, {}),
]
WRONG_KEYS: list[dict[Any, Any]] = [{"none:0": [1.0]}, {"x:0": [1.0], "x": [1.0]}, {3: 1.0}]


def small() -> aexec.Graph:
    """`y` is the square of `x`, `z` its sum with `w`; `checked` fails for values that are not finite."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        w = aexec.placeholder("float32", [None], name="w")
        y = aexec.ops.square(x, name="y")
        aexec.ops.add(y, w, name="z")
        aexec.ops.check_numerics(x, message="is not finite", name="checked")
        aexec.ops.no_op(name="nothing")
    return graph


def waiting() -> aexec.Graph:
    """`y` is the square of `x`; `waits` takes an element of the queue `q`."""
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None], name="x"), name="y")
        queue = aexec.ops.fifo_queue_v2(component_types=[aexec.float32], shapes=[[]], name="q")
        aexec.ops.queue_dequeue_v2(queue, component_types=[aexec.float32], name="waits")
    return graph


@dataclass
class Opened:
    """A session of `small`, its graph, and whether it has aexec's own names."""

    asked: Asked
    way: str

    @property
    def session(self) -> Any:
        return self.asked.session

    @property
    def is_native(self) -> bool:
        return self.way in NATIVE


@pytest.fixture(params=WAYS)
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """One of every class."""
    async with WAYS[request.param](small(), tmp_path) as asked:
        yield Opened(asked, request.param)


@pytest.fixture(params=NATIVE)
async def native(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """One of every class with aexec's own names."""
    async with NATIVE[request.param](small(), tmp_path) as asked:
        yield Opened(asked, request.param)


@pytest.fixture(params=NATIVE)
async def with_queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """The same with the graph `waiting`."""
    async with NATIVE[request.param](waiting(), tmp_path) as asked:
        yield Opened(asked, request.param)


@pytest.fixture
async def reference() -> AsyncIterator[aexec.Session]:
    """The session whose messages all others must give."""
    async with aexec.Session(small()) as session:
        yield session


async def failure(awaitable: Awaitable[Any]) -> errors.OpError:
    with pytest.raises(errors.OpError) as caught:
        await awaitable
    return caught.value


def facts(error: errors.OpError) -> tuple[Any, ...]:
    """The message and the facts of an error, without the task of the cluster."""
    message = error.message
    if message.startswith("From /job:"):
        _, _, message = message.partition(":\n")
    return error.code, message, error.node, error.op_type


class TestRunning:
    async def test_names_and_tensors_are_fetched_and_fed(self, opened: Opened) -> None:
        asked, graph = opened.asked, opened.session.graph
        x, y = graph.tensor("x:0"), graph.tensor("y:0")
        for fetches, feeds in (("y:0", {"x:0": [3]}), (y, {x: [3.0]}), (["y:0"], {"x:0": np.array([3.0])})):
            got = await asked.run(fetches, feeds)
            got = got[0] if type(fetches) is list else got
            assert (type(got), got.dtype, got.tolist()) == (np.ndarray, np.float32, [9])

    async def test_results_have_the_structure_of_the_fetches(self, opened: Opened) -> None:
        asked, feeds = opened.asked, {"x:0": [2.0], "w:0": [1.0]}
        got = await asked.run({"a": ["y:0", ("z:0", "y:0")], "op": "nothing"}, feeds)
        assert got["a"][0].tolist() == [4] and got["op"] is None
        assert type(got["a"][1]) is tuple and [v.tolist() for v in got["a"][1]] == [[5], [4]]
        assert await asked.run("nothing") is None
        assert await asked.run([]) == []

    async def test_errors_are_the_same_everywhere(self, opened: Opened, reference: aexec.Session) -> None:
        for fetches, feeds in WRONG:
            wanted = await failure(reference.run(fetches, feeds))
            assert facts(await failure(opened.asked.run(fetches, feeds))) == facts(wanted), (fetches, feeds)

    async def test_keys_of_feeds_that_are_no_tensors_are_refused(
        self, opened: Opened, reference: aexec.Session
    ) -> None:
        for feeds in WRONG_KEYS:
            error = await failure(opened.asked.run("y:0", feeds))
            if opened.is_native:
                assert facts(error) == facts(await failure(reference.run("y:0", feeds)))
            else:
                assert isinstance(error, TypeError) and "Cannot interpret feed_dict key as Tensor" in error.message

    async def test_tensor_that_is_fed_can_be_fetched_too(self, opened: Opened) -> None:
        for fetches in (["w:0"], ["w:0", "y:0"]):
            got = await opened.asked.run(fetches, {"w:0": [1], "x:0": [2]})
            assert (got[0].dtype, [value.tolist() for value in got]) == (np.float32, [[1], [4]][: len(fetches)])
        with pytest.raises(errors.InvalidArgumentError, match="w:0 is both fed and fetched"):
            await opened.asked.begin(opened.session.make_callable, ["w:0"], ["w:0"])

    async def test_graph_is_there(self, opened: Opened) -> None:
        names = {node.name for node in small().nodes}
        assert {node.name for node in opened.session.graph.nodes} == names
        assert {node.name for node in opened.session.graph_def.node} == names

    async def test_callable_runs_many_times(self, opened: Opened) -> None:
        asked = opened.asked
        call = await asked.begin(opened.session.make_callable, "z:0", ["x:0", "w:0"])
        for number in (1.0, 2.0, 3.0):
            assert await asked.ask(call, [number], [0.5]) == [number**2 + 0.5]
        with pytest.raises(errors.InvalidArgumentError, match="Expected 2 feed tensors, but got 1"):
            await asked.ask(call, [1.0])

    async def test_empty_callable_is_refused(self, opened: Opened, reference: aexec.Session) -> None:
        with pytest.raises(errors.InvalidArgumentError) as wanted:
            reference.make_callable([])
        error = await failure(opened.asked.begin(opened.session.make_callable, []))
        assert facts(error) == facts(wanted.value)

    async def test_partial_run_is_fed_bit_by_bit(self, opened: Opened) -> None:
        asked, session = opened.asked, opened.session
        setup = await asked.ask(session.partial_run_setup, ["y:0", "z:0"], ["x:0", "w:0"])
        assert await asked.ask(session.partial_run, setup, "y:0", {"x:0": [2.0]}) == [4]
        assert await asked.ask(session.partial_run, setup, ["z:0"], {"w:0": [1.0]}) == [[5]]


class TestClosing:
    async def test_closed_session_refuses(self, opened: Opened) -> None:
        asked, session = opened.asked, opened.session
        call = await asked.begin(session.make_callable, "y:0", ["x:0"])
        assert not session.closed
        await asked.run("y:0", {"x:0": [1.0]})
        await asked.close()
        await asked.close()
        assert session.closed
        kind: Kind = errors.CancelledError if opened.is_native else RuntimeError
        words = "Session has been closed." if opened.is_native else "Attempted to use a closed Session."
        for use in (
            asked.run("y:0", {"x:0": [1.0]}),
            asked.run([]),
            asked.ask(call, [1.0]),
            asked.begin(session.make_callable, "y:0", ["x:0"]),
            asked.ask(session.partial_run_setup, ["y:0"], ["x:0"]),
            asked.ask(session.partial_run, "handle", ["y:0"], {"x:0": [1.0]}),
        ):
            with pytest.raises(kind, match=words):
                await use

    async def test_closing_cancels_what_runs(self, opened: Opened, tmp_path: Path) -> None:
        begun = gates.ThreadGate()
        begun.open.set()
        g = GraphBuilder()
        g.const("c", 1.5, dtypes.float32)
        g("begun", "TestStatefulThreadGate", "c", key=begun.key, T=dtypes.float32)
        g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[])
        g("waits", "QueueDequeueV2", "q", "^begun", component_types=[dtypes.float32])
        async with WAYS[opened.way](g.graph(), tmp_path) as asked:
            running = asyncio.create_task(asked.run("waits:0"))
            assert await asyncio.to_thread(begun.entered.wait, 60)
            await asked.close()
            with pytest.raises(errors.CancelledError, match=r"[Ss]ession (has been|was) closed"):
                await running

    async def test_repr_tells_whether_it_is_closed(self, opened: Opened) -> None:
        await opened.asked.run("y:0", {"x:0": [1.0]})
        assert "closed" not in repr(opened.session) and "ession" in repr(opened.session)
        await opened.asked.close()
        assert "closed" in repr(opened.session)


class TestNative:
    async def test_targets_run_besides(self, native: Opened, reference: aexec.Session) -> None:
        asked, run = native.asked, native.session.run
        assert await asked.ask(run, "y:0", {"x:0": [2.0]}, ["nothing"]) == [4]
        assert await asked.ask(run, [], {}, "nothing") == []
        wanted = await failure(reference.run([], targets=["none"]))
        assert facts(await failure(asked.ask(run, [], targets=["none"]))) == facts(wanted)

    async def test_signature_is_called_by_name(self, native: Opened, reference: aexec.Session) -> None:
        asked, session = native.asked, native.session
        assert set(session.inputs) == {"x", "w"} and session.signatures == {}
        assert list(session.outputs) == list(reference.outputs) == list(session.signature().outputs)
        got = await asked.ask(session.call, x=[2.0], w=[1.0])
        assert got["z"].tolist() == [5] and set(got) == set(session.outputs)
        for inputs, named in (({"x": [1.0]}, {}), ({}, {"none": 1.0}), ({"x": [1.0]}, {"x": [1.0]})):
            wanted = await failure(reference.call(None, inputs, **named))
            assert facts(await failure(asked.ask(session.call, None, inputs, **named))) == facts(wanted)
        wanted = await failure(reference.call("none"))
        assert facts(await failure(asked.ask(session.call, "none"))) == facts(wanted)

    async def test_step_is_cancelled_by_whoever_holds_it(self, with_queue: Opened) -> None:
        asked = with_queue.asked
        step = await asked.begin(with_queue.session.start, "waits:0")
        assert len(with_queue.session.steps) == 1
        assert step.cancel("no more of it")
        assert not step.cancel()
        with pytest.raises(errors.CancelledError, match="no more of it"):
            await asked.result(step)
        assert with_queue.session.steps == ()
        step = await asked.begin(with_queue.session.start, "y:0", {"x:0": [2.0]})
        assert await asked.result(step) == [4]

    async def test_deadline_ends_a_run(self, with_queue: Opened) -> None:
        options = aexec.RunOptions(timeout=0.1)
        with pytest.raises(errors.DeadlineExceededError, match="Timed out waiting for notification"):
            await with_queue.asked.ask(with_queue.session.run, "waits:0", options=options)
        assert await with_queue.asked.run("y:0", {"x:0": [2.0]}) == [4]

    async def test_metadata_is_filled(self, native: Opened) -> None:
        metadata = aexec.RunMetadata()
        options = aexec.RunOptions(trace=True)
        await native.asked.ask(native.session.run, "y:0", {"x:0": [2.0]}, options=options, metadata=metadata)
        assert metadata.step_stats is not None
        names = {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}
        assert "y" in names

    async def test_graph_is_extended(self, native: Opened, reference: aexec.Session) -> None:
        asked, session = native.asked, native.session
        more = aexec.proto.GraphDef(versions=session.graph_def.versions)
        more.node.add(name="later", op="Neg", input=["y"]).attr["T"].type = 1
        await asked.ask(session.extend, more)
        assert await asked.run("later:0", {"x:0": [2.0]}) == [-4]
        await reference.extend(more)
        for bad in (more, 3, b"\xff"):
            wanted = await failure(reference.extend(bad))  # type: ignore[arg-type]
            assert facts(await failure(asked.ask(session.extend, bad))) == facts(wanted)

    async def test_queue_is_filled_and_reset(self, with_queue: Opened) -> None:
        asked, session = with_queue.asked, with_queue.session
        if with_queue.way in ("cluster", "replicated"):
            with pytest.raises(errors.UnimplementedError, match=r"Session.queue\('q'\) is not supported"):
                session.queue("q")
            return
        queue = await asked.begin(session.queue, "q")
        await asked.ask(queue.put, 2.5)
        queues = await asked.ask(session.queues)
        assert list(queues) == ["q"]
        await asked.ask(queues["q"].put, 1.5)
        assert await asked.ask(queue.get) == 2.5
        assert await asked.run("waits:0") == 1.5
        await asked.ask(queue.put, 2.5)
        assert await asked.run("waits:0") == 2.5
        await asked.ask(queue.put, 3.5)
        await asked.ask(session.reset)
        with pytest.raises(errors.DeadlineExceededError):
            await asked.ask(session.run, "waits:0", options=aexec.RunOptions(timeout=0.01))

    async def test_tensors_are_kept(self, native: Opened) -> None:
        asked = native.asked
        handle = await asked.ask(native.session.tensors.put, [1.5])
        got = await asked.ask(native.session.tensors.get, handle)
        assert got.tolist() == [1.5]

    async def test_devices_are_listed(self, native: Opened) -> None:
        devices = await native.asked.ask(native.session.devices)
        assert devices and all("CPU:0" in device.name for device in devices)

    async def test_warm_up_runs_with_inputs(self, native: Opened) -> None:
        await native.asked.ask(native.session.warm_up, None, {"x": [1.0], "w": [1.0]}, runs=2)


async def test_session_entered_again_stays_open(native: Opened) -> None:
    asked = native.asked
    if hasattr(type(native.session), "__aenter__"):
        entered = await asyncio.gather(native.session, native.session.__aenter__())
        assert entered == [native.session] * 2
    elif native.way == "sync":
        assert native.session.__enter__() is native.session
    else:
        with pytest.raises(errors.FailedPreconditionError, match="entered once"):
            native.session.__enter__()
    assert await asked.run("y:0", {"x:0": [2.0]}) == [4]


def test_blocking_session_that_is_not_entered_refuses() -> None:
    session = aexec.blocking(aexec.Session(small()))
    for use in (lambda: session.run("y:0"), lambda: session.graph, lambda: session.start("y:0"), session.devices):
        with pytest.raises(errors.FailedPreconditionError, match="is not open"):
            use()
    assert not session.closed


async def test_sessions_in_process_are_sessions(opened: Opened) -> None:
    in_process = opened.way in ("in process", "of a file", "of a model", "cluster", "replicated")
    assert isinstance(opened.session, aexec.Session) == in_process
    assert isinstance(opened.session, tf.Session) == (opened.way == "compat")


@pytest.mark.parametrize("way", [way for way in WAYS if way not in NATIVE])
async def test_unpromised_attributes_are_refused_by_name(way: str, tmp_path: Path) -> None:
    async with WAYS[way](small(), tmp_path) as asked:
        for name in ("start", "call", "extend", "reset", "queue", "devices", "signature", "none"):
            with pytest.raises(AttributeError, match=f"'{name}'"):
                getattr(asked.session, name)


async def test_native_session_refuses_unknown_names(native: Opened) -> None:
    with pytest.raises(AttributeError, match="'none'"):
        native.session.none
