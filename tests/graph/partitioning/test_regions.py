"""Regions: which nodes are together, what goes in and comes out, and what can never be inside."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.regions import Region, collapse, find_regions
from aexec.graph.passes import WorkingGraph
from tests.support import gates  # noqa: F401  registers TestFail
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32
KNOWN = {"AddV2", "Mul", "Neg", "Split", "Exp", "Less", "LogicalNot"}


def endpoint(working: WorkingGraph, name: str) -> Endpoint:
    node, _, slot = name.partition(":")
    found = working.find(node)
    assert found is not None
    return found.id, int(slot or 0)


def regions_of(
    g: GraphBuilder,
    fetches: Sequence[str],
    feeds: Sequence[str] = ("x",),
    targets: Sequence[str] = (),
    known: frozenset[str] | set[str] = frozenset(KNOWN),
    places: dict[str, str] | None = None,
) -> tuple[WorkingGraph, list[Region]]:
    graph = g.graph()
    ends = WorkingGraph(graph, [], [], [])
    working = WorkingGraph(
        graph,
        [endpoint(ends, name) for name in feeds],
        [endpoint(ends, name) for name in fetches],
        [endpoint(ends, name)[0] for name in targets],
    )
    regions = find_regions(
        working,
        [endpoint(ends, name) for name in fetches],
        lambda node, used: node.op in known,
        lambda node: (places or {}).get(node.name, ""),
    )
    return working, regions


def names(regions: list[Region]) -> set[str]:
    return {" ".join(sorted(node.name for node in region.nodes)) for region in regions}


def chain(*ops: str) -> GraphBuilder:
    """x, then a node `a`, `b`, … of each op."""
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    last = "x"
    for name, op in zip("abcdefgh", ops, strict=False):
        extra = {"message": b"no"} if op == "TestFail" else {}
        last = g(name, op, *[last] * (2 if op in ("AddV2", "Mul") else 1), T=F, **extra)
    return g


def test_chain_is_one_region() -> None:
    working, (region,) = regions_of(chain("Neg", "Mul", "Exp"), ["c"])
    assert [node.name for node in region.nodes] == ["a", "b", "c"]
    assert region.inputs == (endpoint(working, "x"),)
    assert region.outputs == (endpoint(working, "c"),)
    assert region.ops == {"Neg": 1, "Mul": 1, "Exp": 1}
    assert [shape.dims for shape in region.input_shapes] == [(2,)]


def test_unknown_op_cuts() -> None:
    assert names(regions_of(chain("Neg", "Neg", "Sin", "Neg", "Neg"), ["e"])[1]) == {"a b", "d e"}


def test_no_path_leaves_a_region_and_returns() -> None:
    """`a` and `c` are neighbours, but between them is `s`, which is not known."""
    g = chain("Neg")
    g("s", "Sin", "a", T=F)
    g("c", "AddV2", "a", "s", T=F)
    assert names(regions_of(g, ["c"])[1]) == {"a", "c"}


def test_unknown_op_beside_does_not_cut() -> None:
    """What `c` takes from `s` needs nothing of `a`: it comes in with x."""
    g = chain("Neg")
    g("s", "Sin", "x", T=F)
    g("c", "AddV2", "a", "s", T=F)
    working, (region,) = regions_of(g, ["c"])
    assert names([region]) == {"a c"}
    assert set(region.inputs) == {endpoint(working, "x"), endpoint(working, "s")}


def test_neighbours_are_joined_over_another_regions_unknown_op() -> None:
    """`b` comes after an unknown op, but after none that needs `a`."""
    g = chain("Neg")
    g("other", "Exp", "x", T=F)
    g("s", "Sin", "other", T=F)
    g("b", "AddV2", "a", "s", T=F)
    assert names(regions_of(g, ["b"])[1]) == {"a b", "other"}


def test_control_edges_are_paths_too() -> None:
    g = chain("Neg")
    g("s", "Sin", "x", "^a", T=F)
    g("b", "Neg", "a", "^s", T=F)
    working, regions = regions_of(g, ["b"])
    assert names(regions) == {"a", "b"}
    (second,) = [region for region in regions if region.nodes[0].name == "b"]
    assert second.control_inputs == (endpoint(working, "s")[0],)


def test_constants_are_copied_not_members() -> None:
    g = chain("Neg")
    g.const("k", np.ones(2, np.float32))
    g("b", "Mul", "a", "k", T=F)
    g("s", "Sin", "b", T=F)
    g("c", "Mul", "s", "k", T=F)
    _, regions = regions_of(g, ["c"])
    assert names(regions) == {"a b", "c"}
    assert [[node.name for node in region.constants] for region in regions] == [["k"], ["k"]]
    assert regions[0].constant_bytes == 8


def test_constant_that_waits_is_an_input() -> None:
    g = chain("Neg")
    g("s", "Sin", "a", T=F)
    g.const("k", np.ones(2, np.float32), None, "^s")
    g("b", "Mul", "a", "k", T=F)
    working, regions = regions_of(g, ["b"])
    assert names(regions) == {"a", "b"}
    (second,) = [region for region in regions if region.nodes[0].name == "b"]
    assert endpoint(working, "k") in second.inputs and not second.constants


def test_fed_value_inside_is_an_input() -> None:
    working, regions = regions_of(chain("Neg", "Neg", "Neg"), ["c"], feeds=["x", "a"])
    (region,) = regions
    assert names(regions) == {"b c"}
    assert region.inputs == (endpoint(working, "a"),)


def test_fetched_value_inside_is_an_output() -> None:
    working, (region,) = regions_of(chain("Neg", "Neg", "Neg"), ["c", "a"])
    assert names([region]) == {"a b c"}
    assert region.outputs == (endpoint(working, "a"), endpoint(working, "c"))


def test_outputs_are_those_used_outside() -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    g.const("axis", 0, dtypes.int32)
    g("halves", "Split", "axis", "x", T=F, num_split=2)
    g("s", "Sin", "halves:1", T=F)
    g("n", "Neg", "halves:0", T=F)
    working, (region,) = regions_of(g, ["s", "n"])
    assert set(region.outputs) == {endpoint(working, "halves:1"), endpoint(working, "n")}


@pytest.mark.parametrize("dtype", [dtypes.string, dtypes.resource, dtypes.variant])
def test_only_numbers_flow_within_a_region(dtype: dtypes.DType) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtype, [])
    g("a", "Identity", "x", T=dtype)
    g("b", "Identity", "a", T=dtype)
    assert regions_of(g, ["b"], known={"Identity"})[1] == []


def test_state_and_refs_stay_outside() -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    g("v", "VariableV2", dtype=F, shape=[2])
    g("read", "Identity", "v", T=F)
    g("sum", "AddV2", "x", "v", T=F)
    g("noise", "RandomUniform", "shape", T=dtypes.int32, dtype=F)
    g.const("shape", [2], dtypes.int32)
    g("d", "Mul", "noise", "sum", T=F)
    g("e", "Mul", "d", "read", T=F)
    known = {"VariableV2", "Identity", "AddV2", "RandomUniform", "Mul"}
    assert names(regions_of(g, ["e"], known=known)[1]) == {"d e"}


def test_places_are_not_mixed() -> None:
    g = chain("Neg", "Neg", "Neg", "Neg")
    assert names(regions_of(g, ["d"], places={"c": "other", "d": "other"})[1]) == {"a b", "c d"}


def test_node_with_control_uses_only_stays_outside() -> None:
    g = chain("Neg", "Neg")
    g("c", "Neg", "a", "^b", T=F)
    assert names(regions_of(g, ["c"])[1]) == {"a", "c"}


def test_dead_or_alive_together() -> None:
    """The branches of a conditional, and what is outside of it, are regions of their own."""
    g = chain("Neg")
    g.placeholder("p", dtypes.bool_, [])
    g("switch", "Switch", "a", "p", T=F)
    g("t1", "Neg", "switch:1", T=F)
    g("t2", "AddV2", "t1", "a", T=F)
    g("f1", "Neg", "switch", T=F)
    g("f2", "Neg", "f1", T=F)
    g("merge", "Merge", "t2", "f2", T=F, N=2)
    g("z", "Neg", "merge", T=F)
    g("z2", "Exp", "z", T=F)
    g("free", "Exp", "a", T=F)
    _, regions = regions_of(g, ["z2", "free"], feeds=["x", "p"])
    assert names(regions) == {"a free", "t1 t2", "f1 f2", "z z2"}


def test_control_edge_from_a_switch_does_not_choose_a_branch() -> None:
    g = chain("Neg")
    g.placeholder("p", dtypes.bool_, [])
    g("switch", "Switch", "x", "p", T=F)
    g("b", "Neg", "a", "^switch", T=F)
    assert names(regions_of(g, ["b"], feeds=["x", "p"])[1]) == {"a b"}


def test_regions_in_a_loop() -> None:
    """What the body computes with a constant of the loop is one region; what runs in each iteration without the
    loop's value, and what runs in the first alone, are others."""
    g = chain()
    frame = {"frame_name": "loop", "parallel_iterations": 10}
    g("enter", "Enter", "x", T=F, **frame)
    g("weight", "Enter", "x", T=F, is_constant=True, **frame)
    g("merge", "Merge", "enter", "next", T=F, N=2)
    g.placeholder("p", dtypes.bool_, [])
    g("go", "Enter", "p", T=dtypes.bool_, is_constant=True, **frame)
    g("cond", "LoopCond", "go")
    g("switch", "Switch", "merge", "cond", T=F)
    g("once", "Neg", "enter", T=F)
    g("same", "Neg", "weight", T=F)
    g("head", "Neg", "merge", T=F)
    g("body", "AddV2", "switch:1", "weight", T=F)
    g("body2", "Mul", "body", "same", T=F)
    g("next", "NextIteration", "body2", T=F)
    g("exit", "Exit", "switch", T=F)
    g("after", "Neg", "exit", T=F)
    every = ["once", "same", "head", "after"]
    regions = regions_of(g, every, feeds=["x", "p"])[1]
    assert names(regions) == {"once", "same", "head", "body body2", "after"}
    assert names([region for region in regions if not region.in_loop]) == {"after"}


def test_collapse_puts_one_node_in_their_place() -> None:
    g = chain("Neg", "Mul", "Sin", "Neg")
    g("after", "NoOp", "^b")
    working, (region, _) = regions_of(g, ["d"], targets=["after"])
    node = Node(
        working,
        *working.new_node(region.nodes[-1], "/region"),
        region.nodes[0].op_def,
        {},
        inputs=region.inputs,
        types=(region.input_types, region.output_types),
    )
    collapse(working, region, node)
    assert "b" not in {n.name for n in working.nodes.values()}
    assert working.find("c").inputs == ((node.id, 0),)  # type: ignore[union-attr]
    assert working.find("after").control_inputs == (node.id,)  # type: ignore[union-attr]


@st.composite
def wild_graphs(draw: st.DrawFn) -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    made = ["x"]
    for k in range(draw(st.integers(2, 14))):
        inputs = [draw(st.sampled_from(made)) for _ in range(2)]
        controls = [f"^{name}" for name in draw(st.lists(st.sampled_from(made), max_size=1))]
        made.append(g(f"n{k}", draw(st.sampled_from(["AddV2", "Mul", "Sub"])), *inputs, *controls, T=F))
    return g


@given(wild_graphs())
def test_regions_are_convex_disjoint_and_maximal(g: GraphBuilder) -> None:
    every = [node.name for node in g.graph_def.node if node.name != "x"]
    working, regions = regions_of(g, every)
    after: dict[int, set[int]] = {node.id: set() for node in working.nodes.values()}
    for node in working.nodes.values():
        for i in (*(e[0] for e in node.inputs), *node.control_inputs):
            after.setdefault(i, set()).add(node.id)

    def reach(start: set[int]) -> set[int]:
        seen: set[int] = set()
        stack = list(start)
        while stack:
            for i in after[stack.pop()] - seen:
                seen.add(i)
                stack.append(i)
        return seen

    def is_convex(ids: set[int]) -> bool:
        left = set().union(*(after[i] for i in ids)) - ids
        return not (left | reach(left)) & ids

    sets = [{node.id for node in region.nodes} for region in regions]
    known = {node.id for node in working.nodes.values() if node.op in KNOWN}
    assert sorted(itertools.chain(*sets)) == sorted(known)
    assert all(map(is_convex, sets))
    for one, other in itertools.combinations(sets, 2):
        neighbours = any(after[i] & other for i in one) or any(after[i] & one for i in other)
        assert not (neighbours and is_convex(one | other)), "these two could be one"
