"""The default executor: a thin asyncio shell around the propagator state, which says which nodes are ready.

It works in slices, between which the loop gets its turn.  All bookkeeping is on the loop's thread.

An execution ends with its last node, its first error, or a cancellation.  After an error or a cancellation no further
node starts; coroutines are cancelled and awaited, queued offloads are withdrawn, and running ones are abandoned unless
they touch shared state.
Next to read: `node_runner.py`, which runs the nodes.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.waiting.cancellation import CancellationManager, CancelSource, closed_during
from aexec.framework.waiting.futures import running_loop
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.interpreter.executor import (
    ExecutionStatistics,
    StepEnvironment,
    as_op_error,
    no_value,
    register_executor,
)
from aexec.runtime.interpreter.node_runner import NodeRunner, has_work
from aexec.runtime.interpreter.propagator_state import PropagatorState
from aexec.runtime.interpreter.queued_calls import QueuedCalls
from aexec.runtime.interpreter.shared_turn import SharedTurn, Started
from aexec.runtime.plans.absent_values import NO_VALUE, OnResult
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan, PlanNode
from aexec.runtime.profiling.tracing import TimedReady

__all__ = ["Execution", "ShuffledExecution"]


class Execution(NodeRunner):
    """One execution of one plan; `run` is called once.

    Attributes:
        plan: the plan that it executes.
        shared_turn: the turn shared with the executions of the step's other partitions; None without partitions.
    """

    # Makes the list of an iteration's ready nodes.
    make_ready: Callable[[Sequence[PlanNode]], list[PlanNode]] = list
    # Makes this list in a traced step.
    make_timed_ready: Callable[[Sequence[PlanNode]], TimedReady] = TimedReady

    __slots__ = (
        "_completions",
        "_lingered",
        "_on_result",
        "_state",
        "_waiter",
        "plan",
        "shared_turn",
    )

    def __init__(
        self,
        plan: Plan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
    ) -> None:
        self.environment = environment
        self.idle = False
        self.caller = None
        self._cancellation = cancellation
        self._turn_began = 0.0
        self._calls = self._queued = self._meet = self._rendezvous = None
        self.plan = plan
        self._on_result = on_result
        self._state: PropagatorState | None = None
        self._completions: deque[Callable[[], None]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._lingered = False
        self.shared_turn: SharedTurn | None = None

    @classmethod
    def runs_joint(cls, plan: PartitionedPlan, environment: StepEnvironment, on_result: OnResult | None) -> bool:
        """True if partitions are to run as their joint plan: not if they are watched one by one."""
        return False

    @property
    def state(self) -> PropagatorState:
        """The propagator state, made at its first use: a compiled plan rarely needs one."""
        if self._state is None:
            make_ready = self.make_ready if self.environment.tracer is None else self.make_timed_ready
            self._state = PropagatorState(self.plan, make_ready, self._on_result)
        return self._state

    def run(self, feeds: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        """Execute the plan on fed values; the coroutine returns the fetched ones.

        Raises:
            OpError: the first error of a kernel, with its node; or CancelledError, DeadlineExceededError
                as the cancellation manager's status says.
            InvalidArgumentError: a fetched value is dead.
            asyncio.CancelledError: the awaiting task was cancelled.
        """
        if self._cancellation.cancel_requested:
            raise self._cancelled_status()
        self.state.feed(feeds)
        return self._interpret(self._enter())  # each feed is dropped as soon as its last consumer has it

    def _enter(self) -> float:
        """Enter a slice; return its end.  A function called within a step continues the step's slice."""
        slices, loop = self.environment.slices, self.environment.loop
        of_step = self._cancellation is self.environment.cancellation
        return slices.enter(loop) if of_step else slices.open(loop)

    async def _interpret(self, end: float = inf) -> list[Any]:
        """Run to the end from the present state; begin at once if the slice that ends at `end` is not over."""
        state = self.state
        try:
            if end:
                self._take_turn()
            if not state.finished:
                await self._run_with_loop()
            if self._queued is not None and self.caller is None and not (state.stopping or self.plan.skip_sync):
                await self._synchronise(self._queued)
            if state.error is not None:
                raise state.error
        finally:
            self._calls = None  # which refers to this execution
            results = state.release()
            if self.environment.memory is not None:
                self.environment.memory.ended(self)
        for position, value in enumerate(results):
            if value is NO_VALUE:
                no_value(position)
        return results

    def feed(self, position: int, value: Any) -> None:
        """Deliver a feed that was `UNFED`.  Called on the loop's thread."""
        self.complete(lambda: self.state.feed_later(position, value))

    def statistics(self) -> ExecutionStatistics:
        """The numbers of ready and running nodes."""
        return ExecutionStatistics(self.state.num_ready, self.state.outstanding - len(self.state.unfed))

    def running(self) -> list[RunningNode]:
        """Nodes that have started and not ended, oldest first."""
        found = [] if self._calls is None else self._calls.running()
        if self._queued is not None and self.caller is None:
            found += self._queued.running()
        return sorted(found, key=lambda running: running.since)

    def waiting(self) -> list[WaitingNode]:
        """Nodes that have some of their inputs and wait for others, or wait for a running node."""
        started = [] if self._calls is None else self._calls.started()
        return self.state.waiting([(iteration, node) for node, iteration, _ in started])

    def unfed(self) -> list[int]:
        """Positions of the feeds that are still to come."""
        return sorted(self.state.unfed)

    # The loop's side

    async def _run_with_loop(self) -> None:
        """Continue after the first slice, until nothing of this execution is left."""
        state, memory = self.state, self.environment.memory
        with self._told_of_cancellation() as active:
            if not active:
                self._stop(self._cancelled_status())
            while not state.finished and (state.outstanding or (state.active and not state.stopping)):
                try:
                    if memory is not None and not state.stopping:
                        memory.look(self, state.values)
                    if state.active:
                        await self._wait_turn()
                    else:
                        await self._wait()
                except (asyncio.CancelledError, errors.ResourceExhaustedError) as error:
                    self._stop(error)
                if state.stopping and self.shared_turn is None:
                    self._account_for_ended()  # no kernel is called any more
                else:
                    self._take_turn()

    @np.errstate(all="ignore")  # as a decorator it costs half of what the context manager does
    def _take_turn(self) -> None:
        """Account for ended calls, run ready nodes, then let executions go on that received values from these."""
        if self.shared_turn is None:
            self.go_on_inline(self.open_slice())
        else:
            self.shared_turn.take(self)

    # In the turn of another execution of the step; see `SharedTurn`

    def open_slice(self) -> float:
        """The end of the slice of the present turn."""
        return self.environment.slices.open(self.environment.loop)

    def go_on_inline(self, end: float) -> None:
        """Account for ended calls, then run ready nodes until none is left or the slice ends, at `end`."""
        self._account_for_ended()
        state = self._state or self.state
        if state.active:
            self.run_slice(state, end)
        if DEBUG:
            state.validate()

    def _account_for_ended(self) -> None:
        while self._completions:
            self._completions.popleft()()

    def has_to_do(self) -> bool:
        """True if it has something to do now, besides waiting."""
        state = self._state or self.state
        # With nothing outstanding the execution has ended, even if a frame waits for an Enter that nothing reaches.
        return not state.outstanding or bool(state.active) or state.finished or state.stopping

    def can_go_on(self) -> bool:
        """True if something can happen to it besides the end of a call that it awaits."""
        state = self._state
        if state is None or self.has_to_do():
            return True
        return bool(self._completions or (self._calls is not None and self._calls.can_end) or state.unfed)

    def awaited(self) -> Iterable[Started]:
        """The calls that it awaits, without those in worker threads."""
        return () if self._calls is None else self._calls.awaited()

    def give_up(self, entry: Started) -> None:
        """Stop waiting for this value, which never comes; the node counts as not run."""
        self.calls.give_up(entry)

    def finish(self) -> None:
        """End it: none of the values that it awaits will come."""
        for entry in [*self.awaited()]:
            self.give_up(entry)
        self.complete(self.state.finish)

    def held_open(self) -> Iterable[int]:
        """Like `PropagatorState.held_open`."""
        return self.state.held_open()

    def wake(self) -> None:
        """Give it a turn, because something outside has happened to it."""
        if self.idle and self.shared_turn is not None and self.shared_turn.under_way:
            self.idle = False
            self.shared_turn.given.append(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Waiting

    async def _synchronise(self, queued: QueuedCalls) -> None:
        """Wait until devices have made the queued calls; an error of one fails this execution."""
        passed = False

        def done() -> None:
            nonlocal passed
            passed = True

        queued.when_done(lambda: self.complete(done))
        with self._told_of_cancellation() as active:
            if not active:
                self._stop(self._cancelled_status())
            while not (passed or self.state.stopping):
                try:
                    await self._wait()
                except asyncio.CancelledError as error:
                    self._stop(error)
                self._account_for_ended()

    def _told_of_cancellation(self) -> _Told:
        """Context manager: while it is open, a cancellation calls `_on_cancel`.

        Enters as False if a cancellation was requested before.
        """
        return _Told(self._cancellation, self._on_cancel, self._completions)

    async def _wait_turn(self) -> None:
        """Give way to the loop, and wait in line with the other executions for the next slice."""
        loop, slices = self.environment.loop, self.environment.slices
        self._waiter = loop.create_future()
        # If others used a part of the slice, this execution has not had a whole one.
        cut_short = perf_counter() - self._turn_began < slices.budget.slice_seconds
        slices.stand_in_line(loop, self._waiter, first=cut_short)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._turn_began = perf_counter()

    async def _wait(self) -> None:
        if self._completions:
            return
        self._waiter = self.environment.loop.create_future()
        self.idle = True
        try:
            await self._waiter
        finally:
            self._waiter = None
            self.idle = False

    def complete(self, event: Callable[[], None]) -> None:
        """Call `event`, which accounts for something that ended outside, when this execution has its turn."""
        self._completions.append(event)
        self.wake()

    # Ending

    def node_failed(self, node: PlanNode, inputs: Any, error: BaseException) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._stop(error)
            raise error
        if self._cancellation.cancel_requested:
            # A waiting kernel that was woken reports its own end before this execution has its turn: report the cause.
            error = self._cancelled_status()
        else:
            error = as_op_error(node, inputs, error)
        self._stop(error)

    def _on_cancel(self) -> None:
        """Called by the cancellation manager, from whichever thread cancels."""
        if self._state is not None and self._state.stopping:
            return  # it has cancelled itself, or is done with
        loop = self.environment.loop
        if running_loop() is loop:
            self._cancel_first()
        else:
            loop.call_soon_threadsafe(self._cancel_first)

    def _cancel_first(self) -> None:
        """Stop before accounting for ended calls, so that a coroutine can give back a value that will not be used."""
        self._completions.appendleft(self._cancel_now)
        self.wake()

    def _cancel_now(self) -> None:
        state = self.state
        if state.stopping:
            return
        if not state.outstanding and state.active and not any(map(has_work, state.active)):
            return  # only retvals are left
        if not self._lingered and self._calls is not None and self._calls.has_ended_coroutine:
            # A coroutine that has returned cannot give back values that it took: if nothing else is left, the step
            # succeeds.
            self._lingered = True
            self.environment.loop.call_soon(self.complete, self._cancel_now)
            return
        self._stop(self._cancelled_status())

    def _cancelled_status(self) -> BaseException:
        status = self._cancellation.status
        reason = self._cancellation.reason
        if status is not None and reason is not None and reason.source is CancelSource.SESSION_CLOSED:
            waits = [] if self._calls is None else self._calls.cancelled_messages()
            return closed_during(status, waits).fresh()
        if isinstance(status, errors.OpError):
            return status.fresh()  # several executions may report the same status
        return errors.CancelledError("Run call was cancelled")

    def _stop(self, error: BaseException) -> None:
        """End the execution with `error` as soon as nothing of it can touch shared state."""
        state = self.state
        if not state.fail(error):
            return
        # Cancel first what waits inside this execution: queues, called functions.
        status = error.fresh() if isinstance(error, errors.OpError) else errors.CancelledError("Run call was cancelled")
        self._cancellation.start_cancel_with_status(status)
        if self._queued is not None and self.caller is None:
            self._queued.stop()
        if self._calls is not None:
            self._calls.stop()
        self.wake()


class _Told:
    """The context manager of `Execution._told_of_cancellation`; one made of a generator takes three times as long."""

    __slots__ = ("_callback", "_cancellation", "_completions", "_token")

    def __init__(
        self, cancellation: CancellationManager, callback: Callable[[], None], completions: deque[Callable[[], None]]
    ) -> None:
        self._cancellation, self._callback, self._completions = cancellation, callback, completions

    def __enter__(self) -> bool:
        self._token = self._cancellation.get_cancellation_token()
        return self._cancellation.register_callback(self._token, self._callback)

    def __exit__(self, *_: object) -> None:
        self._cancellation.try_deregister_callback(self._token)
        self._completions.clear()


class ShuffledReady(list[PlanNode]):
    """A ready list in seeded random order, so that nothing comes to depend on the usual order."""

    random = random.Random(0)

    def pop(self, _index: Any = -1) -> PlanNode:
        return super().pop(self.random.randrange(len(self)))


class _TimedShuffledReady(TimedReady, ShuffledReady):
    """`ShuffledReady` for a traced step."""


class ShuffledExecution(Execution):
    """Runs ready nodes in random order."""

    make_ready = ShuffledReady
    make_timed_ready = _TimedShuffledReady


register_executor("DEFAULT", Execution)
register_executor("SHUFFLED", ShuffledExecution)
