"""`RpcRunSteps`: implements RunStep, a run or a part of a partial run, for the services of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aexec import errors, proto
from aexec.hosting import loop_budget
from aexec_server.core.server_state import Server
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.http.error_responses import public_error
from aexec_server.protocols.large_tensors import run_step_apart
from aexec_server.requests import protobuf
from aexec_server.requests.repeated_steps import RepeatedSteps
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_response import is_soon_written, message_answer
from aexec_server.requests.run_table import Run
from aexec_server.rpc.method import Call
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["RpcRunSteps"]


class RpcRunSteps:
    """Runs sessions for gRPC calls.

    Args:
        server: the server.
        runs: `runs.served` takes runs from their request to their end.
        session: returns the session of a handle; raises OpError if the caller has none of that handle.
    """

    def __init__(self, server: Server, runs: RunHandlers, session: Callable[[str, Call], HostedSession]) -> None:
        self._limits = server.config.message_limits
        self._runs = runs
        self._served = runs.served
        self._session = session
        self._repeated = RepeatedSteps()

    async def answer(self, call: Call, data: bytes, run_id: str | None = None) -> bytes:
        """The RunStepResponse to a RunStepRequest; errors are in the response for who asks for that.

        Args:
            run_id: the name that its client chose for the run; None for a new one.
        """
        small = self._repeated.read(data)
        if small is not None:
            running = self._run(call, small.session_handle, small.asked, len(data), run_id)
            errors_in_body = small.errors_in_body
        else:
            rest, contents = run_step_apart(data)
            message = await bodies.read_message(proto.RunStepRequest, rest, self._limits)
            size = len(data) - sum(map(len, contents.values()))
            running = self._read_and_run(call, message, contents, size, run_id)
            errors_in_body = message.store_errors_in_response_body
        try:
            return await running
        except errors.OpError as error:
            if not errors_in_body:
                raise
            return protobuf.error_in_response(public_error(error, "RunStep by gRPC")).SerializeToString()

    async def _read_and_run(
        self,
        call: Call,
        message: proto.RunStepRequest,
        contents: Mapping[int, memoryview],
        size: int,
        run_id: str | None,
    ) -> bytes:
        """Run what a message asks for, of whose bytes so many are still to be decoded."""
        hosted = self._session(message.session_handle, call)
        asked = await bodies.beside(size * loop_budget.WIRE_NS, protobuf.read_run_step, message, contents)
        if message.partial_run_handle:
            answer, counted = await self._runs.partial_runs.rpc_part(
                hosted, call.caller, message.partial_run_handle, asked, size
            )
            call.keep_until_sent(counted)
            return answer
        return await self._run(call, message.session_handle, asked, size, run_id)

    async def _run(self, call: Call, handle: str, asked: RunRequest, size: int, run_id: str | None) -> bytes:
        hosted = self._session(handle, call)
        execution, owner = self._served.execution, hosted.runs_owner(call.caller)
        with hosted.in_use():
            # Of many that come at once, some are run in each turn of the loop.
            await self._served.turns.take_turn(asyncio.get_running_loop())
        begun = None
        if run_id is None or hosted.runs.free(owner, run_id):
            deadline = execution.deadline(hosted.session, asked, call.arrival, call.timeout)
            begun = self._served.begin_at_once(hosted, call.caller, asked, deadline)
        if begun is not None and begun.rest is None and is_soon_written(asked, begun.values):
            call.run_id = hosted.runs.add_ended(owner, run_id)
            written, _ = message_answer(call.run_id, asked, begun.served, begun.values, None)
            execution.passed(hosted, call.run_id, call.seconds)
            return bytes(written)

        async def work(run: Run) -> bytes:
            if run_id is not None:
                hosted.runs.rename(run, run_id)
            call.run_id = run.id
            answer, _ = await execution.execute(hosted, run, asked, size, call.arrival, message_answer)
            call.keep_until_sent(run.held)
            return bytes(answer)

        return await self._served.serve(hosted, call.caller, call.arrival, call.timeout, work, call.trace_id, begun)
