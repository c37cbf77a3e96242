"""`WorkerStep`: a task's part of one step: an execution of a registered graph, by the executor of sessions in process.

It ends when nothing of it runs any more.  The values that it has sent are kept for other tasks until the client reports
that the step has ended everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aexec.distributed.cluster_messages import Message, error_fields
from aexec.distributed.worker_graph import WorkerGraph, WorkerGraphOwner
from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager, wait
from aexec.framework.waiting.futures import complete_from, until_done
from aexec.runtime.interpreter.executor import Executor, ExecutorFactory, StepEnvironment
from aexec.runtime.interpreter.partitioned_execution import executor_of
from aexec.runtime.plans.absent_values import NO_VALUE, UNFED
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.threads.slices import SliceClock
from aexec.runtime.threads.worker_pool import WorkerPool

__all__ = ["WorkerStep", "WorkerStepOwner"]


class WorkerStepOwner(WorkerGraphOwner, Protocol):
    """The part of a session that a step uses."""

    handle: str
    task: str
    host: str
    pool: WorkerPool
    slices: SliceClock
    resources: ResourceManager
    state: SessionState
    make_executor: ExecutorFactory
    cancellation: CancellationManager
    memory: SessionMemory

    def rendezvous(self, number: int) -> Rendezvous:
        """The rendezvous of a step."""
        ...

    def ended(self, step: WorkerStep, outcome: Message) -> None:
        """Push the outcome of a step to which the answer was that it runs."""
        ...

    def came_out(self, step: WorkerStep, message: Message) -> None:
        """Push a fetched value of a step in parts."""
        ...


class _Environment(StepEnvironment):
    """The environment of a step whose rendezvous others may have used before."""

    __slots__ = ("session",)

    session: WorkerStepOwner

    def new_rendezvous(self) -> Rendezvous:
        return self.session.rendezvous(self.step_id)


class WorkerStep:
    """A task's part of one step: the execution of a registered graph.

    Args:
        number: the session's number of the step.
        message: the feeds, and how it is to run.

    Attributes:
        number: as given.
        began: when it came, by the loop's clock.
    """

    def __init__(self, session: WorkerStepOwner, number: int, graph: WorkerGraph, message: Message) -> None:
        fields = message.fields
        self._session, self._graph = session, graph
        self.number = number
        self.began = session.loop.time()
        self._fed = {int(at): message.tensor(value) for at, value in fields["feeds"].items()}
        self._in_parts: bool = fields["in_parts"]
        memory, tracer = session.memory.watches(
            number,
            session.resources,
            session.host,
            trace=fields.get("trace", False),
            report=fields.get("report", False),
        )
        self._traces: bool = fields.get("trace", False)
        self._environment = _Environment(
            session.loop,
            session.pool,
            session.slices,
            session.resources,
            CancellationManager(session.cancellation),
            session.state,
            session.make_executor,
            tracer,
            number,
            memory,
            transport=session.config.transport,
        )
        self._environment.session = session
        self._execution: Executor | None = None
        self._task: asyncio.Task[None] | None = None
        self._outcome: Message | None = None
        # Completed if the step ends while `outcome_within` waits.
        self._soon: asyncio.Future[None] | None = None
        self._is_told = False

    def launch(self) -> None:
        """Run it in a task of its own."""
        self._task = self._session.loop.create_task(self._run(), name=f"step {self.number} at {self._session.task}")

    @property
    def done(self) -> bool:
        """True if nothing of it runs any more."""
        return self._outcome is not None

    async def outcome_within(self, seconds: float) -> Message | None:
        """The step's outcome, if it ends within `seconds`; else None, and the outcome is pushed when it ends."""
        loop = self._session.loop
        self._soon = loop.create_future()
        timer = loop.call_later(seconds, self._end_soon)
        try:
            await self._soon
        finally:
            timer.cancel()
            self._is_told = self._outcome is None
        return self._outcome

    def _end_soon(self) -> None:
        if self._soon is not None and not self._soon.done():
            self._soon.set_result(None)

    def cancel(self, status: errors.OpError) -> None:
        """Cancel it with this error."""
        self._environment.cancellation.start_cancel_with_status(status)

    def feed(self, values: Mapping[int, Any]) -> None:
        """Feed some of the values that were missing when it began."""
        if self._execution is None:
            self._fed.update(values)
            return
        for index, value in values.items():
            self._execution.feed(self._graph.feeds[index], value)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` when it has ended."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: callback())

    async def until_done(self) -> None:
        """Wait for its end."""
        assert self._task is not None
        await until_done(self._task)

    def close(self) -> None:
        """Release everything; called when nothing needs the step any more."""
        if self._environment.memory is not None:
            self._environment.memory.close()
        self._environment.close()
        self._environment.cancellation.close()

    async def _run(self) -> None:
        outcome = Message({"session": self._session.handle, "step": self.number, "task": self._session.task})
        try:
            results = await self._execute()
            types = self._graph.fetch_types
            outcome.fields["results"] = {
                str(index): None if results[at] is NO_VALUE else outcome.put_tensor(results[at], types[at])
                for index, at in self._graph.fetches.items()
            }
        except asyncio.CancelledError:
            status = self._environment.cancellation.status or errors.CancelledError("Run call was cancelled")
            outcome.fields["failed"] = error_fields(status)
        except errors.OpError as error:
            outcome.fields["failed"] = error_fields(error)
        except Exception as error:
            outcome.fields["failed"] = error_fields(errors.InternalError(f"{type(error).__name__}: {error}"))
        if "failed" in outcome.fields:
            # Whoever waits for its values is told why they do not come.
            status = errors.CancelledError("Run call was cancelled", derived=True)
            self._environment.cancellation.start_cancel_with_status(status)
            self._session.rendezvous(self.number).start_abort(status)
            outcome.frames.clear()
        await self._tell_trace(outcome)
        self._outcome = outcome
        self._end_soon()
        if self._is_told:
            self._session.ended(self, outcome)

    async def _tell_trace(self, outcome: Message) -> None:
        tracer = self._environment.tracer
        if not self._traces or tracer is None:
            return
        await tracer.settle()
        stats = tracer.to_proto()
        if stats is not None:
            outcome.fields["stats"] = len(outcome.frames)
            outcome.frames.append(stats.SerializeToString())

    async def _execute(self) -> list[Any]:
        environment, graph = self._environment, self._graph
        plan = graph.planned or await self._planned()
        told = self._told if self._in_parts else None
        self._execution = executor_of(plan, environment, environment.cancellation, told)
        fed, self._fed = self._fed, {}
        results = await self._execution.run([fed.get(index, UNFED) for index in graph.feeds])
        if environment.kept_tensors is not None:
            self._session.state.add_tensors(environment.kept_tensors.owned_tensors(graph.fetch_names))
        return results

    async def _planned(self) -> Plan | PartitionedPlan:
        cancellation = self._environment.cancellation
        planning = self._session.loop.create_task(self._graph.plan())
        waiter: asyncio.Future[Plan | PartitionedPlan] = self._session.loop.create_future()
        complete_from(planning, waiter)
        try:
            return await wait(cancellation, waiter, "Run call was cancelled")
        except errors.CancelledError:
            if cancellation.status is not None:
                raise cancellation.status.fresh() from None
            raise
        finally:
            if not planning.done():
                planning.cancel()
                await until_done(planning)

    def _told(self, position: int, value: Any) -> None:
        index = next(index for index, at in self._graph.fetches.items() if at == position)
        message = Message({"session": self._session.handle, "step": self.number, "task": self._session.task})
        dtype = self._graph.fetch_types[position]
        message.fields |= {"index": index, "tensor": None if value is NO_VALUE else message.put_tensor(value, dtype)}
        self._session.came_out(self, message)

    def __repr__(self) -> str:
        return f"<WorkerStep {self.number} at {self._session.task}>"
