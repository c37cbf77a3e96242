"""Placement: chooses the device of each node of a graph.

`colocation_graph.py` says which nodes must share a device, and where each may go; this module chooses.  Without costs
it takes the nodes in the order of the graph, and for each the first possible device.  There are two exceptions: a node
that only needs the shape of an input goes to that input's device, and nodes without inputs are placed last, with their
consumers.  The rules are those of core/common_runtime/placer.cc.  With costs, `cost_placement.py` chooses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aexec.devices.device_registry import host_device
from aexec.framework.device_contract.device import Device
from aexec.framework.waiting.long_work import empty, steadily
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Node
from aexec.runtime.placement.colocation_graph import ColocationGraph
from aexec.runtime.placement.supported_device_types import SupportedDeviceTypes

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel

__all__ = ["Placer"]

_log = logging.getLogger(__name__)

# Ops that need an input's shape, and not its values.
_METADATA = frozenset({"Rank", "Shape", "Size"})


class Placer:
    """Places nodes, and remembers where, so that later nodes can be placed beside earlier ones.

    Args:
        devices: in order of preference.
        soft: True if a node may go elsewhere when its requested device does not exist.
        log_placement: True to log each node's device, and ignored requests, at level INFO.
        costs: the costs to place nodes by, see `cost_placement.py`; None to place them in the order of the graph.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        soft: bool = False,
        log_placement: bool = False,
        costs: CostModel | None = None,
    ) -> None:
        self._devices = devices
        self._costs = costs
        self._soft = soft
        self._log_placement = log_placement
        self._placed: dict[int, Device] = {}

    def device_of(self, node: Node) -> Device:
        """Return the device that a node was placed on."""
        return self._placed[node.id]

    def is_placed(self, node: Node) -> bool:
        return node.id in self._placed

    def place(self, nodes: Iterable[Node], node_of: Callable[[int], Node], library: FunctionLibrary) -> None:
        """Place nodes that are not placed yet: all of them, or none if it raises.

        Raises:
            InvalidArgumentError: an op has no kernel, colocations contradict each other, or a requested device does not
                exist.
        """
        new = [node for node in nodes if node.id not in self._placed]
        self.keep(self.choose(new, node_of, library))

    def take_apart(self) -> None:
        """Drop all nodes; the placer must not be used any more."""
        empty(self._placed)

    def keep(self, chosen: Mapping[int, Device]) -> None:
        """Set the devices of nodes, by id."""
        self._placed.update(chosen)

    def choose(
        self,
        nodes: Sequence[Node],
        node_of: Callable[[int], Node],
        library: FunctionLibrary,
        *,
        soft: bool | None = None,
        beside: Device | None = None,
    ) -> dict[int, Device]:
        """Return the devices that these nodes would be placed on, by id, given the nodes placed so far.

        Args:
            soft: replaces the placer's setting; None to use it.
            beside: the device to prefer for nodes that may be there.

        Raises:
            InvalidArgumentError: as `place`.
        """
        if not nodes:
            return {}
        constraints = ColocationGraph(
            nodes,
            node_of,
            self._placed,
            self._devices,
            self._supported_types(library),
            soft=self._soft if soft is None else soft,
            log=self._log_placement,
        )
        if self._costs is None:
            chosen = _place_in_order(nodes, constraints, self._placed, beside)
        else:
            from aexec.runtime.placement.cost_placement import place_by_cost

            chosen = place_by_cost(nodes, node_of, constraints, self._placed, host_device(self._devices), self._costs)
        if self._log_placement:
            for node in nodes:
                _log.info("%s: (%s): %s", node.name, node.op, chosen[node.id].name)
        return chosen

    def preferred(self, node: Node, library: FunctionLibrary) -> Device:
        """Return the device that a node would be placed on alone."""
        priorities = dict(self._supported_types(library).of(node))
        usable = [device for device in self._devices if device.type in priorities]
        return max(usable, key=lambda device: priorities[device.type])

    def _supported_types(self, library: FunctionLibrary) -> SupportedDeviceTypes:
        return SupportedDeviceTypes(library, self._devices)


def _place_in_order(
    nodes: Sequence[Node], constraints: ColocationGraph, before: Mapping[int, Device], beside: Device | None = None
) -> dict[int, Device]:
    """Return the device of each node, by id.

    Args:
        before: id of a node that is placed already → its device.
        beside: the device to prefer for nodes that may be there.
    """
    placed: dict[int, Device] = {}

    def choose(node: Node, near: Device | None) -> None:
        possible = constraints.devices_of(node)
        device = next((d for d in (near, beside) if d is not None and d in possible), possible[0])
        constraints.assign(node, device)
        placed[node.id] = device

    generators = [node for node in nodes if _is_generator(node)]
    consumers = _consumers(nodes, generators)
    for node in steadily(nodes):
        if node.id not in consumers:
            looked_at = node.in_edges[0][0] if node.op in _METADATA else None
            choose(node, None if looked_at is None else placed.get(looked_at) or before.get(looked_at))
    for node in steadily(generators):
        at = {placed.get(consumer) for consumer in consumers[node.id]}
        choose(node, at.pop() if len(at) == 1 else None)
    return placed


def _is_generator(node: Node) -> bool:
    """True for a node without inputs that has one output, which is no ref."""
    return not node.in_edges and node.num_outputs == 1 and not node.output_types[0].is_ref


def _consumers(nodes: Iterable[Node], generators: Iterable[Node]) -> dict[int, list[int]]:
    """Return the id of each generator → the ids of the nodes that wait for it."""
    consumers: dict[int, list[int]] = {node.id: [] for node in generators}
    for node in steadily(nodes):
        for source in (*(i for i, _ in node.in_edges), *node.control_edges):
            if source in consumers:
                consumers[source].append(node.id)
    return consumers
