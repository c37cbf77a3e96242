"""Scopes in force while a graph is being built: names, devices, control dependencies, attrs.

The rules are those of TensorFlow's Python layer: names are made unique without regard to case, scopes and operations
share one namespace, and a node built inside a `control_dependencies` block waits for the block's nodes unless one of
its inputs was already built inside the block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.late_dataclass import dataclass
from aexec.framework.wire.op_def import OpDef
from aexec.graph.control_flow_context import ControlFlowContext
from aexec.graph.nodes import colocation
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["GRADIENT_ATTR", "BuildState", "DeviceFunction", "GraphElement"]

# Attr that names the op whose gradient is used instead of that of the node's op.
GRADIENT_ATTR = "_gradient_op_type"

_OP_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_SCOPE_NAME = re.compile(r"[A-Za-z0-9_.\\/>-]*")


@dataclass(slots=True)
class _Dependencies:
    """One `control_dependencies` block: the ids to wait for, and the ids of the nodes built inside."""

    nodes: list[int]
    made_inside: set[int] = field(default_factory=set)


def _complete(inner: DeviceName, outer: DeviceName) -> DeviceName:
    """Return `inner` with its missing parts taken from `outer`."""
    parts = {f.name: getattr(inner, f.name) for f in fields(inner)}
    return DeviceName(**{k: getattr(outer, k) if v is None else v for k, v in parts.items()})


# What scopes accept where a node is meant.
GraphElement = Node | Tensor | TensorProxy

# Takes a node that is being built, whose `device` is the request so far; returns the new request.
DeviceFunction = Callable[[Node], str | None]


def _node_of(item: GraphElement) -> Node:
    if isinstance(item, TensorProxy):
        item = item.reference
    if not isinstance(item, Tensor | Node):
        raise errors.InvalidTypeError(f"Can not convert a {type(item).__name__} into a Tensor or Operation: {item!r}")
    return item.node if isinstance(item, Tensor) else item


def _parsed(device: str) -> DeviceName:
    try:
        return DeviceName.parse(device)
    except errors.OpError as error:
        errors.as_python(error)
        raise


class BuildState:
    """The scopes of one graph.

    Attributes:
        scope: the current name scope, "" or `outer/inner`.
        seed: the graph's random seed, or None.
        seedless: number of random ops without a seed of their own that have used the graph's.
        context: the branch or loop that is being built, or None.
        contexts: id of a node → the branch or loop that it was built in.
        gradients_of_nodes: id of a node → the gradient function that only this node has.
        gradient_functions: the gradient functions that nodes of this graph, or of bodies of its functions, name.  They
            live as long as the graph; the registry does not keep them.
    """

    def __init__(self, graph: NodeTable) -> None:
        self._graph = graph
        self.scope = ""
        self.seed: int | None = None
        self.seedless = 0
        self._used: dict[str, int] = {}
        self._seen = 0
        self._devices: list[DeviceName | DeviceFunction | None] = []
        self._dependencies: list[_Dependencies] = []
        self._colocation: list[Node] = []
        self.context: ControlFlowContext | None = None
        self.contexts: dict[int, ControlFlowContext] = {}
        self.gradients_of_nodes: dict[int, Callable[..., Any]] = {}
        self.gradient_functions: list[Callable[..., Any]] = []
        self._gradients: list[Mapping[str, str]] = []
        self._attrs: dict[str, Any] = {}
        self._container = ""

    # Names

    def unique_name(self, name: str, scope: str | None = None) -> str:
        """Return `name` inside `scope` (default: the current one), with `_1`, `_2`, … appended if it is taken."""
        self._note_imported()
        if scope is None:
            scope = self.scope
        full = f"{scope}/{name}" if scope else name
        key = full.lower()
        count = self._used.get(key, 0)
        self._used[key] = count + 1
        if count == 0:
            return full
        unique = key
        while unique in self._used:
            unique = f"{key}_{count}"
            count += 1
        self._used[unique] = 1
        return f"{full}_{count - 1}"

    def _note_imported(self) -> None:
        """Reserve the names of imported nodes, and of the scopes they are in."""
        nodes = self._graph.nodes
        for node in nodes[self._seen :]:
            key = node.name.lower()
            self._used.setdefault(key, 1)
            while "/" in key:
                key = key.rpartition("/")[0]
                if key in self._used:
                    break
                self._used[key] = 1
        self._seen = len(nodes)

    def node_name(self, name: str | None, op: str) -> str:
        """Return a new node's name: `name` or the op's, made unique.  A name that ends in `/` is used without it."""
        if name is not None and name.endswith("/"):
            return name[:-1]
        wanted = name or op
        pattern = _SCOPE_NAME if self.scope else _OP_NAME
        if not pattern.fullmatch(wanted):
            raise errors.InvalidValueError(f"'{wanted}' is not a valid name for an operation or scope")
        return self.unique_name(wanted)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Put `name/` before the names of nodes built inside; yields the scope with its `/`.

        A name that ends in `/` re-enters exactly that scope; None or "" goes to the root.
        """
        if name and not (_SCOPE_NAME if self.scope else _OP_NAME).fullmatch(name):
            raise errors.InvalidValueError(f"'{name}' is not a valid scope name")
        before = self.scope
        if not name:
            self.scope = ""
        elif name.endswith("/"):
            self.scope = name[:-1]
        else:
            self.scope = self.unique_name(name)
        try:
            yield f"{self.scope}/" if self.scope else ""
        finally:
            self.scope = before

    # Devices

    @contextmanager
    def device(self, spec: str | DeviceFunction | None) -> Iterator[None]:
        """Request a device for nodes built inside; inner specifications complete outer ones, None clears them.

        A function is called for each node, and its result replaces what the scopes inside it request.
        """
        self._devices.append(_parsed(spec) if isinstance(spec, str) else spec)
        try:
            yield
        finally:
            self._devices.pop()

    def request_device(self, node: Node) -> None:
        """Set the device request of a new node; that of a node it is colocated with takes precedence."""
        for other in reversed(self._colocation):
            if other.device:
                node.device = other.device
                return
        for spec in reversed(self._devices):
            if spec is None:
                break
            if isinstance(spec, DeviceName):
                node.device = str(_complete(DeviceName.parse(node.device), spec) if node.device else spec)
            else:
                node.device = str(DeviceName.parse(spec(node) or ""))

    # Control dependencies

    @contextmanager
    def control_dependencies(self, items: Iterable[GraphElement] | None) -> Iterator[None]:
        """Make nodes built inside wait for `items`; None clears outer dependencies, and leaves branches and loops."""
        before, context = self._dependencies, self.context
        if items is None:
            self._dependencies, self.context = [], None
        else:
            nodes = [node for node in map(_node_of, items) if not self._graph.waits_outside(node)]
            for node in nodes:
                if node.graph is not self._graph:
                    raise errors.InvalidValueError(f"{node!r} is not of this graph")
            self._dependencies = [*before, _Dependencies([node.id for node in nodes])]
        try:
            yield
        finally:
            self._dependencies, self.context = before, context

    def control_inputs(self, inputs: Iterable[int]) -> tuple[int, ...]:
        """Return the ids of the nodes that a new node waits for, given the node ids of its data inputs."""
        sources = set(inputs)
        controls: dict[int, None] = {}
        for block in self._dependencies:
            if not block.made_inside & sources:
                controls.update((i, None) for i in block.nodes if i not in sources)
        return tuple(controls)

    def note_made(self, node: Node) -> None:
        """Note that a node was built inside the blocks that are open now."""
        if self.context is not None:
            self.contexts[node.id] = self.context
        for block in self._dependencies:
            block.made_inside.add(node.id)

    # Control flow

    @contextmanager
    def inside(self, context: ControlFlowContext) -> Iterator[None]:
        """Put nodes built inside into this branch or loop."""
        before, self.context = self.context, context
        try:
            yield
        finally:
            self.context = before

    def move(self, node: Node, context: ControlFlowContext | None) -> None:
        """Move a node to another branch or loop."""
        if context is None:
            self.contexts.pop(node.id, None)
        else:
            self.contexts[node.id] = context

    def node(self, node_id: int) -> Node:
        """Return the node of that id."""
        return self._graph.nodes[node_id]

    # Colocation

    @contextmanager
    def colocate_with(self, item: GraphElement) -> Iterator[None]:
        """Put nodes built inside on the device of `item`; outer device scopes do not apply to them."""
        node = _node_of(item)
        if self._graph.waits_outside(node):
            yield
            return
        self._graph.check_element(node)
        self._colocation.append(node)
        devices, self._devices = self._devices, []
        try:
            yield
        finally:
            self._devices = devices
            self._colocation.pop()

    def colocation_groups(self) -> list[bytes]:
        """Return the colocation attr of a new node."""
        groups: set[bytes] = set()
        for node in self._colocation:
            groups.update(node.attrs.get(colocation.ATTR) or [colocation.group_entry(node.name)])
        return sorted(groups)

    # Attrs

    def complete_attrs(self, op_def: OpDef, attrs: dict[str, Any]) -> None:
        """Add to the attrs of a new node those that the scopes in force set."""
        if colocation.ATTR not in attrs and (groups := self.colocation_groups()):
            attrs[colocation.ATTR] = groups
        for name, value in self._attrs.items():
            attrs.setdefault(name, value)
        if self._container and op_def.is_stateful and any(attr.name == "container" for attr in op_def.attrs):
            attrs.setdefault("container", self._container)
        attrs.update(self._gradient_attrs(op_def.name))

    @contextmanager
    def attr_scope(self, attrs: Mapping[str, Any]) -> Iterator[None]:
        """Set attrs of nodes built inside that do not set them themselves; the value None removes an outer one."""
        before = self._attrs
        merged = {**before, **attrs}
        self._attrs = {name: value for name, value in merged.items() if value is not None}
        try:
            yield
        finally:
            self._attrs = before

    @contextmanager
    def container(self, name: str) -> Iterator[str]:
        """Keep the state of nodes built inside in this container; "" for the default one."""
        before, self._container = self._container, name
        try:
            yield name
        finally:
            self._container = before

    # Gradients

    @contextmanager
    def gradient_override_map(self, names: Mapping[str, str]) -> Iterator[None]:
        """For nodes built inside, use another op's gradient: op → name of the gradient."""
        self._gradients.append(dict(names))
        try:
            yield
        finally:
            self._gradients.pop()

    def _gradient_attrs(self, op: str) -> dict[str, bytes]:
        """Return the attr of a new node that names another op's gradient, if one is in force."""
        for names in reversed(self._gradients):
            if op in names:
                return {GRADIENT_ATTR: names[op].encode()}
        return {}
