"""`RunJournal`: records each run when it has ended, with its outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aexec import proto
from aexec.errors import Code
from aexec.hosting import op_of, self_nanos
from aexec_server.core.spans import Spans
from aexec_server.handles import shortened
from aexec_server.requests.run_table import Run
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.watching.metrics import CancelCause, Metrics
from aexec_server.watching.server_log import log_fields
from aexec_server.watching.trace_context import new_trace_id

__all__ = ["RunJournal"]

logger = logging.getLogger("aexec_server.steps")

_OK, _CANCELLED, _DEADLINE_EXCEEDED = Code.OK.name, Code.CANCELLED.name, Code.DEADLINE_EXCEEDED.name
# The reason of `SessionStore.cancel_all` when the server stops.
_SHUTDOWN = "shutdown"


class RunJournal:
    """Records each run that has ended: in metrics, in the step log, and in its span.

    Args:
        metrics: the server's metrics.
        spans: makes a span for each run; None for no spans.
        log_steps: True to log a line for each run.
    """

    def __init__(self, metrics: Metrics, spans: Spans | None = None, *, log_steps: bool = False) -> None:
        self._metrics = metrics
        self._spans = spans
        self._log_steps = log_steps

    def refused(self, hosted: HostedSession) -> None:
        """Record a run that was refused because there are too many."""
        self._metrics.runs.add((hosted.model, Code.RESOURCE_EXHAUSTED.name))
        self._metrics.cancellations.add((CancelCause.OVERLOAD,))

    def passed(self, hosted: HostedSession, run_id: str, seconds: float) -> None:
        """Record a direct run that succeeded."""
        metrics = self._metrics
        metrics.runs.add((hosted.model, _OK))
        metrics.run_seconds.observe(seconds)
        metrics.queue_seconds.observe(0.0)
        if self._log_steps:
            run = Run(run_id, 0.0)
            run.outcome = _OK
            _log(new_trace_id(), hosted, run, seconds)

    def ended(
        self, hosted: HostedSession, run: Run, arrival: float, trace_id: Callable[[], str] = new_trace_id
    ) -> None:
        """Record a run that has ended with its `outcome`.

        Args:
            arrival: when the request came, by `time.monotonic`.
            trace_id: returns the id of the request's trace; a new one by default.
        """
        metrics = self._metrics
        now = time.monotonic()
        metrics.runs.add((hosted.model, run.outcome))
        metrics.run_seconds.observe(now - arrival)
        metrics.queue_seconds.observe(run.queued)
        if run.outcome != _OK:
            self._count_cancellation(hosted, run, now)
        if self._spans is not None:
            self._spans.run_ended(hosted.model, run.id, run.outcome, now - arrival)
        if self._log_steps:
            _log(trace_id(), hosted, run, now - arrival)

    def _count_cancellation(self, hosted: HostedSession, run: Run, now: float) -> None:
        cause = _cause(hosted, run)
        if cause is None:
            return
        self._metrics.cancellations.add((cause,))
        began = run.deadline if cause == CancelCause.DEADLINE else run.cancelled_at
        if began is not None:
            self._metrics.cancel_seconds.observe(max(0.0, now - began))

    def count_kernels(self, stats: proto.StepStats) -> None:
        """Add the kernels of a traced run to the metrics."""
        seconds = self._metrics.kernel_seconds
        for device in stats.dev_stats:
            for node in device.node_stats:
                op = op_of(node)
                if op:
                    seconds.observe(self_nanos(node) * 1e-9, (op, device.device))


def _log(trace_id: str, hosted: HostedSession, run: Run, seconds: float) -> None:
    """`run r1 of session 3f2a1b…: OK after 0.000412 s, in line 0.000000 s trace=4bf9…`, nothing of what it computed."""
    session = shortened(hosted.handle)
    fields = {
        "run_id": run.id,
        "session": session,
        "model": hosted.model,
        "step_id": "" if run.step is None else run.step.id,
        "outcome": run.outcome,
        "seconds": round(seconds, 6),
        "queued_seconds": round(run.queued, 6),
        "trace_id": trace_id,
    }
    text = f"run {run.id} of session {session}: {run.outcome} after {seconds:.6f} s, in line {run.queued:.6f} s"
    log_fields(logger, f"{text} trace={trace_id}", fields)


def _cause(hosted: HostedSession, run: Run) -> str | None:
    """Why a run ended early; None if it did not."""
    if run.outcome == _DEADLINE_EXCEEDED:
        return CancelCause.DEADLINE
    if run.shed:
        return CancelCause.OVERLOAD
    if run.outcome != _CANCELLED:
        return None
    if run.cancel_reason is not None:
        return CancelCause.SHUTDOWN if run.cancel_reason == _SHUTDOWN else CancelCause.API
    if run.left:
        return CancelCause.DISCONNECT
    return CancelCause.API if hosted.session.closed else None
