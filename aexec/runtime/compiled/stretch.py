"""Stretches: where a call of a compiled line is heavy, the line goes on in a worker thread, with it and those after it.

A line that yields is a generator, and a generator may be resumed by any thread, one after the other.  So heavy
calls that follow one another, with what is light between them, cost one hop to a thread in place of one each.  The
line comes back to the loop before a call that is to be made there, and where nothing heavy is left for a while.

In a thread, calls are made one after another; the interpreter makes several at once.
Next to read: `compiled_execution.py`, which resumes lines on the loop; `plans/trial.py`, which finds out which is
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, TypeVar

from aexec.framework import errors
from aexec.framework.memory.allocator import watching
from aexec.framework.waiting.loop_budget import LoopBudget, let_others_run, use_budget
from aexec.runtime.compiled.line_calls import CHANGES
from aexec.runtime.interpreter.memory_accountant import StepMemory, values_of_line
from aexec.runtime.plans.inferred_shapes import is_built_in
from aexec.runtime.plans.plan import Kind, PlanNode

__all__ = ["LineGenerator", "Stretch", "may_leave_loop"]

T = TypeVar("T")

# A run of a compiled plan.  It yields None where a slice is over, `ON_LOOP` where it may be in a thread and has to be
# on the loop, `CHANGES` where it may be in a thread and is about to change state, and before a heavy call its node with
# what the call is expected to take, in ns, and a list of its inputs, to be emptied.  It is sent when the next slice is
# over.
LineGenerator = Generator[Any, float | None, tuple[tuple[Any, ...], float]]


def may_leave_loop(node: PlanNode) -> bool:
    """May a call be made in a thread?  It is one that just computes, or may be called in any.

    The line says before those that change state, and then is not given up.
    """
    if node.kind in (Kind.SWITCH, Kind.MERGE):
        return True
    if node.kind == Kind.RETVAL:
        return node.passes_on
    if node.kind not in (Kind.PLAIN, Kind.KERNEL) or node.calls:
        return False
    if node.in_any_thread:
        return node.on_host
    if node.wants_context or node.touches_state:
        return False
    # Kernels of others that say they cost nothing count on being called on the loop.
    return node.on_host and (node.check > 0 or is_built_in(node.op))


class Stretch:
    """Calls of a line that a worker makes, the first of them heavy.

    Args:
        yielded: what the line has yielded before the first of them.
        memory: the step's, if that is limited.

    Attributes:
        at: the heavy call that it is at, or was last, with what that was expected to take in ns; while it is in the
            thread only for people to look at.
        results: what the line returned, if it is over.
        took: of heavy calls: what they were expected to take, and at most took, in ns.
        ended: the thread is through with it; set on the loop.
        changes: the call that it is at changes state, and is waited for.
        given_up: the thread is to leave it at the next call that is heavy, or sooner; set on the loop.
    """

    __slots__ = (
        "_budget",
        "_inputs",
        "_line",
        "_memory",
        "at",
        "began",
        "changes",
        "ended",
        "given_up",
        "results",
        "took",
    )

    def __init__(
        self,
        line: LineGenerator,
        yielded: tuple[PlanNode, float, list[Any]],
        budget: LoopBudget,
        memory: StepMemory | None,
    ) -> None:
        self._line: LineGenerator | None = line
        self._budget = budget
        self._memory = None if memory is None or memory.is_exact else memory
        self.at = yielded[:2]
        self._inputs = yielded[2]
        self.began = perf_counter()
        self.results: tuple[Any, ...] | None = None
        self.took: list[tuple[PlanNode, float, float]] = []
        self.changes = yielded[0].touches_state
        self.ended = False
        self.given_up = False

    def __call__(self) -> None:
        """Go on until the line has to be on the loop, or may as well be.  Raises what its kernels raise."""
        use_budget(self._budget)
        line, self._line = self._line, None
        assert line is not None
        heavy = any_heavy = True
        freed = 0.0
        # Whoever gives it up looks at `changes` afterwards: so that is set before this looks whether it is given up.
        while not self.given_up:
            before = perf_counter()
            yielded = self._send(line) if heavy else self._next(line)
            if heavy:
                # A call that takes long lets go of the interpreter's lock.
                freed = perf_counter()
                self.took.append((*self.at, (freed - before) * 1e9))
            heavy = type(yielded) is tuple
            self.changes = yielded is CHANGES or (heavy and yielded[0].touches_state)
            if self.results is not None:
                return
            if heavy:
                self.at, self._inputs = yielded[:2], yielded[2]
                any_heavy = True
            elif yielded is None and any_heavy:
                any_heavy = False
                if perf_counter() - freed > self._budget.slice_seconds:
                    let_others_run()
            elif yielded is not CHANGES:
                return
        line.close()
        if self._memory is not None:
            self._memory.ended(line)

    def _send(self, line: LineGenerator) -> Any:
        """Make the heavy call that the line is at, if there is room for what it makes, and go on from there."""
        memory = self._memory
        if memory is None:
            self._inputs.clear()
            return self._next(line)
        call = self._checked(line, lambda: memory.begin(self.at[0], self._inputs))
        self._inputs.clear()
        try:
            with watching(call, every=False):  # what is small was reserved with the rest
                yielded = self._next(line)
        finally:
            call.end()
        self._checked(line, lambda: memory.look(line, lambda: values_of_line(line)))
        return yielded

    def _checked(self, line: LineGenerator, check: Callable[[], T]) -> T:
        try:
            return check()
        except errors.ResourceExhaustedError as error:
            line.close()
            node = self.at[0]
            error.attach_node(node.name, node.op, node.node.site, node.node.origin)
            raise

    def _next(self, line: LineGenerator) -> Any:
        try:
            return line.send(0.0)  # so it looks whenever it can
        except StopIteration as done:
            self.results = done.value[0]
            return None
