"""Placement by measured costs: simulates a step, and puts each node where it would end first.

Nodes are placed as they become ready.  On a device a node starts when the device is free and its inputs have arrived,
which takes longer from another device.  The node goes to the device on which it ends first; among equals, to the one
that placement without costs prefers.  Nodes that must share a device are placed with the first of them, on the device
that would finish all of them first.  Nodes without measured costs take no time of a device, so that they stay beside
their inputs.  Feeds come from the host, and constants are made where they are used.
After the TensorFlow white paper, section 3.2.1.  Next to read: `profiling/cost_model.py`, `placer.py`.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from aexec.framework.device_contract.device import Device
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.traversal import waits_for
from aexec.runtime.placement.colocation_graph import ColocationGraph
from aexec.runtime.profiling.cost_model import CostModel

__all__ = ["place_by_cost"]

# Ops that take no time, and are placed when their consumers are.
_GENERATORS = frozenset({"Const", "Placeholder", "PlaceholderV2"})


def place_by_cost(
    nodes: Sequence[Node],
    node_of: Callable[[int], Node],
    constraints: ColocationGraph,
    before: Mapping[int, Device],
    host: Device,
    costs: CostModel,
) -> dict[int, Device]:
    """Return the device of each node, by id.

    Args:
        nodes: the nodes to place, in the order of the graph.
        node_of: returns a node by id, for `nodes` and their inputs.
        constraints: the constraints of these nodes, which always hold.
        before: id of a node that is placed already → its device.
        host: the device where feeds enter.

    Raises:
        InvalidArgumentError: no device can run a node.
    """
    return _Simulation(nodes, node_of, constraints, before, host, costs).run()


class _Simulation:
    """A step in which each device runs one node at a time.  All times are in microseconds."""

    def __init__(
        self,
        nodes: Sequence[Node],
        node_of: Callable[[int], Node],
        constraints: ColocationGraph,
        before: Mapping[int, Device],
        host: Device,
        costs: CostModel,
    ) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._node_of = node_of
        self._constraints = constraints
        self._host = host
        self._costs = costs
        self._placed: dict[int, Device] = {}
        # Where each node's values are (None: on every device); `_ends` has the time from which they are there.
        self._at: dict[int, Device | None] = dict(before)
        self._ends: dict[int, float] = {}
        # When each device is done with the nodes placed on it; and the total time of nodes that will run there because
        # they share the device with a placed node, but are not ready yet.
        self._free: defaultdict[Device, float] = defaultdict(float)
        self._promised: defaultdict[Device, float] = defaultdict(float)
        # The sets of several nodes without a device yet.
        self._sets = _sets(nodes, constraints)
        self._consumers: dict[int, list[int]] = {i: [] for i in self._nodes}
        self._waits: dict[int, int] = {}
        for node in nodes:
            sources = {source for source in waits_for(node, node_of) if source in self._nodes}
            self._waits[node.id] = len(sources)
            for source in sources:
                self._consumers[source].append(node.id)

    def run(self) -> dict[int, Device]:
        """Place all nodes; return their devices by id."""
        shared = {member.id for members in self._sets.values() for member in members}
        generators = []
        for node in self._as_they_become_ready():
            if node.op in _GENERATORS and node.id not in shared:
                generators.append(node)
                self._at[node.id] = None if node.op == "Const" else self._host
                self._ends[node.id] = self._ready_at(node)
            else:
                self._place(node, is_shared=node.id in shared)
        for node in generators:
            self._placed[node.id] = self._beside_consumers(node)
        return self._placed

    def _as_they_become_ready(self) -> Iterator[Node]:
        """Yield all nodes; the caller must place each before it takes the next."""
        ready = [(0.0, i) for i, waits in self._waits.items() if not waits]
        left = iter(self._nodes)
        while len(self._ends) < len(self._nodes):
            if not ready:  # the rest is a cycle, which is refused when the plan is made
                ready = [(0.0, next(i for i in left if i not in self._ends))]
            _, i = heapq.heappop(ready)
            if i in self._ends:
                continue
            yield self._nodes[i]
            for consumer in self._consumers[i]:
                self._waits[consumer] -= 1
                if not self._waits[consumer]:
                    heapq.heappush(ready, (self._ready_at(self._nodes[consumer]), consumer))

    def _place(self, node: Node, *, is_shared: bool) -> None:
        possible = self._constraints.devices_of(node)
        members = self._sets.pop(self._constraints.root(node), None) if is_shared else None
        if members is not None:
            device = min(possible, key=lambda device: self._end_of_set(node, members, device))
            self._promised[device] += self._time(members, device)
        elif len(possible) == 1:
            device = possible[0]
        else:
            device = min(possible, key=lambda device: self._end(node, device))
        if is_shared:
            self._promised[device] -= self._time((node,), device)
        self._constraints.assign(node, device)
        self._ends[node.id] = self._end(node, device)
        self._placed[node.id] = self._at[node.id] = device
        if self._costs.is_measured(node.name):
            self._free[device] = self._ends[node.id]

    def _beside_consumers(self, node: Node) -> Device:
        possible = self._constraints.devices_of(node)
        used = (self._placed.get(consumer) for consumer in self._consumers[node.id])
        return next((device for device in used if device is not None and device in possible), possible[0])

    # Times

    def _ready_at(self, node: Node) -> float:
        """Return when all inputs of a node are done."""
        ends = self._ends
        sources = (*(i for i, _ in node.in_edges), *node.control_edges)
        return max((ends[source] for source in sources if source in ends), default=0.0)

    def _end(self, node: Node, device: Device) -> float:
        """Return when a node would end on a device.  A node without measured costs only waits for its inputs."""
        there = max(self._arrivals(node, device), default=0.0)
        if self._costs.is_measured(node.name):
            there = max(there, self._free[device])
        return there + self._time((node,), device)

    def _end_of_set(self, node: Node, members: Sequence[Node], device: Device) -> float:
        """Return when all nodes of a set would end on a device if those that are not ready yet did not wait."""
        there = max(self._arrivals(node, device), default=0.0)
        return max(there, self._free[device] + self._promised[device]) + self._time(members, device)

    def _arrivals(self, node: Node, device: Device) -> Iterator[float]:
        at, ends, costs = self._at, self._ends, self._costs
        for source, slot in node.in_edges:
            if source in at:
                end, where = ends.get(source, 0.0), at[source]
                if where is not device and where is not None:
                    size = costs.size_estimate(self._node_of(source).name, slot)
                    end += costs.transfer_time(size, where.name, device.name)
                yield end
        for source in node.control_edges:
            if source in ends:
                yield ends[source]

    def _time(self, nodes: Sequence[Node], device: Device) -> float:
        return sum(self._costs.time_estimate(node, device.type) for node in nodes)


def _sets(nodes: Sequence[Node], constraints: ColocationGraph) -> dict[int, list[Node]]:
    """Return the nodes that share a device with others, by the root of their set."""
    counted = Counter(map(constraints.root, nodes))
    found: dict[int, list[Node]] = {}
    for node in nodes:
        if counted[root := constraints.root(node)] > 1:
            found.setdefault(root, []).append(node)
    return found
