"""Compiled plans: a plan as one generated Python function, a straight line of kernel calls on local variables.

The interpreter keeps counts, slots and ready lists for every node.  As long as nothing waits, their outcome is known
when the plan is made: the order of the calls, and which value goes where.  So the plan is written once as Python
source, with loops as `while`:

    def line(x, f0):
        v0 = c0(f0, k0)  # add (AddV2)
        if v0.size > SMALL: heavy(n1, v0)
        v1 = c1(v0)  # y (Softmax)
        v2 = c2(v1)  # y (Softmax)
        return (v2,)

`x` is the context of kernels that ask for one, `f…` are feeds, `k…` constants and `c…` kernels; the last call takes a
fetched value.

The interpreter stays the reference, and takes over in the middle when a kernel must go to a thread or wait.  The line's
position tells which calls are done, and its local variables hold their values: from both, `take_over` makes a snapshot
from which the interpreter resumes.  Two cases need no snapshot.  A long line is a generator, and yields when a slice is
over.  The line of a plan with heavy calls in every run yields before one, and continues in a thread (`stretch.py`).
Next to read: `line_writer.py`, which writes the text; `line_layout.py` for its variables; `take_over.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from types import TracebackType
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.functional_call import Running
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.inline_call import NeedsThreadError, on_event_loop
from aexec.framework.waiting.long_work import ShortWork, go_on, steadily
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.runtime.compiled.line_calls import first
from aexec.runtime.compiled.line_options import LineOptions
from aexec.runtime.compiled.line_writer import LineWriter
from aexec.runtime.compiled.take_over import TakeOver
from aexec.runtime.interpreter.snapshot import Snapshot
from aexec.runtime.plans.blocks import NotCompiledError
from aexec.runtime.plans.compilation_policy import CHUNK
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.plan import Plan, PlanNode

__all__ = ["CompiledPlan", "Position", "compile_plan", "prepare_functions"]

# The deepest nesting of functions that is compiled.
_MAX_CALLS = 10


@dataclass(slots=True)
class Position:
    """A position in a line.

    Attributes:
        node: the node whose call the line is at, or None.
        done: True if the call has returned.
        function: the index of the function that the node was calling, or None.
        variables: the line's local variables, by name.
    """

    compiled: CompiledPlan
    node: PlanNode | None = None
    done: bool = False
    function: int | None = None
    variables: dict[str, Any] = field(default_factory=dict)


class CompiledPlan:
    """A plan as Python functions.

    Attributes:
        policy: the plan's compilation policy.
        source: the generated text, for people.
        is_line: True without loops and many calls: `function` then returns the results at once; otherwise it returns
            a `LineGenerator`.
        needs_context: True if a kernel asks for the step's context.
        chunk: calls between two looks at the clock.
        goes_on: True if it also yields before heavy calls; see `stretch.py`.
        num_calls: the number of calls of a line.
        suspects: calls, those of functions included, that the line measures because they had been slow before.
        depth: how deep its function calls nest.
    """

    def __init__(self, plan: Plan, writer: LineWriter, bodies: Iterable[CompiledPlan]) -> None:
        self.plan = plan
        self.policy = plan.compilation
        self.chunk = writer.options.chunk
        self.goes_on = writer.options.goes_on
        self.source = writer.text.source
        self.is_line = writer.is_line
        self.needs_context = writer.needs_context
        self.num_calls = writer.num_calls
        self._layout = writer.layout
        self._costs = writer.costs
        self._text = writer.text
        self.function = writer.text.function
        self.suspects = list(writer.costs.suspects)
        self.depth = 0
        self._bodies: dict[str, CompiledPlan] = {}  # by the names of their files
        for body in bodies:
            self.depth = max(self.depth, body.depth + 1)
            self.suspects += body.suspects
            self._bodies.update({**body._bodies, body._text.filename: body})

    def may_leave(self, node: PlanNode) -> bool:
        """Return whether a line may go on while a node's call is in a thread."""
        return self._costs.may_leave(node)

    def position(self, error: BaseException) -> tuple[list[Position], BaseException]:
        """Return the positions at which a line raised an error: in this plan, in the function called there, and so on.

        Returns:
            The positions, empty if the error is not from this line; and the error as it was raised there.
        """
        found = self._positions(error.__traceback__, [])
        if isinstance(error.__cause__, StopIteration) and not (found and found[-1].node and found[-1].function is None):
            # Python turns a StopIteration out of a generator into this error.
            error = error.__cause__
            found = self._positions(error.__traceback__, found)
        return found, error

    def _positions(self, traceback: TracebackType | None, found: list[Position]) -> list[Position]:
        while traceback is not None and self._owner(traceback) is None:
            traceback = traceback.tb_next
        # A line, and the part that it called, or a function's line.  What follows is the kernel's; an error that was
        # raised before brings the frames of that run along, too.
        while traceback is not None and (compiled := self._owner(traceback)) is not None:
            if not found or found[-1].compiled is not compiled:
                found.append(Position(compiled))
            found[-1].variables.update(traceback.tb_frame.f_locals)
            place = compiled._text.places.get(traceback.tb_lineno)
            if place is not None:
                found[-1].node, found[-1].done, found[-1].function = place
            traceback = traceback.tb_next
        return found

    def _owner(self, traceback: TracebackType) -> CompiledPlan | None:
        """The plan whose text a traceback's frame runs: this one, a function's, or None."""
        filename = traceback.tb_frame.f_code.co_filename
        return self if filename == self._text.filename else self._bodies.get(filename)

    def share_before(self, node: PlanNode) -> float:
        """The part of the calls, from 0 to 1, that come before a node's; a loop counts as one."""
        *_, (block, index) = self._layout.around(node)
        return index / len(block.items)

    @property
    def listing(self) -> str:
        """The generated text of the plan and of the functions that it calls."""
        return "\n".join([self.source, *(body.source for body in self._bodies.values())])

    @property
    def outdated(self) -> bool:
        """Return whether calls have turned out to be heavy since it was written."""
        return self._costs.outdated or any(body._costs.outdated for body in self._bodies.values())

    @property
    def in_doubt(self) -> bool:
        """Return whether a call was slow once, and has to be made again to see whether it still is."""
        return self._costs.in_doubt or any(body._costs.in_doubt for body in self._bodies.values())

    @property
    def relieved(self) -> bool:
        """Return whether calls that were slow when it was written have turned out to be quick."""
        return self._costs.relieved or any(body._costs.relieved for body in self._bodies.values())

    def mend(self, node: PlanNode, variables: dict[str, Any]) -> None:
        """Handle a kernel that returned something without a size, where it returned an array before.

        Raises:
            InternalError: the value is not what the op declares.
        """
        names = [self._layout.name((node, output)) for output in range(node.num_outputs)]
        values = tuple(variables[name] for name in names)
        if len(values) > 1:
            check_outputs(node, values)
        else:
            variables[names[0]] = first(node, values[0])

    def inputs(self, node: PlanNode, variables: dict[str, Any]) -> list[Any]:
        """The arguments of a node's call, from the line's variables."""
        return [self._layout.look_up(node.frame, slot, variables) for slot in range(node.first, node.last)]

    def snapshot(self, feeds: Sequence[Any] | None, position: Position) -> Snapshot:
        """A snapshot of the run with the line at this position; the innermost iteration is that of its node.

        Args:
            feeds: the plan's feeds; None to take them from the position's variables.
        """
        assert position.node is not None
        variables = {**position.variables, **{f"f{i}": value for i, value in enumerate(feeds or ())}}
        return TakeOver(self._layout, variables).at(position.node, position.done)

    def go_on(self, position: Position, context: OpKernelContext, running: Running) -> Coroutine[Any, Any, Any]:
        """The rest of a node's call, whose function is running already."""
        node = position.node
        assert node is not None and node.calls is not None and position.function is not None
        values = [position.variables[name] for name in self._layout.loop_values(node)]
        return node.calls.go_on(context, values, position.function, running)

    def __repr__(self) -> str:
        return f"<CompiledPlan of {self.plan.num_nodes} nodes, {'a line' if self.is_line else 'in slices'}>"


def compile_plan(
    plan: Plan,
    heavy_ns: Callable[[PlanNode, Sequence[Any]], float],
    chunk: int = CHUNK,
    around: frozenset[Plan] = frozenset(),
    *,
    goes_on: bool = False,
) -> CompiledPlan:
    """Write a plan as Python, and the plans of the functions that it calls.

    Args:
        heavy_ns: returns how long a call with some inputs is expected to take, in ns, if that would hold up the event
            loop; else 0.
        chunk: the number of calls between two looks at the clock.
        around: the plans being compiled whose functions this plan belongs to.
        goes_on: see `LineOptions`; it is False for the functions that the plan calls.

    Raises:
        NotCompiledError: the interpreter has to run it.
    """
    bodies: list[CompiledPlan] = []
    outer = around | {plan}

    def body_of(function: Any) -> CompiledPlan:
        body = function.prepare() if on_event_loop() else function.plan
        if body is None:
            raise NotCompiledError(f"function '{function.name}' is large, or depends on where resources are")
        if body in outer or len(outer) > _MAX_CALLS:
            raise NotCompiledError(f"function '{function.name}' calls itself, or calls are nested deep")
        policy = body.compilation
        if policy.refused:
            raise NotCompiledError(f"function '{function.name}': {policy.refused}")
        written = policy.compiled
        if not isinstance(written, CompiledPlan) or written.outdated or written.relieved:
            written = compile_plan(body, heavy_ns, chunk, outer)
            policy.adopt(written)
        bodies.append(written)
        return written

    writer = LineWriter(plan, LineOptions(heavy_ns, chunk, body_of, goes_on))
    return CompiledPlan(plan, writer, bodies)


def prepare_functions(plan: Plan, budget: LoopBudget) -> bool:
    """Build the small functions that a plan calls, on the event loop, as the thread that compiles cannot do it.

    Returns:
        Returns False if that takes longer than the budget allows; the next call continues.

    Raises:
        NotCompiledError: a function cannot be built.
    """
    with suppress(NeedsThreadError):
        ShortWork(budget.once_seconds).do(lambda: _prepare_functions(plan))
        return True
    return False


def _prepare_functions(plan: Plan) -> None:
    seen = {plan}
    todo = [plan]
    while todo:
        for node in steadily(todo.pop().nodes):
            for function in node.calls.functions if node.calls is not None else ():
                go_on()
                try:
                    body = function.prepare()
                except errors.OpError as error:
                    raise NotCompiledError(f"function '{function.name}': {error}") from error
                if isinstance(body, Plan) and body not in seen:
                    seen.add(body)
                    todo.append(body)
