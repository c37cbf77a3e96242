"""Small programs of assignments, branches and loops: an interpreter, and a compiler to raw frames.

The two share no code, so that one can be compared with the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from aexec.framework import dtypes
from tests.support.machine import ints
from tests.support.programs.graphs import GraphBuilder

I = dtypes.int32  # noqa: E741

VARIABLES = ("x", "y", "z")


@dataclass(frozen=True)
class Assign:
    """`target = (a * left + b * right + c) % 1009`"""

    target: str
    left: str
    right: str
    a: int
    b: int
    c: int


@dataclass(frozen=True)
class If:
    """`if odd(test): then, else: otherwise`"""

    test: str
    then: tuple[Any, ...]
    otherwise: tuple[Any, ...]


@dataclass(frozen=True)
class Loop:
    """`for _ in range(count % bound): body`"""

    count: str
    bound: int
    body: tuple[Any, ...]
    parallel: int


def interpret(block: tuple[Any, ...], variables: dict[str, int], budget: list[int] | None = None) -> dict[str, int]:
    """Return the variables after a block; gives up after `budget` statements (loops in loops in loops)."""
    for statement in block:
        if budget is not None:
            budget[0] -= 1
            assume(budget[0] > 0)
        if isinstance(statement, Assign):
            left, right = variables[statement.left], variables[statement.right]
            variables[statement.target] = (statement.a * left + statement.b * right + statement.c) % 1009
        elif isinstance(statement, If):
            interpret(statement.then if variables[statement.test] % 2 else statement.otherwise, variables, budget)
        else:
            for _ in range(variables[statement.count] % statement.bound):
                interpret(statement.body, variables, budget)
    return variables


def assigned(block: tuple[Any, ...]) -> set[str]:
    found: set[str] = set()
    for statement in block:
        if isinstance(statement, Assign):
            found.add(statement.target)
        elif isinstance(statement, If):
            found |= assigned(statement.then) | assigned(statement.otherwise)
        else:
            found |= assigned(statement.body)
    return found


class Compiler:
    """Compiles programs to raw Switch, Merge, Enter, Exit and NextIteration nodes."""

    def __init__(self) -> None:
        self.g = GraphBuilder()
        self.counter = 0

    def name(self, kind: str) -> str:
        self.counter += 1
        return f"{kind}{self.counter}"

    def block(self, block: tuple[Any, ...], tensors: dict[str, str]) -> dict[str, str]:
        """Add a block's nodes; return the tensors that hold the variables after it."""
        for statement in block:
            tensors = getattr(self, f"_{type(statement).__name__.lower()}")(statement, tensors)
        return tensors

    def _assign(self, s: Assign, tensors: dict[str, str]) -> dict[str, str]:
        out = self.g(self.name("affine"), "TestAffine", tensors[s.left], tensors[s.right], a=s.a, b=s.b, c=s.c)
        return {**tensors, s.target: out}

    def _if(self, s: If, tensors: dict[str, str]) -> dict[str, str]:
        test = self.g(self.name("odd"), "TestOdd", tensors[s.test])
        switches = {v: self.g(self.name("switch"), "Switch", t, test, T=I) for v, t in tensors.items()}
        then = self.block(s.then, {v: f"{name}:1" for v, name in switches.items()})
        otherwise = self.block(s.otherwise, {v: f"{name}:0" for v, name in switches.items()})
        return {v: self.g(self.name("merge"), "Merge", otherwise[v], then[v], T=I, N=2) for v in tensors}

    def _loop(self, s: Loop, tensors: dict[str, str]) -> dict[str, str]:
        g = self.g
        frame = {"frame_name": self.name("loop").encode(), "parallel_iterations": s.parallel, "T": I}
        count = tensors[s.count]
        changing = sorted(assigned(s.body))
        start = {"count": g(self.name("start"), "TestAffine", count, count, a=1, b=0, c=0, m=s.bound)}
        start |= {v: tensors[v] for v in changing}
        constants = {
            v: g(self.name("constant"), "Enter", t, is_constant=True, **frame)
            for v, t in tensors.items()
            if v not in changing
        }
        enters = {v: g(self.name("enter"), "Enter", t, **frame) for v, t in start.items()}
        nexts = {v: self.name("next") for v in start}
        merges = {v: g(self.name("merge"), "Merge", enters[v], nexts[v], T=I, N=2) for v in start}
        test = g(self.name("cond"), "LoopCond", g(self.name("positive"), "TestPositive", merges["count"]))
        switches = {v: g(self.name("switch"), "Switch", merge, test, T=I) for v, merge in merges.items()}
        # Values that depend only on constants must be tied to iterations that go on, or they would never end.
        pivot = g(self.name("pivot"), "Identity", f"{switches['count']}:1", T=I)
        inside = {v: f"{switches[v]}:1" for v in changing}
        inside |= {v: g(self.name("kept"), "Identity", t, f"^{pivot}", T=I) for v, t in constants.items()}
        after = self.block(s.body, inside)
        after["count"] = g(self.name("less"), "TestAffine", pivot, pivot, a=1, b=0, c=-1)
        for v, name in nexts.items():
            g(name, "NextIteration", after[v], T=I)
        exits = {v: g(self.name("exit"), "Exit", f"{switches[v]}:0", T=I) for v in changing}
        return {**tensors, **exits}


def compile_program(program: tuple[Any, ...]) -> tuple[GraphBuilder, list[str]]:
    """Return the graph of a program over fed variables, and the tensors that hold them at its end."""
    compiler = Compiler()
    ints(compiler.g, *VARIABLES)
    # Identity: a variable that is never assigned would be both fed and fetched.
    tensors = compiler.block(program, {v: v for v in VARIABLES})
    return compiler.g, [compiler.g(f"out_{v}", "Identity", tensors[v], T=I) + ":0" for v in VARIABLES]


variables = st.sampled_from(VARIABLES)
small = st.integers(0, 9)
statements = st.recursive(
    st.builds(Assign, variables, variables, variables, small, small, small),
    lambda inner: st.one_of(
        st.builds(If, variables, st.lists(inner, max_size=3).map(tuple), st.lists(inner, max_size=3).map(tuple)),
        st.builds(
            Loop, variables, st.integers(1, 4), st.lists(inner, min_size=1, max_size=3).map(tuple), st.integers(1, 3)
        ),
    ),
    max_leaves=8,
)
programs = st.lists(statements, min_size=1, max_size=3).map(tuple)
