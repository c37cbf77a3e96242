"""`recompute_grad`: a function whose gradient computes intermediate values again instead of keeping them.

Between the forward pass and the gradient only the function's inputs and results are in memory.  The results go through
one `IdentityN`, whose gradient copies the nodes that the function made, to run after the arriving gradients.  Next to
read: `custom_gradient.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aexec import ops
from aexec.autodiff.gradients import gradients_in_body, is_differentiable
from aexec.client.building import attr_scope, control_dependencies, gradient_override_map, name_scope
from aexec.control_flow.structure import leaves_of, pack
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.func_graph import copy_nodes
from aexec.graph.graph import Graph
from aexec.graph.nodes.control_flow import ENTER, EXECUTOR_OPS, SWITCH
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph

__all__ = ["recompute_grad"]

_GRADIENT = "RecomputeGrad"
# Attr of an IdentityN with that gradient: the number of the function's results; its further inputs are the tensors that
# they use.
_RESULTS = "_recomputed_results"
# Stateful ops that may run again: they read, or make what only the function's own nodes use.
_REPEATABLE = frozenset(
    "ReadVariableOp ResourceGather ResourceGatherNd VariableShape TensorArray TensorArrayV2 TensorArrayV3".split()
)
_SOURCES = frozenset("Placeholder PlaceholderV2 PlaceholderWithDefault Variable VariableV2 VarHandleOp".split())


def recompute_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let the gradient of a function compute its intermediate values again, so that they need not be kept.

    Gradients flow to everything that the function uses: arguments, variables and other tensors.  Random numbers, and
    other values of ops with effects, are not made again, but kept.  In the body of a while loop of Switch and Merge
    nodes, and if such values are made in a branch or a loop of the function, everything is kept, as without this
    decorator.

    Args:
        function: returns a structure of tensors.

    Returns:
        a function that returns the same.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        graph = require_graph()
        with name_scope(getattr(function, "__name__", "recompute_grad").strip("<>_") or "recompute_grad"):
            first = len(graph.nodes)
            result = function(*args, **kwargs)
            tensors = [convert_to_tensor(leaf) for leaf in leaves_of(result)]
            repeated = _Repeated(graph, first, tensors)
            if not repeated.is_possible:
                return pack(result, tensors)
            with gradient_override_map({"IdentityN": _GRADIENT}), attr_scope({_RESULTS: len(tensors)}):
                node = create_node("IdentityN", {"input": [*tensors, *repeated.uses]}, {})
            graph.build_state.gradients_of_nodes[node.id] = repeated.gradient
            return pack(result, list(node.outputs[: len(tensors)]))

    return called


@gradient(_GRADIENT)
def _recomputed(op: Any, *grads: Tensor | None) -> Any:
    """The gradients of an IdentityN that `recompute_grad` has made.

    In a copy of the graph or of a function's body, the nodes there are the function's, and gradients go on through
    them.
    """
    own = op.node.graph.build_state.gradients_of_nodes.get(op.node.id)
    if own is not None:
        return own(op, *grads)
    count = op.node.attrs[_RESULTS]
    return [*grads[:count], *[None] * (len(grads) - count)]


class _Repeated:
    """The nodes that a function has made for its results, to be made again.

    Args:
        first: id of the first node that it made.
        results: its results.

    Attributes:
        uses: the tensors that the results are computed from.
    """

    def __init__(self, graph: Graph, first: int, results: Sequence[Tensor]) -> None:
        self._graph, self._first = graph, first
        self._results = [tensor.endpoint for tensor in results]
        self._chosen: set[int] = set()
        uses: dict[Endpoint, None] = {}
        stack = list(self._results)
        while stack:
            endpoint = stack.pop()
            node = graph.nodes[endpoint[0]]
            if not self._is_repeated(node):
                uses[endpoint] = None
            elif node.id not in self._chosen:
                self._chosen.add(node.id)
                stack += [*node.in_edges, *self._waited_for(node)]
        self.uses = [Tensor(graph.nodes[source], slot) for source, slot in uses]

    @property
    def is_possible(self) -> bool:
        """True if the nodes can be made again where the gradient is built."""
        context = self._graph.build_state.context
        if context is not None and context.loop is not None:
            return False
        kept = (tensor.node for tensor in self.uses if tensor.node.id >= self._first)
        inside = any(node.op not in _SOURCES and not self._comes_in(node) for node in kept)
        return not (inside and any(self._graph.nodes[i].op in EXECUTOR_OPS for i in self._chosen))

    def _is_repeated(self, node: Node) -> bool:
        if node.op == "Const":
            return True
        if (
            node.id < self._first
            or node.op in _SOURCES
            or self._comes_in(node)
            or any(t.is_ref for t in node.output_types)
        ):
            return False
        return not node.op_def.is_stateful or node.op in _REPEATABLE

    def _comes_in(self, node: Node) -> bool:
        """True for a node by which a value enters the branch in which the function was called."""
        return node.op in SWITCH and node.in_edges[1][0] < self._first

    def _waited_for(self, node: Node) -> Iterable[Endpoint]:
        """The nodes that a node of a branch or a loop of the function waits for, so that it runs only there."""
        return [(i, 0) for i in node.control_edges if i >= self._first and self._is_repeated(self._graph.nodes[i])]

    def gradient(self, op: Any, *grads: Tensor | None) -> list[Any]:
        """The gradients of an IdentityN of the results and their inputs: all flow to the inputs."""
        count = len(self._results)
        arrived = [(y, grad) for y, grad in zip(self._results, grads, strict=False) if grad is not None]
        with control_dependencies([grad.node for _, grad in arrived]):
            gate = create_node("NoOp", {}, {})
            inputs = [ops.identity(tensor) for tensor in self.uses]
        there = self._repeat(gate, {use.endpoint: tensor for use, tensor in zip(self.uses, inputs, strict=True)})
        xs = [tensor for tensor in inputs if is_differentiable(tensor.dtype)]
        made = gradients_in_body([there(y) for y, _ in arrived], xs, [grad for _, grad in arrived], op.call)
        found = {x.endpoint: grad for x, grad in zip(xs, made, strict=True)}
        return [*[None] * count, *(found.get(tensor.endpoint) for tensor in inputs)]

    def _repeat(self, gate: Node, known: dict[Endpoint, Tensor]) -> Callable[[Endpoint], Tensor]:
        """Copy the nodes; those without inputs wait for `gate`."""
        graph = self._graph
        there = copy_nodes(graph, self._chosen, graph, known)
        for node in (there((node_id, 0)).node for node_id in self._chosen):
            if not (node.in_edges or node.control_edges):
                node.control_edges = (gate.id,)
            if node.op in ENTER:
                node.attrs = {**node.attrs, "frame_name": f"{node.attrs['frame_name'].decode()}_{gate.name}".encode()}
                node.wire = None
        return there
