"""The queues of a session, by name, for Python programs.

`Session.queue` and `Session.queues` use this; they return the `Queue` of `aexec/queues/session_queue.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext, Params
from aexec.framework.shape import UNKNOWN_RANK
from aexec.framework.state.resource_manager import DEFAULT_CONTAINER, ResourceManager, node_of_private
from aexec.framework.state.session_state import SessionState
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.worker_threads import WorkerThreads
from aexec.graph.nodes.node import Node
from aexec.queues.queue_base import QueueBase, lookup_queue
from aexec.queues.session_queue import Queue
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.planning.planner import Planner

__all__ = ["SessionQueues"]


class SessionQueues:
    """Finds the queues of a session by name.

    Args:
        planner: the session's planner: has the graph, and the kernels of its nodes.
        resources: the manager that has the queues.
        state: the session's state.
        cancellation: the session's; cancels what waits at the queues.
        pool: the threads in which much data is copied.
    """

    def __init__(
        self,
        planner: Planner,
        resources: ResourceManager,
        state: SessionState,
        cancellation: CancellationManager,
        pool: WorkerThreads,
    ) -> None:
        self._planner = planner
        self._resources = resources
        self._state = state
        self._cancellation = cancellation
        self._pool = pool

    def find(self, name: str) -> Queue:
        """Arguments and errors as those of `Session.queue`."""
        graph = self._planner.graph
        node = graph.find(name)
        if node is not None:
            return self._seen(self._made_by(node))
        found = self._resources.find(DEFAULT_CONTAINER, name, QueueBase)
        if found is None:
            found = self._shared(name)
        if found is None:
            raise errors.NotFoundError(f"There is no queue '{name}'{graph.suggest(name)}")
        return self._seen(found)

    def all(self) -> dict[str, Queue]:
        """The existing queues, by the names that `find` takes."""
        return {name: self._seen(queue) for name, queue in _named(self._resources.of_type(QueueBase))}

    def each(self) -> Iterator[tuple[str, QueueBase]]:
        """As `all`, but one at a time, for very many: by container, in the order in which they were made."""
        return _named(self._resources.each_of_type(QueueBase))

    def _shared(self, name: str) -> QueueBase | None:
        """The queue of another container that `name` names, with or without its container; None if there is none."""
        for container in self._resources.containers:
            for known in (name, name.removeprefix(f"{container}/")):
                found = self._resources.find(container, known, QueueBase)
                if found is not None:
                    return found
        return None

    def _seen(self, found: QueueBase) -> Queue:
        name = found.name
        specs = [FeedSpec(f"{name}[{i}]", dtype, UNKNOWN_RANK, i) for i, dtype in enumerate(found.spec.types)]
        return Queue(found, self._cancellation, [spec.convert for spec in specs], self._pool)

    def _made_by(self, node: Node) -> QueueBase:
        """The queue that a node makes; makes it now if no step has done so."""
        if not node.op.removesuffix("V2").endswith("Queue") or node.in_edges:
            raise errors.InvalidArgumentError(f"Node '{node.name}' ({node.op}) makes no queue", node=node.name)
        params = Params(
            step_id=0,
            loop=asyncio.get_running_loop(),
            worker_pool=self._pool,
            cancellation=self._cancellation,
            resources=self._resources,
            session_state=self._state,
        )
        try:
            handle = self._planner.kernel(node).compute(OpKernelContext(params))
            return lookup_queue(self._resources, handle)
        except errors.OpError as error:
            error.attach_node(node.name, node.op, node.site)
            raise


def _named(found: Iterable[tuple[str, str, QueueBase]]) -> Iterator[tuple[str, QueueBase]]:
    """The queues of (container, name, queue) by the names that `SessionQueues.find` takes."""
    taken: set[str] = set()
    for container, name, queue in found:
        node = node_of_private(name)
        known = name if node is None else node
        known = f"{container}/{name}" if known in taken else known
        taken.add(known)
        yield known, queue
