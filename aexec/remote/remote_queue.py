"""`RemoteQueue`: a queue of a session in a server, used like a `Queue` of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.framework.shape import UNKNOWN_RANK
from aexec.graph.signature import TensorInfo
from aexec.queues.queue_base import QueueStatistics
from aexec.runtime.feeding.fetches import to_values

__all__ = ["QueueOwner", "RemoteQueue"]


class QueueOwner(Protocol):
    """Calls the queues of a session by their names."""

    async def enqueue(
        self, name: str, components: Mapping[str, Any], known: Mapping[str, TensorInfo], *, many: bool
    ) -> None:
        """Put an element, or with `many` the rows of its components."""
        ...

    async def dequeue(self, name: str, count: int | None, *, up_to: bool) -> list[Any]:
        """Take an element, or a number of elements; return the components."""
        ...

    async def close(self, name: str, *, cancel_pending: bool) -> None:
        """Close a queue."""
        ...

    async def statistics(self, name: str) -> QueueStatistics:
        """The statistics of a queue, now."""
        ...


class RemoteQueue:
    """A queue of a session in a server; its methods do what those of `Queue` do, and raise the same errors.

    Args:
        owner: calls the session's queues.
        name: of the node that makes it, or its `shared_name`.
        types: of its components, if they are known.
    """

    def __init__(self, owner: QueueOwner, name: str, types: Sequence[DType] | None) -> None:
        self.name = name
        self._owner = owner
        self._types = types

    async def put(self, element: Any) -> None:
        """Put an element; waits until there is room.  If it is cancelled, the server may have put the element."""
        await self._put(element, many=False)

    async def put_many(self, components: Any) -> None:
        """Put the rows of an array (or of a tuple of arrays), in order, each as soon as there is room."""
        await self._put(components, many=True)

    async def _put(self, element: Any, *, many: bool) -> None:
        count = None if self._types is None else len(self._types)
        values = element if isinstance(element, tuple | list) and count != 1 else (element,)
        if count not in (None, len(values)):
            raise errors.InvalidArgumentError(
                f"Wrong number of components in tuple. Expected {count}, got {element!r:.200}"
            )
        feeds = {f"{self.name}[{i}]": value for i, value in enumerate(values)}
        types = self._types or ()
        known = {name: TensorInfo(name, dtype, UNKNOWN_RANK, ()) for name, dtype in zip(feeds, types, strict=False)}
        await self._owner.enqueue(self.name, feeds, known, many=many)

    async def get(self) -> Any:
        """Take an element; waits until there is one.

        If it is cancelled, it has taken nothing, unless the element was already in transit, which is then lost.
        """
        return await self._get(None)

    async def get_many(self, count: int, *, up_to: bool = False) -> Any:
        """Take `count` elements, as one array per component; waits until there are enough.  Cancelled as `get`."""
        return await self._get(count, up_to=up_to)

    async def _get(self, count: int | None, *, up_to: bool = False) -> Any:
        values = to_values(await self._owner.dequeue(self.name, count, up_to=up_to))
        return values[0] if len(values) == 1 else tuple(values)

    async def close(self, *, cancel_pending: bool = False) -> None:
        """Close the queue: no element can be put any more; those in it can still be taken."""
        await self._owner.close(self.name, cancel_pending=cancel_pending)

    async def statistics(self) -> QueueStatistics:
        """The queue's statistics.

        Raises:
            NotFoundError: the queue has not been used yet.
        """
        return await self._owner.statistics(self.name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            try:
                element = await self.get()
            except errors.OutOfRangeError:
                return
            yield element

    def __repr__(self) -> str:
        return f"<RemoteQueue '{self.name}'>"
