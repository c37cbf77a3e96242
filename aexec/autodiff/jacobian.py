"""`jacobian` and `hessians`: the derivatives of each element, and second derivatives.

A gradient is the derivative of the sum of a tensor's elements.  For the derivatives of single elements, the backward
pass becomes a function, which is called once for each of them.
Next to read: `parted_body.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from aexec import ops
from aexec.autodiff.aggregation import as_dense
from aexec.autodiff.gradients import Differentiable, gradients
from aexec.autodiff.parted_body import backward_nodes
from aexec.client.building import name_scope
from aexec.control_flow.function_call import finished
from aexec.control_flow.map_fn import map_fn
from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.func_graph import FuncGraph, copy_nodes
from aexec.graph.function_def import is_stateful
from aexec.graph.nodes.node import Endpoint, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["hessians", "jacobian"]


def jacobian(
    y: Differentiable, x: Any, *, parallel_iterations: int = 10, unconnected: str = "none", name: str = "jacobian"
) -> Any:
    """The derivatives of each element of `y` with respect to each element of `x`.

    Args:
        y: a tensor.
        x: a tensor or variable, or a list of them.
        parallel_iterations: most elements of `y` that are differentiated at once.
        unconnected: the result if `y` does not depend on `x`: None (`"none"`) or zeros (`"zero"`).

    Returns:
        a tensor of the shape of `y` followed by that of `x`, or None; for a list, a list of these.

    Raises:
        What `gradients` raises.
    """
    several = isinstance(x, list | tuple)
    xs: list[Differentiable] = list(x) if several else [x]
    graph = require_graph()
    with name_scope(name):
        target = convert_to_tensor(y)
        arrives = ops.zeros_like(target, name="arrives")
        since = len(graph.nodes)
        made = [as_dense(grad) for grad in gradients(target, xs, arrives, unconnected=unconnected)]
        found = [grad for grad in made if grad is not None]
        if not found:
            return made if several else None
        body, captured = _backward(arrives, since, found)
        if any(node.op.startswith("TensorArray") for node in body.nodes):
            rows = iter(_one_by_one(target, [x for x, grad in zip(xs, made, strict=True) if grad is not None]))
            results = [None if grad is None else _shaped(next(rows), target, grad) for grad in made]
            return results if several else results[0]
        op = "StatefulPartitionedCall" if is_stateful(body) else "PartitionedCall"
        attrs = {"f": finished(body), "Tout": [grad.dtype.base for grad in found]}
        shape, count = ops.shape(target), ops.size(target)

        def of_element(index: Tensor) -> list[Tensor]:
            one = ops.one_hot(index, count, ops.cast(1, DstT=target.dtype.base), ops.cast(0, DstT=target.dtype.base))
            made = create_node(op, {"args": [ops.reshape(one, shape), *captured]}, attrs).outputs
            made[0].node.shapes = [grad.shape for grad in found]
            return list(made)

        types = [grad.dtype.base for grad in found]
        rows = iter(map_fn(of_element, ops.range(0, count, 1), types, parallel_iterations=parallel_iterations))
        results = [None if grad is None else _shaped(next(rows), target, grad) for grad in made]
    return results if several else results[0]


def _one_by_one(y: Tensor, xs: Sequence[Differentiable]) -> list[Tensor]:
    """A gradient for each element, for a backward pass that can run only once, since it clears the arrays it reads."""
    if not y.static_shape.is_fully_defined:
        raise errors.UnsupportedError(
            f"the jacobian of '{y.name}' of shape {y.static_shape} through a loop in the form of Enter and Exit nodes: "
            "its size has to be known, or the loop built with functional=True"
        )
    flat = ops.reshape(y, [-1])
    made = [gradients(flat[i], xs) for i in range(prod(y.static_shape.as_tuple()))]
    return [ops.pack([as_dense(grad) for grad in column]) for column in zip(*made, strict=True)]


def _backward(arrives: Tensor, since: int, wanted: Sequence[Tensor]) -> tuple[FuncGraph, list[Tensor]]:
    """The nodes that depend on the arriving gradient, as a function of it, and the other inputs of the function."""
    graph = require_graph()
    chosen = backward_nodes(graph, since, {arrives.node.id}, [tensor.node.id for tensor in wanted])
    chosen.discard(arrives.node.id)
    body = FuncGraph("__jacobian", graph)
    known: dict[Endpoint, Tensor] = {arrives.endpoint: body.argument(arrives, "arrives")}
    taken = [endpoint for i in sorted(chosen) for endpoint in graph.nodes[i].in_edges]
    for node_id, slot in dict.fromkeys([*taken, *(tensor.endpoint for tensor in wanted)]):
        if node_id not in chosen and (node_id, slot) not in known:
            known[node_id, slot] = body.capture(Tensor(graph.nodes[node_id], slot))
    there = copy_nodes(graph, chosen, body, known)
    body.outputs = [there(tensor.endpoint) for tensor in wanted]
    return body, list(body.captures)


def _shaped(rows: Tensor, y: Tensor, grad: Tensor) -> Tensor:
    """The gradients of the elements, one after another, in the shape of `y`."""
    made = ops.reshape(rows, ops.concat_v2([ops.shape(y), ops.shape(rows)[1:]], 0))
    if y.static_shape.rank is not None and grad.static_shape.rank is not None:
        made.node.shapes = [PartialTensorShape([*y.static_shape, *grad.static_shape])]
    return made


def hessians(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable | Sequence[Differentiable],
    *,
    name: str = "hessians",
) -> list[Tensor | None]:
    """The second derivatives of the sum of all elements of `ys` with respect to the elements of each of `xs`.

    Returns:
        for each of `xs` a tensor with its shape twice; None if `ys` do not depend on it; zeros if they depend on it
            without
        curvature.

    Raises:
        What `gradients` raises.
    """
    listed = [xs] if isinstance(xs, Tensor | TensorProxy) else list(xs)
    if not listed:
        raise errors.InvalidValueError("hessians() needs at least one tensor in xs")
    with name_scope(name):
        slopes = [as_dense(grad) for grad in gradients(ys, listed)]
        return [
            None if slope is None else jacobian(slope, x, unconnected="zero")
            for slope, x in zip(slopes, listed, strict=True)
        ]
