"""Runs in flight over HTTP: list them, follow their events, cancel one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from aiohttp import web

import aexec
from aexec import errors
from aexec.hosting import BatchedStep
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http import bodies
from aexec_server.http.answer_door import Holding
from aexec_server.http.json_text import value_pieces
from aexec_server.requests.run_events import media_of_events, write_events
from aexec_server.requests.run_stream import RunStream
from aexec_server.requests.run_table import Run, check_run_id, run_key
from aexec_server.requests.run_traces import Phases
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["RunsInFlight", "cancel_run", "routes"]

_LAST_ID = ("Last-Event-ID",)
_CANCEL_FIELDS = frozenset({"reason"})
_MAX_REASON = 500
# Memory of a trace's JSON objects, in multiples of the size of its message.
_TRACE_COPIES = 12
# A run's waits are reported for steps with at most this many nodes, in at most this many lines.
_MOST_REPORTED, _MOST_LINES = 20_000, 20


def routes(handlers: RunsInFlight) -> list[Route]:
    """Return the routes below `/v1/sessions/{session}/runs`."""
    call = partial(Route, scope=Scope.RUN)
    one = "/v1/sessions/{session}"
    return [
        call(
            "GET",
            f"{one}/runs/{{run}}/events",
            handlers.events,
            "Follow the events of a run",
            None,
            "Events",
            200,
            _LAST_ID,
        ),
        call(
            "GET", f"{one}/runs/{{run}}/trace", handlers.trace, "The Chrome trace of a traced run", None, "ChromeTrace"
        ),
        call("GET", f"{one}/runs", handlers.list, "List the runs in flight", None, "Runs"),
        call("GET", f"{one}/runs/{{run}}", handlers.get, "The state of a run in flight", None, "Run"),
        call("POST", f"{one}/runs/{{run}}:cancel", handlers.cancel, "Cancel a run", "CancelRequest", "Cancelled"),
    ]


class RunsInFlight:
    """Handlers for runs that are in flight or were traced."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.config = server.config

    async def list(self, request: web.Request) -> web.StreamResponse:
        """GET …/runs: the runs in flight, oldest first."""
        with self.server.session_of(request).in_use() as hosted:
            parts = self.pieces(hosted, request[CALLER])
            return await self.server.door.send(request, parts, bodies.JSON, in_thread=False)

    def pieces(self, hosted: HostedSession, caller: Caller) -> Iterator[str]:
        """The list of the runs that a caller may see, as JSON in pieces."""
        return value_pieces({"runs": map(self.describe, self.seen_runs(hosted, caller))})

    def seen_runs(self, hosted: HostedSession, caller: Caller) -> Sequence[Run]:
        """The runs in flight of a session that a caller may see, oldest first."""
        return hosted.runs.of(_seen(hosted, caller))

    async def get(self, request: web.Request) -> web.Response:
        """GET …/runs/{run}: a run in flight."""
        with self.server.session_of(request).in_use() as hosted:
            run = self._in_flight(request, hosted)
            return bodies.json_response(self.describe_fully(run))

    def describe_fully(self, run: Run) -> dict[str, Any]:
        """Describe a run in flight, with what its nodes do and wait for."""
        return self.describe(run) | {"waits_for": _waits_for(run)}

    def _in_flight(self, request: web.Request, hosted: HostedSession) -> Run:
        run_id = request.match_info["run"]
        run = hosted.runs.find(run_id, _seen(hosted, request[CALLER]))
        if run is None:
            raise errors.NotFoundError(f"Run '{run_id[:80]}' is not in flight")
        return run

    async def events(self, request: web.Request) -> web.StreamResponse:
        """GET …/runs/{run}/events"""
        with self.server.session_of(request).in_use() as hosted:
            run = self._in_flight(request, hosted)
            if run.stream is None:
                run.stream = RunStream(self.describe, self.config.max_answer_bytes, hosted.settled)
                run.stream.attach(run)
            assert isinstance(run.stream, RunStream)
            return await write_events(request, self.server.door, media_of_events(request), run.stream, run)

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """GET …/runs/{run}/trace: the trace in Chrome's format."""
        with self.server.session_of(request).in_use() as hosted:
            run_id = request.match_info["run"]
            traced = hosted.runs.traces.find(run_key(hosted.runs_owner(request[CALLER]), run_id))
            if traced is None:
                raise errors.NotFoundError(
                    f"There is no trace of run '{run_id[:80]}': it has not ended, was not traced, or is forgotten"
                )
            door = self.server.door
            return await door.send(request, _trace_parts(*traced, door.holding), "application/json; charset=utf-8")

    def describe(self, run: Run) -> dict[str, Any]:
        """Describe a run in flight for clients."""
        step = run.step
        description: dict[str, Any] = {
            "run_id": run.id,
            "state": "pending" if step is None else step.state.value,
            "cancelled": run.cancelled,
            "seconds": round(self.config.clock() - run.began, 6),
        }
        if step is not None:
            statistics = step.statistics()
            description |= {
                "step_id": step.id,
                "nodes": statistics.nodes,
                "ready": statistics.ready,
                "running": statistics.running,
            }
            if statistics.live_bytes is not None:
                description |= {"live_bytes": statistics.live_bytes, "peak_bytes": statistics.peak_bytes}
        return description

    async def cancel(self, request: web.Request) -> web.Response:
        """POST …/runs/{run}:cancel"""
        with self.server.session_of(request).in_use() as hosted:
            body = await bodies.read_body(request, self.config, self.server.body_budget)
            reason = None
            if body.strip():
                fields = bodies.json_object(body)
                bodies.check_fields(fields, _CANCEL_FIELDS, "the request")
                reason = fields.get("reason")
                if reason is not None and type(reason) is not str:
                    raise bodies.expected('"reason" must be a string', reason)
            cancelled = cancel_run(hosted, request[CALLER], request.match_info["run"], reason)
            return bodies.json_response({"cancelled": cancelled})

    def new_stream(self, hosted: HostedSession) -> RunStream:
        """Return a stream for a run of a session whose outputs are reported as they come."""
        return RunStream(self.describe, self.config.max_answer_bytes, hosted.settled, watched=True)


def cancel_run(hosted: HostedSession, caller: Caller, run_id: str, reason: str | None) -> bool:
    """Cancel a run for a caller; True unless it has ended.  Raises as `RunTable.cancel`."""
    return hosted.runs.cancel(
        check_run_id(run_id, "A run's id"),
        (reason or "by request")[:_MAX_REASON],
        hosted.runs_owner(caller),
        of_all=caller.is_admin,
        caller=caller,
    )


def _seen(hosted: HostedSession, caller: Caller) -> str | None:
    """Return the owner whose runs the caller may see; None for all owners."""
    return None if caller.is_admin else hosted.runs_owner(caller)


def _trace_parts(metadata: aexec.RunMetadata, phases: Phases, holding: Holding) -> Iterator[str]:
    assert metadata.step_stats is not None
    seconds = {name: round(value, 6) for name, value in asdict(phases).items()}
    with holding(_TRACE_COPIES * metadata.step_stats.ByteSize()):
        yield from value_pieces(metadata.chrome_trace() | {"phases": seconds})


def _waits_for(run: Run) -> list[str]:
    """Return lines that say what the run's nodes do and wait for, a limited number of them."""
    step = run.step
    if step is None:
        return ["its turn"]
    if isinstance(step, BatchedStep):
        return ["the step that it shares with other requests"]
    return step.report(_MOST_LINES) if step.statistics().nodes <= _MOST_REPORTED else []
