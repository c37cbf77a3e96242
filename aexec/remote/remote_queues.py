"""`RemoteQueues`: the queues of a session in a server, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aexec.framework import errors
from aexec.graph.signature import TensorInfo
from aexec.queues.queue_base import QueueStatistics
from aexec.remote.remote_graph import RemoteGraph
from aexec.remote.remote_queue import RemoteQueue
from aexec.remote.run_messages import named_tensors, read_tensors
from aexec.remote.service import Service

__all__ = ["RemoteQueues"]


class RemoteQueues:
    """Calls the queues of a session; its methods raise CancelledError if the session is closed.

    Args:
        service: the server.
        handle: returns the session's handle there; raises FailedPreconditionError before the session is entered.
        graph: the session's graph.
        check_open: raises CancelledError if the session is closed.
    """

    def __init__(
        self, service: Service, handle: Callable[[], str], graph: RemoteGraph, check_open: Callable[[], None]
    ) -> None:
        self._service = service
        self._handle = handle
        self._graph = graph
        self._check_open = check_open

    def queue(self, name: str) -> RemoteQueue:
        """The queue of a name, whether it exists or not."""
        self._check_open()
        local = self._graph.local
        node = None if local is None else local.find(name)
        types = None if node is None else tuple(node.attrs.get("component_types", ())) or None
        return RemoteQueue(self, name, types)

    async def existing(self) -> dict[str, RemoteQueue]:
        """The existing queues, by name."""
        return {fields["name"]: self.queue(fields["name"]) for fields in await self._service.queues(self._handle())}

    async def statistics(self, name: str) -> QueueStatistics:
        """The statistics of a queue, now.  Raises NotFoundError if there is none of that name."""
        for fields in await self._service.queues(self._handle()):
            if fields["name"] == name:
                waiting = fields.pop("waiting_producers"), fields.pop("waiting_consumers")
                return QueueStatistics(**fields, waiting_enqueues=waiting[0], waiting_dequeues=waiting[1])
        raise errors.NotFoundError(f"There is no queue '{name}', or nobody has used it yet")

    async def enqueue(
        self, name: str, components: Mapping[str, Any], known: Mapping[str, TensorInfo], *, many: bool
    ) -> None:
        """Put an element, or with `many` the rows of its components.

        Args:
            components: name → value, in order.
            known: name → type of a component, if it is known.
        """
        handle = await self._current()
        await self._service.enqueue(handle, name, named_tensors(components, known), many=many)

    async def dequeue(self, name: str, count: int | None, *, up_to: bool) -> list[Any]:
        """Take an element, or a number of elements; return the components."""
        answer = await self._service.dequeue(await self._current(), name, count, up_to=up_to)
        return [value for _, value in read_tensors(answer)]

    async def close(self, name: str, *, cancel_pending: bool) -> None:
        """Close a queue."""
        await self._service.close_queue(await self._current(), name, cancel_pending=cancel_pending)

    async def _current(self) -> str:
        """The session's handle, once the server has the graph as it is now."""
        self._check_open()
        handle = self._handle()
        await self._graph.send_new_nodes(handle)
        return handle
