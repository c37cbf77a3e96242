"""Blocks: the nodes of a plan in an order in which they can run one after another; each loop has blocks of its own.

`arrange` finds that order, or says why there is none.  Plans with nodes that wait, or with frames that are not a nest
of loops, are left to the interpreter.

A node's *guard* tells whether it is live or dead: the predicates of the Switches on the way to it, each with the branch
taken.  The guard of an ordinary node combines those of its inputs.  The guard of a Merge is what remains common to its
inputs' guards after the two branches of a predicate have cancelled out.
Next to read: `compiled/line_writer.py`, which writes a block down as Python.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import field

from aexec.framework.late_dataclass import dataclass
from aexec.graph.partitioning.partition import TRANSFERS
from aexec.runtime.plans.plan import FramePlan, Kind, Plan, PlanNode

__all__ = ["IS_LIVE", "Arrangement", "Block", "Guard", "Item", "Loop", "NotCompiledError", "Value", "arrange"]

# Python allows at most 20 nested loops in a function.
_MAX_DEPTH = 10
# The most predicates in one guard.
_MAX_GUARD = 20

# An output of a node.
Value = tuple[PlanNode, int]
# In place of an output's number, for the value that says whether a Merge took an input.
IS_LIVE = -1
# A predicate, and whether it must be true; None stands for a predicate that is always true.
_Literal = tuple[Value | None, bool]
# All must hold.  They are in the order in which they are computed: one may exist only if those before it hold.
Guard = tuple[_Literal, ...]
_ALWAYS: frozenset[_Literal] = frozenset()
_NEVER: _Literal = (None, False)


class NotCompiledError(Exception):
    """Raised if a plan, or a part of one, cannot be written as a line; the message says why."""


@dataclass(eq=False, slots=True)
class Loop:
    """A while loop: a frame in which every value of the next iteration enters by a Merge.

    Attributes:
        enters: the Enter nodes, which are in the surrounding frame.
        merges: Merge → the value that enters the loop, and that of the next iteration.
        predicate: the LoopCond node.
        cond: the items that run in every iteration, the last included.
        body: the items that run if the predicate is true.
        exits: the Exit nodes, which only pass values on.
    """

    frame: FramePlan
    enters: list[PlanNode]
    merges: list[tuple[PlanNode, PlanNode, PlanNode]] = field(default_factory=list)
    predicate: PlanNode | None = None
    cond: Block = field(default_factory=lambda: Block())
    body: Block = field(default_factory=lambda: Block())
    exits: list[PlanNode] = field(default_factory=list)


Item = PlanNode | Loop


@dataclass(eq=False, slots=True)
class Block:
    """Items that run one after another, each if its guard holds."""

    items: list[Item] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Edges:
    """The edges of a plan backwards: which node feeds an argument, which nodes must end before a node."""

    of_slot: dict[tuple[FramePlan, int], Value] = field(default_factory=dict)
    of_merge: dict[tuple[PlanNode, int], Value] = field(default_factory=dict)
    controls: dict[PlanNode, list[PlanNode]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """The nodes of a plan in order, and where each value goes.

    Attributes:
        root: the block of the root frame.
        of_slot: argument slot of a frame → the value that goes there.
        of_merge: input of a Merge → the value that goes there.
        merged: Merge that is not a loop's → the guards of its inputs, without what its block implies.
        flagged: the Merges whose guard only says whether they took an input (`IS_LIVE`).
    """

    root: Block
    of_slot: dict[tuple[FramePlan, int], Value]
    of_merge: dict[tuple[PlanNode, int], Value]
    merged: dict[Item, tuple[Guard, ...]]
    flagged: set[PlanNode]


def arrange(plan: Plan) -> Arrangement:
    """Put the nodes of a plan in order.

    Raises:
        NotCompiledError: the plan has a node that always waits, or control flow that is no nest of conditionals and
            loops.
    """
    arranger = _Arranger(plan)
    root = arranger.root_block()
    return Arrangement(root, arranger.edges.of_slot, arranger.edges.of_merge, arranger.merged, arranger.flagged)


def _frames(plan: Plan) -> Sequence[FramePlan]:
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


def _edges(sources: Iterable[PlanNode]) -> _Edges:
    edges = _Edges()
    for source in sources:
        for output, consumers in enumerate(source.slot_edges):
            for consumer, _, slot in consumers:
                edges.of_slot[consumer.frame, slot] = (source, output)
        for output, consumer, _, position in source.merge_edges:
            edges.of_merge[consumer, position] = (source, output)
        for consumer, _ in (*source.controls, *source.merge_controls):
            edges.controls.setdefault(consumer, []).append(source)
    return edges


_CALLED = (Kind.PLAIN, Kind.KERNEL, Kind.ASYNC, Kind.RETVAL)


class _Arranger:
    def __init__(self, plan: Plan) -> None:
        self.root = plan.root
        self.frames = _frames(plan)
        self.edges = _edges([*plan.args, *(node for frame in self.frames for node in frame.nodes)])
        self.loops: dict[FramePlan, Loop] = {}
        # The guard of each node's outputs, as the frame that uses them sees it; for an Enter, the loop's.
        self.guards: dict[PlanNode, frozenset[_Literal]] = dict.fromkeys(plan.args, _ALWAYS)
        # The order of predicates: an earlier one may decide whether a later one exists.
        self.serial: dict[Value | None, int] = {None: -1}
        self.inputs: dict[Item, list[frozenset[_Literal]]] = {}  # of Merges: their guards
        self.merged: dict[Item, tuple[Guard, ...]] = {}  # the same, without the guards that hold where they are
        self.flagged: set[PlanNode] = set()
        for frame in self.frames:
            for node in frame.nodes:
                if node.kind == Kind.ENTER:
                    assert node.child is not None
                    self.loops.setdefault(node.child, Loop(node.child, [])).enters.append(node)
        for loop in self.loops.values():
            if len({enter.frame for enter in loop.enters}) > 1:
                raise NotCompiledError(f"the loop '{loop.frame.name}' is entered from several places")

    def root_block(self) -> Block:
        items = self._items(self.root.nodes)
        return self._block(self._ordered(items, {}), ())

    # Order

    def _items(self, nodes: Iterable[PlanNode]) -> dict[PlanNode, Item]:
        """The item that each node of a frame belongs to."""
        item_of: dict[PlanNode, Item] = {}
        for node in nodes:
            if node.kind == Kind.ENTER:
                assert node.child is not None
                loop = self.loops[node.child]
                # An Enter that reads a variable is an item of its own, before the loop.
                item_of[node] = loop if node.dereference is None else node
                item_of.update(dict.fromkeys(self._exits(loop), loop))
            elif node.op in TRANSFERS:
                raise NotCompiledError(f"'{node.name}' ({node.op}) is one end of a transfer between devices")
            elif node.kind == Kind.ASYNC and node.calls is None:
                raise NotCompiledError(f"'{node.name}' ({node.op}) may wait")
            elif node.kind in (*_CALLED, Kind.SWITCH, Kind.MERGE):
                if node.dereference is not None and node.calls is None:
                    raise NotCompiledError(f"a variable's reference leads into '{node.name}'")
                item_of[node] = node
        return item_of

    @staticmethod
    def _exits(loop: Loop) -> list[PlanNode]:
        return [node for node in loop.frame.nodes if node.kind == Kind.EXIT]

    def _ordered(self, item_of: dict[PlanNode, Item], given: dict[PlanNode, Item]) -> list[Item]:
        """The items in an order in which they can run, items of one guard together; those of `given` have run."""
        needs: dict[Item, set[Item]] = {item: set() for item in item_of.values()}
        for node, item in item_of.items():
            if node.kind == Kind.EXIT:
                continue  # it exists whenever the loop runs
            for source in self._sources(node):
                other = item_of.get(source)
                if other is None and source not in given and source.kind != Kind.ARG:
                    raise NotCompiledError(f"'{node.name}' uses '{source.name}' of another frame")
                if other is not None and other is not item:
                    needs[item].add(other)
        for item in needs:
            if isinstance(item, Loop):
                needs[item].update(enter for enter in item.enters if item_of.get(enter) is enter)
        followers: dict[Item, list[Item]] = {item: [] for item in needs}
        for item, others in needs.items():
            for other in others:
                followers[other].append(item)
        waiting = {item: len(others) for item, others in needs.items()}
        agenda = _Agenda()
        for first in sorted((item for item, count in waiting.items() if not count), key=_place):
            agenda.add(first, self._enter_item(first))
        ordered: list[Item] = []
        while (done := agenda.next()) is not None:
            ordered.append(done)
            for follower in followers[done]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    agenda.add(follower, self._enter_item(follower))
        if len(ordered) != len(needs):
            raise NotCompiledError("a loop waits for what comes out of it")
        return ordered

    def _sources(self, node: PlanNode) -> list[PlanNode]:
        """The nodes that must end before a node begins."""
        return [*(source for source, _ in self._inputs(node)), *self.edges.controls.get(node, ()), *node.after]

    def _inputs(self, node: PlanNode) -> list[Value]:
        """The values that a node takes, without constants."""
        if node.kind == Kind.MERGE:
            return [self.edges.of_merge[node, position] for position in range(node.num_data)]
        found = (self.edges.of_slot.get((node.frame, slot)) for slot in range(node.first, node.last))
        return [value for value in found if value is not None]

    def _block(self, items: Iterable[Item], known: Iterable[_Literal]) -> Block:
        """A block of items, with the parts of their guards that the block's place does not imply."""
        block = Block()
        without = frozenset(known)
        for item in items:
            block.items.append(item)
            block.guards.append(self._in_order(self._guard_of(item) - without))
            if item in self.inputs:
                self.merged[item] = tuple(self._in_order(guard - without) for guard in self.inputs[item])
        return block

    # Guards

    def _enter_item(self, item: Item) -> frozenset[_Literal]:
        """Find an item's guard; all items before it must have theirs."""
        if isinstance(item, Loop):
            self._fill(item)
        elif item.kind == Kind.MERGE:
            self._merge(item)
        elif item.kind != Kind.ENTER:
            self.guards[item] = self._guard_of_inputs(item)
            if item.kind == Kind.SWITCH:
                for output in (0, 1):
                    self._check(self._guard_of_value((item, output)))
        return self._guard_of(item)

    def _guard_of(self, item: Item) -> frozenset[_Literal]:
        if isinstance(item, Loop):
            return frozenset().union(*(self._guard_of_inputs(enter) for enter in item.enters))
        return self._guard_of_inputs(item) if item.kind == Kind.ENTER else self.guards[item]

    def _guard_of_inputs(self, node: PlanNode) -> frozenset[_Literal]:
        if node.never_dead:
            return _ALWAYS
        guards = [self._guard_of_value(value) for value in self._inputs(node)]
        return _ALWAYS.union(*guards, *(self.guards[source] for source in self.edges.controls.get(node, ())))

    def _guard_of_value(self, value: Value) -> frozenset[_Literal]:
        node, output = value
        guard = self.guards[node]
        if node.kind != Kind.SWITCH:
            return guard
        source = self.edges.of_slot.get((node.frame, node.first + 1))
        if source is not None:
            predicate = self._origin(source)
            self.serial.setdefault(predicate, len(self.serial))
            return guard | {(predicate, output == 1)}
        constant = node.frame.args[node.first + 1]
        if constant.ndim:
            raise NotCompiledError(f"'{node.name}' is switched by what is no scalar")
        return guard if bool(constant) == (output == 1) else guard | {_NEVER}

    def _origin(self, value: Value) -> Value:
        """Return the origin of a value, looking through nodes that only pass it on."""
        while value[0].passes_on or value[0].kind == Kind.SWITCH:
            node, output = value
            slot = node.first + (output if node.passes_on else 0)
            source = self.edges.of_slot.get((node.frame, slot))
            if source is None:
                break
            value = source
        return value

    def _in_order(self, guard: Iterable[_Literal]) -> Guard:
        return tuple(sorted(guard, key=lambda literal: (self.serial[literal[0]], literal[1])))

    @staticmethod
    def _check(guard: frozenset[_Literal]) -> None:
        if len(guard) > _MAX_GUARD:
            raise NotCompiledError("conditionals are nested very deep")

    def _merge(self, merge: PlanNode) -> None:
        """Find the guard of a Merge where branches meet."""
        guards = [self._guard_of_value(value) for value in self._inputs(merge)]
        for index, guard in enumerate(guards):
            if not all(self._exclude(guard | other, 2) for other in guards[:index]):
                raise NotCompiledError(f"two inputs of '{merge.name}' may be live")
        self.inputs[merge] = guards
        left = set(guards)
        while (pair := _complements(left)) is not None:
            left -= {*pair}
            left.add(pair[0] & pair[1])
        if len(left) == 1:
            (self.guards[merge],) = left
            return
        self.flagged.add(merge)
        live = (merge, IS_LIVE)
        self.serial[live] = len(self.serial)
        self.guards[merge] = frozenset.intersection(*guards) | {(live, True)}

    def _exclude(self, both: frozenset[_Literal], depth: int) -> bool:
        """True if these literals can never hold at once; follows the inputs of Merges to `depth`."""
        if _NEVER in both or any((predicate, not taken) in both for predicate, taken in both):
            return True
        merges = [value[0] for value, _ in both if value is not None and value[1] == IS_LIVE] if depth else []
        return any(all(self._exclude(both | taken, depth - 1) for taken in self.inputs[merge]) for merge in merges)

    # Loops

    def _fill(self, loop: Loop) -> None:
        """Put the nodes of a loop in order; everything that enters it must have its guard."""
        frame = loop.frame
        around = self._guard_of(loop)
        for enter in loop.enters:
            if not enter.is_constant_enter and (enter.controls or enter.edges):
                raise NotCompiledError(f"'{enter.name}' does more than enter its loop")
            self.guards[enter] = self._guard_of_inputs(enter)
        item_of = self._items(frame.nodes)
        if any(node.kind == Kind.RETVAL for node in item_of):
            raise NotCompiledError(f"loop '{frame.name}' is fetched from")
        conds = [node for node in frame.nodes if node.op == "LoopCond"]
        if len(conds) != 1:
            raise NotCompiledError(f"loop '{frame.name}' has {len(conds)} LoopConds")
        loop.predicate = conds[0]
        rounds = [node for node in frame.nodes if node.kind == Kind.NEXT_ITERATION]
        for following in rounds:
            merge = self._loop_variable(loop, following)
            loop.merges.append(merge)
            self.guards[merge[0]] = self.guards[merge[1]]
            del item_of[merge[0]]
        if not loop.merges:
            raise NotCompiledError(f"in loop '{frame.name}' nothing goes round")
        loop.exits = self._exits(loop)
        given: dict[PlanNode, Item] = dict.fromkeys([*loop.enters, *(merge for merge, _, _ in loop.merges)], loop)
        self._split(loop, self._ordered(item_of, given), around)
        for node in loop.exits:
            self.guards[node] = around

    def _loop_variable(self, loop: Loop, following: PlanNode) -> tuple[PlanNode, PlanNode, PlanNode]:
        if following.controls or following.edges or len(following.merge_edges) != 1:
            raise NotCompiledError(f"'{following.name}' does more than go round")
        if following.dereference is not None:
            raise NotCompiledError(f"a variable's reference leads into '{following.name}'")
        _, merge, _, position = following.merge_edges[0]
        if merge.num_data != 2 or merge.slot_edges[1] or merge in self.edges.controls:
            raise NotCompiledError(f"'{merge.name}' is no loop variable")
        enter = self.edges.of_merge[merge, 1 - position][0]
        if enter.kind != Kind.ENTER or enter.child is not loop.frame or enter.is_constant_enter:
            raise NotCompiledError(f"'{merge.name}' is no loop variable")
        if len(enter.merge_edges) != 1:
            raise NotCompiledError(f"'{enter.name}' enters two variables")
        return merge, enter, following

    def _split(self, loop: Loop, ordered: list[Item], around: frozenset[_Literal]) -> None:
        """Split a loop's items: those that run in every iteration, and those that run if there is a next one."""
        predicate = loop.predicate
        assert predicate is not None
        origin = self._origin((predicate, 0))
        goes_on, is_over = (origin, True), (origin, False)
        if not around <= self.guards[predicate] or self.guards[predicate] - around:
            raise NotCompiledError(f"'{predicate.name}' may be dead")
        cond: list[Item] = []
        body: list[Item] = []
        late: set[Item] = set()
        for item in ordered:
            guard = self._guard_of(item)
            nodes = item.enters if isinstance(item, Loop) else [item]
            does_something = isinstance(item, Loop) or item.kind in _CALLED
            if does_something and not around <= guard:
                raise NotCompiledError(f"'{_name(item)}' runs once more than its loop")
            if is_over in guard:
                raise NotCompiledError(f"'{_name(item)}' runs when the loop is over")
            if goes_on not in guard and any(source in late for node in nodes for source in self._sources(node)):
                # A ControlTrigger of the body is never dead, but has no effect in the last iteration.
                if isinstance(item, Loop) or not item.never_dead:
                    raise NotCompiledError(f"'{_name(item)}' runs whether the loop goes on or not")
                late.add(item)
            elif goes_on in guard:
                late.add(item)
            (body if item in late else cond).append(item)
        ends = {is_over, *around}
        for node in loop.exits:
            if (
                node.dereference is not None
                or node in self.edges.controls
                or self._guard_of_inputs(node) | around != ends
            ):
                raise NotCompiledError(f"'{node.name}' leaves the loop in every iteration, or in the middle")
        for _, _, following in loop.merges:
            if self._guard_of_inputs(following) | around != {goes_on, *around}:
                raise NotCompiledError(f"'{following.name}' does not go round in every iteration")
        loop.cond = self._block(cond, around)
        loop.body = self._block(body, {goes_on, *around})


class _Agenda:
    """The items that can run next: those of the current guard first, then by their place in the graph."""

    def __init__(self) -> None:
        self.heaps: dict[frozenset[_Literal], list[tuple[int, int, Item]]] = {}
        self.guard: frozenset[_Literal] = _ALWAYS
        self.serial = 0

    def add(self, item: Item, guard: frozenset[_Literal]) -> None:
        self.serial += 1
        heapq.heappush(self.heaps.setdefault(guard, []), (_place(item), self.serial, item))

    def next(self) -> Item | None:
        heap = self.heaps.get(self.guard)
        if heap is None:
            if not self.heaps:
                return None
            self.guard, heap = min(self.heaps.items(), key=lambda entry: entry[1][0][:2])
        item = heapq.heappop(heap)[2]
        if not heap:
            del self.heaps[self.guard]
        return item


def _complements(guards: set[frozenset[_Literal]]) -> tuple[frozenset[_Literal], frozenset[_Literal]] | None:
    """Two of the guards that differ only in the branch of one predicate, or None."""
    for one in guards:
        for literal in one:
            predicate, taken = literal
            other = one - {literal} | {(predicate, not taken)}
            if predicate is not None and other in guards:
                return one, other
    return None


def _place(item: Item) -> int:
    return min(node.node.id for node in item.enters) if isinstance(item, Loop) else _own_place(item)


def _own_place(node: PlanNode) -> int:
    # Retvals come last.
    return node.node.id if node.kind != Kind.RETVAL else 1 << 60


def _name(item: Item) -> str:
    return item.frame.name if isinstance(item, Loop) else item.name
