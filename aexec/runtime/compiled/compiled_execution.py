"""The executor of compiled plans: it runs the generated function, and leaves the rest to the interpreter.

`CompilationPolicy` decides whether a run uses the function, and how that is written.  A run that is traced or fed in
parts is interpreted all the same, and so is the rest of a run from a call that must not be made inline.
Next to read: `plans/compilation_policy.py`, `compiled_plan.py`, and `interpreter/execution.py` for the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.float_errors import FLOAT_ERRORS, IGNORED
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.memory import log_memory
from aexec.framework.memory.freed_memory import FREED_MEMORY
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.inline_call import InlineCallError, NeedsThreadError
from aexec.framework.waiting.loop_budget import current_budget
from aexec.runtime.compiled.compiled_plan import CompiledPlan, Position, compile_plan, prepare_functions
from aexec.runtime.compiled.line_calls import CHANGES, ON_LOOP, HeavyError, WaitsError
from aexec.runtime.compiled.stretch import LineGenerator, Stretch
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.functions.function_calls import MAX_CALL_DEPTH, call_depth, nested_results
from aexec.runtime.interpreter.execution import Execution, ShuffledExecution
from aexec.runtime.interpreter.executor import ExecutionStatistics, StepEnvironment, as_op_error, register_executor
from aexec.runtime.interpreter.memory_accountant import values_of_line
from aexec.runtime.interpreter.propagator_state import ROOT_FRAME_ID
from aexec.runtime.plans.absent_values import UNFED, OnResult
from aexec.runtime.plans.blocks import NotCompiledError
from aexec.runtime.plans.call_estimates import heavy_ns, took_at_most
from aexec.runtime.plans.compilation_policy import CompilationPolicy, CompiledForm, Decision
from aexec.runtime.plans.node_activity import RunningNode
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from aexec.runtime.plans.trial import Trial

__all__ = ["CompiledExecution", "default_executor", "line_of", "run_line"]

logger = logging.getLogger("aexec")


class CompiledExecution(Execution):
    """One execution of one plan, as generated Python where that is possible."""

    __slots__ = ("_stretch",)

    def __init__(
        self,
        plan: Plan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
    ) -> None:
        Execution.__init__(self, plan, environment, cancellation, on_result)
        self._stretch: Stretch | None = None  # the one that a worker is running

    @classmethod
    def runs_joint(cls, plan: PartitionedPlan, environment: StepEnvironment, on_result: OnResult | None) -> bool:
        """Like `Execution.runs_joint`; compiles the joint plan if it is time to."""
        if _is_watched(environment, on_result):
            return False
        return plan.compilation.compiled is not None or _decide(plan, environment) is not None

    def statistics(self) -> ExecutionStatistics:
        """Like `Execution.statistics`."""
        return ExecutionStatistics(0, 1) if self._stretch is not None else super().statistics()

    def running(self) -> list[RunningNode]:
        """Like `Execution.running`."""
        stretch = self._stretch
        if stretch is None:
            return super().running()
        return [RunningNode(stretch.at[0], (ROOT_FRAME_ID, 0), "in a thread", stretch.began)]

    def run(self, feeds: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        """Like `Execution.run`."""
        compiled = self._compiled(feeds)
        if compiled is None:
            return super().run(feeds)
        trial = self.plan.compilation.trial
        return self._run_compiled(compiled, feeds) if trial is None else self._try(trial, compiled, feeds)

    async def _try(self, trial: Trial, compiled: CompiledForm, feeds: Sequence[Any]) -> list[Any]:
        """Run once as a trial, which compares the interpreter with a line."""
        size, interprets = sum(value.size for value in feeds), trial.interprets_next()
        running = Execution.run(self, feeds) if interprets else self._run_compiled(compiled, feeds)
        del feeds
        began = perf_counter()
        results = await running
        self.plan.compilation.tried(trial, size, perf_counter() - began, interpreted=interprets)
        return results

    async def _run_compiled(self, compiled: CompiledForm, feeds: Sequence[Any]) -> list[Any]:
        end = self._enter()
        now = perf_counter()
        if now >= end:
            end = await self._next_turn()
        elif self._cancellation.cancel_requested:
            raise self._cancelled_status()
        else:
            self._turn_began = now
        try:
            if compiled.is_line:
                return run_line(compiled, self._root_context(), feeds, end)
            begun = FREED_MEMORY.begin()
            results = await self._run_in_slices(compiled, feeds, end)
            FREED_MEMORY.end(begun)
            if self.plan.compilation.unsettled:
                self.plan.compilation.finished()
            return list(results)
        except BaseException as error:
            rest = self.rest(compiled, feeds, error)
        del feeds
        return await rest

    def rest(self, compiled: CompiledForm, feeds: Sequence[Any], error: BaseException) -> Awaitable[list[Any]]:
        """Finish a run whose function raised; the function may have been called without this execution."""
        assert isinstance(compiled, CompiledPlan)
        failure = self._take_over(compiled, feeds, error)
        return self._interpret() if failure is None else self._failed(failure)

    async def _failed(self, failure: BaseException) -> list[Any]:
        self._stop(failure)
        self.state.release()
        try:
            raise failure from failure.__cause__
        finally:
            del failure  # its traceback leads to this frame

    def _compiled(self, feeds: Sequence[Any]) -> CompiledForm | None:
        """The compiled form that this run uses; None if it is interpreted."""
        if _is_watched(self.environment, self._on_result):
            return None
        compiled = self.plan.compilation.ready
        if compiled is None or (compiled.suspects and compiled.relieved):
            compiled = _decide(self.plan, self.environment)
            if compiled is None:
                return None
        for value in feeds:
            if value is UNFED:
                return None
        if compiled.depth and call_depth() + compiled.depth >= MAX_CALL_DEPTH:
            return None
        return compiled

    def _root_context(self) -> OpKernelContext:
        return OpKernelContext(self.environment, self._cancellation, execution=self)

    async def _run_in_slices(self, compiled: CompiledForm, feeds: Sequence[Any], end: float) -> tuple[Any, ...]:
        line: LineGenerator = compiled.function(self._root_context(), end, *feeds)
        given: float | None = None
        policy, memory = self.plan.compilation, self.environment.memory
        budget = self.environment.slices.budget
        try:
            while True:
                began, worked = perf_counter(), thread_time()
                try:
                    yielded = _next_slice(line, given)
                except StopIteration as done:
                    results: tuple[Any, ...] = done.value[0]
                    return results
                finally:
                    now, took = perf_counter(), thread_time() - worked
                    if now > end or policy.unsettled:
                        # Time for which this thread had no processor is not the calls'.
                        late = took - (end - began) if now > end else 0.0
                        policy.slice_ended(budget.as_usual(late), budget.as_usual(took - budget.slice_seconds))
                given = end
                if type(yielded) is tuple:
                    stretch = Stretch(line, yielded, self.environment.slices.budget, memory)
                    await self._in_thread(line, stretch)
                    if stretch.results is not None:
                        return stretch.results
                    given = end = self._enter()
                if perf_counter() >= end:
                    try:
                        if memory is not None:
                            memory.look(line, partial(values_of_line, line))
                        given = end = await self._next_turn()
                    except BaseException:
                        line.close()
                        raise
        finally:
            if memory is not None:
                memory.ended(line)

    async def _in_thread(self, line: LineGenerator, stretch: Stretch) -> None:
        """Let a worker continue a line, from a heavy call on."""
        environment = self.environment
        self._stretch = stretch
        future = environment.worker_pool.submit(environment.loop, stretch, (), partial(self._stretch_ended, stretch))
        try:
            with self._told_of_cancellation():
                while not (stretch.ended or self._cancellation.cancel_requested):
                    await self._wait()
            if stretch.ended and not future.cancelled():
                future.result()
            if stretch.results is None and self._cancellation.cancel_requested:
                raise self._cancelled_status()
            for node, expected, took in stretch.took:
                took_at_most(node, expected, took)
        except BaseException:
            stretch.given_up = True
            if future.cancel() or future.done():
                line.close()  # else the worker does
            elif stretch.changes or not environment.worker_pool.abandon(future):
                await self._changed(stretch)
            raise
        finally:
            self._stretch = None
            self._turn_began = perf_counter()
            del future, stretch, line  # the error's traceback refers to this frame

    async def _changed(self, stretch: Stretch) -> None:
        """Wait until the worker has left a line that is given up, if it is at a call that changes state."""
        while not stretch.ended:
            with contextlib.suppress(asyncio.CancelledError):  # the step has ended either way
                await self._wait()

    def _stretch_ended(self, stretch: Stretch, _: Any) -> None:
        stretch.ended = True
        self.wake()

    async def _next_turn(self) -> float:
        """Give way to the loop; return the end of the next slice."""
        slices, loop = self.environment.slices, self.environment.loop
        with self._told_of_cancellation() as active:
            while active:
                await self._wait_turn()
                if self._cancellation.cancel_requested:
                    break
                end = slices.open(loop)
                if perf_counter() < end:
                    return end  # else others used the slice up
        raise self._cancelled_status()

    def _count_take_over(self, levels: Sequence[Position], error: BaseException) -> None:
        """Tell the policy that the interpreter takes over, where and why."""
        compiled, node = levels[0].compiled, levels[0].node
        heavy = isinstance(error, (HeavyError, NeedsThreadError)) and node is not None and compiled.may_leave(node)
        share = compiled.share_before(node) if node is not None else 0.0
        self.plan.compilation.fell_back(compiled, heavy=heavy and not compiled.goes_on, early=share <= 0.5)

    def _take_over(self, compiled: CompiledPlan, feeds: Sequence[Any], error: BaseException) -> BaseException | None:
        """Make the interpreter's state if a call could not be made inline; else return the error, with its node."""
        levels, error = compiled.position(error)
        if not levels or isinstance(error, (KeyboardInterrupt, SystemExit)):
            return error
        innermost = levels[-1]
        node = innermost.node
        if node is not None and innermost.done and isinstance(error, AttributeError):
            try:
                innermost.compiled.mend(node, innermost.variables)
            except errors.InternalError as wrong:
                return _attributed(levels, wrong)
        elif node is None or not isinstance(error, InlineCallError):
            if node is not None and self._cancellation.cancel_requested:
                return self._cancelled_status()
            return _attributed(levels, error)
        self._count_take_over(levels, error)
        self._make_states(levels, feeds, error.out if isinstance(error, WaitsError) else None)
        return None

    def _make_states(self, levels: Sequence[Position], feeds: Sequence[Any], awaited: Any) -> None:
        """Make the state of this execution, and an execution with its state for each function that the line is in.

        Args:
            awaited: what the innermost call is waiting for, or None.
        """
        executions: list[CompiledExecution] = [self]
        for level in levels[1:]:
            cancellation = CancellationManager(executions[-1]._cancellation)
            made = CompiledExecution(level.compiled.plan, self.environment, cancellation)
            made.caller = executions[-1]
            executions.append(made)
        depth = call_depth()
        for number in reversed(range(len(levels))):
            level, execution = levels[number], executions[number]
            node = level.node
            assert node is not None
            iteration = execution.state.resume(level.compiled.snapshot(None if number else feeds, level))
            if number < len(levels) - 1:
                awaited = level.compiled.go_on(level, execution.context(iteration), awaited)
            if awaited is not None:
                iteration.start(node)
                execution.calls.wait_for(iteration, node, awaited, going_on=number < len(levels) - 1)
            if number:
                caller = levels[number - 1]
                assert caller.node is not None and caller.node.calls is not None and caller.function is not None
                function = caller.node.calls.functions[caller.function]
                running = nested_results(
                    self.environment, execution, execution._cancellation, execution._go_on(), function.name
                )
                awaited = function.results(running, depth + number)

    async def _go_on(self) -> list[Any]:
        """Interpret the rest of a run, from the state that `_take_over` has made."""
        if self._cancellation.cancel_requested:
            self._stop(self._cancelled_status())
        return await self._interpret()


def _attributed(levels: Sequence[Position], error: BaseException) -> BaseException:
    """The error of a line, with the node that failed and the nodes whose functions it was in."""
    *outer, innermost = levels
    if innermost.node is not None:
        known = not innermost.done
        inputs = innermost.compiled.inputs(innermost.node, innermost.variables) if known else None
        error = as_op_error(innermost.node, inputs, error)
    for level in reversed(outer):
        assert level.node is not None
        error = as_op_error(level.node, None, error)
    return error


def _is_watched(environment: StepEnvironment, on_result: OnResult | None) -> bool:
    """True if the run is watched node by node, which only the interpreter allows."""
    return bool(DEBUG) or environment.tracer is not None or on_result is not None


def _decide(plan: Plan | PartitionedPlan, environment: StepEnvironment) -> CompiledForm | None:
    """The compiled form to run a plan as, compiled now if it is time to; None if the run is interpreted."""
    policy = plan.compilation
    decision = policy.decide()
    if decision is Decision.INTERPRET:
        return None
    if decision is Decision.COMPILE:
        _compile(plan, environment)
    return policy.compiled


def _compile(plan: Plan | PartitionedPlan, environment: StepEnvironment) -> None:
    """Compile a plan, in a thread if it is large; not yet if its functions take long to prepare."""
    policy = plan.compilation
    try:
        for part in plan.plans if isinstance(plan, PartitionedPlan) else (plan,):
            if not prepare_functions(part, environment.slices.budget):
                return
    except NotCompiledError as reason:
        policy.refuse(str(reason))
        return
    if plan.size < environment.slices.budget.plan_nodes:
        _compile_into(policy, plan)
        return
    policy.writing()
    compiling = environment.worker_pool.start(_compile_into, policy, plan)
    # Nobody waits for it; it is cancelled if the session closes first.
    compiling.add_done_callback(lambda done: done.cancelled() or done.exception())


def _compile_into(policy: CompilationPolicy, plan: Plan | PartitionedPlan) -> None:
    try:
        whole = plan.joint if isinstance(plan, PartitionedPlan) else plan
        policy.written(compile_plan(whole, heavy_ns, policy.chunk, goes_on=policy.goes_on))
    except NotCompiledError as reason:
        policy.refuse(str(reason))
    except Exception as error:
        # A bug of ours; the run is interpreted.
        logger.exception("A plan of %d nodes cannot be compiled", plan.num_nodes)
        policy.refuse(f"{type(error).__name__}: {error}")
    finally:
        policy.thread_ended()


def line_of(plan: Plan | PartitionedPlan) -> CompiledForm | None:
    """The compiled form, if `run_line` can run it at once; an execution is made only if the line cannot finish."""
    line = plan.compilation.ready
    if line is None or not line.is_line or (line.suspects and line.relieved) or log_memory.is_enabled():
        return None
    return line


def run_line(line: CompiledForm, context: OpKernelContext | None, feeds: Sequence[Any], end: float) -> list[Any]:
    """Run a compiled plan without an execution, in a slice that ends at `end`; return the fetched values.

    Raises:
        BaseException: from a kernel, or from the line where it cannot go on; pass it to `CompiledExecution.rest`.
    """
    token = FLOAT_ERRORS.set(IGNORED)
    try:
        results = list(line.function(context, *feeds))
    finally:
        FLOAT_ERRORS.reset(token)
    late = perf_counter() - end
    policy = line.policy
    if late > 0.0 or policy.unsettled:
        policy.slice_ended(current_budget().as_usual(late))
        policy.finished()
    return results


@np.errstate(all="ignore")
def _next_slice(line: LineGenerator, end: float | None) -> Any:
    yielded = line.send(end)  # None begins it
    while yielded is ON_LOOP or yielded is CHANGES:
        yielded = line.send(end)
    return yielded


def default_executor(*, compile_plans: bool) -> type[Execution]:
    """The executor class of sessions that name none; in random order if AEXEC_SHUFFLE=1."""
    if os.environ.get("AEXEC_SHUFFLE"):
        return ShuffledExecution
    return CompiledExecution if compile_plans else Execution


register_executor("COMPILED", CompiledExecution)
