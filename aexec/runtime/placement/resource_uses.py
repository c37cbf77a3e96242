"""Finds the uses of resources in functions, so that a variable is placed on a device that has kernels for all of them.

A calling node may be on another device than the resources that it passes on; the nodes in the function that use a
resource run on its device.  So these nodes restrict the variable's device, through any nesting of functions.
Next to read: `colocation_graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aexec.framework import errors
from aexec.framework.dtypes import resource
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.calls import FunctionalCallee, functions_called
from aexec.graph.function_body import FunctionBody, instantiate
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node
from aexec.runtime.placement.supported_device_types import SupportedDeviceTypes

__all__ = ["ResourceUse", "ResourceUses"]

# Ops that return their inputs.
_HANDS_ON = frozenset({"Identity", "IdentityN"})


class ResourceUse(NamedTuple):
    """A node in a function's body that uses a resource passed to the function."""

    function: str
    node: Node
    types: frozenset[str]


class ResourceUses:
    """The uses of resources in the functions of a library.

    Args:
        node_of: returns a node of the graph that is being placed, by id.
    """

    def __init__(
        self, library: FunctionLibrary, supported: SupportedDeviceTypes, node_of: Callable[[int], Node]
    ) -> None:
        self._library = library
        self._supported = supported
        self._node_of = node_of
        # Function with its attrs → its body; None if it cannot be instantiated.
        self._bodies: dict[object, _Body | None] = {}

    def of(self, node: Node, position: int) -> list[ResourceUse]:
        """Return the nodes in functions that use a resource which is an input of a calling node."""
        found: list[ResourceUse] = []
        self._collect(node, position, found, set())
        return found

    def maker(self, endpoint: Endpoint) -> Node:
        """Return the node that makes a resource, looking through functions and nodes that only pass it on."""
        node = self._node_of(endpoint[0])
        slot, seen = endpoint[1], {node.id}
        while (position := self._handed_on(node, slot, set())) is not None:
            source = self._node_of(node.in_edges[position][0])
            if source.id in seen:
                break
            node, slot = source, node.in_edges[position][1]
            seen.add(node.id)
        return node

    def _collect(self, node: Node, position: int, found: list[ResourceUse], seen: set[tuple[object, int]]) -> None:
        for callee in functions_called(node, self._library):
            argument = position - callee.offset
            body, key = self._body(callee.function, node), (attr_value.hashable(callee.function), argument)
            if body is None or not 0 <= argument < len(body.function.arguments) or key in seen:
                continue
            seen.add(key)
            left = [(body.function.arguments[argument], 0)]
            while left:
                for user, at in body.consumers.get(left.pop(), ()):
                    if functions_called(user, self._library):
                        self._collect(user, at, found, seen)
                        continue
                    if user.op in _HANDS_ON:
                        left.append((user.id, at))
                    found += self._use(body.function, user)

    def _use(self, body: FunctionBody, user: Node) -> Sequence[ResourceUse]:
        try:
            types = frozenset(device_type for device_type, _ in self._supported.of(user))
        except errors.OpError:
            return ()  # no kernel: building the body's plan raises the error
        return (ResourceUse(body.name, user, types),)

    def _handed_on(self, node: Node, slot: int, seen: set[tuple[object, int]]) -> int | None:
        """Return the index of the input that a calling node returns at an output; None if it returns another value."""
        given: set[int | None] = set()
        for callee in functions_called(node, self._library):
            body, key = self._body(callee.function, node), (attr_value.hashable(callee.function), slot)
            if callee.gives_outputs and body is not None and slot < len(body.function.results) and key not in seen:
                seen.add(key)
                given.add(self._given_in(body.function, body.function.results[slot], callee, seen))
        return given.pop() if len(given) == 1 else None

    def _given_in(
        self, body: FunctionBody, endpoint: Endpoint, callee: FunctionalCallee, seen: set[tuple[object, int]]
    ) -> int | None:
        nodes = body.graph.nodes
        while endpoint[0] not in body.arguments:
            node = nodes[endpoint[0]]
            position = endpoint[1] if node.op in _HANDS_ON else self._handed_on(node, endpoint[1], seen)
            if position is None:
                return None
            endpoint = node.in_edges[position]
        return body.arguments.index(endpoint[0]) + callee.offset

    def _body(self, function: NameAttrList, caller: Node) -> _Body | None:
        key = attr_value.hashable(function)
        if key not in self._bodies:
            try:
                body = instantiate(self._library, function.name, function.attrs, caller.graph.versions)
            except errors.OpError:
                self._bodies[key] = None  # building the caller's kernel raises the error
            else:
                self._bodies[key] = _Body(body, _consumers_in(body))
        return self._bodies[key]


class _Body(NamedTuple):
    """A function, and the nodes of its body that take resources, each with the positions of those inputs."""

    function: FunctionBody
    consumers: dict[Endpoint, list[tuple[Node, int]]]


def _consumers_in(body: FunctionBody) -> dict[Endpoint, list[tuple[Node, int]]]:
    consumers: dict[Endpoint, list[tuple[Node, int]]] = {}
    for node in body.graph.nodes:
        for position, (endpoint, dtype) in enumerate(zip(node.in_edges, node.input_types, strict=True)):
            if dtype is resource:
                consumers.setdefault(endpoint, []).append((node, position))
    return consumers
