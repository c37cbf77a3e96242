"""`ServedRuns`: the life of a run from its request to its end, the same for HTTP and gRPC.

A run is listed, admitted, executed by `run_execution.py`, and recorded with its outcome.  Next to read: `runs.py`,
which does this for requests of HTTP, whose bodies come while their runs are listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aexec import errors
from aexec.errors import Code
from aexec.hosting import LoopTurns, SliceClock, loop_budget
from aexec_server.clients.callers import Caller
from aexec_server.clients.client_shares import ShareError
from aexec_server.core.admission import OverloadError
from aexec_server.core.run_journal import RunJournal
from aexec_server.core.server_state import Server
from aexec_server.handlers.run_execution import RunExecution, run_options
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_table import Run, StartedRun
from aexec_server.requests.served_call import ServedCall
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.watching.trace_context import new_trace_id

__all__ = ["ServedRuns"]

T = TypeVar("T")

# Errors by which a run is refused because of overload.
_TOO_MUCH = (OverloadError, ShareError)


class ServedRuns:
    """Lists, admits and records the runs of a server.

    Attributes:
        journal: records runs that have ended.
        execution: executes runs whose requests were read.
        turns: shares the turns of the loop among requests that come at once.
    """

    def __init__(self, server: Server) -> None:
        self.admission = server.admission
        self.journal = RunJournal(server.metrics, server.spans, log_steps=server.config.step_log)
        self.execution = RunExecution(server, self.journal)
        # patience=0 is strict FIFO: requests are alike, so none waits much longer than another.
        self.turns = SliceClock(loop_budget.DEFAULT, turns=LoopTurns(), patience=0)

    async def serve(
        self,
        hosted: HostedSession,
        caller: Caller,
        arrival: float,
        timeout: float | None,
        work: Callable[[Run], Awaitable[T]],
        trace_id: Callable[[], str] = new_trace_id,
        begun: StartedRun | None = None,
    ) -> T:
        """Execute a run whose request has arrived in full: list it, let it be cancelled, and count it.

        Cancelling this cancels the work; then the run counts as one whose client has left.

        Args:
            arrival: when the request came, by `time.monotonic`.
            timeout: seconds from then in which the run has to end; None for no limit but the server's.
            work: executes the run, as by `RunExecution.execute`.
            trace_id: returns the id of the request's trace.
            begun: the run as `begin_at_once` has begun it.

        Raises:
            ResourceExhaustedError: too many runs are in flight.
            OpError: as `work`.
        """
        run = self.new_run(hosted, caller)
        admitted = False
        try:
            run.timeout = timeout
            run.deadline = self.execution.first_deadline(arrival, timeout)
            run.ready = arrival
            self.admission.begin(hosted, run, caller)
            admitted = True
            if begun is None:
                await self.turns.take_turn(asyncio.get_running_loop())
            else:
                self._continue(run, begun)
            result = await work(run)
            run.outcome = Code.OK.name
            return result
        except asyncio.CancelledError:
            self.left(run)
            raise
        except errors.OpError as error:
            self.failed(run, error)
            raise
        finally:
            if admitted:
                self.admission.end(hosted, run)
            self.end(hosted, run, arrival, trace_id)

    def begin_at_once(
        self,
        hosted: HostedSession,
        caller: Caller,
        asked: RunRequest,
        deadline: float | None,
        check: Callable[[ServedCall], object] | None = None,
    ) -> StartedRun | None:
        """Begin a run that may end at once, without listing it.

        Args:
            check: raises if the request does not fit the call.

        Returns:
            The run, which has ended if it has no `rest`; None for a run that must begin in the ordinary way, which also
            reports its errors.
        """
        if asked.trace or asked.partition_graphs or caller.quotas.runs is not None or self.execution.sample_is_due:
            return None
        try:
            served = hosted.served(asked, by_admin=caller.is_admin)
            if served.batched is not None or not self.admission.passes(hosted):
                return None
            if check is not None:
                check(served)
            fed = asked.values(served.inputs, served.input_dtypes)
            begun = served.call.begin_at_once(*fed, options=run_options(asked, deadline, trace=False))
        except Exception:
            return None
        return None if begun is None else StartedRun(served, *begun)

    def _continue(self, run: Run, begun: StartedRun) -> None:
        run.begun = begun
        self.admission.takes(run)
        if begun.step is not None:
            run.begin(begun.step)

    def new_run(self, hosted: HostedSession, caller: Caller) -> Run:
        """List a run of the caller's, until `end`.

        Raises:
            ResourceExhaustedError: too many runs are in flight.
        """
        try:
            self.admission.check(hosted, caller)
        except _TOO_MUCH:
            self.journal.refused(hosted)
            raise
        hosted.acquire()
        run = hosted.runs.add(hosted.runs_owner(caller))
        run.by_admin = caller.is_admin
        return run

    def left(self, run: Run) -> None:
        """Note that the run's client has left."""
        run.outcome, run.left = Code.CANCELLED.name, True
        if run.stream is not None:
            run.error = errors.CancelledError("The client who asked for it has gone")

    def failed(self, run: Run, error: errors.OpError) -> None:
        """Note the error with which the run ends."""
        run.outcome, run.shed, run.error = error.code.name, isinstance(error, _TOO_MUCH), error

    def end(self, hosted: HostedSession, run: Run, arrival: float, trace_id: Callable[[], str] = new_trace_id) -> None:
        """Remove a run from the list, and record it."""
        run.held = None
        if run.changes and hosted.durable is not None:
            hosted.durable.end_change()
            if run.left:
                hosted.durable.settle_later()
        hosted.runs.remove(run)
        hosted.release()
        self.journal.ended(hosted, run, arrival, trace_id)
