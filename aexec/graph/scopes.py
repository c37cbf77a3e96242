"""Scopes in force while a graph is being built: names, devices, control dependencies, attrs.

The rules are those of TensorFlow's Python layer: names are made unique without regard
to case, scopes and operations share one namespace, and a node inside a
`control_dependencies` block waits for its nodes unless one of its inputs was made
inside that block already.
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

# Attr by which a node says whose gradient is taken for its op's.
GRADIENT_ATTR = "_gradient_op_type"

_OP_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_SCOPE_NAME = re.compile(r"[A-Za-z0-9_.\\/>-]*")


@dataclass(slots=True)
class _Dependencies:
    """One `control_dependencies` block: what it waits for, and what was made inside it."""

    nodes: list[int]
    made_inside: set[int] = field(default_factory=set)


def _complete(inner: DeviceName, outer: DeviceName) -> DeviceName:
    """`inner`, with what it leaves open taken from `outer`."""
    parts = {f.name: getattr(inner, f.name) for f in fields(inner)}
    return DeviceName(**{k: getattr(outer, k) if v is None else v for k, v in parts.items()})


# What scopes take for a node.
GraphElement = Node | Tensor | TensorProxy

# Given a node that is being made, whose request so far is its `device`: gives the request that it is to have.
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
        seed: of the graph, or None.
        seedless: how many random ops without one have taken the seed of the graph.
        context: the branch or loop that is being built, or None.
        contexts: id of a node that was made in one → that.
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
        self._gradients: list[Mapping[str, str]] = []
        self._attrs: dict[str, Any] = {}
        self._container = ""

    # Names

    def unique_name(self, name: str, scope: str | None = None) -> str:
        """`name` inside `scope`, by default the current one, with `_1`, `_2`, … appended if it is taken."""
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
        """Names of nodes that came by import are taken, and so are the scopes they are in."""
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
        """The name of a node to be made: `name`, or the op's; one that ends in `/` is taken as it is."""
        if name is not None and name.endswith("/"):
            return name[:-1]
        wanted = name or op
        pattern = _SCOPE_NAME if self.scope else _OP_NAME
        if not pattern.fullmatch(wanted):
            raise errors.InvalidValueError(f"'{wanted}' is not a valid name for an operation or scope")
        return self.unique_name(wanted)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Names inside begin with `name/`; yields the scope with its `/`.

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
        """Nodes made inside request this device; inner specifications complete outer ones, None clears them.

        A function is asked for each node, and what it gives replaces what the inner ones request.
        """
        self._devices.append(_parsed(spec) if isinstance(spec, str) else spec)
        try:
            yield
        finally:
            self._devices.pop()

    def request_device(self, node: Node) -> None:
        """Give a node that is being made its request; what it is colocated with says more than devices in force."""
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
        """Nodes made inside wait for `items`; None clears all outer dependencies, and leaves branches and loops."""
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
        """Ids of the nodes that a node with these data inputs (node ids), made now, waits for."""
        sources = set(inputs)
        controls: dict[int, None] = {}
        for block in self._dependencies:
            if not block.made_inside & sources:
                controls.update((i, None) for i in block.nodes if i not in sources)
        return tuple(controls)

    def note_made(self, node: Node) -> None:
        """A node was made inside the blocks that are open now."""
        if self.context is not None:
            self.contexts[node.id] = self.context
        for block in self._dependencies:
            block.made_inside.add(node.id)

    # Control flow

    @contextmanager
    def inside(self, context: ControlFlowContext) -> Iterator[None]:
        """Nodes made inside are in this branch or loop."""
        before, self.context = self.context, context
        try:
            yield
        finally:
            self.context = before

    def move(self, node: Node, context: ControlFlowContext | None) -> None:
        """A node belongs to another branch or loop than it was made in."""
        if context is None:
            self.contexts.pop(node.id, None)
        else:
            self.contexts[node.id] = context

    def node(self, node_id: int) -> Node:
        """The node of that id."""
        return self._graph.nodes[node_id]

    # Colocation

    @contextmanager
    def colocate_with(self, item: GraphElement) -> Iterator[None]:
        """Nodes made inside run on the device of `item`: devices in force outside do not count."""
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
        """Colocation attr of a node made now."""
        groups: set[bytes] = set()
        for node in self._colocation:
            groups.update(node.attrs.get(colocation.ATTR) or [colocation.group_entry(node.name)])
        return sorted(groups)

    # Attrs

    def complete_attrs(self, op_def: OpDef, attrs: dict[str, Any]) -> None:
        """What the scopes in force say of a node of this op, made now, is added to its attrs."""
        if colocation.ATTR not in attrs and (groups := self.colocation_groups()):
            attrs[colocation.ATTR] = groups
        for name, value in self._attrs.items():
            attrs.setdefault(name, value)
        if self._container and op_def.is_stateful and any(attr.name == "container" for attr in op_def.attrs):
            attrs.setdefault("container", self._container)
        attrs.update(self._gradient_attrs(op_def.name))

    @contextmanager
    def attr_scope(self, attrs: Mapping[str, Any]) -> Iterator[None]:
        """Nodes made inside have these attrs, unless they say otherwise; None for a value takes an outer one back."""
        before = self._attrs
        merged = {**before, **attrs}
        self._attrs = {name: value for name, value in merged.items() if value is not None}
        try:
            yield
        finally:
            self._attrs = before

    @contextmanager
    def container(self, name: str) -> Iterator[str]:
        """Nodes made inside keep their state in this container; "" for the default one."""
        before, self._container = self._container, name
        try:
            yield name
        finally:
            self._container = before

    # Gradients

    @contextmanager
    def gradient_override_map(self, names: Mapping[str, str]) -> Iterator[None]:
        """Nodes made inside take for their gradient that of another op: op → name of the gradient."""
        self._gradients.append(dict(names))
        try:
            yield
        finally:
            self._gradients.pop()

    def _gradient_attrs(self, op: str) -> dict[str, bytes]:
        """The attrs of a node of this op, made now, that say whose gradient it takes."""
        for names in reversed(self._gradients):
            if op in names:
                return {GRADIENT_ATTR: names[op].encode()}
        return {}
