"""Graph passes take steps in proportion to the size of a graph, whatever its shape; steps are lines of Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aexec.framework.dtypes import float32
from aexec.graph.passes import PASSES, WorkingGraph, optimize
from aexec.runtime.plans.plan import PlanKey
from aexec.runtime.plans.plan_builder import build_plan
from tests.runtime.plans.test_plan import kernel_of
from tests.support.programs.graphs import GraphBuilder

Shape = Callable[[GraphBuilder, int], str]


def row(op: str) -> Shape:
    def build(g: GraphBuilder, length: int) -> str:
        last = "x"
        for i in range(length):
            last = g(f"n{i}", op, last, T=float32)
        return last

    return build


def identities_of_a_cell(g: GraphBuilder, length: int) -> str:
    last = g("v", "VariableV2", dtype=float32, shape=[])
    for i in range(length):
        last = g(f"n{i}", "Identity", last, T=float32)
    return last


def products_with_a_row_of_constants(g: GraphBuilder, length: int) -> str:
    """Each asks whether its right side, behind ever more identities, is a constant."""
    g("before", "NoOp")
    right, last = g.const("c", np.float32(1), None, "^before"), "x"
    for i in range(length):
        right = g(f"i{i}", "Identity", right, T=float32)
        last = g(f"n{i}", "Mul", last, right, T=float32)
    return last


def no_ops_that_wait_for_more_and_more(g: GraphBuilder, length: int) -> str:
    waits = g("w", "NoOp")
    for i in range(length):
        g(f"x{i}", "Print", "x", "x", T=float32, U=[float32])
        waits = g(f"w{i}", "NoOp", f"^{waits}", f"^x{i}")
    return g("y", "Identity", "x", f"^{waits}", T=float32)


def products_of_one_value(g: GraphBuilder, length: int) -> str:
    """One value has all these consumers, and each of them is joined with what follows it."""
    g.const("w", np.ones((4, 4), np.float32))
    g.const("b", np.ones(4, np.float32))
    g.placeholder("m", float32, [2, 4])
    for i in range(length):
        g(f"p{i}", "MatMul", "m", "w", T=float32)
        g(f"n{i}", "BiasAdd", f"p{i}", "b", T=float32)
    return g("sum", "AddN", *[f"n{i}" for i in range(length)], T=float32, N=length)


SHAPES: dict[str, Shape] = {
    **{op: row(op) for op in ("Identity", "StopGradient", "Neg", "Tanh")},
    "a cell": identities_of_a_cell,
    "constants": products_with_a_row_of_constants,
    "no-ops": no_ops_that_wait_for_more_and_more,
    "consumers": products_of_one_value,
}


def steps(build: Shape, length: int, fetch_all: bool) -> int:
    """Calls, and lines between them, that planning such a graph takes."""
    g = GraphBuilder()
    g.placeholder("x", float32, [])
    last = build(g, length)
    graph = g.graph()
    ends = [node.id for node in graph.nodes if fetch_all and node.output_types] or [graph.node(last).id]
    signature = PlanKey((graph.tensor("x:0").endpoint,), tuple((i, 0) for i in ends))
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    working = WorkingGraph(graph, signature.feeds, signature.fetches, ())
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        optimize(working, tuple(PASSES), lambda node, inputs: None, lambda node: None)
        build_plan(working, signature, kernel_of)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("fetch_all", [False, True], ids=["last", "all"])
@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_nodes_take_twice_the_steps(shape: str, fetch_all: bool) -> None:
    once, twice = (steps(SHAPES[shape], length, fetch_all) for length in (100, 200))
    assert twice <= 2.2 * once
