"""`ScopeTree`: the nodes of a graph by name scope, with some scopes open and the others folded into one box each.

A drawing has a limited number of boxes.  Scopes are opened from the outermost inwards, small ones first, while their
content fits.
Next to read: `drawing.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from aexec.graph.nodes.node import Node

__all__ = ["NameScope", "ScopeTree"]


class NameScope:
    """A name scope: the nodes whose names begin with `name/`.

    Attributes:
        name: name of the scope without the final `/`; "" for the graph.
        depth: number of scopes around it.
        nodes: nodes directly in the scope.
        scopes: scopes directly in the scope, by the last part of their name.
        size: number of nodes in it and in all scopes inside.
    """

    __slots__ = ("depth", "name", "nodes", "scopes", "size")

    def __init__(self, name: str, depth: int) -> None:
        self.name = name
        self.depth = depth
        self.nodes: list[Node] = []
        self.scopes: dict[str, NameScope] = {}
        self.size = 0

    @property
    def width(self) -> int:
        """Number of boxes in the scope when it is open and the scopes in it are folded."""
        return len(self.nodes) + len(self.scopes)


class ScopeTree:
    """Decides which name scopes of a drawing are open and which are folded.

    Args:
        nodes: the nodes to draw.
        scope: draw only nodes in this scope; "" for all.
        max_boxes: most nodes, folded and open scopes together; scopes stay folded where there would be more.
        depth: most open scopes around a node; None for any number.

    Attributes:
        root: the outermost drawn scope.
        num_boxes: number of drawn nodes and folded scopes.
    """

    def __init__(self, nodes: Iterable[Node], scope: str = "", max_boxes: int = 100, depth: int | None = None) -> None:
        self.root = NameScope(scope, 0)
        for node in nodes:
            self._add(node)
        self._open: set[NameScope] = {self.root}
        self.num_boxes = self.root.width
        self._unfold(max_boxes, depth)

    def _add(self, node: Node) -> None:
        prefix = f"{self.root.name}/" if self.root.name else ""
        if not node.name.startswith(prefix):
            return
        inside, at = self.root, len(prefix)
        inside.size += 1
        while (end := node.name.find("/", at)) >= 0:
            part = node.name[at:end]
            child = inside.scopes.get(part)
            if child is None:
                child = inside.scopes[part] = NameScope(node.name[:end], inside.depth + 1)
            inside, at = child, end + 1
            inside.size += 1
        inside.nodes.append(node)

    def _unfold(self, max_boxes: int, depth: int | None) -> None:
        order = count()
        waiting = [(1, scope.size, next(order), scope) for scope in self.root.scopes.values()]
        heapq.heapify(waiting)
        taken = self.num_boxes
        while waiting:
            level, _, _, scope = heapq.heappop(waiting)
            if (depth is not None and level > depth) or taken + scope.width > max_boxes:
                continue
            taken += scope.width  # the scope itself still counts, as the frame around them
            self.num_boxes += scope.width - 1
            self._open.add(scope)
            for child in scope.scopes.values():
                heapq.heappush(waiting, (level + 1, child.size, next(order), child))

    def is_open(self, scope: NameScope) -> bool:
        return scope in self._open

    def places(self) -> Mapping[int, Node | NameScope]:
        """Node id → the box it is drawn as: the node itself, or the folded scope that it is in."""
        found: dict[int, Node | NameScope] = {}
        for scope, folded in self._walk():
            for node in scope.nodes:
                found[node.id] = node if folded is None else folded
        return found

    def _walk(self) -> Iterator[tuple[NameScope, NameScope | None]]:
        """Yield each scope with the outermost folded scope that it is in or is; None if none of them is folded."""
        waiting: list[tuple[NameScope, NameScope | None]] = [(self.root, None)]
        while waiting:
            scope, around = waiting.pop()
            folded = around if around is not None or scope in self._open else scope
            yield scope, folded
            waiting += [(child, folded) for child in scope.scopes.values()]
