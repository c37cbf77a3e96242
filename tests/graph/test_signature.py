"""Inputs and outputs of a graph that has no signatures."""

from __future__ import annotations

import aexec
from aexec.graph.signature import graph_signature


def test_placeholders_are_inputs_and_what_nobody_takes_is_output() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 2], name="x")
        aexec.ops.placeholder_with_default(1.0, [], name="optional")
        aexec.constant(1, name="unused")
        y = aexec.ops.square(x, name="y")
        aexec.ops.neg(y, name="z")
        aexec.group(y, name="train")
    signature = graph_signature(graph)
    assert {key: str(info) for key, info in signature.inputs.items()} == {"x": "x:0  float[?,2]"}
    assert {key: str(info) for key, info in signature.outputs.items()} == {"z": "z:0  float[?,2]"}


def test_all_outputs_of_a_node_count_or_none() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [4], name="x")
        values, _ = aexec.ops.top_kv2(x, 2, name="top")
        aexec.ops.neg(values, name="y")
        aexec.ops.top_kv2(x, 2, name="all")
    assert list(graph_signature(graph).outputs) == ["y", "all:0", "all:1"]


def test_cells_and_handles_are_no_outputs() -> None:
    with aexec.Graph() as graph:
        variable = aexec.ops.variable_v2(shape=[], dtype="float32", name="v")
        aexec.ops.assign(variable, 1.0, name="assign")
        aexec.ops.var_handle_op(dtype="float32", shape=[], name="handle")
        aexec.ops.identity(variable, name="read")
    assert list(graph_signature(graph).outputs) == ["read"]
