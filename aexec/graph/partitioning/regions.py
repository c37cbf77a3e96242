"""Regions: convex sets of a request's nodes that can be run as one piece.

A set of nodes is convex if no path leaves it and comes back: then all that it needs is there before it
begins, and nobody waits for its middle.  Its nodes are dead or alive together, in the same iteration of the
same loop, and on the same device.  A constant is no member: whoever runs a region gets a copy of those it uses.
Next to read: `aexec/delegates/delegate.py` for who runs them.
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
# So many edges are looked at to find out which neighbours may be one region; beyond that they stay apart.
_MAX_STEPS = 200_000

# What a node's being alive depends on: outputs of control-flow nodes, all of which must be alive, and the frame
# in every iteration of which a loop's constants are.
_Origins = frozenset[tuple[Any, Any]]
_NOTHING: _Origins = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A convex set of nodes.

    Attributes:
        graph: that the nodes are of.
        nodes: its members, producers first.
        constants: nodes whose values members use.
        inputs: endpoints outside that members use, each once.
        outputs: endpoints of members that are used outside, or fetched.
        control_inputs: ids of nodes outside that members wait for.
        in_loop: it may run many times in a step.
        input_types, output_types, input_shapes, output_shapes: of these, shapes as far as they are known before a run.
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
        """`52 Conv2D, 35 Relu6, …`: its ops in a line."""
        parts = [f"{count} {op}" for op, count in self.ops.items()]
        return ", ".join(parts[:most]) + (", …" if len(parts) > most else "")


def find_regions(
    working: WorkingGraph,
    fetches: Collection[Endpoint],
    supports: Callable[[Node, Collection[int]], bool],
    place_of: Callable[[Node], Hashable] = lambda node: None,
    may_wait: Callable[[Node], bool] = lambda node: False,
) -> list[Region]:
    """Maximal regions of the nodes that `supports` says yes to.

    Args:
        fetches: endpoints that have to be outputs.
        supports: is asked of pure nodes of plain values, with those of their outputs that are used.
        place_of: nodes of different places are never together.
        may_wait: of a node that may wait for another one to which no path leads: a queue for one that fills it, say.
            What comes after it is never with what does not, which would then wait as well.

    The regions are disjoint, and together they are as acyclic as the nodes were.
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
        # A constant is there before the step begins.
        self.follows = working.order.edges
        order = producers_first(working.nodes.values(), working.nodes.__getitem__, self.follows)
        self.order = [node for node in order if not self._is_free_constant(node)]
        self.kinds: dict[int, Hashable] = {}  # of the nodes that may be members: who can be with whom
        self.origins = origins = self._origins()
        waits = self._waits(may_wait)
        used = self._used_slots()
        for node in self.order:
            # Who is waited for and not used runs for its errors, which nobody would see in a region.
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
        # What needs nothing that comes with a step is folded, or too large to be.
        return [region for region in regions if region.inputs and region.outputs]

    def producers(self, node: Node) -> list[int]:
        """Ids of the nodes that a node waits for in its own iteration, constants left out."""
        fed = self.working.fed
        ids = [e[0] for e in node.in_edges if e not in fed]
        if node.op in control_flow.MERGE:
            ids = [i for i in ids if self.working.nodes[i].op not in control_flow.NEXT_ITERATION]
        ids += [*node.control_edges, *self.follows.get(node.id, ())]
        return [i for i in ids if not self._is_free_constant(self.working.nodes[i])]

    # Who may be with whom

    def _is_free_constant(self, node: Node) -> bool:
        return node.op == "Const" and not node.control_edges and node.id not in self.fed_ids

    def _may_be_member(self, node: Node) -> bool:
        if node.op in _NEVER or node.op_def.is_stateful or node.id in self.fed_ids or not node.output_types:
            return False
        # A ref edge carries a variable's cell, also to whom it is a value.
        given = [self.working.nodes[i].output_types[slot] for i, slot in node.in_edges]
        return _VALUES.issuperset((*given, *node.input_types, *node.output_types))

    def _origins(self) -> dict[int, _Origins]:
        """What each node's being alive depends on."""
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
        """Ids of the nodes before each node that may wait."""
        waits: dict[int, frozenset[int]] = {}
        nobody: frozenset[int] = frozenset()
        for node in self.order:
            sets = {waits.get(i, nobody) for i in self.producers(node)}
            found = sets.pop() if len(sets) == 1 else nobody.union(*sets)
            waits[node.id] = found | {node.id} if may_wait(node) else found
        return waits

    def _in_loop(self, node: Node) -> bool:
        """Only in loops a frame is among the origins, or a Merge that has one among its own."""
        return any(
            origin == "frame" or any(o == "frame" for o, _ in self.origins.get(origin, ()))
            for origin, _ in self.origins[node.id]
        )

    def _used_slots(self) -> dict[int, set[int]]:
        used: dict[int, set[int]] = defaultdict(set)
        for node_id, slot in (*self.fetches, *(e for node in self.working.nodes.values() for e in node.in_edges)):
            used[node_id].add(slot)
        return used

    # Which are together

    def _cut_into_stages(self) -> None:
        """Clusters that are convex: connected nodes of one kind and stage.

        A stage is how often a path may have left regions and come back before it reaches the node: so no path
        from a stage leads through other nodes into the same stage.
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

    # What a region is

    def _consumed_elsewhere(self) -> set[Endpoint]:
        """Endpoints that are fetched, or used by a node of another cluster."""
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
    """Disjoint sets of ids."""

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
    """Joins neighbouring clusters of one kind as long as no path leads from one to the other through a third."""

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
        """Is there a path between the two besides the edge from one to the other?"""
        seen = {first}
        stack = [c for c in self._after[first] if c != second]
        while stack:
            self._steps += 1
            if self._steps >= _MAX_STEPS:
                return True  # for all that was looked at, there may be one
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
    """Put `node`, whose outputs are those of the region, in order, in the place of the region's members."""
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
