"""The default executor: the thin asyncio shell that runs what the propagator state says is ready.

A ready node is run **inline** if it is cheap, **offloaded** to a worker thread if its
cost estimate, corrected by measurement, says that it would hold up the loop, and
**awaited** in a task of its own if it is asynchronous.  Inline work is done in slices,
between which the loop gets its turn.  All bookkeeping is on the loop's thread.

How an execution ends: by the last node, by the first error, or by cancellation.  In
the latter two no further node starts; coroutines are cancelled and awaited, queued
offloads are withdrawn, running ones are abandoned unless they touch shared state.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
from numpy import ndarray

from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Received, Rendezvous
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.kernel_contract.output_sizes import outgrow
from aexec.framework.kernel_contract.transfer_ends import RecvEnd, SendEnd
from aexec.framework.waiting.cancellation import CancellationManager, CancelSource, closed_during
from aexec.framework.waiting.futures import AWAITABLE, PendingOutputs, running_loop
from aexec.framework.waiting.inline_call import InlineCallError, PostponedError
from aexec.framework.waiting.loop_budget import current_budget
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.interpreter.executor import (
    ExecutionStatistics,
    StepEnvironment,
    as_op_error,
    no_value,
    register_executor,
)
from aexec.runtime.interpreter.forwarding import forwarding
from aexec.runtime.interpreter.propagator_state import IterationState, PropagatorState
from aexec.runtime.interpreter.queued_calls import QueuedCalls
from aexec.runtime.interpreter.receiving import Receiving
from aexec.runtime.interpreter.shared_turn import SharedTurn, Started
from aexec.runtime.plans.absent_values import NO_VALUE, OnResult
from aexec.runtime.plans.call_estimates import correct_estimate, correct_in_thread, heavy_ns
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Kind, Plan, PlanNode
from aexec.runtime.profiling.tracing import TimedReady

__all__ = ["Execution", "ShuffledExecution"]


class Execution:
    """One execution of one plan; `run` is called once.

    Attributes:
        environment: what all executions of the step share.
        shared_turn: the turn shared with the executions of the step's other partitions; None without partitions.
        idle: True while it waits; then a value from another execution lets it go on in that one's turn.
        caller: the execution whose kernel called the function that this one runs; None for the step itself.
    """

    # Makes the list of an iteration's ready nodes.
    make_ready: Callable[[Sequence[PlanNode]], list[PlanNode]] = list
    # The same for a traced step.
    make_timed_ready: Callable[[Sequence[PlanNode]], TimedReady] = TimedReady

    __slots__ = (
        "_cancellation",
        "_completions",
        "_futures",
        "_going_on",
        "_lingered",
        "_meet",
        "_on_result",
        "_postponed",
        "_queued",
        "_receiving",
        "_rendezvous",
        "_state",
        "_tasks",
        "_turn_began",
        "_waiter",
        "caller",
        "environment",
        "idle",
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
        self.plan = plan
        self.environment = environment
        self._on_result = on_result
        self._state: PropagatorState | None = None
        self._cancellation = cancellation
        self._completions: deque[Callable[[], None]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._turn_began = 0.0  # by `perf_counter`
        self._going_on: asyncio.Future[Any] | None = None
        self._tasks: dict[asyncio.Future[Any], Started] | None = None
        self._futures: dict[Future[Any], Started] | None = None
        self._postponed: dict[InlineCallError, Started] | None = None
        self._queued: QueuedCalls | None = None
        self._receiving: set[Receiving] = set()
        # The rendezvous of the last transfer, and the function that found it.
        self._meet: Callable[[StepEnvironment], Rendezvous] | None = None
        self._rendezvous: Rendezvous | None = None
        self._lingered = False
        self.idle = False
        self.shared_turn: SharedTurn | None = None
        self.caller: Execution | None = None

    @classmethod
    def runs_joint(cls, plan: PartitionedPlan, environment: StepEnvironment, on_result: OnResult | None) -> bool:
        """True if partitions are to run as their joint plan: not if somebody watches the single partitions."""
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
        """Enter a slice; returns its end.  A function called within a step continues the step's slice."""
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
            results = state.release()
            if self.environment.memory is not None:
                self.environment.memory.ended(self)
        for position, value in enumerate(results):
            if value is NO_VALUE:
                no_value(position)
        return results

    def feed(self, position: int, value: Any) -> None:
        """Deliver a feed that was `UNFED`.  Called on the loop's thread."""
        self._complete(lambda: self.state.feed_later(position, value))

    def statistics(self) -> ExecutionStatistics:
        """The numbers of ready and running nodes."""
        return ExecutionStatistics(self.state.num_ready, self.state.outstanding - len(self.state.unfed))

    def running(self) -> list[RunningNode]:
        """Nodes that have started and not ended, oldest first."""
        awaited = dict.fromkeys(self.awaited(), "awaited")
        offloaded = dict.fromkeys((self._futures or {}).values(), "in a thread")
        postponed = dict.fromkeys((self._postponed or {}).values(), "postponed")
        found = [
            RunningNode(node, iteration.frame_iter, where, since)
            for (node, iteration, since), where in {**awaited, **offloaded, **postponed}.items()
        ]
        if self._queued is not None and self.caller is None:
            found += self._queued.running()
        return sorted(found, key=lambda running: running.since)

    def waiting(self) -> list[WaitingNode]:
        """Nodes that have some of their inputs and wait for others, or wait for a running node."""
        started = [*self.awaited(), *(self._futures or {}).values(), *(self._postponed or {}).values()]
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
            self._run_slice(state, end)
        if DEBUG:
            state.validate()

    def _account_for_ended(self) -> None:
        while self._completions:
            self._completions.popleft()()

    def has_to_do(self) -> bool:
        """True if it has something to do now, besides waiting."""
        state = self._state or self.state
        # With nothing outstanding it is over, even where a frame waits for an Enter that nothing reaches.
        return not state.outstanding or bool(state.active) or state.finished or state.stopping

    def can_go_on(self) -> bool:
        """True if something can happen to it besides the end of a call that it awaits."""
        state = self._state
        if state is None or self.has_to_do():
            return True
        return bool(self._completions or self._futures or self._postponed or state.unfed)

    def awaited(self) -> Iterable[Started]:
        """The calls that it awaits, without those in worker threads."""
        yield from (self._tasks or {}).values()
        yield from (receiving.started for receiving in self._receiving)

    def give_up(self, entry: Started) -> None:
        """Stop waiting for this value, which never comes; the node counts as not run."""
        receiving = next((each for each in self._receiving if each.started == entry), None)
        if receiving is not None:
            self._receiving.remove(receiving)
            self._complete(lambda: self.state.node_ended(entry[1]))
            return
        assert self._tasks is not None
        awaited = next(task for task, started in self._tasks.items() if started == entry)
        del self._tasks[awaited]
        awaited.cancel()
        self._complete(lambda: self.state.node_ended(entry[1]))

    def finish(self) -> None:
        """End it: none of the values that it awaits will come."""
        for entry in [*self.awaited()]:
            self.give_up(entry)
        self._complete(self.state.finish)

    def held_open(self) -> Iterable[int]:
        """As `PropagatorState.held_open`."""
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

        queued.when_done(lambda: self._complete(done))
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

    def _complete(self, event: Callable[[], None]) -> None:
        """Call `event`, which accounts for something that ended outside, when this execution has its turn."""
        self._completions.append(event)
        self.wake()

    # Running nodes

    def _run_slice(self, state: PropagatorState, end: float) -> None:
        """Run ready nodes until none is left or the slice is over.

        This loop makes up a step's overhead per node.  So it runs plain nodes of one and two inputs, and delivers
        their outputs, in place; it calls methods for everything else.
        """
        active = state.active
        environment = self.environment
        worth_measuring, small = environment.slices.budget.measured_seconds, state.small
        one, two = (1, 2) if environment.tracer is None else (-1, -1)  # a traced step takes the slow path
        now = perf_counter()
        if now >= end and any(_has_work(iteration) for iteration in active):
            return
        self._turn_began = now
        while active:
            iteration = active.pop()
            iteration.queued = False
            args, pending, ready, dying = iteration.args, iteration.pending, iteration.ready, iteration.dying
            until = end
            while True:
                while ready:
                    if now >= until:
                        if _has_work(iteration):
                            state.activate(iteration)
                            return
                        until = _NEVER  # taking values makes no work: asked for each, it would be quadratic
                    node = ready.pop()
                    before = now
                    inputs: Any = None
                    compute: Any = None
                    try:
                        if node.arity == two:
                            first = node.first
                            inputs = (args[first], args[first + 1])
                            args[first] = args[first + 1] = None
                        elif node.arity == one:
                            first = node.first
                            inputs = (args[first],)
                            args[first] = None
                        else:
                            if node.transfers and two == 2:
                                self._run_transfer(iteration, node)
                            else:
                                self._run_node(iteration, node)
                            now = perf_counter()
                            continue
                        compute = node.compute
                        check = node.check
                        if check == 3 and not outgrow(inputs[0], inputs[1], small):
                            check = 1
                        if check and (state.careful or check >= 2):
                            if node.forwards:
                                compute = forwarding(node, inputs)
                            if heavy_ns(node, inputs):
                                self._offload(iteration, node, inputs, compute)
                                continue
                        out = compute(*inputs)
                        now = perf_counter()
                        if now - before > worth_measuring:
                            correct_estimate(node, inputs, (now - before) * 1e9)
                        inputs = compute = None  # dropped before the output travels on
                        if type(out) is not ndarray and (type(out) is tuple or out is None):
                            state.node_done(iteration, node, out)
                            continue
                        try:
                            if not 0 < out.size <= small:  # without elements it may have many rows
                                state.careful = True
                        except AttributeError:
                            check_outputs(node, out)
                            raise
                        for consumer, index, slot in node.edges:
                            args[slot] = out
                            left = pending[index] - 1
                            pending[index] = left
                            if not left:
                                if iteration.dead is None:
                                    ready.append(consumer)
                                else:
                                    iteration.became_ready(consumer, index)
                        if node.has_tail:
                            iteration.propagate_tail(node, out)
                        out = None  # from here on only the consumers have it
                    except InlineCallError as reason:
                        self._run_later(iteration, node, inputs, reason)
                    except BaseException as error:
                        self._node_failed(node, inputs, error)
                        return
                if not dying:
                    break
                node = dying.pop()
                if environment.tracer is not None:
                    environment.tracer.note(node, iteration.frame_iter, "dead")
                state.node_dead(iteration, node)
                now = perf_counter()
                if now >= end:
                    state.activate(iteration)
                    return
            state.settle(iteration)

    def _run_node(self, iteration: IterationState, node: PlanNode) -> None:
        """Run, start or offload a ready node of any kind."""
        inputs = iteration.take(node)
        kind = node.kind
        if kind > Kind.ASYNC:
            if kind == Kind.QUEUED:
                self._enqueue(iteration, node, inputs)
                return
            if self.environment.tracer is not None:
                self.environment.tracer.note(node, iteration.frame_iter, "passed on")
            try:
                self.state.control_flow(iteration, node, inputs)
            except InlineCallError as reason:
                self._run_later(iteration, node, inputs, reason)
            return
        compute = node.compute
        arguments = [self._context(iteration), *inputs] if node.wants_context else inputs
        if node.takes_list:
            arguments = [self._context(iteration), inputs]
        careful = node.check and (self.state.careful or node.check >= 2)
        if careful and node.forwards:
            compute = forwarding(node, inputs)
        if self.environment.tracer is not None:
            assert isinstance(iteration.ready, TimedReady)
            since = iteration.ready.since[node.index]
            compute = self.environment.tracer.wrap(node, compute, iteration.frame_iter, since)
        if kind == Kind.ASYNC:
            self._await(iteration, node, compute(*arguments))
        elif careful and heavy_ns(node, inputs):
            self._offload(iteration, node, inputs, compute, arguments)
        else:
            try:
                out = self._compute(node, compute, arguments, inputs)
            except InlineCallError as reason:
                self._run_later(iteration, node, inputs, reason, compute, arguments)
            else:
                if isinstance(out, AWAITABLE):
                    self._await(iteration, node, out)
                else:
                    self.state.node_done(iteration, node, out)

    def _run_transfer(self, iteration: IterationState, node: PlanNode) -> None:
        """`_run_node` for an untraced Send or Recv.  These compute nothing, so their time is the executor's own."""
        end = node.compute
        if type(end) is RecvEnd:
            receiving = Receiving(self, node, iteration)
            rendezvous = self._rendezvous if end.meet is self._meet else self._meeting(end.meet)
            assert rendezvous is not None
            received = rendezvous.recv_or_wait(end.key_in(iteration.frame_iter), receiving)
            if received is None:
                self._receiving.add(receiving)
                iteration.propagator.node_started(iteration)
                return
            out = end.in_time(end.take(received), self.environment.loop)
        elif node.num_outputs:
            out = end(self._context(iteration))
        else:
            value = iteration.args[node.first]
            iteration.args[node.first] = None
            if type(end) is SendEnd:
                rendezvous = self._rendezvous if end.meet is self._meet else self._meeting(end.meet)
                assert rendezvous is not None
                key = end.key_in(iteration.frame_iter)
                rendezvous.send(key, value, is_dead=value is None, send_args=end.made_on)
            else:
                end(self._context(iteration), value)
            if node.has_tail:
                iteration.propagate_tail(node, None)
            return
        if isinstance(out, AWAITABLE):
            self._await(iteration, node, out)
        else:
            iteration.propagator.node_done(iteration, node, out)

    def _meeting(self, meet: Callable[[StepEnvironment], Rendezvous]) -> Rendezvous:
        self._meet, self._rendezvous = meet, meet(self.environment)
        return self._rendezvous

    def receives(self, receiving: Receiving, outcome: Received | errors.OpError) -> None:
        """Call `received` when this execution has its turn."""
        self._complete(lambda: self.received(receiving, outcome))

    def received(self, receiving: Receiving, outcome: Received | errors.OpError) -> None:
        """Account for a Recv's outcome: a value, or the error that ended the wait.  Ignores one that was given up."""
        try:
            self._receiving.remove(receiving)
        except KeyError:
            return
        node, iteration, _ = receiving.started
        state = iteration.propagator
        state.node_ended(iteration)
        if isinstance(outcome, errors.OpError):
            self._node_failed(node, (), outcome)
            return
        end = node.compute
        assert isinstance(end, RecvEnd)
        try:
            out = end.take(outcome)
            if isinstance(out, Future):
                self._await(iteration, node, end.in_time(out, self.environment.loop))
            else:
                state.node_done(iteration, node, out)
        except Exception as error:
            self._node_failed(node, (), error)

    def _enqueue(self, iteration: IterationState, node: PlanNode, inputs: list[Any]) -> None:
        """Queue a call on the node's device, and deliver its outputs at once as device values."""
        if node.dereference is not None:
            try:
                inputs = node.dereference(inputs)
            except InlineCallError as reason:
                self._run_later(iteration, node, inputs, reason)
                return
        if node.passes_on:
            self.state.node_done(iteration, node, tuple(inputs))
            return
        queued = self._queued or self._queue()
        kernel = node.queued
        assert kernel is not None
        if self.environment.tracer is not None:
            assert isinstance(iteration.ready, TimedReady)
            since = iteration.ready.since[node.index]
            compute = self.environment.tracer.wrap(node, kernel.compute, iteration.frame_iter, since)
            kernel = replace(kernel, compute=compute)
        arguments: list[Any] = inputs
        if node.takes_list:
            arguments = [self._context(iteration), inputs]
        elif node.wants_context:
            arguments = [self._context(iteration), *inputs]
        enqueue = partial(queued.enqueue, node, kernel, frame_iter=iteration.frame_iter)
        if node.variables is None:
            outputs = enqueue(arguments)
        else:
            assert node.queued_on is not None
            try:
                outputs = node.variables.queue(self._context(iteration), inputs, kernel, node.queued_on, enqueue)
            except InlineCallError as reason:
                self._run_later(iteration, node, inputs, reason)
                return
        del inputs, arguments  # the device keeps what it needs
        if isinstance(outputs, PendingOutputs):
            self._await(iteration, node, outputs)
        else:
            self.state.node_done(iteration, node, outputs)

    def _queue(self) -> QueuedCalls:
        """Its queued calls.  Those of a called function are queued, and waited for, with the caller's."""
        if self._queued is None:
            caller = self.caller
            self._queued = (
                QueuedCalls(self.environment.loop, self._queued_failed) if caller is None else caller._queue()
            )
        return self._queued

    def _queued_failed(self, node: PlanNode, error: BaseException) -> None:
        self._complete(lambda: self._node_failed(node, None, error))

    def _run_later(
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
            self._offload(iteration, node, inputs, compute, arguments)
            return
        state, loop = self.state, self.environment.loop

        def ready_again() -> None:
            assert self._postponed is not None
            del self._postponed[reason]
            state.node_ended(iteration)
            iteration.put_back(node, inputs)

        state.node_started(iteration)
        if self._postponed is None:
            self._postponed = {}
        self._postponed[reason] = (node, iteration, perf_counter())
        reason.when_ready(lambda: loop.call_soon_threadsafe(self._complete, ready_again))

    def _compute(
        self, node: PlanNode, compute: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Any]
    ) -> Any:
        """Call a kernel inline; correct its estimate if the call took long."""
        before = perf_counter()
        try:
            out = compute(*arguments)
        except (errors.OpError, InlineCallError):
            raise
        except Exception as error:
            raise as_op_error(node, inputs, error) from error
        elapsed = perf_counter() - before
        # A tracer makes the call take longer than the kernel does.
        if elapsed > current_budget().measured_seconds and self.environment.tracer is None:
            correct_estimate(node, inputs, elapsed * 1e9)
        return out

    def _context(self, iteration: IterationState) -> OpKernelContext:
        context = iteration.context
        if context is None:
            context = iteration.context = OpKernelContext(
                self.environment, self._cancellation, iteration.frame_iter, execution=self
            )
        return context

    def _offload(
        self, iteration: IterationState, node: PlanNode, inputs: Any, compute: Any = None, arguments: Any = None
    ) -> None:
        environment = self.environment
        arguments = tuple(arguments or inputs)
        inputs = list(inputs)  # let go of when the call has ended, which its future outlives

        def done(future: Future[Any]) -> None:
            if self._futures is None or self._futures.pop(future, None) is None:
                return  # abandoned: the execution has ended without it
            self._complete(lambda: self._offload_ended(iteration, node, inputs, future))

        compute = compute or node.compute
        if environment.memory is not None:
            compute = environment.memory.accounted(node, compute)
        future = environment.worker_pool.submit(environment.loop, compute, arguments, done)
        self.state.node_started(iteration)
        if self._futures is None:
            self._futures = {}
        self._futures[future] = (node, iteration, perf_counter())

    def _offload_ended(self, iteration: IterationState, node: PlanNode, inputs: list[Any], future: Future[Any]) -> None:
        self.state.node_ended(iteration)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._node_failed(node, inputs, error)
        elif not self.state.stopping:
            result = future.result()
            out, seconds = result
            result.clear()
            correct_in_thread(node, inputs, seconds * 1e9)
            inputs.clear()
            self._finish_node(iteration, node, out)

    def _await(self, iteration: IterationState, node: PlanNode, awaitable: Any, *, going_on: bool = False) -> None:
        """Wait for a kernel.

        Args:
            going_on: the kernel is in the middle of a function call, whose executions end by their own cancellation
                managers; the task must not be cancelled before they have had a turn.
        """
        self.state.node_started(iteration)
        task: asyncio.Future[Any] = awaitable
        if not isinstance(awaitable, PendingOutputs):
            name = f"step {self.environment.step_id}: run({node.name})"
            task = self.environment.loop.create_task(awaitable, name=name)
        if self._tasks is None:
            self._tasks = {}
        self._tasks[task] = (node, iteration, perf_counter())
        if going_on:
            self._going_on = task

        def ended(_: Any) -> None:
            if self._tasks is not None and task in self._tasks:  # else it was given up
                self._complete(lambda: self._task_ended(iteration, node, task))

        if isinstance(task, PendingOutputs):
            task.when_ended(ended)
        else:
            task.add_done_callback(ended)

    def _task_ended(self, iteration: IterationState, node: PlanNode, task: asyncio.Future[Any]) -> None:
        assert self._tasks is not None
        if self._tasks.pop(task, None) is None:
            return  # it was given up
        state = self.state
        state.node_ended(iteration)
        if task.cancelled():
            if state.stopping:
                return
            # Not by us: the kernel cancelled itself.
            self._node_failed(node, (), errors.CancelledError("the kernel's task was cancelled", derived=True))
            return
        error = task.exception()
        if error is not None:
            if not state.stopping or isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._node_failed(node, (), error)
        elif not state.stopping:
            self._finish_node(iteration, node, task.result())
        elif isinstance(task, PendingOutputs):
            task.give_back()

    def _finish_node(self, iteration: IterationState, node: PlanNode, out: Any) -> None:
        try:
            self.state.node_done(iteration, node, out)
        except Exception as error:
            self._node_failed(node, None, error)

    # Ending

    def _node_failed(self, node: PlanNode, inputs: Any, error: BaseException) -> None:
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
        """Stop before accounting for ended calls, so that a coroutine can give back what nobody will take."""
        self._completions.appendleft(self._cancel_now)
        self.wake()

    def _cancel_now(self) -> None:
        state = self.state
        if state.stopping:
            return
        if not state.outstanding and state.active and not any(map(_has_work, state.active)):
            return  # nothing is left but to take what was fetched
        coroutines = [task for task in self._tasks or () if not isinstance(task, PendingOutputs)]
        if not self._lingered and any(task.done() for task in coroutines):
            # A coroutine that has returned cannot give back what it took: if nothing else is left, the step succeeds.
            self._lingered = True
            self.environment.loop.call_soon(self._complete, self._cancel_now)
            return
        self._stop(self._cancelled_status())

    def _cancelled_status(self) -> BaseException:
        status = self._cancellation.status
        reason = self._cancellation.reason
        if status is not None and reason is not None and reason.source is CancelSource.SESSION_CLOSED:
            waits = [task.cancelled_message for task in self._tasks or () if isinstance(task, PendingOutputs)]
            return closed_during(status, waits).fresh()
        if isinstance(status, errors.OpError):
            return status.fresh()  # several executions may report the same status
        return errors.CancelledError("Run call was cancelled")

    def _stop(self, error: BaseException) -> None:
        """End the execution with `error` as soon as nothing of it can touch shared state."""
        state = self.state
        if not state.fail(error):
            return
        # Whoever waits inside this execution (queues, called functions) is told first.
        status = error.fresh() if isinstance(error, errors.OpError) else errors.CancelledError("Run call was cancelled")
        self._cancellation.start_cancel_with_status(status)
        if self._queued is not None and self.caller is None:
            self._queued.stop()
        for task, (_, iteration, _) in list((self._tasks or {}).items()):
            if isinstance(task, PendingOutputs):
                if task.withdraw():
                    assert self._tasks is not None
                    del self._tasks[task]
                    state.node_ended(iteration)
            elif task is not self._going_on:
                task.cancel()
        for receiving in self._receiving:
            state.node_ended(receiving.started[1])
        self._receiving.clear()
        for future, (node, iteration, _) in list((self._futures or {}).items()):
            if future.cancel() or (not node.touches_state and self.environment.worker_pool.abandon(future)):
                assert self._futures is not None
                if self._futures.pop(future, None) is not None:
                    state.node_ended(iteration)
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


_NEVER = float("inf")


def _has_work(iteration: IterationState) -> bool:
    """True if a node is ready that is not a retval.

    Retvals are taken even if the slice is over: a step that has done its work can no longer be cancelled, and so does
    not lose what it took from a queue.
    """
    return bool(iteration.dying) or any(node.kind != Kind.RETVAL for node in iteration.ready)


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
