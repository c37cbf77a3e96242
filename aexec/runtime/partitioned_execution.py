"""The executor of a plan that is split over devices: one ordinary executor per partition, under one step.

They run beside one another on the step's loop and exchange values through its rendezvous.  The first that fails
aborts the rendezvous and stops the others; the execution is over when all of them are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

from aexec.framework import errors
from aexec.framework.cancellation import CancellationManager
from aexec.framework.futures import until_done
from aexec.runtime.execution import Execution, SharedTurn
from aexec.runtime.executor import (
    ExecutionStatistics,
    Executor,
    OnResult,
    RunningNode,
    StepEnvironment,
    WaitingNode,
)
from aexec.runtime.partitioned_plan import PartitionedPlan
from aexec.runtime.plan import Plan

__all__ = ["executor_of"]


def executor_of(
    plan: Plan | PartitionedPlan,
    environment: StepEnvironment,
    cancellation: CancellationManager,
    on_result: OnResult | None = None,
) -> Executor:
    """What executes a plan once in a step."""
    make = PartitionedExecution if isinstance(plan, PartitionedPlan) else environment.make_executor
    return make(plan, environment, cancellation, on_result)  # type: ignore[arg-type]  # each its own kind of plan


class PartitionedExecution:
    """One execution of a partitioned plan; `run` is called once."""

    def __init__(
        self,
        plan: PartitionedPlan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._cancellation = cancellation
        self._managers = [CancellationManager(cancellation) for _ in plan.plans]
        self._parts: list[Executor] = [
            environment.make_executor(part, environment, manager, on_result if position == plan.host else None)
            for position, (part, manager) in enumerate(zip(plan.plans, self._managers, strict=True))
        ]
        self._together = SharedTurn()
        for part in self._parts:
            if isinstance(part, Execution):
                part.shared_turn = self._together
                self._together.members.append(part)
        # What parts raised, the first of them first; `_was_cancelled`: it was not they who began.
        self._errors: list[BaseException] = []
        self._was_cancelled = False

    @property
    def _host(self) -> Executor:
        return self._parts[self._plan.host]

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        """As `Executor.run`; of several partitions that fail on their own, the error names all."""
        loop, step_id = self._environment.loop, self._environment.step_id
        others = [
            loop.create_task(self._run_part(position, ()), name=f"step {step_id}: {partition.device.name}")
            for position, partition in enumerate(self._plan.partitions)
            if position != self._plan.host
        ]
        try:
            running = self._run_part(self._plan.host, feeds)
            del feeds  # each is dropped as soon as its last consumer has it
            results = await running
            for task in others:
                await self._end_of(task)
        finally:
            for manager in self._managers:
                manager.close()
        if self._errors:
            self._raise()
        return results

    async def _run_part(self, position: int, feeds: Sequence[Any]) -> list[Any]:
        """What a partition fetches; nothing if it fails, or is stopped."""
        running = self._parts[position].run(feeds)
        del feeds
        try:
            return await running
        except BaseException as error:
            # One that has run to its end, but for a result that is dead, is not what stops the others.
            self._failed(
                error, stops=self._managers[position].cancel_requested or not isinstance(error, errors.OpError)
            )
            return []
        finally:
            self._ended(self._parts[position])

    def _ended(self, part: Executor) -> None:
        if isinstance(part, Execution):
            self._together.members.remove(part)
            self._together.stop_if_stuck()

    async def _end_of(self, part: asyncio.Task[list[Any]]) -> None:
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
            status.derived = True  # to whoever is stopped by it
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
        """What the errors of the partitions come to."""
        first = self._errors[0]
        for error in self._errors:
            if not isinstance(error, errors.OpError):
                return error
        roots = [e for e in self._errors if isinstance(e, errors.OpError) and not e.derived]
        if self._was_cancelled or len(roots) < 2:
            return roots[0] if roots else first
        return _summarised(roots, len(self._errors) - len(roots))

    def feed(self, position: int, value: Any) -> None:
        """As `Executor.feed`."""
        self._host.feed(position, value)

    def statistics(self) -> ExecutionStatistics:
        """As `Executor.statistics`, of all partitions together."""
        found = [part.statistics() for part in self._parts]
        return ExecutionStatistics(sum(s.ready for s in found), sum(s.running for s in found))

    def running(self) -> list[RunningNode]:
        """As `Executor.running`, of all partitions together."""
        return sorted((node for part in self._parts for node in part.running()), key=lambda node: node.since)

    def waiting(self) -> list[WaitingNode]:
        """As `Executor.waiting`, of all partitions together."""
        return [node for part in self._parts for node in part.waiting()]

    def unfed(self) -> Sequence[int]:
        """As `Executor.unfed`."""
        return self._host.unfed()


def _summarised(roots: Sequence[errors.OpError], derived: int) -> errors.OpError:
    """One error for several that do not follow from one another: the first's code, and all their messages.

    Args:
        derived: how many more there were that follow from these.
    """
    lines = [f"{len(roots)} root error(s) found."]
    lines += [f"  ({number}) {error.code.name}: {error}" for number, error in enumerate(roots)]
    lines += ["0 successful operations.", f"{derived} derived errors ignored."]
    first = roots[0]
    error = type(first)("\n".join(lines))
    error.__cause__ = first
    return error
