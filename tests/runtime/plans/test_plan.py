"""Plans: kept nodes, layout, frames, and requests that cannot be planned."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.waiting.loop_budget import DEFAULT
from aexec.graph.nodes.node import Node
from aexec.runtime.plans.plan import Kind, Plan, PlanKey, PlanNode
from aexec.runtime.plans.plan_builder import build_plan
from tests.support.programs.graphs import GraphBuilder, counting_loop

F, I = dtypes.float32, dtypes.int32  # noqa: E741


def kernel_of(node: Node) -> BuiltKernel:
    """Kernels that are not called, except for constants, whose values a plan takes."""
    if node.op == "Const":
        return BuiltKernel(lambda: node.attrs["value"].array, False, 0.0)
    if node.op == "Barrier":

        async def wait() -> None: ...

        return BuiltKernel(wait, False)
    return BuiltKernel(lambda *inputs: None, wants_context=node.op == "VarHandleOp")


def plan_of(
    g: GraphBuilder, fetches: tuple[str, ...] = (), feeds: tuple[str, ...] = (), targets: tuple[str, ...] = ()
) -> Plan:
    graph = g.graph()
    signature = PlanKey(
        tuple(graph.tensor(name).endpoint for name in feeds),
        tuple(graph.tensor(name).endpoint for name in fetches),
        tuple(graph.node(name).id for name in targets),
    )
    return build_plan(graph, signature, kernel_of)


def kept(plan: Plan) -> set[str]:
    return {node.name for node in plan.nodes}


def named(plan: Plan, name: str) -> PlanNode:
    return next(node for node in plan.nodes if node.name == name)


def small() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.const("c", np.float32(1))
    g("a", "Neg", "x", T=F)
    g("b", "AddV2", "a", "c", T=F)
    g("aside", "Neg", "b", T=F)
    g("end", "NoOp", "^b")
    return g


class TestPruning:
    @pytest.mark.parametrize(
        ("fetches", "feeds", "targets", "expected"),
        [
            (["b:0"], ["x:0"], [], {"a", "b"}),
            ([], ["x:0"], ["end"], {"a", "b", "end"}),
            (["b:0"], ["a:0"], [], {"b"}),
            (["aside:0"], ["x:0"], [], {"a", "b", "aside"}),
            (["aside:0"], ["b:0"], [], {"aside"}),
            ([], ["x:0"], ["x"], set()),
            (["a:0"], [], [], {"x", "a"}),
            # Feeding a tensor does not remove its producer if something waits for that.
            ([], ["b:0"], ["end"], {"x", "a", "b", "end"}),
            ([], ["x:0", "b:0"], ["end"], {"a", "b", "end"}),
        ],
    )
    def test_plan_keeps_the_nodes_that_fetches_need(
        self, fetches: list[str], feeds: list[str], targets: list[str], expected: set[str]
    ) -> None:
        assert kept(plan_of(small(), tuple(fetches), tuple(feeds), tuple(targets))) == expected

    def test_fed_placeholder_is_done_before_the_step_begins(self) -> None:
        g = small()
        g("after", "NoOp", "^x")
        assert kept(plan_of(g, targets=("after",), feeds=("x:0",))) == {"after"}
        assert kept(plan_of(g, targets=("after",))) == {"x", "after"}

    async def test_fed_producer_with_control_outputs_still_runs(self) -> None:
        ran: list[str] = []

        @aexec.op("PlanTestNote(x: float) -> y: float", stateful=True)
        def note(x: Any) -> Any:
            ran.append("note")
            return x

        with aexec.Graph() as graph:
            y = note(aexec.constant(1.0), name="y")
            with aexec.control_dependencies([y]):
                z = aexec.ops.identity(aexec.constant(2.0))
            aexec.ops.add_v2(y, z, name="sum")
        async with aexec.Session(graph) as session:
            assert await session.run("sum:0", {"y:0": 5}) == 7
        assert ran == ["note"]


class TestLayout:
    def test_kinds(self) -> None:
        g = small()
        g.const("flag", True)
        g("switch", "Switch", "x", "flag", T=F)
        g("merge", "Merge", "switch:0", "switch:1", T=F, N=2)
        g("pair", "IdentityN", "x", "merge", T=[F, F])
        g("v", "VarHandleOp", dtype=F, shape=[])
        g("unpacked", "Identity", "pair:1", T=F)
        plan = plan_of(g, ("unpacked:0", "b:0"), ("x:0",), ("v", "end"))
        kinds = {node.name: node.kind for node in plan.nodes}
        assert kinds == {
            "a": Kind.PLAIN,
            "b": Kind.PLAIN,
            "end": Kind.KERNEL,
            "switch": Kind.SWITCH,
            "merge": Kind.MERGE,
            "pair": Kind.KERNEL,
            "v": Kind.KERNEL,
            "unpacked": Kind.PLAIN,
        }
        assert [node.kind for node in plan.args] == [Kind.ARG]
        nodes = [named(plan, name) for name in ("a", "b", "pair")]
        assert [node.arity for node in nodes] == [0, 0, 0]
        for node in nodes:
            node.trust()
        assert [node.arity for node in nodes] == [1, 2, 0]
        assert named(plan, "v").touches_state
        assert not named(plan, "a").touches_state
        assert plan.num_results == 2

    def test_constants_are_in_the_arguments_of_their_consumers(self) -> None:
        plan = plan_of(small(), ("b:0",), ("x:0",))
        b = named(plan, "b")
        assert plan.root.args[b.first : b.last] == [None, 1]
        assert plan.root.pending[b.index] == 1
        assert "c" not in kept(plan)

    def test_variables_handle_is_a_constant(self) -> None:
        g = GraphBuilder()
        g("v", "VarHandleOp", dtype=F, shape=[])
        g("read", "ReadVariableOp", "v", dtype=F)
        handle = np.empty((), object)
        graph = g.graph()
        plan = build_plan(
            graph,
            PlanKey((), (graph.tensor("read:0").endpoint, graph.tensor("v:0").endpoint)),
            lambda node: BuiltKernel(lambda: handle, wants_context=node.op == "ReadVariableOp"),
        )
        assert kept(plan) == {"read"}
        assert plan.root.args == [handle, None, handle]

    def test_constant_with_control_inputs_or_into_a_merge_is_a_node(self) -> None:
        g = small()
        g.const("late", np.float32(1), None, "^a")
        g("m", "Merge", "late", "c", T=F, N=2)
        assert {"late", "c", "m"} <= kept(plan_of(g, ("m:0",), ("x:0",)))

    def test_large_constants_are_noticed(self) -> None:
        small = DEFAULT.small_elements
        for size, large in ((small, False), (small + 1, True)):
            g = GraphBuilder()
            g.const("c", np.zeros(size, np.float32))
            g("n", "Neg", "c", T=F)
            assert plan_of(g, ("n:0",)).has_large_constants is large

    def test_first_node_of_the_graph_goes_first(self) -> None:
        g = GraphBuilder()
        for name in "dcab":
            g(name, "NoOp")
        plan = plan_of(g, targets=("a", "b", "c", "d"))
        assert [node.name for node in reversed(plan.root.roots)] == ["d", "c", "a", "b"]

    def test_frames(self) -> None:
        plan = plan_of(counting_loop(7), ("result:0",), ("n:0",))
        loop = named(plan, "merge").frame
        assert (plan.root.name, loop.name) == ("", "loop")
        assert (loop.num_enters, loop.parallel_iterations) == (3, 7)
        assert {n.name for n in loop.nodes} == {"merge", "less", "cond", "switch", "body", "add", "next", "result"}
        assert loop.roots == []
        assert named(plan, "enter").frame is plan.root
        assert named(plan, "enter").child is loop
        assert named(plan, "enter_n").is_constant_enter
        assert not named(plan, "enter").is_constant_enter
        # The Merge: no live input yet, no control inputs.
        assert loop.pending[named(plan, "merge").index] == 1
        assert repr(named(plan, "merge")) == "<PlanNode 'merge' Merge in frame 'loop'>"

    async def test_step_changes_nothing_of_its_plan(self) -> None:
        async with aexec.Session(counting_loop().graph()) as session:
            assert await session.run("result:0", {"n:0": 4}) == 4
            (cached,) = session._planner._plans.values()
            frames = {id(node.frame): node.frame for node in cached.plan.nodes}.values()
            before = [(copy.copy(f.pending), copy.copy(f.args), copy.copy(f.roots)) for f in frames]
            for n in range(4):
                assert await session.run("result:0", {"n:0": n}) == n
            assert before == [(f.pending, f.args, f.roots) for f in frames]


class TestFramesThatDoNotFit:
    @pytest.mark.parametrize("feed", ["merge:0", "enter:0", "enter_n:0", "body:0", "cond:0", "next:0", "switch:1"])
    async def test_feed_inside_a_loop_is_refused(self, feed: str) -> None:
        """Feeds are in the root frame, but the rest of the loop is in another frame."""
        async with aexec.Session(counting_loop().graph()) as session:
            for fetch in ("result:0", "add:0"):
                with pytest.raises(errors.InvalidArgumentError, match="inputs from different frames"):
                    await session.run(fetch, {"n:0": 3, feed: False if feed == "cond:0" else 1})
            assert await session.run("result:0", {"n:0": 3}) == 3

    async def test_fed_enters_of_a_loop_are_refused(self) -> None:
        async with aexec.Session(counting_loop().graph()) as session:
            for fetch in ("result:0", "add:0"):
                for feeds in ({"enter:0": 0, "enter_n:0": 3, "enter_one:0": 1}, {"merge:0": 0, "enter_n:0": 3}):
                    with pytest.raises(errors.InvalidArgumentError, match=r"is not inside a frame|different frames"):
                        await session.run(fetch, feeds)

    async def test_inputs_and_outputs_of_a_loop_can_be_fed(self) -> None:
        g = counting_loop()
        g("after", "Neg", "result", T=I)
        async with aexec.Session(g.graph()) as session:
            assert await session.run("after:0", {"result:0": 3}) == -3
            assert await session.run("after:0", {"n:0": 3, "zero:0": 1, "one:0": 5}) == -6

    async def test_loop_without_a_frame_is_refused(self) -> None:
        g = GraphBuilder()
        g.const("c", 1, I)
        g("a", "Merge", "c", "next", T=I, N=2)
        g("next", "NextIteration", "a", T=I)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match=r"The NextIteration .* is not inside a frame"):
                await session.run("a:0")

    def test_merge_of_back_edges_alone_is_refused(self) -> None:
        g = GraphBuilder()
        g("a", "Merge", "next", "next", T=I, N=2)
        g("next", "NextIteration", "a", T=I)
        with pytest.raises(errors.InvalidArgumentError, match="2 nodes in a cycle"):
            g.graph()


class TestVariablesIntoControlFlow:
    """A variable's ref that leads into a node which takes values is read there."""

    def graph(self) -> aexec.Graph:
        g = GraphBuilder()
        g("v", "VariableV2", dtype=F, shape=[])
        g("flag", "VariableV2", dtype=dtypes.bool_, shape=[])
        g.const("five", np.float32(5))
        g.const("true", True)
        g("init", "Assign", "v", "five", T=F)
        g("init_flag", "Assign", "flag", "true", T=dtypes.bool_)
        g("switch", "Switch", "v", "true", T=F)
        g("switched", "Neg", "switch:1", T=F)
        g("chooses", "Switch", "five", "flag", T=F)
        g("chosen", "Neg", "chooses:1", T=F)
        g("merge", "Merge", "v", "five", T=F, N=2)
        g("merged", "Neg", "merge", T=F)
        g("enter", "Enter", "v", T=F, frame_name=b"frame")
        g("inside", "Neg", "enter", T=F)
        g("exit", "Exit", "inside", T=F)
        g("ref_switch", "RefSwitch", "v", "true", T=F)
        g("assigned", "AssignAdd", "ref_switch:1", "five", T=F)
        return g.graph()

    FETCHES = ("switched:0", "chosen:0", "merged:0", "exit:0")

    async def test_initialised(self) -> None:
        async with aexec.Session(self.graph()) as session:
            await session.run([], targets=["init", "init_flag"])
            for name in self.FETCHES:
                assert await session.run(name) == -5, name
            assert await session.run(["switch:1", "merge:0"]) == [5, 5]
            # A ref that stays one can be assigned to.
            assert await session.run("assigned:0") == 10
            assert await session.run("switched:0") == -10

    @pytest.mark.parametrize("fetch", [name for name in FETCHES if name != "merged:0"])
    async def test_uninitialised(self, fetch: str) -> None:
        async with aexec.Session(self.graph()) as session:
            with pytest.raises(errors.FailedPreconditionError, match="Attempting to use uninitialized value"):
                await session.run(fetch)


class TestErrors:
    async def test_invalid_constant_is_named(self) -> None:
        g = small()
        g("bad", "Const", dtype=F, value=aexec.proto.TensorProto(dtype=F.enum, tensor_content=b"123"))
        g("uses", "Neg", "bad", T=F)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await session.run("uses:0")
            assert (caught.value.node, caught.value.op) == ("bad", "Const")

    @pytest.mark.parametrize(
        ("raised", "error"), [(MemoryError, errors.ResourceExhaustedError), (KeyError, errors.UnknownError)]
    )
    async def test_kernel_that_cannot_be_built_is_named(
        self, raised: type[Exception], error: type[errors.OpError]
    ) -> None:
        op = f"PlanTestUnbuildable{raised.__name__}"
        register_op(f"{op}(x: float) -> y: float")

        @kernel(op)
        def build(_: Any) -> Any:
            raise raised("too much")

        g = small()
        g("bad", op, "x")
        async with aexec.Session(g.graph()) as session:
            for _ in range(2):
                with pytest.raises(error, match="too much") as caught:
                    await session.run("bad:0", {"x:0": 1})
                assert caught.value.node == "bad"
                assert type(caught.value.__cause__) is raised
            assert await session.run("b:0", {"x:0": 1}) == 0

    async def test_building_kernels_warns_of_no_floating_point_errors(self) -> None:
        g = small()
        g("y", "FakeQuantWithMinMaxArgs", "x", min=-1e-45, max=1e-45, num_bits=8, narrow_range=False)
        async with aexec.Session(g.graph()) as session:
            assert np.isnan(await session.run("y:0", {"x:0": 1}))

    async def test_failed_plan_is_not_cached(self) -> None:
        g = small()
        g("exit", "Exit", "x", T=F)
        async with aexec.Session(g.graph()) as session:
            for _ in range(3):
                with pytest.raises(errors.InvalidArgumentError):
                    await session.run("exit:0", {"x:0": 1})
            assert session.statistics().plans == 0
