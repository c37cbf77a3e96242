"""`SessionSteps`: begins the steps of a session, and keeps those in flight.

Callables and steps hold this object instead of their session.  A run of a short compiled plan has no `Step` unless it
is looked for while it runs: `begin` runs it at once.  Next to read: `callable.py`, `step.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from aexec import proto
from aexec.devices.device_registry import host_device
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.memory import log_memory
from aexec.framework.printed import Printers, Prints
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.waiting.background_tasks import BackgroundTasks
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.futures import running_loop
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.graph import Graph
from aexec.runtime.compiled.compiled_execution import CompiledExecution, default_executor, run_line
from aexec.runtime.compiled.late_context import LateContext
from aexec.runtime.config import MAX_PRINTS, RunMetadata, RunOptions, SessionConfig
from aexec.runtime.feeding.device_ends import converted_feeds, take_in, where_fed
from aexec.runtime.feeding.fetches import to_values
from aexec.runtime.interpreter.executor import StepEnvironment, executor_of_type, step_ids
from aexec.runtime.interpreter.memory_accountant import hand_over
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.planner import Planner
from aexec.runtime.session.callable import BegunRun, SessionCallable, request_text
from aexec.runtime.session.kept_graph import KeptGraph
from aexec.runtime.session.partial_run import PartialRun
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.session.session_tensors import SessionTensors
from aexec.runtime.session.step import Prepared, Step
from aexec.runtime.session.step_places import StepPlaces
from aexec.runtime.threads.slices import SliceClock
from aexec.runtime.threads.thread_pools import ThreadPools

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel
    from aexec.runtime.session.measured_steps import MeasuredSteps

__all__ = ["SessionSteps"]

# A run without a step: callable, fed values, builder of the result, options, and `perf_counter` at its beginning.
_AtOnce = tuple[SessionCallable, list[Any], Callable[[Sequence[Any]], Any], RunOptions | None, float]


async def _given(results: list[Any]) -> list[Any]:
    return results


class SessionSteps:
    """The steps of one session.

    Args:
        config: its settings.
        life: its event loop, and whether it is open.
        devices: the devices that its nodes run on.
        planner: makes its plans.
        graph: its graph.
        resources, tensors: the session's state between steps.
        limits: its memory limits.
        pools: its threads.
        cancellation: cancels all of its steps.

    Attributes:
        background: the tasks of its resources that go on between steps; None before there is one.
        check_usable: as `SessionLife.check_usable`.
        in_flight: step id → the step, or the tuple of a run without one.
        runs: number of steps begun so far.
        slices: the slices in which steps hold the event loop.
        places: the places that steps wait for; None if there is no limit.
        host_device: the device of the host's memory.
        other_devices: the devices with a memory of their own.
        make_executor: makes what executes a plan; sessions across machines have another one.
        hold_back: given a step's plan, or a future of it, returns what the step waits for; None if steps can begin as
            soon as their plan is made.
        on_ended: called with the id of each `Step` that has ended, or None.
    """

    __slots__ = (
        "_cancellation",
        "_config",
        "_costs",
        "_create_rendezvous",
        "_graph",
        "_life",
        "_limits",
        "_measured_steps",
        "_memory",
        "_planner",
        "_pool",
        "_pools",
        "_printers",
        "_step_end",
        "background",
        "check_usable",
        "hold_back",
        "host_device",
        "in_flight",
        "make_executor",
        "on_ended",
        "other_devices",
        "places",
        "resources",
        "runs",
        "slices",
        "tensors",
    )

    def __init__(
        self,
        config: SessionConfig,
        life: SessionLife,
        devices: Sequence[Device],
        planner: Planner,
        graph: KeptGraph,
        resources: ResourceManager,
        tensors: SessionTensors,
        limits: SessionMemory,
        pools: ThreadPools,
        cancellation: CancellationManager,
    ) -> None:
        self._config = config
        self._life = life
        self._planner = planner
        self._graph = graph
        self._limits = limits
        self._memory = limits.account
        self._pools, self._pool = pools, pools.first
        self._cancellation = cancellation
        self._printers = Printers(f"session {life.session_id}", config.printed_bytes)
        self._costs: CostModel | None = None
        self._step_end: asyncio.Event | None = None  # set when the next step ends
        self.background: BackgroundTasks | None = None
        self.check_usable = life.check_usable
        self.in_flight: dict[int, Step | _AtOnce] = {}
        self.runs = 0
        self.resources = resources
        self.tensors = tensors
        self.host_device = host_device(devices)
        self.other_devices = tuple(device for device in devices if not device.is_host)
        self.places = None if config.max_steps is None else StepPlaces(config.max_steps, config.max_waiting_steps)
        self.slices = SliceClock(LoopBudget(config.slice_seconds), self._pool.helpers)
        executor_type = executor_of_type(config.executor_type) if config.executor_type else None
        self._create_rendezvous = None if executor_type is None else executor_type.create_rendezvous
        self.make_executor = (
            default_executor(compile_plans=config.compile_plans and not limits.is_exact)
            if executor_type is None
            else executor_type.factory
        )
        self.hold_back: Callable[[Prepared], Prepared] | None = None
        self.on_ended: Callable[[int], None] | None = None
        self._measured_steps: MeasuredSteps | None = None
        if config.build_cost_model:
            from aexec.runtime.session.measured_steps import MeasuredSteps

            self._measured_steps = MeasuredSteps(config.build_cost_model, config.build_cost_model_after)

    @property
    def graph(self) -> Graph:
        """The session's graph."""
        return self._graph.graph

    # For callables

    async def execute(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> Any:
        """Run a step of `call` in the calling task."""
        result, _, rest = self.begin(call, values, options, metadata, build)
        return result if rest is None else await rest

    def begin(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> BegunRun:
        """Begin a run of `call`; return its result, or its step with a coroutine for the rest of the run.

        A compiled plan is run at once.  A `Step` is made only if it is looked for meanwhile, or if the line cannot
        finish.
        """
        loop = self.check_usable()
        if self.other_devices:
            call, values = self._taken_in(call, values)
        if self._measured_steps is not None:
            options = self._measured_steps.options(call.signature, options)
        if options is not None:
            options = RunOptions.of(options)
        begun = self._begin_line(loop, call, values, options, build)
        if begun is not None:
            return begun
        step = self._new_step(call, values, options, metadata, build)
        return None, step, step.run()

    def begin_at_once(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> BegunRun | None:
        """Like `begin`; returns None, with nothing begun, unless the plan is compiled and may run now."""
        loop = self.check_usable()
        if self.other_devices or self._measured_steps is not None:
            return None
        return self._begin_line(loop, call, values, options, build)

    def new_step(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any] | None = None,
        kind: type[Step] = Step,
    ) -> Step:
        """A step of `call` that has not begun.

        Args:
            build: makes the result of the fetched values; by default the callable's own.
        """
        self.check_usable()
        build = build or call.build
        if self.other_devices and not call.signature.in_parts:
            call, values = self._taken_in(call, values)
        if self._measured_steps is not None:
            options = self._measured_steps.options(call.signature, options)
        return self._new_step(call, values, options, metadata, build, kind)

    # Making steps

    def _begin_line(
        self,
        loop: asyncio.AbstractEventLoop,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> BegunRun | None:
        line = call.line if self.places is None and (options is None or options.may_run_at_once) else None
        if line is None:
            return None
        end = self.slices.enter(loop)
        began = perf_counter()
        feeds = self._feeds_at_once(call, values) if began < end else None
        if feeds is None:
            return None
        step_id = next(step_ids)
        self.in_flight[step_id] = (call, feeds, build, options, began)
        self.runs += 1
        try:
            context = LateContext(self.resources, lambda: self._execution_of(step_id)) if line.needs_context else None
            results = run_line(line, context, feeds, end)
        except BaseException as error:
            step = self._step_of(step_id)
            rest = self._execution_of(step_id).rest(line, feeds, error)
        else:
            if type(self.in_flight[step_id]) is tuple:
                del self.in_flight[step_id]
                if call.fetches_feeds:
                    results = call.with_fed(results, feeds)
                if self._memory is not None:
                    hand_over(results, self._memory, self.resources.kept)
                return build(to_values(results)), None, None
            step, rest = self._step_of(step_id), _given(results)
        del feeds
        return None, step, step.finish(rest)

    def _feeds_at_once(self, call: SessionCallable, values: Sequence[Any]) -> list[Any] | None:
        """Return the converted feeds of a run; None if they are invalid or too large to convert inline."""
        try:
            feeds = list(map(self.tensors.feed, call.specs, values))
        except (errors.OpError, NeedsThreadError):
            return None
        small = self.slices.budget.small_elements
        for feed in feeds:
            if feed.size > small:
                return None
        return feeds

    def _taken_in(self, call: SessionCallable, values: Sequence[Any]) -> tuple[SessionCallable, Sequence[Any]]:
        """The callable with its feeds on the devices that hold the values, and the values as the devices take them."""
        values = self.tensors.on_devices(call.specs, converted_feeds(call.specs, values))
        if not any(call.ends.feeds):
            feeds = where_fed(self.other_devices, values)
            if not any(feeds):
                return call, values
            call = call.with_ends(replace(call.ends, feeds=feeds))
        return call, take_in(call.specs, call.ends, values)

    def _step_of(self, step_id: int) -> Step:
        """The step in flight with this id; made now for a run without one."""
        found = self.in_flight[step_id]
        if isinstance(found, Step):
            return found
        call, feeds, build, options, began = found
        step = self.in_flight[step_id] = self._new_step(call, (), options, None, build, step_id=step_id)
        step.join(feeds, began)
        return step

    def _execution_of(self, step_id: int) -> CompiledExecution:
        execution = self._step_of(step_id).execution
        assert isinstance(execution, CompiledExecution)
        return execution

    def _new_step(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any],
        kind: type[Step] = Step,
        step_id: int = 0,
    ) -> Step:
        if options is not None and type(options) is not RunOptions:
            options = RunOptions.of(options)
        prepared = self.prepared(call)
        environment = self._new_environment(CancellationManager(self._cancellation), options, step_id)
        timeout = self._config.operation_timeout
        if options is not None and options.timeout is not None:
            timeout = options.timeout
        if environment.tracer is not None and log_memory.is_enabled():
            text = request_text(call.feeds, call.fetches, call.targets, partial=kind is PartialRun)
            log_memory.record_step(environment.step_id, f"{text};{self.runs + 1}")
        return kind(self, environment, call, prepared, values, build, options, metadata, timeout)

    def _new_environment(
        self, cancellation: CancellationManager, options: RunOptions | None = None, step_id: int = 0
    ) -> StepEnvironment:
        loop, step_id = self._life.loop, step_id or next(step_ids)
        assert loop is not None, "the session has been used"
        memory, tracer = self._limits.watches(
            step_id,
            self.resources,
            self.host_device.name,
            trace=options is not None and options.is_traced,
            report=options is not None and options.report_tensor_allocations_upon_oom,
        )
        return StepEnvironment(
            loop,
            self._pool if options is None else self._pools.of_run(options.thread_pool),
            self.slices,
            self.resources,
            cancellation,
            self.tensors.state,
            self.make_executor,
            tracer,
            step_id,
            memory,
            self._config.transport,
            self._create_rendezvous,
            Prints(MAX_PRINTS) if options is not None and options.prints else self._printers.of_step(loop),
            self._background_tasks,
        )

    def _background_tasks(self) -> BackgroundTasks:
        if self.background is None:
            kept = self._limits.kept_between_steps
            self.background = BackgroundTasks(self._cancellation, self._new_environment, kept)
        return self.background

    def prepared(self, call: SessionCallable) -> Prepared:
        """Return the plan of a callable's step, or a future of it."""
        found = call.prepared(self._planner)
        return found if self.hold_back is None else self.hold_back(found)

    # For steps

    def step_began(self, step: Step) -> None:
        """Called by a step when it begins."""
        self.in_flight[step.id] = step
        self.runs += 1

    def step_ended(self, step: Step) -> None:
        """Called by a step when nothing of it runs any more."""
        environment = step.environment
        try:
            environment.cancellation.close()
            self.resources.cleanup_step(environment.step_id)
        finally:
            del self.in_flight[step.id]
            if self._step_end is not None:
                self._step_end.set()
                self._step_end = None
        if self.on_ended is not None:
            self.on_ended(step.id)

    def fetched_nodes(self, cached: CachedPlan) -> list[str]:
        """Names of the nodes that a plan's fetches come from."""
        return [self._graph.graph.nodes[i].name for i, _ in cached.signature.fetches]

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return self._planner.executed_graphs(cached)

    def learn_costs(self, cached: CachedPlan, stats: proto.StepStats) -> proto.CostGraphDef:
        """Add a step of a plan to the cost model; return the model's costs of the plan's nodes."""
        self.cost_model.add(stats)
        return self._planner.cost_graph(cached, self.cost_model)

    # For the session

    @property
    def cost_model(self) -> CostModel:
        """The costs that measured steps have reported."""
        if self._costs is None:
            from aexec.runtime.profiling.cost_model import CostModel

            self._costs = CostModel()
        return self._costs

    @property
    def all(self) -> tuple[Step, ...]:
        """The steps in flight, oldest first.  From another thread, only those that are a `Step` already."""
        if running_loop() is self._life.loop:
            return tuple(map(self._step_of, tuple(self.in_flight)))
        return tuple(step for step in tuple(self.in_flight.values()) if isinstance(step, Step))

    async def cancel_all(self, reason: str) -> None:
        """Cancel the steps in flight, and wait for their end."""
        steps = {step.id: step for step in self.all}
        for step in steps.values():
            step.cancel(reason)
        while not steps.keys().isdisjoint(self.in_flight):
            await self._next_end()

    async def wait_for_ends(self) -> None:
        """Wait until no step is in flight."""
        while self.in_flight:
            await self._next_end()

    async def _next_end(self) -> None:
        """Wait until a step ends."""
        self._step_end = self._step_end or asyncio.Event()
        await self._step_end.wait()

    def close(self) -> None:
        """Called when the session has closed: drop what refers to it."""
        self.hold_back = self.on_ended = None
        self._printers.close()
