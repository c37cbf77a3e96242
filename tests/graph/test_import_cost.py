"""Import takes time in proportion to the graph, whatever its form."""

from __future__ import annotations

import time
from collections.abc import Callable

import aexec
from tests.support.graphs import GraphBuilder

NODES = 20_000


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def test_a_node_that_waits_for_all_others() -> None:
    """Against a chain of as many nodes; when the cost was quadratic it took ten times as long."""
    chain, star = GraphBuilder(), GraphBuilder()
    for index in range(NODES):
        chain(f"n{index}", "NoOp", *([f"^n{index - 1}"] if index else []))
        star(f"n{index}", "NoOp")
    star("all", "NoOp", *(f"^n{index}" for index in range(NODES)), *(f"^n{index}" for index in range(NODES)))
    expected = seconds(chain.graph)
    graph: list[aexec.Graph] = []
    assert seconds(lambda: graph.append(star.graph())) < 4 * expected
    assert graph[0].node("all").control_inputs == tuple(range(NODES))
