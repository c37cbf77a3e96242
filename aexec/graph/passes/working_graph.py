"""`WorkingGraph`: the part of a graph that a request needs, for passes to rewrite.

It offers nodes by id, as a graph does, so plans can be made from it.  A pass replaces nodes by copies with the same id,
or redirects the consumers of one output to another; the graph itself does not change.
Nodes that are fed, fetched or targeted are *pinned*: they keep their names and are there when the passes are done.
Next to read: `__init__.py`, then any of the passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.memory.allocator import announce, note_kept
from aexec.framework.op_contract import op_registry
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.waiting.long_work import empty, steadily
from aexec.framework.wire.attr_value import TensorAttr
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.prune import PLACEHOLDERS, reachable
from aexec.graph.nodes.traversal import producers_first, with_dependents
from aexec.graph.ordering.step_order import UNORDERED

__all__ = ["MAX_INLINED_NODES", "WorkingGraph"]

T = TypeVar("T")

# Default limit for the nodes that inlining may add to one plan.
MAX_INLINED_NODES = 20_000
# Most bytes of arrays that the passes of one plan may make from constants that repeat a value.
_REPEATED_BYTES = 64 * 2**20
# Constants from this many bytes on are counted in the session's account.
_LARGE = 1 << 14
# Ops that `WorkingGraph.constant` looks through.
_HANDED_ON = frozenset({"Const", "Identity"})


class _Nodes(dict[int, Node]):
    """Nodes by id; a lookup of a node that the request does not need returns the graph's.

    Args:
        shapeless: ids of nodes whose inferred shapes do not hold for this request.
    """

    def __init__(self, graph: NodeTable, needed: Iterable[int], shapeless: Iterable[int]) -> None:
        super().__init__((node_id, graph.nodes[node_id]) for node_id in steadily(needed))
        self._graph = graph
        self._fed: dict[int, Node] = {}
        for node_id in shapeless:
            copy = graph.nodes[node_id].rewired(
                graph, graph.nodes[node_id].in_edges, graph.nodes[node_id].control_edges
            )
            copy.shapes = None
            (self if node_id in self else self._fed)[node_id] = copy

    def __missing__(self, node_id: int) -> Node:
        return self._fed.get(node_id) or self._graph.nodes[node_id]


class WorkingGraph:
    """The nodes of a graph that a request needs.

    Args:
        place: returns the full name of the device that a node runs on.
        memory: results that passes computed from constants, by key; the plans of a session share it.
        checked: True if runs check that placeholders are fed values of their declared shape; other feeds are never
            checked.
        max_inlined_nodes: most nodes that inlining may add.
        unlike: ids of nodes whose outputs may have other shapes than were inferred.

    Attributes:
        graph: the original graph, which `versions` and `library` belong to.
        nodes: the needed nodes, by id.
        fed: endpoints whose values are fed.
        fetched: endpoints whose values are fetched.
        roots: ids of the fetched and targeted nodes.
        pinned: ids of nodes that must stay.
        changed: True after a pass changed anything.
        made_of: id of an added node → id of the original node that it was made from.
        callees: id of a node from an inlined function → the function, and the node in its body.
        places: id of a node that was placed for this plan → its device; other nodes are placed like their original.
        order: the order of reads and updates, once it is decided.
    """

    def __init__(
        self,
        graph: NodeTable,
        feeds: Iterable[Endpoint],
        fetches: Iterable[Endpoint],
        targets: Iterable[int],
        place: Callable[[WorkingGraph, Node], str] = lambda working, node: "/device:CPU:0",
        memory: MutableMapping[Any, Any] | None = None,
        checked: bool = True,
        max_inlined_nodes: int = MAX_INLINED_NODES,
        unlike: Iterable[int] = (),
    ):
        self.graph = graph
        self.versions = graph.versions
        self.library = graph.library
        self.fed = frozenset(feeds)
        self.fetched = frozenset(fetches)
        self.roots = [*(node_id for node_id, _ in fetches), *targets]
        self.pinned = {*self.roots, *(node_id for node_id, _ in self.fed)}
        needed = sorted(reachable(graph, self.roots, self.fed))
        self.nodes: dict[int, Node] = _Nodes(graph, needed, _shapeless(graph, needed, self.fed, checked, unlike))
        self.made_of: dict[int, int] = {}
        self.callees: dict[int, tuple[Any, Node]] = {}
        self.places: dict[int, Device] = {}
        self.order = UNORDERED
        self.changed = False
        self.max_inlined_nodes = max_inlined_nodes
        self._place = place
        self._memory = {} if memory is None else memory
        self._names: set[str] = set()
        self._waited_for: set[int] | None = None
        # Constant values of endpoints behind an Identity; cleared when a constant or Identity is replaced.
        self._constants: dict[Endpoint, Any] = {}
        self._room = _REPEATED_BYTES

    def __contains__(self, name: object) -> bool:
        return name in self.graph

    def find(self, name: str) -> Node | None:
        """Return the node of the original graph of that name, in its present form, or None."""
        node = self.graph.find(name)
        return None if node is None else self.nodes[node.id]

    def is_original(self, node: Node) -> bool:
        """True if the node differs from the original one by its inputs at most; then it has the same kernel."""
        own = self.graph.nodes
        return node.id < len(own) and own[node.id].attrs is node.attrs

    def shape(self, endpoint: Endpoint) -> PartialTensorShape:
        """Return the inferred shape of an endpoint, which holds for all feeds."""
        shapes = self.nodes[endpoint[0]].shapes
        return UNKNOWN_RANK if shapes is None else shapes[endpoint[1]]

    def constant(self, endpoint: Endpoint) -> Any:
        """Return the array of a constant, also through Identity nodes; None if the endpoint is not constant."""
        passed: list[Endpoint] = []
        while endpoint not in self._constants and (before := self._handed_on(endpoint)) is not None:
            passed.append(endpoint)
            endpoint = before
        value = self._constants[endpoint] if endpoint in self._constants else self._own_constant(endpoint)
        self._constants.update(dict.fromkeys(passed, value))
        return value

    def _handed_on(self, endpoint: Endpoint) -> Endpoint | None:
        """Return the input of an Identity; None for other nodes."""
        node = self.nodes[endpoint[0]]
        is_identity = node.op == "Identity" and not node.control_edges and endpoint not in self.fed
        return node.in_edges[0] if is_identity else None

    def _own_constant(self, endpoint: Endpoint) -> Any:
        node = self.nodes[endpoint[0]]
        if node.op != "Const" or node.control_edges or endpoint in self.fed:
            return None
        try:
            return node.attrs["value"].array
        except errors.OpError:
            return None  # its value cannot be decoded; the node that uses it raises the error

    def producers_first(self) -> list[Node]:
        """Return the nodes in an order in which only back edges of loops point backwards."""
        return producers_first(self.nodes.values(), self.nodes.__getitem__)

    def waited_for(self) -> set[int]:
        """Return the ids of nodes with control edges to others."""
        if self._waited_for is None:
            self._waited_for = {i for node in self.nodes.values() for i in node.control_edges}
        return self._waited_for

    def replace(self, node: Node) -> None:
        """Set a node, in place of the one with its id."""
        if node.control_edges:
            self._waited_for = None
        if self._constants and node.id in self.nodes and not _HANDED_ON.isdisjoint((node.op, self.nodes[node.id].op)):
            self._constants.clear()
        self.nodes[node.id] = node
        self.changed = True

    def substitute(self, node: Node) -> None:
        """Set a node of another kind, in place of the one with its id."""
        self.callees.pop(node.id, None)
        self.replace(node)

    def remove(self, node_id: int) -> None:
        """Remove a node that nothing uses."""
        del self.nodes[node_id]
        self.changed = True

    def new_constant(self, like: Node, suffix: str, value: Any) -> Node:
        """Add a constant with the dtype of `like`'s output 0, on its device; the array becomes read-only."""
        value.flags.writeable = False
        if value.nbytes >= _LARGE:
            note_kept(value)
        dtype = like.output_types[0]
        op_def = op_registry.global_registry.lookup("Const").op_def
        attrs = {"dtype": dtype, "value": TensorAttr(value, dtype)}
        node_id, name = self.new_node(like, suffix)
        constant = Node(self, node_id, name, op_def, attrs, device=like.device, site=like.site)
        constant.shapes = (PartialTensorShape(value.shape),)
        self.replace(constant)
        return constant

    def may_copy(self, value: Any) -> bool:
        """Return whether a pass may make an array as large as a constant, and count the array.

        A constant takes as many bytes in the graph as in memory, except if it repeats a value; `_REPEATED_BYTES` limits
        arrays made from these.
        """
        if 0 in value.strides:
            if value.nbytes > self._room:
                return False
            self._room -= value.nbytes
        try:
            announce(value.nbytes)
        except errors.ResourceExhaustedError:
            return False
        return True

    def on_one_cpu(self, nodes: Iterable[Node]) -> bool:
        """True if all of these run on the same CPU."""
        names = {self._place(self, node) for node in nodes}
        return len(names) == 1 and "device:CPU:" in names.pop()

    def remembered(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return the result of `make`, or its earlier result for an equal key in this session.

        The key is a name and ids of nodes.  Nodes that passes added have other ids each time, so for them nothing is
        remembered.
        """
        if any(isinstance(part, int) and part >= len(self.graph.nodes) for part in key):
            return make()
        if key not in self._memory:
            self._memory[key] = make()
        found: T = self._memory[key]
        return found

    def rewire(self, node: Node, inputs: tuple[Endpoint, ...], control_inputs: tuple[int, ...]) -> None:
        """Give a node other inputs."""
        self.replace(node.rewired(self, inputs, control_inputs))

    @property
    def next_id(self) -> int:
        """The smallest id that no node has."""
        return len(self.graph.nodes) + len(self.made_of)

    def new_node(self, like: Node, suffix: str) -> tuple[int, str]:
        """Return an id and a name for a new node that is made from `like`."""
        node_id = self.next_id
        name = f"{like.name}{suffix}"
        while name in self._names or name in self.graph:
            name += "_"
        self._names.add(name)
        self.made_of[node_id] = self.made_of.get(like.id, like.id)
        if like.id in self.places:
            self.places[node_id] = self.places[like.id]
        return node_id, name

    def take_apart(self) -> None:
        """Drop the nodes, which refer back to the graph.  It must not be used any more."""
        for table in (self._constants, self.callees, self.places, self.made_of, self.nodes):
            empty(table)

    def redirect(self, forward: Mapping[Endpoint, Endpoint]) -> None:
        """Make the consumers of each key use its value instead; a value may itself be a key."""
        if not forward:
            return
        ends = dict(forward)
        for node in steadily(list(self.nodes.values())):
            if any(endpoint in ends for endpoint in node.in_edges):
                self.rewire(node, tuple([_end(ends, e) for e in node.in_edges]), node.control_edges)


def _shapeless(
    graph: NodeTable, needed: Iterable[int], fed: Iterable[Endpoint], checked: bool, unlike: Iterable[int]
) -> set[int]:
    """Return the ids of nodes whose shapes are unknown: they are, or depend on, feeds of unchecked shape."""
    nodes = graph.nodes
    pending = [*unlike, *(i for i, _ in fed if not (checked and nodes[i].op in PLACEHOLDERS))]
    if not pending:
        return set()
    consumers: defaultdict[int, list[int]] = defaultdict(list)
    for node_id in steadily(needed):
        for source, _ in nodes[node_id].in_edges:
            consumers[source].append(node_id)
    return with_dependents(pending, consumers)


def _end(ends: dict[Endpoint, Endpoint], endpoint: Endpoint) -> Endpoint:
    """Follow the redirections of an endpoint to the end, and shorten long chains on the way."""
    passed = []
    while endpoint in ends:
        passed.append(endpoint)
        endpoint = ends[endpoint]
    for other in passed:
        ends[other] = endpoint
    return endpoint
