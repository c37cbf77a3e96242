"""Simulates a step of a placed graph to find when nodes start, and how long receives can be delayed.

A value that arrives from another device long before it is used takes memory, and may delay an urgent transfer.  The
longest paths through the graph give the slack of each node: how long it can be delayed.  A greedy simulation of all
devices then gives start times, and from these follows which node each receive waits for.  This module changes no graph.
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

# Number of nodes that run at the same time on one device.
SLOTS = 2
# A step is divided into this many epochs; a receive starts `PREFETCH` epochs before its value is needed.
EPOCHS = 100
PREFETCH = 6


class Costs(NamedTuple):
    """Estimates for the simulation.  All times are in microseconds.

    Attributes:
        device_of: returns a node's device, as any hashable value that is equal for nodes of one device.
        time_of: returns how long a node runs.
        copy_time_of: returns how long a copy of an output to another device takes.
    """

    device_of: Callable[[Node], Hashable]
    time_of: Callable[[Node], float]
    copy_time_of: Callable[[Endpoint], float]


class Trigger(NamedTuple):
    """Receives that start when node `after`, of the same device, is done."""

    after: int
    receives: tuple[int, ...]


class _Edges:
    """The edges of a graph with the times of copies, without back edges of loops.

    Attributes:
        time: node id → how long it runs, in microseconds.
        data: node id → (producer's id, time of the copy) for each input.
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
        """Return the ids of the nodes that a node waits for."""
        return {*(p for p, _ in self.data[i]), *self.control[i]}

    def arrivals(self, i: int, finished: Mapping[int, float]) -> tuple[list[float], float]:
        """Return the times at which a node's values arrive, and the time at which its last control input ends."""
        values = [finished[p] + copy for p, copy in self.data[i]]
        return values, max((finished[c] for c in self.control[i]), default=0.0)


def slacks(nodes: Mapping[int, Node], costs: Costs) -> dict[int, float]:
    """Return by how much each node can be delayed without making the step longer, given unlimited workers.

    Args:
        nodes: by id; inputs from other nodes are there from the beginning.

    Returns:
        microseconds by node id, 0 for nodes on the critical path.
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
    # A Merge waits for its first value only, so the slack of later ones can come out negative.
    return {i: max(0.0, latest_end[i] - edges.time[i] - earliest[i]) for i in edges.order}


def start_times(nodes: Mapping[int, Node], costs: Costs) -> dict[int, float]:
    """Return when each node starts, in microseconds from the beginning of the step, with `SLOTS` workers per device.

    Of the nodes that are ready on a device, the one with the least slack starts.  A node is ready when all that it
    depends on has ended and its inputs are copied; a Merge waits for all its inputs here, as any may arrive last.

    Args:
        nodes: by id; inputs from other nodes are there from the beginning.
    """
    return _Simulation(_Edges(nodes, costs)).run()


_ENDED, _READY = 0, 1


class _Simulation:
    """A greedy simulation of a step."""

    def __init__(self, edges: _Edges) -> None:
        self._edges = edges
        self._slack = _slacks(edges)
        self._waits = {i: len(edges.producers(i)) for i in edges.order}
        self._free = dict.fromkeys(edges.device.values(), SLOTS)
        # By device: the ready nodes as a heap, least slack first.  `_events` is a heap of (time, kind, id).
        self._ready: dict[Hashable, list[tuple[float, int]]] = {device: [] for device in self._free}
        self._events = [(0.0, _READY, i) for i, waits in self._waits.items() if not waits]
        self._started: dict[int, float] = {}
        self._finished: dict[int, float] = {}

    def run(self) -> dict[int, float]:
        """Return the start time of each node."""
        heapq.heapify(self._events)
        while self._events:
            now = self._events[0][0]
            for device in self._happen(now):
                self._start(device, now)
        return self._started

    def _happen(self, now: float) -> set[Hashable]:
        """Process all events of this time; return their devices."""
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
    """Return which receives of one partition are delayed, and until which node is done.

    The step is divided into `EPOCHS`; a receive whose value is needed in one of them starts `PREFETCH` epochs before,
    or at once.  There are no cycles: a node that a receive waits for runs before any node that uses the received value.

    Args:
        nodes: nodes of the partition, by id.
        starts: start times of the whole graph's nodes, from `start_times`.
        receives: ids of the nodes that receive values.
        in_loops: ids of nodes that run in every iteration of a loop; these are neither delayed nor waited for.

    Returns:
        triggers with different `after`, in order of time.
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
    """Return when each node starts; for an added node when its output is first needed."""
    needed = {i: starts[i] for i in nodes if i in starts}
    for node in reversed(order):
        if node.id in needed:
            for source in waits_for(node, nodes.__getitem__):
                if source in nodes and source not in starts:
                    needed[source] = min(needed.get(source, needed[node.id]), needed[node.id])
    return needed


def _times(order: Iterable[Node], nodes: Mapping[int, Node], needed: Mapping[int, float]) -> dict[int, float]:
    """Return a time for each node that is later than the times of its inputs."""
    times: dict[int, float] = {}
    for node in order:
        before = [times[source] + 1 for source in waits_for(node, nodes.__getitem__) if source in times]
        times[node.id] = max(needed.get(node.id, 0.0), *before, 0.0)
    return times
