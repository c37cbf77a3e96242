"""Which name scopes a drawing opens."""

from __future__ import annotations

import pytest

import aexec
from aexec.graph.forms.scope_tree import ScopeTree
from aexec.graph.nodes.node import Node


def graph_of(*names: str) -> aexec.Graph:
    with aexec.Graph() as graph:
        for name in names:
            aexec.ops.no_op(name=f"{name}/")
    return graph


def drawn(tree: ScopeTree, graph: aexec.Graph) -> list[str]:
    """What each node is drawn as, in order, each once: a name, of a scope with `/`."""
    places = tree.places()
    boxes = [places[node.id] for node in graph.nodes if node.id in places]
    return list(dict.fromkeys(box.name if isinstance(box, Node) else f"{box.name}/" for box in boxes))


NAMES = ("x", "a/b/one", "a/b/two", "a/three", "c/four", "c/five", "c/six", "a")


@pytest.mark.parametrize(
    ("max_boxes", "depth", "expected"),
    [
        (100, None, ["x", "a/b/one", "a/b/two", "a/three", "c/four", "c/five", "c/six", "a"]),
        (100, 0, ["x", "a/", "c/", "a"]),
        (100, 1, ["x", "a/b/", "a/three", "c/four", "c/five", "c/six", "a"]),
        (4, None, ["x", "a/", "c/", "a"]),
        (6, None, ["x", "a/b/", "a/three", "c/", "a"]),
        (8, None, ["x", "a/b/one", "a/b/two", "a/three", "c/", "a"]),
        (9, None, ["x", "a/b/", "a/three", "c/four", "c/five", "c/six", "a"]),
    ],
)
def test_small_outer_scopes_are_opened_first(max_boxes: int, depth: int | None, expected: list[str]) -> None:
    graph = graph_of(*NAMES)
    tree = ScopeTree(graph.nodes, max_boxes=max_boxes, depth=depth)
    assert drawn(tree, graph) == expected and tree.num_boxes == len(expected)


def test_nodes_of_a_scope() -> None:
    graph = graph_of(*NAMES)
    tree = ScopeTree(graph.nodes, "a")
    assert drawn(tree, graph) == ["a/b/one", "a/b/two", "a/three"]
    assert (tree.root.size, tree.root.scopes["b"].size, tree.root.scopes["b"].name) == (3, 2, "a/b")
    assert not ScopeTree(graph.nodes, "b").root.size


def test_scopes_within_scopes_without_end() -> None:
    graph = graph_of("/".join(["a"] * 5000), "b")
    assert drawn(ScopeTree(graph.nodes, max_boxes=100), graph)[1:] == ["b"]
    assert ScopeTree(graph.nodes, max_boxes=100_000).num_boxes == 2
