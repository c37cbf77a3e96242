"""Order edges: between which nodes there are any, and why there are none between others."""

from __future__ import annotations

import time

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes
from aexec.graph.function_body import instantiate
from aexec.graph.ordering.step_order import StepOrder, step_order
from aexec.graph.ordering.variable_uses import FunctionEffects
from tests.support.collector import no_collector
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def order_of(
    g: GraphBuilder | aexec.Graph,
    fetches: tuple[str, ...] = (),
    fed: tuple[str, ...] = (),
    waiting: tuple[str, ...] = (),
    *,
    in_parts: bool = False,
) -> StepOrder:
    graph = g if isinstance(g, aexec.Graph) else g.graph()
    functions = FunctionEffects(
        graph.library,
        lambda f: instantiate(graph.library, f.name, f.attrs, graph.versions),
        lambda node: node.name in waiting,
    )
    ends = [[graph.tensor(name).endpoint for name in names] for names in (fed, fetches)]
    return step_order({node.id: node for node in graph}, *ends, functions, in_parts=in_parts)


def edges(g: GraphBuilder, **settings: object) -> dict[str, list[str]]:
    graph = g.graph()
    order = order_of(graph, **settings)  # type: ignore[arg-type]
    return {graph.nodes[i].name: [graph.nodes[k].name for k in ids] for i, ids in order.after.items()}


def variables(*names: str) -> GraphBuilder:
    g = GraphBuilder()
    for name in names:
        g(name, "VariableV2", dtype=F, shape=[])
    g.const("one", np.float32(1))
    g.placeholder("x", F, [])
    return g


def test_update_follows_reads_that_no_edge_puts_in_an_order() -> None:
    g = variables("v", "w")
    g("r1", "Neg", "v", T=F)
    g("r2", "Neg", "v", T=F)
    g("other", "Neg", "w", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    assert edges(g) == {"u": ["r1", "r2"]}


def test_existing_edges_are_not_added_again() -> None:
    g = variables("v")
    g("before", "Neg", "v", T=F)
    g("u", "AssignAdd", "v", "before", T=F)
    g("after", "Neg", "u", T=F)
    g("waits", "Neg", "v", "^u", T=F)
    assert edges(g) == {}


def test_graph_without_updates_has_no_order() -> None:
    g = variables("v")
    g("r", "Neg", "v", T=F)
    assert not order_of(g, ("v:0",))


def test_fed_tensor_cuts_the_path_between_update_and_read() -> None:
    g = variables("v")
    g("u", "AssignAdd", "v", "one", T=F)
    g("way", "Neg", "u", T=F)
    g("r", "AddV2", "v", "way", T=F)
    assert edges(g) == {}
    assert edges(g, fed=("way:0",)) == {"u": ["r"]}


def test_fetched_reference_follows_all_updates() -> None:
    g = variables("v")
    g("u1", "AssignAdd", "v", "one", T=F)
    g("u2", "AssignAdd", "v", "one", T=F)
    g("read", "Identity", "v", T=F)
    graph = g.graph()
    order = order_of(graph, ("v:0", "read:0", "u1:0", "one:0"))
    updates = tuple(graph.node(name).id for name in ("u1", "u2"))
    assert set(order.fetched) == {graph.tensor(name).endpoint for name in ("v:0", "read:0", "u1:0")}
    assert set(order.fetched.values()) == {updates}


def test_contradiction_is_decided_for_the_read_made_first() -> None:
    g = variables("v", "w")
    g("rv", "Neg", "v", T=F)
    g("uw", "AssignAdd", "w", "rv", T=F)
    g("rw", "Neg", "w", T=F)
    g("uv", "AssignAdd", "v", "rw", T=F)
    graph = g.graph()
    order = order_of(graph)
    # The update of v would have to follow its read, as it does, and that of w the other read, from which it comes.
    assert {graph.nodes[i].name: [graph.nodes[k].name for k in ids] for i, ids in order.after.items()} == {
        "uw": ["rw"],
        "uv": ["rv"],
    }
    g("rv2", "Neg", "v", "^uw", T=F)
    g("uw2", "AssignAdd", "w", "one", "^uv", T=F)
    g("rw2", "Neg", "w", "^uv", T=F)
    g("uv2", "AssignAdd", "v", "rv2", T=F)
    graph = g.graph()
    order = order_of(graph)
    found = {(graph.nodes[r].name, graph.nodes[u].name) for r, u in order.contradictions}
    assert found == {("rw2", "uw")}


def waits_for_itself() -> GraphBuilder:
    g = variables("v")
    g("get", "Identity", "x", T=F)  # stands for a dequeue
    g("r", "AddV2", "v", "get", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    g("put", "Identity", "u", T=F)  # stands for the enqueue that the dequeue waits for
    return g


def test_read_behind_a_node_that_waits_is_not_waited_for_by_what_ends_the_waiting() -> None:
    assert edges(waits_for_itself(), waiting=("get", "put")) == {}
    assert edges(waits_for_itself(), waiting=("get",)) == {"u": ["r"]}
    assert edges(waits_for_itself(), waiting=("put",)) == {"u": ["r"]}


def test_update_of_a_partial_run_waits_for_its_own_feeds_only() -> None:
    g = waits_for_itself()
    assert edges(g, fed=("x:0",)) == {"u": ["r"]}
    assert edges(g, fed=("x:0",), in_parts=True) == {}
    g("needs", "AssignAdd", "v", "x", T=F)
    assert edges(g, fed=("x:0",), in_parts=True) == {"needs": ["r"]}


def loop(g: GraphBuilder, name: str, value: str = "x") -> GraphBuilder:
    """`while`, with the reference `v` entered as `…/v`, and `…/body` in its body."""
    frame = {"frame_name": name.encode(), "T": F}
    g(f"{name}/x", "Enter", value, **frame)
    g(f"{name}/one", "Enter", "one", is_constant=True, **frame)
    g(f"{name}/v", "RefEnter", "v", is_constant=True, **frame)
    g(f"{name}/merge", "Merge", f"{name}/x", f"{name}/next", N=2, T=F)
    g(f"{name}/less", "Less", f"{name}/merge", f"{name}/one", T=F)
    g(f"{name}/cond", "LoopCond", f"{name}/less")
    g(f"{name}/switch", "Switch", f"{name}/merge", f"{name}/cond", T=F)
    g(f"{name}/body", "Identity", f"{name}/switch:1", T=F)
    g(f"{name}/exit", "Exit", f"{name}/switch:0", T=F)
    return g


def test_loop_is_one_node_to_those_around_it() -> None:
    g = loop(variables("v"), "l")
    g("l/next", "NextIteration", "l/sum", T=F)
    g("l/sum", "AddV2", "l/body", "l/v", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    assert edges(g) == {"u": ["l/exit"]}
    g = loop(variables("v"), "l")
    g("l/next", "NextIteration", "l/body", "^l/u", T=F)
    g("l/u", "AssignAdd", "l/v", "l/body", T=F)
    g("r", "Neg", "v", T=F)
    entered = ["l/x", "l/one", "l/v"]
    assert edges(g) == {name: ["r"] for name in entered}
    g("later", "AddV2", "v", "l/exit", T=F)
    assert edges(g) == {name: ["r"] for name in entered}
    graph = g.graph()
    assert order_of(graph, ("v:0",)).fetched == {graph.tensor("v:0").endpoint: (graph.node("l/exit").id,)}


def test_order_in_a_loop_is_that_of_an_iteration() -> None:
    g = loop(variables("v"), "l")
    g("l/next", "NextIteration", "l/sum", "^l/u", T=F)
    g("l/u", "AssignAdd", "l/v", "l/body", T=F)
    g("l/sum", "AddV2", "l/body", "l/v", T=F)
    graph = g.graph()
    order = order_of(graph)
    assert {graph.nodes[i].name for i in order.after} == {"l/u"}
    assert {graph.nodes[i].name for i in order.serial} == {"l/x", "l/one", "l/v"}


def trained(count: int) -> GraphBuilder:
    """A chain through so many variables, each read twice, updated at any time, and read again once all are."""
    g = variables(*(f"v{k}" for k in range(count)))
    last = "x"
    for k in range(count):
        last = g(f"h{k}", "AddV2", last, f"v{k}", T=F)
    g("loss", "Neg", last, T=F)
    for k in range(count):
        g(f"g{k}", "Mul", "loss", f"v{k}", T=F)
    for k in range(count):
        g(f"u{k}", "AssignAdd", f"v{k}", "one", T=F)
    g("train", "NoOp", *(f"^u{k}" for k in range(count)))
    for k in range(count):
        g(f"after{k}", "Neg", f"v{k}", "^train", T=F)
    return g


def test_pairs_of_a_large_model() -> None:
    order = order_of(trained(50))
    assert len(order.after) == 50
    assert all(len(ids) == 2 for ids in order.after.values())


@no_collector()
def seconds(count: int) -> float:
    graph = trained(count).graph()
    began = time.process_time()
    order = order_of(graph)
    assert len(order.after) == count
    return time.process_time() - began


def test_finding_the_order_is_not_quadratic() -> None:
    small, large = min(seconds(250) for _ in range(3)), min(seconds(2000) for _ in range(2))
    assert large < 8 * small * 4


@pytest.mark.parametrize("op", ["Switch", "Merge"])
def test_reference_into_control_flow_is_read_there(op: str) -> None:
    g = variables("v")
    g.placeholder("p", dtypes.bool_, [])
    g("c", op, "v", *(["p"] if op == "Switch" else ["x"]), T=F, **({} if op == "Switch" else {"N": 2}))
    g("u", "AssignAdd", "v", "one", T=F)
    assert edges(g) == {"u": ["c"]}
