"""Compiled plans: a plan as one generated Python function, a straight line of kernel calls on local variables.

What the interpreting loop does for every node (counts, slots, ready lists) is known when the plan is
made, as long as nothing waits: the order of the calls, and which value goes where.  So it is written
down once as Python source, loops as `while`:

    def line(x, f0):
        v0 = c0(f0, k0)  # add (AddV2)
        if v0.size > SMALL: large()
        v1 = c1(v0)  # y (Softmax)
        v2 = c2(v1)  # y (Softmax)
        return (v2,)

where `x` is the context of kernels that ask for one, `f…` are feeds, `k…` constants and `c…` kernels; the last call
is the taking of a fetched value.

The interpreter stays the reference for what is right, and takes over in the middle when a value is
large, or a kernel must go to a thread or wait.  A line's position tells what is done, its local variables hold
what was computed: from both, `take_over` makes the state that the interpreter would have.
Slices need none of that: a long line is a generator and yields where a slice is over.
Next to read: `line_writer.py`, which writes the text; `take_over.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any

from aexec.framework.op_kernel_context import OpKernelContext
from aexec.runtime.kernel_outputs import check_outputs
from aexec.runtime.line_calls import first
from aexec.runtime.line_writer import CHUNK, LineWriter
from aexec.runtime.plan import Plan, PlanNode
from aexec.runtime.propagator_state import IterationState, PropagatorState
from aexec.runtime.take_over import TakeOver

__all__ = ["CompiledPlan", "compile_plan"]


class CompiledPlan:
    """A plan as Python functions.

    Attributes:
        source: what was generated, for people.
        is_line: it has neither loops nor many calls: `function` returns the results at once; else
            `function` gives a generator, which yields where a slice is over and takes the end of the next.
        needs_context: a kernel asks for the context of the step.
        chunk: calls between two looks at the clock.
    """

    def __init__(self, plan: Plan, writer: LineWriter) -> None:
        self.plan = plan
        self.chunk = writer.chunk
        self.source = writer.source
        self.is_line = writer.is_line
        self.needs_context = writer.needs_context
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
        *_, (block, index) = self._writer.around(node)
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
            variables[names[0]] = first(node, values[0])

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
        return TakeOver(self._writer, state, variables).at(node, done)

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
    return CompiledPlan(plan, LineWriter(plan, is_heavy, chunk))
