"""Random graphs in random order: what comes out must be what readings say that know nothing of pending counts.

Graphs of Switch and Merge are checked node by node: each outcome must follow from the
outcomes of its inputs.  Loops are compiled from small programs and held against an interpreter.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec.framework import dtypes
from aexec.graph.nodes.node import Node
from aexec.runtime.plans.plan import PlanNode
from tests.support.machine import Machine, ints, kernel_of
from tests.support.programs.graphs import GraphBuilder
from tests.support.programs.programs import compile_program, interpret, programs

I = dtypes.int32  # noqa: E741
BOOL = dtypes.bool_
small = st.integers(0, 9)


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> tuple[GraphBuilder, list[str]]:
    """Some dozen nodes over `x`, `y` (ints) and `p`, `q` (predicates), and their names."""
    g = GraphBuilder()
    ints(g, "x", "y")
    values = ["x", "y"]
    flags = ["p", "q"]
    for flag in flags:
        g.placeholder(flag, BOOL, [])
    nodes: list[str] = []
    for index in range(draw(st.integers(3, 25))):
        name = f"n{index}"
        controls = [f"^{c}" for c in draw(st.lists(st.sampled_from(nodes), max_size=2, unique=True))] if nodes else []
        kind = draw(st.sampled_from(["switch", "switch", "merge", "merge", "affine", "odd", "trigger", "noop"]))
        if kind == "switch":
            g(name, "Switch", draw(st.sampled_from(values)), draw(st.sampled_from(flags)), *controls, T=I)
            values += [f"{name}:0", f"{name}:1"]
        elif kind == "merge":
            inputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
            g(name, "Merge", *inputs, *controls, T=I, N=len(inputs))
            values += [f"{name}:0", f"{name}:1"]
        elif kind == "affine":
            inputs = [draw(st.sampled_from(values)) for _ in range(2)]
            g(name, "TestAffine", *inputs, *controls, a=draw(st.integers(0, 9)), b=draw(st.integers(0, 9)), c=index)
            values.append(f"{name}:0")
        elif kind == "odd":
            g(name, "TestOdd", draw(st.sampled_from(values)), *controls)
            flags.append(f"{name}:0")
        else:
            g(name, "ControlTrigger" if kind == "trigger" else "NoOp", *controls)
        nodes.append(name)
    return g, nodes


def expected_output(node: Node, inputs: list[Any], controls_dead: bool, actual: Any) -> Any:
    """The outputs that a node must have, None for dead, given its inputs' values (None: dead) and what it gave.

    What it gave only tells which of its live inputs a Merge took, which nothing determines.
    """
    if node.op == "Merge":
        if all(value is None for value in inputs):
            return None
        position = actual[1]
        assert inputs[position] is not None, f"{node.name} took a dead input"
        return (inputs[position], position)
    if node.op == "ControlTrigger":
        return ()
    if controls_dead or any(value is None for value in inputs):
        return None
    if node.op == "Switch":
        return (None, inputs[0]) if inputs[1] else (inputs[0], None)
    if node.op == "NoOp":
        return ()
    return (kernel_of(node).compute(*inputs),)


def outputs_of(node: Node, noted: Any) -> Any:
    """The outputs of a node that the machine recorded, as a tuple; None if it was dead."""
    if node.op in ("NoOp", "ControlTrigger"):
        return () if noted != "dead" else None
    if noted is None:
        return None
    if node.op == "Switch":
        data, predicate = noted
        return (None, data) if predicate else (data, None)
    if node.op == "Merge":
        return noted[0]
    return (noted,)


class NotingMachine(Machine):
    """Notes of nodes without outputs whether they were dead, too."""

    def _note(self, node: PlanNode, key: tuple[int, int, str], value: Any) -> None:
        dead = value is None and f"-{node.name}" == self.log[-1]
        super()._note(node, key, "dead" if dead and not node.num_outputs else value)


@given(acyclic_graphs(), st.integers(0, 50), st.integers(0, 50), st.booleans(), st.booleans(), st.integers())
def test_random_switches_and_merges_follow_the_rules_of_deadness(
    made: tuple[GraphBuilder, list[str]], x: int, y: int, p: bool, q: bool, seed: int
) -> None:
    g, names = made
    graph = g.graph()
    feeds = {"x:0": x, "y:0": y, "p:0": p, "q:0": q}
    m = NotingMachine(graph, [], feeds, names).drain(random.Random(seed).choice)
    assert m.state.finished
    assert m.state.outstanding == 0
    outcome: dict[int, Any] = {graph.node(name.removesuffix(":0")).id: (v,) for name, v in feeds.items()}
    for name in names:
        node = graph.node(name)
        actual = outputs_of(node, m.outputs[0, 0, name])
        inputs = [None if outcome[i] is None else outcome[i][k] for i, k in node.inputs]
        controls_dead = any(outcome[i] is None for i in node.control_inputs)
        assert actual == expected_output(node, inputs, controls_dead, actual), name
        outcome[node.id] = actual


@given(programs, small, small, small, st.integers())
def test_random_programs_give_the_same_results_in_any_order(
    program: tuple[Any, ...], x: int, y: int, z: int, seed: int
) -> None:
    expected = list(interpret(program, {"x": x, "y": y, "z": z}, [100]).values())
    g, fetches = compile_program(program)
    m = Machine(g, fetches, {"x:0": x, "y:0": y, "z:0": z}).drain(random.Random(seed).choice)
    assert m.state.finished
    assert m.results == expected


async def test_programs_in_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, through the executor, with ready nodes taken in random order."""
    monkeypatch.setenv("AEXEC_SHUFFLE", "1")
    examples: list[tuple[Any, ...]] = []
    starts = [{"x": 1, "y": 2, "z": 3}, {"x": 0, "y": 0, "z": 5}]

    @given(programs)
    @settings(max_examples=25, deadline=None, derandomize=True, database=None)
    def collect(program: tuple[Any, ...]) -> None:
        for start in starts:
            interpret(program, dict(start), [1000])
        examples.append(program)

    collect()
    for program in examples:
        g, fetches = compile_program(program)
        async with aexec.Session(g.graph()) as session:
            for start in starts:
                got = await session.run(fetches, {f"{v}:0": n for v, n in start.items()})
                assert got == list(interpret(program, dict(start)).values())
