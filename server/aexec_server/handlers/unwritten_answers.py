"""`UnwrittenAnswers`: answers of direct runs of durable sessions, which wait until the disk has what they tell of.

The run has ended and its answer is made.  The answer is written by the commit that has the run's changes, without a
task.  If that commit fails, or the client sends more before its answer, the ordinary handler of runs gets the request
with the ended run: it waits for the disk itself, and reports errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aexec_server.clients.callers import Caller
from aexec_server.core.access_log import log_access
from aexec_server.core.server_state import Server
from aexec_server.handlers.runs import RunHandlers
from aexec_server.requests.run_table import StartedRun
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["EndedRun", "UnwrittenAnswer", "UnwrittenAnswers"]

_CLOSE = b"\r\nConnection: close\r\n"


@dataclass(slots=True, eq=False)
class EndedRun:
    """A run that has ended at once.

    Attributes:
        hosted: its session, which it uses until its answer is written.
        caller: whose run it is.
        run: its call and its results.
        run_id: its id.
        arrival, deadline: when its request came, and when it had to end or None, by `time.monotonic`.
    """

    hosted: HostedSession
    caller: Caller
    run: StartedRun
    run_id: str
    arrival: float
    deadline: float | None


@dataclass(slots=True, eq=False)
class UnwrittenAnswer:
    """An answer that waits for the disk.

    Attributes:
        data: its bytes.
        path: its request's, for the log.
        ended: the run.
        on_settled: called with True when it was written, with False if the ordinary handler is to answer.
        seconds: how long the run took.
    """

    data: bytes
    path: str
    ended: EndedRun
    on_settled: Callable[[bool], object]
    seconds: float = 0.0


class UnwrittenAnswers:
    """The answers that wait for the disk, one at most for a connection.

    Args:
        server: the server.
        runs: continues runs in the ordinary way.

    Attributes:
        waiting: the answers by connection.
    """

    def __init__(self, server: Server, runs: RunHandlers) -> None:
        self._server = server
        self._runs = runs
        self.waiting: dict[asyncio.BaseTransport, UnwrittenAnswer] = {}

    def add(self, transport: asyncio.Transport, answer: UnwrittenAnswer, waits: asyncio.Future[None]) -> None:
        """Write the answer when the future is done."""
        answer.ended.hosted.acquire()
        answer.seconds = time.monotonic() - answer.ended.arrival
        self.waiting[transport] = answer
        waits.add_done_callback(partial(self._on_done, transport, answer))

    def _on_done(self, transport: asyncio.Transport, answer: UnwrittenAnswer, waits: asyncio.Future[None]) -> None:
        if self.waiting.get(transport) is not answer:
            return
        if waits.exception() is not None:
            self.pass_on(transport)
            answer.on_settled(False)
            return
        leaving = self._server.leaving
        transport.write(answer.data.replace(b"\r\n", _CLOSE, 1) if leaving else answer.data)
        self.drop(transport)
        if self._server.config.access_log:
            seconds = time.monotonic() - answer.ended.arrival
            log_access("POST", answer.path, 200, seconds, answer.ended.run_id)
        if leaving:
            transport.close()
        answer.on_settled(True)

    def drop(self, transport: asyncio.BaseTransport) -> None:
        """Let the session go and record the run, whose answer was written, or whose client has left."""
        answer = self.waiting.pop(transport, None)
        if answer is not None:
            ended = answer.ended
            self._runs.execution.passed(ended.hosted, ended.run_id, answer.seconds)
            ended.hosted.release()

    def pass_on(self, transport: asyncio.BaseTransport) -> None:
        """Keep the run that waits on this connection for the ordinary handler, if there is one."""
        answer = self.waiting.pop(transport, None)
        if answer is not None:
            ended = answer.ended
            self._runs.begin_early(
                transport, ended.hosted, ended.caller, ended.arrival, ended.deadline, ended.run, passed=False
            )
            ended.hosted.release()
