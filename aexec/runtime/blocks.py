"""Blocks: the nodes of a plan in one order in which they can run, loops as blocks of their own.

`arrange` finds the order, or says why there is none: a compiled plan runs one node after another, so
whatever waits, dies or goes its own way through frames stays with the interpreter.
Next to read: `line_writer.py`, which writes a block down as Python.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from aexec.runtime.plan import FramePlan, Kind, Plan, PlanNode

__all__ = ["Block", "Item", "Loop", "NotCompiledError", "Value", "arrange"]

# Python's own limit of nested loops in a function is 20.
_MAX_DEPTH = 10

# An output of a node.
Value = tuple[PlanNode, int]


class NotCompiledError(Exception):
    """Why a plan, or part of it, cannot be written down as one line of calls."""


@dataclass(eq=False, slots=True)
class Loop:
    """A while loop: a frame in which every value that comes round comes by a Merge.

    Attributes:
        enters: the Enter nodes, which are in the frame around.
        merges: what comes round: per Merge, the value that enters and the one of the next iteration.
        predicate: the LoopCond.
        cond: what runs in every iteration, the last included.
        body: what runs if the predicate is true.
        switches, exits: nodes that only pass values on.
    """

    frame: FramePlan
    enters: list[PlanNode]
    merges: list[tuple[PlanNode, PlanNode, PlanNode]] = field(default_factory=list)
    predicate: PlanNode | None = None
    cond: Block = field(default_factory=lambda: Block())
    body: Block = field(default_factory=lambda: Block())
    switches: list[PlanNode] = field(default_factory=list)
    exits: list[PlanNode] = field(default_factory=list)


Item = PlanNode | Loop


@dataclass(eq=False, slots=True)
class Block:
    """What runs one after another."""

    items: list[Item] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Edges:
    """The edges of a plan backwards: who feeds an argument, who must be done before a node."""

    of_slot: dict[tuple[FramePlan, int], Value] = field(default_factory=dict)
    of_merge: dict[tuple[PlanNode, int], Value] = field(default_factory=dict)
    before: dict[PlanNode, list[PlanNode]] = field(default_factory=dict)


def arrange(plan: Plan) -> tuple[Block, dict[tuple[FramePlan, int], Value], dict[tuple[PlanNode, int], Value]]:
    """The root block of a plan, and which value goes to which argument slot and to which input of a Merge.

    Raises:
        NotCompiledError: the plan has a node that waits by its nature, or may be dead.
    """
    edges = _edges(plan)
    members: dict[FramePlan, list[PlanNode]] = {}
    every = [node for frame in _frames(plan) for node in frame.nodes]
    for node in every:
        members.setdefault(node.frame, []).append(node)
    loops: dict[FramePlan, Loop] = {}
    for node in every:
        if node.kind == Kind.ENTER:
            assert node.child is not None
            loops.setdefault(node.child, Loop(node.child, [])).enters.append(node)
    arranger = _Arranger(edges, members, loops)
    return arranger.block(plan.root, members.get(plan.root, [])), edges.of_slot, edges.of_merge


def _frames(plan: Plan) -> Iterable[FramePlan]:
    depth_of = {plan.root: 0}
    found = [plan.root]
    for frame in found:
        for node in frame.nodes:
            if node.child is not None and node.child not in depth_of:
                depth_of[node.child] = depth_of[frame] + 1
                found.append(node.child)
    if max(depth_of.values()) > _MAX_DEPTH:
        raise NotCompiledError(f"loops are nested more than {_MAX_DEPTH} deep")
    return found


def _edges(plan: Plan) -> _Edges:
    edges = _Edges()
    sources = [*plan.args, *(node for frame in _frames(plan) for node in frame.nodes)]
    for source in sources:
        # What an Enter or an Exit gives travels in another frame than its own.
        frame = source.frame
        if source.kind == Kind.ENTER:
            assert source.child is not None
            frame = source.child
        for output, consumers in enumerate(source.slot_edges):
            for consumer, _, slot in consumers:
                edges.of_slot[consumer.frame, slot] = (source, output)
                edges.before.setdefault(consumer, []).append(source)
        for output, consumer, _, position in source.merge_edges:
            edges.of_merge[consumer, position] = (source, output)
            edges.before.setdefault(consumer, []).append(source)
        for consumer, _ in source.controls:
            edges.before.setdefault(consumer, []).append(source)
        if source.merge_controls:
            raise NotCompiledError(f"'{source.name}' controls a Merge in frame '{frame.name}'")
    return edges


_CALLED = (Kind.PLAIN, Kind.KERNEL, Kind.RETVAL)


class _Arranger:
    def __init__(self, edges: _Edges, members: dict[FramePlan, list[PlanNode]], loops: dict[FramePlan, Loop]) -> None:
        self.edges = edges
        self.members = members
        self.loops = loops

    def block(self, frame: FramePlan, nodes: Iterable[PlanNode], given: frozenset[PlanNode] = frozenset()) -> Block:
        """These nodes of a frame in order, with the loops that they enter; `given` are done before."""
        chosen = set(nodes)
        item_of: dict[PlanNode, Item] = {}
        for node in chosen:
            if node.kind == Kind.ENTER:
                assert node.child is not None
                item_of[node] = self.loops[node.child]
            elif node.kind in _CALLED:
                item_of[node] = node
            elif node.kind == Kind.ASYNC:
                raise NotCompiledError(f"'{node.name}' ({node.op}) may wait")
            elif node.kind not in (Kind.SWITCH, Kind.EXIT, Kind.NEXT_ITERATION, Kind.MERGE) or not given:
                raise NotCompiledError(f"'{node.name}' ({node.op}) may be dead")
        for loop in {item for item in item_of.values() if isinstance(item, Loop)}:
            if not set(loop.enters) <= chosen:
                raise NotCompiledError(f"the loop '{loop.frame.name}' is entered from several places")
            self._fill(loop)
            for node in loop.exits:
                item_of[node] = loop
        return Block(self._ordered(item_of))

    def _ordered(self, item_of: dict[PlanNode, Item]) -> list[Item]:
        needs: dict[Item, set[Item]] = {item: set() for item in item_of.values()}
        for node, item in item_of.items():
            for source in self._sources(node):
                other = item_of.get(source)
                if other is not None and other is not item:
                    needs[item].add(other)
        followers: dict[Item, list[Item]] = {item: [] for item in needs}
        for item, others in needs.items():
            for other in others:
                followers[other].append(item)
        waiting = {item: len(others) for item, others in needs.items()}
        ready = [(_place(item), item) for item, count in waiting.items() if not count]
        heap = [(place, serial, item) for serial, (place, item) in enumerate(sorted(ready, key=lambda r: r[0]))]
        heapq.heapify(heap)
        serial = len(heap)
        ordered: list[Item] = []
        while heap:
            item = heapq.heappop(heap)[2]
            ordered.append(item)
            for follower in followers[item]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    serial += 1
                    heapq.heappush(heap, (_place(follower), serial, follower))
        if len(ordered) != len(needs):
            raise NotCompiledError("a loop waits for what comes out of it")
        return ordered

    def _sources(self, node: PlanNode) -> list[PlanNode]:
        """What must be done before a node: through those that only pass values on within its frame."""
        found: list[PlanNode] = []
        todo = list(self.edges.before.get(node, ()))
        while todo:
            source = todo.pop()
            if source.kind == Kind.SWITCH:
                todo.extend(self.edges.before.get(source, ()))
            else:
                found.append(source)
        return found

    # Loops

    def _fill(self, loop: Loop) -> None:
        frame = loop.frame
        nodes = self.members.get(frame, [])
        by_kind: dict[int, list[PlanNode]] = {}
        for node in nodes:
            by_kind.setdefault(node.kind, []).append(node)
            if node.dereference is not None:
                raise NotCompiledError(f"a variable's reference leads into '{node.name}'")
        if by_kind.get(Kind.RETVAL) or by_kind.get(Kind.ASYNC):
            raise NotCompiledError(f"loop '{frame.name}' has a node that waits, or is fetched from")
        for enter in loop.enters:
            if enter.controls or (not enter.is_constant_enter and enter.edges) or enter.dereference is not None:
                raise NotCompiledError(f"'{enter.name}' does more than enter its loop")
        conds = [node for node in nodes if node.op == "LoopCond"]
        if len(conds) != 1:
            raise NotCompiledError(f"loop '{frame.name}' has {len(conds)} LoopConds")
        loop.predicate = conds[0]
        for merge in by_kind.get(Kind.MERGE, ()):
            loop.merges.append(self._merge(loop, merge))
        if len(loop.merges) != len(by_kind.get(Kind.NEXT_ITERATION, ())):
            raise NotCompiledError(f"loop '{frame.name}' has a NextIteration that goes elsewhere")
        if not loop.merges:
            raise NotCompiledError(f"in loop '{frame.name}' nothing goes round")
        loop.switches = by_kind.get(Kind.SWITCH, [])
        loop.exits = by_kind.get(Kind.EXIT, [])
        for node in loop.exits:
            source, output = self.edges.of_slot.get((frame, node.first), (None, 0))
            if source is None or source.kind != Kind.SWITCH or output != 0:
                raise NotCompiledError(f"'{node.name}' leaves the loop in every iteration")
        self._split(loop, nodes)

    def _merge(self, loop: Loop, merge: PlanNode) -> tuple[PlanNode, PlanNode, PlanNode]:
        if merge.num_data != 2 or merge.slot_edges[1]:
            raise NotCompiledError(f"'{merge.name}' is no loop variable")
        first, second = (self.edges.of_merge[merge, position][0] for position in (0, 1))
        if first.kind == Kind.NEXT_ITERATION:
            first, second = second, first
        if first.kind != Kind.ENTER or first.child is not loop.frame or second.kind != Kind.NEXT_ITERATION:
            raise NotCompiledError(f"'{merge.name}' is no loop variable")
        if first.is_constant_enter or second.controls or second.edges or len(second.merge_edges) != 1:
            raise NotCompiledError(f"'{second.name}' does more than go round")
        if len(first.merge_edges) != 1:
            raise NotCompiledError(f"'{first.name}' enters two variables")
        return merge, first, second

    def _split(self, loop: Loop, nodes: list[PlanNode]) -> None:
        """Which nodes run in every iteration, and which only if there is a next one."""
        side: dict[PlanNode, int] = {}  # 1: the body
        after_true: list[PlanNode] = []
        predicate = loop.predicate
        assert predicate is not None
        for switch in loop.switches:
            given = self.edges.of_slot.get((loop.frame, switch.first + 1))
            if given is None or given[0] is not predicate or switch.merge_edges:
                raise NotCompiledError(f"'{switch.name}' is not switched by the loop's condition")
            for consumer, _, _ in switch.slot_edges[0]:
                if consumer.kind != Kind.EXIT:
                    raise NotCompiledError(f"'{consumer.name}' runs when the loop is over")
            after_true += [consumer for consumer, _, _ in switch.slot_edges[1]]
        todo = after_true
        while todo:
            node = todo.pop()
            if node in side:
                continue
            side[node] = 1
            if node.kind == Kind.EXIT:
                raise NotCompiledError(f"'{node.name}' leaves the loop in the middle")
            if node.kind == Kind.NEXT_ITERATION:
                continue
            if node.kind == Kind.SWITCH:
                raise NotCompiledError(f"'{node.name}' is a conditional")
            todo += self._following(node)
            if node is predicate:
                raise NotCompiledError("the condition depends on the body")
        # A loop within the body is entered there, also with what every iteration has.
        inner_loops = {node.child for node, where in side.items() if where and node.kind == Kind.ENTER}
        for inner in inner_loops:
            assert inner is not None
            self._check_all_dead(inner, [node for node in self.loops[inner].enters if side.get(node) == 1])
        side.update({node: 1 for node in nodes if node.kind == Kind.ENTER and node.child in inner_loops})
        for _, _, following in loop.merges:
            if side.get(following) != 1:
                raise NotCompiledError(f"'{following.name}' goes round without the condition")
        given_nodes = frozenset(nodes)
        moved = {Kind.MERGE, Kind.SWITCH, Kind.EXIT, Kind.NEXT_ITERATION}
        work = [node for node in nodes if node.kind not in moved]
        loop.cond = self.block(loop.frame, [n for n in work if side.get(n) != 1], given_nodes)
        loop.body = self.block(loop.frame, [n for n in work if side.get(n) == 1], given_nodes)

    def _following(self, node: PlanNode) -> list[PlanNode]:
        """Nodes of the same frame that a node's outputs and control edges lead to."""
        leading = [node]
        if node.kind == Kind.ENTER:
            # What it gives stays in the inner loop; what comes out of that follows it here.
            assert node.child is not None
            leading = [inner for inner in self.members.get(node.child, ()) if inner.kind == Kind.EXIT]
        found = [consumer for n in leading for edges in n.slot_edges for consumer, _, _ in edges]
        found += [consumer for n in leading for _, consumer, _, _ in n.merge_edges]
        return found + [consumer for n in leading for consumer, _ in n.controls]

    def _check_all_dead(self, frame: FramePlan, dead: list[PlanNode]) -> None:
        """Nothing of an inner loop may run in the iteration in which these Enters, not all, are dead."""
        if len(dead) == len(self.loops[frame].enters):
            return
        found: set[PlanNode] = set()
        todo = [consumer for enter in dead for edges in enter.slot_edges for consumer, _, _ in edges]
        todo += [consumer for enter in dead for _, consumer, _, _ in enter.merge_edges]
        while todo:
            node = todo.pop()
            if node not in found and node.kind != Kind.NEXT_ITERATION:  # the first iteration is what counts
                found.add(node)
                todo += self._following(node)
        for node in self.members.get(frame, ()):
            if node not in found and (node.kind in _CALLED or node.kind == Kind.ENTER):
                raise NotCompiledError(f"'{node.name}' runs once more than its loop")


def _place(item: Item) -> int:
    return min(node.node.id for node in item.enters) if isinstance(item, Loop) else _own_place(item)


def _own_place(node: PlanNode) -> int:
    # What is fetched is taken last.
    return node.node.id if node.kind != Kind.RETVAL else 1 << 60
