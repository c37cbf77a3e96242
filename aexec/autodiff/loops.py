"""The while loops of a graph, each as one object with inputs and outputs."""

from __future__ import annotations

from functools import cached_property

from aexec.autodiff.branches import Branches
from aexec.framework.late_dataclass import dataclass
from aexec.graph.graph import Graph
from aexec.graph.nodes.control_flow import ENTER, EXIT, MERGE, NEXT_ITERATION, SWITCH, FrameInfo, analyze
from aexec.graph.nodes.node import Endpoint, Node

__all__ = ["LoopVariable", "Loops", "WhileLoop"]


@dataclass(slots=True)
class LoopVariable:
    """A value that a loop carries from one iteration to the next.

    Attributes:
        enter, merge, switch: the nodes through which it enters, returns in each iteration, and continues or leaves.
        exit: the node with its last value; None if nothing uses that.
        next: its value in the next iteration.
    """

    enter: Node
    merge: Node
    switch: Node
    exit: Node | None
    next: Endpoint


class WhileLoop:
    """A while loop.

    Attributes:
        frame: from control-flow analysis: its name, and the surrounding frame.
        condition: the LoopCond.
        variables: the loop variables.
        invariants: the Enter nodes of values that stay the same.
    """

    def __init__(self, frame: FrameInfo, nodes: list[Node], loops: Loops) -> None:
        self.frame = frame
        node_of = loops.graph.nodes.__getitem__
        self.condition = next(node for node in nodes if node.op == "LoopCond")
        consumers: dict[int, list[Node]] = {}
        for node in nodes:
            for source, _ in node.in_edges:
                consumers.setdefault(source, []).append(node)
        self.variables: list[LoopVariable] = []
        carried = set()
        for merge in (node for node in nodes if node.op in MERGE):
            sources = [node_of(source) for source, _ in merge.in_edges]
            enter = next((s for s in sources if s.op in ENTER), None)
            back = next((s for s in sources if s.op in NEXT_ITERATION), None)
            switch = next((n for n in consumers.get(merge.id, ()) if n.op in SWITCH and self._is_mine(n)), None)
            if enter is None or back is None or switch is None:
                continue
            carried.add(enter.id)
            left = next((n for n in consumers.get(switch.id, ()) if n.op in EXIT), None)
            self.variables.append(LoopVariable(enter, merge, switch, left, back.in_edges[0]))
        self.enters = [node for node in nodes if node.op in ENTER]
        self.invariants = [node for node in self.enters if node.id not in carried]

    def _is_mine(self, switch: Node) -> bool:
        return switch.in_edges[1][0] == self.condition.id


class Loops:
    """All loops of a graph, found when the first one is needed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.branches = Branches(graph.nodes.__getitem__)
        self._loops: dict[str, WhileLoop] = {}

    @cached_property
    def _frames(self) -> dict[int, FrameInfo]:
        """Node id → the frame that it is in; an Exit is in the one that it leaves, an Enter in the one that it
        enters.
        """
        nodes = list(self.graph.nodes)
        table = self.graph.nodes
        found = analyze(nodes, lambda node: [table[i] for i in (*(s for s, _ in node.in_edges), *node.control_edges)])
        return {node.id: found.started_by.get(node.id) or found.of.get(node.id, found.root) for node in nodes}

    @cached_property
    def _by_frame(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in list(self.graph.nodes)[: len(self._frames)]:
            found.setdefault(self._frames[node.id].name, []).append(node)
        return found

    def around(self, node: Node, within: WhileLoop | None) -> WhileLoop | None:
        """The loop directly inside `within` that a node is in; None if it is in no inner loop."""
        if self._has_no_loops:
            return None
        frame = self._frames.get(node.id)
        outer = within.frame.name if within is not None else ""
        while frame is not None and frame.name != outer:
            if frame.parent is not None and frame.parent.name == outer:
                return self._loop(frame)
            frame = frame.parent
        return None

    @cached_property
    def _has_no_loops(self) -> bool:
        return not any(node.op in ENTER for node in self.graph.nodes)

    def _loop(self, frame: FrameInfo) -> WhileLoop:
        found = self._loops.get(frame.name)
        if found is None:
            found = self._loops[frame.name] = WhileLoop(frame, self._by_frame[frame.name], self)
        return found
