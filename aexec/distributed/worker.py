"""`Worker`: a task's side of a cluster: handles each verb that a client, or another task, sends.

A `WorkerSession` (`worker_session.py`) keeps what belongs to one session; it is closed when the client closes the
session, is lost, or has not been heard of for the time that it announced.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from aexec.distributed.cluster_messages import NO_SESSION, Message
from aexec.distributed.engine import Engine
from aexec.distributed.worker_session import WorkerSession
from aexec.framework import errors
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["Worker"]

# Verbs whose answers report how busy the worker is.
_TELLING = frozenset({"ping", "run_step"})


async def _resident_bytes() -> int | None:
    """The process's resident memory in bytes; None if it is unknown."""
    try:
        import psutil  # type: ignore[import-untyped]  # comes with Dask distributed
    except ImportError:
        return None
    # Reading it opens a file.
    return await run_in_thread(lambda: int(psutil.Process().memory_info().rss), on_cancel=OnCancel.WAIT)


class Worker:
    """A task's side of a cluster: handles each verb that a client or another task sends.

    Attributes:
        sessions: the open sessions, by handle.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, WorkerSession] = {}
        self._engine: Engine | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def steps(self) -> int:
        """The number of running steps, of all sessions."""
        return sum(session.running_steps for session in self.sessions.values())

    def connect(self, engine: Engine) -> None:
        """Set its end of the cluster's connections, which calls `handle`."""
        self._engine = engine
        engine.on_lost(self._lost)

    async def handle(self, sender: str, verb: str, message: Message) -> Message | None:
        """Handle a message, without waiting for anything that takes long.

        Raises:
            NotFoundError: the session is not open here.
            InvalidArgumentError: no such verb.
        """
        handle = message.fields.get("session", "")
        if verb == "open_session":
            return self._open(sender, handle, message.fields)
        if verb == "describe":
            sessions = {name: session.describe() for name, session in self.sessions.items()}
            return Message({"sessions": sessions, "pid": os.getpid(), "bytes": await _resident_bytes()})
        session = self.sessions.get(handle)
        if session is None:
            raise errors.NotFoundError(f"{NO_SESSION} {handle} at this worker: it was closed, or given up")
        if verb == "close_session":
            self._close(handle)
            return None
        answer = await session.serve(sender, verb, message)
        if answer is not None and verb in _TELLING:
            answer.fields["steps"] = self.steps
        return answer

    def _open(self, client: str, handle: str, fields: dict[str, Any]) -> Message:
        assert self._engine is not None
        for address in (client, *fields["tasks"].values()):
            self._engine.readmit(address)
        known = self.sessions.get(handle)
        if known is not None and known.incarnation != fields["incarnation"]:
            self._close(handle)  # the client took this worker for lost meanwhile
        if handle not in self.sessions:
            self.sessions[handle] = WorkerSession(self._engine, client, handle, fields, self._close)
        return Message({"devices": self.sessions[handle].device_fields(), "clock": time.time_ns()})

    def _close(self, handle: str) -> None:
        session = self.sessions.pop(handle, None)
        if session is not None:
            task = asyncio.get_running_loop().create_task(session.close(), name=f"close session {handle}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _lost(self, address: str, why: str) -> None:
        for handle, session in list(self.sessions.items()):
            if session.client == address:
                self._close(handle)
            else:
                session.lost(address, why)

    async def close(self) -> None:
        """Cancel all steps, wait for their end, free everything, and close the connections."""
        for handle in list(self.sessions):
            self._close(handle)
        while self._closing:
            await asyncio.wait(self._closing)
        if self._engine is not None:
            await self._engine.close()

    def __repr__(self) -> str:
        return f"<Worker {len(self.sessions)} sessions>"
