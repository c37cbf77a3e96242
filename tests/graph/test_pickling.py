"""Graphs can be pickled, and so be arguments of spawned processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.graph.graph_import import ImportOptions, import_graph_def
from tests.support.programs.graphs import GraphBuilder, counting_loop


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_round_trip(protocol: int) -> None:
    graph = counting_loop().graph()
    again = pickle.loads(pickle.dumps(graph, protocol))
    assert again is not graph
    assert again.to_bytes() == graph.to_bytes()
    assert [n.graph is again for n in again] == [True] * len(graph)


def test_built_graph() -> None:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None, 2], name="x"), name="y")
    again = pickle.loads(pickle.dumps(graph))
    assert again.versions == graph.versions
    assert again.tensor("y").shape == graph.tensor("y").shape
    with again:
        aexec.ops.neg(again.tensor("y"), name="z")
    assert "z" in again
    assert "z" not in graph


def test_functions_and_internal_names() -> None:
    g = GraphBuilder()
    function = g.graph_def.library.function.add()
    function.signature.name = "Answer"
    function.signature.output_arg.add(name="r", type=proto.DataType.DT_FLOAT)
    const = function.node_def.add(name="c", op="Const")
    const.attr["dtype"].type = proto.DataType.DT_FLOAT
    const.attr["value"].tensor.CopyFrom(aexec.framework.wire.tensor_codec.to_proto(np.float32(42), dtypes.float32))
    function.ret["r"] = "c:output:0"
    g.graph_def.node.add(name="_call", op="Answer")
    graph = aexec.Graph()
    import_graph_def(graph, g.graph_def, ImportOptions(internal_names=True))
    again = pickle.loads(pickle.dumps(graph))
    assert "Answer" in again.library
    assert again.to_bytes() == graph.to_bytes()


def test_deep_copy_is_another_graph() -> None:
    graph = counting_loop().graph()
    other = copy.deepcopy(graph)
    with other:
        aexec.constant(1.0, name="more")
    assert len(other) == len(graph) + 1


def test_damaged_pickle_is_refused() -> None:
    restore, (cls, data) = counting_loop().graph().__reduce__()
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse GraphDef"):
        restore(cls, data[:-3])


def _describe(graph: aexec.Graph, answers: Any) -> None:
    answers.put((len(graph), graph.node("add").input_names()))


def test_spawned_process_gets_the_graph() -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=_describe, args=(counting_loop().graph(), answers))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == (14, ["body", "enter_one"])
    answers.close()
