"""Conditionals and loops as single nodes that call functions: If, Case and While.

The functions are built as bodies of their own.  The tensors that both branches, or the condition and the body of a
loop, use from outside become arguments; a loop passes them on from iteration to iteration.
Next to read: `cond.py` and `while_loop.py`, whose functions choose between the two forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import constant, control_dependencies
from aexec.control_flow.function_call import add_call, built, common_shape, finished, share_captures
from aexec.control_flow.structure import check_same_structure, leaves_of, pack
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_def import is_stateful
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph

__all__ = ["chosen_branch", "functional_loop", "is_functional_here"]

# With this attr TensorFlow may lower the node to Switch and Merge nodes.
_LOWER = {"_lower_using_switch_merge": True}


def is_functional_here(graph: Graph, functional: bool | None) -> bool:
    """Return whether the functional form is wanted: the argument if given, else the graph's setting."""
    return graph.functional_control_flow if functional is None else functional


def chosen_branch(choice: Tensor, functions: Sequence[Callable[[], Any]], labels: Sequence[str], scope: str) -> Any:
    """The results of the function that `choice` selects: of two by a bool, the second if true; else by a number.

    Args:
        labels: names of the functions, for their bodies and for errors.
        scope: the name scope of the node, which ends in `/`.

    Raises:
        InvalidArgumentError: the functions return nothing, or different structures.
    """
    outer = require_graph()
    base = scope.rstrip("/").rpartition("/")[2]
    graphs = [FuncGraph(f"{base}_{label.removesuffix('_fn')}", outer) for label in labels]
    results = []
    for graph, function in zip(graphs, functions, strict=True):
        kept: list[Any] = []

        def build(function: Callable[[], Any] = function, kept: list[Any] = kept) -> list[Any]:
            kept.append(function())
            return [_branch_output(leaf) for leaf in leaves_of(kept[0])]

        if not built(graph, build):
            raise errors.InvalidValueError(f"{graph.name} must return at least one result")
        results.append(kept[0])
    for label, graph, result in zip(labels[1:], graphs[1:], results[1:], strict=True):
        check_same_structure(results[0], result, f"What {labels[0]} and {label} give")
        for one, other in zip(graphs[0].outputs, graph.outputs, strict=True):
            if one.dtype.base is not other.dtype.base:
                raise errors.InvalidValueError(
                    f"Outputs of {labels[0]} and {label} must have the same type: "
                    f"{one.name} is {one.dtype.base}, {other.name} is {other.dtype.base}"
                )
    captured = share_captures(graphs)
    references = [finished(graph) for graph in graphs]
    stateless = "" if any(is_stateful(graph) for graph in graphs) else "Stateless"
    attrs: dict[str, Any] = {
        "Tout": [tensor.dtype.base for tensor in graphs[0].outputs],
        "output_shapes": [
            common_shape([graph.outputs[i].static_shape for graph in graphs]) for i in range(len(graphs[0].outputs))
        ],
        **_LOWER,
    }
    if choice.dtype.base is dtypes.bool_:
        attrs.update(else_branch=references[0], then_branch=references[1])
        node = add_call(f"{stateless}If", graphs, {"cond": choice, "input": captured}, attrs, scope)
    else:
        attrs["branches"] = references
        node = add_call(f"{stateless}Case", graphs, {"branch_index": choice, "input": captured}, attrs, scope)
    _note_handles(node, graphs[0].outputs)
    return pack(results[0], [ops.identity(tensor) for tensor in node.outputs])


def _branch_output(leaf: Any) -> Any:
    if leaf is None:
        raise errors.InvalidValueError("a branch must return tensors, got None")
    if isinstance(leaf, Node):
        with control_dependencies([leaf]):
            return ops.identity(constant(True))
    return leaf


def _note_handles(node: Node, like: Sequence[Tensor]) -> None:
    """Set the handle data of a call's outputs: shapes and types of the values behind handles."""
    data = [None if t.node.handle_data is None else t.node.handle_data[t.index] for t in like]
    if any(data):
        node.handle_data = tuple(data)


def functional_loop(
    start: Sequence[Tensor],
    shapes: Sequence[PartialTensorShape],
    condition: Callable[[list[Tensor]], Any],
    body: Callable[[list[Tensor]], list[Any]],
    parallel_iterations: int,
    scope: str,
    check: Callable[[Tensor, Tensor, PartialTensorShape], None],
) -> list[Tensor]:
    """The final values of the loop variables.

    Args:
        shapes: of the loop variables in every iteration.
        scope: the name scope of the node, which ends in `/`.
        check: refuses a next value, given the value at the start, the next value, and the shape.
    """
    outer = require_graph()
    base = scope.rstrip("/").rpartition("/")[2]
    asking, going = (FuncGraph(f"{base}_{part}", outer) for part in ("cond", "body"))
    arguments: dict[FuncGraph, list[Tensor]] = {}
    for graph in (asking, going):
        arguments[graph] = [graph.argument(tensor, tensor.node.name.rpartition("/")[2]) for tensor in start]
        for argument, shape in zip(arguments[graph], shapes, strict=True):
            argument.node.shapes = (shape,)
    built(asking, lambda: [convert_to_tensor(condition(arguments[asking]), dtypes.bool_, "cond")])

    def once() -> list[Any]:
        given = arguments[going]
        return [
            convert_to_tensor(result, tensor.dtype.base, "next")
            for tensor, result in zip(given, body(given), strict=True)
        ]

    built(going, once)
    for tensor, result, shape in zip(start, going.outputs, shapes, strict=True):
        check(tensor, result, shape)
    captured = share_captures([asking, going])
    going.outputs = going.outputs + going.inputs[len(start) :]
    stateless = "" if is_stateful(asking) or is_stateful(going) else "Stateless"
    attrs = {
        "cond": finished(asking),
        "body": finished(going),
        "output_shapes": [*shapes, *(tensor.static_shape for tensor in captured)],
        "parallel_iterations": parallel_iterations,
        **_LOWER,
    }
    node = add_call(f"{stateless}While", [asking, going], {"input": [*start, *captured]}, attrs, scope)
    _note_handles(node, [Tensor(outer.nodes[source], slot) for source, slot in node.in_edges])
    return [ops.identity(tensor) for tensor in node.outputs[: len(start)]]
