"""Regions: convex sets of a request's nodes that can be run as one node.

A set of nodes is convex if no path leaves it and comes back.  Then all its inputs are there before it starts, and no
node outside waits for a part of it.  The nodes of a region are dead or alive together, in the same iteration of the
same loop, and on the same device.  A constant is not a member: each region gets a copy of the constants it uses.
Next to read: `aexec/delegates/delegate.py` for what runs regions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.prune import PLACEHOLDERS
from aexec.graph.nodes.traversal import producers_first
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["Region", "collapse", "find_regions"]

_CONTROL_FLOW = (
    control_flow.SWITCH | control_flow.MERGE | control_flow.ENTER | control_flow.EXIT | control_flow.NEXT_ITERATION
)
_NEVER = frozenset({*PLACEHOLDERS, *_CONTROL_FLOW, "Const", "ControlTrigger", "LoopCond", "NoOp", "FakeParam"})
_VALUES = frozenset(dtypes.POD)
# Most edges that the search for larger regions may follow; after that regions stay as they are.
_MAX_STEPS = 200_000

# What decides whether a node is alive: the outputs of control-flow nodes that must all be alive, and for constants of
# loops the frame, as they are alive in each of its iterations.
_Origins = frozenset[tuple[Any, Any]]
_NOTHING: _Origins = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A convex set of nodes.

    Attributes:
        graph: the graph of the nodes.
        nodes: the members, producers first.
        constants: constant nodes whose values members use.
        inputs: endpoints outside that members use, each once.
        outputs: endpoints of members that are used outside, or fetched.
        control_inputs: ids of nodes outside that members wait for.
        in_loop: True if it may run several times in a step.
        input_types, output_types, input_shapes, output_shapes: of inputs and outputs; shapes as known before a run.
    """

    graph: WorkingGraph
    nodes: tuple[Node, ...]
    constants: tuple[Node, ...]
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    control_inputs: tuple[int, ...]
    in_loop: bool
    input_types: tuple[DType, ...]
    output_types: tuple[DType, ...]
    input_shapes: tuple[PartialTensorShape, ...]
    output_shapes: tuple[PartialTensorShape, ...]

    @property
    def ops(self) -> dict[str, int]:
        """Op → number of members, the most frequent first."""
        return dict(Counter(node.op for node in self.nodes).most_common())

    @property
    def constant_bytes(self) -> int:
        return sum(int(node.attrs["value"].array.nbytes) for node in self.constants)

    def summary(self, most: int = 4) -> str:
        """Return the most frequent ops as text: `52 Conv2D, 35 Relu6, …`."""
        parts = [f"{count} {op}" for op, count in self.ops.items()]
        return ", ".join(parts[:most]) + (", …" if len(parts) > most else "")


def find_regions(
    working: WorkingGraph,
    fetches: Collection[Endpoint],
    supports: Callable[[Node, Collection[int]], bool],
    place_of: Callable[[Node], Hashable] = lambda node: None,
    may_wait: Callable[[Node], bool] = lambda node: False,
) -> list[Region]:
    """Return the maximal regions of nodes for which `supports` returns True.

    The regions are disjoint, and the graph stays acyclic when each is replaced by one node.

    Args:
        fetches: endpoints that must be outputs.
        supports: called with a stateless node of plain values, and the outputs of it that are used.
        place_of: nodes of different places are never in one region.
        may_wait: returns True for a node that may wait for a node to which it has no path, such as a dequeue for an
            enqueue.  A node that depends on such a node is never in one region with one that does not, which would
            have to wait too.
    """
    return _Finder(working, frozenset(fetches), supports, place_of, may_wait).find()


class _Finder:
    def __init__(
        self,
        working: WorkingGraph,
        fetches: frozenset[Endpoint],
        supports: Callable[[Node, Collection[int]], bool],
        place_of: Callable[[Node], Hashable],
        may_wait: Callable[[Node], bool],
    ) -> None:
        self.working = working
        self.fetches = fetches
        self.fed_ids = {node_id for node_id, _ in working.fed}
        # Constants are left out of the order: they need not run before other nodes.
        self.follows = working.order.edges
        order = producers_first(working.nodes.values(), working.nodes.__getitem__, self.follows)
        self.order = [node for node in order if not self._is_free_constant(node)]
        self.kinds: dict[int, Hashable] = {}  # nodes that may be members → key that is equal for nodes of one region
        self.origins = origins = self._origins()
        waits = self._waits(may_wait)
        used = self._used_slots()
        for node in self.order:
            # A node that is only waited for runs for its errors, which a region would not report.
            if used[node.id] and self._may_be_member(node) and supports(node, sorted(used[node.id])):
                self.kinds[node.id] = (origins[node.id], waits[node.id], place_of(node))
        self.clusters: dict[int, int] = {}

    def find(self) -> list[Region]:
        self._cut_into_stages()
        _Merger(self).run()
        members: dict[int, list[Node]] = defaultdict(list)
        for node in self.order:
            if node.id in self.kinds:
                members[self.clusters[node.id]].append(node)
        consumed = self._consumed_elsewhere()
        regions = [self._region(nodes, consumed) for nodes in members.values()]
        # A region without inputs is constant: it is folded already, or too large to be.
        return [region for region in regions if region.inputs and region.outputs]

    def producers(self, node: Node) -> list[int]:
        """Return the ids of the nodes that a node waits for in its own iteration, without constants."""
        fed = self.working.fed
        ids = [e[0] for e in node.in_edges if e not in fed]
        if node.op in control_flow.MERGE:
            ids = [i for i in ids if self.working.nodes[i].op not in control_flow.NEXT_ITERATION]
        ids += [*node.control_edges, *self.follows.get(node.id, ())]
        return [i for i in ids if not self._is_free_constant(self.working.nodes[i])]

    # Which nodes may be in one region

    def _is_free_constant(self, node: Node) -> bool:
        return node.op == "Const" and not node.control_edges and node.id not in self.fed_ids

    def _may_be_member(self, node: Node) -> bool:
        if node.op in _NEVER or node.op_def.is_stateful or node.id in self.fed_ids or not node.output_types:
            return False
        # An edge may carry a variable's cell even to a node that takes a value.
        given = [self.working.nodes[i].output_types[slot] for i, slot in node.in_edges]
        return _VALUES.issuperset((*given, *node.input_types, *node.output_types))

    def _origins(self) -> dict[int, _Origins]:
        """Return for each node what decides whether it is alive."""
        alive: dict[int, _Origins] = {}
        for node in self.order:
            inputs = [self._origins_of_value(alive, endpoint) for endpoint in node.in_edges]
            if node.op in control_flow.ENTER and node.attrs["is_constant"]:
                alive[node.id] = inputs[0] | {("frame", node.attrs["frame_name"])}
            elif node.op in _CONTROL_FLOW and node.op not in control_flow.SWITCH:
                frames = {origin for origins in inputs for origin in origins if origin[0] == "frame"}
                if node.op in control_flow.ENTER:
                    frames.add(("frame", node.attrs["frame_name"]))
                alive[node.id] = frozenset({(node.id, 0), *(frames if node.op not in control_flow.EXIT else ())})
            else:
                sets = {*inputs, *(alive.get(i, _NOTHING) for i in node.control_edges)}
                alive[node.id] = sets.pop() if len(sets) == 1 else _NOTHING.union(*sets)
        return alive

    def _origins_of_value(self, alive: Mapping[int, _Origins], endpoint: Endpoint) -> _Origins:
        if endpoint in self.working.fed:
            return _NOTHING
        origins = alive.get(endpoint[0], _NOTHING)
        return origins | {endpoint} if self.working.nodes[endpoint[0]].op in control_flow.SWITCH else origins

    def _waits(self, may_wait: Callable[[Node], bool]) -> dict[int, frozenset[int]]:
        """Return for each node the ids of the nodes that may wait among it and those before it."""
        waits: dict[int, frozenset[int]] = {}
        nobody: frozenset[int] = frozenset()
        for node in self.order:
            sets = {waits.get(i, nobody) for i in self.producers(node)}
            found = sets.pop() if len(sets) == 1 else nobody.union(*sets)
            waits[node.id] = found | {node.id} if may_wait(node) else found
        return waits

    def _in_loop(self, node: Node) -> bool:
        """True if a node is in a loop: then a frame is among its origins, or among those of a Merge that is one."""
        return any(
            origin == "frame" or any(o == "frame" for o, _ in self.origins.get(origin, ()))
            for origin, _ in self.origins[node.id]
        )

    def _used_slots(self) -> dict[int, set[int]]:
        used: dict[int, set[int]] = defaultdict(set)
        for node_id, slot in (*self.fetches, *(e for node in self.working.nodes.values() for e in node.in_edges)):
            used[node_id].add(slot)
        return used

    # Clusters

    def _cut_into_stages(self) -> None:
        """Form clusters: connected nodes of one kind and stage, which are convex.

        The stage of a node counts how often a path to it leaves a kind of nodes and comes back.  So no path leads from
        a stage through other nodes into the same stage.
        """
        stages: dict[int, int] = {}
        links = _Links()
        for node in self.order:
            kind = self.kinds.get(node.id)
            stage = -1 if kind is None else 0
            producers = self.producers(node)
            for i in producers:
                before = stages.get(i, -1)
                apart = kind is not None and self.kinds.get(i) != kind
                stage = max(stage, before + 1 if apart else before)
            stages[node.id] = stage
            if kind is not None:
                links.add(node.id)
                for i in producers:
                    if self.kinds.get(i) == kind and stages[i] == stage:
                        links.join(i, node.id)
        self.clusters = {node.id: links.find(node.id) if node.id in self.kinds else node.id for node in self.order}

    # Making regions

    def _consumed_elsewhere(self) -> set[Endpoint]:
        """Return the endpoints that are fetched, or used by a node of another cluster."""
        clusters = self.clusters
        consumed = set(self.fetches)
        for node in self.working.nodes.values():
            own = clusters.get(node.id)
            consumed.update(e for e in node.in_edges if clusters.get(e[0]) != own or own is None)
        return consumed

    def _region(self, nodes: list[Node], consumed: set[Endpoint]) -> Region:
        graph = self.working
        ids = {node.id for node in nodes}
        constants: dict[int, Node] = {}
        inputs: dict[Endpoint, None] = {}
        controls: dict[int, None] = {}
        for node in nodes:
            for endpoint in node.in_edges:
                source = graph.nodes[endpoint[0]]
                if endpoint not in graph.fed and self._is_free_constant(source):
                    constants[source.id] = source
                elif source.id not in ids:
                    inputs[endpoint] = None
            controls.update(dict.fromkeys(i for i in node.control_edges if i not in ids))
        outputs = [(n.id, slot) for n in nodes for slot in range(n.num_outputs) if (n.id, slot) in consumed]
        return Region(
            graph,
            tuple(nodes),
            tuple(constants.values()),
            tuple(inputs),
            tuple(outputs),
            tuple(controls),
            self._in_loop(nodes[0]),
            tuple([graph.nodes[i].output_types[slot].base for i, slot in inputs]),
            tuple([graph.nodes[i].output_types[slot].base for i, slot in outputs]),
            tuple(map(graph.shape, inputs)),
            tuple(map(graph.shape, outputs)),
        )


class _Links:
    """Disjoint sets of ids (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def add(self, item: int) -> None:
        self._parent[item] = item

    def find(self, item: int) -> int:
        root = item
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[item] != root:
            self._parent[item], item = root, self._parent[item]
        return root

    def join(self, a: int, b: int) -> None:
        self._parent[self.find(b)] = self.find(a)


class _Merger:
    """Joins neighbouring clusters of one kind if no path leads from one to the other through a third."""

    def __init__(self, finder: _Finder) -> None:
        self._finder = finder
        self._steps = 0
        self._kind: dict[int, Hashable] = {}
        self._after: dict[int, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)
        clusters = finder.clusters
        for node in finder.order:
            own = clusters[node.id]
            if node.id in finder.kinds:
                self._kind[own] = finder.kinds[node.id]
            for i in finder.producers(node):
                if i in clusters and clusters[i] != own:
                    self._after[clusters[i]].add(own)
                    self._before[own].add(clusters[i])

    def run(self) -> None:
        joined: dict[int, int] = {}
        waiting = list(self._kind)
        while waiting and self._steps < _MAX_STEPS:
            first = waiting.pop()
            if first in joined:
                continue
            for second in sorted(self._after[first]):
                if self._kind.get(second) == self._kind[first] and not self._leads_around(first, second):
                    self._join(first, second)
                    joined[second] = first
                    waiting.append(first)
                    break
        finder = self._finder
        finder.clusters = {i: _end_of(joined, cluster) for i, cluster in finder.clusters.items()}

    def _leads_around(self, first: int, second: int) -> bool:
        """True if a path leads from one cluster to the other besides the edge between them."""
        seen = {first}
        stack = [c for c in self._after[first] if c != second]
        while stack:
            self._steps += 1
            if self._steps >= _MAX_STEPS:
                return True  # the search was cut short, so there may be one
            cluster = stack.pop()
            if cluster == second:
                return True
            if cluster not in seen:
                seen.add(cluster)
                stack.extend(self._after[cluster])
        return False

    def _join(self, first: int, second: int) -> None:
        for mine, other in ((self._after, self._before), (self._before, self._after)):
            for cluster in mine.pop(second, ()):
                other[cluster].discard(second)
                if cluster != first:
                    mine[first].add(cluster)
                    other[cluster].add(first)
            mine[first].discard(second)
        del self._kind[second]


def _end_of(joined: Mapping[int, int], cluster: int) -> int:
    while cluster in joined:
        cluster = joined[cluster]
    return cluster


def collapse(working: WorkingGraph, region: Region, node: Node) -> None:
    """Replace the members of a region by `node`, whose outputs are those of the region in order."""
    own = {member.id for member in region.nodes}
    forward = {endpoint: (node.id, k) for k, endpoint in enumerate(region.outputs)}
    for member in own:
        del working.nodes[member]
    working.replace(node)
    for other in list(working.nodes.values()):
        waits = any(i in own for i in other.control_edges)
        if not waits and not any(e in forward for e in other.in_edges):
            continue
        inputs = tuple([forward.get(e, e) for e in other.in_edges])
        working.rewire(other, inputs, _controls(other.control_edges, own, node.id))


def _controls(controls: Iterable[int], own: Collection[int], region_id: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(region_id if i in own else i for i in controls))
