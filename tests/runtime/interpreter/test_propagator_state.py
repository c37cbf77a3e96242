"""The propagator state by hand: each rule of pending counts, deadness, frames and ends, event by event."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.runtime.interpreter.propagator_state import FrameState, IterationState, PropagatorState
from aexec.runtime.interpreter.snapshot import IterationSnapshot, NodeOutcome
from aexec.runtime.plans.absent_values import NO_VALUE
from aexec.runtime.plans.plan import Kind
from tests.support.collector import no_collector
from tests.support.machine import Machine, Work, ints
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.programs.programs import Assign, Loop, compile_program, interpret
from tests.test_imports import imported, modules

I = dtypes.int32  # noqa: E741
BOOL = dtypes.bool_


def branch() -> GraphBuilder:
    """`switch(x, p)`, `f` and `t` behind its outputs, `m` their Merge."""
    g = GraphBuilder()
    ints(g, "x")
    g.placeholder("p", BOOL, [])
    g("switch", "Switch", "x", "p", T=I)
    g("f", "Identity", "switch:0", T=I)
    g("t", "Identity", "switch:1", T=I)
    g("m", "Merge", "f", "t", T=I, N=2)
    return g


class TestReadiness:
    def test_node_is_ready_when_its_last_input_has_come(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("a", "Identity", "x", T=I)
        g("b", "Identity", "x", T=I)
        g("sum", "AddV2", "a", "b", T=I)
        m = Machine(g, ["sum:0"], {"x:0": 4})
        assert m.possible == {"a", "b"}
        m("a")
        assert m.possible == {"b"}
        m("b")
        assert m.possible == {"sum"}
        m("sum", "=sum")
        assert m.state.finished
        assert m.results == [8]

    def test_one_tensor_may_go_to_both_inputs(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("double", "AddV2", "x", "x", T=I)
        assert Machine(g, ["double:0"], {"x:0": 4}).drain().results == [8]

    def test_control_edge_is_one_more_input(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("first", "Identity", "x", T=I)
        g("second", "Identity", "x", "^first", T=I)
        m = Machine(g, ["second:0"], {"x:0": 4})
        assert m.possible == {"first"}
        assert m("first").possible == {"second"}

    def test_constants_are_there_already(self) -> None:
        g = GraphBuilder()
        g.const("one", 1, I)
        g("two", "AddV2", "one", "one", "^one", T=I)
        m = Machine(g, ["two:0", "one:0"])
        assert m.possible == {"two", "=one"}
        assert m.drain().results == [2, 1]

    def test_propagator_without_ready_nodes_is_finished(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("n", "NoOp")
        m = Machine(g, [], {}, ["n"])
        assert not m.state.finished
        assert m("n").state.finished

    def test_inputs_are_let_go_when_a_node_starts(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("a", "Identity", "x", T=I)
        m = Machine(g, ["a:0"], {"x:0": 4})
        (work,) = m.work()
        assert [v is not None for v in work.iteration.args] == [True, False]
        m("a")
        assert [v is not None for v in work.iteration.args] == [False, True]

    def test_node_in_flight_keeps_its_iteration(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("a", "Identity", "x", T=I)
        m = Machine(g, [], {"x:0": 4}, ["a"])
        (work,) = m.work()
        iteration, node = work.iteration, work.node
        iteration.start(node)
        m.state.node_started(iteration)
        m._settle()
        assert not m.state.finished
        assert m.state.outstanding == 1
        m.state.node_ended(iteration)
        m.state.node_done(iteration, node, np.int32(4))
        m._settle()
        assert m.state.finished


class TestSwitchAndMerge:
    @pytest.mark.parametrize(("p", "live", "dead"), [(False, "f", "t"), (True, "t", "f")])
    def test_switch_passes_its_value_to_one_side(self, p: bool, live: str, dead: str) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": p})
        assert m.possible == {"switch"}
        assert m("switch").possible == {live, f"-{dead}"}
        assert m.drain().results == [7]
        assert m.state.finished

    def test_merge_waits_for_no_dead_input(self) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": True})
        m("switch", "t", "m", "=m")
        assert m.results == [7]
        assert not m.state.finished
        assert m("-f").state.finished

    def test_value_index(self) -> None:
        for p in (False, True):
            assert Machine(branch(), ["m:1", "m:0"], {"x:0": 7, "p:0": p}).drain().results == [int(p), 7]

    def test_merge_takes_the_first_of_two_live_inputs(self) -> None:
        g = GraphBuilder()
        ints(g, "x", "y")
        g("a", "Identity", "x", T=I)
        g("b", "Identity", "y", T=I)
        g("m", "Merge", "a", "b", T=I, N=2)
        feeds = {"x:0": 1, "y:0": 2}
        assert Machine(g, ["m:0", "m:1"], feeds)("a", "b").drain().results == [1, 0]
        assert Machine(g, ["m:0", "m:1"], feeds)("b", "a").drain().results == [2, 1]
        assert Machine(g, ["m:0", "m:1"], feeds)("b", "m", "a").drain().results == [2, 1]

    def test_merge_of_dead_inputs_is_dead(self) -> None:
        g = branch()
        g("m2", "Merge", "switch:0", "f", T=I, N=2)
        g("after", "Identity", "m2", T=I)
        m = Machine(g, ["m:0", "after:0"], {"x:0": 7, "p:0": True})
        m("switch", "-f", "-m2", "-after")
        assert m.drain().results == [7, None]
        assert m.state.finished

    def test_deadness_goes_along_data_and_control_edges(self) -> None:
        g = branch()
        g("d1", "Identity", "f", T=I)
        g("d2", "Identity", "x", "^d1", T=I)
        g("d3", "NoOp", "^d2")
        g("both", "AddV2", "d2", "t", T=I)
        m = Machine(g, [], {"x:0": 7, "p:0": True}, ["d3", "both"])
        m("switch", "-f", "-d1", "-d2", "-d3")
        assert "-both" not in m.possible
        assert "-both" in m("t").possible
        assert m.drain().state.finished

    def test_switch_is_live_for_its_control_outputs(self) -> None:
        g = branch()
        g("after", "NoOp", "^switch")
        m = Machine(g, [], {"x:0": 7, "p:0": True}, ["after"])
        assert m("switch").possible == {"after"}

    @pytest.mark.parametrize("dead_input", ["x", "p"])
    def test_switch_with_a_dead_input_kills_both_sides(self, dead_input: str) -> None:
        g = branch()
        g("flag", "TestOdd", "f")
        inputs = ("f", "p") if dead_input == "x" else ("x", "flag")
        g("inner", "Switch", *inputs, T=I)
        g("a", "Identity", "inner:0", T=I)
        g("b", "Identity", "inner:1", T=I)
        m = Machine(g, [], {"x:0": 7, "p:0": True}, ["a", "b"]).drain()
        assert {"-inner", "-a", "-b"} <= set(m.log)

    def test_non_scalar_predicate_is_refused(self) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": [True, False]})
        with pytest.raises(errors.InvalidArgumentError, match="must be a scalar, but it has shape \\(2,\\)"):
            m("switch")

    def test_several_outputs_one_of_them_unused(self) -> None:
        g = GraphBuilder()
        ints(g, "x", "y")
        g("pair", "IdentityN", "x", "y", T=[I, I])
        g("a", "Identity", "pair:1", T=I)
        assert Machine(g, ["a:0"], {"x:0": 1, "y:0": 2}).drain().results == [2]

    @pytest.mark.parametrize("out", [None, (np.int32(1),), (np.int32(1), None), np.int32(1)])
    def test_missing_outputs_are_errors(self, out: Any) -> None:
        g = GraphBuilder()
        ints(g, "x", "y")
        g("pair", "IdentityN", "x", "y", T=[I, I])
        m = Machine(g, ["pair:0", "pair:1"], {"x:0": 1, "y:0": 2})
        (work,) = m.work()
        with pytest.raises(errors.InternalError, match=r"\{\{node pair\}\}"):
            m.state.node_done(work.iteration, work.node, out)


class TestMergeWithControlInputs:
    def graph(self) -> GraphBuilder:
        g = branch()
        g("late", "Identity", "x", T=I)
        g("dead_late", "Identity", "f", T=I)
        g("m2", "Merge", "f", "t", "^late", "^dead_late", T=I, N=2)
        return g

    def test_merge_waits_for_dead_and_live_control_inputs(self) -> None:
        m = Machine(self.graph(), ["m2:0"], {"x:0": 7, "p:0": True})
        m("switch", "t")
        assert "m2" not in m.possible
        assert "m2" not in m("late", "-f").possible
        assert "m2" in m("-dead_late").possible
        assert m.drain().results == [7]

    def test_merge_is_ready_when_its_value_comes_last(self) -> None:
        m = Machine(self.graph(), ["m2:0"], {"x:0": 7, "p:0": True})
        m("switch", "-f", "-dead_late", "late")
        assert m.possible == {"t"}
        assert m("t").possible == {"m2"}

    def test_merge_of_dead_values_is_dead_when_its_last_control_input_comes(self) -> None:
        g = branch()
        g("late", "Identity", "x", T=I)
        g("m2", "Merge", "f", "switch:0", "^late", T=I, N=2)
        m = Machine(g, [], {"x:0": 7, "p:0": True}, ["m2"])
        m("switch", "-f")
        assert m.possible == {"late"}
        assert m("late").possible == {"-m2"}
        assert m("-m2").state.finished

    def test_merge_with_all_control_inputs_is_dead_when_its_last_value_is(self) -> None:
        g = branch()
        g("late", "Identity", "x", T=I)
        g("m2", "Merge", "f", "switch:0", "^late", T=I, N=2)
        m = Machine(g, [], {"x:0": 7, "p:0": True}, ["m2"])
        m("switch", "late")
        assert m.possible == {"-f"}
        assert m("-f").possible == {"-m2"}


class TestControlTrigger:
    def test_trigger_is_live_after_a_dead_input(self) -> None:
        g = branch()
        g("trigger", "ControlTrigger", "^f", "^t")
        g("after", "Identity", "x", "^trigger", T=I)
        m = Machine(g, ["after:0"], {"x:0": 7, "p:0": True})
        m("switch", "-f")
        assert m.possible == {"t"}
        assert m("t").possible == {"trigger"}
        assert m.drain().results == [7]

    def test_trigger_is_live_after_dead_inputs_alone(self) -> None:
        g = branch()
        g("trigger", "ControlTrigger", "^f")
        g("after", "Identity", "x", "^trigger", T=I)
        assert Machine(g, ["after:0"], {"x:0": 7, "p:0": True})("switch", "-f", "trigger").drain().results == [7]


def run_loop(n: int, parallel: int, choose: Callable[[list[Work]], Work]) -> Machine:
    return Machine(counting_loop(parallel), ["result:0"], {"n:0": n}).drain(choose)


class TestLoops:
    @pytest.mark.parametrize("n", [0, 1, 2, 5, 30])
    @pytest.mark.parametrize("parallel", [1, 2, 10])
    def test_counting(self, n: int, parallel: int) -> None:
        rng = random.Random(n)
        for choose in (lambda work: work[-1], lambda work: work[0], rng.choice):
            m = run_loop(n, parallel, choose)
            assert m.results == [n]
            assert m.state.finished
            assert m.log.count("loop/0/merge") == 1
            assert sum("less" in entry for entry in m.log) == n + 1

    def test_iterations_are_let_go(self) -> None:
        m = Machine(counting_loop(3), ["result:0"], {"n:0": 50})
        most = 0
        while m.work():
            m.do(m.work()[-1])
            for child in m.state.root.iterations[0].children.values() if m.state.root.iterations else ():
                most = max(most, len(child.iterations))
        assert most <= 3
        assert m.state.root.iterations == {}

    def test_next_iteration_waits_for_the_last_with_one_at_a_time(self) -> None:
        """With `parallel_iterations` 1, all of an iteration must end before the next begins."""
        g = counting_loop(1)
        g("slow", "Identity", "body", T=I)
        m = Machine(g, ["result:0"], {"n:0": 2}, ["slow"])
        m("enter_n", "enter_one", "enter")
        m("loop/0/merge", "loop/0/less", "loop/0/cond", "loop/0/switch", "loop/0/body", "loop/0/add", "loop/0/next")
        assert m.possible == {"loop/0/slow", "-loop/0/result"}
        m("-loop/0/result")
        assert m.possible == {"loop/0/slow"}
        assert m("loop/0/slow").possible == {"loop/1/merge"}
        assert m.drain().results == [2]

    def test_next_iteration_does_not_wait_with_two_at_a_time(self) -> None:
        g = counting_loop(2)
        g("slow", "Identity", "body", T=I)
        m = Machine(g, ["result:0"], {"n:0": 2}, ["slow"])
        m("enter_n", "enter_one", "enter")
        for i in (0, 1):
            m(*(f"loop/{i}/{n}" for n in ("merge", "less", "cond", "switch", "body", "add", "next")))
        # Iteration 0 still has its slow node, so there is no third.
        assert m.possible == {"loop/0/slow", "loop/1/slow", "-loop/0/result", "-loop/1/result"}
        m("loop/1/slow", "-loop/0/result", "-loop/1/result")
        assert m("loop/0/slow").possible == {"loop/2/merge"}

    def test_constants_come_in_late_to_all_iterations(self) -> None:
        """A loop invariant that arrives late reaches all current and later iterations."""
        g = GraphBuilder()
        ints(g, "n", "k")
        g.const("zero", 0, I)
        g.const("one", 1, I)
        frame = {"frame_name": b"loop", "parallel_iterations": 10, "T": I}
        g("enter", "Enter", "zero", **frame)
        g("limit", "Enter", "n", is_constant=True, **frame)
        g("step", "Enter", "one", is_constant=True, **frame)
        g("late", "Enter", g("k2", "Identity", "k", T=I), is_constant=True, **frame)
        g("merge", "Merge", "enter", "next", T=I, N=2)
        g("less", "Less", "merge", "limit", T=I)
        g("cond", "LoopCond", "less")
        g("switch", "Switch", "merge", "cond", T=I)
        g("add", "AddV2", "switch:1", "step", T=I)
        g("next", "NextIteration", "add", T=I)
        g("result", "Exit", "switch:0", T=I)
        g("uses", "AddV2", "switch:1", "late", T=I)
        m = Machine(g, ["result:0"], {"n:0": 3, "k:0": 100}, ["uses"])
        m("enter", "limit", "step")
        for i in range(3):
            m(*(f"loop/{i}/{n}" for n in ("merge", "less", "cond", "switch", "add", "next")))
        assert not any("uses" in entry for entry in m.possible)
        m("k2", "late")
        assert {f"loop/{i}/uses" for i in range(3)} <= m.possible
        m.drain()
        frame_id = next(key[0] for key in m.outputs if key[0])
        assert [m.outputs[frame_id, i, "uses"] for i in range(3)] == [100, 101, 102]
        assert m.outputs[frame_id, 3, "uses"] is None

    def test_dead_enters_kill_the_loop_and_its_exits(self) -> None:
        g = branch()
        g.const("one", 1, I)
        frame = {"frame_name": b"loop", "parallel_iterations": 10, "T": I}
        g("enter", "Enter", "f", **frame)
        g("limit", "Enter", "f", is_constant=True, **frame)
        g("step", "Enter", "one", is_constant=True, **frame)
        g("merge", "Merge", "enter", "next", T=I, N=2)
        g("less", "Less", "merge", "limit", T=I)
        g("cond", "LoopCond", "less")
        g("switch2", "Switch", "merge", "cond", T=I)
        g("add", "AddV2", "switch2:1", "step", T=I)
        g("next", "NextIteration", "add", T=I)
        g("result", "Exit", "switch2:0", T=I)
        g("out", "Merge", "result", "t", T=I, N=2)
        g("after", "Identity", "result", T=I)
        m = Machine(g, ["out:0", "after:0"], {"x:0": 7, "p:0": True})
        m("switch", "-f", "-enter")
        assert "-loop/0/merge" in m.possible  # nothing comes round the back edge
        m.drain()
        assert {"-loop/0/merge", "-loop/0/next", "-loop/0/result", "-after"} <= set(m.log)
        assert not any("loop/1" in entry for entry in m.log)
        assert m.results == [7, None]
        assert m.state.finished

    def test_merge_dies_once_however_many_of_its_enters_are_dead(self) -> None:
        g = branch()
        frame = {"frame_name": b"loop", "parallel_iterations": 10, "T": I}
        g("e1", "Enter", "f", **frame)
        g("e2", "Enter", "f", **frame)
        g("e3", "Enter", "x", **frame)
        g("merge", "Merge", "e1", "e2", "e3", T=I, N=3)
        g("result", "Exit", "merge", T=I)
        m = Machine(g, ["result:0"], {"x:0": 7, "p:0": True})
        m("switch", "-f", "-e1", "-e2", "e3")
        assert [str(work) for work in m.work()] == ["-loop/0/merge"]
        m.drain()
        assert m.results == [None]
        assert m.state.finished

    def test_loop_without_an_exit_finishes(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("enter", "Enter", "x", T=I, frame_name=b"loop")
        g("inside", "Identity", "enter", T=I)
        m = Machine(g, [], {"x:0": 1}, ["inside"])
        assert m("enter", "loop/0/inside").state.finished

    def test_nested_frames_have_an_instance_per_outer_iteration(self) -> None:
        program = Loop("x", 4, (Loop("y", 4, (Assign("y", "y", "y", 1, 0, 3),), 1),), 4)
        g, fetches = compile_program((program,))
        m = Machine(g, fetches, {"x:0": 3, "y:0": 2, "z:0": 0}).drain(random.Random(1).choice)
        ids = {key[0] for key in m.outputs}
        assert (
            len(ids) == 1 + 1 + 3 + 1
        )  # the root, the outer loop, the inner one in three iterations and, dead, once more
        assert m.results == list(interpret((program,), {"x": 3, "y": 2, "z": 0}).values())

    def test_iteration_without_ready_nodes_finishes(self) -> None:
        """A value enters the next iteration, where its node waits for another that never comes."""
        g = GraphBuilder()
        ints(g, "x")
        g("enter", "Enter", "x", T=I, frame_name=b"loop")
        g("merge", "Merge", "enter", "next", T=I, N=2)
        g("skip", "NextIteration", "merge", T=I)
        g("add", "AddV2", "skip", "merge", T=I)
        g("next", "NextIteration", "add", T=I)
        g("result", "Exit", "add", T=I)
        m = Machine(g, ["result:0"], {"x:0": 1})
        m("enter", "loop/0/merge", "loop/0/skip")
        assert m.state.finished
        assert m.results == [None]

    def test_dead_exits_are_those_of_the_last_iteration(self) -> None:
        """In every iteration but the last the Exit is dead; that must not reach its consumers."""
        m = Machine(counting_loop(), ["result:0"], {"n:0": 3}).drain()
        assert [entry for entry in m.log if entry.endswith("result")] == [
            *(f"-loop/{i}/result" for i in range(3)),
            "loop/3/result",
            "=result",
        ]

    def test_frames_have_ids_that_names_and_numbers_fix(self) -> None:
        one, two = (run_loop(2, 10, lambda work: work[-1]) for _ in range(2))
        assert one.outputs.keys() == two.outputs.keys()
        assert (0, 0, "enter") in one.outputs


class TestEnds:
    def test_first_error_wins(self) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": True})
        first, second = errors.AbortedError("1"), errors.InternalError("2")
        assert m.state.fail(first)
        assert not m.state.fail(second)
        assert m.state.error is first

    def test_no_node_starts_after_an_error(self) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": True})
        (work,) = m.work()
        work.iteration.start(work.node)
        m.state.node_started(work.iteration)
        m.state.fail(errors.AbortedError("stop"))
        assert m.state.stopping
        assert m.work() == []
        # What was running ends; it wakes nothing.
        m.state.node_ended(work.iteration)
        assert m.state.outstanding == 0
        assert m.work() == []
        assert not m.state.finished

    def test_result_is_set_once(self) -> None:
        """Fetching a tensor inside of a loop would give one value per iteration."""
        m = Machine(counting_loop(), ["body:0"], {"n:0": 3})
        with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] has already been set"):
            m.drain()

    def test_repr_and_counts(self) -> None:
        m = Machine(counting_loop(), ["result:0"], {"n:0": 3})
        (root,) = m.state.active
        assert repr(root) == "<IterationState 0 of frame '', 3 ready, 0 running>"
        assert m.state.num_ready == 3
        assert repr(NO_VALUE) == "<no value>"

    def test_validate_finds_what_is_wrong(self) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": True})
        m.state.outstanding = 1
        with pytest.raises(AssertionError):
            m.state.validate()


class TestResuming:
    def test_resumed_state_goes_on_from_what_is_over(self) -> None:
        m = Machine(branch(), ["m:0"], {"x:0": 7, "p:0": True})
        nodes = {node.name: node for node in m.plan.nodes}
        x, p = m.plan.args
        seven = np.int32(7)
        outcomes = [NodeOutcome(x, [seven]), NodeOutcome(p, [np.bool_(True)])]
        outcomes += [NodeOutcome(nodes["switch"], (None, seven)), NodeOutcome(nodes["f"], None)]
        resume(m, [IterationSnapshot(m.plan.root, 0, outcomes)])
        assert m.possible == {"t"}
        assert m.state.careful
        assert m("t", "m", "=m").results == [7]
        assert m.state.finished

    def test_resumed_retval_keeps_its_value(self) -> None:
        g = GraphBuilder()
        ints(g, "x")
        g("a", "Identity", "x", T=I)
        m = Machine(g, ["a:0", "x:0"], {"x:0": 4})
        first = next(node for node in m.plan.root.nodes if node.kind == Kind.RETVAL and node.position == 0)
        (identity,) = m.plan.nodes
        four = [np.int32(4)]
        over = [NodeOutcome(m.plan.args[0], four), NodeOutcome(identity, four), NodeOutcome(first, [np.int32(5)])]
        resume(m, [IterationSnapshot(m.plan.root, 0, over)])
        assert m.possible == {"=x"}
        assert m.drain().results == [5, 4]

    @pytest.mark.parametrize("number", [0, 2, 3])
    def test_resumed_loop_goes_on_in_its_iteration(self, number: int) -> None:
        m = Machine(counting_loop(), ["result:0"], {"n:0": 3})
        loop = next(node.child for node in m.plan.root.nodes if node.child is not None)
        enters = [node for node in m.plan.root.nodes if node.child is loop]
        root = [NodeOutcome(node, [np.int32(3)]) for node in m.plan.args]
        root += [NodeOutcome(enter, ()) for enter in enters]
        constants = {"enter_n": np.int32(3), "enter_one": np.int32(1)}
        inner = [NodeOutcome(node, [constants[node.name]]) for node in enters if node.is_constant_enter]
        merge = next(node for node in loop.nodes if node.kind == Kind.MERGE)
        inner.append(NodeOutcome(merge, [np.int32(number), np.int32(0)]))
        resume(m, [IterationSnapshot(m.plan.root, 0, root), IterationSnapshot(loop, number, inner)])
        assert m.possible == {f"loop/{number}/less"}
        assert m.drain().results == [3]
        assert m.state.finished


def resume(m: Machine, snapshot: list[IterationSnapshot]) -> None:
    """Give a machine a state that resumes from a snapshot."""
    m.state = PropagatorState(m.plan)
    m.state.resume(snapshot)
    m._settle()


# What the classes of the propagator hold.  `context` is the driver's; `plan` is a field of many other classes.
HELD = {name for cls in (PropagatorState, FrameState, IterationState) for name in cls.__slots__} - {"context", "plan"}
CHANGING = {name for cls in (list, dict, set) for name in cls.__dict__.keys() - tuple.__dict__.keys()} - {
    *("copy", "get", "items", "keys", "values", "fromkeys"),
    *(frozenset.__dict__.keys()),
}
# These do in place what would be a call for each node; nothing else may be written to there.
IN_PLACE = {
    ("node_runner", "run_slice"): {"active", "args", "careful", "dying", "pending", "queued", "ready"},
    ("node_runner", "_run_transfer"): {"args"},
}


def held(node: ast.AST, aliases: Mapping[str, str]) -> str | None:
    """The attribute of the propagator to which an expression belongs."""
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    is_another = isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    return node.attr if isinstance(node, ast.Attribute) and is_another and node.attr in HELD else None


def bindings(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets and values of an assignment; pairs for `a, b = c, d`."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=True):
            yield from bindings(left, right)
    elif isinstance(target, ast.Tuple):
        for left in target.elts:
            yield from bindings(left, value)
    else:
        yield target, value


def written(function: ast.AST) -> set[str]:
    """Attributes of the propagator's that a function assigns to, deletes from or changes."""
    bound: list[tuple[ast.expr, ast.expr]] = []
    changed: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            bound += [pair for target in node.targets for pair in bindings(target, node.value)]
        elif isinstance(node, ast.AugAssign):
            changed.append(node.target)
        elif isinstance(node, ast.Delete):
            changed += node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            changed.append(node.func.value)
    aliases = {
        target.id: name
        for target, value in bound
        if isinstance(target, ast.Name) and isinstance(value, ast.Attribute) and (name := held(value, {}))
    }
    changed += [target for target, _ in bound if not isinstance(target, ast.Name)]
    return {name for node in changed if (name := held(node, aliases))}


def writers(name: str, text: str) -> dict[tuple[str, str], set[str]]:
    """The functions of a module that write to the propagator's attributes, with these attributes."""
    with no_collector():  # a finaliser that runs meanwhile makes Python 3.11's parser lose count of its recursion
        tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = {(name.rpartition(".")[2], function.name): written(function) for function in functions}
    return {key: names for key, names in found.items() if names}


class TestClosedness:
    def test_only_the_propagator_and_known_methods_write_to_it(self) -> None:
        """Only modules that import one of these two rooms can reach the propagator."""
        found: dict[tuple[str, str], set[str]] = {}
        for name, path in modules().items():
            text = path.read_text(encoding="utf-8")
            near = "aexec.runtime.interpreter" in text or "aexec.runtime.compiled" in text
            if near and name.startswith("aexec.runtime.") and name != PropagatorState.__module__:
                found |= writers(name, text)
        assert found == IN_PLACE

    @pytest.mark.parametrize(
        "line",
        [
            "iteration.ready.append(node)",
            "iteration.pending[node.index] -= 1",
            "iteration.args[node.first : node.last] = inputs",
            "frame.iterations = {}",
            "del frame.iterations[0]",
            "self.state.careful = True",
            "first, state.results[0] = 1, 2",
            "ready, dying = iteration.ready, iteration.dying; ready.pop()",
            "pending = iteration.pending; pending[0] = 1",
        ],
    )
    def test_writes_are_found(self, line: str) -> None:
        assert len(writers("m", f"def f(self): {line}")) == 1

    @pytest.mark.parametrize("line", ["ready = iteration.ready", "iteration.take(node)", "self.ready = []", "x[0] = 1"])
    def test_reads_are_not_taken_for_writes(self, line: str) -> None:
        assert not writers("m", f"def f(self): {line}")

    def test_propagator_knows_nothing_of_asyncio(self) -> None:
        """The same holds for all modules of the runtime that it imports, directly or not."""
        sources = {name: path for name, path in modules().items() if name.startswith("aexec.runtime.")}
        known: set[str] = set()
        todo = [PropagatorState.__module__]
        while todo:
            name = todo.pop()
            known.add(name)
            targets = set(imported(ast.parse(sources[name].read_text(encoding="utf-8")), name, is_package=False))
            assert "asyncio" not in {target.split(".")[0] for target in targets}, name
            targets |= {target.rpartition(".")[0] for target in targets}
            todo += targets & sources.keys() - known
        assert {"aexec.runtime.plans.plan", "aexec.runtime.plans.absent_values"} <= known
