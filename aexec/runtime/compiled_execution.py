"""The executor of compiled plans: it runs the generated function, and leaves the rest to the interpreter.

A plan is compiled when it has been run a few times: what is run once costs no more than interpreting it.
A run of it is interpreted nevertheless when it is traced, fed in parts or with large values; and from the
middle on, when a call must not go on inline.
Next to read: `compiled_plan.py`, and `execution.py` for the interpreter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Sequence
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.inline_call import InlineCallError
from aexec.framework.op_kernel_context import OpKernelContext
from aexec.runtime.blocks import NotCompiledError
from aexec.runtime.compiled_plan import CompiledPlan, WaitsError, compile_plan
from aexec.runtime.execution import Execution, ShuffledExecution, is_heavy
from aexec.runtime.executor import UNFED, as_op_error, register_executor
from aexec.runtime.kernel_outputs import check_outputs
from aexec.runtime.plan import Compilation, Plan, PlanNode
from aexec.runtime.tracing import DEBUG

__all__ = ["default_executor"]

logger = logging.getLogger("aexec")

# The run of a plan that compiles it.
COMPILE_AT = 3
# Runs in a row that the interpreter had to finish, after which it is left to it from the start.
GIVE_UP_AT = 5
# Seconds by which calls may outlast their slice before the interpreter has a look at them.
OVERRUN = 0.5e-3
# Runs of a short line in a row that must have done so: once it may have been another process.
SUSPICIOUS = 3


class CompiledExecution(Execution):
    """One execution of one plan, as generated Python where that is possible."""

    __slots__ = ()

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        """As `Execution.run`."""
        compiled = self._compiled(feeds)
        if compiled is None:
            return await super().run(feeds)
        compilation = self.plan.compilation
        end = self.environment.slices.open(self.environment.loop)
        if perf_counter() >= end:
            end = await self._next_turn()
        elif self._cancellation.cancel_requested:
            raise self._cancelled_status()
        try:
            if compiled.is_line:
                results = _call_line(compiled.function, self._root_context(), feeds)
                compilation.overran = compilation.overran + 1 if perf_counter() > end + OVERRUN else 0
            else:
                results = await self._run_in_slices(compiled, feeds, end)
        except Exception as error:
            failure = self._take_over(compiled, feeds, error)
            try:
                if failure is not None:
                    raise failure from failure.__cause__
            finally:
                del failure  # its traceback leads to this frame
        else:
            compilation.taken_over = 0
            return list(results)
        del feeds
        return await self._interpret()

    def _compiled(self, feeds: Sequence[Any]) -> CompiledPlan | None:
        """The plan as Python, if it is to be run so."""
        compilation = self.plan.compilation
        if compilation.refused or DEBUG or self.environment.tracer is not None or self._on_result is not None:
            return None
        if compilation.compiled is None and not self._compile(compilation):
            return None
        if compilation.overran >= SUSPICIOUS:
            compilation.overran = 0  # the interpreter measures which call it was
            return None
        small = self.plan.small_elements
        for value in feeds:
            if value is UNFED or value.size > small:
                return None
        compiled: CompiledPlan = compilation.compiled
        return compiled

    def _compile(self, compilation: Compilation) -> bool:
        """Compile the plan if it is time to, in a thread if it is large; is it compiled now?"""
        compilation.runs += 1
        if compilation.runs < COMPILE_AT or compilation.busy:
            return False
        environment = self.environment
        if self.plan.num_nodes < environment.slices.budget.plan_nodes:
            _compile_into(compilation, self.plan)
            return compilation.compiled is not None
        compilation.busy = True
        environment.worker_pool.start(_compile_into, compilation, self.plan)
        return False

    def _root_context(self) -> OpKernelContext:
        return OpKernelContext(self.environment, self._cancellation)

    async def _run_in_slices(self, compiled: CompiledPlan, feeds: Sequence[Any], end: float) -> tuple[Any, ...]:
        line = compiled.start(self._root_context(), feeds, end)
        given: float | None = None
        compilation, limit = self.plan.compilation, self.environment.slices.budget.slice_seconds + OVERRUN
        while True:
            began = thread_time()  # of the thread: a slice during which others had the processor is no longer one
            try:
                _next_slice(line, given)
            except StopIteration as done:
                results: tuple[Any, ...] = done.value
                return results
            finally:
                if thread_time() - began > limit:
                    compilation.overran = SUSPICIOUS
            try:
                given = end = await self._next_turn()
            except BaseException:
                line.close()
                raise

    async def _next_turn(self) -> float:
        """Let others have the loop; returns the end of the next slice."""
        slices, loop = self.environment.slices, self.environment.loop
        first = False
        while True:
            await self._wait_turn(first=first)
            if self._cancellation.cancel_requested:
                raise self._cancelled_status()
            end = slices.open(loop)
            if perf_counter() < end:
                return end
            first = True  # others used the slice up

    def _count_take_over(self, share: float) -> None:
        """Leave the plan to the interpreter from the start where that would have run most of it again and again."""
        compilation = self.plan.compilation
        compilation.taken_over = 0 if share > 0.5 else compilation.taken_over + 1
        if compilation.taken_over >= GIVE_UP_AT:
            compilation.refuse("the interpreter always had to take over")

    def _take_over(self, compiled: CompiledPlan, feeds: Sequence[Any], error: Exception) -> BaseException | None:
        """Make the interpreter's state if a call could not go on inline; else the error to raise, with its node."""
        place = compiled.position(error)
        if place is None:
            return error
        node, done, variables = place
        if not isinstance(error, InlineCallError):
            if self._cancellation.cancel_requested:
                return self._cancelled_status()
            wrong = _wrong_outputs(node, compiled.returned(node, variables)) if done else None
            return as_op_error(node, compiled.inputs(node, variables), wrong or error)
        self._count_take_over(compiled.share_before(node))
        iteration = compiled.take_over(self.state, feeds, node, done, variables)
        self.state.careful = True
        if isinstance(error, WaitsError):
            iteration.ready.remove(node)
            iteration.take(node)
            self._await(iteration, node, error.out)
        return None


def _compile_into(compilation: Compilation, plan: Plan) -> None:
    try:
        compilation.compiled = compile_plan(plan, is_heavy)
    except NotCompiledError as reason:
        compilation.refuse(str(reason))
    except Exception as error:
        # Ours to mend; a run does without.
        logger.exception("A plan of %d nodes cannot be compiled", plan.num_nodes)
        compilation.refuse(f"{type(error).__name__}: {error}")
    finally:
        compilation.busy = False


def _wrong_outputs(node: PlanNode, out: Any) -> errors.OpError | None:
    """What is wrong with what a kernel returned, when it could not be taken for the node's outputs."""
    try:
        check_outputs(node, out)
    except errors.OpError as error:
        return error
    return None


@np.errstate(all="ignore")
def _call_line(function: Callable[..., tuple[Any, ...]], context: OpKernelContext, feeds: Sequence[Any]) -> Any:
    return function(context, *feeds)


@np.errstate(all="ignore")
def _next_slice(line: Generator[None, float, tuple[Any, ...]], end: float | None) -> None:
    line.send(end)  # type: ignore[arg-type]  # None begins it


def default_executor(*, compile_plans: bool) -> type[Execution]:
    """What runs the steps of a session that names no executor; AEXEC_SHUFFLE=1 asks for random order."""
    if os.environ.get("AEXEC_SHUFFLE"):
        return ShuffledExecution
    return CompiledExecution if compile_plans else Execution


register_executor("COMPILED", CompiledExecution)
