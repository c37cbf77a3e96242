"""Which functions have a form for batches, as is known without making it."""

from __future__ import annotations

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework.dtypes import float32
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_body import FunctionBody, instantiate
from aexec.graph.function_def import add_function
from aexec.graph.row_functions.batched_function import batched_function, may_be_row_wise


def _body(graph: aexec.Graph, kind: str) -> FunctionBody:
    with graph:
        body = FuncGraph("f", graph)
        with body:
            x = body.new_argument(float32, "x")
            same = body.new_argument(float32, "same")
            results = {
                "row by row": lambda: x * same + np.float32(1),
                "the same for all": lambda: ops.matrix_inverse(same),
                "no rule": lambda: ops.matrix_inverse(x) + same,
                "no rule for a part that is the same": lambda: x + ops.matrix_inverse(same),
                "random": lambda: x + ops.random_uniform(np.array([2], np.int32), dtype="float32"),
                "switch": lambda: x + ops.switch(same, np.array(True))[1],
            }
            body.outputs = [ops.identity(results[kind]())]
        add_function(body, "f")
        return instantiate(graph.library, "f", {}, graph.versions)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("row by row", True),
        ("the same for all", False),
        ("no rule", False),
        ("no rule for a part that is the same", True),
        ("random", False),
        ("switch", False),
    ],
)
def test_function_may_have_a_form_for_batches(kind: str, expected: bool) -> None:
    assert may_be_row_wise(_body(aexec.Graph(), kind), 1) == expected


@pytest.mark.parametrize(("shape", "expected"), [(PartialTensorShape([None]), True), (UNKNOWN_RANK, False)])
def test_rows_of_unknown_rank_have_no_form_for_batches(shape: PartialTensorShape, expected: bool) -> None:
    graph = aexec.Graph()
    body = _body(graph, "row by row")
    made = batched_function(graph.library, graph.versions, body, [shape], [PartialTensorShape([])])
    assert (made is not None) == expected
    assert len(graph.library) == 1 + expected
