"""Stretches: from a heavy call on, a compiled line continues in a worker thread.

A line that yields is a generator, which any thread may resume, one at a time.  So a row of heavy calls, with light ones
between them, costs one hop to a thread instead of one each.  The line returns to the loop before a call that must be
made there, and when no heavy call has come for a while.

A thread makes the calls one after another; the interpreter makes several at once.
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

# A run of a compiled plan.  It is sent the end of the next slice, and yields
# * None when a slice is over,
# * `ON_LOOP` before a call that must be made on the loop, if it may be in a thread,
# * `CHANGES` before a call that changes state, if it may be in a thread,
# * before a heavy call its node, the expected ns, and a list of the inputs, which the call empties.
LineGenerator = Generator[Any, float | None, tuple[tuple[Any, ...], float]]


def may_leave_loop(node: PlanNode) -> bool:
    """True if a call may be made in a thread, because it only computes, or its kernel may be called in any thread.

    Before a call that changes state the line yields `CHANGES`; then it is not given up.
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
    # A kernel of a user that declares no cost relies on being called on the loop.
    return node.on_host and (node.check > 0 or is_built_in(node.op))


class Stretch:
    """The calls of a line that one worker makes, the first of them heavy.

    Args:
        yielded: what the line yielded before the first of them.
        memory: the step's memory if it is limited, else None.

    Attributes:
        at: the present or last heavy call, and its expected time in ns; the thread writes it, others may only show it.
        results: the line's results once it has returned.
        took: (node, expected ns, longest possible ns) of each heavy call that was made.
        ended: True when the thread has left the line; set on the loop.
        changes: True while the line is at a call that changes state, for whose end a cancellation waits.
        given_up: True if the thread has to leave the line at the next heavy call or sooner; set on the loop.
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
        """Continue the line until it must or may return to the loop.  Raises what its kernels raise."""
        use_budget(self._budget)
        line, self._line = self._line, None
        assert line is not None
        heavy = any_heavy = True
        freed = 0.0
        # `changes` is set before `given_up` is read, because the loop sets `given_up` before it reads `changes`.
        while not self.given_up:
            before = perf_counter()
            yielded = self._send(line) if heavy else self._next(line)
            if heavy:
                # A long call releases the interpreter's lock.
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
        """Make the heavy call that the line is at, if memory allows, and continue from there."""
        memory = self._memory
        if memory is None:
            self._inputs.clear()
            return self._next(line)
        call = self._checked(line, lambda: memory.begin(self.at[0], self._inputs))
        self._inputs.clear()
        try:
            with watching(call, every=False):  # small allocations are part of the reservation
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
