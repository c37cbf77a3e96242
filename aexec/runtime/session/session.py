"""`Session`: a graph, its state, and the runs in flight.

A run goes: names → `SessionCallable` → plan → execution → results.  `SessionCallables` resolves the names, once for
each request; `SessionSteps` begins the step.  `run` executes in the calling task; `start` returns a `Step` that runs in
a task of its own; `make_callable` resolves the names once for many runs.  Read `session_callables.py` and `callable.py`
for what a request becomes, `session_steps.py` for how a step begins, `planning/planner.py` for its plan, and
`interpreter/execution.py` for how a plan is executed.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from google.protobuf.message import Message

from aexec import proto
from aexec.devices.device_registry import host_device, make_devices
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.memory import log_memory
from aexec.framework.state.resource_manager import DEFAULT_CONTAINER, ResourceManager, check_container
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager, CancelReason, CancelSource
from aexec.framework.waiting.futures import running_loop
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph, current_graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.signature import (
    named_inputs,
)
from aexec.queues.session_queue import Queue
from aexec.resources.shared_containers import SharingResourceManager
from aexec.runtime.config import RunMetadata, RunOptions, SessionConfig, callable_arguments
from aexec.runtime.feeding.fetches import FetchMapper, flat_feeds
from aexec.runtime.planning.planner import Planner
from aexec.runtime.session.callable import SessionCallable
from aexec.runtime.session.kept_graph import KeptGraph
from aexec.runtime.session.partial_run import PartialRun, PartialRunTable
from aexec.runtime.session.run_types import Feeds, Fetched, RunSettings, Source, T, TargetsLike
from aexec.runtime.session.session_callables import SessionCallables
from aexec.runtime.session.session_classes import class_for_source, class_for_target
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.session.session_queues import SessionQueues
from aexec.runtime.session.session_steps import SessionSteps
from aexec.runtime.session.session_tensors import SessionTensors
from aexec.runtime.session.session_view import SessionView
from aexec.runtime.session.step import Step
from aexec.runtime.session.unused_graphs import free_unused_graphs
from aexec.runtime.threads.thread_pools import ThreadPools

__all__ = ["Session"]

K = TypeVar("K")

# So often a plan is run until nothing about it is new: it is compiled at its third.
_WARM_UP_RUNS = 5

_session_ids = itertools.count(1)
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session(SessionView):
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

    tensors: SessionTensors
    resources: ResourceManager
    _closing: asyncio.Task[None] | None = None

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
        self.config = config = SessionConfig.of(config)
        self._signatures = {}
        self._whole = None
        if isinstance(graph, MetaGraph):
            self._signatures = graph.public_signatures
            graph = graph.graph
        elif graph is None:
            graph = current_graph()
        if graph is None:
            graph = Graph()
        if not isinstance(graph, Graph):
            raise errors.InvalidTypeError(f"expected a graph, got {type(graph).__name__}: use aexec.load")
        self._life = life = SessionLife(self.id)
        self._devices = self._make_devices()
        self._pools = ThreadPools(config.thread_pools, config.inter_op_threads, config.intra_op_threads)
        pool = self._pools.first
        self._limits = self._make_limits()
        kept = self._limits.kept
        self.resources = SharingResourceManager(config.share, kept=kept) if config.share else ResourceManager(kept=kept)
        state = SessionState(config.session_tensor_bytes, self._limits.account)
        self.tensors = SessionTensors(state, host_device(self._devices).name, pool)
        self._planner = self._make_planner(graph)
        self._graph = KeptGraph(self.id, self._planner)
        self._partial_runs = PartialRunTable()
        self._cancellation = CancellationManager()
        self._queues = SessionQueues(self._planner, self.resources, state, self._cancellation, pool)
        self._steps = SessionSteps(
            config,
            life,
            self._devices,
            self._planner,
            self._graph,
            self.resources,
            self.tensors,
            self._limits,
            self._pools,
            self._cancellation,
        )
        self._callables = SessionCallables(self._steps, life, self._devices, check_shapes=config.check_feed_shapes)
        if config.log_memory:
            log_memory.turn_on()
        _sessions.add(self)

    def _make_devices(self) -> tuple[Device, ...]:
        """What its nodes run on, those of the preferred type first."""
        return make_devices(self.config.device_count, self.config.device_filters, self.config.memory_limits)

    def _make_planner(self, graph: Graph) -> Planner:
        return Planner(graph, self._devices, self.config, self._limits.account)

    def _make_limits(self) -> SessionMemory:
        return SessionMemory(self.config)

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
        call, build, feeds = self._callables.find(fetches, feeds, targets)
        if fetch_devices:
            call = self._callables.on_devices(call, None, fetch_devices)
        values = tuple(feeds.values()) if feeds else ()
        result, _, rest = self._steps.begin(call, values, options, metadata, build)
        return result if rest is None else await rest

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
        call, build, feeds = self._callables.find(fetches, feeds, targets)
        if fetch_devices:
            call = self._callables.on_devices(call, None, fetch_devices)
        step = self._steps.new_step(call, tuple(feeds.values()) if feeds else (), options, metadata, build)
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
        call = self._callables.make(fetches, feeds, targets, options, connections)
        if feed_devices or fetch_devices or fetch_skip_sync:
            return self._callables.on_devices(call, feed_devices, fetch_devices, skip_sync=fetch_skip_sync)
        return call

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
            call, _, _ = self._callables.find(chosen.fetches(), chosen.feeds(dict.fromkeys(chosen.inputs)), ())
            await self.make_plan(call)

    async def make_plan(self, call: SessionCallable) -> None:
        """Make the plan of a callable now, in place of at its first run.

        Raises:
            InvalidArgumentError, NotFoundError: as a call would.
        """
        await self._plan_of(call)

    def stop_delegating(self) -> None:
        """Plans that are made from now on are run here alone: nodes will be added that no delegate is to see."""
        self._planner.stop_delegating()

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
        loop = self._life.loop
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
        step = self._steps.new_step(call, (), options, None, kind=PartialRun)
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
        await self._steps.cancel_all("the session's containers are reset")
        for name in names:
            self.resources.cleanup(name)

    async def close(self, containers: Iterable[str] = ()) -> None:
        """Cancel all steps, wait until nothing of the session runs, and free its resources.  Idempotent.

        Args:
            containers: shared ones to clear although other sessions use them.

        Raises:
            FailedPreconditionError: called from another event loop than that of the session, which still runs.
        """
        if self._closing is None:
            loop = self._life.loop
            if loop is not None and loop.is_running() and running_loop() is not loop:
                raise errors.FailedPreconditionError(
                    f"Session {self.id} belongs to the event loop {loop!r}, which has to close it"
                )
            self._cancellation.start_cancel_with_status(
                errors.CancelledError("Session has been closed."), CancelReason(CancelSource.SESSION_CLOSED)
            )
            # A task of its own, so that whoever is cancelled while waiting for it does not leave it half done.
            closing = self._close(tuple(containers))
            self._closing = asyncio.get_running_loop().create_task(closing, name=f"close session {self.id}")
            self._life.closed = True
        await asyncio.shield(self._closing)

    async def _close(self, containers: tuple[str, ...]) -> None:
        await self._steps.wait_for_ends()
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
        self._steps.close()
        self._callables.clear()
        self._limits.close()
        self._release_graph()
        free_unused_graphs()
        if self.config.log_memory:
            log_memory.turn_off()

    def own_graph(self) -> None:
        """Nobody else has its graph.  When it closes, the graph is freed, unless somebody has taken it meanwhile."""
        self._graph.is_own = True

    def _release_graph(self) -> None:
        self._graph.release()

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

    def _check_usable(self) -> asyncio.AbstractEventLoop:
        """The running loop, to which the session belongs from now on."""
        return self._life.check_usable()
