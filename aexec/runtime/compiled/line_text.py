"""The text of a compiled plan: lines of Python, the node that each belongs to, and the functions they compile to.

Next to read: `line_writer.py`, which says what the lines are.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from aexec.framework.waiting.loop_budget import let_others_run
from aexec.runtime.plans.blocks import NotCompiledError
from aexec.runtime.plans.plan import PlanNode

__all__ = ["LOOK_AT_CLOCK", "FunctionText", "LineText", "comment_of", "comment_of_node"]

# The most characters of a function: compiling one holds the interpreter lock, in a thread too, for 0.3 µs a character.
_MAX_TEXT = 40_000
# A line gives way between two calls if its slice is over.
LOOK_AT_CLOCK = "if now() >= end: end = yield"
_numbers = itertools.count(1)


def comment_of(text: str) -> str:
    """Return text from a graph as a comment may contain it: ASCII, on one line, cut after 100 characters."""
    return ascii(text)[1:-1][:100]


def comment_of_node(node: PlanNode) -> str:
    """Return a node's name and op as a comment may contain them."""
    return comment_of(f"{node.name} ({node.op})")


class Place(NamedTuple):
    """The call that a line of the text belongs to.

    Attributes:
        done: the node's call has returned when the line runs.
        function: the index in `PlanNode.calls` of the function that the line calls, or None.
    """

    node: PlanNode
    done: bool
    function: int | None


class FunctionText:
    """The text of one function.

    A header of `inside` is written with the first line below it, so no header is left without a body.

    Attributes:
        lines: the text, line by line.
        length: the number of its characters.
        places: line number, from 1 → the call that the line belongs to.
        inside: the headers (`if` and `while`) that the next line is to be under; the writer sets them.
        yields: a line contains a `yield`, so the function is a generator.
    """

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.length = len(head)
        self.places: dict[int, Place] = {}
        self.inside: tuple[str, ...] = ()
        self._open: tuple[str, ...] = ()
        self.yields = False

    def add(self, text: str, node: PlanNode | None = None, *, done: bool = False, function: int | None = None) -> None:
        """Add a line; what `node`, `done` and `function` say of it is its `Place`."""
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


class LineText:
    """The functions of a compiled plan: their texts, and what these compile to.

    Attributes:
        functions: the parts of the line, then the line itself.
        namespace: the functions' global variables.  None of the functions is among them: a plan that is given up would
            have to wait for the garbage collector.
        filename: where tracebacks find the text.  No two texts share one: the code objects would be equal, too.
        source, places, function: the whole text, the calls that its lines belong to, and the line as a function; set by
            `compile`.
    """

    source: str
    function: Callable[..., Any]

    def __init__(self) -> None:
        self.functions: list[FunctionText] = []
        self.namespace: dict[str, Any] = {}
        self.filename = f"<compiled plan {next(_numbers)}>"
        self.places: dict[int, Place] = {}

    def compile(self) -> None:
        """Compile the functions; tracebacks show their lines as long as this object lives.

        Raises:
            NotCompiledError: a function is so long that compiling it would hold the interpreter lock.
        """
        if max(function.length for function in self.functions) > _MAX_TEXT:
            raise NotCompiledError("it has very many parts, or values that they share")
        texts = [line for function in self.functions for line in (*function.lines, "")]
        self.source = "\n".join(texts)
        linecache.cache[self.filename] = (len(self.source), None, [line + "\n" for line in texts], self.filename)
        weakref.finalize(self, linecache.cache.pop, self.filename, None)
        namespace = self.namespace
        parts: dict[str, Any] = {}
        first = 1
        for function in self.functions:
            if function is self.functions[-1]:
                namespace = {**namespace, **parts}
            code = self._code(function, first)
            parts[code.co_name] = FunctionType(code, namespace)
            self.places.update({line + first - 1: place for line, place in function.places.items()})
            first += len(function.lines) + 1
            let_others_run()
        self.function = parts["line"]

    def _code(self, function: FunctionText, first: int) -> CodeType:
        """Compile a function whose first line has this number."""
        module = compile("\n".join(function.lines), self.filename, "exec")
        return next(c for c in module.co_consts if isinstance(c, CodeType)).replace(co_firstlineno=first)
