"""`Session`: a graph, its state, and the runs in flight.

A run goes: names → `SessionCallable` → plan → execution → results.  `run` executes in the calling
task; `start` gives a `Step` that runs in a task of its own; `make_callable` resolves the names
once for many runs.  Where the plan is a short line of calls there is no `Step` unless somebody
looks for it: `execute` does it at once.  Read `callable.py` for what a request becomes,
`planning/planner.py` for its plan, and `interpreter/execution.py` for how a plan is executed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from google.protobuf.message import Message

from aexec import proto
from aexec.devices.device_registry import host_device, make_devices
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.html_repr import block, table
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory import log_memory
from aexec.framework.printed import Printer, PrintRate, Prints, print_text
from aexec.framework.state.resource_manager import DEFAULT_CONTAINER, ResourceManager, check_container
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager, CancelReason, CancelSource
from aexec.framework.waiting.futures import running_loop
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph, current_graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.signature import (
    Signature,
    TensorInfo,
    choose_signature,
    graph_signature,
    named_inputs,
    signature_tables,
)
from aexec.queues.session_queue import Queue
from aexec.resources.shared_containers import SharingResourceManager
from aexec.runtime.compiled.compiled_execution import CompiledExecution, default_executor, run_line
from aexec.runtime.compiled.compiled_plan import compile_plan, prepare_functions
from aexec.runtime.config import MAX_PRINTS, RunMetadata, RunOptions, SessionConfig, callable_arguments
from aexec.runtime.feeding.device_ends import DeviceEnds, converted_feeds, resolve_devices, take_in, where_fed
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds, to_values
from aexec.runtime.interpreter.executor import StepEnvironment, executor_of_type, step_ids
from aexec.runtime.interpreter.memory_accountant import StepMemory, hand_over
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.captured import CapturedReport
from aexec.runtime.planning.delegated import RegionReport
from aexec.runtime.planning.pass_report import PassReport, report_passes
from aexec.runtime.planning.planner import Planner
from aexec.runtime.plans.blocks import NotCompiledError
from aexec.runtime.plans.call_estimates import heavy_ns
from aexec.runtime.plans.compilation_policy import Explanation
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.profiling.tracing import StepTracer
from aexec.runtime.session.callable import BegunRun, Request, SessionCallable, canonical_name, request_text
from aexec.runtime.session.callable_cache import CallableCache
from aexec.runtime.session.partial_run import PartialRun, PartialRunTable
from aexec.runtime.session.run_explanation import explain_run
from aexec.runtime.session.run_types import Feeds, Fetched, RunSettings, Source, T, TargetsLike
from aexec.runtime.session.session_classes import class_for_source, class_for_target
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.session.session_queues import SessionQueues
from aexec.runtime.session.session_tensors import SessionTensors
from aexec.runtime.session.step import Prepared, Step
from aexec.runtime.session.step_places import StepPlaces
from aexec.runtime.session.unused_graphs import free_unused_graphs, remember_graph
from aexec.runtime.threads.slices import SliceClock
from aexec.runtime.threads.thread_pools import ThreadPools
from aexec.runtime.threads.worker_pool import WorkerPoolStatistics

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel
    from aexec.runtime.session.measured_steps import MeasuredSteps

__all__ = ["Session", "SessionStatistics"]

K = TypeVar("K")

# So often a plan is run until nothing about it is new: it is compiled at its third.
_WARM_UP_RUNS = 5

_session_ids = itertools.count(1)
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """A snapshot of a session.

    Attributes:
        runs: steps begun so far; in_flight: those that have not ended.
        waiting: those of them that wait for their turn, see `SessionConfig.max_steps`.
        plans: signatures that were planned.
        nodes: nodes of the graph.
        longest_hold: longest time, in seconds, for which a slice in which it had a part held the event loop.
        pool: the worker threads.
        bytes_in_use: what its steps take of memory, and what they have left; None where no limit has it counted.
    """

    runs: int
    in_flight: int
    plans: int
    nodes: int
    longest_hold: float
    pool: WorkerPoolStatistics
    bytes_in_use: int | None = None
    waiting: int = 0


# A run at once: the callable, what is fed, what makes the result, its options, and `perf_counter` when it began.
_AtOnce = tuple[SessionCallable, list[Any], Callable[[Sequence[Any]], Any], RunOptions | None, float]


async def _given(results: list[Any]) -> list[Any]:
    return results


class Session:
    """Runs a graph inside the current event loop.

    Args:
        graph: what to run: a graph, to which nodes may be added later; a SavedModel or MetaGraph; or whatever
            else `aexec.load` takes, a file's path for one, which is then read when the session is entered or
            awaited.  By default the graph that is being built, or an empty one.
        target: which class of session it is, by `session_classes.register_session_class`; "" is this one, in process.
        config: settings, as SessionConfig or as a ConfigProto message.

    Raises:
        InvalidArgumentError: the graph cannot be placed: an op without kernel, contradicting
            colocation, or a device that is not there.  On an event loop, for a large graph or in a program
            that has not used such kernels yet, this comes from entering the session or from its first run:
            placing many nodes, and importing kernels, takes long and is done in a thread.

    Use it as an asynchronous context manager, or call `close` when done.  All methods
    belong to the event loop of the first run; `Step.cancel` may be called from any thread.
    """

    # What a session that is open has.
    id: int
    config: SessionConfig
    tensors: SessionTensors
    resources: ResourceManager
    places: StepPlaces | None
    host_device: Device
    other_devices: tuple[Device, ...]
    # Of a session that could not be made, too: it is deleted like any other.
    _loop: asyncio.AbstractEventLoop | None = None
    _closed: asyncio.Task[None] | None = None
    _forks = 0
    _owns_graph = False
    # Once it is closed: how many nodes its graph had, and the graph, unless it was its own.
    _graph_nodes: int | None = None
    _left: Graph | None = None

    def __new__(cls, graph: Source = None, target: str = "", config: SessionConfig | Message | None = None) -> Session:
        # Chooses the kind of session; Python then initialises what is of this class, and that once.
        kind: Any = cls
        if cls is Session:
            kind = class_for_target(target) if target else class_for_source(graph) or Session
        made: Session = super().__new__(kind) if issubclass(kind, cls) else kind(graph, target, config)
        return made

    def __init__(self, graph: Source = None, target: str = "", config: SessionConfig | Message | None = None) -> None:
        free_unused_graphs()
        self.id = next(_session_ids)
        self.config = SessionConfig.of(config)
        self._signatures: Mapping[str, Signature] = {}
        if isinstance(graph, MetaGraph):
            self._signatures = graph.public_signatures
            graph = graph.graph
        elif graph is None:
            graph = current_graph()
        if graph is None:
            graph = Graph()
        if not isinstance(graph, Graph):
            raise errors.InvalidTypeError(f"expected a graph, got {type(graph).__name__}: use aexec.load")
        self._devices = self._make_devices()
        self._pools = ThreadPools(self.config.thread_pools, self.config.inter_op_threads, self.config.intra_op_threads)
        self._pool = self._pools.first
        self._limits = SessionMemory(self.config)
        self._print_rate: PrintRate | None = None
        self._memory, kept = self._limits.account, self._limits.kept
        self.resources = (
            SharingResourceManager(self.config.share, kept=kept) if self.config.share else ResourceManager(kept=kept)
        )
        self.host_device = host_device(self._devices)
        self.other_devices = tuple(device for device in self._devices if not device.is_host)
        state = SessionState(self.config.session_tensor_bytes, self._memory)
        self.tensors = SessionTensors(state, self.host_device.name, self._pool)
        self._planner = self._make_planner(graph)
        self._callables: CallableCache[SessionCallable] = CallableCache()
        self._steps: dict[int, Step | _AtOnce] = {}
        self._partial_runs = PartialRunTable()
        self._runs = 0
        max_steps = self.config.max_steps
        self.places = None if max_steps is None else StepPlaces(max_steps, self.config.max_waiting_steps)
        self._cancellation = CancellationManager()
        self._queues = SessionQueues(self._planner, self.resources, state, self._cancellation, self._pool)
        self._slices = SliceClock(LoopBudget(self.config.slice_seconds), self._pool.helpers)
        # A graph without signatures as one of its own, and for how many nodes that is true.
        self._whole: tuple[int, Signature] | None = None
        executor_type = executor_of_type(self.config.executor_type) if self.config.executor_type else None
        self._create_rendezvous = None if executor_type is None else executor_type.create_rendezvous
        self._make_executor = (
            default_executor(compile_plans=self.config.compile_plans and not self._limits.is_exact)
            if executor_type is None
            else executor_type.factory
        )
        self._costs: CostModel | None = None
        self._measured_steps: MeasuredSteps | None = None
        if self.config.build_cost_model:
            from aexec.runtime.session.measured_steps import MeasuredSteps

            self._measured_steps = MeasuredSteps(self.config.build_cost_model, self.config.build_cost_model_after)
        if self.config.log_memory:
            log_memory.turn_on()
        self._forks = _forks
        self._step_end: asyncio.Event | None = None  # the next one's
        _sessions.add(self)

    def _make_devices(self) -> tuple[Device, ...]:
        """What its nodes run on, those of the preferred type first."""
        return make_devices(self.config.device_count, self.config.device_filters, self.config.memory_limits)

    def _make_planner(self, graph: Graph) -> Planner:
        return Planner(graph, self._devices, self.config, self._memory)

    async def __aenter__(self) -> Session:
        self._check_usable()
        try:
            await self._planner.place()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Session]:
        """What `async with` does when it enters, for where there is no block to leave: call `close` in the end."""
        return self.__aenter__().__await__()

    if not TYPE_CHECKING:  # which then say so themselves

        def __enter__(self):
            raise TypeError("A session closes asynchronously: use `async with aexec.Session(...) as session:`")

        def __exit__(self, *exc_info):
            pass

    def __reduce__(self) -> NoReturn:
        raise TypeError("A session cannot be copied or pickled: make another one of its graph")

    def __del__(self) -> None:
        if self._loop is not None and self._closed is None and self._forks == _forks:
            warnings.warn(
                f"Unclosed session {self.id}: leave its `async with` block, or await its close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    # Looking around

    @property
    def graph(self) -> Graph:
        """The graph as it is now, extensions included.

        Raises:
            FailedPreconditionError: the session has read it itself, and was closed.
        """
        if self._graph_nodes is None:
            return self._planner.graph
        if self._left is None:
            raise errors.FailedPreconditionError(
                f"Session {self.id} has been closed, and its graph was freed: take session.graph while it is open"
            )
        return self._left

    @property
    def _num_nodes(self) -> int:
        return len(self._planner.graph) if self._graph_nodes is None else self._graph_nodes

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph as a message."""
        return self.graph.to_graph_def()

    @property
    def cost_model(self) -> CostModel:
        """What the runs that were measured for it have taught.

        Those are runs with `RunOptions(cost_graph=True)`, and those that `SessionConfig.build_cost_model` chooses.
        """
        if self._costs is None:
            from aexec.runtime.profiling.cost_model import CostModel

            self._costs = CostModel()
        return self._costs

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The ways that a model offers to use it: name → `Signature`.  Empty for a plain graph."""
        return self._signatures

    def signature(self, name: str | None = None) -> Signature:
        """A way to use the graph, by names of its inputs and outputs.

        Args:
            name: which of `signatures`; by default the only one, or else `serving_default`.  A graph
                without signatures has one without a name: its placeholders, and what it computes of them.

        Raises:
            NotFoundError: there is none of that name, or none is the default.
        """
        if name is not None or self._signatures:
            return choose_signature(self._signatures, name)
        if self._whole is None or self._whole[0] != len(self.graph):
            self._whole = (len(self.graph), graph_signature(self.graph))
        return self._whole[1]

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """What `call` takes: name → the tensor, its type and its shape.  Of the default signature."""
        return self.signature().inputs

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """What `call` gives: name → the tensor, its type and its shape.  Of the default signature."""
        return self.signature().outputs

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in flight, oldest first."""
        if running_loop() is self._loop:
            return tuple(map(self._step_of, tuple(self._steps)))
        return tuple(step for step in tuple(self._steps.values()) if isinstance(step, Step))

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it belongs to, which is that of its first use."""
        return self._loop

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def statistics(self) -> SessionStatistics:
        """What the session has done and is doing."""
        return SessionStatistics(
            self._runs,
            len(self._steps),
            len(self._planner),
            self._num_nodes,
            self._slices.longest,
            self._pools.statistics(),
            None if self._memory is None else self._memory.in_use,
            0 if self.places is None else self.places.waiting,
        )

    @classmethod
    def live(cls) -> tuple[Session, ...]:
        """All sessions of this process that are still referred to, closed ones included."""
        return tuple(_sessions)

    # Running

    # fmt: off
    @overload
    async def run(self, fetches: str | Tensor, feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> Fetched: ...  # noqa: E501
    @overload
    async def run(self, fetches: Node, feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> None: ...  # noqa: E501
    @overload
    async def run(self, fetches: list[T], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> list[Fetched]: ...  # noqa: E501
    @overload
    async def run(self, fetches: dict[K, T], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> dict[K, Fetched]: ...  # noqa: E501
    @overload
    async def run(self, fetches: tuple[str | Tensor, str | Tensor], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> tuple[Fetched, Fetched]: ...  # noqa: E501
    @overload
    async def run(self, fetches: tuple[str | Tensor, ...], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> tuple[Fetched, ...]: ...  # noqa: E501
    @overload
    async def run(self, fetches: list[Any], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> list[Any]: ...  # noqa: E501
    @overload
    async def run(self, fetches: dict[K, Any], feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> dict[K, Any]: ...  # noqa: E501
    @overload
    async def run(self, fetches: Any, feeds: Feeds = ..., targets: TargetsLike = ..., **settings: Unpack[RunSettings]) -> Any: ...  # noqa: E501
    # fmt: on

    async def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: TargetsLike = (),
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        fetch_devices: Mapping[Any, str] | None = None,
    ) -> Any:
        """Run one step in the calling task.

        Args:
            fetches: a tensor, an operation, the name of one, or a nested structure of these.
            feeds: tensor (or its name) → value: an array, nested lists, or of another type that is known
                (`aexec.register_feed_type`).  Any tensor of the graph can be fed.  What is in the memory of one of
                the session's devices, a CuPy array or what has `__dlpack__`, enters the graph there.
            targets: operations to run without fetching anything.
            options: deadline and tracing.
            metadata: filled with statistics if `options` asks for them.
            fetch_devices: fetched tensor (or its name) → name of the device in whose memory its value is to be, as
                an array of its own.

        Returns:
            Values in the structure of `fetches`: arrays, NumPy scalars, `bytes`; None for operations.

        Raises:
            InvalidArgumentError: bad feeds or fetches, or a kernel's own error.
            NotFoundError: a fetch, feed or target that names nothing.
            DeadlineExceededError: the deadline passed.
            CancelledError: the step was cancelled, or the session closed.
            asyncio.CancelledError: the calling task was cancelled; the step has ended.
        """
        if type(fetches) is list and not fetches and not targets:
            self._check_usable()
            return []
        call, build, feeds = self._find(fetches, feeds, targets)
        if fetch_devices:
            call = self._on_devices(call, None, fetch_devices)
        return await self.execute(call, tuple(feeds.values()) if feeds else (), options, metadata, build)

    async def call(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        **named: Any,
    ) -> dict[str, Fetched]:
        """Run one step by a signature's own names: `await session.call("serving_default", x=x)`.

        Args:
            signature: as `Session.signature` takes its name.
            inputs: values by input name, for names that are no keywords.
            named: further values by input name.
            options, metadata: as for `run`.

        Returns:
            Output name → value.

        Raises:
            NotFoundError: there is no such signature.
            InvalidArgumentError: an input is missing, or there is none of that name.
            OpError, asyncio.CancelledError: as `run` does.
        """
        chosen = self.signature(signature)
        feeds = chosen.feeds(named_inputs(inputs, named))
        return await self.run(chosen.fetches(), feeds, options=options, metadata=metadata)

    def start(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
        metadata: RunMetadata | None = None,
        fetch_devices: Mapping[Any, str] | None = None,
    ) -> Step:
        """Start a step in a task of its own.  Arguments as for `run`; its errors come when it is awaited.

        What is wrong with the request itself raises at once, but for graphs so large that planning
        them takes a thread.
        """
        call, build, feeds = self._find(fetches, feeds, targets)
        if fetch_devices:
            call = self._on_devices(call, None, fetch_devices)
        step = self.new_step(call, tuple(feeds.values()) if feeds else (), options, metadata, build)
        step.launch()
        return step

    def make_callable(
        self,
        fetches: Any,
        feeds: Iterable[Any] = (),
        targets: Iterable[Any] = (),
        options: RunOptions | None = None,
        *,
        feed_devices: Mapping[Any, str] | None = None,
        fetch_devices: Mapping[Any, str] | None = None,
        fetch_skip_sync: bool = False,
        connections: Iterable[tuple[Any, Any]] = (),
    ) -> SessionCallable:
        """A signature that is resolved once, for many runs: `await call(x)` is cheaper than `run`.

        Args:
            fetches, targets: as for `run`; or as fetches a CallableOptions message, which says all of it.
            feeds: tensors, or their names, in the order in which calls give their values.
            options: of each call that gives none.
            feed_devices: fed tensor (or its name) → name of the device in whose memory each of its values has to be.
                Without it, each call sees where they are.
            fetch_devices: as for `run`.
            fetch_skip_sync: calls do not wait until devices have computed what is fetched; whatever uses it on the
                stream that was current in the caller's thread comes after that.  A kernel that fails on the device
                later than it was queued fails no step then.
            connections: pairs of tensors, or their names: in each call the first takes the place of the second, as if
                its value were fed there.

        These four are those of TensorFlow's CallableOptions.  The plan is made by the first call.

        Raises:
            NotFoundError: a fetch, feed or target that names nothing.
            InvalidArgumentError: a tensor that is fed twice, or fed and fetched, or of another graph; nothing
                to fetch or run; a device that there is not, or one for a tensor that is not fed or fetched; connections
                of tensors of different types, or by which one would depend on itself.
            UnimplementedError: a device cannot hold values of a tensor's type; a message with a field that is ignored.
        """
        if isinstance(fetches, Message):
            return self.make_callable(**callable_arguments(fetches))
        self._check_open()
        mapper = FetchMapper(fetches)
        call = self._callable(mapper, Request(self.graph, mapper, feeds, targets), options, connections=connections)
        if feed_devices or fetch_devices or fetch_skip_sync:
            return self._on_devices(call, feed_devices, fetch_devices, skip_sync=fetch_skip_sync)
        return call

    def _on_devices(
        self,
        call: SessionCallable,
        feed_devices: Mapping[Any, str] | None,
        fetch_devices: Mapping[Any, str] | None,
        *,
        skip_sync: bool = False,
    ) -> SessionCallable:
        """A callable with its values on the devices that are named."""
        feeds = dict(zip(map(canonical_name, call.feeds), call.feed_dtypes, strict=True))
        fetches = dict(zip(map(canonical_name, call.fetches), call.fetch_dtypes, strict=True))
        fed_on, fetched_on = [
            resolve_devices(self._devices, tensors, {canonical_name(key): name for key, name in (wanted or {}).items()})
            for tensors, wanted in ((feeds, feed_devices), (fetches, fetch_devices))
        ]
        return call.with_ends(DeviceEnds(fed_on, fetched_on, skip_sync and any(fetched_on)))

    def _taken_in(self, call: SessionCallable, values: Sequence[Any]) -> tuple[SessionCallable, Sequence[Any]]:
        """What a run of a callable is fed, values of devices taken in, and the callable with them where they are."""
        values = self.tensors.on_devices(call.specs, converted_feeds(call.specs, values))
        if not any(call.ends.feeds):
            feeds = where_fed(self.other_devices, values)
            if not any(feeds):
                return call, values
            call = call.with_ends(replace(call.ends, feeds=feeds))
        return call, take_in(call.specs, call.ends, values)

    async def plan_source(self, call: SessionCallable) -> str:
        """The plan of a callable as the Python function that it becomes when it is run often.

        Raises:
            UnimplementedError: it stays with the interpreter; the message says why.
            InvalidArgumentError, NotFoundError: as a call would.
        """
        cached = await self._plan_of(call)
        try:
            plan = cached.plan.joint if isinstance(cached.plan, PartitionedPlan) else cached.plan
            while not prepare_functions(plan, self._slices.budget):
                await asyncio.sleep(0)
            goes_on = plan.compilation.goes_on
            compiled = await self._pool.run(partial(compile_plan, plan, heavy_ns, goes_on=goes_on))
        except NotCompiledError as reason:
            raise errors.UnimplementedError(f"The plan is interpreted: {reason}") from None
        return compiled.listing

    def explain(self, call: SessionCallable) -> Explanation:
        """How the next run of a callable will be executed, and why: `print(session.explain(call))`.

        It plans nothing.  A run with options that trace it is interpreted, whatever this says.
        """
        return explain_run(call.plan, self._make_executor, self.config, needs_step=self.places is not None)

    async def rewrites(self, call: SessionCallable) -> PassReport:
        """What the graph passes have made of a callable's nodes.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        return report_passes((await self._plan_of(call)).graph)

    async def warm_up(
        self,
        signature: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        runs: int = _WARM_UP_RUNS,
        options: RunOptions | Message | None = None,
        **named: Any,
    ) -> None:
        """Do before the first request what it would have to wait for: `await session.warm_up("serving_default", x=x)`.

        With inputs the signature is run with them, so often that its plan is made, compiled, and what it takes of
        memory is there.  Without any its plan is made, and without a name those of all signatures.

        Args:
            signature, inputs, named, options: as for `call`.
            runs: how often.

        Raises:
            NotFoundError, InvalidArgumentError: as `call` does.
            OpError, asyncio.CancelledError: as `run` does.
        """
        if inputs or named:
            for _ in range(runs):
                await self.call(signature, inputs, options=options, **named)
            return
        names = [signature] if signature is not None or not self._signatures else list(self._signatures)
        for chosen in map(self.signature, names):
            call, _, _ = self._find(chosen.fetches(), chosen.feeds(dict.fromkeys(chosen.inputs)), ())
            await self.make_plan(call)

    async def make_plan(self, call: SessionCallable) -> None:
        """Make the plan of a callable now, in place of at its first run.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        await self._plan_of(call)

    async def _plan_of(self, call: SessionCallable) -> CachedPlan:
        self._check_usable()
        prepared = self._prepared(call)
        return prepared if isinstance(prepared, CachedPlan) else await prepared

    def stop_delegating(self) -> None:
        """Plans that are made from now on are run here alone: nodes will be added that no delegate is to see."""
        self._planner.stop_delegating()

    async def regions(self, call: SessionCallable) -> list[RegionReport]:
        """What a delegate runs of a callable, or would if its nodes took long enough: see `SessionConfig.delegates`.

        Raises:
            FailedPreconditionError: a delegate that the config names is not installed.
            InvalidArgumentError, NotFoundError: as a call would.
        """
        self._check_usable()
        return await self._planner.regions(call.signature)

    async def captured_regions(self, call: SessionCallable) -> list[CapturedReport]:
        """What GPUs capture of a callable: see `SessionConfig.capture_graphs`.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        prepared = self._prepared(call)
        cached = prepared if isinstance(prepared, CachedPlan) else await prepared
        return [region.report() for region in cached.captured]

    def run_threadsafe(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Future[Any]:
        """`run` for callers on other threads; returns at once, with a future of the results.

        Cancelling the future cancels the step.  Arguments and errors as for `run`.

        Raises:
            FailedPreconditionError: the session belongs to no loop yet (enter it, or run something there
                first), its loop does not run, or this is the loop's own thread.
        """
        loop = self._loop
        if loop is None or not loop.is_running():
            raise errors.FailedPreconditionError(
                f"Session {self.id} belongs to no event loop that runs: enter it with 'async with' in one first"
            )
        if running_loop() is loop:
            raise errors.FailedPreconditionError(
                f"run_threadsafe is for other threads than that of {loop!r}: await Session.run here"
            )
        coroutine = self.run(fetches, feeds, targets, options=options, metadata=metadata)
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    async def partial_run_setup(
        self,
        fetches: Any,
        feeds: Iterable[Any] = (),
        targets: Iterable[Any] = (),
        *,
        options: RunOptions | Message | None = None,
    ) -> PartialRun:
        """Start a step that is fed and fetched in several calls of `partial_run`.

        Args:
            fetches, targets: as for `run`: all that will be asked for.
            feeds: tensors, or their names: all that will be fed.
            options: of the step as a whole, its deadline above all.

        The step ends when everything was fed and fetched, by its first error, when it is cancelled,
        or with the session.

        Raises:
            InvalidArgumentError, NotFoundError: as `run`.
            ResourceExhaustedError: too many partial runs of the session have not ended.
        """
        self._partial_runs.make_room()
        call = self.make_callable(fetches, feeds, targets)
        call.signature = replace(call.signature, in_parts=True)
        step = self.new_step(call, (), options, None, kind=PartialRun)
        assert isinstance(step, PartialRun)
        await step.planned()
        step.begin(self.graph, call)
        self._partial_runs.add(step)
        return step

    async def partial_run(self, setup: PartialRun | str, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Go on with a partial run: feed some of its feeds, and wait for some of its fetches.

        Args:
            setup: what `partial_run_setup` gave, or its handle.

        Raises:
            InvalidArgumentError: the run has ended; a feed or fetch that was not named at the set-up, or was
                given or taken before; a fetch that needs feeds which are still to come.
            OpError: the step's error; it is over then.
        """
        self._check_usable()
        return await self._partial_runs.go_on(setup, FetchMapper(fetches), flat_feeds(feeds or {}))

    async def extend(self, more: Graph | Message | bytes) -> None:
        """Add nodes to the session's graph.

        Args:
            more: a graph, or a GraphDef as message, TensorFlow's own included, or as bytes, whose inputs may
                name nodes that are there already.

        Raises:
            InvalidArgumentError: a name that is taken, another producer version, or a bad graph.
                The session's graph is unchanged then.
        """
        self._check_usable()
        if isinstance(more, Graph):
            more = more.to_graph_def()
        if not isinstance(more, bytes | proto.FlatGraphDef):
            more = as_message(more, proto.GraphDef)
        await self._planner.extend(more)

    async def reset(self, containers: Iterable[str] = ()) -> None:
        """Cancel the steps in flight, wait for their end, and drop containers with all that they keep.

        The session can be used on: what a step asks for is made anew.

        Args:
            containers: their names; none means the default container.  Unknown ones are ignored.

        Raises:
            InvalidArgumentError: a name that no container can have.
        """
        names = tuple(containers) or (DEFAULT_CONTAINER,)
        for name in names:
            check_container(name)
        self._check_usable()
        await self._cancel_steps("the session's containers are reset")
        for name in names:
            self.resources.cleanup(name)

    async def _cancel_steps(self, reason: str) -> None:
        """Cancel those in flight, and wait for their end."""
        steps = {step.id: step for step in self.steps}
        for step in steps.values():
            step.cancel(reason)
        while not steps.keys().isdisjoint(self._steps):
            await self._next_end()

    async def close(self, containers: Iterable[str] = ()) -> None:
        """Cancel all steps, wait until nothing of the session runs, and free its resources.  Idempotent.

        Args:
            containers: shared ones to clear although other sessions use them.

        Raises:
            FailedPreconditionError: called from another event loop than that of the session, which still runs.
        """
        if self._closed is None:
            loop = self._loop
            if loop is not None and loop.is_running() and running_loop() is not loop:
                raise errors.FailedPreconditionError(
                    f"Session {self.id} belongs to the event loop {loop!r}, which has to close it"
                )
            self._cancellation.start_cancel_with_status(
                errors.CancelledError("Session has been closed."), CancelReason(CancelSource.SESSION_CLOSED)
            )
            # A task of its own, so that whoever is cancelled while waiting for it does not leave it half done.
            closing = self._close(tuple(containers))
            self._closed = asyncio.get_running_loop().create_task(closing, name=f"close session {self.id}")
        await asyncio.shield(self._closed)

    async def _close(self, containers: tuple[str, ...]) -> None:
        while self._steps:
            await self._next_end()
        self._partial_runs.clear()
        await self._planner.close()
        await self._pools.close()
        for device in self._devices:
            await device.close()
        for container in containers:
            self.resources.cleanup(container)
        self.resources.clear()
        self.tensors.state.clear()
        self._planner.dispose()
        if self._print_rate is not None:
            self._print_rate.close()
        self._callables.clear()
        self._limits.close()
        self._release_graph()
        free_unused_graphs()
        if self.config.log_memory:
            log_memory.turn_off()

    def own_graph(self) -> None:
        """Nobody else has its graph.  When it closes, the graph is freed, unless somebody has taken it meanwhile."""
        self._owns_graph = True

    def _release_graph(self) -> None:
        """The session is closed: keep its graph where nothing else refers to it but this session, or not at all."""
        graph = self._planner.graph
        remember_graph(graph)
        self._planner.release_graph()
        self._graph_nodes = len(graph)
        self._left = None if self._owns_graph else graph

    def queue(self, name: str) -> Queue:
        """A queue of the graph, for putting and taking elements from Python.

        Args:
            name: of the node that makes it, or the `shared_name` of a queue that was made already.  One in the
                default container comes before those in others, which `container/shared_name` tells apart.

        Raises:
            NotFoundError: there is none.
            InvalidArgumentError: a node that makes no queue, or one that disagrees with the queue it shares.
        """
        self._check_usable()
        return self._queues.find(name)

    def queues(self) -> dict[str, Queue]:
        """The queues that were made so far, by the names under which `queue` finds them."""
        return self._queues.all()

    # The way of a run

    def _check_open(self) -> None:
        if self._forks != _forks:
            raise errors.FailedPreconditionError(
                "This session was made before the process forked and cannot be used in the child: its threads do not "
                "exist here. Start worker processes with the 'spawn' start method and make a session in each."
            )
        if self._closed is not None:
            raise errors.CancelledError("Session has been closed.")

    def _check_usable(self) -> asyncio.AbstractEventLoop:
        """The running loop, to which the session belongs from now on."""
        if self._forks != _forks or self._closed is not None:
            self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise errors.FailedPreconditionError(
                    f"Session {self.id} belongs to the event loop {self._loop!r} and was used from {loop!r}"
                )
            self._loop = loop
        return loop

    def _find(
        self, fetches: Any, feeds: Mapping[Any, Any] | None, targets: Any
    ) -> tuple[SessionCallable, Callable[[Sequence[Any]], Any], Mapping[Any, Any] | None]:
        """The callable of a request of `run`, what makes the result of its values, and its feeds, one for a tensor."""
        kind = type(fetches)
        key = (
            kind,
            tuple(fetches) if kind is list else fetches,
            tuple(feeds) if feeds else (),
            targets if type(targets) is tuple or isinstance(targets, str | Node) else tuple(targets),
        )
        try:
            call = self._callables[key]
        except (KeyError, TypeError):  # a new one, or a structure that cannot be looked up
            pass
        else:
            return call, call.build, feeds
        self._check_open()
        if feeds and (flat := flat_feeds(feeds)) is not feeds:
            return self._find(fetches, flat, targets)
        mapper = FetchMapper(fetches)
        request = Request(self.graph, mapper, key[2], key[3])
        if mapper.flat:
            call = self._callable(mapper, request, answer_fed=True)
            return self._callables.remember(key, call), call.build, feeds
        # What a structure is made of can be asked for as a list.
        names = (list, request.fetches, request.feeds, request.targets)
        known = self._callables.get(names)
        if known is None:
            known = self._callables.remember(names, self._callable(mapper, request, answer_fed=True))
        return known, mapper.build, feeds

    def _callable(
        self, mapper: FetchMapper, request: Request, options: RunOptions | None = None, **settings: Any
    ) -> SessionCallable:
        return SessionCallable(self, mapper, request, options, check_shapes=self.config.check_feed_shapes, **settings)

    async def execute(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> Any:
        """Run a step of `call` in the calling task.  `SessionCallable` calls this; use `run` or `make_callable`."""
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
        """Begin a step of `call`: its result, or the step with what is left to be awaited of it.

        A line is run at once.  `Step` and all that belongs to it are made only if somebody looks for it meanwhile, or
        if it cannot go on so.
        """
        loop = self._check_usable()
        if self.other_devices:
            call, values = self._taken_in(call, values)
        if self._measured_steps is not None:
            options = self._measured_steps.options(call.signature, options)
        if options is not None:
            options = RunOptions.of(options)
        begun = self._begin_line(loop, call, values, options, build)
        if begun is not None:
            return begun
        step = self._new_step(loop, call, values, options, metadata, build)
        return None, step, step.run()

    def begin_at_once(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | None,
        build: Callable[[Sequence[Any]], Any],
    ) -> BegunRun | None:
        """As `begin`, but begin nothing, and give None, if it is no line that may be run now."""
        loop = self._check_usable()
        if self.other_devices or self._measured_steps is not None:
            return None
        return self._begin_line(loop, call, values, options, build)

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
        end = self._slices.enter(loop)
        began = perf_counter()
        feeds = self._feeds_at_once(call, values) if began < end else None
        if feeds is None:
            return None
        step_id = next(step_ids)
        self._steps[step_id] = (call, feeds, build, options, began)
        self._runs += 1
        try:
            results = run_line(line, None, feeds, end)
        except BaseException as error:
            step = self._step_of(step_id)
            assert isinstance(step.execution, CompiledExecution)
            rest = step.execution.rest(line, feeds, error)
        else:
            if type(self._steps[step_id]) is tuple:
                del self._steps[step_id]
                if call.fetches_feeds:
                    results = call.with_fed(results, feeds)
                if self._memory is not None:
                    hand_over(results, self._memory, self.resources.kept)
                return build(to_values(results)), None, None
            step, rest = self._step_of(step_id), _given(results)
        del feeds
        return None, step, step.finish(rest)

    def _feeds_at_once(self, call: SessionCallable, values: Sequence[Any]) -> list[Any] | None:
        """What a run is fed; None if that is for its step to say: large, to be converted in a thread, or wrong."""
        try:
            feeds = list(map(self.tensors.feed, call.specs, values))
        except (errors.OpError, NeedsThreadError):
            return None
        small = self._slices.budget.small_elements
        for feed in feeds:
            if feed.size > small:
                return None
        return feeds

    def _step_of(self, step_id: int) -> Step:
        """A step in flight.  Of a run that has none so far it is made."""
        found = self._steps[step_id]
        if isinstance(found, Step):
            return found
        assert self._loop is not None
        call, feeds, build, options, began = found
        step = self._steps[step_id] = self._new_step(self._loop, call, (), options, None, build, step_id=step_id)
        step.join(feeds, began)
        return step

    def new_step(
        self,
        call: SessionCallable,
        values: Sequence[Any],
        options: RunOptions | Message | None,
        metadata: RunMetadata | None,
        build: Callable[[Sequence[Any]], Any] | None = None,
        kind: type[Step] = Step,
    ) -> Step:
        """A step of `call` that has not begun.  `SessionCallable` calls this; use `run` or `make_callable`.

        Args:
            build: makes the result of the fetched values, if it is not what the callable gives.
        """
        loop = self._check_usable()
        build = build or call.build
        if self.other_devices and not call.signature.in_parts:
            call, values = self._taken_in(call, values)
        if self._measured_steps is not None:
            options = self._measured_steps.options(call.signature, options)
        return self._new_step(loop, call, values, options, metadata, build, kind)

    def _new_step(
        self,
        loop: asyncio.AbstractEventLoop,
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
        prepared = self._prepared(call)
        step_id = step_id or next(step_ids)
        memory, tracer = self._watches(options, step_id)
        environment = StepEnvironment(
            loop,
            self._pool if options is None else self._pools.of_run(options.thread_pool),
            self._slices,
            self.resources,
            CancellationManager(self._cancellation),
            self.tensors.state,
            self._make_executor,
            tracer,
            step_id,
            memory,
            self.config.transport,
            self._create_rendezvous,
            self._printer(loop, options),
        )
        timeout = self.config.operation_timeout
        if options is not None and options.timeout is not None:
            timeout = options.timeout
        if environment.tracer is not None and log_memory.is_enabled():
            text = request_text(call.feeds, call.fetches, call.targets, partial=kind is PartialRun)
            log_memory.record_step(environment.step_id, f"{text};{self._runs + 1}")
        return kind(self, environment, call, prepared, values, build, options, metadata, timeout)

    def _watches(self, options: RunOptions | None, step_id: int) -> tuple[StepMemory | None, StepTracer | None]:
        """What a step's memory is accounted for with, and what sees its kernel calls; None where nobody asked."""
        return self._limits.watches(
            step_id,
            self.resources,
            self.host_device.name,
            trace=options is not None and options.is_traced,
            report=options is not None and options.report_tensor_allocations_upon_oom,
        )

    def _prepared(self, call: SessionCallable) -> Prepared:
        """The plan of a callable, or a future of it."""
        return call.prepared(self._planner)

    def step_began(self, step: Step) -> None:
        """Called by a step that runs from now on."""
        self._steps[step.id] = step
        self._runs += 1

    def step_ended(self, step: Step) -> None:
        """Called by a step when nothing of it runs any more."""
        environment = step.environment
        try:
            environment.cancellation.close()
            self.resources.cleanup_step(environment.step_id)
        finally:
            del self._steps[step.id]
            if self._step_end is not None:
                self._step_end.set()
                self._step_end = None

    def _printer(self, loop: asyncio.AbstractEventLoop, options: RunOptions | None) -> Printer:
        """Where a step prints to."""
        if options is not None and options.prints:
            return Prints(MAX_PRINTS)
        most = self.config.printed_bytes
        if most is None:
            return print_text
        if self._print_rate is None:
            self._print_rate = PrintRate(f"session {self.id}", most, loop)
        return self._print_rate

    async def _next_end(self) -> None:
        """Wait until a step ends."""
        self._step_end = self._step_end or asyncio.Event()
        await self._step_end.wait()

    def fetched_nodes(self, cached: CachedPlan) -> list[str]:
        """Names of the nodes that a plan's fetches come from."""
        return [self.graph.nodes[i].name for i, _ in cached.signature.fetches]

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return self._planner.executed_graphs(cached)

    def learn_costs(self, cached: CachedPlan, stats: proto.StepStats) -> proto.CostGraphDef:
        """Add a step of a plan to the cost model; returns what that knows of the plan's nodes now."""
        self.cost_model.add(stats)
        return self._planner.cost_graph(cached, self.cost_model)

    def __repr__(self) -> str:
        return f"<Session {self.id}, {self._num_nodes} nodes, {self._facts()}>"

    def _facts(self) -> str:
        state = "closed" if self.closed else f"{len(self._steps)} steps in flight"
        return f"{len(self._planner)} plans, {state}"

    def _repr_html_(self) -> str:
        steps = [(step.id, step.state.value, f"{step.statistics().seconds:.1f}") for step in self.steps]
        queues = [] if self.closed else [(name, *queue.statistics().facts()) for name, queue in self.queues().items()]
        tables = [
            *signature_tables(self._signatures),
            *(() if self._signatures else self.signature().html_tables()),
            table("steps", ["state", "seconds"], steps, len(steps)),
            table("queues", ["elements", "waiting"], queues, len(queues)),
            table("devices", ["memory"], [(d.name, d.memory_facts()) for d in self._devices], len(self._devices)),
        ]
        return block(f"Session {self.id}", f"{self._num_nodes} nodes, {self._facts()}", *tables)
