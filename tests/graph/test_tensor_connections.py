"""A tensor in the place of another: which nodes have other inputs then, and what is refused."""

from __future__ import annotations

import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.graph.tensor_connections import ConnectedTable, Connection
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def graph() -> aexec.Graph:
    """y = 2 x; w = z + z, after z; v = -w."""
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.placeholder("z", F, [])
    g.placeholder("i", dtypes.int32, [])
    g.const("two", 2.0, F)
    g("y", "Mul", "x", "two", T=F)
    g("w", "AddV2", "z", "z", "^z", T=F)
    g("v", "Neg", "w", T=F)
    return g.graph()


def connection(built: aexec.Graph, source: str, replaced: str) -> Connection:
    return ((built.node(source).id, 0), (built.node(replaced).id, 0))


def test_consumers_have_the_other_input() -> None:
    built = graph()
    before = built.to_graph_def().SerializeToString(deterministic=True)
    table = ConnectedTable(built, [connection(built, "y", "z")])
    assert table.nodes[built.node("w").id].input_names() == ["y", "y", "^y"]
    assert table.rewired == {built.node("w").id}
    assert built.to_graph_def().SerializeToString(deterministic=True) == before


def test_control_edge_from_a_node_with_work_stays() -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g("a", "Neg", "x", T=F)
    g("b", "Neg", "a", "^a", T=F)
    built = g.graph()
    table = ConnectedTable(built, [connection(built, "x", "a")])
    assert table.nodes[built.node("b").id].input_names() == ["x", "^a"]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("v", "z")], 'between nodes "z" and "v" would create a cycle'),
        ([("z", "z")], 'between nodes "z" and "z" would create a cycle'),
        ([("y", "z"), ("v", "x")], 'between nodes "x" and "v" would create a cycle'),
        ([("i", "z")], "from i:0, of type int32, to z:0, of type float: expected the same type"),
    ],
)
def test_refused(pairs: list[tuple[str, str]], words: str) -> None:
    built = graph()
    with pytest.raises(errors.InvalidArgumentError, match=words):
        ConnectedTable(built, [connection(built, *pair) for pair in pairs])
