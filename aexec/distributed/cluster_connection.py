"""`ClusterConnection`: a session's connection to a cluster: with engine, handler, and objects to close with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field

from aexec.distributed.cluster_messages import Message
from aexec.distributed.engine import Engine, Handler
from aexec.framework.late_dataclass import dataclass

__all__ = ["ClusterConnection"]


async def _nothing() -> None:
    pass


@dataclass(slots=True, eq=False)
class ClusterConnection:
    """A session's connection to a cluster.

    Attributes:
        engine: the session's end.
        lease: seconds without an answer after which a task is lost.
        handler: handles messages that tasks push; set by the session.
        also_close: closes what belongs to the connection, after the engine.
    """

    lease: float
    engine: Engine = field(init=False)
    handler: Handler | None = None
    also_close: Callable[[], Awaitable[object]] = _nothing

    async def handle(self, sender: str, verb: str, message: Message) -> Message | None:
        """Pass a pushed message to the session."""
        return None if self.handler is None else await self.handler(sender, verb, message)

    async def close(self) -> None:
        """Leave the cluster."""
        await self.engine.close()
        await self.also_close()
