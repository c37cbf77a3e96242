"""Callables: requests that are resolved once, their refusals, and their lifetime."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, chain
from tests.support.virtual_clock import run_virtual

pytestmark = pytest.mark.both_executors

F = dtypes.float32
X = np.array([1.0, 2.0], np.float32)


def graph(**more: Any) -> aexec.Graph:
    """s = x + y; p = x * y; noop after both."""
    g = GraphBuilder()
    g.placeholder("x", F, [None])
    g.placeholder("y", F, [None])
    g("s", "AddV2", "x", "y", T=F)
    g("p", "Mul", "x", "y", T=F)
    g("noop", "NoOp", "^s", "^p")
    for name, op in more.items():
        g(name, op, "s", T=F)
    return g.graph()


def gated() -> tuple[aexec.Graph, gates.Gate]:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x", F, [None])
    g("gated", "TestGate", "x", key=gate.key, T=F)
    return g.graph(), gate


class TestCalling:
    async def test_values_are_fed_in_order(self) -> None:
        async with aexec.Session(graph()) as session:
            call = session.make_callable("s:0", feeds=["y", "x:0"])
            np.testing.assert_array_equal(await call([1.0, 2.0], X), [2, 4])
            subtract = session.make_callable({"sum": "s:0", "both": ("p:0", "noop")}, ["x:0", "y:0"])
            out = await subtract(X, X)
            assert out["sum"].tolist() == [2, 4]
            assert out["both"][0].tolist() == [1, 4]
            assert out["both"][1] is None
            assert session.statistics().plans == 2

    async def test_callable_shows_its_fetches_feeds_and_targets(self) -> None:
        g = graph()
        async with aexec.Session(g) as session:
            call = session.make_callable([g.tensor("s:0"), "s:0", "p:0"], [g.tensor("x:0"), "y"], [g.node("noop")])
            assert call.fetches == ("s:0", "p:0")
            assert call.feeds == ("x:0", "y")
            assert call.targets == ("noop",)
            assert call.feed_dtypes == call.fetch_dtypes == (F, F)
            assert sorted(node.name for node in call.nodes) == ["noop", "p", "s"]
            assert call.plan is None
            await call(X, X)
            assert call.plan is not None
            assert repr(call) == "<SessionCallable x:0,y->s:0,p:0/noop/0/>"

    async def test_targets_alone(self) -> None:
        async with aexec.Session(graph()) as session:
            assert await session.make_callable([], ["x:0", "y:0"], "noop")(X, X) == []

    async def test_start_and_prepare(self) -> None:
        g, gate = gated()
        async with aexec.Session(g) as session:
            call = session.make_callable("gated:0", ["x:0"])
            step = call.start(X)
            await gate.entered.wait()
            assert session.steps == (step,)
            prepared = call.prepare(X)
            assert prepared.state.value == "pending"
            assert session.steps == (step,)
            gate.open.set()
            assert (await step).tolist() == [1, 2]
            assert (await prepared).tolist() == [1, 2]
            with pytest.raises(errors.FailedPreconditionError, match="has begun already"):
                await prepared

    def test_options_of_its_own_and_of_a_call(self) -> None:
        async def main() -> None:
            g, _ = gated()
            async with aexec.Session(g) as session:
                loop = asyncio.get_running_loop()
                call = session.make_callable("gated:0", ["x:0"], options=aexec.RunOptions(timeout=10))
                began = loop.time()
                with pytest.raises(errors.DeadlineExceededError):
                    await call(X)
                assert loop.time() - began == pytest.approx(10)
                with pytest.raises(errors.DeadlineExceededError):
                    await call.start(X, options=aexec.RunOptions(timeout=3))
                assert loop.time() - began == pytest.approx(13)

        run_virtual(main())

    async def test_metadata(self) -> None:
        metadata = aexec.RunMetadata()
        async with aexec.Session(graph()) as session:
            call = session.make_callable("s:0", ["x:0", "y:0"], options=aexec.RunOptions(trace=True))
            await call(X, X, metadata=metadata)
        assert metadata.step_stats is not None

    async def test_large_graphs_are_planned_once_beside_the_loop(self) -> None:
        async with aexec.Session(chain(1000).graph()) as session:
            call = session.make_callable("last:0", ["x:0"])
            x = np.zeros((4, 4), np.float32)
            results = await asyncio.gather(*(call(x) for _ in range(5)))
            assert all((r == 1000).all() for r in results)
            assert call.plan is not None
            assert session.statistics().plans == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("fetches", "feeds", "targets", "error", "words"),
        [
            ("nope:0", [], [], errors.NotFoundError, "FetchOutputs node nope:0: not found"),
            ("s:0", ["nope"], [], errors.NotFoundError, "FeedInputs node nope: not found"),
            ("s:0", [], ["nope"], errors.NotFoundError, "Some target nodes not found: nope"),
            ("s:1", [], [], errors.InvalidArgumentError, "must be < 1"),
            ("s:0", ["x", "x:0"], [], errors.InvalidArgumentError, "fed more than once"),
            ("x:0", ["x"], [], errors.InvalidArgumentError, "x:0 is both fed and fetched"),
            ([], [], [], errors.InvalidArgumentError, "at least one target"),
            ("s:0", [7], [], errors.InvalidArgumentError, "must be a tensor or its name, got 7"),
            ("s:0", [], [7], errors.InvalidArgumentError, "must be an operation or its name, got 7"),
        ],
    )
    async def test_unknown_names_are_refused_when_the_callable_is_made(
        self, fetches: Any, feeds: Any, targets: Any, error: Any, words: str
    ) -> None:
        async with aexec.Session(graph()) as session:
            with pytest.raises(error, match=words):
                session.make_callable(fetches, feeds, targets)

    @pytest.mark.parametrize(
        ("fetch", "feed", "words"),
        [
            ("far:0", "a", "FetchOutputs node far:0: not found (the graph's outputs: b:0, near:0)"),
            (
                "neer:0",
                "a",
                "FetchOutputs node neer:0: not found; did you mean 'near'? (the graph's outputs: b:0, near:0)",
            ),
            ("near", "q:0", "FeedInputs node q:0: not found (the graph's inputs: a:0)"),
        ],
    )
    async def test_error_of_a_wrong_name_lists_the_known_ones(self, fetch: str, feed: str, words: str) -> None:
        with aexec.Graph() as small:
            a = aexec.placeholder("float32", [], name="a")
            aexec.ops.neg(a, name="b")
            aexec.ops.square(a, name="near")
        async with aexec.Session(small) as session:
            with pytest.raises(errors.NotFoundError) as refused:
                session.make_callable(fetch, [feed])
        assert refused.value.message == words

    async def test_list_of_known_names_is_bounded(self) -> None:
        with aexec.Graph() as wide:
            for number in range(60):
                aexec.ops.neg(1.0, name=f"n{number}")
        async with aexec.Session(wide) as session:
            with pytest.raises(errors.NotFoundError, match=r"\(the graph's outputs: n0:0, .*, n49:0 and 10 others\)"):
                session.make_callable("far:0", [])
            with pytest.raises(errors.NotFoundError, match=r"\(the graph's inputs: none\)"):
                session.make_callable("n0:0", ["far:0"])

    async def test_tensors_of_another_graph(self) -> None:
        other = graph()
        async with aexec.Session(graph()) as session:
            for request in ((other.tensor("s:0"), []), ("s:0", [other.tensor("x:0")])):
                with pytest.raises(errors.InvalidArgumentError, match="not an element of this graph"):
                    session.make_callable(*request)

    async def test_wrong_number_of_values_is_refused(self) -> None:
        async with aexec.Session(graph()) as session:
            call = session.make_callable("s:0", ["x:0", "y:0"])
            for values in ((X,), (X, X, X)):
                with pytest.raises(
                    errors.InvalidArgumentError, match=f"Expected 2 feed tensors, but got {len(values)}"
                ):
                    await call(*values)
                with pytest.raises(errors.InvalidArgumentError, match="Expected 2 feed tensors"):
                    call.start(*values)
            with pytest.raises(errors.InvalidArgumentError, match="to be float but int32"):
                await call(X, X.astype(np.int32))
            assert session.statistics().runs == 1

    async def test_released_callable_is_refused(self) -> None:
        g, gate = gated()
        async with aexec.Session(g) as session:
            call = session.make_callable("gated:0", ["x:0"])
            step = call.start(X)
            await gate.entered.wait()
            call.release()
            call.release()
            with pytest.raises(errors.InvalidArgumentError, match="run callable after handle was released"):
                await call(X)
            gate.open.set()
            assert (await step).tolist() == [1, 2]

    async def test_callable_of_a_closed_session_is_refused(self) -> None:
        async with aexec.Session(graph()) as session:
            call = session.make_callable("s:0", ["x:0", "y:0"])
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await call(X, X)
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            session.make_callable("s:0")


class TestLife:
    async def test_callable_survives_an_extension(self) -> None:
        async with aexec.Session(graph()) as session:
            planned, unplanned = (session.make_callable("s:0", ["x:0", "y:0"]) for _ in range(2))
            await planned(X, X)
            more = GraphBuilder()
            more("w", "Neg", "s", T=F)
            await session.extend(more.graph_def)
            assert (await planned(X, X)).tolist() == (await unplanned(X, X)).tolist() == [2, 4]
            assert (await session.make_callable("w:0", ["s:0"])(X)).tolist() == [-1, -2]

    async def test_callables_of_one_signature_share_their_plan_which_ends_with_them(self) -> None:
        async with aexec.Session(graph()) as session:
            one, two = (session.make_callable(fetches, ["x:0", "y"]) for fetches in ("s:0", ["s:0"]))
            await one(X, X)
            await two(X, X)
            assert one.plan is two.plan
            one.release()
            assert session.statistics().plans == 1
            two.release()
            gc.collect()
            assert session.statistics().plans == 0

    async def test_prepared_step_does_not_delay_closing(self) -> None:
        session = aexec.Session(graph())
        prepared = session.make_callable("s:0", ["x:0", "y:0"]).prepare(X, X)
        await session.close()
        assert prepared.state.value == "pending"
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await prepared


class TestFedAndFetched:
    """`Session.run` returns a fed tensor from its feed, as TensorFlow's Python does."""

    async def test_fed_tensor_is_fetched_alone_and_with_others(self) -> None:
        async with aexec.Session(graph()) as session:
            fed = await session.run("x:0", {"x:0": [1, 2]})
            assert fed.dtype == np.float32
            assert fed.tolist() == [1, 2]
            out = await session.run(["s:0", "x:0", "p:0", "x:0"], {"y:0": X, "x": 2 * X})
            assert [value.tolist() for value in out] == [[3, 6], [2, 4], [2, 8], [2, 4]]

    async def test_fed_tensor_is_fetched_in_a_structure(self) -> None:
        @dataclasses.dataclass
        class Both:
            s: Any
            n: Any

        g = graph(n="Neg")
        async with aexec.Session(g) as session:
            for _ in range(2):
                out = await session.run(Both(g.tensor("s:0"), ["n:0"]), {g.tensor("s:0"): X})
                assert out.s.tolist() == [1, 2]
                assert out.n[0].tolist() == [-1, -2]

    async def test_fetched_feed_is_checked(self) -> None:
        async with aexec.Session(graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="x:0"):
                await session.run("x:0", {"x:0": "text"})

    async def test_partial_runs_refuse_fetched_feeds(self) -> None:
        async with aexec.Session(graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="both fed and fetched"):
                await session.partial_run_setup(["x:0", "s:0"], ["x:0"])


async def test_runs_of_one_request_share_a_callable() -> None:
    g = graph()
    async with aexec.Session(g) as session:
        feeds = {"x:0": X, "y:0": X}
        for fetches in ("s:0", ["s:0"], ("s:0",), g.tensor("s:0"), {"a": "s:0"}, {"b": ["s:0"]}):
            for targets in ([], (), ["noop"]):
                await session.run(fetches, feeds, targets)
                await session.run(fetches, feeds, targets)
        # Each flat form is looked up by itself, structures as the list of their names; plans are shared by all.
        assert len(session._callables._known) == 8
        assert session.statistics().plans == 2


def connectable() -> aexec.Graph:
    """y = 2 x; w = z + 1; v = -w; c is a constant; n negates it."""
    g = GraphBuilder()
    g.placeholder("x", F, [None])
    g.placeholder("z", F, [2])
    g.const("c", [5.0, 6.0], F)
    g.const("one", 1.0, F)
    g("y", "AddV2", "x", "x", T=F)
    g("w", "AddV2", "z", "one", T=F)
    g("v", "Neg", "w", T=F)
    g("n", "Neg", "c", T=F)
    g("shape", "Shape", "w", T=F, out_type=dtypes.int32)
    return g.graph()


def connected(*pairs: tuple[str, str], feeds: tuple[str, ...] = ("x:0",), fetches: tuple[str, ...] = ("w:0",)) -> Any:
    message = aexec.proto.CallableOptions(feed=feeds, fetch=fetches)
    for source, replaced in pairs:
        message.tensor_connection.add(from_tensor=source, to_tensor=replaced)
    return message


class TestConnections:
    async def test_connected_tensor_replaces_another(self) -> None:
        async with aexec.Session(connectable()) as session:
            call = session.make_callable(connected(("y:0", "z:0"), fetches=("w:0", "v:0", "y:0")))
            for _ in range(3):
                assert [value.tolist() for value in await call(X)] == [[3, 5], [-3, -5], [2, 4]]
            assert (await session.run("w:0", {"z": X})).tolist() == [2, 3]
            assert {node.name for node in call.nodes} == {"y", "one", "w", "v"}

    async def test_connected_tensor_may_have_another_shape(self) -> None:
        async with aexec.Session(connectable()) as session:
            call = session.make_callable(connected(("y:0", "z:0"), fetches=("shape:0",)))
            assert [value.tolist() for value in await call([1, 2, 3])] == [[3]]

    async def test_connection_in_place_of_a_constant_is_not_folded(self) -> None:
        async with aexec.Session(connectable()) as session:
            assert (await session.run("n:0")).tolist() == [-5, -6]
            call = session.make_callable("n:0", ["x"], connections=[("x", "c")])
            assert (await call(X)).tolist() == [-1, -2]
            assert (await session.run("n:0")).tolist() == [-5, -6]

    async def test_connections_form_a_chain(self) -> None:
        async with aexec.Session(connectable()) as session:
            call = session.make_callable("n:0", ["x"], connections=[("y", "z"), ("v", "c")])
            assert (await call(X)).tolist() == [3, 5]

    @pytest.mark.parametrize(
        ("pairs", "feeds", "fetches", "error", "words"),
        [
            ([("y:0", "z:0")], ("x:0", "z:0"), ("w:0",), errors.InvalidArgumentError, 'Endpoint "z:0" fed more than'),
            ([("y:0", "z:0"), ("x:0", "z:0")], ("x:0",), ("w:0",), errors.InvalidArgumentError, "fed more than once"),
            ([("y:0", "z:0")], ("x:0",), ("z:0",), errors.InvalidArgumentError, "z:0 is both fed and fetched"),
            ([("v:0", "z:0")], ("x:0",), ("w:0",), errors.InvalidArgumentError, "would create a cycle"),
            ([("q:0", "z:0")], ("x:0",), ("w:0",), errors.InvalidArgumentError, 'from unknown node: "q:0"'),
            ([("y:1", "z:0")], ("x:0",), ("w:0",), errors.InvalidArgumentError, r"unknown edge: .*outputs = 1"),
            ([("y:0", "q:0")], ("x:0",), ("w:0",), errors.NotFoundError, "FeedInputs node q:0: not found"),
            ([("y:0", "z:1")], ("x:0",), ("w:0",), errors.InvalidArgumentError, "output index too large"),
        ],
    )
    async def test_invalid_connections_are_refused(
        self, pairs: Any, feeds: Any, fetches: Any, error: Any, words: str
    ) -> None:
        async with aexec.Session(connectable()) as session:
            with pytest.raises(error, match=words):
                session.make_callable(connected(*pairs, feeds=feeds, fetches=fetches))
