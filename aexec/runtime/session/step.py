"""`Step`: one run while it is under way.  It can be awaited, and cancelled by all who have it.

A step is cancelled when the task that awaits it is cancelled, when its deadline passes, when `cancel` is called (over
HTTP too), or when a kernel fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_copies import watching_copies
from aexec.framework.device_contract.device_memory import accounting_for
from aexec.framework.memory.tensor_buffer import measuring_ns
from aexec.framework.printed import Prints
from aexec.framework.state.session_state import DeviceTensor, TensorStore, measured
from aexec.framework.waiting.cancellation import wait
from aexec.framework.waiting.futures import complete_from, until_done
from aexec.framework.waiting.inline_call import NeedsThreadError, check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, current_budget
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.feeding.device_ends import DeviceEnds, hand_out
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.feeding.fetches import to_values
from aexec.runtime.interpreter.executor import Executor, StepEnvironment
from aexec.runtime.interpreter.partitioned_execution import executor_of
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.plans.absent_values import OnResult
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from aexec.runtime.profiling.tracing import debug_line
from aexec.runtime.session.session_tensors import SessionTensors
from aexec.runtime.session.step_places import StepPlaces
from aexec.runtime.session.step_view import StepState, StepView

__all__ = ["Prepared", "Step"]

T = TypeVar("T")

# Most nodes and feeds that the error of a passed deadline lists.
_LINES_OF_AN_ERROR = 10

# A plan, or a future of one that a thread is making.
Prepared = CachedPlan | asyncio.Future[CachedPlan]


class StepOwner(Protocol):
    """What a step needs of its session's runs.

    Attributes:
        tensors: tensors that the session keeps under handles.
        host_device: the device of host memory.
        other_devices: devices with memory of their own.
        places: limits how many steps run at once; None for no limit.
    """

    tensors: SessionTensors
    places: StepPlaces | None
    host_device: Device
    other_devices: tuple[Device, ...]

    def step_began(self, step: Step) -> None:
        """Called when the step starts to run, or is about to."""
        ...

    def step_ended(self, step: Step) -> None:
        """Called when nothing of the step runs any more."""
        ...

    def fetched_nodes(self, cached: CachedPlan) -> list[str]:
        """Return the names of the nodes that a plan's fetches come from."""
        ...

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """Return the nodes that a plan runs, as one graph per device."""
        ...

    def learn_costs(self, cached: CachedPlan, stats: proto.StepStats) -> proto.CostGraphDef:
        """Add a step's measurements to the cost model; return the model's costs of the plan's nodes."""
        ...


class StepCall(Protocol):
    """What a step needs of the `SessionCallable` that it is a run of."""

    @property
    def specs(self) -> tuple[FeedSpec, ...]:
        """What may be fed, in the order of the values."""
        ...

    @property
    def fetches_feeds(self) -> bool:
        """True if a fetched tensor is fed."""
        ...

    def with_fed(self, results: Sequence[Any], fed: Sequence[Any]) -> list[Any]:
        """Return all fetched values in order, from those that the plan fetched and those that were fed."""
        ...

    @property
    def on_devices(self) -> bool:
        """True if a value is fed from, or fetched to, a device's memory."""
        ...

    @property
    def ends(self) -> DeviceEnds:
        """The memory that each feed comes from and each fetch goes to."""
        ...

    def where_made(self, position: int) -> Device | None:
        """Return the device whose memory a fetched value is in before it is handed out; None for host memory."""
        ...

    @property
    def fetches(self) -> Sequence[str]:
        """Names of the fetched tensors."""
        ...


class Step(StepView):
    """One run of a session, made by `Session.start`; await it for the results.

    A step that `SessionCallable.prepare` made starts when it is first awaited, in the task that awaits it.

    Attributes:
        id: number of the step, unique in the process.
        metadata: what the run reports besides its results, filled in when it ends; None if nothing was asked for.
    """

    __slots__ = (
        "_build",
        "_error",
        "_options",
        "_prepared",
        "_result",
        "_task",
        "_timeout",
        "_timer",
        "_values",
        "metadata",
    )

    owner: StepOwner
    _call: StepCall

    def __init__(
        self,
        owner: StepOwner,
        environment: StepEnvironment,
        call: StepCall,
        prepared: Prepared,
        values: Sequence[Any],
        build: Callable[[Sequence[Any]], Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
        timeout: float | None,
    ) -> None:
        """Make a step that has not begun.

        Args:
            call: the callable of the run; it says how values are fed.
            prepared: the plan, or a future of it.
            values: the caller's values, in the order of `call.specs`.
            build: makes the caller's result from the fetched values.
            timeout: seconds from the beginning after which the step is cancelled with DeadlineExceededError; None for
                no limit.
        """
        self.owner = owner
        self.environment = environment
        self.metadata = metadata
        self._call = call
        self._prepared: Prepared | None = prepared  # None while the step waits for the plan
        self._values = values
        self._build = build
        self._options = options
        self._timeout = timeout
        self._placed: bool | None = None  # True: has a place to run; False: waits for one; None: needs none yet
        self._plan: Plan | PartitionedPlan | None = None
        self._execution: Executor | None = None
        self._state = StepState.PENDING
        self._began = time.perf_counter()
        self._ended = 0.0
        self._task: asyncio.Task[None] | None = None
        self._result: Any = None
        self._error: errors.OpError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def cancel(self, reason: str = "") -> bool:
        """Ask the step to stop; return True if this call is the one that cancels it.

        May be called from any thread, and any number of times.  The step ends with `CancelledError` once nothing of it
        can change shared state any more.
        """
        if self.done:
            return False
        message = f"Step {self.id} was cancelled" + (f": {reason}" if reason else "")
        return self._cancel_with(errors.CancelledError(message))

    def _cancel_with(self, error: errors.OpError) -> bool:
        manager = self.environment.cancellation
        if manager.cancel_requested:
            return False
        manager.start_cancel_with_status(error)
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        if self._task is not None:
            return self._wait(self._task).__await__()
        return self.run().__await__()

    async def _wait(self, task: asyncio.Task[None]) -> Any:
        """Return the step's results.  Cancelling the task that waits here cancels the step."""
        if not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                self.cancel("the awaiting task was cancelled")
                await until_done(task)
                raise
        task.result()
        if self._error is None:
            return self._result
        # Raise a copy: the step keeps the original, which must not refer to the frames of its callers.
        raise self._error.fresh().with_traceback(self._error.__traceback__) from self._error.__cause__

    def launch(self) -> None:
        """Start the step in a task of its own."""
        self._begin()
        self._task = self.environment.loop.create_task(self._run_alone(), name=f"step {self.id}")
        self._task.add_done_callback(self._task_ended)

    def _begin(self) -> None:
        """Start the timer and tell the session, which waits for the step from now on."""
        if self._timeout is not None:
            self._timer = self.environment.loop.call_later(self._timeout, self._deadline_passed)
        self.owner.step_began(self)

    def _deadline_passed(self) -> None:
        text = "Timed out waiting for notification"
        if lines := self.report(_LINES_OF_AN_ERROR):
            text += "\n  " + "\n  ".join(lines)
        self._cancel_with(errors.DeadlineExceededError(text))

    async def _run_alone(self) -> None:
        """Run and store the outcome, so that no error is reported as unseen if nobody awaits the step."""
        try:
            self._result = await self.run()
        except errors.OpError as error:
            self._error = error.with_traceback(_beyond_steps(error.__traceback__))

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()
        elif not self.done:  # the task was cancelled before it started
            self._state = StepState.CANCELLED
            self._ended = time.perf_counter()
            self.owner.step_ended(self)
        if self._error is not None:
            _clear_steps(self._error.__traceback__)

    def run(self) -> Coroutine[Any, Any, Any]:
        """Execute the step in the calling task, once.

        Raises:
            FailedPreconditionError: the step has begun already.
        """
        if self._state is not StepState.PENDING:
            raise errors.FailedPreconditionError(f"{self!r} has begun already and belongs to the task that awaits it")
        if self._task is None:
            self._begin()
        self._state = StepState.RUNNING
        if DEBUG >= 2:
            debug_line(f"step {self.id} begins")
        return self.finish(self._execute())

    def join(self, fed: Sequence[Any], began: float) -> None:
        """Become the step of a run that began without one at time `began`; its caller then awaits `finish`."""
        assert isinstance(self._prepared, CachedPlan)
        environment = self.environment
        self._state = StepState.RUNNING
        self._began = began
        self._values = fed if self._call.fetches_feeds else ()
        if environment.memory is not None:
            environment.memory.fed(fed)
        if self._timeout is not None:
            left = self._timeout - (time.perf_counter() - began)
            self._timer = environment.loop.call_later(max(0.0, left), self._deadline_passed)
        self._plan = self._prepared.plan
        self._execution = executor_of(self._plan, environment, environment.cancellation)

    async def _execute(self) -> Sequence[Any]:
        """Run the plan; return its fetched values."""
        environment = self.environment
        if isinstance(self._prepared, CachedPlan):
            cached = self._prepared
        else:
            cached = await self._planned()
        self._plan = cached.plan
        if self.owner.places is not None:
            await self._take_place(self.owner.places)
        if cached.on_run is not None:
            cached.on_run(cached)
        self._execution = executor_of(self._plan, environment, environment.cancellation, self._on_result)
        try:
            fed = self._fed_values()
        except NeedsThreadError:
            fed = await self._in_thread(self._fed_values)
        self._values = fed if self._call.fetches_feeds else ()
        if environment.memory is not None:
            environment.memory.fed(fed)
        running = self._execution.run(fed)
        del fed  # values are freed as soon as their last consumer has them
        return await running

    async def _take_place(self, places: StepPlaces) -> None:
        """Wait for a place to run.  Raises the error of a cancellation meanwhile, or one if too many steps wait."""
        cancellation = self.environment.cancellation
        self._placed = False
        try:
            await places.take(cancellation)
        except errors.CancelledError:
            if cancellation.status is not None:
                raise cancellation.status.fresh() from None
            raise
        self._placed = True

    async def finish(self, execution: Awaitable[Sequence[Any]]) -> Any:
        """Await an execution and return the caller's result from its fetched values.  The step has ended then."""
        environment = self.environment
        tracer = environment.tracer
        if self._looks_at_devices:
            execution = _watched(execution, environment)
        try:
            results = await execution
            if self._call.fetches_feeds:
                results = self._call.with_fed(results, self._values)
            if environment.kept_tensors is not None:
                await self._save_tensors(environment.kept_tensors)
            self._state = StepState.SUCCEEDED
            if environment.memory is not None:
                environment.memory.hand_over(results)
            if self._call.on_devices:
                handed_out = self._handed_out(results)
                results = await (_watched(handed_out, environment) if self._looks_at_devices else handed_out)
            else:
                results = to_values(results)
            if tracer is not None and not self._call.ends.skip_sync:
                await tracer.settle()
            return self._build(results)
        except errors.OpError as error:
            cancelled = error.code in (errors.Code.CANCELLED, errors.Code.DEADLINE_EXCEEDED)
            self._state = StepState.CANCELLED if cancelled else StepState.FAILED
            raise
        except asyncio.CancelledError:
            self._state = StepState.CANCELLED
            raise
        except BaseException:
            self._state = StepState.FAILED
            raise
        finally:
            self._ended = time.perf_counter()
            if self._timer is not None:
                self._timer.cancel()
            try:
                if self._options is not None and isinstance(self._prepared, CachedPlan):
                    await self._fill_metadata(self._options, self._prepared)
                if self.metadata is not None and environment.memory is not None:
                    self.metadata.device_peak_bytes = environment.memory.device_peaks
                    if environment.memory.is_exact:
                        self.metadata.peak_bytes = environment.memory.step.peak
            finally:
                if environment.memory is not None:
                    environment.memory.close()
                environment.close()
                if self._placed and self.owner.places is not None:
                    self.owner.places.leave()
                self.owner.step_ended(self)
            if DEBUG >= 2:
                debug_line(f"{self!r} after {(self._ended - self._began) * 1e3:.3f} ms")

    @property
    def _looks_at_devices(self) -> bool:
        """True if copies to devices or their memory must be recorded: for a trace, or for a memory limit."""
        environment = self.environment
        return environment.tracer is not None or (environment.memory is not None and bool(self.owner.other_devices))

    async def _handed_out(self, results: Sequence[Any]) -> list[Any]:
        """Return the fetched values in the memory that the caller wants each in."""
        call, host = self._call, self.owner.host_device
        return [
            await hand_out(value, call.where_made(i), wanted_on, self._of_device, host, name)
            for i, (name, wanted_on, value) in enumerate(zip(call.fetches, call.ends.fetches, results, strict=True))
        ]

    async def _of_device(self, future: Future[Any]) -> Any:
        """Return the result of a device's future; raises the step's error if the step is cancelled first."""
        waiter: asyncio.Future[Any] = self.environment.loop.create_future()
        complete_from(future, waiter)
        return await self._unless_cancelled(waiter)

    @property
    def _on_result(self) -> OnResult | None:
        """Callback for fetched values as they are ready; None here, subclasses have one."""
        return None

    def _fed_values(self) -> Sequence[Any]:
        """Return the values to feed, in the plan's order."""
        if not self._values:
            return ()
        self.environment.slices.use_limits()
        memory = self.environment.memory
        feed = self.owner.tensors.feed
        return [feed(spec, value, memory) for spec, value in zip(self._call.specs, self._values, strict=True)]

    async def _save_tensors(self, tensors: TensorStore) -> None:
        """Keep tensors whose handles were fetched in the session.  Large copies are made in a thread."""
        assert isinstance(self._prepared, CachedPlan)
        names = self.owner.fetched_nodes(self._prepared)
        try:
            check_inline(tensors.num_bytes * COPY_NS)
            owned = tensors.owned_tensors(names)
        except NeedsThreadError:
            owned = await self._in_thread(lambda: tensors.owned_tensors(names))
        for handle, tensor in owned.items():
            if type(tensor) is DeviceTensor:
                shape = await self._of_device(tensor.device.shape_of(tensor.value, node=handle.partition(";")[0]))
                owned[handle] = replace(tensor, shape=shape)
        sizes = None
        on_host = [tensor for tensor in owned.values() if type(tensor) is not DeviceTensor]
        if not current_budget().allows(sum(map(measuring_ns, on_host))):
            sizes = await self._in_thread(lambda: measured(owned))
        self.owner.tensors.state.add_tensors(owned, sizes)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, done in a worker thread, which is abandoned if the step is cancelled."""
        return await self._unless_cancelled(self.environment.worker_pool.start(work))

    async def planned(self) -> None:
        """Wait for the plan of a step that has not begun.  Raises what making the plan raises."""
        try:
            if not isinstance(self._prepared, CachedPlan):
                await self._planned()
        except BaseException:
            self.environment.cancellation.close()
            raise

    async def _planned(self) -> CachedPlan:
        """Return the plan when it is ready.  Other steps may wait for the same plan."""
        future, self._prepared = self._prepared, None
        assert isinstance(future, asyncio.Future)
        waiter: asyncio.Future[CachedPlan] = self.environment.loop.create_future()
        complete_from(future, waiter)
        try:
            cached = self._prepared = await self._unless_cancelled(waiter)
            return cached
        finally:
            future.cancel()  # the plan's making stops when the last waiter has gone
            del future, waiter  # they may hold an error whose traceback refers to this frame

    async def _unless_cancelled(self, waiter: asyncio.Future[T]) -> T:
        """Return the result of `waiter`; if the step is cancelled first, raise the error of the cancellation."""
        cancellation = self.environment.cancellation
        try:
            return await wait(cancellation, waiter, "Run call was cancelled")
        except errors.CancelledError:
            if cancellation.status is not None:
                raise cancellation.status.fresh() from None
            raise
        finally:
            del waiter  # it may hold an error whose traceback refers to this frame

    async def _fill_metadata(self, options: RunOptions, cached: CachedPlan) -> None:
        environment = self.environment
        if self.metadata is None:
            self.metadata = RunMetadata()
        if isinstance(printed := environment.printer, Prints):
            self.metadata.prints, self.metadata.prints_left_out = printed.text, printed.left_out
        if environment.tracer is not None or options.output_partition_graphs:
            fill = partial(self._fill_from_nodes, self.metadata, options, cached)
            if cached.plan.num_nodes < environment.slices.budget.plan_nodes:
                fill()
            else:
                await environment.worker_pool.run(fill)
        if options.cost_graph and self._state is StepState.SUCCEEDED and self.metadata.step_stats is not None:
            self.metadata.cost_graph = self.owner.learn_costs(cached, self.metadata.step_stats)

    def _fill_from_nodes(self, metadata: RunMetadata, options: RunOptions, cached: CachedPlan) -> None:
        if self.environment.tracer is not None:
            metadata.step_stats = self.environment.tracer.to_proto()
        if options.output_partition_graphs:
            metadata.partition_graphs.extend(self.owner.executed_graphs(cached))


async def _watched(part: Awaitable[T], environment: StepEnvironment) -> T:
    """Await a part of a step, and record its copies on devices in the trace, and their memory in the step's account."""
    tracer, memory = environment.tracer, environment.memory
    with (
        watching_copies(None if tracer is None else tracer.copies),
        accounting_for(None if memory is None else memory.of_device),
    ):
        return await part


def _beyond_steps(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback after the frames of this file, which refer to the step, which refers to its error."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == _beyond_steps.__code__.co_filename:
        traceback = traceback.tb_next
    return traceback


def _clear_steps(traceback: TracebackType | None) -> None:
    """Clear the frames of this file that awaited the first frame of a traceback, and have ended.

    Since Python 3.12 a frame refers to the one that awaited it, so that the error would refer to the step after all.
    """
    frame = None if traceback is None else traceback.tb_frame.f_back
    while frame is not None and frame.f_code.co_filename == _clear_steps.__code__.co_filename:
        frame.clear()
        frame = frame.f_back
