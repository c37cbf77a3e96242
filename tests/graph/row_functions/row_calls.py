"""Calls a function with each row of some columns, and its form for batches with the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aexec
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_body import instantiate
from aexec.graph.function_def import add_function
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node
from aexec.graph.row_functions.batched_function import batched_function

__all__ = ["Columns", "both"]

Columns = tuple[Any, ...]


def _dtype(column: Any) -> dtypes.DType:
    return dtypes.string if column.dtype == object else dtypes.from_numpy(column.dtype)


def _define(graph: Graph, function: Callable[..., Any], columns: Columns) -> None:
    body = FuncGraph("row", graph)
    with body:
        arguments = [
            body.new_argument(_dtype(column), f"x{number}", PartialTensorShape(column.shape[1:]))
            for number, column in enumerate(columns)
        ]
        made = function(*arguments)
        results = [made] if isinstance(made, Tensor) else list(made)
        body.outputs = [aexec.ops.identity(result) for result in results]
    add_function(body, "row")


def _call(graph: Graph, name: str, arguments: list[Any]) -> list[Tensor]:
    op_def = graph.library.op_def(name)
    assert op_def is not None
    inputs = dict(zip([arg.name for arg in op_def.inputs], arguments, strict=True))
    return list(create_node(op_def, inputs, {}, name="call").outputs)


def _stacked(column: Sequence[Any]) -> Any:
    stacked = np.array(column)
    return stacked.astype(object) if stacked.dtype.kind == "S" else stacked


async def both(
    function: Callable[..., Any], columns: Columns, *, run: bool = True
) -> tuple[list[Any], list[Any] | None]:
    """The columns of results of calls with each row, and those of one call with all; None if there is no such form.

    Args:
        run: False to call neither.
    """
    graph = aexec.Graph()
    with graph:
        _define(graph, function, columns)
        body = instantiate(graph.library, "row", {}, graph.versions)
        shapes = [PartialTensorShape(column.shape[1:]) for column in columns]
        form = batched_function(graph.library, graph.versions, body, shapes, [])
        if not run:
            return [], None if form is None else []
        given = [aexec.ops.placeholder(_dtype(column), shape=column.shape[1:]) for column in columns]
        one = _call(graph, "row", given)
        batches = [aexec.ops.placeholder(_dtype(column)) for column in columns]
        number = np.array([len(columns[0])], np.int64)
        every = None if form is None else _call(graph, form.name, [*batches, number])
    async with aexec.Session(graph) as session:
        rows = [await session.run(one, dict(zip(given, row, strict=True))) for row in zip(*columns, strict=True)]
        results = [_stacked(column) for column in zip(*rows, strict=True)]
        if every is None:
            return results, None
        return results, await session.run(every, dict(zip(batches, columns, strict=True)))
