"""The writer of compiled plans: says line by line what the text of a plan does.

The layout has the variables of the text, the costs the checks before calls; `LineText` compiles the text.
Next to read: `line_layout.py`, `line_costs.py`, and `plans/blocks.py`, which finds the order of the calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf

import numpy as np

from aexec.framework.waiting.futures import AWAITABLE
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.runtime.compiled.line_calls import CHANGES, ON_LOOP, first, frame_in, inner, leave, waits
from aexec.runtime.compiled.line_costs import LineCosts, questions
from aexec.runtime.compiled.line_forwarding import Forwarding, fitting
from aexec.runtime.compiled.line_functions import FunctionCalls
from aexec.runtime.compiled.line_kernels import KernelCalls
from aexec.runtime.compiled.line_layout import MAX_NAMES, LineLayout, calls_nothing, gives_index, is_while, known_shape
from aexec.runtime.compiled.line_options import LineOptions
from aexec.runtime.compiled.line_scalars import Scalars
from aexec.runtime.compiled.line_text import LOOK_AT_CLOCK, FunctionText, LineText, comment_of, comment_of_node
from aexec.runtime.interpreter.executor import no_value
from aexec.runtime.plans.blocks import IS_LIVE, Block, Guard, Item, Loop
from aexec.runtime.plans.plan import Kind, Plan, PlanNode

__all__ = ["LineWriter"]

# The values that a Merge may output for the index of the input that it took.
_INDICES = [np.int32(index) for index in range(100)]

# A test may set this to a function that sometimes raises TakeOverError; the line calls it before every call.
INTERRUPT: Callable[[], None] | None = None


class LineWriter:
    """Writes the functions of a plan.

    Attributes:
        options: what the line is written for.
        layout: the variables that it uses.
        costs: the checks of cost that it uses.
        text: the result, compiled.
        bodies: node that calls functions → their compiled plans.
        is_line: True if the line is a plain function, which returns the results at once; else it is a generator.
        num_calls: the number of calls, including those of functions; a loop counts as one.
        needs_context: True if a call takes the step's context.
    """

    def __init__(self, plan: Plan, options: LineOptions) -> None:
        """Write a plan down and compile it.

        Raises:
            NotCompiledError: the interpreter has to run it.
        """
        self.options = options
        self.layout = layout = LineLayout(plan)
        self.costs = LineCosts(layout, options)
        self.text = LineText()
        self._once: dict[Item, tuple[str, ...]] = {}  # node that runs in the first iteration of its loop → header
        # A function may be called in a loop.
        self._is_body = any(node.op == "_Arg" for node in plan.args)
        self._is_watched = INTERRUPT is not None
        self._namespace = self.text.namespace
        self._namespace |= {
            "SMALL": plan.small_elements,
            "awaitable": AWAITABLE,
            "changes": CHANGES,
            "first": first,
            "fitting": fitting,
            "frame_in": frame_in,
            "inner": inner,
            "interrupt": INTERRUPT,
            "leave": leave,
            "inf": inf,
            "needs_thread": NeedsThreadError,
            "no_value": no_value,
            "on_loop": ON_LOOP,
            "waits": waits,
            **questions(options.heavy_ns),
        }
        self.bodies = {
            node: [options.body_of(f) for f in node.calls.functions] for node in layout.ids if node.calls is not None
        }
        self._scalars = Scalars(layout, self._once, self._namespace)
        self._calls = KernelCalls(layout, self.costs, Forwarding(layout, self.costs, self._once), self._namespace)
        self._functions = FunctionCalls(layout, self.bodies, self._scalars.unboxed, self._namespace)
        every = [body for bodies in self.bodies.values() for body in bodies]
        self.num_calls = len(layout.root.items) + sum(body.num_calls for body in every)
        loops = layout.counters or any(is_while(node) for node in self.bodies)
        gives_way = loops or options.goes_on or self.num_calls > options.chunk
        self.is_line = not gives_way and all(body.is_line for body in every)
        own = (node.calls is None and (node.wants_context or node.takes_list) for node in layout.ids)
        self.needs_context = any(own) or any(body.needs_context for body in every)
        self._write_main()
        self._namespace |= layout.constants
        self.text.compile()

    # The line and its parts

    def _write_main(self) -> None:
        layout = self.layout
        feeds = list(layout.feeds.values())
        main = FunctionText(f"def line({', '.join(['x', *feeds] if self.is_line else ['x', 'end', *feeds])}):")
        for node, arguments in layout.lists.items():
            self._namespace[f"l{layout.ids[node]}"] = arguments
            main.add(f"{layout.list_of(node)} = l{layout.ids[node]}.copy()")
        for feed in feeds:
            self._calls.write_into_lists(main, feed)
        if self.is_line:
            self._write_block(main, layout.root, "x")
        else:
            self._write_in_parts(main)
        results = _tuple([self._result(node) for node in layout.retvals()])
        main.add(f"return ({results})" if self.is_line else f"return ({results}), end")
        if not self.is_line:
            main.add("yield")  # makes it a generator
        self.text.functions.append(main)

    def _result(self, retval: PlanNode) -> str:
        test = " and ".join(self._tests(self.layout.guard_of(retval)))
        name = self.layout.name((retval, 0))
        return f"{name} if {test} else no_value({retval.position})" if test else name

    def _write_in_parts(self, main: FunctionText) -> None:
        """Write the root block as functions that `main` calls, with loops and calls of functions between them."""
        root = self.layout.root
        run: list[int] = []
        names = weight = 0
        position = 0
        for position, item in enumerate(root.items):
            if isinstance(item, Loop) or item in self.bodies:
                # A part cannot give way, so this is written into `main`.
                self._write_part(main, run, position)
                run, names, weight = [], 0, 0
                self._write_alone(main, item, position)
            else:
                run.append(position)
                names += len(self.layout.arguments(item)) + item.num_outputs
                weight += self.costs.weight(item)
                if weight >= self.options.chunk or names >= MAX_NAMES:
                    self._write_part(main, run, position + 1)
                    run, names, weight = [], 0, 0
        self._write_part(main, run, position + 1)

    def _write_alone(self, main: FunctionText, item: Item, position: int) -> None:
        """Write a loop, or a call of functions."""
        layout = self.layout
        if layout.root.guards[position]:
            made = [layout.merges[m] for m, _, _ in item.merges] if isinstance(item, Loop) else layout.made(item)
            self._bind(main, made, position + 1)
        self._write_items(main, layout.root, [position], "x")

    def _bind(self, function: FunctionText, names: Iterable[str], end: int) -> None:
        """Set variables to None that the following code may leave unset, but that are used from position `end` on."""
        unset = [name for name in names if self.layout.last_use.get(name, -1) >= end]
        if unset:
            function.add(f"{' = '.join(unset)} = None")

    def _write_part(self, main: FunctionText, run: list[int], end: int) -> None:
        """Write the items at the positions of `run`, which ends before `end`, as a function, and its call."""
        if not run:
            return
        layout, root = self.layout, self.layout.root
        nodes = [item for item in root.items[run[0] : run[-1] + 1] if isinstance(item, PlanNode)]
        made = dict.fromkeys(name for node in nodes for name in layout.made(node))
        given = self._given_to_part(run, made)
        kept = [name for name in made if layout.last_use.get(name, -1) >= end]
        let_others_run()
        signature = f"part{len(self.text.functions)}({', '.join(['x', *given])})"
        part = FunctionText(f"def {signature}:")
        guarded = [node for node, position in zip(nodes, run, strict=True) if root.guards[position]]
        self._bind(part, [name for node in guarded for name in layout.made(node)], end)
        self._write_items(part, root, run, "x")
        if len(part.lines) > 1:  # they do not just pass values on
            part.add(f"return ({_tuple(kept)})")
            targets = f"{_tuple(kept)} = " if kept else ""
            main.add(f"{targets}{'yield from ' if part.yields else ''}{signature}")
            self.text.functions.append(part)
        dropped = [name for name in given if layout.last_use[name] < end and not name.startswith("f")]
        if dropped:
            main.add(f"del {', '.join(dropped)}")
        if any(not isinstance(item, PlanNode) or item.kind != Kind.RETVAL for item in root.items[end:]):
            # Not if only retvals are left: such a run can no longer be cancelled.
            # A part that was moved to a thread does not know the new `end`.
            main.add("end = yield" if part.yields else LOOK_AT_CLOCK)

    def _given_to_part(self, run: list[int], made: Collection[str]) -> list[str]:
        """Return the variables that the items at the positions of `run` use and others have set."""
        layout = self.layout
        every = (name for position in run for name in layout.used_at(layout.root, position))
        used = dict.fromkeys(name for name in every if name not in layout.constants)
        return [name for name in used if name not in made]

    # Blocks

    def _tests(self, guard: Guard) -> tuple[str, ...]:
        tests = []
        for predicate, taken in guard:
            name = "True" if predicate is None else self.layout.name(predicate)
            tests.append(name if taken else f"not {name}")
        return tuple(tests)

    def _headers(self, guard: Guard) -> tuple[str, ...]:
        return tuple(f"if {test}:" for test in self._tests(guard))

    def _write_block(self, function: FunctionText, block: Block, context: str) -> None:
        self._write_items(function, block, range(len(block.items)), context)

    def _write_items(self, function: FunctionText, block: Block, positions: Iterable[int], context: str) -> None:
        """Write items of a block, each under its guard.

        Args:
            context: the variable that holds the step's context there.
        """
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
            function.inside = (*around, *self._headers(guard), *self._once.get(item, ()))
            if self._calls.may_be_away and not self._is_written_nowhere(item) and not self.costs.may_leave(item):
                function.add("yield on_loop")
                self._calls.may_be_away = bool(guard)
            if isinstance(item, Loop) and block is self.layout.root:
                self._write_loop_apart(function, item, index)
            elif isinstance(item, Loop):
                self._write_loop(function, item, context)
            elif item.kind == Kind.MERGE:
                merges.append(item)
            elif item.kind == Kind.SWITCH:
                self._write_switch(function, item, guard, checked)
            else:
                self._write_scalar_or_call(function, item, block, context)
                if block is self.layout.root and not guard:
                    self._write_drops(function, item, index, made)
                calls += 1
                if block is not self.layout.root and calls % self.options.chunk == 0:
                    function.add(LOOK_AT_CLOCK)
        if merges:
            self._write_merges(function, around, merges)
        function.inside = around

    def _write_drops(self, function: FunctionText, node: PlanNode, index: int, made: set[str]) -> None:
        """Delete variables set by this function that this call is the last to read; add to `made` what it sets."""
        layout = self.layout
        dropped = {name for name in layout.inputs(node) if name in made and layout.last_use.get(name) == index}
        if dropped:
            function.add(f"del {', '.join(sorted(dropped))}")
        if not layout.is_tiny(node):
            made.update(layout.made(node))

    def _write_switch(
        self, function: FunctionText, switch: PlanNode, guard: Guard, checked: set[tuple[str, Guard]]
    ) -> None:
        """Leave the line if a predicate is not a scalar, unless this is checked before, or known by shape inference."""
        test = self.layout.inputs(switch)[1]
        if (test, guard) not in checked and not self._is_scalar(switch):
            checked.add((test, guard))
            function.add(f"if {test}.ndim: leave()", switch)

    def _is_scalar(self, switch: PlanNode) -> bool:
        """Return whether shape inference knows that a predicate is a scalar, as it must be."""
        source = self.layout.of_slot.get((switch.frame, switch.first + 1))
        return source is None or known_shape(*self.layout.origin(source)) == ()

    def _write_merges(self, function: FunctionText, around: tuple[str, ...], merges: list[PlanNode]) -> None:
        """Write the results of branches, for all Merges of the same branches together."""
        for branches, group in itertools.groupby(merges, self.layout.merged.__getitem__):
            same = list(group)
            function.inside = around
            for merge in same:
                if merge in self.layout.flagged:
                    function.add(f"{self.layout.name((merge, IS_LIVE))} = False")
            for position, guard in enumerate(branches):
                function.inside = (*around, *self._headers(guard))
                for merge in same:
                    self._write_taken(function, merge, position)

    def _write_taken(self, function: FunctionText, merge: PlanNode, position: int) -> None:
        """Write that a Merge takes the input at this position."""
        layout = self.layout
        source = layout.name(layout.of_merge[merge, position])
        function.add(f"{layout.name((merge, 0))} = {source}  # {comment_of_node(merge)}")
        if gives_index(merge):
            function.add(f"{layout.name((merge, 1))} = {layout.constant(_INDICES[position])}")
        if merge in layout.flagged:
            function.add(f"{layout.name((merge, IS_LIVE))} = True")

    def _write_loop_apart(self, main: FunctionText, loop: Loop, position: int) -> None:
        """Write a loop of the root block as a function, with the loops inside it, and its call."""
        layout = self.layout
        made = set(layout.made_in(loop))
        given = self._given_to_part([position], made)
        kept = [name for m, _, _ in loop.merges if layout.last_use.get(name := layout.merges[m], -1) > position]
        let_others_run()
        signature = f"part{len(self.text.functions)}({', '.join(['x', 'end', *given])})"
        part = FunctionText(f"def {signature}:")
        scalars = frozenset(self._scalars.variables)
        self._write_loop(part, loop, "x")
        # What the function alone has.
        self._scalars.variables &= scalars | made
        part.add(f"return {', '.join([*kept, 'end'])}")
        main.add(f"{', '.join([*kept, 'end'])} = yield from {signature}")
        dropped = [name for name in given if layout.last_use[name] <= position and not name.startswith("f")]
        if dropped:
            main.add(f"del {', '.join(dropped)}")
        self.text.functions.append(part)

    def _write_loop(self, function: FunctionText, loop: Loop, context: str) -> None:
        layout = self.layout
        around, counter = function.inside, layout.counters[loop]
        self._write_start(function, loop)
        function.add(f"{counter} = 0")
        if _needs_context(loop):
            name = f"a{counter}"  # not the constant's text: only comments in the source come from the graph
            self._namespace[name] = loop.frame.name
            function.add(f"n{counter} = frame_in({context}, {name})")
        function.inside = (*around, f"while True:  # {comment_of(loop.frame.name)}")
        self._calls.may_be_away |= self.costs.may_yield(loop)
        self._once.update(dict.fromkeys(layout.invariants(loop), (f"if not {counter}:",)))
        inner_context = f"x{counter}"
        if _needs_context(loop):
            function.add(f"{inner_context} = inner({context}, n{counter}, {counter})")
        self._write_block(function, loop.cond, inner_context)
        predicate = loop.predicate
        assert predicate is not None
        function.add(f"if not {layout.name((predicate, 0))}: break")
        self._write_block(function, loop.body, inner_context)
        self._calls.may_be_away |= self.costs.may_yield(loop)
        variables = [layout.name((merge, 0)) for merge, _, _ in loop.merges]
        following = [layout.name((n, 0)) for _, _, n in loop.merges]
        function.add(f"{', '.join(variables)} = {', '.join(following)}")
        function.add(f"{counter} += 1")
        function.add(LOOK_AT_CLOCK)
        function.inside = around

    def _write_start(self, function: FunctionText, loop: Loop) -> None:
        """Set the variables of a loop to the entering values, with arrays of no dimension as scalars."""
        for merge, enter, _ in loop.merges:
            variable, source = self.layout.name((merge, 0)), self.layout.name((enter, 0))
            unboxed = self._scalars.unboxed(source)
            function.add(f"{variable} = {unboxed}")
            if unboxed != source:
                self._scalars.variables.add(variable)
        for name in self._scalars.feeds_of(loop):
            function.add(f"u_{name} = {name}[()]")
            self._scalars.variables.add(f"u_{name}")

    # Calls

    def _write_scalar_or_call(self, function: FunctionText, node: PlanNode, block: Block, context: str) -> None:
        """Write a call; in loops, if the inputs may be scalars, with Python's operator for that case."""
        may_count = block is not self.layout.root or self._is_body
        operation = self._scalars.operation(node) if may_count else None
        if operation is None:
            self._write_call(function, node, context)
            return
        test, result = operation
        around, target = function.inside, self.layout.name((node, 0))
        function.inside = (*around, f"if {test}:")
        self._write_interrupt(function, node)
        function.add(f"{target} = {result}  # {comment_of(node.name)}", node)
        function.inside = (*around, "else:")
        self._write_call(function, node, context)
        function.inside = around
        self._scalars.variables.add(target)

    def _write_interrupt(self, function: FunctionText, node: PlanNode) -> None:
        if self._is_watched:
            function.add("interrupt()", node)

    def _is_written_nowhere(self, item: Item) -> bool:
        return isinstance(item, PlanNode) and (calls_nothing(item) or self.layout.constant_of(item) is not None)

    def _write_call(self, function: FunctionText, node: PlanNode, context: str) -> None:
        if self._is_written_nowhere(node):
            return
        if node.kind == Kind.ENTER:
            self._calls.write_read(function, node)
            return
        self._write_interrupt(function, node)
        if node in self.bodies:
            self._functions.write(function, node)
        else:
            self._calls.write(function, node, context)


def _tuple(names: Sequence[str]) -> str:
    """Return expressions as the inside of a tuple."""
    return f"{', '.join(names)}{',' if len(names) == 1 else ''}"


def _needs_context(loop: Loop) -> bool:
    items = [*loop.cond.items, *loop.body.items]
    return any(_needs_context(item) if isinstance(item, Loop) else item.wants_context for item in items)
