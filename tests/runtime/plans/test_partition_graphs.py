"""Partition graphs and traces of a step: graphs per device that can be imported, and nodes where they ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.graph.graph_import import ImportOptions, import_graph_def
from tests.support.programs.graphs import GraphBuilder, counting_loop

F = dtypes.float32
TASK = "/job:localhost/replica:0/task:0/device:"
# What is written is what is run, without any passes.
CONFIG = aexec.SessionConfig(device_count={"CPU": 2}, graph_passes=())
# Results have no kernel: a step takes them itself.
AGAIN = aexec.SessionConfig(place_pruned_graph=True)


async def run(
    g: GraphBuilder, fetches: Any, feeds: Mapping[str, Any] | None = None, targets: tuple[str, ...] = ()
) -> tuple[Any, aexec.RunMetadata]:
    metadata = aexec.RunMetadata()
    options = aexec.RunOptions(trace=True, output_partition_graphs=True)
    async with aexec.Session(g.graph(), config=CONFIG) as session:
        result = await session.run(fetches, feeds, targets, options=options, metadata=metadata)
    return result, metadata


def imported(message: proto.GraphDef) -> aexec.Graph:
    graph = aexec.Graph()
    import_graph_def(graph, message, ImportOptions(internal_names=True))
    return graph


def nodes(message: proto.GraphDef) -> dict[str, tuple[str, list[str]]]:
    return {n.name: (n.op, list(n.input)) for n in message.node}


def traced(metadata: aexec.RunMetadata) -> dict[str, set[str]]:
    assert metadata.step_stats is not None
    return {
        device.device.removeprefix(TASK): {n.node_name for n in device.node_stats}
        for device in metadata.step_stats.dev_stats
    }


async def test_constants_feeds_and_fetches_are_in_the_graph() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g.const("c", np.float32(2))
    g("y", "Mul", "x", "c", T=F)
    g("unneeded", "Sqrt", "y", T=F)
    result, metadata = await run(g, "y:0", {"x:0": 3.0})
    assert result == 6
    (message,) = metadata.partition_graphs
    assert nodes(message) == {
        "c": ("Const", []),
        "_arg_x_0_0": ("_Arg", []),
        "y": ("Mul", ["_arg_x_0_0", "c"]),
        "_retval_y_0_0": ("_Retval", ["y"]),
    }
    assert {n.device for n in message.node} == {f"{TASK}CPU:0"}
    async with aexec.Session(imported(message), config=AGAIN) as session:
        assert await session.run("y:0", {"_arg_x_0_0:0": 4.0}) == 8


async def test_loops_and_other_outputs_that_are_fed() -> None:
    result, metadata = await run(counting_loop(), "result:0", {"n:0": 3})
    assert result == 3
    (message,) = metadata.partition_graphs
    async with aexec.Session(imported(message), config=AGAIN) as session:
        assert await session.run("result:0", {"_arg_n_0_0:0": 5}) == 5
    g = GraphBuilder()
    g.const("axis", 0, dtypes.int32)
    g.const("pair", np.ones(2, np.float32))
    g("parts", "Split", "axis", "pair", num_split=2, T=F)
    g("sum", "AddV2", "parts", "parts:1", T=F)
    _, metadata = await run(g, ["sum:0", "parts:0"], {"parts:1": np.ones(1)})
    found = nodes(metadata.partition_graphs[0])
    assert found["sum"] == ("AddV2", ["parts", "_arg_parts_1_0"])
    assert found["_retval_parts_0_1"] == ("_Retval", ["parts"])
    imported(metadata.partition_graphs[0])


def two_devices() -> GraphBuilder:
    """`a` on one device; `b` and `after` on the other consume it, `after` waits for `a` too."""
    g = GraphBuilder()
    g.placeholder("x")
    g("a", "Sqrt", "x", device="/cpu:0", T=F)
    g("b", "Neg", "a", device="/cpu:1", T=F)
    g("c", "AddV2", "a", "x", device="/cpu:1", T=F)
    g("after", "Mul", "b", "c", "^a", device="/cpu:1", T=F)
    g("same", "Identity", "after", T=F)
    g.graph_def.node[-1].attr["_class"].list.s.append(b"loc:@c")
    return g


async def test_each_device_has_one_graph() -> None:
    result, metadata = await run(two_devices(), "same:0", {"x:0": 4.0})
    assert result == -12
    first, second = metadata.partition_graphs
    assert {n.device for n in first.node} == {f"{TASK}CPU:0"}
    assert {n.device for n in second.node} == {f"{TASK}CPU:1"}
    for message in (first, second):
        imported(message)
    one, two = nodes(first), nodes(second)
    assert one["a"] == ("Sqrt", ["_arg_x_0_0"])
    assert one["_arg_x_0_0"] == ("_Arg", [])
    (received,) = two["b"][1]
    assert two[received] == ("_Recv", [])
    op, (shared, fed) = two["c"]
    assert (op, shared, two[fed]) == ("AddV2", received, ("_Recv", []))
    assert two["after"][1][:2] == ["b", "c"]
    signal = two["after"][1][2].removeprefix("^")
    assert two[signal][0] == "Identity"
    assert two[two[signal][1][0]] == ("_Recv", [])
    sent = {source: one[source] for op, sources in one.values() if op == "_Send" for source in sources}
    assert {("Sqrt", ("_arg_x_0_0",)), ("_Arg", ()), ("Const", ("^a",))} == {
        (op, tuple(inputs)) for op, inputs in sent.values()
    }
    assert two["same"] == ("Identity", ["after"])


async def test_sends_and_receives_agree() -> None:
    _, metadata = await run(two_devices(), "same:0", {"x:0": 4.0})
    first, second = metadata.partition_graphs

    def edges(message: proto.GraphDef, op: str) -> list[dict[str, proto.AttrValue]]:
        found = [dict(n.attr) for n in message.node if n.op == op]
        return [{k: v for k, v in attrs.items() if k not in ("T", "tensor_type")} for attrs in found]

    for one, other in ((first, second), (second, first)):
        names = {attrs["tensor_name"].s for attrs in edges(one, "_Send")}
        assert names == {attrs["tensor_name"].s for attrs in edges(other, "_Recv")}
        for attrs in edges(one, "_Send"):
            assert attrs in edges(other, "_Recv")
    assert len({attrs["tensor_name"].s for attrs in edges(first, "_Send")}) == 3


async def test_colocation_group_without_its_node_is_dropped() -> None:
    g = GraphBuilder()
    g.const("a", np.float32(1))
    g("b", "Sqrt", "a", T=F)
    g("c", "Neg", "a", T=F)
    g.graph_def.node[-1].attr["_class"].list.s.append(b"loc:@b")
    _, metadata = await run(g, "c:0")
    assert "_class" not in metadata.partition_graphs[0].node[1].attr
    _, metadata = await run(g, ["c:0", "b:0"])
    assert list(metadata.partition_graphs[0].node[2].attr["_class"].list.s) == [b"loc:@b"]


async def test_nodes_are_traced_where_they_ran() -> None:
    _, metadata = await run(two_devices(), "same:0", {"x:0": 4.0})
    found = traced(metadata)
    own = {device: {name for name in names if "/_" not in name} for device, names in found.items()}
    assert own == {"CPU:0": {"_SOURCE", "a"}, "CPU:1": {"_SOURCE", "b", "c", "after", "same"}}
    transfers = {device: sum("/_" in name for name in names) for device, names in found.items()}
    assert transfers == {"CPU:0": 3 + 1 + 1, "CPU:1": 3 + 1 + 1}  # three values and the result; what only says "done"


async def test_step_without_nodes_has_a_graph_and_a_trace() -> None:
    g = GraphBuilder()
    g.const("c", np.float32(2))
    _, metadata = await run(g, "c:0")
    assert traced(metadata) == {"CPU:0": {"_SOURCE"}}
    assert [n.name for n in metadata.partition_graphs[0].node] == ["c", "_retval_c_0_0"]
