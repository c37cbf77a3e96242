"""`ControlFlowContext`: what a graph is told while a branch of a conditional or the body of a loop is being built.

A node that is made inside takes values from outside by way of a node of the context, which a subclass makes: a Switch
for a branch, an Enter for a loop.  A node without inputs waits for the context's pivot, so that it runs only when the
branch is taken, and in each iteration of the loop.
Next to read: `aexec/control_flow/cond.py` and `while_loop.py`, which have the subclasses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from aexec import proto
from aexec.graph.nodes.node import Endpoint, Node, Tensor

__all__ = ["ControlFlowContext", "ControlFlowScopes"]


class ControlFlowScopes(Protocol):
    """What a context asks of the scopes in force while a graph is being built: see `BuildState`."""

    @property
    def context(self) -> ControlFlowContext | None: ...

    @property
    def contexts(self) -> dict[int, ControlFlowContext]: ...

    def control_dependencies(self, items: Sequence[Node] | None) -> AbstractContextManager[None]: ...

    def inside(self, context: ControlFlowContext) -> AbstractContextManager[None]: ...

    def move(self, node: Node, context: ControlFlowContext | None) -> None: ...

    def node(self, node_id: int) -> Node: ...


class ControlFlowContext:
    """A branch or a loop being built.

    Args:
        state: scopes of the graph.

    Attributes:
        outer: the context that it is inside of, or None.
        nested: the contexts that are inside it.
    """

    def __init__(self, state: ControlFlowScopes) -> None:
        self.state = state
        self.outer = state.context
        self.nested: list[ControlFlowContext] = []
        if self.outer is not None:
            self.outer.nested.append(self)
        self._captured: dict[Endpoint, Tensor] = {}

    # What a subclass says

    def put_into(self, message: proto.ControlFlowContextDef) -> None:
        """Write down what it is; see `to_proto`."""
        raise NotImplementedError

    def capture(self, value: Tensor) -> Tensor:
        """Make the node by which a value of the outer context comes in."""
        raise NotImplementedError

    @property
    def pivot(self) -> Node:
        """What a node without inputs waits for."""
        raise NotImplementedError

    @property
    def loop(self) -> ControlFlowContext | None:
        """The loop that nodes made here are in, if any: its control edges do not cross into it."""
        return None if self.outer is None else self.outer.loop

    def extra_controls(self, inputs: Sequence[Tensor], kept: Sequence[int], outside: Sequence[int]) -> list[int]:
        """Nodes that one made here waits for besides those of `kept`; it would have waited for `outside` too."""
        waits_inside = any(self.contains(node_id) for node_id in kept)
        return [] if inputs or waits_inside else [self.pivot.id]

    def to_proto(self) -> proto.ControlFlowContextDef:
        """As TensorFlow keeps it in the collections of a MetaGraph, the contexts inside it with it."""
        message = proto.ControlFlowContextDef()
        self.put_into(message)
        return message

    def put_values(self, message: proto.ValuesDef) -> None:
        """The names of its tensors, and of what came in from outside with the tensor that stands for it."""
        mine = [self.state.node(node_id) for node_id, context in self.state.contexts.items() if context is self]
        outside = {
            Tensor(self.state.node(node_id), slot).name: inside.name
            for (node_id, slot), inside in self._captured.items()
        }
        message.values.extend(sorted({*outside, *(tensor.name for node in mine for tensor in node.outputs)}))
        message.external_values.update(outside)

    # What a graph asks

    def contains(self, node_id: int) -> bool:
        """Was this node made in it, or in a context inside it?"""
        context = self.state.contexts.get(node_id)
        while context is not None and context is not self:
            context = context.outer
        return context is self

    def know(self, outside: Tensor, inside: Tensor) -> None:
        """From now on `inside` is what nodes made here take for `outside`."""
        self._captured[outside.endpoint] = inside

    def take_in(self, tensor: Tensor) -> Tensor:
        """What a node made here takes for a tensor."""
        if self.contains(tensor.node.id):
            return tensor
        found = self._captured.get(tensor.endpoint)
        if found is None:
            value = tensor if self.outer is None else self.outer.take_in(tensor)
            with self.state.control_dependencies(None):
                found = self.capture(value)
            self.state.contexts[found.node.id] = self
            for outside in (tensor, value):
                self.know(outside, found)
        return found

    def controls(self, inputs: Sequence[Tensor], wanted: Sequence[int]) -> tuple[int, ...]:
        """What a node made here waits for, if the scopes in force want it to wait for `wanted`."""
        loop = self.loop
        kept = [node_id for node_id in wanted if loop is None or loop.contains(node_id)]
        outside = [node_id for node_id in wanted if node_id not in kept]
        return (*kept, *self.extra_controls(inputs, kept, outside))
