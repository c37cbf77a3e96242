"""The executor of a plan that is split over devices: one ordinary executor per partition, under one step.  Partitions
that share the host's memory are executed as their joint plan, once that is compiled.

The executors run concurrently on the step's loop and exchange values through its rendezvous.  The first that fails
aborts the rendezvous and stops the others; the execution ends when all of them have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

from aexec.framework import errors
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.futures import until_done
from aexec.graph.partitioning.partition import Partition
from aexec.runtime.interpreter.execution import Execution
from aexec.runtime.interpreter.executor import ExecutionStatistics, Executor, StepEnvironment
from aexec.runtime.interpreter.shared_turn import SharedTurn
from aexec.runtime.plans.absent_values import NO_VALUE, OnResult
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan

__all__ = ["executor_of"]


def executor_of(
    plan: Plan | PartitionedPlan,
    environment: StepEnvironment,
    cancellation: CancellationManager,
    on_result: OnResult | None = None,
    caller: Execution | None = None,
) -> Executor:
    """Return the executor that executes a plan once in a step.

    Args:
        caller: of a function: the execution in which a kernel calls it.
    """
    make = environment.make_executor
    if isinstance(plan, PartitionedPlan):
        if not (
            isinstance(make, type) and issubclass(make, Execution) and make.runs_joint(plan, environment, on_result)
        ):
            return PartitionedExecution(plan, environment, cancellation, on_result, caller)
        plan = plan.joint
    made = make(plan, environment, cancellation, on_result)
    if caller is not None and isinstance(made, Execution):
        made.caller = caller
    return made


class PartitionedExecution:
    """One execution of a partitioned plan; `run` is called once."""

    def __init__(
        self,
        plan: PartitionedPlan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
        caller: Execution | None = None,
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._cancellation = cancellation
        self._managers = [CancellationManager(cancellation) for _ in plan.plans]
        self._parts: list[Executor] = [
            environment.make_executor(part, environment, manager, _told_of(partition, on_result))
            for partition, part, manager in zip(plan.partitions, plan.plans, self._managers, strict=True)
        ]
        self._together = SharedTurn()
        for part in self._parts:
            if isinstance(part, Execution):
                part.shared_turn = self._together
                part.caller = caller
                self._together.members.append(part)
        # Errors of the partitions, in order; `_was_cancelled` is True if a cancellation came before the first one.
        self._errors: list[BaseException] = []
        self._was_cancelled = False

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Like `Executor.run`; of several partitions that fail on their own, the error names all."""
        loop, step_id = self._environment.loop, self._environment.step_id
        host, results = self._plan.host, [NO_VALUE] * sum(len(p.fetches) for p in self._plan.partitions)
        fed = [[feeds[position] for position in partition.feeds] for partition in self._plan.partitions]
        del feeds  # values are freed as soon as their last consumer has them
        others = [
            loop.create_task(self._run_part(position, fed, results), name=f"step {step_id}: {partition.device.name}")
            for position, partition in enumerate(self._plan.partitions)
            if position != host
        ]
        try:
            await self._run_part(host, fed, results)
            for task in others:
                await self._end_of(task)
        finally:
            for manager in self._managers:
                manager.close()
        if self._errors:
            self._raise()
        return results

    async def _run_part(self, position: int, fed: list[list[Any]], results: list[Any]) -> None:
        """Run a partition.

        Args:
            fed: the feeds of each partition; this one's are removed from it.
            results: receives the fetched values; nothing if the partition fails or is stopped.
        """
        feeds, fed[position] = fed[position], []
        try:
            running = self._parts[position].run(feeds)
            del feeds
            for fetch, value in zip(self._plan.partitions[position].fetches, await running, strict=True):
                results[fetch] = value
        except BaseException as error:
            # A partition that ran to its end, and only fetched a dead value, does not stop the others.
            self._failed(
                error, stops=self._managers[position].cancel_requested or not isinstance(error, errors.OpError)
            )
        finally:
            self._ended(self._parts[position])

    def _ended(self, part: Executor) -> None:
        if isinstance(part, Execution):
            self._together.members.remove(part)
            self._together.give_up_if_stuck()

    async def _end_of(self, part: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait([part])
        except asyncio.CancelledError as error:
            self._failed(error, stops=True)
            await until_done(part)

    def _failed(self, error: BaseException, *, stops: bool) -> None:
        if not self._errors:
            self._was_cancelled = self._cancellation.cancel_requested
        self._errors.append(error)
        if stops and not self._cancellation.cancel_requested:
            cause = error if isinstance(error, errors.OpError) else errors.CancelledError("Run call was cancelled")
            status = cause.fresh()
            status.derived = True  # for the partitions that it stops
            # This aborts the step's rendezvous too.
            self._cancellation.start_cancel_with_status(status)

    def _raise(self) -> NoReturn:
        error = self._told()
        self._errors = []  # they refer to this execution by their tracebacks
        try:
            raise error from error.__cause__
        finally:
            del error  # which refers to this frame

    def _told(self) -> BaseException:
        """The one error that stands for those of the partitions."""
        first = self._errors[0]
        for error in self._errors:
            if not isinstance(error, errors.OpError):
                return error
        roots = [e for e in self._errors if isinstance(e, errors.OpError) and not e.derived]
        if self._was_cancelled or len(roots) < 2:
            return roots[0] if roots else first
        return _summarised(roots, len(self._errors) - len(roots))

    def feed(self, position: int, value: Any) -> None:
        """Like `Executor.feed`."""
        for partition, part in zip(self._plan.partitions, self._parts, strict=True):
            if position in partition.feeds:
                part.feed(list(partition.feeds).index(position), value)

    def statistics(self) -> ExecutionStatistics:
        """Like `Executor.statistics`, of all partitions together."""
        found = [part.statistics() for part in self._parts]
        return ExecutionStatistics(sum(s.ready for s in found), sum(s.running for s in found))

    def running(self) -> list[RunningNode]:
        """Like `Executor.running`, of all partitions together."""
        return sorted((node for part in self._parts for node in part.running()), key=lambda node: node.since)

    def waiting(self) -> list[WaitingNode]:
        """Like `Executor.waiting`, of all partitions together."""
        return [node for part in self._parts for node in part.waiting()]

    def unfed(self) -> Sequence[int]:
        """Like `Executor.unfed`."""
        parts = zip(self._plan.partitions, self._parts, strict=True)
        return sorted({list(partition.feeds)[i] for partition, part in parts for i in part.unfed()})


def _told_of(partition: Partition, on_result: OnResult | None) -> OnResult | None:
    """A callback for the values that a partition fetches, which maps its positions to the plan's."""
    positions = list(partition.fetches)
    if on_result is None or not positions:
        return None
    return lambda position, value: on_result(positions[position], value)


def _summarised(roots: Sequence[errors.OpError], derived: int) -> errors.OpError:
    """One error for several independent ones, with the first one's code and all messages.

    Args:
        derived: the number of further errors that follow from these.
    """
    lines = [f"{len(roots)} root error(s) found."]
    lines += [f"  ({number}) {error.code.name}: {error}" for number, error in enumerate(roots)]
    lines += ["0 successful operations.", f"{derived} derived errors ignored."]
    first = roots[0]
    error = type(first)("\n".join(lines))
    error.__cause__ = first
    return error
