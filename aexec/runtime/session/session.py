"""`Session`: a graph, its state, and the steps in flight; making, entering, extending and closing it.

For users it is one class.  Here `SessionView` has what only reads, `SessionRuns` what runs the graph.  A run goes names
→ `SessionCallable` → plan → execution → results.  Next to read: `session_runs.py`, then `session_callables.py` and
`callable.py` for what a request becomes, `session_steps.py` for how a step begins, `planning/planner.py` for its plan,
and `interpreter/execution.py` for how a plan is executed.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from google.protobuf.message import Message

from aexec import proto
from aexec.devices.device_registry import host_device, make_devices
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.memory import log_memory
from aexec.framework.memory.freed_memory import FREED_MEMORY
from aexec.framework.state.resource_manager import DEFAULT_CONTAINER, ResourceManager, check_container
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager, CancelReason, CancelSource
from aexec.framework.waiting.futures import running_loop
from aexec.framework.wire.messages import as_message
from aexec.graph.graph import Graph, current_graph
from aexec.graph.meta_graph import MetaGraph
from aexec.queues.queue_base import QueueBase
from aexec.queues.session_queue import Queue
from aexec.resources.shared_containers import SharingResourceManager
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning.planner import Planner
from aexec.runtime.session.kept_graph import KeptGraph
from aexec.runtime.session.partial_run import PartialRunTable
from aexec.runtime.session.run_types import Source
from aexec.runtime.session.session_callables import SessionCallables
from aexec.runtime.session.session_classes import class_for_source, class_for_target
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_memory import SessionMemory
from aexec.runtime.session.session_queues import SessionQueues
from aexec.runtime.session.session_runs import SessionRuns
from aexec.runtime.session.session_steps import SessionSteps
from aexec.runtime.session.session_tensors import SessionTensors
from aexec.runtime.session.unused_graphs import free_unused_graphs
from aexec.runtime.threads.own_loop import OwnLoopClock
from aexec.runtime.threads.thread_pools import ThreadPools

__all__ = ["Session"]

_session_ids = itertools.count(1)
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session(SessionRuns):
    """Runs a graph inside the current event loop.

    Args:
        graph: the graph to run, to which nodes may be added later; a SavedModel or MetaGraph; or anything else that
            `aexec.load` takes, such as the path of a file, which is read when the session is entered or awaited.  By
            default the graph that is being built, or an empty one.
        target: selects the session class, see `session_classes.register_session_class`; "" is this class, in process.
        config: settings, as SessionConfig or as a ConfigProto message.

    Raises:
        InvalidArgumentError: the graph cannot be placed: an op has no kernel, colocation constraints contradict each
            other, or a device does not exist.  On an event loop, entering the session or its first run raises this
            instead if the graph is large or its kernels are not imported yet, since both take long and are left to a
            thread.

    Use a session as an asynchronous context manager, or call `close` when done.  All methods belong to the event loop
    of the first run; `Step.cancel` may be called from any thread.
    """

    tensors: SessionTensors
    resources: ResourceManager
    _closing: asyncio.Task[None] | None = None

    def __new__(cls, graph: Source = None, target: str = "", config: SessionConfig | Message | None = None) -> Session:
        # Choose the class.  Python calls `__init__` on the result only if it is of this class, and once.
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
        FREED_MEMORY.keep()
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
        """The devices that the nodes run on, those of the preferred type first."""
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
        """Enter the session as `async with` does, without a block: the caller must call `close`."""
        return self.__aenter__().__await__()

    if not TYPE_CHECKING:  # type checkers report these by themselves

        def __enter__(self):
            raise TypeError("A session closes asynchronously: use `async with aexec.Session(...) as session:`")

        def __exit__(self, *exc_info):
            pass

    def __reduce__(self) -> NoReturn:
        raise TypeError("A session cannot be copied or pickled: make another one of its graph")

    @classmethod
    def live(cls) -> tuple[Session, ...]:
        """All sessions of this process that are still referenced, closed ones included."""
        return tuple(_sessions)

    # Methods that change the session

    async def extend(self, more: Graph | Message | bytes) -> None:
        """Add nodes to the session's graph.

        Args:
            more: a graph, or a GraphDef as bytes or as message, TensorFlow's own included.  Its inputs may name nodes
                that the session's graph has.

        Raises:
            InvalidArgumentError: a name is taken, the producer version differs, or the graph is bad.  The session's
                graph is unchanged then.
        """
        self._check_usable()
        if isinstance(more, Graph):
            more = more.to_graph_def()
        if not isinstance(more, bytes | proto.FlatGraphDef):
            more = as_message(more, proto.GraphDef)
        await self._planner.extend(more)

    async def reset(self, containers: Iterable[str] = ()) -> None:
        """Cancel the steps in flight, wait for their end, and delete containers with all their resources.

        The session stays usable; later steps create the resources anew.

        Args:
            containers: their names; empty for the default container.  Unknown names are ignored.

        Raises:
            InvalidArgumentError: a name is not valid for a container.
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
            containers: shared containers to clear although other sessions use them.

        Raises:
            FailedPreconditionError: called from another event loop while the session's own loop runs.
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
            # In a task of its own, so that cancelling a caller of `close` does not leave the session half closed.
            closing = self._close(tuple(containers))
            self._closing = asyncio.get_running_loop().create_task(closing, name=f"close session {self.id}")
            self._life.closed = True
        await asyncio.shield(self._closing)

    async def _close(self, containers: tuple[str, ...]) -> None:
        await self._steps.wait_for_ends()
        if self._steps.background is not None:
            await self._steps.background.close()
            self._steps.background = None  # each refers to the other
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
        """Declare that the session alone has its graph: closing then frees it, unless something else refers to it by
        then.
        """
        self._graph.is_own = True

    def own_loop(self, is_alone: Callable[[], bool]) -> None:
        """Declare that nothing but this session runs on its event loop; before its first run.

        Args:
            is_alone: whether at most one caller waits for the session; called at the beginning of each slice.
        """
        if self.config.slice_seconds is None:
            steps = self._steps
            steps.slices = OwnLoopClock(
                steps.slices, lambda: len(steps.in_flight) <= 1 and not steps.background and is_alone()
            )

    def _release_graph(self) -> None:
        self._graph.release()

    def queue(self, name: str) -> Queue:
        """A queue of the graph, for putting and taking elements from Python.

        Args:
            name: the name of the node that makes the queue, or the `shared_name` of an existing queue.  The default
                container is searched before the others; `container/shared_name` names one in another container.

        Raises:
            NotFoundError: there is no such queue.
            InvalidArgumentError: the node makes no queue, or its attributes differ from those of the queue that it
                shares.
        """
        self._check_usable()
        return self._queues.find(name)

    def queues(self) -> dict[str, Queue]:
        """The existing queues, by the names under which `queue` finds them."""
        return self._queues.all()

    def _each_queue(self) -> Iterator[tuple[str, QueueBase]]:
        """For `aexec.hosting.each_queue`."""
        return self._queues.each()
