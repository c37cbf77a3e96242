"""A graph in pieces: bytes, JSON and text are those of all of it, and little of it is in memory at a time."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from google.protobuf import json_format

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec
from aexec.graph.forms.graph_pieces import GraphForm, graph_pieces
from tests.support.programs.graphs import GraphBuilder

FORMS = list(GraphForm)
MOST = 1 << 17


def joined(graph: aexec.Graph, form: GraphForm) -> bytes:
    return b"".join(part.encode() if isinstance(part, str) else part for part in graph_pieces(graph, form))


def with_tensors() -> GraphBuilder:
    rng = np.random.default_rng(0)
    g = GraphBuilder()
    g.const("floats", rng.standard_normal(5000).astype(np.float32))
    g.const("matrix", rng.standard_normal((100, 90)))
    g.const("filled", np.zeros(100_000, np.float32))
    g.const("strings", np.array([b"ab", b"\xff"] * 3000, object))
    g.const("bytes", rng.integers(0, 255, 50_000).astype(np.uint8))
    g.const("halves", rng.standard_normal(3000).astype(dtypes.bfloat16.np))
    g.const("complexes", (rng.standard_normal(3000) * 1j).astype(np.complex64))
    values = g.graph_def.node.add(name="values", op="Const")
    values.attr["dtype"].type = dtypes.float32.enum
    values.attr["value"].tensor.CopyFrom(
        proto.TensorProto(dtype=1, float_val=rng.random(4000).tolist(), tensor_shape={"dim": [{"size": 4000}]})
    )
    broken = g.graph_def.node.add(name="broken", op="Const")
    broken.attr["dtype"].type = dtypes.float32.enum
    broken.attr["value"].tensor.CopyFrom(
        proto.TensorProto(dtype=1, tensor_content=rng.bytes(7777), tensor_shape={"dim": [{"size": 4000}]})
    )
    odd = g.graph_def.node.add(name="odd", op="NoOp")
    odd.attr["_unknown"].s = rng.bytes(100_000)
    odd.experimental_debug_info.original_node_names.append("source")
    function = g.graph_def.library.function.add()
    function.signature.name = "f"
    constant = function.node_def.add(name="c", op="Const")
    constant.attr["dtype"].type = dtypes.float64.enum
    constant.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(rng.standard_normal(9000)))
    g.graph_def.library.function.add().signature.name = "df"
    g.graph_def.library.gradient.add(function_name="f", gradient_func="df")
    return g


def test_all_forms_give_the_graph() -> None:
    graph = with_tensors().graph()
    whole = graph.to_graph_def()
    data = joined(graph, GraphForm.BYTES)
    assert proto.GraphDef.FromString(data) == whole == with_tensors().graph_def
    text = joined(graph, GraphForm.JSON).decode()
    assert json.loads(text) == json_format.MessageToDict(whole, preserving_proto_field_name=True)
    assert joined(graph, GraphForm.TEXT).decode() == graph.to_text()


@pytest.mark.parametrize("form", FORMS)
def test_graph_that_was_built(form: GraphForm) -> None:
    with aexec.Graph() as graph:
        x = aexec.constant(np.arange(3000.0), name="x")
        aexec.ops.square(x, name="y")
    data = joined(graph, form)
    read = {
        GraphForm.BYTES: lambda: aexec.Graph.from_bytes(data),
        GraphForm.JSON: lambda: aexec.Graph.from_json(data.decode()),
        GraphForm.TEXT: lambda: aexec.Graph.from_text(data.decode()),
    }[form]()
    assert read.to_graph_def() == graph.to_graph_def()


@pytest.mark.parametrize("form", FORMS)
def test_empty_graph(form: GraphForm) -> None:
    graph = aexec.Graph()
    wholes = {
        GraphForm.BYTES: graph.to_bytes(),
        GraphForm.JSON: graph.to_json().encode(),
        GraphForm.TEXT: graph.to_text().encode(),
    }
    assert joined(graph, form) == wholes[form]


def test_bytes_of_small_nodes_are_the_same() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    for number in range(500):
        g(f"n{number}", "Neg", "x", T=dtypes.float32)
    graph = g.graph()
    assert joined(graph, GraphForm.BYTES) == graph.to_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_large_constant_is_not_copied(form: GraphForm) -> None:
    g = GraphBuilder()
    g.const("c", np.random.default_rng(0).bytes(1))
    tensor = g.graph_def.node[0].attr["value"].tensor
    tensor.CopyFrom(tensor_codec.to_proto(np.random.default_rng(0).integers(0, 255, 4_000_000).astype(np.uint8)))
    g.graph_def.node[0].attr["dtype"].type = dtypes.uint8.enum
    graph = g.graph()
    _ = graph.node("c").attrs["value"].array  # where it is from then on, for all who read it
    tracemalloc.start()
    try:
        size = 0
        for part in graph_pieces(graph, form):
            size += len(part)
            assert isinstance(part, memoryview) or len(part) <= MOST
        assert size > 4_000_000 and tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", FORMS)
def test_memory_of_whole_parts_is_counted(form: GraphForm) -> None:
    held: list[int] = []

    @contextlib.contextmanager
    def holding(size: int) -> Iterator[None]:
        held.append(size)
        yield
        held.append(-size)

    for _ in graph_pieces(with_tensors().graph(), form, holding):
        pass
    assert sum(held) == 0 and sum(size > 0 for size in held) >= 2
    assert max(held) >= 3 * 100_000  # of "odd", and of the function
