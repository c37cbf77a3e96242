"""`SplitLoops`: the loops of a graph that is being split: the frame of each node, and the place of control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aexec.framework.device_contract.device import Device
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.control_flow import ENTER, EXIT, NEXT_ITERATION, SWITCH, FrameInfo
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.traversal import producers_first
from aexec.graph.partitioning.split_graph import SplitGraph

__all__ = ["SplitLoops"]

# Ops that are placed where their first input is.
_FOLLOWS_INPUT = SWITCH | EXIT
_GOES_BEFORE_CONSUMER = ENTER | NEXT_ITERATION


class SplitLoops:
    """Analyses the loops of a graph that is being split.

    Raises:
        InvalidArgumentError: the frames are malformed.

    Attributes:
        frame_of: node id → the frame that it runs in.
        analysis: None for a graph without loops.
        conditions: name of a frame → its LoopCond.
        rounds: (frame name, device name) pairs for which the device runs each iteration of the frame.
    """

    def __init__(self, split: SplitGraph) -> None:
        self._split = split
        self.frame_of: Mapping[int, FrameInfo] = {}
        self.analysis: control_flow.Frames | None = None
        self.conditions: dict[str, Node] = {}
        self.rounds: set[tuple[str, str]] = set()
        if any(node.op in ENTER for node in split.kept.values()):
            self._analyse()

    def frame_of_outputs(self, node_id: int) -> FrameInfo | None:
        """Return the frame of a node's outputs; None in a graph without loops."""
        return None if self.analysis is None else self.analysis.of_outputs(self._split.graph.nodes[node_id])

    def _analyse(self) -> None:
        split = self._split
        consumers = {node.id for node in split.kept.values() if not split.fed.isdisjoint(node.in_edges)}
        self.analysis = control_flow.analyze(split.kept.values(), self._producers, consumers)
        self.frame_of = self.analysis.of
        for node in split.kept.values():
            if node.op == "LoopCond":
                frame = self.frame_of[node.id].name
                # Gradients add a loop counter to the frame, with a predicate of its own.
                if "LoopCounter" not in node.name or frame not in self.conditions:
                    self.conditions[frame] = node

    def _producers(self, node: Node) -> list[Node]:
        nodes = self._split.graph.nodes
        data = [nodes[e[0]] for e in node.in_edges if e not in self._split.fed]
        return data + [nodes[i] for i in node.control_edges if i in self._split.kept]

    def place_control_flow(self, entered_at: Callable[[Endpoint], Device | None]) -> None:
        """Place control flow where its inputs are, or where its outputs are used, as it only passes values on.

        Args:
            entered_at: returns the device where a fed value enters; None if it may enter anywhere.
        """
        split = self._split
        moving = [node for node in split.kept.values() if node.op in _FOLLOWS_INPUT]
        for node in producers_first(moving, split.graph.nodes.__getitem__):
            source = node.in_edges[0]
            fed_at = entered_at(source) if source in split.fed else split.places[source[0]]
            split.places[node.id] = fed_at or split.places[node.id]
        going = {node.id for node in split.kept.values() if _goes_before_consumer(node)}
        if not going:
            return
        first: dict[int, Node] = {}
        for node in split.kept.values():
            for source_id, _ in node.in_edges:
                if source_id in going:
                    first.setdefault(source_id, node)
        for node_id, consumer in first.items():
            split.places[node_id] = split.places[consumer.id]
        for node in split.kept.values():
            if node.op in NEXT_ITERATION:
                self.rounds.add((self.frame_of[node.id].name, split.places[node.id].name))


def _goes_before_consumer(node: Node) -> bool:
    return node.op in _GOES_BEFORE_CONSUMER and not (node.op in ENTER and node.input_types[0].is_ref)
