"""`SessionGraph`: the graph of a session, and the placement of its nodes.

Others may add nodes to the graph.  `extend` does not change it, but replaces it by an extended copy, so that its other
holders do not see the new nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.waiting.long_work import go_on, steadily
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.graph import Graph
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_wire import flatten
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.functions import OUTPUTS_AS_A_NODE
from aexec.runtime.placement.placer import Placer

__all__ = ["SessionGraph", "is_imported"]


class SessionGraph:
    """Keeps the graph of a session, places its nodes, and adds nodes to it.

    Attributes:
        graph: the graph, extensions included.
        placer: places the nodes, and knows where they are placed.
        to_place: True while the whole graph must still be placed; always False if each request places its own nodes.
    """

    def __init__(self, graph: Graph, devices: tuple[Device, ...], config: SessionConfig, budget: LoopBudget) -> None:
        self.graph = graph
        self.placer = Placer(
            devices,
            soft=config.allow_soft_placement,
            log_placement=config.log_device_placement,
            costs=config.cost_model,
        )
        self._config = config
        self._budget = budget
        # Placing a large graph, or one whose kernels must be imported, takes long: then `Planner.place` or the first
        # plan # does it in a thread.
        self._imported: tuple[Graph, int, int] | None = None  # (graph, nodes, functions) found to need no import
        # (graph, its number of nodes, its `size`)
        self._measured: tuple[Graph, int, int] | None = None
        self.to_place = not config.place_pruned_graph

    def release(self) -> None:
        """Release the graph."""
        self.graph, self._imported, self._measured = Graph(), None, None

    def place_if_imported(self) -> None:
        if self.has_kernels():
            self.place_all()

    def place_all(self) -> None:
        self.place(self.graph.nodes)
        self.to_place = False

    @property
    def size(self) -> int:
        """The size of the graph in nodes, where outputs count too: one node may have a million, each of which is laid
        out.
        """
        graph, nodes = self.graph, len(self.graph)
        if nodes >= self._budget.place_nodes:
            return nodes
        if self._measured is None or self._measured[:2] != (graph, nodes):
            outputs = sum(node.num_outputs for node in graph)
            self._measured = graph, nodes, nodes + outputs // OUTPUTS_AS_A_NODE
        return self._measured[2]

    def has_kernels(self) -> bool:
        """True if all kernels that the graph needs are imported."""
        graph = self.graph
        seen = (graph, len(graph), len(graph.library))
        if seen != self._imported:
            bodies = (graph.library.get(name).node_def for name in graph.library)
            if not (is_imported(graph) and all(is_imported(body) for body in steadily(bodies))):
                return False
            self._imported = seen
        return True

    def extend(self, more: proto.GraphDef | proto.FlatGraphDef | bytes) -> None:
        graph_def = flatten(more)
        self._check_extension(graph_def)
        # On a copy: other holders of the graph do not see the new nodes, and a failure changes nothing.
        graph = self.graph.copy()
        if not len(graph):
            graph.versions.CopyFrom(graph_def.versions)
        added = import_graph_def(graph, graph_def, ImportOptions(refer_to_existing=True))
        placed = {}
        if not self._config.place_pruned_graph:
            placed = self.placer.choose(added, graph.nodes.__getitem__, graph.library)
        go_on()  # raises if the caller has gone
        self.graph = graph
        self.placer.keep(placed)

    def _check_extension(self, graph_def: proto.FlatGraphDef) -> None:
        for node_def in graph_def.node:
            if node_def.name in self.graph:
                raise errors.InvalidArgumentError(
                    f"GraphDef argument to Extend includes node '{node_def.name}', which was created by a previous "
                    "call to Create or Extend in this session.",
                    node=node_def.name,
                )
        ours, theirs = self.graph.versions.producer, graph_def.versions.producer
        if len(self.graph) and ours != theirs:
            raise errors.InvalidArgumentError(
                f"Can't extend GraphDef at version {ours} with graph at version {theirs}."
            )

    def place(self, nodes: list[Node]) -> None:
        self.placer.place(nodes, self.graph.nodes.__getitem__, self.graph.library)


def is_imported(nodes: Iterable[Node | proto.NodeDef | proto.FlatNodeDef]) -> bool:
    """True if the kernels of these nodes' ops are imported."""
    is_loaded = kernel_registry.global_registry.is_loaded
    return all(is_loaded(node.op) for node in steadily(nodes))
