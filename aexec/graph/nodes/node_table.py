"""`NodeTable`: nodes by id and by name, with the versions and functions that they are read with.

It is what a graph is to whoever imports, checks or lays out nodes; `Graph` in `graph/graph.py` adds how
it is read, written and built into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from aexec import proto
from aexec.framework import errors
from aexec.framework.near_names import near_names
from aexec.framework.waiting.long_work import empty, to_the_end
from aexec.framework.wire.node_def import parse_tensor_name
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Node, Tensor

__all__ = ["NodeTable"]

# What TensorFlow 2.21 writes; graphs made here promise the same meaning of ops.
PRODUCER_VERSION = 2474


class NodeTable:
    """Nodes, versions and a function library.

    Nodes are only ever added, so whoever holds a node id may go on using it.

    Attributes:
        node_class: of the nodes that are made for it.
        nodes: all nodes; the id of a node is its index.
        library: functions that nodes may call.
        versions: which meaning of ops the nodes were written for.
    """

    node_class = Node

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.library = FunctionLibrary()
        self.versions = proto.VersionDef(producer=PRODUCER_VERSION)
        self._by_name: dict[str, Node] = {}

    # Looking things up

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def find(self, name: str) -> Node | None:
        """The node of that name, or None."""
        return self._by_name.get(name)

    def node(self, name: str) -> Node:
        """The node of that name.  Raises UnknownKeyError, with the nearest names."""
        found = self._by_name.get(name)
        if found is None:
            raise errors.UnknownKeyError(f"Node '{name}' was not found in the Graph{self.suggest(name)}")
        return found

    def tensor(self, name: str) -> Tensor:
        """The tensor `node:k` (or `node` for `node:0`).  Raises UnknownKeyError or UnknownOutputError."""
        node_name, index = parse_tensor_name(name)
        return self.node(node_name).output(index)

    def check_element(self, item: Tensor | Node) -> None:
        """Raise InvalidValueError unless a tensor or an operation is of this graph: names do not tell."""
        node = item if isinstance(item, Node) else item.node
        if node.id >= len(self.nodes) or self.nodes[node.id] is not node:
            raise errors.InvalidValueError(f"{item!r} is not an element of this graph")

    def suggest(self, name: str) -> str:
        """`; did you mean …?` with the names that look most like `name`, or ""."""
        return near_names(name, self._by_name)

    def waits_outside(self, node: Node) -> bool:
        """Is a node of a graph around this one, as the body of a function has it?  Then calls wait for it."""
        return False

    # Changing

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Append nodes whose ids continue `self.nodes` and whose names are new (not checked)."""
        for node in nodes:
            self.nodes.append(node)
            self._by_name[node.name] = node

    def take_apart(self) -> None:
        """Let go of its nodes, which refer to it, and of the tables that it was copied from.

        For graphs that only the caller knows of and does not use any more.
        """
        tables = {id(self): self}
        for node in to_the_end(self.nodes):
            if isinstance(node.graph, NodeTable):
                tables[id(node.graph)] = node.graph
        for table in tables.values():
            table._let_go()

    def _let_go(self) -> None:
        empty(self._by_name)
        empty(self.nodes)

    def copy(self) -> Self:
        """A graph with the same nodes that can be extended independently.  Nodes are shared: they never change."""
        other = type(self)()
        other.nodes = self.nodes.copy()
        other.library = self.library.copy()
        other.versions.CopyFrom(self.versions)
        other._by_name = self._by_name.copy()
        return other
