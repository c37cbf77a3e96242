"""`ControlFlowContext`: the branch of a conditional, or the body of a loop, while it is being built.

A node that is built inside takes outside values through a node that the context makes: a Switch for a branch, an Enter
for a loop.  A node without inputs waits for the context's pivot, so that it runs only if the branch is taken, and in
each iteration of the loop.
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
    """What a context needs of the scopes in force while a graph is being built; `BuildState` implements it."""

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
        state: the scopes of the graph.

    Attributes:
        outer: the context around this one, or None.
        nested: the contexts directly inside this one.
    """

    def __init__(self, state: ControlFlowScopes) -> None:
        self.state = state
        self.outer = state.context
        self.nested: list[ControlFlowContext] = []
        if self.outer is not None:
            self.outer.nested.append(self)
        self._captured: dict[Endpoint, Tensor] = {}

    # For subclasses to implement

    def put_into(self, message: proto.ControlFlowContextDef) -> None:
        """Fill in the message of `to_proto`."""
        raise NotImplementedError

    def capture(self, value: Tensor) -> Tensor:
        """Make the node that brings in a value of the outer context; return its output."""
        raise NotImplementedError

    @property
    def pivot(self) -> Node:
        """The node that nodes without inputs wait for."""
        raise NotImplementedError

    @property
    def loop(self) -> ControlFlowContext | None:
        """The innermost loop around the nodes built here, or None.  Control edges from outside do not enter it."""
        return None if self.outer is None else self.outer.loop

    def extra_controls(self, inputs: Sequence[Tensor], kept: Sequence[int], outside: Sequence[int]) -> list[int]:
        """Return nodes that a node built here waits for besides `kept`.

        Args:
            inputs: inputs of the node.
            kept: control inputs of the node.
            outside: control inputs that were dropped because they are outside of the loop.
        """
        waits_inside = any(self.contains(node_id) for node_id in kept)
        return [] if inputs or waits_inside else [self.pivot.id]

    def to_proto(self) -> proto.ControlFlowContextDef:
        """Return the context, with those inside it, as TensorFlow stores it in the collections of a MetaGraph."""
        message = proto.ControlFlowContextDef()
        self.put_into(message)
        return message

    def put_values(self, message: proto.ValuesDef) -> None:
        """Write the names of the context's tensors, and which tensor inside stands for which one outside."""
        mine = [self.state.node(node_id) for node_id, context in self.state.contexts.items() if context is self]
        outside = {
            Tensor(self.state.node(node_id), slot).name: inside.name
            for (node_id, slot), inside in self._captured.items()
        }
        message.values.extend(sorted({*outside, *(tensor.name for node in mine for tensor in node.outputs)}))
        message.external_values.update(outside)

    # For graphs to call

    def contains(self, node_id: int) -> bool:
        """True if the node was built in this context or in one inside it."""
        context = self.state.contexts.get(node_id)
        while context is not None and context is not self:
            context = context.outer
        return context is self

    def know(self, outside: Tensor, inside: Tensor) -> None:
        """Use the tensor `inside` for `outside` in nodes that are built here from now on."""
        self._captured[outside.endpoint] = inside

    def take_in(self, tensor: Tensor) -> Tensor:
        """Return the tensor to use inside for a tensor that may be from outside."""
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
        """Return the control inputs of a node built here, of which the scopes in force ask for `wanted`."""
        loop = self.loop
        kept = [node_id for node_id in wanted if loop is None or loop.contains(node_id)]
        outside = [node_id for node_id in wanted if node_id not in kept]
        return (*kept, *self.extra_controls(inputs, kept, outside))
