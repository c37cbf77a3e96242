"""`Branches`: the branches of conditionals in which a tensor is computed.

A Switch sends its value into one of two branches; what depends on the other output is dead.  A Merge ends the
conditional.
"""

from __future__ import annotations

from collections.abc import Callable

from aexec.framework import errors
from aexec.graph.nodes.control_flow import ENTER, EXIT, MERGE, NEXT_ITERATION, SWITCH
from aexec.graph.nodes.node import Endpoint, Node

__all__ = ["Branch", "Branches"]

# A predicate, and 1 for the branch that is taken if it is true, 0 for the other.
Branch = tuple[Endpoint, int]


class Branches:
    """Finds the branches of the nodes of a graph, and remembers them.

    Args:
        node_of: node id → node.
    """

    def __init__(self, node_of: Callable[[int], Node]) -> None:
        self._node_of = node_of
        self._found: dict[int, frozenset[Branch]] = {}

    def of(self, endpoint: Endpoint) -> list[Branch]:
        """The branches that a tensor is in, the outermost first."""
        found = self._of_output(endpoint)
        return sorted(found, key=lambda branch: len(self._of_output(branch[0])))

    def ended_by(self, merge: Node) -> Branch:
        """The predicate by which a Merge of two inputs chooses, and the branch of its first input.

        Raises:
            UnimplementedError: its inputs do not come from the two branches of one conditional.
        """
        if len(merge.in_edges) == 2:
            first, second = (self._of_output(source) for source in merge.in_edges)
            for predicate, branch in first:
                if (predicate, 1 - branch) in second:
                    return predicate, branch
        raise errors.UnsupportedError(
            f"node '{merge.name}' does not merge the two branches of one conditional: it has no gradient",
            node=merge.name,
            op=merge.op,
        )

    def _of_output(self, endpoint: Endpoint) -> frozenset[Branch]:
        node = self._node_of(endpoint[0])
        found = self._of_node(node)
        if node.op in SWITCH and self._node_of(node.in_edges[1][0]).op != "LoopCond":
            return found | {(self._predicate(node.in_edges[1]), endpoint[1])}
        return found

    def _predicate(self, endpoint: Endpoint) -> Endpoint:
        """The origin of a predicate, to which all Switches of one conditional lead, some through an Identity."""
        node = self._node_of(endpoint[0])
        while node.op == "Identity" and not self._node_of(node.in_edges[0][0]).output_types[node.in_edges[0][1]].is_ref:
            endpoint = node.in_edges[0]
            node = self._node_of(endpoint[0])
        return endpoint

    def _of_node(self, node: Node) -> frozenset[Branch]:
        stack = [node]
        while stack:
            current = stack[-1]
            if current.id in self._found:
                stack.pop()
                continue
            missing = [s for s in self._sources(current) if s.id not in self._found]
            if missing:
                stack.extend(missing)
                continue
            self._found[current.id] = self._together(current)
            stack.pop()
        return self._found[node.id]

    def _sources(self, node: Node) -> list[Node]:
        """The nodes whose branches determine those of a node.  Only conditionals inside a loop make values in it
        dead.
        """
        if node.op in ENTER:
            return []
        if node.op in EXIT:
            return [self._node_of(self._entered(node)[0])]
        ids = [source for source, _ in node.in_edges]
        if node.op in MERGE and any(self._node_of(i).op in NEXT_ITERATION for i in ids):
            return []
        return [self._node_of(i) for i in (*ids, *node.control_edges)]

    def _together(self, node: Node) -> frozenset[Branch]:
        sources = self._sources(node)
        if not sources:
            return frozenset()
        if node.op in MERGE:
            return frozenset.intersection(*(self._of_output(source) for source in node.in_edges))
        if node.op in EXIT:
            return self._of_output(self._entered(node))
        data = [self._of_output(source) for source in node.in_edges]
        return frozenset().union(*data, *(self._found[i] for i in node.control_edges))

    def _entered(self, node: Node) -> Endpoint:
        """The value that enters the loop of an Exit: it is live exactly if the Exit's is."""
        switch = self._node_of(node.in_edges[0][0])
        merge = self._node_of(switch.in_edges[0][0])
        enter = next(e for e in (self._node_of(i) for i, _ in merge.in_edges) if e.op in ENTER)
        return enter.in_edges[0]
