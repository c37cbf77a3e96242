"""The writer of compiled plans: the text of a plan's functions, and which node each line of it belongs to.

Next to read: `blocks.py`, which finds the order of the calls; `line_calls.py` for what else the text calls.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any

from aexec.framework.futures import AWAITABLE
from aexec.framework.loop_budget import let_others_run
from aexec.ops.families import FAMILIES
from aexec.runtime.blocks import Block, Item, Loop, NotCompiledError, Value, arrange
from aexec.runtime.line_calls import TakeOverError, first, inner, large, waits
from aexec.runtime.plan import FramePlan, Kind, Plan, PlanNode

__all__ = ["CHUNK", "LineWriter"]

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


def _comment(text: str) -> str:
    """Text from a graph, as what a comment may say: on one line, whatever is in it."""
    return ascii(text)[1:-1][:100]


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


class LineWriter:
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
        self.index_of: dict[Loop, int] = {}  # in the block around it
        self.counters: dict[Loop, str] = {}
        self.constants: dict[int, str] = {}  # by id; the plan keeps them alive
        self.places: dict[CodeType, dict[int, tuple[PlanNode, bool]]] = {}

        def heavy(node: PlanNode, *inputs: Any) -> None:
            if is_heavy(node, inputs):
                raise TakeOverError("a call is heavy")

        self.namespace: dict[str, Any] = {
            "SMALL": plan.small_elements,
            "awaitable": AWAITABLE,
            "first": first,
            "heavy": heavy,
            "inner": inner,
            "interrupt": INTERRUPT,
            "large": large,
            "now": perf_counter,
            "waits": waits,
        }
        self._functions: list[_Function] = []
        self._name_blocks(self.root)
        self._check_size()
        self.is_line = not self.counters and len(self.root.items) <= chunk
        self.needs_context = any(node.wants_context or node.takes_list for node in self.ids)
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
            self.index_of[item] = index
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

    def around(self, node: PlanNode) -> Iterator[tuple[Block, int]]:
        """The block that a node is in, and how many of its items come before; then the same of those around it."""
        block, index = self.home[node]
        yield block, index
        while block in self.owner:
            loop, outer = self.owner[block]
            block, index = outer, self.index_of[loop]
            yield block, index

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
            for nested in part.items:
                names.extend(self._used(nested))
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


@cache
def _built_in() -> frozenset[str]:
    """The ops that are ours; made when a plan is first compiled, not when this is imported."""
    return frozenset(op for ops in FAMILIES.values() for op in ops.split())


def _is_small(node: PlanNode, output: int, small: int) -> bool:
    """Does shape inference say that an output is small, whatever is fed?

    What the kernels of others give is looked at: it may be no array at all.
    """
    if node.op not in _built_in():
        return False
    shapes = node.node.shapes
    elements = None if shapes is None else shapes[output].num_elements
    return elements is not None and elements <= small


def _needs_context(loop: Loop) -> bool:
    items = [*loop.cond.items, *loop.body.items]
    return any(_needs_context(item) if isinstance(item, Loop) else item.wants_context for item in items)
