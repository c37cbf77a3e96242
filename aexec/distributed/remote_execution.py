"""`RemoteExecution`: the client's end of an execution at another task.

For the session it is an executor like others (`aexec/runtime/interpreter/executor.py`).  It registers the graph, starts
the step, and waits until the task reports how it has ended; when cancelled, it cancels the step there, and waits as
well.  If the task is lost, it ends with UNAVAILABLE.  Next to read: `worker_step.py`, the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from aexec import proto
from aexec.distributed.cluster_messages import NO_SESSION, Message, error_fields, error_from
from aexec.distributed.cluster_planner import RemotePlan
from aexec.distributed.cluster_tracer import ClusterTracer
from aexec.distributed.engine import Engine
from aexec.distributed.task import ClusterTask
from aexec.framework import errors
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.futures import until_done
from aexec.runtime.interpreter.executor import ExecutionStatistics, StepEnvironment, no_value
from aexec.runtime.plans.absent_values import NO_VALUE, UNFED, OnResult
from aexec.runtime.plans.node_activity import RunningNode, WaitingNode

__all__ = ["RemoteExecution", "RemoteExecutionOwner"]

# The number of nodes that the error of a lost task names.
_NODES_OF_AN_ERROR = 5


class RemoteExecutionOwner(Protocol):
    """The part of a session that an execution uses.

    Attributes:
        engine: reaches the tasks.
        handle: the session's name at the tasks.
    """

    engine: Engine
    handle: str

    @property
    def oldest_step(self) -> int:
        """A lower bound of the numbers of steps in flight."""
        ...

    def pop_ended_steps(self, task: str) -> list[int]:
        """Take the numbers of ended steps that the task has not been told of; the caller tells it."""
        ...

    def execution_begins(self, execution: RemoteExecution, step_id: int) -> int:
        """Record that an execution begins; return the step's number at the tasks."""
        ...

    def execution_ends(self, execution: RemoteExecution) -> None:
        """Record that an execution has ended, or that its task is lost."""
        ...

    def task_lost(self, task: ClusterTask, why: str) -> None:
        """Called when the task does not have the session any more."""
        ...

    async def register_graph(self, task: ClusterTask, plan: RemotePlan) -> None:
        """Send a task a graph, unless it has it.  Raises UnavailableError if the task is lost."""
        ...


class RemoteExecution:
    """The client's end of a partition that another task executes: it starts, awaits and cancels that execution.

    Attributes:
        task: the task that runs it.
        number: the step's number at the tasks.
    """

    def __init__(
        self,
        session: RemoteExecutionOwner,
        task: ClusterTask,
        plan: RemotePlan,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None,
    ) -> None:
        self._session, self._plan = session, plan
        self._environment, self._cancellation = environment, cancellation
        self._on_result = on_result
        self._told: set[int] = set()
        self.task = task
        self.number = 0
        self._ended: asyncio.Future[Message] = environment.loop.create_future()
        self._is_running = False
        self._unfed: set[int] = set()
        self._early: dict[int, Any] = {}

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        """Like `Executor.run`."""
        loop, cancellation = self._environment.loop, self._cancellation
        self.number = self._session.execution_begins(self, self._environment.step_id)
        token = cancellation.get_cancellation_token()
        registered = cancellation.register_callback(token, self._cancelled)
        running = loop.create_task(self._run(feeds), name=f"step {self.number} of {self.task.name}")
        del feeds
        try:
            if not registered:
                self._cancel_there()
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                cancellation.start_cancel_with_status(errors.CancelledError("Run call was cancelled"))
                await until_done(running)
                running.cancelled() or running.exception()  # nothing is left to report it to
                raise
            return self._results(running.result())
        except errors.OpError as error:
            status = cancellation.status
            if status is not None and (error.derived or error_fields(error) == error_fields(status)):
                raise status.fresh() from None
            # Cancelled meanwhile or not, since the cancellation may follow from this very error at another task.
            failure = error.fresh()
            cancellation.start_cancel_with_status(failure.fresh())
            raise failure from None
        finally:
            cancellation.try_deregister_callback(token)
            self._session.execution_ends(self)

    async def _run(self, feeds: Sequence[Any]) -> Message:
        """The task's report of how the execution ended."""
        positions = self._plan.feeds
        self._unfed = {at for at, value in zip(positions, feeds, strict=True) if value is UNFED}
        message = Message()
        message.fields = {
            "session": self._session.handle,
            "graph": self._plan.name,
            "step": self.number,
            "oldest": self._session.oldest_step,
            "in_parts": self._on_result is not None,
            **self._watched(),
            "feeds": {
                str(at): message.put_tensor(value)
                for at, value in zip(positions, feeds, strict=True)
                if value is not UNFED
            },
        }
        del feeds
        try:
            answer = await self._begin(message)
        except errors.UnavailableError as error:
            raise self._lost(error.message) from None
        if not answer.fields.get("running"):
            return answer
        self._is_running = True
        early, self._early = self._early, {}
        for at, value in early.items():
            self._send_feed(at, value)
        return await self._ended

    def _watched(self) -> dict[str, bool]:
        """The settings that tell the task to trace the step."""
        tracer = self._environment.tracer
        return {"trace": tracer.trace, "report": tracer.report} if isinstance(tracer, ClusterTracer) else {}

    async def _begin(self, message: Message) -> Message:
        for _ in range(2):
            try:
                await self._session.register_graph(self.task, self._plan)
                if self._cancellation.cancel_requested:
                    raise self._cancellation.status or errors.CancelledError("Run call was cancelled")
                message.fields["over"] = self._session.pop_ended_steps(self.task.name)
                answer = await self._session.engine.call(self.task.address, "run_step", message)
                self.task.steps_told(answer.fields["steps"])
                return answer
            except errors.NotFoundError as error:
                # It has dropped the graph; or everything, as it was restarted or has not heard of this client.
                self.task.registered.discard(self._plan.name)
                if error.message.startswith(NO_SESSION):
                    self._session.task_lost(self.task, error.message)
                    raise errors.UnavailableError(error.message) from None
        raise errors.UnavailableError("it does not keep what is registered")

    def _results(self, answer: Message) -> list[Any]:
        fields = answer.fields
        if "stats" in fields and isinstance(self._environment.tracer, ClusterTracer):
            stats = proto.StepStats.FromString(bytes(answer.frames[fields["stats"]]))
            self._environment.tracer.add(stats, self.task.clock_offset)
        if "failed" in fields:
            error, status = error_from(fields["failed"]), self._cancellation.status
            if not error.derived and (status is None or fields["failed"] != error_fields(status)):
                error.message = f"From {self.task.name}:\n{error.message}"
            raise error.fresh()
        results = []
        for position, at in enumerate(self._plan.fetches):
            value = answer.tensor(fields["results"][str(at)])
            if value is None and self._on_result is None:
                no_value(position)
            results.append(NO_VALUE if value is None else value)
            self.came_out(at, results[-1])
        return results

    def came_out(self, at: int, value: Any) -> None:
        """Report a fetched value, by its position in the request; may be called twice for one value."""
        if self._on_result is not None and at not in self._told:
            self._told.add(at)
            self._on_result(self._plan.fetches.index(at), value)

    def ended(self, answer: Message) -> None:
        """Called with the task's report that the execution has ended."""
        if not self._ended.done():
            self._ended.set_result(answer)

    def lost(self, why: str) -> None:
        """Called when the task is lost."""
        if not self._ended.done():
            answer = Message({"failed": {**error_fields(self._lost(why)), "derived": False}})
            self._ended.set_result(answer)

    def _lost(self, why: str) -> errors.OpError:
        names = self._plan.nodes
        listed = ", ".join(names[:_NODES_OF_AN_ERROR]) + (", …" if len(names) > _NODES_OF_AN_ERROR else "")
        return errors.UnavailableError(f"{self.task.name} is lost, which was to run {listed}: {why}")

    def _cancelled(self) -> None:
        """Called in the thread that cancels."""
        self._environment.loop.call_soon_threadsafe(self._cancel_there)

    def _cancel_there(self) -> None:
        status = self._cancellation.status or errors.CancelledError("Run call was cancelled")
        fields = {"session": self._session.handle, "step": self.number, "status": error_fields(status)}
        self._session.engine.cancel(self.task.address, Message(fields))

    def feed(self, position: int, value: Any) -> None:
        """Like `Executor.feed`."""
        at = self._plan.feeds[position]
        self._unfed.discard(at)
        if self._is_running:
            self._send_feed(at, value)
        else:
            self._early[at] = value

    def _send_feed(self, at: int, value: Any) -> None:
        message = Message()
        feeds = {str(at): message.put_tensor(value)}
        message.fields = {"session": self._session.handle, "step": self.number, "feeds": feeds}
        self._session.engine.push(self.task.address, "feed_step", message)

    def statistics(self) -> ExecutionStatistics:
        """Like `Executor.statistics`: the running nodes are not known here, so the whole execution counts as one."""
        return ExecutionStatistics(0, int(not self._ended.done()))

    def running(self) -> list[RunningNode]:
        """Like `Executor.running`: none is here."""
        return []

    def waiting(self) -> list[WaitingNode]:
        """Like `Executor.waiting`: none is here."""
        return []

    def unfed(self) -> Sequence[int]:
        """Like `Executor.unfed`."""
        return sorted(self._plan.feeds.index(at) for at in self._unfed)
