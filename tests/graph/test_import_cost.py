"""Import takes time in proportion to the graph, whatever its form, and little memory."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message

import aexec
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder

NODES = 20_000


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def test_node_that_waits_for_all_others() -> None:
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


def test_graph_without_weights_takes_little_more_than_its_names() -> None:
    """What Python allocates, per byte of the file; nothing of the message is kept beside it.

    `scripts/graph-memory` measures resident memory with larger graphs.
    """
    g = GraphBuilder()
    g.placeholder("model/input")
    before = "model/input"
    for layer in range(500):
        scope = f"model/encoder/layer_{layer}/attention/output"
        g(f"{scope}/Relu", "Relu", before, T=dtypes.float32)
        g(f"{scope}/dense/Tanh", "Tanh", f"{scope}/Relu", T=dtypes.float32)
        g(f"{scope}/dense/mul", "Mul", f"{scope}/Relu", f"{scope}/dense/Tanh", T=dtypes.float32)
        before = g(f"{scope}/residual/add", "AddV2", f"{scope}/dense/mul", before, T=dtypes.float32)
    data = g.graph_def.SerializeToString()
    aexec.Graph.from_bytes(data)  # what any graph needs is there
    gc.collect()
    tracemalloc.start()
    try:
        graph = aexec.Graph.from_bytes(data)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 4 * len(data), f"{taken / len(graph):.0f} bytes per node, {taken / len(data):.1f} times the file"
    kept = [o for node in graph for slot in node.__slots__ if isinstance(o := getattr(node, slot), Message)]
    assert not kept


@pytest.mark.time_limit(300)
def test_script_that_measures_memory() -> None:
    script = Path(__file__).parents[2] / "scripts" / "graph_memory.py"
    done = subprocess.run([sys.executable, str(script), "--nodes", "300"], check=True, capture_output=True, text=True)
    assert re.search(r"resident memory .* bytes/node .* x file +loaded in", done.stdout)
    assert re.search(r"Python's allocations .* bytes/node .* x file", done.stdout)
