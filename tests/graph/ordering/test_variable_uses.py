"""Who reads and who updates variables, followed along references and handles and into functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting import long_work
from aexec.framework.waiting.long_work import CalledOffError, LongWork
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.function_body import instantiate
from aexec.graph.ordering.variable_uses import (
    FunctionEffects,
    VariableUses,
    find_uses,
    later_than_updates,
    reads_by_handle,
    updates_by_handle,
)
from aexec.ops.families import FAMILIES
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.programs.planning_bombs import BOMBS

F = dtypes.float32
# They take a handle of something else, or of anything.
OTHERS = {"MutexLock"}


def uses_of(g: GraphBuilder, fed: tuple[str, ...] = ()) -> tuple[set[tuple[str, str]], set[tuple[str, str]]] | None:
    """(variable, node) of reads, and of updates; a variable has the name that it is shared by."""
    graph = g.graph()
    functions = FunctionEffects(
        graph.library, lambda f: instantiate(graph.library, f.name, f.attrs, graph.versions), lambda node: False
    )
    endpoints = {graph.tensor(name).endpoint for name in fed}
    found: VariableUses | None = find_uses(list(graph), endpoints, functions)
    if found is None:
        return None

    def named(variable: Any) -> str:
        return variable[2].decode() if len(variable) == 3 else graph.nodes[variable[0]].name

    return (
        {(named(v), graph.nodes[i].name) for v, ids in found.reads.items() for i in ids},
        {(named(v), graph.nodes[i].name) for v, ids in found.updates.items() for i in ids},
    )


def reference() -> GraphBuilder:
    g = GraphBuilder()
    g("v", "VariableV2", dtype=F, shape=[])
    g.const("one", np.float32(1))
    return g


def handle() -> GraphBuilder:
    g = GraphBuilder()
    g("h", "VarHandleOp", dtype=F, shape=[], shared_name="h")
    g.const("one", np.float32(1))
    g("u", "AssignAddVariableOp", "h", "one", dtype=F)
    return g


@pytest.mark.parametrize("family", ["state", "training", "random"])
def test_every_op_that_takes_a_variables_handle_reads_or_updates_it(family: str) -> None:
    for op in FAMILIES[family].split():
        op_def = op_registry.global_registry.lookup(op).op_def
        if any(arg.type is dtypes.resource for arg in op_def.inputs) and op not in OTHERS:
            assert reads_by_handle(op) != updates_by_handle(op), op


def test_graph_without_updates_has_no_uses() -> None:
    g = reference()
    g("n", "Neg", "v", T=F)
    assert uses_of(g) is None


def test_node_that_takes_the_value_of_a_reference_reads_it() -> None:
    g = reference()
    g("read", "Identity", "v", T=F)
    g("again", "Identity", "read", T=F)
    g("n", "Neg", "again", T=F)
    g("is", "IsVariableInitialized", "v", dtype=F)
    g("u", "AssignAdd", "v", "one", T=F)
    g("later", "Neg", "u", T=F)
    reads, updates = uses_of(g) or (set(), set())
    assert reads == {("v", "n"), ("v", "is"), ("v", "later")}
    assert updates == {("v", "u")}


def test_fed_reference_is_not_a_use() -> None:
    g = reference()
    g("read", "Identity", "v", T=F)
    g("n", "Neg", "read", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    assert uses_of(g, ("read:0",)) == (set(), {("v", "u")})


def test_update_reads_what_it_takes_by_value() -> None:
    g = reference()
    g("w", "VariableV2", dtype=F, shape=[])
    g("u", "Assign", "v", "w", T=F)
    assert uses_of(g) == ({("w", "u")}, {("v", "u")})


def test_references_of_one_name_are_one_variable() -> None:
    g = GraphBuilder()
    g("a", "VariableV2", dtype=F, shape=[], shared_name="v")
    g("b", "VariableV2", dtype=F, shape=[], shared_name="v")
    g.const("one", np.float32(1))
    g("n", "Neg", "a", T=F)
    g("u", "AssignAdd", "b", "one", T=F)
    assert uses_of(g) == ({("v", "n")}, {("v", "u")})


def test_references_and_handles_go_through_control_flow() -> None:
    g = reference()
    g.placeholder("p", dtypes.bool_, [])
    g("branch", "RefSwitch", "v", "p", T=F)
    g("n", "Neg", "branch:1", T=F)
    g("u", "AssignAdd", "branch:0", "one", T=F)
    g("h", "VarHandleOp", dtype=F, shape=[], shared_name="h")
    g("switch", "Switch", "h", "p", T=dtypes.resource)
    g("both", "Merge", "switch:0", "switch:1", T=dtypes.resource, N=2)
    g("r", "ReadVariableOp", "both", dtype=F)
    assert uses_of(g) == ({("v", "n"), ("h", "r")}, {("v", "u")})


READS = function_def(
    "GraphReads(h: resource) -> y: float", body=[("r", "ReadVariableOp", ["h"], {"dtype": F})], ret={"y": "r:value:0"}
)
UPDATES = function_def(
    "GraphUpdates(x: float, h: resource) -> same: resource",
    body=[("u", "AssignAddVariableOp", ["h", "x"], {"dtype": F})],
    ret={"same": "h"},
    control_ret={"u": "u"},
    stateful=True,
)
NESTED = function_def(
    "GraphNested(h: resource) -> y: float",
    body=[("c", "PartitionedCall", ["h"], {"Tin": [dtypes.resource], "Tout": [F], "f": calls("GraphReads")})],
    ret={"y": "c:output:0"},
)


def test_calls_do_what_their_functions_do() -> None:
    g = handle()
    g.graph_def.library.function.extend([READS, UPDATES, NESTED])
    g("reads", "PartitionedCall", "h", Tin=[dtypes.resource], Tout=[F], f=calls("GraphNested"))
    types = {"Tin": [F, dtypes.resource], "Tout": [dtypes.resource]}
    g("updates", "StatefulPartitionedCall", "one", "h", **types, f=calls("GraphUpdates"))
    g("handed_on", "ReadVariableOp", "updates", dtype=F)
    assert uses_of(g) == ({("h", "reads"), ("h", "handed_on")}, {("h", "u"), ("h", "updates")})


def test_function_that_calls_itself_does_what_the_rest_of_it_does() -> None:
    again = function_def(
        "GraphAgain(h: resource) -> y: float",
        body=[
            ("r", "ReadVariableOp", ["h"], {"dtype": F}),
            ("c", "PartitionedCall", ["h"], {"Tin": [dtypes.resource], "Tout": [F], "f": calls("GraphAgain")}),
            ("sum", "AddV2", ["r:value:0", "c:output:0"], {"T": F}),
        ],
        ret={"y": "sum:z:0"},
    )
    g = handle()
    g.graph_def.library.function.append(again)
    g("calls", "PartitionedCall", "h", Tin=[dtypes.resource], Tout=[F], f=calls("GraphAgain"))
    assert uses_of(g) == ({("h", "calls")}, {("h", "u")})


def test_later_than_updates_are_those_that_depend_on_one() -> None:
    g = reference()
    g("before", "Neg", "v", T=F)
    g("u", "AssignAdd", "v", "one", T=F)
    g("value", "Neg", "u", T=F)
    g("waits", "NoOp", "^u")
    graph = g.graph()
    assert {graph.nodes[i].name for i in later_than_updates(graph, graph.library)} == {"u", "value", "waits"}


def test_unknown_effects_are_not_cached() -> None:
    """A body that is not there yet, or whose search was called off, is asked for again."""
    reads = function_def(
        "Reads(v: resource) -> y: float",
        body=[("r", "ReadVariableOp", ["v"], {"dtype": F})],
        ret={"y": "r:value:0"},
        stateful=True,
    )
    outer = function_def(
        "Outer(v: resource) -> y: float", body=[("r", "Reads", ["v"], {})], ret={"y": "r:y:0"}, stateful=True
    )
    g = GraphBuilder()
    g.graph_def.library.function.extend([reads, outer])
    library, versions = g.graph().library, g.graph_def.versions
    asked: list[str] = []

    def body_of(function: NameAttrList) -> Any:
        asked.append(function.name)
        if asked == ["Outer", "Reads"]:
            raise CalledOffError
        return instantiate(library, function.name, function.attrs, versions)

    effects = FunctionEffects(library, body_of, lambda node: False)
    with pytest.raises(CalledOffError):
        effects.of(NameAttrList("Outer"))
    assert effects.of(NameAttrList("Outer")).reads == {0}
    assert effects.of(NameAttrList("Reads")).reads == {0}
    assert asked == ["Outer", "Reads"] * 2


def test_search_that_is_called_off_in_a_body_remembers_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = function_def(
        "Reads(v: resource) -> y: float",
        body=[("r", "ReadVariableOp", ["v"], {"dtype": F})],
        ret={"y": "r:value:0"},
        stateful=True,
    )
    g = GraphBuilder()
    g.graph_def.library.function.append(reads)
    library, versions = g.graph().library, g.graph_def.versions

    def body_of(function: NameAttrList) -> Any:
        return instantiate(library, function.name, function.attrs, versions)

    effects = FunctionEffects(library, body_of, lambda node: False)
    work = LongWork()

    def call_off_in_body() -> None:
        body = body_of(NameAttrList("Reads"))
        effects._body_of = lambda function: work.call_off() or body
        effects.of(NameAttrList("Reads"))

    monkeypatch.setattr(long_work, "_PIECE", 1)
    with pytest.raises(CalledOffError):
        work.do(call_off_in_body)
    effects._body_of = body_of
    assert effects.of(NameAttrList("Reads")).reads == {0}


def test_calls_may_be_nested_deeper_than_the_stack() -> None:
    graph_def, _ = BOMBS["functions in a row"](1500)
    library = aexec.Graph.from_graph_def(graph_def).library
    effects = FunctionEffects(
        library, lambda f: instantiate(library, f.name, f.attrs, graph_def.versions), lambda node: False
    )
    assert effects.of(NameAttrList("F0")).reads == {0}
