"""When the nodes of a placed graph would start, and which receives can wait until then.

A value that is fetched from another device long before it is used takes memory, and the way that
something urgent might take.  Here a step is simulated: the longest paths through the graph say how
long each node may be put off (its slack), a greedy run on all devices then says when it starts, and from that
follows behind which node of its device a receive is held back.  Nothing here changes a graph.
After TensorFlow's core/distributed_runtime/scheduler.cc and core/graph/graph_partition.cc.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from aexec.graph.nodes.control_flow import MERGE, NEXT_ITERATION
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.traversal import producers_first, waits_for

__all__ = ["Costs", "Trigger", "slacks", "start_times", "triggers"]

# Nodes that run at the same time on one device.
SLOTS = 2
# How finely receives are held back: a step has so many epochs, and a receive begins so many before it is needed.
EPOCHS = 100
PREFETCH = 6


class Costs(NamedTuple):
    """What the simulation is told, all times in microseconds.

    Attributes:
        device_of: where a node runs: anything that is equal for nodes of one device.
        time_of: how long it takes.
        copy_time_of: how long it takes to bring an output to another device.
    """

    device_of: Callable[[Node], Hashable]
    time_of: Callable[[Node], float]
    copy_time_of: Callable[[Endpoint], float]


class Trigger(NamedTuple):
    """Receives that are held back: they begin when node `after`, of the same device, is done."""

    after: int
    receives: tuple[int, ...]


class _Edges:
    """Who waits for whom, how long values travel, and in which order nodes can run, without the loops' way back.

    Attributes:
        into: node id → (producer's id, time of the copy) for each value and each control edge.
        order: ids, producers before consumers.
    """

    def __init__(self, nodes: Mapping[int, Node], costs: Costs) -> None:
        self.nodes = nodes
        self.time = {i: costs.time_of(node) for i, node in nodes.items()}
        self.device = {i: costs.device_of(node) for i, node in nodes.items()}
        self.data = {i: list(self._data(node, costs)) for i, node in nodes.items()}
        self.control = {i: [c for c in node.control_edges if c in nodes] for i, node in nodes.items()}
        self.consumers: dict[int, list[int]] = {i: [] for i in nodes}
        for i in nodes:
            for producer in self.producers(i):
                self.consumers[producer].append(i)
        self.order = list(self._producers_first())

    def _data(self, node: Node, costs: Costs) -> Iterator[tuple[int, float]]:
        here = self.device[node.id]
        for endpoint in node.in_edges:
            producer = self.nodes.get(endpoint[0])
            if producer is not None and not (node.op in MERGE and producer.op in NEXT_ITERATION):
                yield producer.id, 0.0 if self.device[producer.id] == here else costs.copy_time_of(endpoint)

    def _producers_first(self) -> Iterator[int]:
        waits = {i: len(self.producers(i)) for i in self.nodes}
        ready = [i for i, count in waits.items() if not count]
        for i in ready:
            yield i
            for consumer in self.consumers[i]:
                waits[consumer] -= 1
                if not waits[consumer]:
                    ready.append(consumer)

    def producers(self, i: int) -> set[int]:
        """Ids of the nodes that a node waits for."""
        return {*(p for p, _ in self.data[i]), *self.control[i]}

    def arrivals(self, i: int, finished: Mapping[int, float]) -> tuple[list[float], float]:
        """When the values come that a node waits for, and when it need not wait for other nodes any more."""
        values = [finished[p] + copy for p, copy in self.data[i]]
        return values, max((finished[c] for c in self.control[i]), default=0.0)


def slacks(nodes: Mapping[int, Node], costs: Costs) -> dict[int, float]:
    """How long each node can be put off without making the step longer, were there as many workers as nodes.

    Args:
        nodes: by id; inputs that are not among them are there from the beginning.

    Returns:
        microseconds by node id, 0 for nodes of the critical path.
    """
    return _slacks(_Edges(nodes, costs))


def _slacks(edges: _Edges) -> dict[int, float]:
    earliest: dict[int, float] = {}
    finished: dict[int, float] = {}
    for i in edges.order:
        values, controls = edges.arrivals(i, finished)
        first_counts = edges.nodes[i].op in MERGE
        earliest[i] = max(controls, (min if first_counts else max)(values, default=0.0))
        finished[i] = earliest[i] + edges.time[i]
    end = max(finished.values(), default=0.0)
    latest_end = dict.fromkeys(edges.order, end)
    for i in reversed(edges.order):
        starts = latest_end[i] - edges.time[i]
        for producer, copy in edges.data[i]:
            latest_end[producer] = min(latest_end[producer], starts - copy)
        for producer in edges.control[i]:
            latest_end[producer] = min(latest_end[producer], starts)
    # Later values of a Merge are waited for by nobody.
    return {i: max(0.0, latest_end[i] - edges.time[i] - earliest[i]) for i in edges.order}


def start_times(nodes: Mapping[int, Node], costs: Costs) -> dict[int, float]:
    """When each node starts, in microseconds from the step's beginning, if each device runs two at a time.

    Of the nodes that could start on a device the one with the least slack does.  No node starts before what it
    depends on has ended and travelled; a Merge waits for all its values, as it may be the last that comes.

    Args:
        nodes: by id; inputs that are not among them are there from the beginning.
    """
    return _Simulation(_Edges(nodes, costs)).run()


_ENDED, _READY = 0, 1


class _Simulation:
    """A greedy run of a graph."""

    def __init__(self, edges: _Edges) -> None:
        self._edges = edges
        self._slack = _slacks(edges)
        self._waits = {i: len(edges.producers(i)) for i in edges.order}
        self._free = dict.fromkeys(edges.device.values(), SLOTS)
        # Per device what could start, the most urgent first; and what happens when: (time, kind, id).
        self._ready: dict[Hashable, list[tuple[float, int]]] = {device: [] for device in self._free}
        self._events = [(0.0, _READY, i) for i, waits in self._waits.items() if not waits]
        self._started: dict[int, float] = {}
        self._finished: dict[int, float] = {}

    def run(self) -> dict[int, float]:
        """When each node starts."""
        heapq.heapify(self._events)
        while self._events:
            now = self._events[0][0]
            for device in self._happen(now):
                self._start(device, now)
        return self._started

    def _happen(self, now: float) -> set[Hashable]:
        """Let everything happen that happens now; returns the devices where."""
        devices = set()
        while self._events and self._events[0][0] == now:
            _, kind, i = heapq.heappop(self._events)
            device = self._edges.device[i]
            devices.add(device)
            if kind == _READY:
                heapq.heappush(self._ready[device], (self._slack[i], i))
            else:
                self._free[device] += 1
                self._end(i, now)
        return devices

    def _start(self, device: Hashable, now: float) -> None:
        ready = self._ready[device]
        while ready and self._free[device]:
            _, i = heapq.heappop(ready)
            self._free[device] -= 1
            self._started[i] = now
            heapq.heappush(self._events, (now + self._edges.time[i], _ENDED, i))

    def _end(self, i: int, now: float) -> None:
        self._finished[i] = now
        for consumer in self._edges.consumers[i]:
            self._waits[consumer] -= 1
            if not self._waits[consumer]:
                values, controls = self._edges.arrivals(consumer, self._finished)
                heapq.heappush(self._events, (max(controls, *values, now), _READY, consumer))


def triggers(
    nodes: Mapping[int, Node],
    starts: Mapping[int, float],
    receives: Collection[int],
    in_loops: Container[int] = frozenset(),
) -> list[Trigger]:
    """Which receives of one partition are held back, and behind which node.

    The step is cut into 100 epochs; a receive that is needed in one of them begins six epochs before, or at once.
    Who waits for a trigger is never waited for by it: what a receive brings is used, on any device, after that.

    Args:
        nodes: of the partition, by id.
        starts: of the nodes of the whole graph, as `start_times` gives them.
        receives: ids of nodes that receive values.
        in_loops: ids of nodes that run once in every iteration, which are neither held back nor waited for.

    Returns:
        triggers with different `after`, in the order of time.
    """
    order = producers_first(nodes.values(), nodes.__getitem__)
    needed = _needed(order, nodes, starts)
    times = _times(order, nodes, needed)
    ordered = sorted((time, i) for i, time in times.items() if i not in in_loops)
    if not ordered:
        return []
    resolution = ordered[-1][0] // EPOCHS + 1
    held: dict[int, list[int]] = {}
    for _, i in ordered:
        epoch = needed.get(i, 0.0) // resolution - PREFETCH if i in receives else 0
        if epoch > 0:
            last = bisect_left(ordered, (epoch * resolution, -1)) - 1
            if last >= 0:
                held.setdefault(ordered[last][1], []).append(i)
    return [Trigger(after, tuple(each)) for after, each in held.items()]


def _needed(order: Sequence[Node], nodes: Mapping[int, Node], starts: Mapping[int, float]) -> dict[int, float]:
    """When each node starts, or what it gives is needed first if it is not of the whole graph."""
    needed = {i: starts[i] for i in nodes if i in starts}
    for node in reversed(order):
        if node.id in needed:
            for source in waits_for(node, nodes.__getitem__):
                if source in nodes and source not in starts:
                    needed[source] = min(needed.get(source, needed[node.id]), needed[node.id])
    return needed


def _times(order: Iterable[Node], nodes: Mapping[int, Node], needed: Mapping[int, float]) -> dict[int, float]:
    """The same, of all nodes, and each later than its inputs."""
    times: dict[int, float] = {}
    for node in order:
        before = [times[source] + 1 for source in waits_for(node, nodes.__getitem__) if source in times]
        times[node.id] = max(needed.get(node.id, 0.0), *before, 0.0)
    return times
