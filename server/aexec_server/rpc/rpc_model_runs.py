"""`RpcModelRuns`: runs models for gRPC calls, as `handlers/model_calls.py` does for HTTP requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aexec import errors
from aexec.hosting import NeedsThreadError, loop_budget
from aexec_server.handlers.model_calls import ModelRequest, execute_model_run
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import Answer, Writer, is_soon_written
from aexec_server.requests.run_table import Run, StartedRun
from aexec_server.rpc.method import Call
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["RpcModelRuns"]

# Size in bytes up to which a request is tried at once, on the chance that its run ends at once.
_SMALL = 2**14


class RpcModelRuns:
    """Runs models for gRPC calls.

    Args:
        runs: of the server.
    """

    def __init__(self, runs: RunHandlers) -> None:
        self._served = runs.served
        self._execution = runs.execution

    async def run(
        self, call: Call, version: ModelVersion, size: int, read: Callable[[HostedSession], ModelRequest]
    ) -> bytes:
        """The answer to a request, which the model's statistics count.

        Args:
            size: of the request, in bytes.
            read: decodes the request's tensors.

        Raises:
            OpError: the version does not serve, too many runs are in flight, or the run failed.
        """
        hosted = version.hosted.acquire()
        try:
            if size <= _SMALL:
                return await self._run_small(call, version, hosted, size, read)
            return await self._run(call, version, hosted, size, read)
        finally:
            hosted.release()

    async def _run_small(
        self,
        call: Call,
        version: ModelVersion,
        hosted: HostedSession,
        size: int,
        read: Callable[[HostedSession], ModelRequest],
    ) -> bytes:
        # If many come at once, only some are read and run in each turn of the loop.
        await self._served.turns.take_turn(asyncio.get_running_loop())
        try:
            wanted = read(hosted)
        except NeedsThreadError:
            return await self._run(call, version, hosted, size, read)
        except errors.OpError:
            version.statistics.count_failure(int(call.arrival * 1e9))
            raise
        decoded = time.monotonic_ns()
        deadline = self._execution.deadline(hosted.session, wanted.asked, call.arrival, call.timeout)
        begun = self._served.begin_at_once(hosted, call.caller, wanted.asked, deadline, wanted.check)
        if begun is None or begun.rest is not None or not is_soon_written(wanted.asked, begun.values):
            return await self._run(call, version, hosted, size, read, wanted, begun)
        ran = time.monotonic_ns()
        call.run_id = hosted.runs.add_ended(hosted.runs_owner(call.caller))
        written, _ = wanted.write(version, begun.served, begun.values)
        version.statistics.count_success(int(call.arrival * 1e9), decoded, ran, wanted.rows, 0)
        self._execution.passed(hosted, call.run_id, call.seconds)
        return bytes(written)

    async def _run(
        self,
        call: Call,
        version: ModelVersion,
        hosted: HostedSession,
        size: int,
        read: Callable[[HostedSession], ModelRequest],
        wanted: ModelRequest | None = None,
        begun: StartedRun | None = None,
    ) -> bytes:
        """Like `run`; `wanted` and `begun` are the request and the run if they exist already."""

        async def reading() -> ModelRequest:
            if wanted is not None:
                return wanted
            return await bodies.beside(size * loop_budget.WIRE_NS, read, hosted)

        def work(run: Run) -> Awaitable[Answer]:
            return execute_model_run(self._execution, version, hosted, run, reading(), size, call.arrival)

        return await self._serve(call, hosted, work, begun)

    async def run_step(
        self, call: Call, version: ModelVersion, size: int, read: Callable[[], RunRequest], write: Writer
    ) -> bytes:
        """The answer to a request for a step of the model's graph.  Raises as `run`."""
        hosted = version.hosted

        async def work(run: Run) -> Answer:
            asked = await bodies.beside(size * loop_budget.WIRE_NS, read, deadline=run.deadline)
            return await self._execution.execute(hosted, run, asked, size, call.arrival, write)

        return await self._serve(call, hosted, work)

    async def _serve(
        self,
        call: Call,
        hosted: HostedSession,
        work: Callable[[Run], Awaitable[Answer]],
        begun: StartedRun | None = None,
    ) -> bytes:
        async def answer(run: Run) -> bytes:
            call.run_id = run.id
            written, _ = await work(run)
            call.keep_until_sent(run.held)
            return bytes(written)

        timeout, trace_id = call.timeout, call.trace_id
        return await self._served.serve(hosted, call.caller, call.arrival, timeout, answer, trace_id, begun)
