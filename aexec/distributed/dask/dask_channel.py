"""A channel: a connection that a client has opened to a worker, on which the worker asks and the client answers.

So messages can be pushed to a client that does not listen, and each end notices when the other's connection breaks.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from aexec.distributed.cluster_messages import Message
from aexec.distributed.dask.dask_wire import FAMILIES, packed, unpacked

__all__ = ["AskingChannel", "Channel"]


class Channel:
    """Either end of a channel.

    Args:
        comm: a connection of Dask's.
    """

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._writing = asyncio.Lock()

    async def send(self, fields: dict[str, Any]) -> None:
        """Send fields, after those that are being sent.  Raises OSError if the channel is closed."""
        async with self._writing:
            await self._comm.write(fields, serializers=FAMILIES["serializers"], on_error="raise")

    async def receive(self) -> Any:
        """The next message.  Raises OSError if the channel is closed, TypeError for content that must not be
        deserialised.
        """
        return await self._comm.read(deserializers=FAMILIES["deserializers"])

    def abort(self) -> None:
        """Close it at once."""
        self._comm.abort()


class AskingChannel(Channel):
    """The worker's end: messages are numbered, and their answers come in any order."""

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Message]] = {}

    async def ask(self, head: Sequence[Any], message: Message) -> Message:
        """The answer to a message.  Raises OSError if the channel is closed before it comes."""
        number = next(self._numbers)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self.send({"number": number, **packed(head, message)})
            return await answer
        finally:
            del self._answers[number]

    async def take_answers(self) -> None:
        """Deliver answers until the channel is closed.  Raises OSError then."""
        try:
            while True:
                came = await self.receive()
                waiting = self._answers.get(came["number"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(unpacked(came["body"], came["large"])[1])
        finally:
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError("The client's channel was closed"))
