"""`RpcModelRuns`: runs of models that gRPC calls ask for, as `handlers/model_calls.py` runs those of HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from google.protobuf.message import Message

from aexec.hosting import loop_budget
from aexec_server.handlers.model_calls import ModelRequest, execute_model_run
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.models.models import ModelVersion
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import Answer, Writer
from aexec_server.requests.run_table import Run
from aexec_server.rpc.method import Call
from aexec_server.sessions.store import HostedSession

__all__ = ["RpcModelRuns"]


class RpcModelRuns:
    """Runs models for gRPC calls.

    Args:
        runs: of the server.
    """

    def __init__(self, runs: RunHandlers) -> None:
        self._served = runs.served
        self._execution = runs.execution

    async def run(
        self, call: Call, version: ModelVersion, request: Message, read: Callable[[HostedSession], ModelRequest]
    ) -> bytes:
        """The answer to a request, which the model's statistics count.

        Args:
            read: decodes the request's tensors.

        Raises:
            OpError: the version does not serve, too many runs are in flight, or the run failed.
        """
        hosted, size = version.hosted, request.ByteSize()

        def work(run: Run) -> Awaitable[Answer]:
            reading = bodies.beside(size * loop_budget.WIRE_NS, lambda: read(hosted))
            return execute_model_run(self._execution, version, hosted, run, reading, size, call.arrival)

        return await self._serve(call, hosted, work)

    async def run_step(
        self, call: Call, version: ModelVersion, request: Message, read: Callable[[], RunRequest], write: Writer
    ) -> bytes:
        """The answer to a request for a step of the model's graph.  Raises as `run`."""
        hosted, size = version.hosted, request.ByteSize()

        async def work(run: Run) -> Answer:
            asked = await bodies.beside(size * loop_budget.WIRE_NS, read, run.deadline)
            return await self._execution.execute(hosted, run, asked, size, call.arrival, write)

        return await self._serve(call, hosted, work)

    async def _serve(self, call: Call, hosted: HostedSession, work: Callable[[Run], Awaitable[Answer]]) -> bytes:
        async def answer(run: Run) -> bytes:
            call.run_id = run.id
            written, _ = await work(run)
            call.keep_until_sent(run.held)
            return bytes(written)

        return await self._served.serve(hosted, call.caller, call.arrival, call.timeout, answer, call.trace_id)
