"""`CallsInFlight`: the calls of an execution that have begun and not ended, by what they wait for.

A call is in a worker thread, is awaited in a task of its own, is postponed until it can be made, or is a Recv that
waits for its value.  When it ends, its execution accounts for it in its next turn.  All bookkeeping is on the loop's
thread.
Next to read: `node_runner.py`, which begins calls, and `execution.py`, which waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from time import perf_counter
from typing import Any, Protocol

from aexec.framework import errors
from aexec.framework.waiting.futures import PendingOutputs
from aexec.framework.waiting.inline_call import InlineCallError, PostponedError
from aexec.runtime.interpreter.executor import StepEnvironment
from aexec.runtime.interpreter.propagator_state import IterationState, PropagatorState
from aexec.runtime.interpreter.receiving import Receiving
from aexec.runtime.interpreter.shared_turn import Started
from aexec.runtime.plans.call_estimates import correct_in_thread
from aexec.runtime.plans.node_activity import RunningNode
from aexec.runtime.plans.plan import PlanNode

__all__ = ["CallsInFlight"]


class Caller(Protocol):
    """The execution that makes the calls.

    Attributes:
        environment: the environment of its step.
    """

    environment: StepEnvironment

    @property
    def state(self) -> PropagatorState:
        """Its propagator state."""
        raise NotImplementedError

    def complete(self, event: Callable[[], None]) -> None:
        """Call `event` in the execution's next turn."""

    def node_failed(self, node: PlanNode, inputs: Any, error: BaseException) -> None:
        """End the execution with the error of a node."""


class CallsInFlight:
    """The calls of one execution that have begun and not ended.

    Attributes:
        receiving: the Recvs that wait for their values.
    """

    __slots__ = ("_caller", "_futures", "_going_on", "_postponed", "_tasks", "receiving")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._tasks: dict[asyncio.Future[Any], Started] = {}
        self._futures: dict[Future[Any], Started] = {}
        self._postponed: dict[InlineCallError, Started] = {}
        self._going_on: asyncio.Future[Any] | None = None
        self.receiving: set[Receiving] = set()

    # Looking at the calls

    @property
    def can_end(self) -> bool:
        """True if a call may end without another execution: it is in a thread, or postponed."""
        return bool(self._futures or self._postponed)

    def awaited(self) -> Iterable[Started]:
        """The calls that wait for a task or a value."""
        yield from self._tasks.values()
        yield from (receiving.started for receiving in self.receiving)

    def started(self) -> list[Started]:
        """All calls."""
        return [*self.awaited(), *self._futures.values(), *self._postponed.values()]

    def running(self) -> list[RunningNode]:
        """The nodes of all calls."""
        found = dict.fromkeys(self.awaited(), "awaited")
        found.update(dict.fromkeys(self._futures.values(), "in a thread"))
        found.update(dict.fromkeys(self._postponed.values(), "postponed"))
        return [
            RunningNode(node, iteration.frame_iter, where, since) for (node, iteration, since), where in found.items()
        ]

    @property
    def has_ended_coroutine(self) -> bool:
        """True if a coroutine has returned, and its result is not accounted for yet."""
        return any(task.done() for task in self._tasks if not isinstance(task, PendingOutputs))

    def cancelled_messages(self) -> list[str]:
        """The cancellation messages of kernels that wait for outputs."""
        return [task.cancelled_message for task in self._tasks if isinstance(task, PendingOutputs)]

    # In a thread

    def offload(
        self, iteration: IterationState, node: PlanNode, inputs: Any, compute: Any = None, arguments: Any = None
    ) -> None:
        """Make a call in a worker thread."""
        environment = self._caller.environment
        arguments = tuple(arguments or inputs)
        inputs = list(inputs)  # freed when the call has ended, although its future lives on

        def done(future: Future[Any]) -> None:
            if self._futures.pop(future, None) is not None:  # otherwise abandoned: the execution ended without it
                self._caller.complete(lambda: self._offload_ended(iteration, node, inputs, future))

        compute = compute or node.compute
        if environment.memory is not None:
            compute = environment.memory.accounted(node, compute)
        future = environment.worker_pool.submit(environment.loop, compute, arguments, done)
        iteration.propagator.node_started(iteration)
        self._futures[future] = (node, iteration, perf_counter())

    def _offload_ended(self, iteration: IterationState, node: PlanNode, inputs: list[Any], future: Future[Any]) -> None:
        state = iteration.propagator
        state.node_ended(iteration)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._caller.node_failed(node, inputs, error)
        elif not state.stopping:
            result = future.result()
            out, seconds = result
            result.clear()
            correct_in_thread(node, inputs, seconds * 1e9)
            inputs.clear()
            self._finish(iteration, node, out)

    # Postponed

    def run_later(
        self,
        iteration: IterationState,
        node: PlanNode,
        inputs: Any,
        reason: InlineCallError,
        compute: Any = None,
        arguments: Any = None,
    ) -> None:
        """Handle a call that cannot go on here: move it to a thread, or make the node ready again when it can run."""
        if not isinstance(reason, PostponedError):
            self.offload(iteration, node, inputs, compute, arguments)
            return
        state, caller = iteration.propagator, self._caller

        def ready_again() -> None:
            del self._postponed[reason]
            state.node_ended(iteration)
            iteration.put_back(node, inputs)

        state.node_started(iteration)
        self._postponed[reason] = (node, iteration, perf_counter())
        loop = caller.environment.loop
        reason.when_ready(lambda: loop.call_soon_threadsafe(caller.complete, ready_again))

    # Awaited

    def wait_for(self, iteration: IterationState, node: PlanNode, awaitable: Any, *, going_on: bool = False) -> None:
        """Wait for a kernel.

        Args:
            going_on: the kernel is in the middle of a function call, whose executions end by their own cancellation
                managers; the task must not be cancelled before they have had a turn.
        """
        environment = self._caller.environment
        iteration.propagator.node_started(iteration)
        task: asyncio.Future[Any] = awaitable
        if not isinstance(awaitable, PendingOutputs):
            name = f"step {environment.step_id}: run({node.name})"
            task = environment.loop.create_task(awaitable, name=name)
        self._tasks[task] = (node, iteration, perf_counter())
        if going_on:
            self._going_on = task

        def ended(_: Any) -> None:
            if task in self._tasks:  # otherwise given up
                self._caller.complete(lambda: self._task_ended(iteration, node, task))

        if isinstance(task, PendingOutputs):
            task.when_ended(ended)
        else:
            task.add_done_callback(ended)

    def _task_ended(self, iteration: IterationState, node: PlanNode, task: asyncio.Future[Any]) -> None:
        if self._tasks.pop(task, None) is None:
            return  # it was given up
        state = iteration.propagator
        state.node_ended(iteration)
        if task.cancelled():
            if state.stopping:
                return
            # The execution did not cancel it: the kernel cancelled itself.
            cancelled = errors.CancelledError("the kernel's task was cancelled", derived=True)
            self._caller.node_failed(node, (), cancelled)
            return
        error = task.exception()
        if error is not None:
            if not state.stopping or isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._caller.node_failed(node, (), error)
        elif not state.stopping:
            self._finish(iteration, node, task.result())
        elif isinstance(task, PendingOutputs):
            task.give_back()

    def _finish(self, iteration: IterationState, node: PlanNode, out: Any) -> None:
        try:
            iteration.propagator.node_done(iteration, node, out)
        except Exception as error:
            self._caller.node_failed(node, None, error)

    # Given up

    def give_up(self, entry: Started) -> None:
        """Stop waiting for this value, which never comes; the node counts as not run."""
        _, iteration, _ = entry
        receiving = next((each for each in self.receiving if each.started == entry), None)
        if receiving is not None:
            self.receiving.remove(receiving)
        else:
            awaited = next(task for task, started in self._tasks.items() if started == entry)
            del self._tasks[awaited]
            awaited.cancel()
        self._caller.complete(lambda: iteration.propagator.node_ended(iteration))

    def stop(self) -> None:
        """Cancel or withdraw calls where possible, and abandon those that do not touch shared state; await the rest."""
        for task, (_, iteration, _) in list(self._tasks.items()):
            if isinstance(task, PendingOutputs):
                if task.withdraw():
                    del self._tasks[task]
                    iteration.propagator.node_ended(iteration)
            elif task is not self._going_on:
                task.cancel()
        for receiving in self.receiving:
            _, iteration, _ = receiving.started
            iteration.propagator.node_ended(iteration)
        self.receiving.clear()
        abandon = self._caller.environment.worker_pool.abandon
        for future, (node, iteration, _) in list(self._futures.items()):
            ends = future.cancel() or (not node.touches_state and abandon(future))
            if ends and self._futures.pop(future, None) is not None:  # else it has ended just now
                iteration.propagator.node_ended(iteration)
