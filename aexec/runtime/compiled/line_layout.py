"""The layout of a compiled plan: the variable of each value, its last use, and the blocks around it.

    f0, f1     feeds
    k0         a constant
    v3, v3_1   the output of a call, or its second one
    m0, m0_1   a Merge: its output, and the index of the input; `m0_live` says whether it got any
    i0         the number of a loop's iteration
    a5         the list of arguments of a call that has very many
    w7_0       a variable of a functional While

`LineLayout` is finished before any text is written.  The interpreter reads a line's variables through it, too, when it
takes over.
Next to read: `line_writer.py`, which writes the text; `take_over.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from aexec.framework.kernel_contract.functional_call import CallKind
from aexec.runtime.plans.blocks import IS_LIVE, Block, Guard, Item, Loop, NotCompiledError, Value, arrange
from aexec.runtime.plans.inferred_shapes import fully_known, partial_shape
from aexec.runtime.plans.plan import FramePlan, Kind, Plan, PlanNode

__all__ = ["GONE", "MAX_NAMES", "LineLayout", "calls_nothing", "gives_index", "is_while", "known_shape"]

# Marks a value that no call needs any more.
GONE = object()
# A call with more arguments than this has them in a list: a function that names them all takes long to compile.
_WIDE = 250
# Compiling a function holds the interpreter lock, hence these limits.  Calls plus variables of a loop and those inside
# it, which are one function.
_MAX_IN_LOOP = 500
# Arguments of a call, of a part, and of the whole line.
MAX_NAMES = 1_000
# Largest size of a plan: a larger one does not fit into the processor's caches, so that compiling it gains little.
_MAX_SIZE = 30_000
# Values with at most this many elements are not deleted before the function ends.
_TINY = 256


class LineLayout:
    """The variables in which a compiled plan keeps its values.

    Attributes:
        root: the block of the root frame.
        of_slot: argument slot of a frame → its value.
        of_merge: input of a Merge → its value.
        merged: the guards of the inputs of a Merge that is not a loop's.
        flagged: the Merges that have a variable saying whether they got an input.
        ids: node that is not a Merge → its number, which the names of its outputs and of its kernel contain.
        feeds: fed node → its variable.
        merges: Merge → the variable of its output.
        owner: block of a loop → that loop, and the block around it.
        counters: loop → the variable with the number of its iteration.
        constants: name of a constant → its value.
        lists: call with very many arguments → its list, with None in place of variables.
        listed: variable → the lists that it goes to, and its index in each.
        uses: variable → the number of places that read it.
        last_use: variable → the position in the root block of the last item that uses it; the number of items if the
            line returns it.
    """

    def __init__(self, plan: Plan) -> None:
        """Lay out a plan.

        Raises:
            NotCompiledError: it cannot be one line of calls, or is too large.
        """
        if plan.size > _MAX_SIZE:
            raise NotCompiledError("it is very large")
        self.plan = plan
        arrangement = arrange(plan)
        self.root, self.of_slot, self.of_merge = arrangement.root, arrangement.of_slot, arrangement.of_merge
        self.merged, self.flagged = arrangement.merged, arrangement.flagged
        self.ids: dict[PlanNode, int] = {}
        self.feeds = {node: f"f{i}" for i, node in enumerate(plan.args)}
        self.merges: dict[PlanNode, str] = {}
        self.owner: dict[Block, tuple[Loop, Block]] = {}
        self.counters: dict[Loop, str] = {}
        self.constants: dict[str, Any] = {}
        self.lists: dict[PlanNode, list[Any]] = {}
        self.listed: dict[str, list[tuple[str, int]]] = {}
        self._constant_names: dict[int, str] = {}  # by the ids of the values, which `constants` keeps alive
        self._home: dict[PlanNode, tuple[Block, int]] = {}
        self._index_of: dict[Loop, int] = {}  # in the block around it
        self._name_block(self.root)
        self._lay_out_lists()
        self.uses = self._count_uses()
        self.last_use = self._find_last_uses()
        self._check_size()

    # Blocks

    def _name_block(self, block: Block) -> None:
        for index, item in enumerate(block.items):
            if isinstance(item, Loop):
                self._name_loop(item, block, index)
                continue
            self._home[item] = (block, index)
            if item.kind == Kind.MERGE:
                self.merges[item] = f"m{len(self.merges)}"
            else:
                self.ids[item] = len(self.ids)

    def _name_loop(self, loop: Loop, block: Block, index: int) -> None:
        for enter in loop.enters:
            self._home.setdefault(enter, (block, index))
        self.counters[loop] = f"i{len(self.counters)}"
        self._index_of[loop] = index
        for merge, _, _ in loop.merges:
            self.merges[merge] = f"m{len(self.merges)}"
        for part in (loop.cond, loop.body):
            self.owner[part] = (loop, block)
            self._name_block(part)

    def _check_size(self) -> None:
        longest = max((_length(item) for item in self.root.items if isinstance(item, Loop)), default=0)
        if longest > _MAX_IN_LOOP:
            raise NotCompiledError("a loop of it is long")
        widest = max((node.last - node.first for node in self.ids if node not in self.lists), default=0)
        if max(widest, len(self.feeds)) > MAX_NAMES:
            raise NotCompiledError("it has a call, or is called, with very many arguments")

    def block_of(self, node: PlanNode) -> Block:
        """Return the block that a node is in."""
        return self._home[node][0]

    def guard_of(self, node: PlanNode) -> Guard:
        """Return what must hold in its block for a node to run."""
        block, index = self._home[node]
        return block.guards[index]

    def around(self, node: PlanNode) -> Iterator[tuple[Block, int]]:
        """Yield the block that a node is in, with the number of items before the node; then the blocks around it."""
        block, index = self._home[node]
        yield block, index
        while block in self.owner:
            loop, outer = self.owner[block]
            block, index = outer, self._index_of[loop]
            yield block, index

    def retvals(self) -> list[PlanNode]:
        """Return the nodes whose values the line returns, in order."""
        return sorted((n for n in self.ids if n.kind == Kind.RETVAL), key=lambda n: n.position)

    def origin(self, value: Value) -> Value:
        """Return the origin of a value, looking through nodes that only pass it on."""
        while value[0].passes_on or value[0].kind == Kind.SWITCH:
            node, output = value
            source = self.of_slot.get((node.frame, node.first + (output if node.passes_on else 0)))
            if source is None:
                break
            value = source
        return value

    def invariants(self, loop: Loop) -> set[PlanNode]:
        """Return the pure nodes of a loop whose outputs are the same in every iteration, so that one run is enough."""
        known = {enter for enter in loop.enters if enter.is_constant_enter}
        found: set[PlanNode] = set()
        for block in (loop.cond, loop.body):
            for item, guard in zip(block.items, block.guards, strict=True):
                if isinstance(item, Loop):
                    continue
                if self.constant_of(item) is not None:
                    known.add(item)
                elif not guard and _is_pure(item):
                    values = (self.of_slot.get((item.frame, slot)) for slot in range(item.first, item.last))
                    if all(value is None or self.origin(value)[0] in known for value in values):
                        known.add(item)
                        found.add(item)
        return found

    # Names

    def name(self, value: Value) -> str:
        """Return the variable or constant that holds a value."""
        node, output = value
        kind = node.kind
        if kind == Kind.ARG:
            return self.feeds[node]
        if kind == Kind.MERGE:
            suffix = {0: "", IS_LIVE: "_live"}.get(output, f"_{output}")
            return self.merges[node] + suffix
        if node.passes_on:
            return self.argument(node.frame, node.first + output)
        if kind in (Kind.SWITCH, Kind.EXIT, Kind.NEXT_ITERATION) or (kind == Kind.ENTER and node.dereference is None):
            return self.argument(node.frame, node.first)
        constant = self.constant_of(node)
        if constant is not None:
            return self.constant(constant)
        number = self.ids[node]
        return f"v{number}" if node.num_outputs == 1 else f"v{number}_{output}"

    def constant_of(self, node: PlanNode) -> Any:
        """Return the value of a Const that waits for other nodes, if it is small; else None."""
        if node.op != "Const" or node.kind != Kind.PLAIN:
            return None
        value = node.compute()
        return value if value.size <= self.plan.small_elements else None

    def constant(self, value: Any) -> str:
        """Return the name of a constant; equal constants that are different objects have different names."""
        name = self._constant_names.setdefault(id(value), f"k{len(self._constant_names)}")
        self.constants[name] = value
        return name

    def argument(self, frame: FramePlan, slot: int) -> str:
        """Return the variable or constant in an argument slot."""
        value = self.of_slot.get((frame, slot))
        if value is not None:
            return self.name(value)
        return self.constant(frame.args[slot])

    def inputs(self, node: PlanNode) -> list[str]:
        """Return the variables and constants that are inputs of a node."""
        return [self.argument(node.frame, slot) for slot in range(node.first, node.last)]

    def arguments(self, node: PlanNode) -> list[str]:
        """Return the arguments of a call: its inputs, or its list."""
        return [f"*{self.list_of(node)}"] if node in self.lists else self.inputs(node)

    def outputs(self, node: PlanNode) -> list[str]:
        """Return the variables of a node's outputs."""
        return [self.name((node, output)) for output in range(node.num_outputs)]

    def made(self, node: PlanNode) -> list[str]:
        """Return the variables that the text of a node sets."""
        if node.kind == Kind.SWITCH or node.passes_on or self.constant_of(node) is not None:
            return []
        if node.kind == Kind.MERGE:
            outputs = [0, *([1] if gives_index(node) else []), *([IS_LIVE] if node in self.flagged else [])]
            return [self.name((node, output)) for output in outputs]
        return self.outputs(node)

    def made_in(self, loop: Loop) -> Iterator[str]:
        """Yield the variables that the text of a loop sets, with those of the loops inside it."""
        yield from (self.merges[merge] for merge, _, _ in loop.merges)
        for item in (*loop.cond.items, *loop.body.items):
            yield from self.made_in(item) if isinstance(item, Loop) else self.made(item)

    def loop_values(self, node: PlanNode) -> list[str]:
        """Return the variables of a functional While; none if the node is not one."""
        return [f"w{self.ids[node]}_{index}" for index in range(node.num_outputs)] if is_while(node) else []

    def predicates(self, guard: Guard) -> list[str]:
        """Return the variables that a guard tests."""
        return [self.name(predicate) for predicate, _ in guard if predicate is not None]

    # Lists of arguments

    def _lay_out_lists(self) -> None:
        """Find the calls whose arguments are put into a list: they have many, and are made in every run."""
        calls = [
            item
            for item, guard in zip(self.root.items, self.root.guards, strict=True)
            if isinstance(item, PlanNode) and item.kind in (Kind.PLAIN, Kind.KERNEL) and not item.calls and not guard
        ]
        made = {*self.feeds.values(), *(name for node in calls for name in self.made(node))}
        for node in calls:
            names = self.inputs(node) if node.last - node.first > _WIDE else []
            if names and all(name in made or name in self.constants for name in names):
                self.lists[node] = [self.constants.get(name) for name in names]
                for index, name in enumerate(names):
                    if name in made:
                        self.listed.setdefault(name, []).append((self.list_of(node), index))

    def list_of(self, node: PlanNode) -> str:
        """Return the variable of the list that holds a call's arguments."""
        return f"a{self.ids[node]}"

    # Lifetimes

    def _count_uses(self) -> Counter[str]:
        uses = Counter(name for position in range(len(self.root.items)) for name in self.used_at(self.root, position))
        for loop in self.counters:
            uses.update(self.name((node, 0)) for _, _, node in loop.merges)
        return uses

    def _find_last_uses(self) -> dict[str, int]:
        uses: dict[str, int] = {}
        for position in range(len(self.root.items)):
            for name in self.used_at(self.root, position):
                uses[name] = position
        for node in self.retvals():
            for name in (self.name((node, 0)), *self.predicates(self.guard_of(node))):
                uses[name] = len(self.root.items)
        return uses

    def used_at(self, block: Block, index: int) -> Iterable[str]:
        """Return the variables and constants that an item of a block uses, for a loop with those inside it."""
        item = block.items[index]
        names = self.predicates(block.guards[index])
        if not isinstance(item, Loop):
            if item.kind == Kind.MERGE:
                names += [self.name(self.of_merge[item, position]) for position in range(item.num_data)]
                names += [name for guard in self.merged[item] for name in self.predicates(guard)]
                return names
            names += [wide for name in self.made(item) for wide, _ in self.listed.get(name, ())]
            return names + ([self.list_of(item)] if item in self.lists else self.inputs(item))
        names += [self.name((enter, 0)) for enter in item.enters]
        names += [name for node in item.exits for name in self.inputs(node)]
        for part in (item.cond, item.body):
            for inside in range(len(part.items)):
                names.extend(self.used_at(part, inside))
        return names

    @staticmethod
    def is_tiny(node: PlanNode) -> bool:
        """Return whether shape inference knows that all outputs are so small that deleting them costs more."""
        shapes = [known_shape(node, output) for output in range(node.num_outputs)]
        return all(shape is not None and prod(shape) <= _TINY for shape in shapes)

    # Values of variables

    def look_up(self, frame: FramePlan, slot: int, variables: dict[str, Any]) -> Any:
        """Return the value of an argument slot, or `GONE`."""
        return self._held(self.argument(frame, slot), variables)

    def value(self, value: Value, variables: dict[str, Any]) -> Any:
        """Return a value, or `GONE` if no call needs it any more."""
        return self._held(self.name(value), variables)

    def _held(self, name: str, variables: dict[str, Any]) -> Any:
        if name in variables:
            return variables[name]
        for wide, index in self.listed.get(name, ()):
            if wide in variables:
                return variables[wide][index]
        return self.constants.get(name, GONE)

    def holds(self, guard: Guard, variables: dict[str, Any]) -> bool | None:
        """Return whether nodes with this guard are live; None if no call needs to know any more."""
        for predicate, taken in guard:
            truth = True if predicate is None else self.value(predicate, variables)
            if truth is GONE:
                return None
            if bool(truth) != taken:
                return False
        return True


def known_shape(node: PlanNode, output: int) -> tuple[int, ...] | None:
    """Return the shape of an output if shape inference knows all of it."""
    return fully_known(partial_shape(node, output))


def _is_pure(node: PlanNode) -> bool:
    """Return whether the outputs of a call depend on its inputs only."""
    if node.kind not in (Kind.PLAIN, Kind.KERNEL) or node.wants_context or node.touches_state or _is_silent(node):
        return False
    return node.last > node.first and not node.reads_cells


def _length(loop: Loop) -> int:
    """Return the number of calls and variables of a loop, with those of the loops inside it."""
    items = (*loop.cond.items, *loop.body.items)
    inside = (_length(item) if isinstance(item, Loop) else not _is_silent(item) for item in items)
    return len(loop.merges) + sum(inside)


def _is_silent(item: Item) -> bool:
    """Return whether an item takes almost no time."""
    if isinstance(item, Loop):
        return False
    return item.kind in (Kind.SWITCH, Kind.MERGE) or item.op == "Const" or calls_nothing(item)


def calls_nothing(node: PlanNode) -> bool:
    """Return whether a node only passes values or signals on."""
    return node.passes_on or node.op in ("NoOp", "ControlTrigger")


def is_while(node: PlanNode) -> bool:
    """Return whether a node is a functional While."""
    return node.calls is not None and node.calls.kind is CallKind.WHILE


def gives_index(merge: PlanNode) -> bool:
    """Return whether another node reads the index of the input that a Merge took."""
    return bool(merge.slot_edges[1]) or any(output == 1 for output, *_ in merge.merge_edges)
