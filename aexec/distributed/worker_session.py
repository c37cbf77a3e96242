"""`WorkerSession`: a task's part of a session: its graphs, steps, state and devices.

A graph is a client's partition, registered once, and planned here with the planner of sessions in process.  All graphs
of the session share kernels with state, by name, so that each sees the same variables and queues. A message may refer
to a step before it begins, to ask for a value or to cancel it, and after it has ended; the numbers of ended steps are
remembered.  Next to read: `worker_step.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from aexec.devices.device_registry import host_device, make_devices
from aexec.distributed.cluster_messages import Message, error_fields, error_from
from aexec.distributed.cluster_spec import task_of
from aexec.distributed.engine import Engine
from aexec.distributed.worker_graph import WorkerGraph
from aexec.distributed.worker_step import WorkerStep
from aexec.framework import errors
from aexec.framework.device_contract.rendezvous import Done, Received, Rendezvous, parse_key
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.futures import running_loop
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.resources.shared_containers import SharingResourceManager
from aexec.runtime.compiled.compiled_execution import default_executor
from aexec.runtime.config import SessionConfig
from aexec.runtime.interpreter.executor import executor_of_type
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.threads.slices import SliceClock
from aexec.runtime.threads.worker_pool import WorkerPool

__all__ = ["CONFIG_FIELDS", "WorkerSession"]

# Settings of a session that are sent to its tasks.
CONFIG_FIELDS = (
    "inter_op_threads",
    "intra_op_threads",
    "slice_seconds",
    "device_count",
    "memory_limits",
    "share",
    "session_tensor_bytes",
    "executor_type",
    "step_bytes",
    "session_bytes",
    "cache_files",
)


# Seconds for which an answer is held back, so that an outcome that comes soon need not be pushed.
_HELD = 0.05


class WorkerSession:
    """A task's part of a client's session: graphs, steps, state and devices.

    Args:
        engine: reaches other ends.
        client: address of the session's client.
        handle: the session's handle.
        fields: the message that opens it.
        give_up: called with the handle when the client has not been heard of for too long.

    Attributes:
        task: name of this task.
        incarnation: another number each time the client opens it.
    """

    def __init__(
        self, engine: Engine, client: str, handle: str, fields: Mapping[str, Any], give_up: Callable[[str], object]
    ) -> None:
        self.engine, self.client, self.handle = engine, client, handle
        self.task: str = fields["task"]
        self.incarnation: int = fields["incarnation"]
        self.addresses: dict[str, str] = fields["tasks"]
        self._client_lease: float = fields["client_lease"]
        self._give_up = give_up
        self.config = SessionConfig(
            **fields["config"],
            graph_passes=(),
            compile_plans=False,
            place_pruned_graph=True,
            delegates=(),
            transport=lambda step_id, rendezvous: _Transport(self, step_id),
        )
        config = self.config
        self.devices = make_devices(config.device_count, (), config.memory_limits, self.task)
        self.host = host_device(self.devices).name
        self.pool = WorkerPool(config.inter_op_threads, config.intra_op_threads)
        self.slices = SliceClock(LoopBudget(config.slice_seconds), self.pool.helpers)
        self.memory = SessionMemory(config)
        kept = self.memory.kept
        self.resources: ResourceManager = (
            SharingResourceManager(config.share, kept=kept, scope=f"{engine.address}{self.task}/")
            if config.share
            else ResourceManager(kept=kept)
        )
        self.state = SessionState(config.session_tensor_bytes, self.memory.account)
        self.make_executor = (
            executor_of_type(config.executor_type).factory
            if config.executor_type
            else default_executor(compile_plans=False)
        )
        self.cancellation = CancellationManager()
        self.kernels: dict[tuple[str, str], BuiltKernel] = {}
        self._graphs: dict[str, WorkerGraph] = {}
        self._dropping: set[asyncio.Task[None]] = set()
        self._steps: dict[int, WorkerStep] = {}
        self._rendezvous: dict[int, Rendezvous] = {}
        # Number of a step that has not begun → the error that it is cancelled with.
        self._cancelled: dict[int, errors.OpError] = {}
        # Numbers of ended steps: all below the first, and these.
        self._all_over_below = 0
        self._over: set[int] = set()
        # Values requested from other tasks: number of the request → (address, step, callback).
        self._asked: dict[int, tuple[str, int, Done]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        # Name of a task that the client has lost → why.
        self._gone: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self.loop = asyncio.get_running_loop()
        self._heard = self.loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False
        self._look_at_client()

    def device_fields(self) -> list[list[Any]]:
        """Name, type, and whether it is a host's, of each device, the preferred ones first."""
        return [[device.name, device.type, device.is_host] for device in self.devices]

    @property
    def running_steps(self) -> int:
        """The number of steps that have not ended here."""
        return sum(not step.done for step in self._steps.values())

    def describe(self) -> dict[str, Any]:
        """Return a description of the session for people."""
        return {
            "task": self.task,
            "client": self.client,
            "steps": [{"step": n, "seconds": self.loop.time() - step.began} for n, step in self._steps.items()],
            "graphs": len(self._graphs),
            "rendezvous": len(self._rendezvous),
            "awaited": len(self._asked),
            "resources": self.resources.statistics().resources,
            "bytes": None if self.memory.account is None else self.memory.account.in_use,
        }

    # The client's lease

    def _look_at_client(self) -> None:
        left = self._heard + self._client_lease - self.loop.time()
        if left <= 0:
            self._give_up(self.handle)
        else:
            self._watch = self.loop.call_later(left, self._look_at_client)

    # Verbs

    async def serve(self, sender: str, verb: str, message: Message) -> Message | None:
        """Handle a message."""
        fields = message.fields
        if sender == self.client:
            self._heard = self.loop.time()
        for number in fields.get("over", ()):
            self._clean_up(number)
        if "oldest" in fields:
            self._forget_below(fields["oldest"])
        match verb:
            case "ping":
                return Message({"clock": time.time_ns()})
            case "register_graph":
                if fields["graph"] not in self._graphs:
                    self._graphs[fields["graph"]] = WorkerGraph(self, message)
                return None
            case "deregister_graph":
                self._drop(fields["graph"])
                return None
            case "run_step":
                return await self._run(message)
            case "feed_step":
                step = self._steps.get(fields["step"])
                if step is not None:
                    step.feed({int(at): message.tensor(value) for at, value in fields["feeds"].items()})
                return None
            case "cancel_step":
                self._cancel(fields["step"], error_from(fields["status"]))
                return None
            case "cleanup_steps":
                return None  # the steps that it names are cleaned up already
            case "recv_tensor":
                return await self._receive_for(sender, fields["step"], fields["key"], fields["number"])
            case "tensor":
                self._came(fields["number"], message)
                return None
            case "reset":
                for container in fields["containers"]:
                    self.resources.cleanup(container)
                return None
            case "task_lost":
                self._gone[fields["task"]] = fields["why"]
                self.lost(self.addresses[fields["task"]], fields["why"])
                return None
            case "update_tasks":
                self.addresses = fields["tasks"]
                self._gone.clear()
                for address in self.addresses.values():
                    self.engine.readmit(address)
                return None
        raise errors.InvalidArgumentError(f"A worker knows no verb '{verb}'")

    # Graphs

    def _drop(self, name: str) -> None:
        graph = self._graphs.pop(name, None)
        if graph is not None:
            task = self.loop.create_task(graph.close())
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    # Steps

    async def _run(self, message: Message) -> Message:
        fields = message.fields
        number = fields["step"]
        graph = self._graphs.get(fields["graph"])
        if graph is None:
            raise errors.NotFoundError(f"There is no graph {fields['graph']} at {self.task}")
        if self._is_over(number) or self._closed:
            raise errors.CancelledError(f"Step {number} is over", derived=True)
        step = WorkerStep(self, number, graph, message)
        self._steps[number] = step
        status = self._cancelled.pop(number, None)
        if status is not None:
            step.cancel(status)
        step.launch()
        # The outcome of a short step is the answer, and need not be pushed.  A step in parts needs its next feeds
        # first.
        return await step.outcome_within(0.0 if fields["in_parts"] else _HELD) or Message({"running": True})

    def ended(self, step: WorkerStep, outcome: Message) -> None:
        """Push the outcome of a step to which the answer was that it runs."""
        self.engine.push(self.client, "step_ended", outcome)

    def came_out(self, step: WorkerStep, message: Message) -> None:
        """Push a fetched value of a step in parts."""
        self.engine.push(self.client, "step_value", message)

    def _cancel(self, number: int, status: errors.OpError) -> None:
        step = self._steps.get(number)
        if step is not None:
            step.cancel(status)
        elif not self._is_over(number):
            self._cancelled[number] = status
            if (waiting := self._rendezvous.get(number)) is not None:
                waiting.start_abort(status)

    def _is_over(self, number: int) -> bool:
        return number < self._all_over_below or number in self._over

    def _forget_below(self, oldest: int) -> None:
        if oldest > self._all_over_below:
            self._all_over_below = oldest
            self._over = {number for number in self._over if number >= oldest}
            for number in [each for each in (*self._rendezvous, *self._cancelled) if each < oldest]:
                self._clean_up(number)

    def _clean_up(self, number: int) -> None:
        """Clean up a step that has ended everywhere, as the client reports."""
        if number >= self._all_over_below:
            self._over.add(number)
        self._cancelled.pop(number, None)
        step = self._steps.get(number)
        if step is not None and not step.done:
            # Its client does not wait for it any more; it is cleaned up when it ends.
            step.cancel(errors.CancelledError(f"Step {number} was given up by its client"))
            step.when_done(lambda: self._clean_up(number))
            return
        if step is not None:
            del self._steps[number]
            step.close()
            self.resources.cleanup_step(number)
        rendezvous = self._rendezvous.pop(number, None)
        if rendezvous is not None:
            rendezvous.close()

    # Values sent to other tasks, and received from them

    def rendezvous(self, number: int) -> Rendezvous:
        """The rendezvous of a step; made at its first use."""
        found = self._rendezvous.get(number)
        if found is None:
            found = self._rendezvous[number] = Rendezvous()
            found.plug_in(_Transport(self, number))
        return found

    async def _receive_for(self, sender: str, number: int, key: str, asked: int) -> Message:
        """Answer another task's request for a value that is sent here: if the value comes soon, else it is pushed
        later.
        """
        if self._is_over(number) or self._closed:
            raise errors.CancelledError(f"Step {number} is over at {self.task}", derived=True)
        soon: asyncio.Future[Message] = self.loop.create_future()

        def answered(answer: Message) -> None:
            if soon.done():
                self.engine.push(sender, "tensor", answer)
            else:
                soon.set_result(answer)

        def done(outcome: Received | errors.OpError) -> None:
            if isinstance(outcome, Received) and outcome.send_args is not None and not outcome.is_dead:
                copied = outcome.send_args.copy_out(outcome.value, node=key)
                copied.add_done_callback(lambda copy: done(_copied_out(copy)))
                return
            answer = _answer(self.handle, asked, outcome)
            if running_loop() is self.loop:
                answered(answer)
            else:
                self.loop.call_soon_threadsafe(answered, answer)

        self.rendezvous(number).recv_local(key, done)
        if soon.done():
            return soon.result()
        timer = self.loop.call_later(_HELD, _answer_later, soon)
        try:
            return await soon
        finally:
            timer.cancel()

    def ask(self, number: int, key: str, done: Done) -> None:
        """Request a value of another task; may be called from any thread."""
        if running_loop() is self.loop:
            self._ask(number, key, done)
        else:
            self.loop.call_soon_threadsafe(self._ask, number, key, done)

    def _ask(self, number: int, key: str, done: Done) -> None:
        source = task_of(parse_key(key).src_device)
        if self._is_over(number) or self._closed:
            done(errors.CancelledError(f"Step {number} is over", derived=True))
            return
        if source in self._gone:
            done(_lost_source(source, key, self._gone[source]))
            return
        asked = next(self._numbers)
        self._asked[asked] = (self.addresses[source], number, done)
        task = self.loop.create_task(self._asked_for(asked, source, number, key), name=f"receive {key}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _asked_for(self, asked: int, source: str, number: int, key: str) -> None:
        message = Message({"session": self.handle, "step": number, "key": key, "number": asked})
        try:
            answer = await self.engine.call(self.addresses[source], "recv_tensor", message)
        except errors.OpError as error:
            if isinstance(error, errors.NotFoundError):
                error = errors.UnavailableError(f"{source} has lost this session: it was started anew")
            elif isinstance(error, errors.UnavailableError):
                error = _lost_source(source, key, error.message)
            answer = Message({"failed": error_fields(error)})
        if "later" not in answer.fields:
            self._came(asked, answer)

    def _came(self, asked: int, answer: Message) -> None:
        entry = self._asked.pop(asked, None)
        if entry is None:
            return  # its step has ended
        fields = answer.fields
        if "failed" in fields:
            entry[2](error_from(fields["failed"]))
        else:
            value = answer.tensor(fields["tensor"])
            entry[2](Received(value, value is None))

    def forget_asked(self, number: int) -> None:
        """Drop the requests for values of a step."""
        for asked in [asked for asked, entry in self._asked.items() if entry[1] == number]:
            del self._asked[asked]

    def lost(self, address: str, why: str) -> None:
        """Called when another task is lost."""
        names = [task for task, at in self.addresses.items() if at == address]
        for asked, (at, _, done) in list(self._asked.items()):
            if at == address:
                del self._asked[asked]
                done(_lost_source(", ".join(names) or address, "", why))

    async def close(self) -> None:
        """Cancel its steps, wait for their end, and free everything."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        self.cancellation.start_cancel_with_status(errors.UnavailableError(f"{self.task} has given up the session"))
        for step in list(self._steps.values()):
            await step.until_done()
        for number in {*self._steps, *self._rendezvous}:
            self._clean_up(number)
        for name in list(self._graphs):
            self._drop(name)
        for task in list(self._asking):
            task.cancel()
        while self._dropping or self._asking:
            await asyncio.wait(self._dropping | self._asking)
        await self.pool.close()
        for device in self.devices:
            await device.close()
        self.resources.clear()
        if self.memory.kept is not None:
            self.memory.kept.close()
        self.state.clear()
        self.kernels.clear()

    def __repr__(self) -> str:
        return f"<WorkerSession {self.handle} of {self.task}: {len(self._steps)} steps>"


def _answer_later(soon: asyncio.Future[Message]) -> None:
    if not soon.done():
        soon.set_result(Message({"later": True}))


class _Transport:
    """The transport of one step: requests values of other tasks."""

    def __init__(self, session: WorkerSession, number: int) -> None:
        self._session = session
        self._number = number

    def brings(self, key: str) -> bool:
        return not key.startswith(f"{self._session.task}/")

    def receive(self, key: str, done: Done) -> None:
        self._session.ask(self._number, key, done)

    def close(self) -> None:
        self._session.forget_asked(self._number)


def _answer(session: str, asked: int, outcome: Received | errors.OpError) -> Message:
    answer = Message({"session": session, "number": asked})
    try:
        if isinstance(outcome, errors.OpError):
            raise outcome
        answer.fields["tensor"] = None if outcome.is_dead else answer.put_tensor(outcome.value)
    except errors.OpError as error:
        answer.fields["failed"] = error_fields(error)
    return answer


def _copied_out(copied: Any) -> Received | errors.OpError:
    error = copied.exception()
    if error is None:
        return Received(copied.result())
    return error if isinstance(error, errors.OpError) else errors.UnknownError(f"{type(error).__name__}: {error}")


def _lost_source(task: str, key: str, why: str) -> errors.OpError:
    edge = f" '{parse_key(key).edge_name}'" if key else ""
    return errors.UnavailableError(f"{task} is lost, from which a value{edge} was to come: {why}", derived=True)
