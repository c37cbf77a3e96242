"""While loops of a `WorkingGraph`, for passes that replace whole loops: their variables, and the body as expressions.

A loop is a `Frame` of Enter, Merge, Switch, NextIteration and Exit nodes, or a `FunctionLoop`, a While node.

A pass compares the expressions with what it knows; each node that it looks at is noted.  It may replace the loop only
if no node is left over (`Frame.check_complete`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.function_body import instantiate
from aexec.graph.nodes.node import Derivation, Endpoint, Node
from aexec.graph.nodes.prune import reachable
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = [
    "CarriedValue",
    "ConstantValue",
    "Expression",
    "Frame",
    "FrameVariable",
    "FunctionLoop",
    "NotMatchedError",
    "Outside",
    "frames",
]

# Larger loops are no single cell.
_MOST_NODES = 200
_COMPUTE_NOTHING = ("Const", "Enter", "Identity", "NoOp")


class NotMatchedError(Exception):
    """A loop is not what a pass looks for."""


@dataclass(frozen=True, slots=True)
class CarriedValue:
    """The value of a loop variable in the present iteration."""

    number: int


@dataclass(frozen=True, slots=True)
class Outside:
    """A value from outside, which is the same in all iterations."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """The array of a Const node."""

    node: Node
    value: Any


class Expression:
    """An output of a node of the body.  Two are equal if they are the same output."""

    __slots__ = ("_frame", "node", "slot")

    def __init__(self, frame: Frame | _Scope, node: Node, slot: int) -> None:
        self._frame = frame
        self.node = node
        self.slot = slot

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the node takes: each a `CarriedValue`, `Outside`, `ConstantValue` or `Expression`."""
        return tuple([self._frame.value(endpoint) for endpoint in self.node.in_edges])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return False
        return self._frame is other._frame and (self.node.id, self.slot) == (other.node.id, other.slot)

    def __hash__(self) -> int:
        return hash((self.node.id, self.slot))


@dataclass(frozen=True, slots=True)
class FrameVariable:
    """A loop variable: where its first value comes from, outside, and its next one, inside the loop."""

    start: Endpoint
    next: Endpoint
    dtype: DType


class Frame:
    """A while loop of Enter, Merge, Switch, NextIteration and Exit nodes.

    Raises:
        NotMatchedError: it has another form, is large, or is visible from outside other than by its Exits.

    Attributes:
        nodes: all of its nodes, the Enter and Exit nodes included.
        variables: the loop variables.
        condition: the `Expression` that LoopCond takes.
        exits: the Exit nodes.
        waits_for: ids of the nodes outside that the loop waits for.
    """

    def __init__(self, working: WorkingGraph, cond: Node, consumers: dict[int, set[int]]) -> None:
        self._working = working
        self._consumers = consumers
        self._seen = {cond.id}
        self._numbers: dict[int, int] = {}
        self._same: dict[int, Endpoint] = {}
        switches = [working.nodes[i] for i in sorted(consumers[cond.id])]
        if not switches or any(node.op != "Switch" for node in switches):
            raise NotMatchedError
        first = self._enter_of(switches[0])
        self._name = first.attrs["frame_name"]
        self.nodes = self._collect()
        self._inside = {node.id for node in self.nodes}
        if cond.id not in self._inside:
            raise NotMatchedError
        self.variables = [self._variable(number, switch) for number, switch in enumerate(switches)]
        self.exits = [node for node in self.nodes if node.op == "Exit"]
        self._check_edges()
        for number, variable in enumerate(self.variables):
            if self.value(variable.next) == CarriedValue(number):
                self._same[number] = variable.start
        self.waits_for = [i for node in self.nodes for i in node.control_edges if i not in self._inside]
        self.condition = self.value(cond.in_edges[0])
        if not self.exits or not isinstance(self.condition, Expression):
            raise NotMatchedError

    def consumers_of(self, node_id: int) -> set[int]:
        """Ids of the nodes that take a value of a node, or wait for it."""
        return self._consumers.get(node_id, set())

    def value(self, endpoint: Endpoint) -> Any:
        """What an endpoint inside the loop is: a `CarriedValue`, `Outside`, `ConstantValue` or `Expression`."""
        while True:
            node = self._working.nodes[endpoint[0]]
            if endpoint in self._working.fed or node.id not in self._inside:
                raise NotMatchedError
            self._seen.add(node.id)
            if node.op == "Identity":
                endpoint = node.in_edges[0]
                continue
            if node.id in self._numbers and endpoint[1] == (node.op == "Switch"):
                number = self._numbers[node.id]
                return _given(self._working, self._same[number]) if number in self._same else CarriedValue(number)
            if node.op == "Enter":
                if not node.attrs["is_constant"]:
                    raise NotMatchedError
                return _given(self._working, node.in_edges[0])
            if node.op == "Const":
                return _constant(node)
            return Expression(self, node, endpoint[1])

    @property
    def readers(self) -> list[Node]:
        """The nodes that take values from outside."""
        return [node for node in self.nodes if node.op == "Enter"]

    @property
    def used(self) -> list[int]:
        """The numbers of the variables whose last value is used."""
        return sorted({self._numbers[node.in_edges[0][0]] for node in self.exits})

    def finish(self, results: Mapping[int, Endpoint]) -> None:
        """Put the last values of the variables that are used in place of the loop."""
        for node in self.exits:
            source = results[self._numbers[node.in_edges[0][0]]]
            _substitute(self._working, node, "Identity", {"T": node.output_types[0]}, (source,), ())
        for node in self.nodes:
            if node.op != "Exit":
                self._working.remove(node.id)

    def check_complete(self) -> None:
        """Raise NotMatchedError if a node that computes anything has not been looked at."""
        exits = {node.id for node in self.exits}
        for node in self.nodes:
            if node.op not in _COMPUTE_NOTHING and node.id not in self._seen and node.id not in exits:
                raise NotMatchedError

    def _enter_of(self, switch: Node) -> Node:
        merge = self._working.nodes[switch.in_edges[0][0]]
        for source, _ in merge.in_edges if merge.op == "Merge" else ():
            if self._working.nodes[source].op == "Enter":
                return self._working.nodes[source]
        raise NotMatchedError

    def _collect(self) -> list[Node]:
        """The nodes from the Enter nodes of this frame's name up to the Exits."""
        working = self._working
        pending = [n for n in working.nodes.values() if n.op == "Enter" and n.attrs["frame_name"] == self._name]
        found = {node.id: node for node in pending}
        while pending:
            node = pending.pop()
            if node.op == "Exit":
                continue
            for consumer in self._consumers.get(node.id, ()):
                if consumer not in found:
                    found[consumer] = working.nodes[consumer]
                    pending.append(found[consumer])
            if len(found) > _MOST_NODES:
                raise NotMatchedError
        return list(found.values())

    def _variable(self, number: int, switch: Node) -> FrameVariable:
        working = self._working
        enter, merge = self._enter_of(switch), working.nodes[switch.in_edges[0][0]]
        others = [working.nodes[source] for source, _ in merge.in_edges if source != enter.id]
        if len(others) != 1 or others[0].op != "NextIteration" or enter.attrs["is_constant"]:
            raise NotMatchedError
        if enter.attrs["frame_name"] != self._name or merge.id in self._numbers:
            raise NotMatchedError
        self._seen |= {switch.id, merge.id, enter.id, others[0].id}
        self._numbers |= {switch.id: number, merge.id: number}
        return FrameVariable(enter.in_edges[0], others[0].in_edges[0], enter.output_types[0])

    def _check_edges(self) -> None:
        """Raise NotMatchedError for edges that make the loop more than a function of its inputs."""
        working, inside = self._working, self._inside
        exits = {node.id for node in self.exits}
        for node in self.nodes:
            if node.id in working.pinned and node.id not in exits:
                raise NotMatchedError
            is_enter = node.op == "Enter"
            if any((source in inside) == is_enter for source, _ in node.in_edges):
                raise NotMatchedError
            if not is_enter and any(source not in inside for source in node.control_edges):
                raise NotMatchedError
            if node.id in exits and (node.in_edges[0][0] not in self._numbers or node.in_edges[0][1]):
                raise NotMatchedError
            if node.op == "Switch" and node.id not in self._numbers:
                raise NotMatchedError
        if not working.on_one_cpu(self.nodes):
            raise NotMatchedError


class _Scope:
    """A function of a While node; see `Frame.value`."""

    def __init__(self, loop: FunctionLoop, function: NameAttrList) -> None:
        self._loop = loop
        try:
            self.body = instantiate(loop.working.library, function.name, function.attrs, loop.working.versions)
        except errors.OpError:
            raise NotMatchedError from None
        self._arguments = {node_id: number for number, node_id in enumerate(self.body.arguments)}
        self.seen: set[int] = set()
        if len(self.body.graph.nodes) > _MOST_NODES:
            raise NotMatchedError

    def value(self, endpoint: Endpoint) -> Any:
        while True:
            node = self.body.graph.nodes[endpoint[0]]
            self.seen.add(node.id)
            if node.id in self._arguments:
                return self._loop.argument(self._arguments[node.id])
            if node.op == "Identity":
                endpoint = node.in_edges[0]
                continue
            return _constant(node) if node.op == "Const" else Expression(self, node, endpoint[1])

    def check_complete(self, device: str) -> None:
        roots = [*(node_id for node_id, _ in self.body.results), *self.body.side_effects]
        for node_id in reachable(self.body.graph, roots, frozenset()):
            node = self.body.graph.nodes[node_id]
            if node_id in self._arguments or node.op in _COMPUTE_NOTHING:
                continue
            if node_id not in self.seen or node.device not in ("", device):
                raise NotMatchedError


class FunctionLoop:
    """A While node, whose condition and body are functions; has the interface of `Frame`."""

    def __init__(self, working: WorkingGraph, node: Node) -> None:
        self.working = working
        self.nodes = [node]
        self.readers = [node]
        self.used = list(range(node.num_outputs))
        self.waits_for = list(node.control_edges)
        self._same: dict[int, Endpoint] = {}
        if any(endpoint in working.fed for endpoint in ((node.id, slot) for slot in self.used)):
            raise NotMatchedError
        if not working.on_one_cpu([node]):
            raise NotMatchedError
        self._condition, self._body = (_Scope(self, node.attrs[role]) for role in ("cond", "body"))
        condition, body, types = self._condition.body, self._body.body, node.input_types
        if condition.argument_types != types or body.argument_types != types or body.result_types != types:
            raise NotMatchedError
        if len(condition.results) != 1 or node.output_types != types:
            raise NotMatchedError
        results = body.results
        self.variables = [
            FrameVariable(start, after, dtype)
            for start, after, dtype in zip(node.in_edges, results, node.input_types, strict=True)
        ]
        for number, variable in enumerate(self.variables):
            if self.value(variable.next) == CarriedValue(number):
                self._same[number] = variable.start
        self.condition = self._condition.value(condition.results[0])

    def argument(self, number: int) -> Any:
        """What a function gets as an argument."""
        return _given(self.working, self._same[number]) if number in self._same else CarriedValue(number)

    def value(self, endpoint: Endpoint) -> Any:
        """As `Frame.value`, of an endpoint of the body."""
        return self._body.value(endpoint)

    def consumers_of(self, node_id: int) -> set[int]:
        """Raise NotMatchedError: only TensorArrays need it, and a function reads none."""
        raise NotMatchedError

    def check_complete(self) -> None:
        """As `Frame.check_complete`."""
        for scope in (self._condition, self._body):
            scope.check_complete(self.nodes[0].device)

    def finish(self, results: Mapping[int, Endpoint]) -> None:
        """As `Frame.finish`."""
        (node,) = self.nodes
        sources = tuple([results[number] for number in self.used])
        types = list(node.output_types)
        _substitute(self.working, node, "IdentityN", {"T": types}, sources, node.control_edges)


def _given(working: WorkingGraph, endpoint: Endpoint) -> Outside | ConstantValue:
    """What the loop gets from an endpoint outside."""
    value, source = working.constant(endpoint), working.nodes[endpoint[0]]
    if value is not None and value.ndim == 0 and source.op == "Const":
        return ConstantValue(source, value)
    return Outside(endpoint)


def _constant(node: Node) -> ConstantValue:
    try:
        return ConstantValue(node, node.attrs["value"].array)
    except errors.OpError:
        raise NotMatchedError from None


def _substitute(
    working: WorkingGraph,
    node: Node,
    op: str,
    attrs: dict[str, Any],
    inputs: tuple[Endpoint, ...],
    controls: tuple[int, ...],
) -> None:
    op_def = op_registry.global_registry.lookup(op).op_def
    attrs = {**op_def.defaults, **attrs}
    made = Node(
        working, node.id, node.name, op_def, attrs, inputs=inputs, control_inputs=controls, device=node.device,
        site=node.site,
    )  # fmt: skip
    made.shapes = node.shapes
    made.derived_from = Derivation.of([node])
    working.substitute(made)


def frames(working: WorkingGraph) -> Iterator[Frame | FunctionLoop]:
    """The loops of a graph that may be looked at; a loop that is yielded may be replaced before the next one."""
    for node in [node for node in working.nodes.values() if node.op in ("While", "StatelessWhile")]:
        try:
            yield FunctionLoop(working, node)
        except NotMatchedError:
            continue
    conditions = [node for node in working.nodes.values() if node.op == "LoopCond"]
    if not conditions:
        return
    consumers: defaultdict[int, set[int]] = defaultdict(set)
    for node in steadily(working.nodes.values()):
        for source in _sources(node):
            consumers[source].add(node.id)
    for cond in conditions:
        try:
            yield Frame(working, cond, consumers)
        except NotMatchedError:
            continue


def _sources(node: Node) -> Sequence[int]:
    return [*(source for source, _ in node.in_edges), *node.control_edges]
