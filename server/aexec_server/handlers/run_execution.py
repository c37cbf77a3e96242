"""`RunExecution`: executes a run whose request was read: takes a slot or joins a batch, runs, and writes the answer.

Next to read: `runs.py`, which answers the requests, and `core/admission.py`.
"""

from __future__ import annotations

import time
from dataclasses import replace

import aexec
from aexec import errors
from aexec.hosting import BatchedCallable, loop_budget
from aexec_server.core.admission import BatchSlot
from aexec_server.core.run_journal import RunJournal
from aexec_server.core.server_state import Server
from aexec_server.durable.durable_session import DurableSession
from aexec_server.http import bodies
from aexec_server.http.answer_parts import PIECE
from aexec_server.requests.run_request import DEFAULT_PRIORITY, RunRequest
from aexec_server.requests.run_response import (
    Answer,
    Writer,
    answer_bytes,
    answer_ns,
    check_answer_size,
    check_answerable,
    metadata_ns,
)
from aexec_server.requests.run_table import Run, StartedRun
from aexec_server.requests.run_traces import Phases
from aexec_server.requests.served_call import ServedCall
from aexec_server.requests.tensors import arrays_of_their_own, size_of
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["RunExecution", "run_options"]


class RunExecution:
    """Executes the runs of a server.

    Args:
        journal: records the direct runs, and the kernels of traced ones.
    """

    def __init__(self, server: Server, journal: RunJournal) -> None:
        self.config = server.config
        self.admission = server.admission
        self.journal = journal
        self._door = server.door
        self._memory = server.sessions.memory
        self._samples = 0

    async def execute(
        self, hosted: HostedSession, run: Run, asked: RunRequest, size: int, arrival: float, write: Writer
    ) -> Answer:
        """Execute a run whose request had `size` bytes, and return its answer.

        Cancelling this coroutine, as when the client leaves, cancels the step.
        """
        begun = run.begun or await self._begin(hosted, run, asked, size, arrival)
        run.has_begun = True
        values, step, stream = begun.values, begun.step, begun.stream
        metadata, phases = None, None
        if step is not None and begun.rest is not None:  # otherwise it was over at once
            run.begin(step)
            if asked.trace:
                phases = _phases_before(run, arrival)
                if stream is not None:
                    stream.phases = phases
            try:
                values = await begun.rest
            finally:
                metadata = step.metadata
                if phases is not None and metadata is not None:
                    phases.running = _since(arrival, phases)
                    hosted.runs.traces.add(run.key, metadata, phases)
        if metadata is not None and metadata.step_stats is not None:
            self.journal.count_kernels(metadata.step_stats)
            if begun.sampled:
                metadata = replace(metadata, step_stats=None, peak_bytes=None)
        if stream is not None:
            return b"", None  # the stream has reported everything
        size = 0
        for value in values:
            size += size_of(value)
        check_answer_size(size, self.config.max_answer_bytes)
        if size > PIECE:
            run.held = self._door.reserve(answer_bytes(values, as_text=asked.as_text))
        nanoseconds = answer_ns(asked, values)
        if metadata is not None:
            nanoseconds += metadata_ns(metadata)
        answer = await bodies.beside(
            nanoseconds, write, run.id, asked, begun.served, values, metadata, deadline=run.deadline
        )
        if phases is not None:
            phases.encoding = _since(arrival, phases)
        return answer

    async def _begin(self, hosted: HostedSession, run: Run, asked: RunRequest, size: int, arrival: float) -> StartedRun:
        """Begin a run once it has a slot or a place in a batch."""
        run.check()
        run.deadline = deadline = self.deadline(hosted.session, asked, arrival, run.timeout)
        stream = run.stream if run.stream is not None and run.stream.watched else None
        batch = None if stream is not None else self._batch_of(hosted, run, asked)
        if batch is None:
            await self._take_slot(run, asked)
        else:
            self.admission.check_batches(batch.backlog_seconds)
        if deadline is not None and time.monotonic() >= deadline:
            raise errors.DeadlineExceededError("The run's deadline came before it could begin")
        served = hosted.served(asked, by_admin=run.by_admin)
        if hosted.durable is not None:
            await _begin_durable(hosted.durable, hosted, run, served)
        if stream is not None or not asked.as_message:
            check_answerable(asked, served)
        nanoseconds = size * loop_budget.WIRE_NS if asked.untyped else 0
        fed = await bodies.beside(nanoseconds, asked.values, served.inputs, served.input_dtypes, deadline=deadline)
        if size > PIECE:
            self._memory.hold(*arrays_of_their_own(served.inputs, fed))
        sampled = self._is_sample(asked, served)
        options = run_options(asked, deadline, trace=asked.trace or sampled)
        run.check()
        if batch is not None:
            joined = batch.prepare(*fed, options=options, turn=BatchSlot(self.admission, run, _level(run, asked)))
            return StartedRun(served, None, joined, joined.run())
        if stream is None:
            values, own, rest = served.call.begin(*fed, options=options)
            return StartedRun(served, values, own, rest, sampled)
        if any(asked.binary):
            raise errors.InvalidArgumentError("Events are text: outputs in them cannot be binary")
        if asked.prints:
            raise errors.InvalidArgumentError('"prints": what a run prints is in its answer, and not in events')
        step = served.call.prepare(*fed, options=options, on_output=stream.output)
        stream.begin(served.tensors, served, as_list=asked.as_list)
        return StartedRun(served, None, step, step.run(), sampled, stream)

    async def _take_slot(self, run: Run, asked: RunRequest) -> None:
        if self.admission.takes(run):
            return
        began = time.monotonic()
        try:
            await self.admission.wait(run, _level(run, asked), run.deadline, run.ready)
        finally:
            run.queued = time.monotonic() - began

    def _batch_of(self, hosted: HostedSession, run: Run, asked: RunRequest) -> BatchedCallable | None:
        """Return the batched callable that joins a request with others; None if it runs alone, as traced runs do."""
        if hosted.batch is None or asked.trace or asked.partition_graphs or asked.prints:
            return None
        return hosted.served(asked, by_admin=run.by_admin).batched

    def _is_sample(self, asked: RunRequest, served: ServedCall) -> bool:
        """Decide whether this run is traced for the metrics.  Batched runs are not: tracing would make them
        run alone.
        """
        if self.config.kernel_samples is None or asked.trace or served.batched is not None:
            return False
        due = self.sample_is_due
        self._samples += 1
        return due

    @property
    def sample_is_due(self) -> bool:
        """True if the next run is to be traced for the metrics."""
        every = self.config.kernel_samples
        return every is not None and self._samples % every == 0

    def passed(self, hosted: HostedSession, run_id: str, seconds: float) -> None:
        """Record a direct run, which has been answered."""
        self._samples += 1
        hosted.touch()
        self.journal.passed(hosted, run_id, seconds)

    def deadline(
        self, session: aexec.Session, asked: RunRequest, arrival: float, timeout: float | None = None
    ) -> float | None:
        """Return when a run must be done, by the clock of `arrival`; None for no deadline.

        Args:
            timeout: seconds that a header allows it.
        """
        wanted = asked.timeout
        if wanted is None and timeout is None:
            wanted = session.config.operation_timeout
            if wanted is None and self.config.max_timeout is None:
                return None
        return self.first_deadline(arrival, wanted, timeout)

    def first_deadline(self, arrival: float, *timeouts: float | None) -> float | None:
        """Return the earliest of these deadlines and of the server's maximum; None for no deadline."""
        seconds = min((one for one in (*timeouts, self.config.max_timeout) if one is not None), default=None)
        return None if seconds is None else arrival + seconds


def _phases_before(run: Run, arrival: float) -> Phases:
    """Return the phases of a run whose step begins now."""
    phases = Phases(0.0 if run.ready is None else max(0.0, run.ready - arrival), run.queued)
    phases.preparing = _since(arrival, phases)
    return phases


def _since(arrival: float, phases: Phases) -> float:
    """Return the seconds since the last of the phases, which follow each other from the arrival on."""
    known = phases.receiving + phases.in_line + phases.preparing + phases.running
    return max(0.0, time.monotonic() - arrival - known)


async def _begin_durable(durable: DurableSession, hosted: HostedSession, run: Run, served: ServedCall) -> None:
    """Before a run of a durable session: count it if it may change the state.

    Raises:
        OpError: the store could not be written last, and cannot now.
    """
    if not hosted.changes(served):
        return
    await durable.check()
    durable.begin_change()
    run.changes = True


def _level(run: Run, asked: RunRequest) -> int:
    """Return a run's priority: the body's, or else the header's."""
    return run.priority if asked.priority == DEFAULT_PRIORITY and run.priority is not None else asked.priority


def run_options(asked: RunRequest, deadline: float | None, *, trace: bool) -> aexec.RunOptions | None:
    """Return the session's options for a run; None if it has none."""
    if deadline is None and not (trace or asked.partition_graphs or asked.report_memory or asked.prints):
        return None
    return aexec.RunOptions(
        None if deadline is None else max(0.0, deadline - time.monotonic()),
        trace,
        asked.partition_graphs,
        report_tensor_allocations_upon_oom=asked.report_memory,
        prints=asked.prints,
    )
