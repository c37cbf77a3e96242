"""While loops of a `WorkingGraph`, for passes that replace whole loops: their variables, and the body as expressions.

A pass compares the expressions with what it knows; each node that it looks at is noted.  It may replace the loop only
if no node is left over (`Frame.check_complete`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = [
    "CarriedValue",
    "ConstantValue",
    "Expression",
    "Frame",
    "FrameVariable",
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

    def __init__(self, frame: Frame, node: Node, slot: int) -> None:
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
        return isinstance(other, Expression) and (self.node.id, self.slot) == (other.node.id, other.slot)

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
        self.waits_for = [i for node in self.nodes for i in node.control_edges if i not in self._inside]
        self.condition = self.value(cond.in_edges[0])
        if not self.exits or not isinstance(self.condition, Expression):
            raise NotMatchedError

    def consumers_of(self, node_id: int) -> set[int]:
        """Ids of the nodes that take a value of a node, or wait for it."""
        return self._consumers.get(node_id, set())

    def number_of(self, exit_node: Node) -> int:
        """The number of the variable that leaves by an Exit node."""
        return self._numbers[exit_node.in_edges[0][0]]

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
            if node.op == "Merge" and node.id in self._numbers and not endpoint[1]:
                return CarriedValue(self._numbers[node.id])
            if node.op == "Switch" and node.id in self._numbers and endpoint[1]:
                return CarriedValue(self._numbers[node.id])
            if node.op == "Enter":
                if not node.attrs["is_constant"]:
                    raise NotMatchedError
                constant = self._working.constant(node.in_edges[0])
                source = self._working.nodes[node.in_edges[0][0]]
                if constant is not None and source.op == "Const" and constant.ndim == 0:
                    return ConstantValue(source, constant)
                return Outside(node.in_edges[0])
            if node.op == "Const":
                try:
                    return ConstantValue(node, node.attrs["value"].array)
                except errors.OpError:
                    raise NotMatchedError from None
            return Expression(self, node, endpoint[1])

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


def frames(working: WorkingGraph) -> Iterator[Frame]:
    """The loops of a graph that may be looked at; a loop that is yielded may be replaced before the next one."""
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
