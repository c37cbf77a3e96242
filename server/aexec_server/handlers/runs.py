"""Runs over HTTP: start one and wait for it, look at those in flight, cancel one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aiohttp import web

import aexec
from aexec import errors, proto
from aexec.errors import Code
from aexec.hosting import (
    BatchedCallable,
    BatchedStep,
    LoopTurns,
    SliceClock,
    loop_budget,
    record_network_buffer,
    record_network_buffer_freed,
)
from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import Caller, Scope, caller_of
from aexec_server.clients.client_shares import ShareError
from aexec_server.core.admission import BatchSlot, OverloadError
from aexec_server.core.direct_call import DirectCall, DirectRun
from aexec_server.core.operations import operation_response
from aexec_server.core.routes import Route
from aexec_server.core.run_journal import RunJournal
from aexec_server.core.server_state import Server
from aexec_server.handlers.partial_runs import PartialRuns
from aexec_server.handlers.session_calls import check_handle
from aexec_server.http import bodies
from aexec_server.http.answer_door import Holding
from aexec_server.http.answer_parts import PIECE
from aexec_server.http.error_responses import error_response, public_error
from aexec_server.http.idempotency import BEGUN, SECRET
from aexec_server.http.json_style import json_style
from aexec_server.http.json_text import value_pieces
from aexec_server.http.request_preferences import (
    PRIORITY,
    TIMEOUT,
    Preferences,
    read_preferences,
    read_priority_header,
    read_timeout_header,
)
from aexec_server.http.stored_answer import StoredAnswer
from aexec_server.requests import protobuf
from aexec_server.requests.run_events import as_they_come, media_of_events, write_events
from aexec_server.requests.run_request import DEFAULT_PRIORITY, RunRequest, parse_header_length, read_json, read_ns
from aexec_server.requests.run_response import (
    JSON_LENGTH,
    Answer,
    Writer,
    answer_bytes,
    answer_ns,
    check_answer_size,
    check_answerable,
    list_answer,
    message_answer,
    metadata_ns,
    people_answer,
    tensors_response,
)
from aexec_server.requests.run_stream import RunStream
from aexec_server.requests.run_table import RUN_ID, Run, StartedRun, check_run_id, run_key
from aexec_server.requests.served_call import ServedCall
from aexec_server.requests.tensors import size_of
from aexec_server.sessions.store import HostedSession

__all__ = ["RunHandlers", "routes", "run_options"]

_OK, _CANCELLED = Code.OK.name, Code.CANCELLED.name
_LAST_ID = ("Last-Event-ID",)
_CANCEL_FIELDS = frozenset({"reason"})
_BODY = "body of a run"  # in the memory log
_MAX_REASON = 500
# A trace's objects take so many times the memory of what it is made of.
_TRACE_COPIES = 12
# What waits is listed of steps with at most so many nodes, in so many lines.
_MOST_REPORTED, _MOST_LINES = 20_000, 20
# With these a run is refused for there is too much to do.
_TOO_MUCH = (OverloadError, ShareError)

# Answers a run in its protocol, given the body and when the request came.
Answerer = Callable[[web.Request, HostedSession, Run, bodies.Body, float], Awaitable[web.Response]]


def routes(handlers: RunHandlers) -> list[Route]:
    """Runs of a session."""
    call = partial(Route, scope=Scope.RUN)
    one = "/v1/sessions/{session}"
    headers = (str(RUN_ID), str(JSON_LENGTH), str(TIMEOUT), str(PRIORITY), "Prefer", "Idempotency-Key", str(SECRET))
    return [
        call(
            "POST",
            f"{one}:run",
            handlers.run,
            "Run a step",
            "RunRequest",
            "RunResponse",
            parameters=headers,
            later="Operation",
            direct=handlers.direct,
        ),
        call("GET", f"{one}/runs/{{run}}/events", handlers.events, "What a run does", None, "Events", 200, _LAST_ID),
        call("GET", f"{one}/runs/{{run}}/trace", handlers.trace, "What was traced of a run", None, "ChromeTrace"),
        call("GET", f"{one}/runs", handlers.list, "Runs in flight", None, "Runs"),
        call("GET", f"{one}/runs/{{run}}", handlers.get, "One run in flight", None, "Run"),
        call("POST", f"{one}/runs/{{run}}:cancel", handlers.cancel, "Cancel a run", "CancelRequest", "Cancelled"),
    ]


@dataclass(slots=True)
class _EarlyRun:
    """A run that `direct_runs.py` began before aiohttp made its request."""

    hosted: HostedSession
    run: Run
    caller: Caller
    arrival: float


class RunHandlers:
    """Runs of a server: those of sessions, and by `serve` and `execute` those of other protocols."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.config = server.config
        self.sessions = server.sessions
        self.limits = server.config.message_limits
        self.admission = server.admission
        server.backlog.is_full = self.admission.is_full
        self.journal = RunJournal(server.metrics, server.spans, log_steps=server.config.step_log)
        self.partial_runs = PartialRuns(server, self.admission, self.journal)
        self._samples = 0
        self._early: dict[asyncio.BaseTransport, _EarlyRun] = {}
        server.metrics.gauge("aexec_runs_in_flight", lambda: {(): self.admission.statistics().in_flight})
        server.metrics.gauge("aexec_runs_waiting", lambda: {(): self.admission.statistics().waiting})
        # patience=0 is strict FIFO: requests are alike, so none waits much longer than another.
        self.turns = SliceClock(loop_budget.DEFAULT, turns=LoopTurns(), patience=0)

    def run(self, request: web.Request) -> Awaitable[web.StreamResponse]:
        """POST …/{session}:run"""
        self.server.check_accepting()
        hosted = self._session(request)
        preferences = read_preferences(request)
        if preferences is None:
            return self.serve(request, hosted, self._answer)
        return self._as_preferred(request, hosted, preferences)

    async def _as_preferred(
        self, request: web.Request, hosted: HostedSession, preferences: Preferences
    ) -> web.StreamResponse:
        if preferences.events is not None:
            stream = self.new_stream()
            running = asyncio.create_task(self.serve(request, hosted, self._answer, on_run=stream.attach))
            return await as_they_come(request, self.server.door, preferences.events, stream, running)
        self.admission.check(hosted, caller_of(request))
        with hosted.in_use():
            body = await bodies.read_body(request, self.config, self.server.body_budget)

            def run() -> Awaitable[web.Response]:
                if preferences.respond_async:
                    return self._respond_later(request, hosted, body, preferences.wait)
                return self.serve(request, hosted, self._answer, body=body)

            return await self.server.answered_once.answer(request, preferences.key, body, run)

    def direct(self, names: Mapping[str, str], head: RawRequestMessage) -> DirectCall | None:
        """Of runs of a session with this head."""
        if read_preferences(head) is not None:
            return None
        kind = _DirectMessages if bodies.is_protobuf(bodies.media_type(head)) else _DirectJson
        return kind(self, names["session"], head)

    def _session(self, request: web.Request) -> HostedSession:
        return self.sessions.get(request.match_info["session"], caller_of(request))

    async def _respond_later(
        self, request: web.Request, hosted: HostedSession, body: bytes, wait: float
    ) -> web.Response:
        """Begin a run, and answer with its operation, unless it ends within so many seconds."""
        operation = self.server.operations.begin(caller_of(request))

        async def run() -> web.Response:
            try:
                response = await self.serve(request, hosted, self._answer, body=body, on_run=operation.attach)
            except errors.OpError as error:
                response = error_response(request, error)
            except BaseException:
                self.server.operations.delete(operation)
                raise
            self.server.operations.end(operation, StoredAnswer.of(response), too_large)
            return response

        def too_large(message: str) -> web.Response:
            return error_response(request, errors.ResourceExhaustedError(message))

        running = self.server.in_background(run(), f"operation {operation.id}")
        if wait:
            await asyncio.wait([running], timeout=wait)
        if running.done():
            self.server.operations.delete(operation)
            return running.result()
        where = {"Location": f"/v1/operations/{operation.id}", "Preference-Applied": "respond-async"}
        return operation_response(operation, 202, where)

    def new_stream(self) -> RunStream:
        """For a run whose outputs are to be told as they come."""
        return RunStream(self._describe, self.config.max_answer_bytes, watched=True)

    async def serve(
        self,
        request: web.Request,
        hosted: HostedSession,
        answer: Answerer,
        *,
        body: bodies.Body | None = None,
        on_run: Callable[[Run], object] | None = None,
    ) -> web.Response:
        """Answer a request for a run, in whichever protocol: it is listed, can be cancelled, and counts.

        Args:
            body: of the request, if it was read already.
            on_run: told of the run before it begins.

        Raises:
            ResourceExhaustedError: too many runs are in flight.
        """
        early = self._begun_early(request, hosted)
        if early is None:
            arrival, caller, admitted = self.server.backlog.arrival(request.transport), caller_of(request), False
            try:
                self.admission.check(hosted, caller)
            except _TOO_MUCH:
                self.journal.refused(hosted)
                raise
            hosted.acquire()
            run = hosted.runs.add(hosted.runs_owner(caller))
            run.by_admin = caller.is_admin
        else:
            run, arrival, caller, admitted = early.run, early.arrival, early.caller, True
        buffer = 0
        try:
            if on_run is not None:
                on_run(run)
            header_id = request.headers.get(RUN_ID)
            if header_id is not None:  # so named, it can be cancelled while its body is still on the way
                hosted.runs.rename(run, check_run_id(header_id, f"The header {RUN_ID}"))
            timeout = request.headers.get(TIMEOUT)
            if timeout is not None:
                run.timeout = read_timeout_header(timeout)
            urgency = request.headers.get(PRIORITY)
            if urgency is not None:
                run.priority = read_priority_header(urgency)
            if early is None:
                run.deadline = self._deadline(arrival, run.timeout)
            if body is None:
                budget = self.server.body_budget
                body = await bodies.read_run_body(request, self.config, budget, _json_length(request))
            if early is None:
                run.ready = self.server.backlog.arrival(request.transport)
                self.admission.begin(hosted, run, caller)  # a body that does not come keeps nobody else from running
                admitted = True
                # Of many that come at once some are read in each turn of the loop, and the runs that there are go on
                # between.
                await self.turns.take_turn(asyncio.get_running_loop())
            self.server.backlog.begun(request.transport)
            buffer = record_network_buffer(_BODY, body)
            response = self._held(run, await answer(request, hosted, run, body, arrival))
            run.outcome = _OK
            response.headers[RUN_ID] = run.id
            return response
        except asyncio.CancelledError as left:
            run.outcome, run.left = _CANCELLED, True
            if run.stream is not None:
                run.error = errors.CancelledError("The client who asked for it has gone")
            # Else the frames of all who left stay until their connections' tasks have had their turns: for a thousand
            # of them the garbage collector looked through as much again and again.
            raise left.with_traceback(None) from None
        except errors.OpError as error:
            run.outcome, run.shed = error.code.name, isinstance(error, _TOO_MUCH)
            run.error = error
            response = error_response(request, error, f"/v1/sessions/{hosted.handle}/runs/{run.id}")
            response.headers[RUN_ID] = run.id
            response[BEGUN] = run.step is not None
            return response
        finally:
            record_network_buffer_freed(_BODY, buffer)
            run.held = None
            if admitted:
                self.admission.end(hosted, run)
            self._end(request, hosted, run, arrival)

    def _end(self, request: web.Request | None, hosted: HostedSession, run: Run, arrival: float) -> None:
        hosted.runs.remove(run)
        hosted.release()
        self.journal.ended(request, hosted, run, arrival)

    # Runs that `direct_runs.py` began before aiohttp made their requests

    def begin_early(
        self,
        transport: asyncio.BaseTransport,
        hosted: HostedSession,
        caller: Caller,
        arrival: float,
        deadline: float | None,
        begun: StartedRun,
    ) -> None:
        """Keep a run that was begun for the request on this connection, until `serve` continues it."""
        hosted.acquire()
        run = hosted.runs.add(hosted.runs_owner(caller))
        self.admission.begin(hosted, run, caller)  # there is room: `passes` was asked just now
        run.by_admin = caller.is_admin
        run.begun, run.deadline = begun, deadline
        self.admission.takes(run)
        if begun.step is not None:
            run.begin(begun.step)
        self._early[transport] = _EarlyRun(hosted, run, caller, arrival)

    def _begun_early(self, request: web.Request, hosted: HostedSession) -> _EarlyRun | None:
        early = self._early.get(request.transport) if self._early and request.transport is not None else None
        if early is None or early.hosted is not hosted:  # of a model another version may have taken its place
            return None
        assert request.transport is not None
        return self._early.pop(request.transport)

    def drop_early(self, transport: asyncio.BaseTransport) -> None:
        """Stop the run that was begun for the request on this connection, if there is one."""
        early = self._early.pop(transport, None) if self._early else None
        if early is not None:
            self.server.in_background(self._stop(early), f"stop {early.run.id}")

    async def _stop(self, early: _EarlyRun) -> None:
        run, begun = early.run, early.run.begun
        assert begun is not None
        run.outcome, run.left = _CANCELLED, True
        try:
            if begun.step is not None and begun.rest is not None:
                begun.step.cancel("nobody waits for it")
                await begun.rest
        except errors.OpError as error:
            run.outcome = error.code.name  # it may have failed before that
        finally:
            self.admission.end(early.hosted, run)
            self._end(None, early.hosted, run, early.arrival)

    async def _answer(
        self, request: web.Request, hosted: HostedSession, run: Run, body: bodies.Body, arrival: float
    ) -> web.Response:
        if bodies.is_protobuf(bodies.media_type(request)):
            return await self._run_message(request, hosted, run, bytes(body), arrival)
        length = parse_header_length(request.headers.get(JSON_LENGTH), body)
        asked = await bodies.beside(read_ns(body, length), lambda: read_json(body, length), run.deadline)
        asked.style = json_style(request)
        if asked.run_id is not None:
            header_id = request.headers.get(RUN_ID)
            if header_id not in (None, asked.run_id):
                raise errors.InvalidArgumentError(
                    f"\"run_id\" is '{asked.run_id}', but the header {RUN_ID} is '{header_id}'"
                )
            hosted.runs.rename(run, asked.run_id)
        write = list_answer if asked.as_list else people_answer
        return tensors_response(*await self.execute(hosted, run, asked, len(body), arrival, write))

    async def _run_message(
        self, request: web.Request, hosted: HostedSession, run: Run, body: bytes, arrival: float
    ) -> web.Response:
        message, decode_ns = await bodies.beside(
            0, lambda: bodies.parse_message(proto.RunStepRequest, body, self.limits), run.deadline
        )
        check_handle(message.session_handle, hosted)
        try:
            if message.partial_run_handle:
                return await self.partial_runs.go_on_by_message(
                    request, hosted, run_key(run.owner, message.partial_run_handle), message, len(body)
                )
            asked = await bodies.beside(decode_ns, lambda: protobuf.read_run_step(message), run.deadline)
            answer, _ = await self.execute(hosted, run, asked, len(body), arrival, message_answer)
            return web.Response(body=answer, content_type=bodies.PROTOBUF)
        except errors.OpError as error:
            if not message.store_errors_in_response_body:
                raise
            return bodies.protobuf_response(protobuf.error_in_response(public_error(error, f"run {run.id}")))

    async def execute(
        self, hosted: HostedSession, run: Run, asked: RunRequest, size: int, arrival: float, write: Writer
    ) -> Answer:
        """Run what came in `size` bytes, and write the answer.

        Whoever cancels this coroutine (a client that leaves) cancels the step.
        """
        begun = run.begun or await self._begin(hosted, run, asked, size, arrival, write)
        run.has_begun = True
        values, step, stream = begun.values, begun.step, begun.stream
        metadata = None
        if step is not None and begun.rest is not None:  # it was not over at once
            run.begin(step)
            try:
                values = await begun.rest
            finally:
                metadata = step.metadata
                if asked.trace and metadata is not None:
                    hosted.runs.traces.add(run.key, metadata)
        if metadata is not None and metadata.step_stats is not None:
            self.journal.count_kernels(metadata.step_stats)
            if begun.sampled:
                metadata = replace(metadata, step_stats=None, peak_bytes=None)
        if stream is not None:
            return b"", None  # all was told
        size = 0
        for value in values:
            size += size_of(value)
        check_answer_size(size, self.config.max_answer_bytes)
        if size > PIECE:
            held = answer_bytes(values, as_text=write is not message_answer and not any(asked.binary))
            run.held = self.server.door.reserve(held)
        nanoseconds = size * loop_budget.WIRE_NS if write is message_answer else answer_ns(asked, values)
        if metadata is not None:
            nanoseconds += metadata_ns(metadata)
        return await bodies.beside(
            nanoseconds, lambda: write(run.id, asked, begun.served, values, metadata), run.deadline
        )

    async def _begin(
        self, hosted: HostedSession, run: Run, asked: RunRequest, size: int, arrival: float, write: Writer
    ) -> StartedRun:
        """Begin a run as soon as it is its turn."""
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
        if stream is not None or write is not message_answer:
            check_answerable(asked, served)
        nanoseconds = size * loop_budget.WIRE_NS if asked.untyped else 0
        fed = await bodies.beside(nanoseconds, lambda: asked.values(served.inputs, served.input_dtypes), deadline)
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
        """What joins a request with others; None if it is run alone, as one is of which more is asked for."""
        if hosted.batch is None or asked.trace or asked.partition_graphs or asked.prints:
            return None
        return hosted.served(asked, by_admin=run.by_admin).batched

    def _is_sample(self, asked: RunRequest, served: ServedCall) -> bool:
        """Is this run traced for the metrics?  Never one of a batch, which would be run alone."""
        if self.config.kernel_samples is None or asked.trace or served.batched is not None:
            return False
        due = self.sample_is_due
        self._samples += 1
        return due

    @property
    def sample_is_due(self) -> bool:
        """Is the next run one that is traced for the metrics?"""
        every = self.config.kernel_samples
        return every is not None and self._samples % every == 0

    def passed(self, hosted: HostedSession, run_id: str, seconds: float) -> None:
        """A run was over at once, and answered."""
        self._samples += 1
        hosted.touch()
        self.journal.passed(hosted, run_id, seconds)

    def _held(self, run: Run, response: web.Response) -> web.Response:
        """What is reserved for a run's answer is given back when that was sent."""
        if run.held is not None:
            run.held(response)
        return response

    def deadline(
        self, session: aexec.Session, asked: RunRequest, arrival: float, timeout: float | None = None
    ) -> float | None:
        """When it must be done, from the request's arrival.

        Args:
            timeout: seconds that a header allows it.
        """
        wanted = asked.timeout
        if wanted is None and timeout is None:
            wanted = session.config.operation_timeout
            if wanted is None and self.config.max_timeout is None:
                return None
        return self._deadline(arrival, wanted, timeout)

    def _deadline(self, arrival: float, *timeouts: float | None) -> float | None:
        """The first of these, and of what the server allows at most."""
        seconds = min((one for one in (*timeouts, self.config.max_timeout) if one is not None), default=None)
        return None if seconds is None else arrival + seconds

    async def list(self, request: web.Request) -> web.StreamResponse:
        """GET …/runs: those in flight, oldest first."""
        with self._session(request).in_use() as hosted:
            runs = map(self._describe, hosted.runs.of(self._seen(request, hosted)))
            return await self.server.door.send(request, value_pieces({"runs": runs}), bodies.JSON, in_thread=False)

    def _seen(self, request: web.Request, hosted: HostedSession) -> str | None:
        """Whose runs the caller knows of; None for all."""
        caller = caller_of(request)
        return None if caller.is_admin else hosted.runs_owner(caller)

    async def get(self, request: web.Request) -> web.Response:
        """GET …/runs/{run}: one in flight."""
        with self._session(request).in_use() as hosted:
            run = self._in_flight(request, hosted)
            return bodies.json_response(self._describe(run) | {"waits_for": _waits_for(run)})

    def _in_flight(self, request: web.Request, hosted: HostedSession) -> Run:
        run_id = request.match_info["run"]
        run = hosted.runs.find(run_id, self._seen(request, hosted))
        if run is None:
            raise errors.NotFoundError(f"Run '{run_id[:80]}' is not in flight")
        return run

    async def events(self, request: web.Request) -> web.StreamResponse:
        """GET …/runs/{run}/events"""
        with self._session(request).in_use() as hosted:
            run = self._in_flight(request, hosted)
            if run.stream is None:
                run.stream = RunStream(self._describe, self.config.max_answer_bytes)
                run.stream.attach(run)
            assert isinstance(run.stream, RunStream)
            return await write_events(request, self.server.door, media_of_events(request), run.stream, run)

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """GET …/runs/{run}/trace: Chrome's format."""
        with self._session(request).in_use() as hosted:
            run_id = request.match_info["run"]
            metadata = hosted.runs.traces.find(run_key(hosted.runs_owner(caller_of(request)), run_id))
            if metadata is None:
                raise errors.NotFoundError(
                    f"There is no trace of run '{run_id[:80]}': it has not ended, was not traced, or is forgotten"
                )
            door = self.server.door
            return await door.send(request, _trace_parts(metadata, door.holding), "application/json; charset=utf-8")

    def _describe(self, run: Run) -> dict[str, Any]:
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
        with self._session(request).in_use() as hosted:
            run_id = check_run_id(request.match_info["run"], "A run's id")
            body = await bodies.read_body(request, self.config, self.server.body_budget)
            reason = None
            if body.strip():
                fields = bodies.json_object(body)
                bodies.check_fields(fields, _CANCEL_FIELDS, "the request")
                reason = fields.get("reason")
                if reason is not None and type(reason) is not str:
                    raise bodies.expected('"reason" must be a string', reason)
            caller = caller_of(request)
            cancelled = hosted.runs.cancel(
                run_id,
                (reason or "by request")[:_MAX_REASON],
                hosted.runs_owner(caller),
                of_all=caller.is_admin,
                caller=caller,
            )
            return bodies.json_response({"cancelled": cancelled})


class _DirectSessionRun:
    """See `DirectRun`."""

    __slots__ = ("_write", "asked", "hosted")

    def __init__(self, hosted: HostedSession, asked: RunRequest, write: Writer) -> None:
        self.hosted = hosted
        self.asked = asked
        self._write = write

    def check(self, served: ServedCall) -> None:
        if self._write is not message_answer:
            check_answerable(self.asked, served)

    def write(self, run_id: str, served: ServedCall, values: Sequence[Any]) -> Answer:
        return self._write(run_id, self.asked, served, values, None)

    def passed(self, arrival: float, decoded: float, ran: float) -> None:
        pass


class _DirectJson:
    """See `DirectCall`."""

    media = "application/json"
    compresses = False

    def __init__(self, handlers: RunHandlers, handle: str, head: RawRequestMessage) -> None:
        self._sessions = handlers.sessions
        self._handle = handle
        self._length = head.headers.get(JSON_LENGTH)
        self._style = json_style(head)

    def read(self, body: bytes, caller: Caller) -> DirectRun | None:
        hosted = self._sessions.get(self._handle, caller)
        length = parse_header_length(self._length, body)
        if not loop_budget.DEFAULT.allows(read_ns(body, length)):
            return None
        asked = read_json(body, length)
        asked.style = self._style
        if asked.run_id is not None or asked.trace:
            return None
        return _DirectSessionRun(hosted, asked, list_answer if asked.as_list else people_answer)


class _DirectMessages:
    """The same in protobuf."""

    media = bodies.PROTOBUF
    compresses = False

    def __init__(self, handlers: RunHandlers, handle: str, head: RawRequestMessage) -> None:
        self._sessions = handlers.sessions
        self._limits = handlers.limits
        self._handle = handle

    def read(self, body: bytes, caller: Caller) -> DirectRun | None:
        hosted = self._sessions.get(self._handle, caller)
        message = protobuf.parse_small_run(body)
        if message is None:
            message, decode_ns = bodies.parse_message(proto.RunStepRequest, body, self._limits)
            if message.partial_run_handle or not loop_budget.DEFAULT.allows(decode_ns):
                return None
        check_handle(message.session_handle, hosted)
        asked = protobuf.read_run_step(message)
        return None if asked.trace else _DirectSessionRun(hosted, asked, message_answer)


def _trace_parts(metadata: aexec.RunMetadata, holding: Holding) -> Iterator[str]:
    assert metadata.step_stats is not None
    with holding(_TRACE_COPIES * metadata.step_stats.ByteSize()):
        yield from value_pieces(metadata.chrome_trace())


def _json_length(request: web.Request) -> int:
    """Where tensors may begin in the body; whether it is so, is looked at when it is there."""
    text = request.headers.get(JSON_LENGTH, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _waits_for(run: Run) -> list[str]:
    """What the nodes of a run do and wait for, a line for each, of the first of them."""
    step = run.step
    if step is None:
        return ["its turn"]
    if isinstance(step, BatchedStep):
        return ["the step that it shares with other requests"]
    return step.report(_MOST_LINES) if step.statistics().nodes <= _MOST_REPORTED else []


def _level(run: Run, asked: RunRequest) -> int:
    """A run's place in line: what its body says, or else a header."""
    return run.priority if asked.priority == DEFAULT_PRIORITY and run.priority is not None else asked.priority


def run_options(asked: RunRequest, deadline: float | None, *, trace: bool) -> aexec.RunOptions | None:
    """What a session is told of a run; None for nothing."""
    if deadline is None and not (trace or asked.partition_graphs or asked.report_memory or asked.prints):
        return None
    return aexec.RunOptions(
        None if deadline is None else max(0.0, deadline - time.monotonic()),
        trace,
        asked.partition_graphs,
        report_tensor_allocations_upon_oom=asked.report_memory,
        prints=asked.prints,
    )
