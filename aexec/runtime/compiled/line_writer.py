"""The writer of compiled plans: the text of a plan's functions, and which node each line of it belongs to.

Next to read: `plans/blocks.py`, which finds the order of the calls; `line_calls.py` for what else the text calls.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from aexec.framework.kernel_contract.functional_call import CallKind
from aexec.framework.kernel_contract.op_kernel import follows_from_shapes
from aexec.framework.kernel_contract.output_sizes import Broadcast, outgrow, rows_of
from aexec.framework.waiting.futures import AWAITABLE
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.runtime.compiled.line_calls import CHANGES, ON_LOOP, HeavyError, first, inner, leave, waits
from aexec.runtime.compiled.line_forwarding import fitting, has_shape_of_output, is_fresh, written_over
from aexec.runtime.compiled.line_scalars import FLOATS, operator_of
from aexec.runtime.compiled.stretch import may_leave_loop
from aexec.runtime.interpreter.executor import no_value
from aexec.runtime.plans.blocks import IS_LIVE, Block, Guard, Item, Loop, NotCompiledError, Value, arrange
from aexec.runtime.plans.call_estimates import correct_estimate, is_light, light_elements
from aexec.runtime.plans.inferred_shapes import Dims, fully_known, is_built_in, partial_shape
from aexec.runtime.plans.plan import FramePlan, Kind, Plan, PlanNode

__all__ = ["GONE", "Body", "LineWriter", "gives_index"]

# One that may take large values counts for so many.
_LARGE_CALLS = 8
_numbers = itertools.count(1)
# What a Merge may say of where its value came from.
_INDICES = [np.int32(index) for index in range(100)]
# In place of a value that nobody needs any more.
GONE = object()
# A call with more arguments has them in a list: the text of functions that name so many takes long to compile.
_WIDE = 250
# Compiling a function holds the interpreter lock, in a thread too, for 0.3 µs per character.  So functions are
# bounded: calls and variables of loops, which are in one function; names in a part; characters of any.
_MAX_IN_LOOPS = 500
_MAX_NAMES_OF_PART = 1_000
_MAX_TEXT = 40_000
# Elements up to which a value is not worth a statement that lets go of it.
_TINY = 256
# Sets of shapes that a call is known to be light with, at most.
_MAX_SHAPES = 50
# Above, the plan does not fit into the processor's caches: its memory is what takes the time, and little is won.
_MAX_SIZE = 30_000


# A test may set it to something that raises TakeOverError now and then: called before every call.
INTERRUPT: Callable[[], None] | None = None


def _comment(text: str) -> str:
    """Text from a graph, as what a comment may say: on one line, whatever is in it."""
    return ascii(text)[1:-1][:100]


class Place(NamedTuple):
    """What a line of the text belongs to.

    Attributes:
        done: the node's call has returned.
        function: number of the function that the line calls, of `PlanNode.calls`, or None.
    """

    node: PlanNode
    done: bool
    function: int | None


class Body(Protocol):
    """The compiled plan of a function's body, as its callers see it; see `CompiledPlan`."""

    function: Callable[..., Any]
    is_line: bool
    needs_context: bool
    num_calls: int


class _Function:
    """The text of one function, and which node each line belongs to.

    What is added is inside the headers of `inside`, from `if` and `while`; a header is written with the first
    line in it, so that none is empty.
    """

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.length = len(head)
        self.places: dict[int, Place] = {}
        self.inside: tuple[str, ...] = ()
        self._open: tuple[str, ...] = ()
        self.yields = False

    def add(self, text: str, node: PlanNode | None = None, *, done: bool = False, function: int | None = None) -> None:
        wanted = self.inside
        if wanted != self._open:
            common = 0
            for header, other in zip(wanted, self._open, strict=False):
                if header != other:
                    break
                common += 1
            for depth in range(common, len(wanted)):
                self._write(wanted[depth], depth)
            self._open = wanted
        self._write(text, len(wanted))
        self.yields |= "yield" in text.partition("#")[0]
        if node is not None:
            self.places[len(self.lines)] = Place(node, done, function)

    def _write(self, text: str, depth: int) -> None:
        self.lines.append("    " * (depth + 1) + text)
        self.length += len(text) + 4 * depth + 4


class LineWriter:
    """Generates the functions of a plan.

    Args:
        heavy_ns: how long a call is expected to take that would hold up the loop; 0 for one that would not.
        chunk: calls between two looks at the clock.
        body_of: the compiled plan of a function's body.
        goes_on: yields where a call is heavy, for it and those after it to be made in a thread, in place of raising.
    """

    def __init__(
        self,
        plan: Plan,
        heavy_ns: Callable[[PlanNode, Sequence[Any]], float],
        chunk: int,
        body_of: Callable[[Any], Body],
        *,
        goes_on: bool = False,
    ) -> None:
        if plan.size > _MAX_SIZE:
            raise NotCompiledError("it is very large")
        self.plan = plan
        self.chunk = chunk
        self.goes_on = goes_on
        self._is_body = any(node.op == "_Arg" for node in plan.args)  # of a function, called in a loop perhaps
        self._may_be_away = False  # by what is written: may the line be in a thread here?
        self.once: dict[Item, tuple[str, ...]] = {}  # nodes that run in the first iteration of their loop: its header
        # Of calls that are asked for their cost: with more elements than so many.
        self.limits: dict[PlanNode, int] = {}
        # Of calls that are asked once for each set of shapes: the scale of their estimates that this relies on.
        self.scales: dict[PlanNode, float] = {}
        # Calls that are short by their estimates, but were slow once: they are measured.
        self.suspects: list[PlanNode] = []
        arrangement = arrange(plan)
        self.root, self.of_slot, self.of_merge = arrangement.root, arrangement.of_slot, arrangement.of_merge
        self.merged, self.flagged = arrangement.merged, arrangement.flagged
        self.ids: dict[PlanNode, int] = {}
        self.feeds = {node: f"f{i}" for i, node in enumerate(plan.args)}
        self.merges: dict[PlanNode, str] = {}
        self.home: dict[PlanNode, tuple[Block, int]] = {}
        self.owner: dict[Block, tuple[Loop, Block]] = {}
        self.index_of: dict[Loop, int] = {}  # in the block around it
        self.counters: dict[Loop, str] = {}
        self.constants: dict[int, str] = {}  # by id; the plan keeps them alive
        self.scalars: set[str] = set()  # variables that begin as a scalar
        self.places: dict[int, Place] = {}  # by the number of the line
        self.filename = f"<compiled plan {next(_numbers)}>"  # another for each: equal text makes equal code objects

        def heavy(node: PlanNode, *inputs: Any) -> None:
            if heavy_ns(node, inputs):
                raise HeavyError

        def light(shapes: set[Any], key: Any, node: PlanNode, *inputs: Any) -> None:
            heavy(node, *inputs)
            if is_light(node, inputs) and len(shapes) < _MAX_SHAPES:
                shapes.add(key)

        def measured(node: PlanNode, compute: Callable[..., Any], *inputs: Any, **out: Any) -> Any:
            heavy(node, *inputs)
            began = perf_counter()
            result = compute(*inputs, **out)
            correct_estimate(node, inputs, (perf_counter() - began) * 1e9)
            return result

        self.namespace: dict[str, Any] = {
            "SMALL": plan.small_elements,
            "awaitable": AWAITABLE,
            "changes": CHANGES,
            "first": first,
            "fitting": fitting,
            "heavy": heavy,
            "heavy_ns": lambda node, *inputs: heavy_ns(node, inputs),
            "inner": inner,
            "interrupt": INTERRUPT,
            "leave": leave,
            "light": light,
            "measured": measured,
            "no_value": no_value,
            "now": perf_counter,
            "outgrow": outgrow,
            "on_loop": ON_LOOP,
            "waits": waits,
        }
        self._functions: list[_Function] = []
        # Of wide calls: the arguments, constants filled in; and variable → the places that it goes to.
        self.lists: dict[PlanNode, list[Any]] = {}
        self.listed: dict[str, list[tuple[str, int]]] = {}
        self._name_blocks(self.root)
        self._lay_out_lists()
        self._uses = self._count_uses()
        self._last_use = self._last_uses()
        self._check_size()
        self.bodies = {node: [body_of(f) for f in node.calls.functions] for node in self.ids if node.calls is not None}
        every = [body for bodies in self.bodies.values() for body in bodies]
        self.num_calls = len(self.root.items) + sum(body.num_calls for body in every)
        loops = self.counters or any(_is_while(node) for node in self.bodies)
        self.is_line = not (loops or goes_on) and all(body.is_line for body in every) and self.num_calls <= chunk
        own = (node.calls is None and (node.wants_context or node.takes_list) for node in self.ids)
        self.needs_context = any(own) or any(body.needs_context for body in every)
        self._write_main()
        self._compile()

    @property
    def outdated(self) -> bool:
        """Have calls turned out to be heavy since it was written?"""
        most = self.plan.small_elements
        slow = (node for node in self.ids if node.check == 2)
        if any(light_elements(node, most) < self.limits.get(node, most) for node in slow):
            return True
        return any(node.estimate.scale > 2 * scale for node, scale in self.scales.items())

    @property
    def in_doubt(self) -> bool:
        """Is a call suspected to be heavy?"""
        return any(node.estimate.suspicion for node in self.ids)

    @property
    def relieved(self) -> bool:
        """Have all calls that were slow when it was written turned out to be quick?"""
        most = self.plan.small_elements
        return bool(self.suspects) and all(light_elements(node, most) > 0 for node in self.suspects)

    # Names

    def _name_blocks(self, block: Block) -> None:
        for index, item in enumerate(block.items):
            if not isinstance(item, Loop):
                self.home[item] = (block, index)
                if item.kind == Kind.MERGE:
                    self.merges[item] = f"m{len(self.merges)}"
                else:
                    self.ids[item] = len(self.ids)
                continue
            for enter in item.enters:
                self.home.setdefault(enter, (block, index))
            self.counters[item] = f"i{len(self.counters)}"
            self.index_of[item] = index
            for merge, _, _ in item.merges:
                self.merges[merge] = f"m{len(self.merges)}"
            for part in (item.cond, item.body):
                self.owner[part] = (item, block)
                self._name_blocks(part)

    def _check_size(self) -> None:
        if len(self.merges) + sum(not _is_silent(item) for block in self.owner for item in block.items) > _MAX_IN_LOOPS:
            raise NotCompiledError("its loops are long")
        widest = max((node.last - node.first for node in self.ids if node not in self.lists), default=0)
        if max(widest, len(self.feeds)) > _MAX_NAMES_OF_PART:
            raise NotCompiledError("it has a call, or is called, with very many arguments")

    def _lay_out_lists(self) -> None:
        """Find the wide calls whose arguments can be put into a list: what runs in every run makes them."""
        calls = [
            item
            for item, guard in zip(self.root.items, self.root.guards, strict=True)
            if isinstance(item, PlanNode) and item.kind in (Kind.PLAIN, Kind.KERNEL) and not item.calls and not guard
        ]
        made = {*self.feeds.values(), *(name for node in calls for name in self._made(node))}
        for node in calls:
            names = self._inputs(node) if node.last - node.first > _WIDE else []
            if names and all(name in made or name in self.namespace for name in names):
                self.lists[node] = [self.namespace.get(name) for name in names]
                for index, name in enumerate(names):
                    if name in made:
                        self.listed.setdefault(name, []).append((self._list(node), index))

    def _list(self, node: PlanNode) -> str:
        return f"a{self.ids[node]}"

    def _write_into_lists(self, function: _Function, name: str) -> None:
        for wide, places in itertools.groupby(self.listed.get(name, ()), lambda place: place[0]):
            indices = [index for _, index in places]
            if len(indices) == 1:
                function.add(f"{wide}[{indices[0]}] = {name}")
            else:
                self.namespace[f"{wide}_{name}"] = indices
                function.add(f"for i in {wide}_{name}: {wide}[i] = {name}")

    def name(self, value: Value) -> str:
        """The variable or constant that holds a value."""
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
        constant = self._constant_of(node)
        if constant is not None:
            return self._constant(constant)
        number = self.ids[node]
        return f"v{number}" if node.num_outputs == 1 else f"v{number}_{output}"

    def _constant_of(self, node: PlanNode) -> Any:
        """The value of a Const that waits for something, if it is small."""
        if node.op != "Const" or node.kind != Kind.PLAIN:
            return None
        value = node.compute()
        return value if value.size <= self.plan.small_elements else None

    def _constant(self, value: Any) -> str:
        name = self.constants.setdefault(id(value), f"k{len(self.constants)}")
        self.namespace[name] = value
        return name

    def argument(self, frame: FramePlan, slot: int) -> str:
        """The variable or constant that goes to an argument slot."""
        value = self.of_slot.get((frame, slot))
        if value is not None:
            return self.name(value)
        return self._constant(frame.args[slot])

    def around(self, node: PlanNode) -> Iterator[tuple[Block, int]]:
        """The block that a node is in, and how many of its items come before; then the same of those around it."""
        block, index = self.home[node]
        yield block, index
        while block in self.owner:
            loop, outer = self.owner[block]
            block, index = outer, self.index_of[loop]
            yield block, index

    def look_up(self, frame: FramePlan, slot: int, variables: dict[str, Any]) -> Any:
        """The value of an argument slot, or `GONE`."""
        return self._held(self.argument(frame, slot), variables)

    def value(self, value: Value, variables: dict[str, Any]) -> Any:
        """A value, or `GONE` if nobody needs it any more."""
        return self._held(self.name(value), variables)

    def _held(self, name: str, variables: dict[str, Any]) -> Any:
        if name in variables:
            return variables[name]
        for wide, index in self.listed.get(name, ()):
            if wide in variables:
                return variables[wide][index]
        return self.namespace.get(name, GONE)

    def holds(self, guard: Guard, variables: dict[str, Any]) -> bool | None:
        """Is what has this guard live?  None: nobody needs to know any more."""
        for predicate, taken in guard:
            truth = True if predicate is None else self.value(predicate, variables)
            if truth is GONE:
                return None
            if bool(truth) != taken:
                return False
        return True

    def _tests(self, guard: Guard) -> tuple[str, ...]:
        tests = []
        for predicate, taken in guard:
            name = "True" if predicate is None else self.name(predicate)
            tests.append(name if taken else f"not {name}")
        return tuple(tests)

    def _headers(self, guard: Guard) -> tuple[str, ...]:
        return tuple(f"if {test}:" for test in self._tests(guard))

    def _tested(self, guard: Guard) -> list[str]:
        return [self.name(predicate) for predicate, _ in guard if predicate is not None]

    # Text

    def _write_main(self) -> None:
        feeds = list(self.feeds.values())
        main = _Function(f"def line({', '.join(['x', *feeds] if self.is_line else ['x', 'end', *feeds])}):")
        for node, arguments in self.lists.items():
            self.namespace[f"l{self.ids[node]}"] = arguments
            main.add(f"{self._list(node)} = l{self.ids[node]}.copy()")
        for feed in feeds:
            self._write_into_lists(main, feed)
        if self.is_line:
            self._write_block(main, self.root, "x")
        else:
            self._write_in_chunks(main)
        results = []
        for node in self._retvals():
            block, index = self.home[node]
            test = " and ".join(self._tests(block.guards[index]))
            name = self.name((node, 0))
            results.append(f"{name} if {test} else no_value({node.position})" if test else name)
        main.add(self._return(results))
        if not self.is_line:
            main.add("yield")
        self._functions.append(main)

    def _return(self, results: Sequence[str]) -> str:
        values = f"({', '.join(results)}{',' if len(results) == 1 else ''})"
        return f"return {values}" if self.is_line else f"return {values}, end"

    def _retvals(self) -> list[PlanNode]:
        return sorted((n for n in self.ids if n.kind == Kind.RETVAL), key=lambda n: n.position)

    def _write_in_chunks(self, main: _Function) -> None:
        run: list[int] = []
        names = weight = 0
        position = 0
        for position, item in enumerate(self.root.items):
            if isinstance(item, Loop) or item in self.bodies:
                # Not in a part, which cannot give way.
                self._write_chunk(main, run, position)
                run, names, weight = [], 0, 0
                if self.root.guards[position]:
                    made = [self.merges[m] for m, _, _ in item.merges] if isinstance(item, Loop) else self._made(item)
                    self._bind(main, made, position + 1)
                self._write_items(main, self.root, [position], "x")
            else:
                run.append(position)
                names += len(self._arguments(item)) + item.num_outputs
                # What may take long is looked after more closely.
                weight += _LARGE_CALLS if item.check and self._larger(item, self.plan.small_elements) else 1
                if weight >= self.chunk or names >= _MAX_NAMES_OF_PART:
                    self._write_chunk(main, run, position + 1)
                    run, names, weight = [], 0, 0
        self._write_chunk(main, run, position + 1)

    def _bind(self, function: _Function, names: Iterable[str], end: int) -> None:
        """Variables that may not be set, but are handed on."""
        unset = [name for name in names if self._last_use.get(name, -1) >= end]
        if unset:
            function.add(f"{' = '.join(unset)} = None")

    def _last_uses(self) -> dict[str, int]:
        """Variable → the position in the root block after which nobody uses it."""
        uses: dict[str, int] = {}
        for position in range(len(self.root.items)):
            for name in self._used_at(self.root, position):
                uses[name] = position
        for node in self._retvals():
            block, index = self.home[node]
            for name in (self.name((node, 0)), *self._tested(block.guards[index])):
                uses[name] = len(self.root.items)
        return uses

    def _used_at(self, block: Block, index: int) -> Iterable[str]:
        """The names that an item of a block uses."""
        item = block.items[index]
        names = self._tested(block.guards[index])
        if not isinstance(item, Loop):
            if item.kind == Kind.MERGE:
                names += [self.name(self.of_merge[item, position]) for position in range(item.num_data)]
                names += [name for guard in self.merged[item] for name in self._tested(guard)]
                return names
            names += [wide for name in self._made(item) for wide, _ in self.listed.get(name, ())]
            return names + ([self._list(item)] if item in self.lists else self._inputs(item))
        names += [self.name((enter, 0)) for enter in item.enters]
        names += [name for node in item.exits for name in self._inputs(node)]
        for part in (item.cond, item.body):
            for inside in range(len(part.items)):
                names.extend(self._used_at(part, inside))
        return names

    def _arguments(self, node: PlanNode) -> list[str]:
        """What a call is called with."""
        return [f"*{self._list(node)}"] if node in self.lists else self._inputs(node)

    def _inputs(self, node: PlanNode) -> list[str]:
        return [self.argument(node.frame, slot) for slot in range(node.first, node.last)]

    def _made(self, node: PlanNode) -> list[str]:
        """The variables that a node of a chunk sets."""
        if node.kind == Kind.SWITCH or node.passes_on or self._constant_of(node) is not None:
            return []
        if node.kind == Kind.MERGE:
            outputs = [0, *([1] if gives_index(node) else []), *([IS_LIVE] if node in self.flagged else [])]
            return [self.name((node, output)) for output in outputs]
        return [self.name((node, output)) for output in range(node.num_outputs)]

    def _write_chunk(self, main: _Function, run: list[int], end: int) -> None:
        if not run:
            return
        nodes = [item for item in self.root.items[run[0] : run[-1] + 1] if isinstance(item, PlanNode)]
        made = dict.fromkeys(name for node in nodes for name in self._made(node))
        every = (name for position in run for name in self._used_at(self.root, position))
        used = dict.fromkeys(name for name in every if name not in self.namespace)
        given = [name for name in used if name not in made]
        kept = [name for name in made if self._last_use.get(name, -1) >= end]
        let_others_run()
        chunk = _Function(f"def part{len(self._functions)}({', '.join(['x', *given])}):")
        guarded = [node for node, position in zip(nodes, run, strict=True) if self.root.guards[position]]
        self._bind(chunk, [name for node in guarded for name in self._made(node)], end)
        self._write_items(chunk, self.root, run, "x")
        if len(chunk.lines) > 1:  # they do not just pass values on
            chunk.add(f"return ({', '.join(kept)}{',' if len(kept) == 1 else ''})")
            targets = f"{', '.join(kept)}{',' if len(kept) == 1 else ''} = " if kept else ""
            call = f"part{len(self._functions)}({', '.join(['x', *given])})"
            main.add(f"{targets}{'yield from ' if chunk.yields else ''}{call}")
            self._functions.append(chunk)
        dropped = [name for name in given if self._last_use[name] < end and not name.startswith("f")]
        if dropped:
            main.add(f"del {', '.join(dropped)}")
        if any(not isinstance(item, PlanNode) or item.kind != Kind.RETVAL for item in self.root.items[end:]):
            # Not where only the taking of what was fetched is left: such a run cannot be cancelled any more.
            # A part that has gone to a thread does not know of `end`.
            main.add("end = yield" if chunk.yields else "if now() >= end: end = yield")

    def _write_block(self, function: _Function, block: Block, context: str) -> None:
        self._write_items(function, block, range(len(block.items)), context)

    def _write_items(self, function: _Function, block: Block, positions: Iterable[int], context: str) -> None:
        """Items of a block, each under its guard."""
        around = function.inside
        checked: set[tuple[str, Guard]] = set()
        merges: list[PlanNode] = []
        made: set[str] = set()
        calls = 0
        for index in positions:
            item, guard = block.items[index], block.guards[index]
            if merges and not (isinstance(item, PlanNode) and item.kind == Kind.MERGE):
                self._write_merges(function, around, merges)
                merges = []
            function.inside = (*around, *self._headers(guard), *self.once.get(item, ()))
            if self._may_be_away and block is self.root and not self.may_leave(item):
                function.add("yield on_loop")
                self._may_be_away = bool(guard)
            if isinstance(item, Loop):
                self._write_loop(function, item, context)
            elif item.kind == Kind.MERGE:
                merges.append(item)
            elif item.kind == Kind.SWITCH:
                test = self._inputs(item)[1]
                if (test, guard) not in checked and not self._is_scalar(item):
                    checked.add((test, guard))
                    function.add(f"if {test}.ndim: leave()", item)
            else:
                self._write_scalar_or_call(function, item, block, context)
                if block is self.root and not guard:
                    self._write_drops(function, item, index, made)
                    made.update(name for name in self._made(item) if not self._is_tiny(item))
                calls += 1
                if block is not self.root and calls % self.chunk == 0:
                    function.add("if now() >= end: end = yield")
        if merges:
            self._write_merges(function, around, merges)
        function.inside = around

    def _write_drops(self, function: _Function, node: PlanNode, index: int, made: set[str]) -> None:
        """Let go of what was made in this function and is read by this call last."""
        dropped = {name for name in self._inputs(node) if name in made and self._last_use.get(name) == index}
        if dropped:
            function.add(f"del {', '.join(sorted(dropped))}")

    @staticmethod
    def _is_tiny(node: PlanNode) -> bool:
        """Is it known that it takes longer to let go of what a node gives than it matters?"""
        shapes = [_shape(node, output) for output in range(node.num_outputs)]
        return all(shape is not None and prod(shape) <= _TINY for shape in shapes)

    def _is_scalar(self, switch: PlanNode) -> bool:
        """Does shape inference say that a predicate is a scalar, as it has to be?"""
        source = self.of_slot.get((switch.frame, switch.first + 1))
        return source is None or _shape(*self._origin(source)) == ()

    def _write_merges(self, function: _Function, around: tuple[str, ...], merges: list[PlanNode]) -> None:
        """What comes out of branches, for all Merges of the same branches together."""
        for branches, group in itertools.groupby(merges, self.merged.__getitem__):
            same = list(group)
            function.inside = around
            for merge in same:
                if merge in self.flagged:
                    function.add(f"{self.name((merge, IS_LIVE))} = False")
            for position, guard in enumerate(branches):
                function.inside = (*around, *self._headers(guard))
                for merge in same:
                    source = self.of_merge[merge, position]
                    comment = _comment(f"{merge.name} ({merge.op})")
                    function.add(f"{self.name((merge, 0))} = {self.name(source)}  # {comment}")
                    if gives_index(merge):
                        function.add(f"{self.name((merge, 1))} = {self._constant(_INDICES[position])}")
                    if merge in self.flagged:
                        function.add(f"{self.name((merge, IS_LIVE))} = True")

    def _write_loop(self, function: _Function, loop: Loop, context: str) -> None:
        around = function.inside
        for merge, enter, _ in loop.merges:
            variable, source = self.name((merge, 0)), self.name((enter, 0))
            unboxed = self._unboxed(source)
            function.add(f"{variable} = {unboxed}")
            if unboxed != source:
                self.scalars.add(variable)
        self._write_unboxed_feeds(function, loop)
        counter = self.counters[loop]
        function.add(f"{counter} = 0")
        function.inside = (*around, f"while True:  # {_comment(loop.frame.name)}")
        self.once.update(dict.fromkeys(self._invariants(loop), (f"if not {counter}:",)))
        inner_context = f"x{counter}"
        if _needs_context(loop):
            name = f"a{counter}"  # not its text: nothing from a graph is in the source but comments
            self.namespace[name] = loop.frame.name
            function.add(f"{inner_context} = inner({context}, {name}, {counter})")
        self._write_block(function, loop.cond, inner_context)
        predicate = loop.predicate
        assert predicate is not None
        condition = self.name((predicate, 0))
        function.add(f"if not {condition}: break")
        self._write_block(function, loop.body, inner_context)
        variables = [self.name((merge, 0)) for merge, _, _ in loop.merges]
        following = [self.name((n, 0)) for _, _, n in loop.merges]
        function.add(f"{', '.join(variables)} = {', '.join(following)}")
        function.add(f"{counter} += 1")
        function.add("if now() >= end: end = yield")
        function.inside = around

    def _invariants(self, loop: Loop) -> set[PlanNode]:
        """Pure nodes of a loop that give the same in every iteration: they run in the first."""
        known = {enter for enter in loop.enters if enter.is_constant_enter}
        found: set[PlanNode] = set()
        for block in (loop.cond, loop.body):
            for item, guard in zip(block.items, block.guards, strict=True):
                if isinstance(item, Loop):
                    continue
                if self._constant_of(item) is not None:
                    known.add(item)
                elif not guard and _is_pure(item):
                    values = (self.of_slot.get((item.frame, slot)) for slot in range(item.first, item.last))
                    if all(value is None or self._origin(value)[0] in known for value in values):
                        known.add(item)
                        found.add(item)
        return found

    def _write_scalar_or_call(self, function: _Function, node: PlanNode, block: Block, context: str) -> None:
        """A call; in loops, of what may be scalars, by Python's operator if they are."""
        operands = self._scalar_operands(node) if block is not self.root or self._is_body else []
        tests = [f"type({name}) is t_{number_type}" for name, number_type in operands if number_type]
        if not tests:
            self._write_call(function, node, context)
            return
        around, target = function.inside, self.name((node, 0))
        function.inside = (*around, f"if {' and '.join(dict.fromkeys(tests))}:")
        if INTERRUPT is not None:
            function.add("interrupt()", node)
        operator = operator_of(node)
        function.add(f"{target} = {operands[0][0]} {operator} {operands[1][0]}  # {_comment(node.name)}", node)
        function.inside = (*around, "else:")
        self._write_call(function, node, context)
        function.inside = around
        self.scalars.add(target)

    def _scalar_operands(self, node: PlanNode) -> list[tuple[str, str]]:
        """The operands of a call if they may be scalars: names, and of variables the type that a scalar has."""
        if node in self.bodies or node in self.lists or node in self.once or operator_of(node) is None:
            return []
        if self.name((node, 0)) in self.listed:
            return []
        dtype = node.node.input_types[0]
        number_type = dtype.np.type.__name__
        operands = []
        for name in self._inputs(node):
            if name in self.namespace:
                if self.namespace[name].ndim:
                    return []
                operands.append((self._unboxed(name), ""))
            elif dtype in FLOATS and name not in self.scalars:
                return []
            else:
                operands.append((f"u_{name}" if f"u_{name}" in self.scalars else name, number_type))
        self.namespace[f"t_{number_type}"] = dtype.np.type
        return operands

    def _unboxed(self, name: str) -> str:
        """A constant array of no dimension as NumPy's scalar, `k…s`; what else has the name, as it is."""
        value = self.namespace.get(name)
        if not isinstance(value, np.ndarray) or value.ndim or value.dtype.kind not in "biuf":
            return name
        self.namespace[f"{name}s"] = value[()]
        return f"{name}s"

    def _write_unboxed_feeds(self, function: _Function, loop: Loop) -> None:
        """What is fed may be an array of no dimension: what a loop counts up to, say."""
        nodes = (item for block in (loop.cond, loop.body) for item in block.items if isinstance(item, PlanNode))
        operands = dict.fromkeys(name for node in nodes for name, _ in self._scalar_operands(node))
        for name in [name for name in operands if name in self.feeds.values()]:
            function.add(f"u_{name} = {name}[()]")
            self.scalars.add(f"u_{name}")

    def _write_call(self, function: _Function, node: PlanNode, context: str) -> None:
        if _calls_nothing(node) or self._constant_of(node) is not None:
            return
        if node.kind == Kind.ENTER:
            self._write_read(function, node)
            return
        if node in self.bodies:
            self._write_function_call(function, node)
            return
        number = self.ids[node]
        inputs = ", ".join(self._arguments(node))
        arguments = inputs
        if node.takes_list:
            arguments = f"{context}, [{inputs}]"
        elif node.wants_context:
            arguments = f"{context}, {inputs}"
        self.namespace[f"c{number}"] = node.compute
        if INTERRUPT is not None:
            function.add("interrupt()", node)
        test = self._asks(node)
        call = f"c{number}({arguments}{self._overwritten(node)})"
        # What has no inputs has just to find its variable.
        changes = self._may_be_away and node.touches_state and bool(inputs)
        if test is not None:
            self.namespace[f"n{number}"] = node
            if self.goes_on and self.may_leave(node):
                self._may_be_away = True
                test = f"({test}) and " if test else ""
                function.add(f"if {test}(ns := heavy_ns(n{number}, {inputs})): yield n{number}, ns, [{inputs}]", node)
                if changes:
                    function.add("else: yield changes", node)
                    changes = False
            elif self._is_suspect(node, test):
                self.suspects.append(node)
                call = f"measured(n{number}, c{number}, {call.partition('(')[2]}"
            elif not self._asks_for_shapes(function, node, test):
                function.add(f"{f'if {test}: ' if test else ''}heavy(n{number}, {inputs})", node)
        if changes:
            function.add("yield changes", node)
        targets = [self.name((node, output)) for output in range(node.num_outputs)]
        left = f"{', '.join(targets)} = " if targets else ""
        comment = f"  # {_comment(f'{node.name} ({node.op})')}"
        trusted = node.trusted or node.kind == Kind.RETVAL
        tuples = bool(targets) and (len(targets) > 1 or node.gives_tuple)
        if (node.wants_context and not node.in_any_thread) or (trusted and tuples):
            function.add(f"o = {call}{comment}", node)
            call, comment = "o", ""
        if node.wants_context and not node.in_any_thread:
            function.add("if isinstance(o, awaitable): waits(o)", node)
        if not trusted:
            self.namespace[f"n{number}"] = node
            call = f"first(n{number}, {call})"
        elif tuples:
            self.namespace[f"n{number}"] = node
            given = "o[0]" if len(targets) == 1 else "o"
            call = f"{given} if type(o) is tuple and len(o) == {len(targets)} else first(n{number}, o)"
        if left or call != "o":
            function.add(f"{left}{call}{comment}", node)
        if node.kind != Kind.RETVAL and not is_built_in(node.op):
            for target in targets:  # is it an array? Who takes it may not be asked
                function.add(f"{target}.size", node, done=True)
        for target in targets:
            self._write_into_lists(function, target)

    def _overwritten(self, node: PlanNode) -> str:
        """The last argument of a call: what it writes its output over, if anything; see `line_forwarding.py`."""
        if node in self.lists:
            return ""
        sources = [self.of_slot.get((node.frame, node.first + position)) for position in node.forwards]
        shapes = [
            self._constant_shape(node, position) if source is None else partial_shape(*source)
            for position, source in zip(node.forwards, sources, strict=True)
        ]
        for source, shape in zip(sources, shapes, strict=True):
            if source is None or not is_fresh(*source):
                continue
            name = self.name(source)
            made_once = source[0] in self.once and node not in self.once
            if self._uses[name] != 1 or made_once or self.home[source[0]][0] is not self.home[node][0]:
                continue
            if name in self.listed:
                continue
            if has_shape_of_output(shape, shapes):
                return written_over(node.compute, name)
            large = [name for name in self._larger(node, self.plan.small_elements) if name]
            if large and (shape is None or None in shape):
                tests = [f"{name}.size > SMALL" for name in large]
                every = [self.argument(node.frame, node.first + position) for position in node.forwards]
                return f", out=fitting({', '.join([name, *every])}) if {' or '.join(tests)} else None"
        return ""

    def _constant_shape(self, node: PlanNode, position: int) -> Dims:
        shape: Dims = node.frame.args[node.first + position].shape
        return shape

    def _count_uses(self) -> Counter[str]:
        """How often each variable is read, at whatever place."""
        uses = Counter(name for position in range(len(self.root.items)) for name in self._used_at(self.root, position))
        for loop in self.counters:
            uses.update(self.name((node, 0)) for _, _, node in loop.merges)
        return uses

    # Calls of functions

    def loop_values(self, node: PlanNode) -> list[str]:
        """The variables of a functional While."""
        return [f"w{self.ids[node]}_{index}" for index in range(node.num_outputs)] if _is_while(node) else []

    def _write_function_call(self, function: _Function, node: PlanNode) -> None:
        assert node.calls is not None
        if INTERRUPT is not None:
            function.add("interrupt()", node)
        around, inputs, kind = function.inside, self._read_inputs(function, node), node.calls.kind
        targets = self._made(node)
        if kind is CallKind.CALL:
            self._write_body(function, node, 0, targets, inputs)
        elif kind is CallKind.IF:
            test = _truth(inputs[0])
            for number, header in enumerate((f"if {test}:", f"if not ({test}):")):
                function.inside = (*around, header)
                self._write_body(function, node, number, targets, inputs[1:])
        else:
            values = self.loop_values(node)
            if values:
                function.add(f"{', '.join(values)} = {', '.join(map(self._unboxed, inputs))}", node)
            function.inside = (*around, f"while True:  # {_comment(f'{node.name} ({node.op})')}")
            test = f"p{self.ids[node]}"
            self._write_body(function, node, 0, [test], values)
            function.add(f"if not ({_truth(test)}): break")
            self._write_body(function, node, 1, values, values)
            function.add("if now() >= end: end = yield")
            function.inside = around
            if values:
                function.add(f"{', '.join(targets)} = {', '.join(values)}")
        function.inside = around

    def _read_inputs(self, function: _Function, node: PlanNode) -> list[str]:
        """The arguments of functions that a node calls, after the variables among them were read."""
        inputs = self._inputs(node)
        if node.dereference is None:
            return inputs
        number = self.ids[node]
        names = [f"d{number}_{position}" for position in range(len(inputs))]
        self.namespace[f"c{number}"] = node.dereference
        function.add(f"{', '.join(names)}, = c{number}([{', '.join(inputs)}])", node)
        return names

    def _write_body(
        self, function: _Function, node: PlanNode, number: int, targets: Sequence[str], arguments: Sequence[str]
    ) -> None:
        """A call of one of the functions that a node calls."""
        assert node.calls is not None
        body = self.bodies[node][number]
        name = f"b{self.ids[node]}_{number}"
        self.namespace[name] = body.function
        comment = f"  # {_comment(f'{node.name}: {node.calls.functions[number].name}')}"
        left = f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = " if targets else ""
        if body.is_line:
            function.add(f"{left}{name}({', '.join(['x', *arguments])}){comment}", node, function=number)
            return
        call = f"yield from {name}({', '.join(['x', 'end', *arguments])})"
        function.add(f"o, end = {call}{comment}", node, function=number)
        if left:
            function.add(f"{left}o")

    def _asks(self, node: PlanNode) -> str | None:
        """When a call is to be asked for its cost, as an expression: "" for always, None for never."""
        if not node.check:
            return None
        limit = self.plan.small_elements
        if node.check == 2:
            # One that was slow on small values may only have been interrupted.
            limit = self.limits[node] = light_elements(node, limit)
        large = self._larger(node, limit)
        if "" in large or not limit or (large and node in self.lists):
            self.limits[node] = 0
            return ""
        broadcasts = node.check == 2 and isinstance(node.cost, Broadcast) and node.last - node.first == 2
        if (node.check == 3 or broadcasts) and (outgrows := self._outgrows(node, limit, large)) is not None:
            return outgrows
        most = "SMALL" if limit == self.plan.small_elements else limit
        # What computes by elements does nothing with rows that have none.
        by_elements = node.forwards or isinstance(node.cost, Broadcast)
        sizes = [f"{name}.size > {most}" if by_elements else f"not 0 < {name}.size <= {most}" for name in large]
        return " or ".join(sizes) if sizes else None

    def _outgrows(self, node: PlanNode, limit: int, large: list[str]) -> str | None:
        """When inputs that broadcast may make more elements than so many, as an expression; None for never."""
        most = 1
        for slot in range(node.first, node.last):
            value = self.of_slot.get((node.frame, slot))
            shape = node.frame.args[slot].shape if value is None else _shape(*self._origin(value))
            most *= limit + 1 if shape is None else prod(shape)
        if most <= limit and not large:
            return None
        first, second = self._inputs(node)
        return f"{first}.size * {second}.size > {limit} and outgrow({first}, {second}, {limit})"

    def _is_suspect(self, node: PlanNode, test: str) -> bool:
        """Is a call asked only because it was slow once, on whatever values?"""
        if test or callable(node.cost) or node.wants_context or node in self.lists:
            return False
        return light_elements(node, self.plan.small_elements) == 0

    def _asks_for_shapes(self, function: _Function, node: PlanNode, test: str) -> bool:
        """Write that a call is to be asked once for each set of shapes, if that is enough."""
        if test or node in self.lists or not follows_from_shapes(node.cost):
            return False
        inputs = self._inputs(node)
        shapes = [f"{name}.shape" for name in dict.fromkeys(inputs) if name not in self.namespace]
        if not shapes:
            return False
        number = self.ids[node]
        key = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
        self.namespace[f"s{number}"] = set()
        self.scales[node] = node.estimate.scale
        call = f"light(s{number}, {key}, n{number}, {', '.join(inputs)})"
        function.add(f"if {key} not in s{number}: {call}", node)
        return True

    def _larger(self, node: PlanNode, limit: int) -> list[str]:
        """The arguments of a call that may have more elements than so many; "" stands for a constant that has."""
        found: dict[str, None] = {}
        for slot in range(node.first, node.last):
            value = self.of_slot.get((node.frame, slot))
            if value is None:
                if rows_of(node.frame.args[slot].shape) > limit:
                    found[""] = None
                continue
            shape = _shape(*self._origin(value))
            if shape is None or rows_of(shape) > limit:
                found[self.name(value)] = None
        return list(found)

    def _origin(self, value: Value) -> Value:
        """Where a value was made, through nodes that only pass it on."""
        while value[0].passes_on or value[0].kind == Kind.SWITCH:
            node, output = value
            source = self.of_slot.get((node.frame, node.first + (output if node.passes_on else 0)))
            if source is None:
                break
            value = source
        return value

    def may_leave(self, item: Item) -> bool:
        """May a line go on in a thread with this: a call in no loop and of no function?"""
        if isinstance(item, Loop) or item in self.bodies or self.home[item][0] is not self.root:
            return False
        return may_leave_loop(item)

    def _write_read(self, function: _Function, enter: PlanNode) -> None:
        """A variable's value enters a loop."""
        (cell,) = self._inputs(enter)
        name = self.name((enter, 0))
        self.namespace[f"c{self.ids[enter]}"] = enter.dereference
        function.add(f"({name},) = c{self.ids[enter]}([{cell}])  # {_comment(f'{enter.name} ({enter.op})')}", enter)

    # Code

    def _compile(self) -> None:
        if max(function.length for function in self._functions) > _MAX_TEXT:
            raise NotCompiledError("it has very many parts, or values that they share")
        texts: list[str] = []
        first = 1
        for function in self._functions:
            texts += [*function.lines, ""]
        self.source = "\n".join(texts)
        filename = self.filename
        # Tracebacks show the line.
        lines = [line + "\n" for line in texts]
        linecache.cache[filename] = (len(self.source), None, lines, filename)
        weakref.finalize(self, linecache.cache.pop, filename, None)
        # No function is in its own globals, or a plan that is given up would wait for the garbage collector.
        namespace = self.namespace
        parts: dict[str, Any] = {}
        for function in self._functions:
            if function is self._functions[-1]:
                namespace = {**namespace, **parts}
            module = compile("\n".join(function.lines), filename, "exec")
            code = next(c for c in module.co_consts if isinstance(c, CodeType)).replace(co_firstlineno=first)
            self.places.update({line + first - 1: place for line, place in function.places.items()})
            parts[code.co_name] = FunctionType(code, namespace)
            first += len(function.lines) + 1
            let_others_run()
        self.function: Callable[..., Any] = parts["line"]


def _shape(node: PlanNode, output: int) -> tuple[int, ...] | None:
    """The shape of an output, if shape inference knows it."""
    return fully_known(partial_shape(node, output))


def _needs_context(loop: Loop) -> bool:
    items = [*loop.cond.items, *loop.body.items]
    return any(_needs_context(item) if isinstance(item, Loop) else item.wants_context for item in items)


def _calls_nothing(node: PlanNode) -> bool:
    return node.passes_on or node.op in ("NoOp", "ControlTrigger")


def _is_pure(node: PlanNode) -> bool:
    """Is what a call gives a function of its inputs alone?"""
    if node.kind not in (Kind.PLAIN, Kind.KERNEL) or node.wants_context or node.touches_state or _is_silent(node):
        return False
    return node.last > node.first and not node.reads_cells


def _is_silent(item: Item) -> bool:
    """Does an item take no time to speak of?"""
    if isinstance(item, Loop):
        return False
    return item.kind in (Kind.SWITCH, Kind.MERGE) or item.op == "Const" or _calls_nothing(item)


def _is_while(node: PlanNode) -> bool:
    return node.calls is not None and node.calls.kind is CallKind.WHILE


def _truth(name: str) -> str:
    """The truth of a tensor, as If and While see it: a scalar's value, or whether there are elements."""
    return f"{name}.size if {name}.ndim else {name}"


def gives_index(merge: PlanNode) -> bool:
    return bool(merge.slot_edges[1]) or any(output == 1 for output, *_ in merge.merge_edges)
