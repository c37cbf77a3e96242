"""Compiled plans: a plan as one generated Python function, a straight line of kernel calls on local variables.

What the interpreting loop does for every node (counts, slots, ready lists) is known when the plan is
made, as long as nothing waits: the order of the calls, and which value goes where.  So it is written
down once as Python source, loops as `while`:

    def line(f0):
        v1 = c1(f0, k1)  # add (AddV2)
        if v1.size > SMALL: large()
        v2 = c2(v1)  # y (Softmax)
        return (v2,)

The interpreter stays the reference for what is right, and takes over in the middle when a value is
large, or a kernel must go to a thread or wait.  A line's position tells what is done, its local variables hold
what was computed: from both, `take_over` makes the state that the interpreter would have.
Slices need none of that: a long line is a generator and yields where a slice is over.
Next to read: `blocks.py`, which finds the order.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from time import perf_counter
from types import CodeType, CoroutineType, FunctionType, TracebackType
from typing import Any

from aexec.framework.futures import PendingOutputs
from aexec.framework.inline_call import InlineCallError
from aexec.framework.loop_budget import let_others_run
from aexec.framework.op_kernel_context import OpKernelContext
from aexec.framework.types import frame_id_of
from aexec.ops.families import FAMILIES
from aexec.runtime.blocks import Block, Item, Loop, NotCompiledError, Value, arrange
from aexec.runtime.kernel_outputs import check_outputs
from aexec.runtime.plan import FramePlan, Kind, Plan, PlanNode
from aexec.runtime.propagator_state import FrameState, IterationState, PropagatorState

__all__ = ["CHUNK", "CompiledPlan", "TakeOverError", "WaitsError", "compile_plan"]

# What a synchronous kernel may return in place of its outputs.
AWAITABLE = (PendingOutputs, CoroutineType)
# Calls between two looks at the clock, as long as nothing shows that they are slow.
CHUNK = 64
_numbers = itertools.count(1)
# Compiling a function holds the interpreter lock, in a thread too, for 0.3 µs per character.  So functions are
# bounded: calls and variables of loops, which are in one function; names in a part; characters of any.
_MAX_IN_LOOPS = 500
_MAX_NAMES_OF_PART = 1_000
_MAX_TEXT = 40_000
# Above, the plan does not fit into the processor's caches: its memory is what takes the time, and little is won.
_MAX_SIZE = 30_000


# A test may set it to something that raises TakeOverError now and then: called before every call.
INTERRUPT: Callable[[], None] | None = None


# A count that nothing brings down to 0: of a node that is done, to which a Switch may still lead that is not.
_NEVER = 1 << 30


class TakeOverError(InlineCallError):
    """The line cannot go on: the interpreter does."""


class WaitsError(TakeOverError):
    """A kernel gave an awaitable in place of its outputs.

    Args:
        out: what it gave.
    """

    def __init__(self, out: Any) -> None:
        super().__init__("a kernel waits")
        self.out = out


def _large() -> None:
    raise TakeOverError("a value is large")


def _waits(out: Any) -> None:
    raise WaitsError(out)


def _inner(context: OpKernelContext, name: str, number: int) -> OpKernelContext:
    """The context of an iteration of a loop that `context` is around."""
    frame, iteration = context.frame_iter
    return OpKernelContext(context.params, context.cancellation, (frame_id_of(frame, iteration, name), number))


def _first(node: PlanNode, out: Any) -> Any:
    """The outputs of a node whose kernel has not shown yet that it gives what its op declares."""
    check_outputs(node, out)
    node.trust()
    if node.num_outputs == 1 and type(out) is tuple:
        node.gives_tuple = True
        return out[0]
    return out


def _comment(text: str) -> str:
    """Text from a graph, as what a comment may say: on one line, whatever is in it."""
    return ascii(text)[1:-1][:100]


class CompiledPlan:
    """A plan as Python functions.

    Attributes:
        source: what was generated, for people.
        is_line: it has neither loops nor many calls: `function` returns the results at once; else
            `function` gives a generator, which yields where a slice is over and takes the end of the next.
        chunk: calls between two looks at the clock.
    """

    def __init__(self, plan: Plan, writer: _Writer) -> None:
        self.plan = plan
        self.chunk = writer.chunk
        self.source = writer.source
        self.is_line = writer.is_line
        self._writer = writer
        self.function = writer.function

    def start(
        self, context: OpKernelContext, feeds: Sequence[Any], end: float
    ) -> Generator[None, float, tuple[Any, ...]]:
        """Begin a run of a plan that is no line."""
        generator: Generator[None, float, tuple[Any, ...]] = self.function(context, end, *feeds)
        return generator

    def position(self, error: BaseException) -> tuple[PlanNode, bool, dict[str, Any]] | None:
        """The node whose call raised, whether it is done, and all local variables; None if it was no call of ours."""
        places_of = self._writer.places
        traceback: TracebackType | None = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code not in places_of:
            traceback = traceback.tb_next
        found: tuple[PlanNode, bool] | None = None
        variables: dict[str, Any] = {}
        # The line, and the part that it called.  What follows is the kernel's; an error that was raised before
        # brings the frames of that run along, too.
        while traceback is not None and (places := places_of.get(traceback.tb_frame.f_code)) is not None:
            variables.update(traceback.tb_frame.f_locals)
            found = places.get(traceback.tb_lineno, found)
            traceback = traceback.tb_next
        return None if found is None else (*found, variables)

    def share_before(self, node: PlanNode) -> float:
        """The part of the calls, from 0 to 1, that come before a node's; a loop counts as one."""
        block, index = self._writer.home[node]
        while block in self._writer.owner:
            loop, block = self._writer.owner[block]
            index = block.items.index(loop)
        return index / len(block.items)

    @property
    def outdated(self) -> bool:
        """Have calls turned out to be heavy since it was written?"""
        return any(node.check == 2 and node not in self._writer.asked for node in self._writer.ids)

    def mend(self, node: PlanNode, variables: dict[str, Any]) -> None:
        """A kernel gave something without a size, where it gave an array before.

        Raises:
            InternalError: it is not what the op declares, either.
        """
        names = [self._writer.name((node, output)) for output in range(node.num_outputs)]
        values = tuple(variables[name] for name in names)
        if len(values) > 1:
            check_outputs(node, values)
        else:
            variables[names[0]] = _first(node, values[0])

    def inputs(self, node: PlanNode, variables: dict[str, Any]) -> list[Any]:
        """The arguments that a call had."""
        return [self._writer.look_up(node.frame, slot, variables) for slot in range(node.first, node.last)]

    def take_over(
        self, state: PropagatorState, feeds: Sequence[Any], node: PlanNode, done: bool, variables: dict[str, Any]
    ) -> IterationState:
        """Make `state`, which is new, what the interpreter's would be with the line at this position.

        Returns:
            The iteration that `node` is in.
        """
        variables = {**variables, **{f"f{i}": value for i, value in enumerate(feeds)}}
        return _TakeOver(self._writer, state, variables).at(node, done)

    def __repr__(self) -> str:
        return f"<CompiledPlan of {self.plan.num_nodes} nodes, {'a line' if self.is_line else 'in slices'}>"


def compile_plan(plan: Plan, is_heavy: Callable[[PlanNode, Iterable[Any]], bool], chunk: int = CHUNK) -> CompiledPlan:
    """Write a plan down as Python.

    Args:
        is_heavy: whether a call with these inputs would hold up the loop.
        chunk: calls between two looks at the clock.

    Raises:
        NotCompiledError: the interpreter has to run it.
    """
    return CompiledPlan(plan, _Writer(plan, is_heavy, chunk))


class _Function:
    """The text of one function, and which node each line belongs to."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.length = len(head)
        self.places: dict[int, tuple[PlanNode, bool]] = {}

    def add(self, text: str, node: PlanNode | None = None, *, done: bool = False, depth: int = 1) -> None:
        self.lines.append("    " * depth + text)
        self.length += len(text) + 4 * depth
        if node is not None:
            self.places[len(self.lines)] = (node, done)


class _Writer:
    """Generates the functions of a plan."""

    def __init__(self, plan: Plan, is_heavy: Callable[[PlanNode, Iterable[Any]], bool], chunk: int) -> None:
        if plan.has_large_constants:
            raise NotCompiledError("the plan has large constants")
        if plan.size > _MAX_SIZE:
            raise NotCompiledError("it is very large")
        self.plan = plan
        self.chunk = chunk
        self.asked: set[PlanNode] = set()  # whose calls are asked for their cost
        self.root, self.of_slot, self.of_merge = arrange(plan)
        self.ids: dict[PlanNode, int] = {}
        self.feeds = {node: f"f{i}" for i, node in enumerate(plan.args)}
        self.loop_variables: dict[PlanNode, str] = {}
        self.home: dict[PlanNode, tuple[Block, int]] = {}
        self.owner: dict[Block, tuple[Loop, Block]] = {}
        self.counters: dict[Loop, str] = {}
        self.constants: dict[int, str] = {}  # by id; the plan keeps them alive
        self.places: dict[CodeType, dict[int, tuple[PlanNode, bool]]] = {}

        def heavy(node: PlanNode, *inputs: Any) -> None:
            if is_heavy(node, inputs):
                raise TakeOverError("a call is heavy")

        self.namespace: dict[str, Any] = {
            "SMALL": plan.small_elements,
            "awaitable": AWAITABLE,
            "first": _first,
            "heavy": heavy,
            "inner": _inner,
            "interrupt": INTERRUPT,
            "large": _large,
            "now": perf_counter,
            "waits": _waits,
        }
        self._functions: list[_Function] = []
        self._name_blocks(self.root)
        self._check_size()
        self.is_line = not self.counters and len(self.root.items) <= chunk
        self._write_main()
        self._compile()

    # Names

    def _name_blocks(self, block: Block) -> None:
        for index, item in enumerate(block.items):
            if not isinstance(item, Loop):
                self.home[item] = (block, index)
                self.ids[item] = len(self.ids)
                continue
            for enter in item.enters:
                self.home[enter] = (block, index)
            self.counters[item] = f"i{len(self.counters)}"
            for merge, _, _ in item.merges:
                self.loop_variables[merge] = f"m{len(self.loop_variables)}"
            for part in (item.cond, item.body):
                self.owner[part] = (item, block)
                self._name_blocks(part)

    def _check_size(self) -> None:
        if len(self.loop_variables) + sum(len(block.items) for block in self.owner) > _MAX_IN_LOOPS:
            raise NotCompiledError("its loops are long")
        widest = max((node.last - node.first for node in self.ids), default=0)
        if max(widest, len(self.feeds)) > _MAX_NAMES_OF_PART:
            raise NotCompiledError("it has a call, or is called, with very many arguments")

    def name(self, value: Value) -> str:
        """The variable or constant that holds a value."""
        node, output = value
        kind = node.kind
        if kind == Kind.ARG:
            return self.feeds[node]
        if kind == Kind.MERGE:
            return self.loop_variables[node]
        if kind in (Kind.SWITCH, Kind.ENTER, Kind.EXIT, Kind.NEXT_ITERATION):
            return self.argument(node.frame, node.first)
        number = self.ids[node]
        return f"v{number}" if node.num_outputs == 1 else f"v{number}_{output}"

    def argument(self, frame: FramePlan, slot: int) -> str:
        """The variable or constant that goes to an argument slot."""
        value = self.of_slot.get((frame, slot))
        if value is not None:
            return self.name(value)
        constant = frame.args[slot]
        name = self.constants.setdefault(id(constant), f"k{len(self.constants)}")
        self.namespace[name] = constant
        return name

    def look_up(self, frame: FramePlan, slot: int, variables: dict[str, Any]) -> Any:
        name = self.argument(frame, slot)
        return variables[name] if name in variables else self.namespace.get(name)

    def value(self, value: Value, variables: dict[str, Any]) -> Any:
        name = self.name(value)
        return variables[name] if name in variables else self.namespace[name]

    # Text

    def _write_main(self) -> None:
        feeds = list(self.feeds.values())
        main = _Function(f"def line({', '.join(['x', *feeds] if self.is_line else ['x', 'end', *feeds])}):")
        if self.is_line:
            self._write_block(main, self.root, 1, "x")
        else:
            self._write_in_chunks(main)
        results = sorted((n for n in self.ids if n.kind == Kind.RETVAL), key=lambda n: n.position)
        names = [self.name((n, 0)) for n in results]
        main.add(f"return ({', '.join(names)}{',' if len(names) == 1 else ''})")
        if not self.is_line:
            main.add("yield")
        self._functions.append(main)

    def _write_in_chunks(self, main: _Function) -> None:
        run: list[PlanNode] = []
        names = 0
        last_use = self._last_uses()
        position = 0
        for position, item in enumerate(self.root.items):
            if isinstance(item, Loop):
                self._write_chunk(main, run, position, last_use)
                run, names = [], 0
                self._write_loop(main, item, 1, "x")
            else:
                run.append(item)
                names += item.last - item.first + item.num_outputs
                if len(run) >= self.chunk or names >= _MAX_NAMES_OF_PART:
                    self._write_chunk(main, run, position + 1, last_use)
                    run, names = [], 0
        self._write_chunk(main, run, position + 1, last_use)

    def _last_uses(self) -> dict[str, int]:
        """Variable → the position in the root block after which nobody uses it."""
        uses: dict[str, int] = {}
        for position, item in enumerate(self.root.items):
            for name in self._used(item):
                uses[name] = position
        for node in self.ids:
            if node.kind == Kind.RETVAL:
                uses[self.name((node, 0))] = len(self.root.items)
        return uses

    def _used(self, item: Item) -> Iterable[str]:
        if not isinstance(item, Loop):
            return [self.argument(item.frame, slot) for slot in range(item.first, item.last)]
        nodes = [*item.enters, *item.exits, *item.switches]
        names = [self.argument(n.frame, slot) for n in nodes for slot in range(n.first, n.last)]
        for part in (item.cond, item.body):
            for inner in part.items:
                names.extend(self._used(inner))
        return names

    def _write_chunk(self, main: _Function, run: list[PlanNode], end: int, last_use: dict[str, int]) -> None:
        if not run:
            return
        made = [self.name((node, output)) for node in run for output in range(node.num_outputs)]
        used = dict.fromkeys(name for node in run for name in self._used(node) if name not in self.namespace)
        given = [name for name in used if name not in made]
        kept = [name for name in made if last_use.get(name, -1) >= end]
        let_others_run()
        chunk = _Function(f"def part{len(self._functions)}({', '.join(['x', *given])}):")
        for node in run:
            self._write_call(chunk, node, 1, "x")
        chunk.add(f"return ({', '.join(kept)}{',' if len(kept) == 1 else ''})")
        targets = f"{', '.join(kept)}{',' if len(kept) == 1 else ''} = " if kept else ""
        main.add(f"{targets}part{len(self._functions)}({', '.join(['x', *given])})")
        self._functions.append(chunk)
        dropped = [name for name in given if last_use[name] < end and not name.startswith("f")]
        if dropped:
            main.add(f"del {', '.join(dropped)}")
        if any(not isinstance(item, PlanNode) or item.kind != Kind.RETVAL for item in self.root.items[end:]):
            # Not where only the taking of what was fetched is left: such a run cannot be cancelled any more.
            main.add("if now() >= end: end = yield")

    def _write_block(self, function: _Function, block: Block, depth: int, context: str) -> None:
        for index, item in enumerate(block.items):
            if isinstance(item, Loop):
                self._write_loop(function, item, depth, context)
            else:
                self._write_call(function, item, depth, context)
                if depth > 1 and index % self.chunk == self.chunk - 1:
                    function.add("if now() >= end: end = yield", depth=depth)

    def _write_loop(self, function: _Function, loop: Loop, depth: int, context: str) -> None:
        for merge, enter, _ in loop.merges:
            function.add(f"{self.name((merge, 0))} = {self.name((enter, 0))}", depth=depth)
        counter = self.counters[loop]
        function.add(f"{counter} = 0", depth=depth)
        function.add(f"while True:  # {_comment(loop.frame.name)}", depth=depth)
        inner = f"x{counter}"
        if _needs_context(loop):
            name = f"a{counter}"  # not its text: nothing from a graph is in the source but comments
            self.namespace[name] = loop.frame.name
            function.add(f"{inner} = inner({context}, {name}, {counter})", depth=depth + 1)
        self._write_block(function, loop.cond, depth + 1, inner)
        predicate = loop.predicate
        assert predicate is not None
        condition = self.name((predicate, 0))
        function.add(f"if {condition}.ndim: large()", predicate, done=True, depth=depth + 1)
        function.add(f"if not {condition}: break", depth=depth + 1)
        self._write_block(function, loop.body, depth + 1, inner)
        variables = [self.name((merge, 0)) for merge, _, _ in loop.merges]
        following = [self.name((n, 0)) for _, _, n in loop.merges]
        if variables:
            function.add(f"{', '.join(variables)} = {', '.join(following)}", depth=depth + 1)
        function.add(f"{counter} += 1", depth=depth + 1)
        function.add("if now() >= end: end = yield", depth=depth + 1)

    def _write_call(self, function: _Function, node: PlanNode, depth: int, context: str) -> None:
        number = self.ids[node]
        inputs = ", ".join(self._used(node))
        arguments = inputs
        if node.takes_list:
            arguments = f"{context}, [{inputs}]"
        elif node.wants_context:
            arguments = f"{context}, {inputs}"
        self.namespace[f"c{number}"] = node.compute
        if INTERRUPT is not None:
            function.add("interrupt()", node, depth=depth)
        if node.check == 2:
            self.asked.add(node)
            self.namespace[f"n{number}"] = node
            function.add(f"heavy(n{number}, {inputs})", node, depth=depth)
        targets = [self.name((node, output)) for output in range(node.num_outputs)]
        call = f"c{number}({arguments})"
        left = f"{', '.join(targets)} = " if targets else ""
        comment = f"  # {_comment(f'{node.name} ({node.op})')}"
        trusted = node.trusted or node.kind == Kind.RETVAL
        tuples = bool(targets) and (len(targets) > 1 or node.gives_tuple)
        if node.wants_context or (trusted and tuples):
            function.add(f"o = {call}{comment}", node, depth=depth)
            call, comment = "o", ""
        if node.wants_context:
            function.add("if isinstance(o, awaitable): waits(o)", node, depth=depth)
        if not trusted:
            self.namespace[f"n{number}"] = node
            call = f"first(n{number}, {call})"
        elif tuples:
            self.namespace[f"n{number}"] = node
            given = "o[0]" if len(targets) == 1 else "o"
            call = f"{given} if type(o) is tuple and len(o) == {len(targets)} else first(n{number}, o)"
        if left or call != "o":
            function.add(f"{left}{call}{comment}", node, depth=depth)
        if node.kind == Kind.RETVAL:
            return
        for output, target in enumerate(targets):
            if not _is_small(node, output, self.plan.small_elements):
                function.add(f"if {target}.size > SMALL: large()", node, done=True, depth=depth)

    # Code

    def _compile(self) -> None:
        if max(function.length for function in self._functions) > _MAX_TEXT:
            raise NotCompiledError("it has very many parts, or values that they share")
        texts: list[str] = []
        first = 1
        for function in self._functions:
            texts += [*function.lines, ""]
        self.source = "\n".join(texts)
        filename = f"<compiled plan {next(_numbers)}>"
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
            self.places[code] = {line + first - 1: place for line, place in function.places.items()}
            parts[code.co_name] = FunctionType(code, namespace)
            first += len(function.lines) + 1
            let_others_run()
        self.function: Callable[..., Any] = parts["line"]


class _TakeOver:
    """Makes the interpreter's state out of a line's position and variables."""

    def __init__(self, writer: _Writer, state: PropagatorState, variables: dict[str, Any]) -> None:
        self.writer = writer
        self.state = state
        self.variables = variables

    def at(self, node: PlanNode, done: bool) -> IterationState:
        block, index = self.writer.home[node]
        blocks = [(block, index + done)]
        while block in self.writer.owner:
            loop, around = self.writer.owner[block]
            block = around
            blocks.append((block, block.items.index(loop)))
        iteration = self.state.root.iterations[0]
        root, count = blocks.pop()
        finished = root.items[:count]
        self._fill(iteration, [*self.writer.plan.args, *_nodes(finished)])
        while blocks:
            inner, count = blocks.pop()
            iteration = self._enter(iteration, inner, count)
        self.state.active[:] = []
        frame: FrameState | None = iteration.frame
        while frame is not None:
            for live in frame.iterations.values():
                live.queued = False
                self.state.activate(live)
            frame = None if frame.parent is None else frame.parent.frame
        return iteration

    def _enter(self, parent: IterationState, block: Block, count: int) -> IterationState:
        """The iteration of a loop that the line is in."""
        loop, _ = self.writer.owner[block]
        in_body = block is loop.body
        number = self.variables[self.writer.counters[loop]]
        for enter in loop.enters:
            _withdraw(parent, enter)
        frame = FrameState(self.state, loop.frame, parent)
        parent.children[loop.frame.name] = frame
        frame.pending_enters = 0
        frame.newest = number
        iteration = IterationState(self.state, frame, number, loop.frame)
        frame.iterations = {number: iteration}
        constants = [enter for enter in loop.enters if enter.is_constant_enter]
        frame.invariants = [(enter, self.writer.value((enter, 0), self.variables)) for enter in constants]
        done = [merge for merge, _, _ in loop.merges]
        done += _nodes([*loop.cond.items, *loop.body.items[:count]] if in_body else loop.cond.items[:count])
        if in_body:
            frame.dead_exits = list(loop.exits)
            done += [*loop.switches, *loop.exits]
        self._fill(iteration, [*constants, *done])
        return iteration

    def _fill(self, iteration: IterationState, done: list[PlanNode]) -> None:
        """Deliver what these nodes gave to those that are still to run."""
        finished = set(done)
        args, pending = iteration.args, iteration.pending
        for node in done:
            if node.kind == Kind.EXIT and node.frame is iteration.frame.plan:
                continue  # dead
            if node.kind == Kind.ENTER and node.child is not iteration.frame.plan:
                continue  # of a loop that is over
            for output, edges in enumerate(node.slot_edges):
                if node.kind == Kind.SWITCH and output == 0:
                    continue
                for consumer, index, slot in edges:
                    if consumer not in finished:
                        args[slot] = self.writer.value((node, output), self.variables)
                        pending[index] -= 1
            for consumer, index in node.controls:
                if consumer not in finished:
                    pending[index] -= 1
        frame = iteration.frame.plan
        iteration.ready[:] = [
            node for node in reversed(frame.nodes) if not pending[node.index] and node not in finished
        ]
        for node in done:
            if node.frame is frame and node.kind != Kind.ARG:
                pending[node.index] = 0
        for node in frame.nodes:
            if node.kind == Kind.SWITCH and node not in finished:
                for consumer, index in node.controls:
                    if consumer in finished:
                        pending[index] = _NEVER
        if self.state.root.iterations.get(0) is iteration:
            self._take_results(iteration, finished)

    def _take_results(self, iteration: IterationState, finished: set[PlanNode]) -> None:
        for node in finished:
            if node.kind == Kind.RETVAL:
                self.state.results[node.position] = self.writer.value((node, 0), self.variables)


def _withdraw(iteration: IterationState, node: PlanNode) -> None:
    """The node has run."""
    if node in iteration.ready:
        iteration.ready.remove(node)
    iteration.args[node.first : node.last] = [None] * (node.last - node.first)


_BUILT_IN = frozenset(op for ops in FAMILIES.values() for op in ops.split())


def _is_small(node: PlanNode, output: int, small: int) -> bool:
    """Does shape inference say that an output is small, whatever is fed?

    What the kernels of others give is looked at: it may be no array at all.
    """
    if node.op not in _BUILT_IN:
        return False
    shapes = node.node.shapes
    elements = None if shapes is None else shapes[output].num_elements
    return elements is not None and elements <= small


def _needs_context(loop: Loop) -> bool:
    items = [*loop.cond.items, *loop.body.items]
    return any(_needs_context(item) if isinstance(item, Loop) else item.wants_context for item in items)


def _nodes(items: Iterable[Item]) -> list[PlanNode]:
    """Nodes that are done with these items, as their own frame sees them."""
    found: list[PlanNode] = []
    for item in items:
        if isinstance(item, Loop):
            found += [*item.enters, *item.exits]
        else:
            found.append(item)
    return found
