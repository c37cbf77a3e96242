"""`NodeRunner`: makes the calls of ready nodes, in slices of the event loop.

A ready node is run **inline** if it is cheap, **offloaded** to a worker thread if its cost estimate, corrected by
measurement, says that it would hold up the loop, and **awaited** in a task of its own if it is asynchronous.
Next to read: `calls_in_flight.py`, for calls that do not end at once, and `execution.py`, which waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from numpy import ndarray

from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Received, Rendezvous
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.kernel_contract.output_sizes import outgrow
from aexec.framework.kernel_contract.transfer_ends import RecvEnd, SendEnd
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.futures import AWAITABLE, PendingOutputs
from aexec.framework.waiting.inline_call import InlineCallError
from aexec.framework.waiting.loop_budget import current_budget
from aexec.runtime.interpreter.calls_in_flight import CallsInFlight
from aexec.runtime.interpreter.executor import StepEnvironment, as_op_error
from aexec.runtime.interpreter.forwarding import forwarding
from aexec.runtime.interpreter.propagator_state import IterationState, PropagatorState
from aexec.runtime.interpreter.queued_calls import QueuedCalls
from aexec.runtime.interpreter.receiving import Receiving
from aexec.runtime.plans.call_estimates import correct_estimate, heavy_ns
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.plan import Kind, PlanNode
from aexec.runtime.profiling.tracing import TimedReady

__all__ = ["NodeRunner", "has_work"]


class NodeRunner:
    """The part of an execution that makes the calls of ready nodes, and delivers their outputs.

    Attributes:
        environment: what all executions of the step share.
        idle: True while it waits; then a value from another execution lets it continue in that one's turn.
        caller: the execution whose kernel called the function that this one runs; None for the step itself.
    """

    __slots__ = (
        "_calls",
        "_cancellation",
        "_meet",
        "_queued",
        "_rendezvous",
        "_turn_began",
        "caller",
        "environment",
        "idle",
    )

    # The execution's constructor sets them: a call of one here would take a noticeable part of a small step.
    environment: StepEnvironment
    idle: bool
    caller: NodeRunner | None
    _cancellation: CancellationManager
    _turn_began: float  # by `perf_counter`
    _calls: CallsInFlight | None
    _queued: QueuedCalls | None
    # The rendezvous of the last transfer, and the function that found it.
    _meet: Callable[[StepEnvironment], Rendezvous] | None
    _rendezvous: Rendezvous | None

    # For executions to implement

    @property
    def state(self) -> PropagatorState:
        """The propagator state."""
        raise NotImplementedError

    def complete(self, event: Callable[[], None]) -> None:
        """Call `event`, which accounts for something that ended outside, when this execution has its turn."""
        raise NotImplementedError

    def node_failed(self, node: PlanNode, inputs: Any, error: BaseException) -> None:
        """End the execution with the error of a node."""
        raise NotImplementedError

    def wake(self) -> None:
        """Give the execution a turn, because something outside has happened to it."""
        raise NotImplementedError

    # Running nodes

    @property
    def calls(self) -> CallsInFlight:
        """The calls that have begun and not ended, created by the first one: small steps have none."""
        if self._calls is None:
            self._calls = CallsInFlight(self)
        return self._calls

    def run_slice(self, state: PropagatorState, end: float) -> None:
        """Run ready nodes until none is left or the slice is over.

        Most of a step's overhead per node is in this loop.  So it runs plain nodes of one and two inputs, and delivers
        their outputs, itself; it calls methods for everything else.
        """
        active = state.active
        environment = self.environment
        worth_measuring, small = environment.slices.budget.measured_seconds, state.small
        one, two = (1, 2) if environment.tracer is None else (-1, -1)  # a traced step takes the slow path
        now = perf_counter()
        if now >= end and any(has_work(iteration) for iteration in active):
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
                        if has_work(iteration):
                            state.activate(iteration)
                            return
                        until = _NEVER  # retvals make no new work; checking for each would take quadratic time
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
                                self.calls.offload(iteration, node, inputs, compute)
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
                        out = None  # only the consumers have it from here on
                    except InlineCallError as reason:
                        self.calls.run_later(iteration, node, inputs, reason)
                    except BaseException as error:
                        self.node_failed(node, inputs, error)
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
                self.calls.run_later(iteration, node, inputs, reason)
            return
        compute = node.compute
        arguments = [self.context(iteration), *inputs] if node.wants_context else inputs
        if node.takes_list:
            arguments = [self.context(iteration), inputs]
        careful = node.check and (self.state.careful or node.check >= 2)
        if careful and node.forwards:
            compute = forwarding(node, inputs)
        if self.environment.tracer is not None:
            assert isinstance(iteration.ready, TimedReady)
            since = iteration.ready.since[node.index]
            compute = self.environment.tracer.wrap(node, compute, iteration.frame_iter, since)
        if kind == Kind.ASYNC:
            self.calls.wait_for(iteration, node, compute(*arguments))
        elif careful and heavy_ns(node, inputs):
            self.calls.offload(iteration, node, inputs, compute, arguments)
        else:
            try:
                out = self._compute(node, compute, arguments, inputs)
            except InlineCallError as reason:
                self.calls.run_later(iteration, node, inputs, reason, compute, arguments)
            else:
                if isinstance(out, AWAITABLE):
                    self.calls.wait_for(iteration, node, out)
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
                self.calls.receiving.add(receiving)
                iteration.propagator.node_started(iteration)
                return
            out = end.in_time(end.take(received), self.environment.loop)
        elif node.num_outputs:
            out = end(self.context(iteration))
        else:
            value = iteration.args[node.first]
            iteration.args[node.first] = None
            if type(end) is SendEnd:
                rendezvous = self._rendezvous if end.meet is self._meet else self._meeting(end.meet)
                assert rendezvous is not None
                key = end.key_in(iteration.frame_iter)
                rendezvous.send(key, value, is_dead=value is None, send_args=end.made_on)
            else:
                try:
                    end(self.context(iteration), value)
                except InlineCallError as reason:  # the value is a variable's, which a thread writes or must copy
                    self.calls.run_later(iteration, node, [value], reason, arguments=[self.context(iteration), value])
                    return
            if node.has_tail:
                iteration.propagate_tail(node, None)
            return
        if isinstance(out, AWAITABLE):
            self.calls.wait_for(iteration, node, out)
        else:
            iteration.propagator.node_done(iteration, node, out)

    def _meeting(self, meet: Callable[[StepEnvironment], Rendezvous]) -> Rendezvous:
        self._meet, self._rendezvous = meet, meet(self.environment)
        return self._rendezvous

    def receives(self, receiving: Receiving, outcome: Received | errors.OpError) -> None:
        """Call `received` when this execution has its turn."""
        self.complete(lambda: self.received(receiving, outcome))

    def received(self, receiving: Receiving, outcome: Received | errors.OpError) -> None:
        """Account for a Recv's outcome: a value, or the error that ended the wait.  Ignores one that was given up."""
        try:
            self.calls.receiving.remove(receiving)
        except KeyError:
            return
        node, iteration, _ = receiving.started
        state = iteration.propagator
        state.node_ended(iteration)
        if isinstance(outcome, errors.OpError):
            self.node_failed(node, (), outcome)
            return
        end = node.compute
        assert isinstance(end, RecvEnd)
        try:
            out = end.take(outcome)
            if isinstance(out, Future):
                self.calls.wait_for(iteration, node, end.in_time(out, self.environment.loop))
            else:
                state.node_done(iteration, node, out)
        except Exception as error:
            self.node_failed(node, (), error)

    def _enqueue(self, iteration: IterationState, node: PlanNode, inputs: list[Any]) -> None:
        """Queue a call on the node's device, and deliver its outputs at once as device values."""
        if node.dereference is not None:
            try:
                inputs = node.dereference(inputs)
            except InlineCallError as reason:
                self.calls.run_later(iteration, node, inputs, reason)
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
            arguments = [self.context(iteration), inputs]
        elif node.wants_context:
            arguments = [self.context(iteration), *inputs]
        enqueue = partial(queued.enqueue, node, kernel, frame_iter=iteration.frame_iter)
        if node.variables is None:
            outputs = enqueue(arguments)
        else:
            assert node.queued_on is not None
            try:
                outputs = node.variables.queue(self.context(iteration), inputs, kernel, node.queued_on, enqueue)
            except InlineCallError as reason:
                self.calls.run_later(iteration, node, inputs, reason)
                return
        del inputs, arguments  # the device keeps what it needs
        if isinstance(outputs, PendingOutputs):
            self.calls.wait_for(iteration, node, outputs)
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
        self.complete(lambda: self.node_failed(node, None, error))

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

    def context(self, iteration: IterationState) -> OpKernelContext:
        context = iteration.context
        if context is None:
            context = iteration.context = OpKernelContext(
                self.environment, self._cancellation, iteration.frame_iter, execution=self
            )
        return context


_NEVER = float("inf")


def has_work(iteration: IterationState) -> bool:
    """True if a node is ready that is not a retval.

    Retvals are taken even if the slice is over: a step that has done its work can no longer be cancelled, and so does
    not lose what it took from a queue.
    """
    return bool(iteration.dying) or any(node.kind != Kind.RETVAL for node in iteration.ready)
