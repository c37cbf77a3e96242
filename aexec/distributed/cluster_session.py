"""`ClusterSession`: a session whose nodes run on the tasks of a cluster; the master, in TensorFlow's terms.

It is the session of `aexec/runtime/session/session.py` with other devices, another planner and another executor; steps,
deadlines, partial runs and the rest are the same code.  It keeps track of the tasks: which graphs they have, which
executions of steps are there, which tasks are lost.  Each task is pinged a few times per lease, which also tells it
that the client lives.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import Message as ProtoMessage

from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.cluster_messages import Message
from aexec.distributed.cluster_planner import ClusterPlanner, RemotePlan
from aexec.distributed.cluster_spec import ClusterSpec
from aexec.distributed.cluster_tracer import ClusterTracer
from aexec.distributed.engine import Engine
from aexec.distributed.remote_device import RemoteDevice
from aexec.distributed.remote_execution import RemoteExecution
from aexec.distributed.task import ClusterTask
from aexec.distributed.worker_session import CONFIG_FIELDS
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.html_repr import block
from aexec.framework.state.resource_manager import DEFAULT_CONTAINER, ResourceManager
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.graph.graph import Graph
from aexec.queues.session_queue import Queue
from aexec.runtime.config import SessionConfig
from aexec.runtime.interpreter.execution import Execution
from aexec.runtime.interpreter.executor import Executor, StepEnvironment
from aexec.runtime.interpreter.memory_accountant import StepMemory
from aexec.runtime.planning.planner import Planner
from aexec.runtime.plans.absent_values import NO_VALUE, OnResult
from aexec.runtime.profiling.tracing import StepTracer
from aexec.runtime.session.run_types import Source
from aexec.runtime.session.session import Session
from aexec.runtime.session.session_memory import SessionMemory

__all__ = ["ClusterSession", "check_config", "open_at", "open_tasks"]

logger = logging.getLogger("aexec")

# Pings per lease; and leases without a ping after which a task gives up its client.
_PINGS, _CLIENT_LEASES = 4, 10
# Longest time in seconds until a task is told that a step has ended everywhere.
_TELL_SECONDS = 0.05
# Seconds between two looks for workers that can replace lost ones.
_LOOK_SECONDS = 0.1


_REFUSED = (
    "memory_account",
    "log_memory",
    "capture_graphs",
    "transport",
    "build_cost_model",
)


def check_config(config: SessionConfig) -> None:
    """Raise UnimplementedError for a setting that a session across machines would ignore."""
    for name in _REFUSED:
        if getattr(config, name):
            raise errors.UnimplementedError(f"{name} is not supported in a session across machines: leave it out")


async def open_tasks(connection: ClusterConnection, handle: str, config: SessionConfig) -> dict[str, ClusterTask]:
    """Open a session on the workers; return its tasks by name.

    Raises:
        UnavailableError: there are too few workers, or one is lost.
        UnimplementedError: a setting that would be ignored.
    """
    check_config(config)
    engine = connection.engine
    addresses = ClusterSpec(config.cluster).resolve(await engine.workers())
    if not addresses:
        raise errors.UnavailableError("The cluster has no workers")
    return await open_at(connection, handle, config, addresses, addresses)


async def open_at(
    connection: ClusterConnection,
    handle: str,
    config: SessionConfig,
    addresses: Mapping[str, str],
    opened: Iterable[str],
) -> dict[str, ClusterTask]:
    """Open a session on the workers of some tasks.

    Args:
        addresses: of all tasks, by name.
        opened: names of the tasks to open it on.

    Raises:
        UnavailableError: one is lost.
    """
    tasks = {name: ClusterTask(name, addresses[name], secrets.randbits(62) + 1) for name in opened}
    fields = {
        "session": handle,
        "tasks": dict(addresses),
        "client_lease": connection.lease * _CLIENT_LEASES,
        "config": {name: _plain(getattr(config, name)) for name in CONFIG_FIELDS},
    }

    async def open_one(task: ClusterTask) -> None:
        message = Message({**fields, "task": task.name, "incarnation": task.incarnation})
        asked = time.time_ns()
        answer = await connection.engine.call(task.address, "open_session", message)
        task.clock_told(asked, answer.fields["clock"], time.time_ns())
        task.devices = [
            RemoteDevice(name, kind, task.incarnation, is_host=is_host)
            for name, kind, is_host in answer.fields["devices"]
        ]

    await asyncio.gather(*map(open_one, tasks.values()))
    return tasks


def _named(devices: Iterable[Device]) -> list[str]:
    return [device.name for device in devices]


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | None):
        return value
    return dict(value) if hasattr(value, "keys") else list(value)


class _TasksMemory(SessionMemory):
    """Makes no accountants: the tasks enforce the limits; the client's tracer only collects what tasks report."""

    def watches(
        self, step_id: int, resources: ResourceManager, device: str, *, trace: bool, report: bool
    ) -> tuple[StepMemory | None, StepTracer | None]:
        return None, ClusterTracer(trace=trace, report=report) if trace or report else None


class ClusterSession(Session):
    """A session whose nodes run on the tasks of a cluster: the client's side of it.

    `Session(graph, target="dask://…")` makes one when it is entered.

    Args:
        graph: a graph, or a MetaGraph.
        connection: to the cluster.
        config: settings.
        handle: the session's name at the workers.
        tasks: the result of `open_tasks`.
        ready: prepares the session, such as by restoring variables; called when it is entered.

    Attributes:
        engine: reaches the tasks.
        tasks: by name.
    """

    def __init__(
        self,
        graph: Source,
        connection: Any = None,
        config: SessionConfig | ProtoMessage | None = None,
        handle: str = "",
        tasks: dict[str, ClusterTask] | None = None,
        ready: Callable[[Session], Awaitable[None]] | None = None,
    ) -> None:
        self._ready = ready
        self._connection: ClusterConnection = connection
        self.engine: Engine = connection.engine
        self.handle = handle
        self.tasks = tasks or {}
        self._executions: dict[tuple[int, str], RemoteExecution] = {}
        # Steps in flight: id in the session → (number at the tasks, names of the tasks that know it).
        self._numbers: dict[int, tuple[int, set[str]]] = {}
        self._next_number = itertools.count(1)
        self._over: dict[str, list[int]] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._registering: dict[tuple[str, str], asyncio.Task[None]] = {}
        # (task, name of a graph) → the plans that use the graph.
        self._users: dict[tuple[str, str], weakref.WeakSet[RemotePlan]] = {}
        self._pinging: set[asyncio.Task[None]] = set()
        self._recovering = asyncio.Lock()
        self._entering = asyncio.Lock()
        self._entered = False
        super().__init__(graph, "", config)
        self._steps.make_executor = self._executor
        self._steps.on_ended = self._step_ended
        self.engine.on_lost(self._lost)
        connection.handler = self._handle

    def __new__(cls, *args: Any, **kwargs: Any) -> ClusterSession:
        return object.__new__(cls)

    def own_loop(self, is_alone: Callable[[], bool]) -> None:
        """Nothing: values of the tasks come by its loop, for which slices stay short."""

    def _make_devices(self) -> tuple[Device, ...]:
        found = [device for task in self.tasks.values() for device in task.devices]
        filters = [DeviceName.parse(each) for each in self.config.device_filters]
        if filters:
            found = [d for d in found if any(each.matches(DeviceName.parse(d.name)) for each in filters)]
        if not any(device.is_host for device in found):
            raise errors.InvalidArgumentError(
                f"device_filters {list(self.config.device_filters)} leave no device that computes in host memory"
            )
        order = list(dict.fromkeys(device.type for device in found))
        return tuple(sorted(found, key=lambda device: order.index(device.type)))

    def _make_limits(self) -> SessionMemory:
        return _TasksMemory(self.config)

    def _make_planner(self, graph: Graph) -> Planner:
        return ClusterPlanner(graph, self._devices, self.config)

    async def __aenter__(self) -> Session:
        loop = self._check_usable()
        async with self._entering:
            if not self._entered:
                await self._enter(loop)
        return self

    async def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in self.tasks.values():
            self._keep_pinging(task, loop)
        await super().__aenter__()
        try:
            await self._make_ready()
        except BaseException:
            await self.close()
            raise
        self._entered = True

    async def _make_ready(self) -> None:
        if self._ready is not None:
            await self._ready(self)

    def _keep_pinging(self, task: ClusterTask, loop: asyncio.AbstractEventLoop) -> None:
        pinging = loop.create_task(self._ping(task), name=f"ping {task.name}")
        self._pinging.add(pinging)
        pinging.add_done_callback(self._pinging.discard)

    async def _ping(self, task: ClusterTask) -> None:
        while not task.lost:
            try:
                asked = time.time_ns()
                answer = await self.engine.call(task.address, "ping", Message({"session": self.handle}))
                task.clock_told(asked, answer.fields["clock"], time.time_ns())
                task.steps_told(answer.fields["steps"])
            except errors.NotFoundError as error:
                self.task_lost(task, f"it was started anew, or has given up the session ({error.message})")
            except errors.UnavailableError as error:
                self.task_lost(task, error.message)
            await asyncio.sleep(self._connection.lease / _PINGS)

    def _executor(
        self,
        plan: Any,
        environment: StepEnvironment,
        cancellation: CancellationManager,
        on_result: OnResult | None = None,
    ) -> Executor:
        if isinstance(plan, RemotePlan):
            return RemoteExecution(self, self._task_of(plan), plan, environment, cancellation, on_result)
        return Execution(plan, environment, cancellation, on_result)  # only passes feeds to fetches

    def _task_of(self, plan: RemotePlan) -> ClusterTask:
        """The task that runs a plan in a step that begins now."""
        return self.tasks[plan.task]

    # For executions

    @property
    def oldest_step(self) -> int:
        """A lower bound of the numbers of steps in flight."""
        return min((number for number, _ in self._numbers.values()), default=0)

    def execution_begins(self, execution: RemoteExecution, step_id: int) -> int:
        """Record that an execution begins; return the step's number at the tasks."""
        number, there = self._numbers.setdefault(step_id, (0, set()))
        if not number:
            number = next(self._next_number)
            self._numbers[step_id] = (number, there)
        there.add(execution.task.name)
        execution.task.in_flight += 1
        self._executions[number, execution.task.name] = execution
        if execution.task.lost:
            execution.lost(execution.task.lost)
        return number

    def execution_ends(self, execution: RemoteExecution) -> None:
        """Record that an execution has ended, or that its task is lost."""
        execution.task.in_flight -= 1
        self._executions.pop((execution.number, execution.task.name), None)

    async def register_graph(self, task: ClusterTask, plan: RemotePlan) -> None:
        """Send a task a graph, unless it has it.

        Raises:
            UnavailableError: the task is lost.
        """
        if task.lost:
            raise errors.UnavailableError(task.lost)
        key = (task.name, plan.name)
        self._note_user(key, plan)
        if plan.name in task.registered:
            return
        registering = self._registering.get(key)
        if registering is None:
            registering = asyncio.get_running_loop().create_task(self._register(task, plan))
            self._registering[key] = registering
            registering.add_done_callback(lambda _: self._registering.pop(key))
        await asyncio.shield(registering)

    async def _register(self, task: ClusterTask, plan: RemotePlan) -> None:
        fields = {"session": self.handle, "graph": plan.name, "targets": plan.targets, "in_parts": plan.in_parts}
        await self.engine.call(task.address, "register_graph", Message({**fields, "data": 0}, [plan.graph]))
        task.registered.add(plan.name)

    def _note_user(self, graph: tuple[str, str], plan: RemotePlan) -> None:
        """Record that a plan uses a graph while it lives; several plans may have the same graph."""
        users = self._users.get(graph)
        if users is None:
            users = self._users[graph] = weakref.WeakSet()
        if plan not in users:
            users.add(plan)
            assert self._life.loop is not None
            weakref.finalize(plan, _plan_is_gone, weakref.ref(self), self._life.loop, *graph).atexit = False

    def plan_is_gone(self, task: str, name: str) -> None:
        """Called when a plan no longer uses a graph of a task: the task drops the graph if no other plan does."""
        if any(True for _ in self._users.get((task, name), ())):
            return
        self._users.pop((task, name), None)
        found = self.tasks.get(task)
        if found is not None and name in found.registered:
            found.registered.discard(name)
            self.engine.push(found.address, "deregister_graph", Message({"session": self.handle, "graph": name}))

    def _step_ended(self, step_id: int) -> None:
        """Tell tasks that a step has ended everywhere."""
        number, there = self._numbers.pop(step_id, (0, set[str]()))
        for name in there:
            # Sent with the next step that the task runs, or alone if none comes soon.
            self._over.setdefault(name, []).append(number)
        if there and self._telling is None and self._life.loop is not None:
            self._telling = self._life.loop.call_later(_TELL_SECONDS, self._tell_over)

    def pop_ended_steps(self, task: str) -> list[int]:
        """Take the numbers of ended steps that the task has not been told of; the caller tells it."""
        return self._over.pop(task, [])

    def _tell_over(self) -> None:
        self._telling = None
        for name in list(self._over):
            fields = {"session": self.handle, "over": self.pop_ended_steps(name)}
            if name in self.tasks:
                self.engine.push(self.tasks[name].address, "cleanup_steps", Message(fields))

    # From tasks

    async def _handle(self, sender: str, verb: str, message: Message) -> Message | None:
        fields = message.fields
        execution = self._executions.get((fields["step"], fields["task"]))
        if execution is None or fields["session"] != self.handle:
            return None  # it was given up
        if verb == "step_ended":
            execution.ended(message)
        elif verb == "step_value":
            value = message.tensor(fields["tensor"])
            execution.came_out(fields["index"], NO_VALUE if value is None else value)
        else:
            raise errors.InvalidArgumentError(f"A client knows no verb '{verb}'")
        return None

    def _lost(self, address: str, why: str) -> None:
        for task in list(self.tasks.values()):
            if task.address == address:
                self.task_lost(task, why)

    def task_lost(self, task: ClusterTask, why: str) -> None:
        """Fail the steps that need the task, and tell other tasks not to wait for it."""
        if task.lost:
            return
        task.lost = why
        logger.info("session %s: %s at %s is lost: %s", self.handle, task.name, task.address, why)
        self._tell_others(task)
        for execution in list(self._executions.values()):
            if execution.task is task:
                execution.lost(why)

    def _tell_others(self, task: ClusterTask) -> None:
        """Tell other tasks that this one is lost."""
        # Others may be waiting for it, such as for a value of a part that had already succeeded.
        for other in self.tasks.values():
            if not other.lost:
                fields = {"session": self.handle, "task": task.name, "why": task.lost}
                self.engine.push(other.address, "task_lost", Message(fields))

    # For users

    async def recover(self, timeout: float = 30.0) -> Sequence[str]:
        """Replace lost tasks by other workers, restarted or added since; all steps in flight are cancelled first.

        The new workers get their graphs when steps need them.  Resources of lost tasks are gone: variables there have
        to be initialised, or restored from a checkpoint, before steps use them.

        Args:
            timeout: seconds to wait for workers.

        Returns:
            the names of the tasks that were lost.

        Raises:
            DeadlineExceededError: no workers came in this time; `recover` may be called again.
            FailedPreconditionError: a worker that would replace a lost one has other devices.
            UnavailableError: a worker was lost meanwhile, and there is no time left for another.
        """
        loop = self._check_usable()
        async with self._recovering:
            lost = [task for task in self.tasks.values() if task.lost]
            opened: dict[str, ClusterTask] = {}
            if lost:
                await self._steps.cancel_all("tasks are recovered")
                opened = await self._opened_elsewhere(lost, loop.time() + timeout)
            for old in lost:
                if _named(old.devices) != (there := _named(opened[old.name].devices)):
                    raise errors.FailedPreconditionError(
                        f"{old.name} had devices {_named(old.devices)}, and {opened[old.name].address} has {there}"
                    )
            # Even if the client lost none: tasks may have lost each other.
            addresses = {name: task.address for name, task in (self.tasks | opened).items()}
            await self._tell_all("update_tasks", {"session": self.handle, "tasks": addresses})
            for task in opened.values():
                self._over.pop(task.name, None)
                self.tasks[task.name] = task
                self._keep_pinging(task, loop)
            return list(opened)

    async def _opened_elsewhere(self, lost: Sequence[ClusterTask], until: float) -> dict[str, ClusterTask]:
        """Lost tasks, by name, opened at workers that are there now."""
        assert self._life.loop is not None
        while True:
            taken = await self._replacements(lost, until)
            addresses = {name: taken.get(name, task.address) for name, task in self.tasks.items()}
            for address in taken.values():
                self.engine.readmit(address)
            try:
                return await open_at(self._connection, self.handle, self.config, addresses, taken)
            except errors.UnavailableError:  # a worker that is still listed, though it is dead
                if self._life.loop.time() >= until:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)

    async def _replacements(self, lost: Sequence[ClusterTask], until: float) -> dict[str, str]:
        """Task → the address of the worker that replaces it."""
        assert self._life.loop is not None
        spec = ClusterSpec(self.config.cluster)
        while True:
            used = {task.address for task in self.tasks.values() if not task.lost}
            free = [address for address in await self.engine.workers() if address not in used]
            taken: dict[str, str] = {}
            for task in lost:
                found = spec.replacement(task.name, task.address, free)
                if found is not None:
                    free.remove(found)
                    taken[task.name] = found
            if len(taken) == len(lost):
                return taken
            if self._life.loop.time() >= until:
                missing = ", ".join(task.name for task in lost if task.name not in taken)
                raise errors.DeadlineExceededError(f"There is no worker that could be {missing} again")
            await asyncio.sleep(_LOOK_SECONDS)

    async def reset(self, containers: Iterable[str] = ()) -> None:
        """Like `Session.reset`, on all tasks."""
        names = tuple(containers) or (DEFAULT_CONTAINER,)
        await super().reset(names)
        fields = {"session": self.handle, "containers": list(names)}
        await self._tell_all("reset", fields)

    async def _tell_all(self, verb: str, fields: dict[str, Any]) -> None:
        calls = [self.engine.call(task.address, verb, Message(fields)) for task in self.tasks.values() if not task.lost]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(
                outcome, errors.UnavailableError | errors.NotFoundError
            ):
                raise outcome

    def _repr_html_(self) -> str:
        return block(f"Session {self.id}", f"{len(self.graph)} nodes, {len(self.tasks)} tasks, {self._facts()}")

    def queue(self, name: str) -> Queue:
        """Refused: the queues are in other processes.

        Raises:
            UnimplementedError: always; run the graph's own ops on them.
        """
        raise errors.UnimplementedError(
            f"Session.queue('{name}') is not supported across machines: the queue is in another process; run enqueue "
            "and dequeue ops of the graph"
        )

    def queues(self) -> dict[str, Queue]:
        """Refused, as `queue`."""
        self.queue("")
        return {}

    async def _close(self, containers: tuple[str, ...]) -> None:
        await super()._close(containers)
        for registering in list(self._registering.values()):
            registering.cancel()
        for pinging in self._pinging:
            pinging.cancel()
        if self._telling is not None:
            self._telling.cancel()
        if self._pinging:
            await asyncio.wait(self._pinging)
        if containers:
            await self._tell_all("reset", {"session": self.handle, "containers": list(containers)})
        await self._tell_all("close_session", {"session": self.handle})
        await self._connection.close()


def _plan_is_gone(session: weakref.ref[ClusterSession], loop: asyncio.AbstractEventLoop, task: str, name: str) -> None:
    """See `ClusterSession.plan_is_gone`; called in any thread."""
    found = session()
    if found is not None and not found.closed and not loop.is_closed():
        loop.call_soon_threadsafe(partial(found.plan_is_gone, task, name))
