"""The executor of compiled plans: it runs the generated function, and leaves the rest to the interpreter.

A plan is compiled when it has been run a few times: what is run once costs no more than interpreting it.
A run of it is interpreted nevertheless when it is traced, fed in parts or with large values; and from the
middle on, when a call must not go on inline.
Next to read: `compiled_plan.py`, and `execution.py` for the interpreter.
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

from aexec.framework import errors, log_memory
from aexec.framework.cancellation import CancellationManager
from aexec.framework.float_errors import FLOAT_ERRORS, IGNORED
from aexec.framework.inline_call import InlineCallError
from aexec.framework.op_kernel_context import OpKernelContext
from aexec.runtime.blocks import NotCompiledError
from aexec.runtime.call_estimates import heavy_ns, took_at_most
from aexec.runtime.compiled_plan import CompiledPlan, Position, compile_plan, prepare_functions
from aexec.runtime.execution import Execution, ShuffledExecution
from aexec.runtime.executor import (
    UNFED,
    ExecutionStatistics,
    OnResult,
    RunningNode,
    StepEnvironment,
    as_op_error,
    register_executor,
)
from aexec.runtime.function_calls import MAX_CALL_DEPTH, call_depth, nested_results
from aexec.runtime.line_calls import CHANGES, ON_LOOP, HeavyError, WaitsError
from aexec.runtime.line_writer import CHUNK
from aexec.runtime.memory_accountant import values_of_line
from aexec.runtime.partitioned_plan import PartitionedPlan
from aexec.runtime.plan import Compilation, Plan
from aexec.runtime.propagator_state import ROOT_FRAME_ID
from aexec.runtime.stretch import Line, Stretch, Trial
from aexec.runtime.tracing import DEBUG

__all__ = ["CompiledExecution", "default_executor", "line_of", "run_line"]

logger = logging.getLogger("aexec")

# The run of a plan that compiles it.
COMPILE_AT = 3
# Runs in a row that the interpreter had to finish, after which it is left to it from the start; or, if heavy calls were
# why, after which the line goes on in a thread.
GIVE_UP_AT = 5
# Seconds by which calls may outlast their slice before the interpreter has a look at them.
OVERRUN = 0.5e-3
# Runs of a short line in a row, or slices, that must have done so: once it may have been another process.
SUSPICIOUS = 3
# Looks in a row by which the interpreter found no heavy call, after which calls are taken to be slow all together.
LOOKS = 3


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
        self._stretch: Stretch | None = None  # the one that a worker is at

    @classmethod
    def runs_joint(cls, plan: PartitionedPlan, environment: StepEnvironment, on_result: OnResult | None) -> bool:
        """As `Execution.runs_joint`: it is compiled, perhaps just now."""
        compilation = plan.compilation
        if not _may_be_compiled(compilation, environment, on_result):
            return False
        return compilation.compiled is not None or _compile(plan, environment)

    def statistics(self) -> ExecutionStatistics:
        """As `Execution.statistics`."""
        return ExecutionStatistics(0, 1) if self._stretch is not None else super().statistics()

    def running(self) -> list[RunningNode]:
        """As `Execution.running`."""
        stretch = self._stretch
        if stretch is None:
            return super().running()
        return [RunningNode(stretch.at[0], (ROOT_FRAME_ID, 0), "in a thread", stretch.began)]

    def run(self, feeds: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        """As `Execution.run`."""
        compiled = self._compiled(feeds)
        if compiled is None:
            return super().run(feeds)
        trial: Trial | None = self.plan.compilation.trial
        return self._run_compiled(compiled, feeds) if trial is None else self._try(trial, compiled, feeds)

    async def _try(self, trial: Trial, compiled: CompiledPlan, feeds: Sequence[Any]) -> list[Any]:
        """A run by which the interpreter and a line are compared."""
        size, interprets = sum(value.size for value in feeds), trial.interprets_next()
        running = Execution.run(self, feeds) if interprets else self._run_compiled(compiled, feeds)
        del feeds
        began = perf_counter()
        results = await running
        trial.took(size, perf_counter() - began, interprets)
        compilation = self.plan.compilation
        if trial.is_over and compilation.trial is trial:
            compilation.trial = None
            if trial.is_lost:
                compilation.refuse("the interpreter is faster: it makes several heavy calls at once")
        return results

    async def _run_compiled(self, compiled: CompiledPlan, feeds: Sequence[Any]) -> list[Any]:
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
            results = await self._run_in_slices(compiled, feeds, end)
            _went_well(self.plan.compilation)
            return list(results)
        except BaseException as error:
            rest = self.rest(compiled, feeds, error)
        del feeds
        return await rest

    def rest(self, compiled: CompiledPlan, feeds: Sequence[Any], error: BaseException) -> Awaitable[list[Any]]:
        """What is left to do of a run whose function raised, which may have been called without this execution."""
        failure = self._take_over(compiled, feeds, error)
        return self._interpret() if failure is None else self._failed(failure)

    async def _failed(self, failure: BaseException) -> list[Any]:
        self._stop(failure)
        self.state.release()
        try:
            raise failure from failure.__cause__
        finally:
            del failure  # its traceback leads to this frame

    def _compiled(self, feeds: Sequence[Any]) -> CompiledPlan | None:
        """The plan as Python, if it is to be run so."""
        compilation = self.plan.compilation
        if not _may_be_compiled(compilation, self.environment, self._on_result):
            return None
        if compilation.compiled is None and not _compile(self.plan, self.environment):
            return None
        if (compilation.overran >= SUSPICIOUS or compilation.suspect) and not self._look(compilation):
            return None
        for value in feeds:
            if value is UNFED:
                return None
        compiled: CompiledPlan = compilation.compiled
        if compiled.suspects and compiled.relieved:
            compilation.compiled = None
            if not _compile(self.plan, self.environment, compiled.chunk):
                return None
            compiled = compilation.compiled
        if compiled.depth and call_depth() + compiled.depth >= MAX_CALL_DEPTH:
            return None
        return compiled

    def _look(self, compilation: Compilation) -> bool:
        """Calls held the loop: the interpreter measures which, then they are compiled anew; is that done?"""
        compiled: CompiledPlan = compilation.compiled
        chunk = compiled.chunk
        if not compiled.outdated:
            compilation.looks += 1
            if compilation.looks < LOOKS and compiled.in_doubt:
                return False  # and so is the next run
            if compilation.looks <= LOOKS or chunk == 1:
                compilation.overran, compilation.suspect = 0, False
                return False
            chunk = max(1, chunk // 8)  # none is heavy alone
        compilation.overran, compilation.suspect, compilation.looks = 0, False, 0
        compilation.compiled = None
        return _compile(self.plan, self.environment, chunk)

    def _root_context(self) -> OpKernelContext:
        return OpKernelContext(self.environment, self._cancellation, execution=self)

    async def _run_in_slices(self, compiled: CompiledPlan, feeds: Sequence[Any], end: float) -> tuple[Any, ...]:
        line = compiled.start(self._root_context(), feeds, end)
        given: float | None = None
        compilation, memory = self.plan.compilation, self.environment.memory
        limit = self.environment.slices.budget.slice_seconds + OVERRUN
        try:
            while True:
                began, worked = perf_counter(), thread_time()
                try:
                    wish = _next_slice(line, given)
                except StopIteration as done:
                    results: tuple[Any, ...] = done.value[0]
                    return results
                finally:
                    now, took = perf_counter(), thread_time() - worked
                    # While others had the processor, it was not the calls that took long.
                    late = took - (end - began)
                    compilation.overran = compilation.overran + 1 if now > end and late > OVERRUN else 0
                    if compilation.overran and took > limit:
                        compilation.suspect = True
                given = end
                if type(wish) is tuple:
                    stretch = Stretch(line, wish, self.environment.slices.budget, memory)
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

    async def _in_thread(self, line: Line, stretch: Stretch) -> None:
        """Let a worker go on with a line, from a heavy call on."""
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
            del future, stretch, line  # what was raised refers to this frame

    async def _changed(self, stretch: Stretch) -> None:
        """Wait until a worker, that is at a call which changes state, has left a line that is given up."""
        while not stretch.ended:
            with contextlib.suppress(asyncio.CancelledError):  # the step is over either way
                await self._wait()

    def _stretch_ended(self, stretch: Stretch, _: Any) -> None:
        stretch.ended = True
        self.wake()

    async def _next_turn(self) -> float:
        """Let others have the loop; returns the end of the next slice."""
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
        """Do without taking over where that happens again and again.

        Where heavy calls are why, the line is to go on with them in a thread; where it is something else that makes
        the interpreter run most of the plan, that runs it from the start.
        """
        compilation, compiled, node = self.plan.compilation, levels[0].compiled, levels[0].node
        heavy = isinstance(error, HeavyError) and node is not None and compiled.may_leave(node)
        heavy = heavy and not compiled.goes_on
        share = compiled.share_before(node) if node is not None else 0.0
        compilation.taken_over = compilation.taken_over + 1 if heavy or share <= 0.5 else 0
        if compilation.taken_over >= GIVE_UP_AT and heavy:
            compilation.taken_over, compilation.goes_on, compilation.compiled = 0, True, None
            compilation.trial = Trial()
        elif compilation.taken_over >= GIVE_UP_AT:
            compilation.refuse("the interpreter always had to take over")

    def _take_over(self, compiled: CompiledPlan, feeds: Sequence[Any], error: BaseException) -> BaseException | None:
        """Make the interpreter's state if a call could not go on inline; else the error to raise, with its node."""
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
        """Make the interpreter's state, and those of the functions that the line is in, each an execution of its own.

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
            iteration = level.compiled.take_over(execution.state, None if number else feeds, level)
            execution.state.careful = True
            if number < len(levels) - 1:
                awaited = level.compiled.go_on(level, execution._context(iteration), awaited)
            if awaited is not None:
                iteration.ready.remove(node)
                iteration.take(node)
                execution._await(iteration, node, awaited, going_on=number < len(levels) - 1)
            if number:
                caller = levels[number - 1]
                assert caller.node is not None and caller.node.calls is not None and caller.function is not None
                function = caller.node.calls.functions[caller.function]
                running = nested_results(
                    self.environment, execution, execution._cancellation, execution._go_on(), function.name
                )
                awaited = function.results(running, depth + number)

    async def _go_on(self) -> list[Any]:
        """Go on from a state that was made of a line's."""
        if self._cancellation.cancel_requested:
            self._stop(self._cancelled_status())
        return await self._interpret()


def _attributed(levels: Sequence[Position], error: BaseException) -> BaseException:
    """An error of a line, with the node that failed; those around it call it."""
    *outer, innermost = levels
    if innermost.node is not None:
        known = not innermost.done
        inputs = innermost.compiled.inputs(innermost.node, innermost.variables) if known else None
        error = as_op_error(innermost.node, inputs, error)
    for level in reversed(outer):
        assert level.node is not None
        error = as_op_error(level.node, None, error)
    return error


def _may_be_compiled(compilation: Compilation, environment: StepEnvironment, on_result: OnResult | None) -> bool:
    """May a run be one of the plan as Python?  Not if it has to be seen node by node."""
    return not (compilation.refused or DEBUG or environment.tracer is not None or on_result is not None)


def _compile(plan: Plan | PartitionedPlan, environment: StepEnvironment, chunk: int = CHUNK) -> bool:
    """Compile a plan if it is time to, in a thread if it is large; is it compiled now?"""
    compilation = plan.compilation
    compilation.runs += 1
    if compilation.runs < COMPILE_AT or compilation.busy:
        return False
    try:
        for part in plan.plans if isinstance(plan, PartitionedPlan) else (plan,):
            if not prepare_functions(part, environment.slices.budget):
                return False
    except NotCompiledError as reason:
        compilation.refuse(str(reason))
        return False
    if plan.size < environment.slices.budget.plan_nodes:
        _compile_into(compilation, plan, chunk)
        return compilation.compiled is not None
    compilation.busy = True
    compiling = environment.worker_pool.start(_compile_into, compilation, plan, chunk)
    # It is withdrawn if the session closes first; nobody waits for it.
    compiling.add_done_callback(lambda done: done.cancelled() or done.exception())
    return False


def _compile_into(compilation: Compilation, plan: Plan | PartitionedPlan, chunk: int) -> None:
    try:
        whole = plan.joint if isinstance(plan, PartitionedPlan) else plan
        compilation.compiled = compile_plan(whole, heavy_ns, chunk, goes_on=compilation.goes_on)
    except NotCompiledError as reason:
        compilation.refuse(str(reason))
    except Exception as error:
        # Ours to mend; a run does without.
        logger.exception("A plan of %d nodes cannot be compiled", plan.num_nodes)
        compilation.refuse(f"{type(error).__name__}: {error}")
    finally:
        compilation.busy = False


def line_of(plan: Plan | PartitionedPlan) -> CompiledPlan | None:
    """The plan, if it can be run at once by `run_line`, without an execution: that is made if something comes up."""
    compiled: CompiledPlan | None = plan.compilation.compiled
    if compiled is None or not compiled.is_line or compiled.needs_context or (compiled.suspects and compiled.relieved):
        return None
    return None if plan.compilation.overran >= SUSPICIOUS or log_memory.is_enabled() else compiled


def run_line(line: CompiledPlan, context: OpKernelContext | None, feeds: Sequence[Any], end: float) -> list[Any]:
    """Run a compiled plan that is a line, in a slice that is over at `end`; returns the fetched values.

    Raises:
        BaseException: whatever its kernels raise, or it where it cannot go on; `CompiledExecution.rest` is for these.
    """
    token = FLOAT_ERRORS.set(IGNORED)
    try:
        results = list(line.function(context, *feeds))
    finally:
        FLOAT_ERRORS.reset(token)
    compilation = line.plan.compilation
    compilation.overran = compilation.overran + 1 if perf_counter() > end + OVERRUN else 0
    _went_well(compilation)
    return results


def _went_well(compilation: Compilation) -> None:
    compilation.taken_over = 0
    if compilation.looks and not compilation.overran:
        compilation.looks = 0


@np.errstate(all="ignore")
def _next_slice(line: Line, end: float | None) -> Any:
    wish = line.send(end)  # None begins it
    while wish is ON_LOOP or wish is CHANGES:
        wish = line.send(end)
    return wish


def default_executor(*, compile_plans: bool) -> type[Execution]:
    """What runs the steps of a session that names no executor; AEXEC_SHUFFLE=1 asks for random order."""
    if os.environ.get("AEXEC_SHUFFLE"):
        return ShuffledExecution
    return CompiledExecution if compile_plans else Execution


register_executor("COMPILED", CompiledExecution)
