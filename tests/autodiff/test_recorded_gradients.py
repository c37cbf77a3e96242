"""Gradients that TensorFlow put into graphs, taken anew: the same numbers must come out."""

from __future__ import annotations

import pytest

import aexec
from aexec.autodiff.aggregation import as_dense
from aexec.autodiff.gradients import gradients
from tests.conformance.cases import Case, decode, mismatches, names

FAMILY = "gradients"
# Each of these fetches y, then dy/dx for each of its placeholders x0, x1, …
FIRST_ORDER = [name for name in names(FAMILY) if name.startswith("gradients.of.")]


def _forward(case: Case, y: str) -> aexec.Graph:
    """What `y` is computed from, without the gradients that the graph came with."""
    whole = aexec.proto.GraphDef.FromString(case.read("graph.pb"))
    by_name = {node.name: node for node in whole.node}
    needed: set[str] = set()
    stack = [y]
    while stack:
        name = stack.pop().removeprefix("^").partition(":")[0]
        if name not in needed:
            needed.add(name)
            stack.extend(by_name[name].input)
    kept = aexec.proto.GraphDef(versions=whole.versions, library=whole.library)
    kept.node.extend(node for node in whole.node if node.name in needed)
    return aexec.Graph.from_graph_def(kept)


@pytest.mark.parametrize("name", FIRST_ORDER)
async def test_first_order(name: str) -> None:
    case = Case.load(FAMILY, name)
    (step,) = case.steps
    y, *expected = step["expected"]
    graph = _forward(case, y["name"])
    feeds = {feed["name"]: decode(case.feeds, feed["key"], feed["dtype"]) for feed in step["feeds"]}
    with graph:
        made = gradients(graph.tensor(y["name"]), [graph.tensor(feed) for feed in feeds])
        dense = [as_dense(grad) for grad in made]
    async with aexec.Session(graph) as session:
        found = await session.run(dense, feeds)
    assert expected
    assert list(mismatches(case, expected, found)) == []
