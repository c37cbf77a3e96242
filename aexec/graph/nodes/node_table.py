"""`NodeTable`: nodes by id and by name, with their op versions and function library.

Code that imports, checks or lays out nodes works on this class.  `Graph` in `graph/graph.py` adds reading, writing and
building.
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

# The version that TensorFlow 2.21 writes; graphs made here have the same semantics of ops.
PRODUCER_VERSION = 2474


class NodeTable:
    """Nodes, versions and a function library.

    Nodes are only added, never removed, so node ids stay valid.

    Attributes:
        node_class: the class of new nodes.
        nodes: all nodes; the id of a node is its index.
        library: functions that nodes may call.
        versions: versions of op semantics that the nodes were written for.
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
        """Return the node of that name, or None."""
        return self._by_name.get(name)

    def node(self, name: str) -> Node:
        """Return the node of that name.  Raises UnknownKeyError, which suggests similar names."""
        found = self._by_name.get(name)
        if found is None:
            raise errors.UnknownKeyError(f"Node '{name}' was not found in the Graph{self.suggest(name)}")
        return found

    def tensor(self, name: str) -> Tensor:
        """Return the tensor `node:k` (or `node` for `node:0`).  Raises UnknownKeyError or UnknownOutputError."""
        node_name, index = parse_tensor_name(name)
        return self.node(node_name).output(index)

    def check_element(self, item: Tensor | Node) -> None:
        """Raise InvalidValueError unless the tensor or operation is of this graph; an equal name is not enough."""
        node = item if isinstance(item, Node) else item.node
        if node.id >= len(self.nodes) or self.nodes[node.id] is not node:
            raise errors.InvalidValueError(f"{item!r} is not an element of this graph")

    def suggest(self, name: str) -> str:
        """Return `; did you mean …?` with the names most similar to `name`, or ""."""
        return near_names(name, self._by_name)

    def waits_outside(self, node: Node) -> bool:
        """True if the node is of a graph around this function body; calls of the function then wait for it."""
        return False

    # Changing

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Append nodes whose ids continue `self.nodes` and whose names are new (not checked)."""
        for node in nodes:
            self.nodes.append(node)
            self._by_name[node.name] = node

    def take_apart(self) -> None:
        """Drop the nodes, which refer back to the graph, and the tables that it was copied from.

        For graphs that only the caller has, and does not use any more.
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
        """Return a graph that can be extended independently.  It shares the nodes, which never change."""
        other = type(self)()
        other.nodes = self.nodes.copy()
        other.library = self.library.copy()
        other.versions.CopyFrom(self.versions)
        other._by_name = self._by_name.copy()
        return other
