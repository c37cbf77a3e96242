"""Building nodes and graphs part by part; what is wrong is reported together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.graph.graph import Graph
from aexec.graph.node_builder import GraphDefBuilder, NodeBuilder
from aexec.graph.nodes.node import Node
from tests.support.programs.graphs import counting_loop


def const(graph: Graph, name: str = "c", value: object = 1.0) -> Node:
    return NodeBuilder(name, "Const").attr("dtype", "float").attr("value", np.float32(value)).finalize(graph)


class TestNodeBuilder:
    async def test_graph_that_runs(self) -> None:
        graph = Graph()
        c = const(graph, value=np.arange(4))
        axis = NodeBuilder("axis", "Const").attr("dtype", "int32").attr("value", np.int32(0)).finalize(graph)
        parts = NodeBuilder("parts", "Split").input(axis).input(c.output(0)).attr("num_split", 2).finalize(graph)
        both = NodeBuilder("both", "Pack").input([parts.output(1), parts]).finalize(graph)
        last = NodeBuilder("last", "Sub").input(both).input(parts, 1).control_input(axis).control_input(c.output(0))
        node = last.device("/device:CPU:0").finalize(graph)
        assert node.input_names() == ["both", "parts:1", "^axis", "^c"]
        assert node.device == "/device:CPU:0"
        assert node.attrs["T"] is dtypes.float32
        assert both.attrs["N"] == 2
        assert node.shapes == (PartialTensorShape([2, 2]),)
        assert [n.name for n in graph] == ["c", "axis", "parts", "both", "last"]
        async with aexec.Session(graph) as session:
            assert (await session.run("last:0")).tolist() == [[0, 0], [-2, -2]]

    def test_names_are_not_changed_and_internal_ones_allowed(self) -> None:
        graph = Graph()
        const(graph, "_c")
        with pytest.raises(errors.InvalidArgumentError, match="Node name '_c' already exists in the Graph"):
            const(graph, "_c")
        with graph:
            assert aexec.constant(1.0, name="c").name == "c:0"

    def test_definition_that_the_graph_does_not_know(self) -> None:
        graph = Graph()
        with pytest.raises(errors.NotFoundError, match="TestTwice"):
            NodeBuilder("n", aexec.framework.wire.op_def.OpDef("TestTwice")).finalize(graph)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda c: NodeBuilder("n", "TestNoSuchOp"), "TestNoSuchOp"),
            (lambda c: NodeBuilder("n", "Sqrt"), "0 inputs specified of 1 inputs"),
            (lambda c: NodeBuilder("n", "Sqrt").input(c).input(c), "More inputs specified than the 1"),
            (lambda c: NodeBuilder("n", "Sqrt").input(c, 1), "does not have output 1"),
            (lambda c: NodeBuilder("n", "Sqrt").input(None), "expected a tensor or a node as input of 'n', got None"),
            (lambda c: NodeBuilder("n", "AddN").input([c, None]), "expected a tensor or a node as input of 'n'"),
            (lambda c: NodeBuilder("n", "AddN").input(c), "Single tensor passed to 'inputs', expected list"),
            (lambda c: NodeBuilder("n", "Sqrt").input([c, c]), "List provided to input 'x'"),
            (lambda c: NodeBuilder("n", "Sqrt").input(c).attr("T", "int32"), "Inconsistent values for attr 'T'"),
            (lambda c: NodeBuilder("n", "NoOp").control_input(None), "expected a tensor or a node"),
            (lambda c: NodeBuilder("n", "Sqrt").input(const(Graph())), "'c' is not of the graph that is built"),
            (lambda c: NodeBuilder("n!", "Sqrt").input(c), "invalid characters"),
            (lambda c: NodeBuilder("n", "MatMul").input(c).input(c), "must be rank 2"),
        ],
    )
    def test_errors(self, make: Callable[[Node], NodeBuilder], message: str) -> None:
        graph = Graph()
        c = const(graph)
        builder = make(c)
        with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
            builder.finalize(graph)
        assert caught.value.node == builder.name
        assert len(graph) == 1

    def test_errors_are_reported_together(self) -> None:
        graph = Graph()
        c = const(graph)
        builder = NodeBuilder("n", "AddV2").input(c, 7).input(None).attr("T", "no type").control_input(const(Graph()))
        with pytest.raises(errors.InvalidArgumentError) as caught:
            builder.finalize(graph)
        for part in ("does not have output 7", "got None", "not of the graph", "no type"):
            assert part in caught.value.message


class TestGraphDefBuilder:
    def test_nodes_in_order(self) -> None:
        builder = GraphDefBuilder()
        x = builder.add(builder.node("Placeholder", "x").attr("dtype", "float").attr("shape", [2]))
        y = builder.add(builder.node("Sqrt").input(x))
        builder.add(builder.node("Sqrt").input(y))
        message = builder.to_graph_def()
        assert [(n.name, list(n.input)) for n in message.node] == [("x", []), ("Sqrt", ["x"]), ("Sqrt_1", ["Sqrt"])]
        graph = builder.to_graph()
        assert graph.to_bytes() == message.SerializeToString(deterministic=True)
        assert graph.node("Sqrt_1").graph is graph
        with graph:
            aexec.constant(1.0)
        assert len(builder.to_graph()) == 3

    def test_beginning_with_a_graph(self) -> None:
        start = counting_loop().graph()
        builder = GraphDefBuilder(start)
        builder.add(builder.node("Square", "again").input(start.tensor("result")))
        assert builder.to_graph().node("again").input_names() == ["result"]
        assert "again" not in start

    def test_all_errors_are_reported_but_not_what_follows_from_them(self) -> None:
        builder = GraphDefBuilder()
        good = builder.add(builder.node("Placeholder", "x").attr("dtype", "float"))
        assert builder.ok
        bad = builder.add(builder.node("Sqrt", "bad"))
        assert bad is None
        assert builder.add(builder.node("Sqrt", "after_bad").input(bad)) is None
        assert builder.add(builder.node("AddN", "also").input([good, bad]).control_input(bad)) is None
        assert builder.add(builder.node("TestNoSuchOp", "worse").input(good)) is None
        assert builder.add(builder.node("Sqrt", "fine").input(good)) is not None
        assert not builder.ok
        with pytest.raises(errors.InvalidArgumentError) as caught:
            builder.to_graph_def()
        text = caught.value.message
        assert text.startswith("2 error(s) while building a graph:\nnode 'bad': ")
        assert "node 'worse': " in text
        assert "after_bad" not in text
        with pytest.raises(errors.InvalidArgumentError):
            builder.to_graph()

    def test_missing_input_that_nothing_explains_is_an_error(self) -> None:
        builder = GraphDefBuilder()
        builder.add(builder.node("Sqrt", "n").input(None))
        with pytest.raises(errors.InvalidArgumentError, match="node 'n': expected a tensor or a node"):
            builder.to_graph_def()
