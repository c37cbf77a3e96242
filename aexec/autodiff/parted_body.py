"""`PartedBody`: the body of a function with its gradient, split in two.

The gradient is built into a copy of the body, as into any graph, so whatever can be differentiated outside a function
can be differentiated inside one.  Then everything that depends on the arriving gradients is taken out and becomes the
backward function.  The rest is the forward function, which also returns the values that the backward function needs.
Next to read: `control_flow/functional_ops.py`, which calls the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from aexec.autodiff.aggregation import as_dense
from aexec.autodiff.branches import Branches
from aexec.autodiff.gradients import gradients_in_body, is_differentiable
from aexec.autodiff.missing_gradients import gradient_dtype
from aexec.framework import errors
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import FuncGraph, body_of, copy_nodes
from aexec.graph.function_def import is_stateful
from aexec.graph.graph import Graph
from aexec.graph.nodes.control_flow import EXECUTOR_OPS, analyze
from aexec.graph.nodes.node import Endpoint, Node, Tensor

__all__ = [
    "PartedBody",
    "backward_nodes",
    "differentiable_positions",
    "has_frames",
    "not_again",
]

_under_way: ContextVar[tuple[str, ...]] = ContextVar("aexec_functions_differentiated", default=())


@contextmanager
def not_again(name: str) -> Iterator[None]:
    """Context manager: refuses to differentiate a function within its own gradient, which would never end."""
    names = _under_way.get()
    if name in names:
        raise errors.UnsupportedError(f"function '{name}' calls itself: gradients of recursive functions do not end")
    token = _under_way.set((*names, name))
    try:
        yield
    finally:
        _under_way.reset(token)


class PartedBody:
    """A body and its gradient.

    Args:
        outer: the graph that has the call.
        function: the called function; `given` are its arguments.
        ys: positions of the results with an arriving gradient.
        xs: positions of the arguments whose gradients are wanted.
        call: name of the call of `gradients`.

    Attributes:
        arrive: for each of `ys`, the placeholder of the arriving gradient in the body.
        results: for each of `xs` its gradient, or None.
        captured: tensors from outside that the body takes besides its arguments.
    """

    def __init__(
        self,
        outer: Graph,
        function: NameAttrList,
        given: Sequence[Tensor],
        ys: Sequence[int],
        xs: Sequence[int],
        call: str,
    ) -> None:
        self.outer = outer
        with not_again(function.name):
            self.body = body = body_of(outer, function, given)
            self._forward_until = len(body.nodes)
            self.arguments = list(body.inputs)
            self.outputs = list(body.outputs)
            self.arrive = [body.argument(body.outputs[y], "grad", dtype=gradient_dtype(body.outputs[y])) for y in ys]
            with body:
                made = gradients_in_body(
                    [body.outputs[y] for y in ys], [self.arguments[x] for x in xs], self.arrive, call
                )
                self.results: list[Tensor | None] = [as_dense(grad) for grad in made]
        self.captured = body.captures

    # The body is split when this is first used: until then it may be extended.

    @cached_property
    def _backward(self) -> set[int]:
        """The ids of the nodes of the backward pass."""
        body = self.body
        arrive = {tensor.node.id for tensor in self.arrive}
        inputs = {tensor.node.id for tensor in (*self.arguments, *self.captured.values())}
        ends = [tensor.node.id for tensor in self.results if tensor is not None]
        found = backward_nodes(body, self._forward_until, arrive, ends, inputs) - arrive
        branches = Branches(body.nodes.__getitem__)
        inside = next((e for e in self._needed(found) if branches.of(e)), None)
        if inside is None:
            return found
        # A function cannot return a value that is dead in one of two cases: then everything is computed again.
        if is_stateful(body):
            raise errors.UnsupportedError(
                f"the gradient of function '{body.name}' needs '{self.tensor(inside).name}' of a branch made of "
                "Switch and Merge nodes, and what has side effects cannot be computed again: use functional=True"
            )
        return {node.id for node in body.nodes} - arrive - inputs

    @cached_property
    def taken(self) -> list[Endpoint]:
        """The endpoints of the forward pass that the gradient needs, arguments among them."""
        return self._needed(self._backward)

    def _needed(self, backward: set[int]) -> list[Endpoint]:
        arrive = {tensor.node.id for tensor in self.arrive}
        wanted = [endpoint for i in sorted(backward) for endpoint in self.body.nodes[i].in_edges]
        wanted += [tensor.endpoint for tensor in self.results if tensor is not None]
        return list(dict.fromkeys(e for e in wanted if e[0] not in backward and e[0] not in arrive))

    def tensor(self, endpoint: Endpoint) -> Tensor:
        """A tensor of the body."""
        return Tensor(self.body.nodes[endpoint[0]], endpoint[1])

    def forward(self, name: str, captured: Sequence[Tensor]) -> tuple[FuncGraph, Mapping[Endpoint, Tensor]]:
        """The forward function, with the results only; and, for each endpoint that the gradient needs, its tensor
        there.

        Args:
            captured: the inputs besides its arguments.
        """
        graph = FuncGraph(name, self.outer)
        graph.original = self.body.original
        known = {tensor.endpoint: graph.argument(tensor, tensor.node.name) for tensor in self.arguments}
        for tensor in captured:
            inside = self.captured.get(tensor)
            argument = graph.argument(tensor, tensor.node.name.rpartition("/")[2])
            graph.captures[tensor] = argument
            if inside is not None:
                known[inside.endpoint] = argument
        left_out = {i for i, _ in known} | {tensor.node.id for tensor in self.arrive}
        kept = [
            node.id
            for node in self.body.nodes
            if node.id not in left_out and (node.id < self._forward_until or node.id not in self._backward)
        ]
        there = copy_nodes(self.body, kept, graph, known)
        graph.outputs = [there(tensor.endpoint) for tensor in self.outputs]
        return graph, {endpoint: there(endpoint) for endpoint in self.taken}

    def put_backward(self, into: Graph, known: Mapping[Endpoint, Tensor]) -> list[Tensor | None]:
        """Copy the backward pass into a graph.

        Args:
            known: the tensors there for `arrive` and for `taken`.

        Returns:
            the results, there.
        """
        there = copy_nodes(self.body, self._backward, into, known)
        return [None if tensor is None else there(tensor.endpoint) for tensor in self.results]


def backward_nodes(
    graph: Graph, since: int, arrive: Collection[int], ends: Iterable[int] = (), inputs: Collection[int] = ()
) -> set[int]:
    """The ids of the nodes of the backward pass, with `arrive`.

    Args:
        since: id of the first node that was made for the gradient.
        arrive: ids of the nodes with the arriving gradients.
        ends: ids of the nodes with the wanted gradients.
        inputs: ids of arguments, which belong to no pass.
    """
    nodes = graph.nodes
    new = [node for node in nodes[since:] if node.id not in inputs]
    # Arrays of gradients belong to the backward pass, though they depend on no arriving gradient.
    found = {*arrive, *(node.id for node in new if node.op.startswith("TensorArrayGrad"))}
    frames = analyze(nodes, lambda node: [nodes[i] for i in _sources(node)])
    size = 0
    while len(found) != size:
        size = len(found)
        # A loop belongs to one pass as a whole, whatever its counter depends on.
        inside = {id(frames.of_outputs(nodes[i])) for i in found} | {id(frames.of.get(i)) for i in found}
        inside -= {id(frames.root), id(None)}
        for node in new:
            frame = frames.started_by.get(node.id) or frames.of.get(node.id)
            if id(frame) in inside or any(i in found for i in _sources(node)):
                found.add(node.id)
    # Values that can be made again where they are used need not be kept.
    used = [source for node_id in found for source in _sources(nodes[node_id])] + list(ends)
    while used:
        node = nodes[used.pop()]
        if node.id not in found and _is_had_again(node):
            found.add(node.id)
            used.extend(_sources(node))
    return found


def _is_had_again(node: Node) -> bool:
    """True if making the node again gives the same value.  An array of gradients is found by its name."""
    return (node.op == "Const" and not node.control_edges) or node.op.startswith("TensorArrayGrad")


def _sources(node: Node) -> list[int]:
    return [source for source, _ in node.in_edges] + list(node.control_edges)


def has_frames(graph: Graph) -> bool:
    """True if some nodes run only sometimes, or in a loop."""
    return any(node.op in EXECUTOR_OPS for node in graph.nodes)


def differentiable_positions(tensors: Sequence[Any]) -> list[int]:
    """The positions of the tensors that may have a gradient."""
    return [i for i, tensor in enumerate(tensors) if is_differentiable(tensor.dtype)]
