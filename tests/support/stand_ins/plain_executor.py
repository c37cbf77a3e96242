"""An executor that shares no code with the default one: simple and slow, with its own bookkeeping.

It keeps for each node of each iteration what has arrived, in a dict, and after every arrival checks the rules of tagged
execution anew to decide whether the node can run.  Kernels that may take long run in threads, whatever their inputs;
the loop gets its turn after each node.  It depends only on the contract, `aexec/runtime/interpreter/executor.py`, and
on the tables of `aexec/runtime/plans/plan.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.types import frame_id_of
from aexec.framework.waiting.cancellation import CancellationManager, CancelSource, closed_during
from aexec.framework.waiting.futures import PendingOutputs
from aexec.framework.waiting.inline_call import InlineCallError, PostponedError
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.runtime.interpreter.executor import ExecutionStatistics, StepEnvironment, as_op_error
from aexec.runtime.plans.absent_values import NO_VALUE, UNFED, OnResult
from aexec.runtime.plans.kernel_outputs import check_outputs
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode
from aexec.runtime.plans.plan import FramePlan, Kind, Plan, PlanNode

__all__ = ["PlainExecution"]

DEAD = NO_VALUE


@dataclass(eq=False)
class Arrived:
    """What has arrived at one node in one iteration."""

    inputs: dict[int, Any]
    controls: int = 0
    dead_controls: int = 0
    first_live: tuple[Any, int] | None = None
    dead_enter: bool = False
    started: bool = False


@dataclass(eq=False)
class Loop:
    """One instance of a frame; the root frame is one too."""

    plan: FramePlan
    parent: Tag | None
    id: int
    arrived: dict[int, dict[PlanNode, Arrived]] = field(default_factory=dict)
    newest: int = 0
    enters: int = 0
    invariants: list[tuple[PlanNode, Any]] = field(default_factory=list)
    held_back: list[tuple[PlanNode, Any]] = field(default_factory=list)
    dead_exits: list[PlanNode] = field(default_factory=list)
    children: dict[tuple[int, str], Loop] = field(default_factory=dict)


Tag = tuple[Loop, int]


class PlainExecution:
    """An execution that checks all rules anew after each arrival: slow, for comparison with the default executor."""

    def __init__(
        self,
        plan: Plan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
    ) -> None:
        self.plan = plan
        self.environment = environment
        self.cancellation = cancellation
        self.on_result = on_result
        self.ready: deque[tuple[Tag, PlanNode, bool]] = deque()
        self.at_work: dict[asyncio.Future[Any], tuple[Tag, PlanNode, list[Any], str, float]] = {}
        self.to_come: set[int] = set()
        self.results: list[Any] = [NO_VALUE] * plan.num_results
        self.error: BaseException | None = None
        self.news = asyncio.Event()
        self.root = Loop(plan.root, None, 0)

    # The contract

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Execute the plan on fed values; return the fetched ones."""
        if self.cancellation.cancel_requested:
            raise self.cause()
        token = self.cancellation.get_cancellation_token()
        loop = self.environment.loop
        if not self.cancellation.register_callback(token, lambda: loop.call_soon_threadsafe(self.news.set)):
            raise self.cause()
        try:
            self.begin_iteration(self.root, 0)
            for position, value in enumerate(feeds):
                if value is UNFED:
                    self.to_come.add(position)
                else:
                    self.send((self.root, 0), self.plan.args[position], (value,))
            while (self.ready or self.at_work or self.to_come) and self.error is None:
                try:
                    await self.one_round()
                except BaseException as error:
                    self.stop(error)
            await self.wait_for_the_rest()
        finally:
            self.cancellation.try_deregister_callback(token)
        if self.error is not None:
            raise self.error
        for position, value in enumerate(self.results):
            if value is NO_VALUE:
                raise errors.InvalidArgumentError(f"Retval[{position}] does not have value")
        return self.results

    def feed(self, position: int, value: Any) -> None:
        """Set the value of a feed that was `UNFED`."""
        if position in self.to_come:
            self.to_come.remove(position)
            self.send((self.root, 0), self.plan.args[position], (value,))
            self.news.set()

    def statistics(self) -> ExecutionStatistics:
        """Return the numbers of ready and running nodes."""
        return ExecutionStatistics(len(self.ready), len(self.at_work))

    def running(self) -> list[RunningNode]:
        """Return the nodes that have started and not ended, oldest first."""
        return [
            RunningNode(node, (loop.id, number), where, since)
            for (loop, number), node, _, where, since in self.at_work.values()
        ]

    def waiting(self) -> list[WaitingNode]:
        """Return the nodes that have some, but not all, of their inputs."""
        found = []
        loops = [self.root]
        while loops:
            loop = loops.pop()
            loops.extend(loop.children.values())
            for number, nodes in loop.arrived.items():
                for node, arrived in nodes.items():
                    names = node.node.input_names()[: len(node.node.inputs)]
                    if not arrived.started and node.kind != Kind.RETVAL and arrived.inputs:
                        present = tuple(names[i] for i in sorted(arrived.inputs))
                        missing = tuple(name for i, name in enumerate(names) if i not in arrived.inputs)
                        found.append(WaitingNode(node, (loop.id, number), present, missing))
        return found

    def unfed(self) -> list[int]:
        """Return the positions of the feeds that are still missing."""
        return sorted(self.to_come)

    # Driving

    async def one_round(self) -> None:
        """Run the ready nodes one by one, or wait for an event."""
        if self.cancellation.cancel_requested:
            raise self.cause()
        if self.ready:
            tag, node, dead = self.ready.popleft()
            self.run_node(tag, node, dead)
            self.end_loops(self.root)
            await asyncio.sleep(0)
            return
        news = self.environment.loop.create_task(self.news.wait())
        try:
            done, _ = await asyncio.wait([news, *self.at_work], return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        self.news.clear()
        if self.cancellation.cancel_requested:
            raise self.cause()
        for future in done & self.at_work.keys():
            tag, node, inputs, _, _ = self.at_work.pop(future)
            self.finish(tag, node, inputs, future)
        self.end_loops(self.root)

    def stop(self, error: BaseException) -> None:
        """Keep the first error, and tell everything that waits inside this execution."""
        if self.error is not None:
            return
        self.error = error
        status = error.fresh() if isinstance(error, errors.OpError) else errors.CancelledError("Run call was cancelled")
        self.cancellation.start_cancel_with_status(status)
        self.ready.clear()
        self.to_come.clear()

    async def wait_for_the_rest(self) -> None:
        """Cancel what can be cancelled, and wait until everything has ended."""
        for future in self.at_work:
            future.cancel()
        while self.at_work:
            try:
                await asyncio.wait(list(self.at_work))
            except asyncio.CancelledError as error:
                self.stop(error)
                continue
            for future in self.at_work:
                if isinstance(future, PendingOutputs) and not future.cancelled() and future.exception() is None:
                    future.give_back()
                elif not future.cancelled():
                    future.exception()
            self.at_work.clear()

    def cause(self) -> BaseException:
        status, reason = self.cancellation.status, self.cancellation.reason
        if status is None:
            return errors.CancelledError("Run call was cancelled")
        if reason is not None and reason.source is CancelSource.SESSION_CLOSED:
            waits = [future.cancelled_message for future in self.at_work if isinstance(future, PendingOutputs)]
            status = closed_during(status, waits)
        return status.fresh()

    # Nodes

    def run_node(self, tag: Tag, node: PlanNode, dead: bool) -> None:
        loop, number = tag
        arrived = loop.arrived[number][node]
        tracer = self.environment.tracer
        if dead:
            if tracer is not None:
                tracer.note(node, (loop.id, number), "dead")
            self.die(tag, node)
            return
        inputs = [arrived.inputs[i] for i in range(node.last - node.first)] if node.kind != Kind.MERGE else []
        inputs = [None if value is DEAD else value for value in inputs]
        arrived.inputs.clear()
        if node.kind > Kind.ASYNC and node.kind != Kind.QUEUED:
            if tracer is not None:
                tracer.note(node, (loop.id, number), "passed on")
            self.move(tag, node, inputs, arrived)
            return
        compute: Callable[..., Any] = node.compute
        if tracer is not None:
            compute = tracer.wrap(node, compute, (loop.id, number), perf_counter_ns())
        context = OpKernelContext(self.environment, self.cancellation, (loop.id, number))
        arguments = [context, inputs] if node.takes_list else [context, *inputs] if node.wants_context else inputs
        if node.kind == Kind.QUEUED:
            if node.dereference is not None:
                inputs = arguments = node.dereference(inputs)
            if node.passes_on:
                self.outputs(tag, node, inputs, tuple(inputs))
                return
            task = self.environment.loop.create_task(_queued(node, context, arguments))
            self.at_work[task] = (tag, node, inputs, "awaited", perf_counter())
            return
        if node.cost and node.kind != Kind.ASYNC:
            self.in_thread(tag, node, inputs, compute, arguments)
            return
        try:
            with np.errstate(all="ignore"):
                out = compute(*arguments)
        except PostponedError as postponed:
            self.postpone(tag, node, inputs, postponed)
        except InlineCallError:
            self.in_thread(tag, node, inputs, compute, arguments)
        except Exception as error:
            raise self.named(node, inputs, error) from error
        else:
            if inspect.iscoroutine(out):
                out = self.environment.loop.create_task(out, name=f"step {self.environment.step_id}: run({node.name})")
            if isinstance(out, asyncio.Future):
                self.at_work[out] = (tag, node, inputs, "awaited", perf_counter())
            else:
                self.outputs(tag, node, inputs, out)

    def in_thread(self, tag: Tag, node: PlanNode, inputs: list[Any], compute: Any, arguments: Sequence[Any]) -> None:
        work = self.environment.worker_pool.run(compute, *arguments, on_cancel=OnCancel.WAIT)
        task = self.environment.loop.create_task(work)
        self.at_work[task] = (tag, node, inputs, "in a thread", perf_counter())

    def postpone(self, tag: Tag, node: PlanNode, inputs: list[Any], postponed: PostponedError) -> None:
        loop, number = tag
        again = self.environment.loop.create_future()
        self.at_work[again] = (tag, node, inputs, "postponed", perf_counter())

        def ready_again() -> None:
            if self.at_work.pop(again, None) is not None and self.error is None:
                loop.arrived[number][node].inputs.update(enumerate(inputs))
                self.ready.append((tag, node, False))
                self.news.set()

        postponed.when_ready(lambda: self.environment.loop.call_soon_threadsafe(ready_again))

    def finish(self, tag: Tag, node: PlanNode, inputs: list[Any], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            raise self.named(node, None, errors.CancelledError("the kernel's task was cancelled", derived=True))
        error = future.exception()
        if error is not None:
            raise self.named(node, inputs, error)
        self.outputs(tag, node, inputs, future.result())

    def outputs(self, tag: Tag, node: PlanNode, inputs: list[Any], out: Any) -> None:
        if out is None and node.never_dead and node.num_outputs:
            self.send(tag, node, (DEAD,))  # a Recv got a dead value
            return
        try:
            check_outputs(node, out)
        except errors.OpError as error:
            raise self.named(node, None, error) from None
        self.send(tag, node, () if not node.num_outputs else out if isinstance(out, tuple) else (out,))

    def named(self, node: PlanNode, inputs: Any, error: BaseException) -> BaseException:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return error
        return self.cause() if self.cancellation.cancel_requested else as_op_error(node, inputs, error)

    # Where values go

    def move(self, tag: Tag, node: PlanNode, inputs: list[Any], arrived: Arrived) -> None:
        """Run a control-flow node, which moves values between outputs, iterations and frames."""
        loop, number = tag
        if node.kind == Kind.MERGE:
            inputs = [arrived.first_live]
        try:
            if node.dereference is not None:
                inputs = node.dereference(inputs)
            if node.kind == Kind.RETVAL:
                value = node.compute(inputs[0])
        except PostponedError as postponed:
            self.postpone(tag, node, inputs, postponed)
            return
        except Exception as error:
            raise self.named(node, inputs, error) from error
        if node.kind == Kind.SWITCH:
            data, predicate = inputs
            if predicate.ndim:
                error = errors.InvalidArgumentError(
                    f"The second input must be a scalar, but it has shape {predicate.shape}"
                )
                raise self.named(node, None, error)
            self.send(tag, node, (DEAD, data) if predicate else (data, DEAD))
        elif node.kind == Kind.MERGE:
            value, position = inputs[0]
            self.send(tag, node, (value, np.int32(position)))
        elif node.kind == Kind.ENTER:
            self.enter(tag, node, inputs[0])
            self.is_over(tag, node)
        elif node.kind == Kind.EXIT:
            assert loop.parent is not None
            self.send(loop.parent, node, (inputs[0],))
        elif node.kind == Kind.NEXT_ITERATION:
            self.next_iteration(loop, number, node, inputs[0])
        else:
            if self.results[node.position] is not NO_VALUE:
                raise errors.InvalidArgumentError(f"Retval[{node.position}] has already been set.")
            self.results[node.position] = value
            if self.on_result is not None:
                self.on_result(node.position, value)
            self.is_over(tag, node)

    def die(self, tag: Tag, node: PlanNode) -> None:
        loop, number = tag
        if node.kind == Kind.ENTER:
            self.enter(tag, node, DEAD)
            self.is_over(tag, node)
        elif node.kind == Kind.EXIT:
            if number == loop.newest:
                loop.dead_exits.append(node)
        elif node.kind == Kind.RETVAL:
            if self.on_result is not None and loop is self.root:
                self.on_result(node.position, NO_VALUE)
            self.is_over(tag, node)
        elif node.kind != Kind.NEXT_ITERATION:
            self.send_dead(tag, node)

    def send_dead(self, tag: Tag, node: PlanNode) -> None:
        self.send(tag, node, (DEAD,) * node.num_outputs, dead=True)

    def send(self, tag: Tag, node: PlanNode, outs: Sequence[Any], *, dead: bool = False) -> None:
        """Deliver outputs (DEAD for dead ones) and control signals in one iteration."""
        for output, out in enumerate(outs):
            for consumer, _, slot in node.slot_edges[output]:
                self.arrive(tag, consumer, slot - consumer.first, out)
        for output, consumer, _, position in node.merge_edges:
            arrived = self.arrived(tag, consumer)
            arrived.dead_enter |= outs[output] is DEAD and node.kind == Kind.ENTER
            if outs[output] is not DEAD and arrived.first_live is None:
                arrived.first_live = (outs[output], position)
            self.arrive(tag, consumer, position, outs[output])
        for consumer, _ in (*node.controls, *node.merge_controls):
            arrived = self.arrived(tag, consumer)
            arrived.controls += 1
            arrived.dead_controls += dead
            self.look_at(tag, consumer)
        if node.kind != Kind.ENTER:
            self.is_over(tag, node)

    def is_over(self, tag: Tag, node: PlanNode) -> None:
        """Note that a node has run or is dead, for the nodes that follow it."""
        for follower, _ in node.followers:
            self.arrived(tag, follower).controls += 1
            self.look_at(tag, follower)

    def arrived(self, tag: Tag, node: PlanNode) -> Arrived:
        loop, number = tag
        nodes = loop.arrived[number]
        if node not in nodes:
            template = loop.plan.args[node.first : node.last]
            nodes[node] = Arrived({i: value for i, value in enumerate(template) if value is not None})
        return nodes[node]

    def arrive(self, tag: Tag, node: PlanNode, position: int, value: Any) -> None:
        self.arrived(tag, node).inputs[position] = value
        self.look_at(tag, node)

    def look_at(self, tag: Tag, node: PlanNode) -> None:
        """Run the node, or declare it dead, if it can be decided now."""
        loop, _ = tag
        arrived = self.arrived(tag, node)
        slots = node.last - node.first
        pending = loop.plan.pending[node.index]
        if arrived.started:
            return
        if node.kind == Kind.MERGE:
            if arrived.controls < pending >> 1:
                return
            if arrived.first_live is not None:
                dead = False
            elif arrived.dead_enter or len(arrived.inputs) == slots:
                dead = True
            else:
                return
        else:
            constants = sum(value is not None for value in loop.plan.args[node.first : node.last])
            if len(arrived.inputs) < slots or arrived.controls < pending - (slots - constants):
                return
            dead = bool(arrived.dead_controls) or any(value is DEAD for value in arrived.inputs.values())
            dead = dead and not node.never_dead
        arrived.started = True
        self.ready.append((tag, node, dead))

    # Frames

    def begin_iteration(self, loop: Loop, number: int) -> None:
        loop.arrived[number] = {}
        loop.newest = number
        loop.dead_exits.clear()
        for node in loop.plan.roots:
            self.look_at((loop, number), node)
        held_back, loop.held_back = loop.held_back, []
        for node, value in (*held_back, *loop.invariants):
            self.send((loop, number), node, (value,), dead=value is DEAD)

    def enter(self, tag: Tag, node: PlanNode, value: Any) -> None:
        parent, number = tag
        assert node.child is not None
        key = (number, node.child.name)
        child = parent.children.get(key)
        if child is None:
            child = Loop(node.child, tag, frame_id_of(parent.id, number, node.child.name))
            parent.children[key] = child
            self.begin_iteration(child, 0)
        child.enters += 1
        if node.is_constant_enter:
            child.invariants.append((node, value))
        for iteration in list(child.arrived) if node.is_constant_enter else [0]:
            self.send((child, iteration), node, (value,), dead=value is DEAD)

    def next_iteration(self, loop: Loop, number: int, node: PlanNode, value: Any) -> None:
        if number < loop.newest:
            self.send((loop, number + 1), node, (value,))
        elif len(loop.arrived) >= loop.plan.parallel_iterations:
            loop.held_back.append((node, value))
        else:
            self.begin_iteration(loop, number + 1)
            self.send((loop, number + 1), node, (value,))

    def end_loops(self, loop: Loop) -> None:
        """Delete iterations without work left, and then loops without iterations."""
        for child in list(loop.children.values()):
            self.end_loops(child)
        while loop.arrived:
            oldest = min(loop.arrived)
            if self.is_busy(loop, oldest):
                return
            del loop.arrived[oldest]
            if loop.held_back:
                self.begin_iteration(loop, loop.newest + 1)
        if loop.parent is None:
            return
        parent, number = loop.parent
        del parent.children[number, loop.plan.name]
        for node in loop.dead_exits:
            self.send_dead(loop.parent, node)

    def is_busy(self, loop: Loop, number: int) -> bool:
        tags = [tag for tag, *_ in self.ready] + [tag for tag, *_ in self.at_work.values()]
        return (
            (number == 0 and loop.enters < loop.plan.num_enters)
            or (loop is self.root and bool(self.to_come))
            or (loop, number) in tags
            or any(iteration == number for iteration, _ in loop.children)
        )


async def _queued(node: PlanNode, context: OpKernelContext, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of a kernel that is queued on a device, after waiting for it."""
    assert node.queued_on is not None
    assert node.queued is not None
    told: list[BaseException] = []
    work = node.queued_on.begin_work(lambda kernel, error: told.append(error))
    enqueue = partial(work.enqueue, node.queued)
    if node.variables is None:
        outputs = enqueue(arguments)
    else:
        outputs = node.variables.queue(context, arguments, node.queued, node.queued_on, enqueue)
    await work.record_event().wait()
    if told:
        raise told[0]
    return tuple([await asyncio.wrap_future(out) if isinstance(out, Future) else out for out in outputs])
