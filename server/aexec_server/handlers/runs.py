"""Handlers that start a run and wait for it.

Next to read: `run_execution.py`, and `runs_in_flight.py` for runs in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from aexec import errors, proto
from aexec.errors import Code
from aexec.hosting import (
    loop_budget,
    record_network_buffer,
    record_network_buffer_freed,
)
from aexec_server.aiohttp_seam import RawRequestMessage
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.core.direct_call import DirectCall, DirectRun
from aexec_server.core.operations import operation_response
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.durable.durable_session import DurableSession
from aexec_server.durable.kept_operation import keep_operation
from aexec_server.handlers.partial_runs import PartialRuns
from aexec_server.handlers.runs_in_flight import RunsInFlight
from aexec_server.handlers.served_runs import ServedRuns
from aexec_server.handlers.session_calls import check_handle
from aexec_server.http import bodies
from aexec_server.http.error_responses import error_response, public_error
from aexec_server.http.idempotency import BEGUN, KEYED, SECRET
from aexec_server.http.json_style import json_style
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
from aexec_server.requests.run_events import as_they_come
from aexec_server.requests.run_request import RunRequest, parse_header_length, read_json, read_ns
from aexec_server.requests.run_response import (
    JSON_LENGTH,
    Answer,
    Writer,
    check_answerable,
    list_answer,
    message_answer,
    people_answer,
    tensors_response,
)
from aexec_server.requests.run_table import RUN_ID, Run, StartedRun, check_run_id, run_key
from aexec_server.requests.served_call import ServedCall
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.watching.trace_context import trace_of

__all__ = ["RUN_HANDLERS", "RunHandlers", "routes"]

_OK, _CANCELLED = Code.OK.name, Code.CANCELLED.name
_BODY = "body of a run"  # in the memory log

# Answers a run in its protocol, given the body and the time of the request's arrival.
Answerer = Callable[[web.Request, HostedSession, Run, bodies.Body, float], Awaitable[web.Response]]


def routes(handlers: RunHandlers) -> list[Route]:
    """Return the routes that run a session."""
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
    ]


@dataclass(slots=True)
class _EarlyRun:
    """A run that `direct_runs.py` began before aiohttp made its request.

    Attributes:
        admitted: True if it is counted as in flight.
    """

    hosted: HostedSession
    run: Run
    caller: Caller
    arrival: float
    admitted: bool


class RunHandlers:
    """Runs of sessions; `serve` and `execution` also serve runs of other protocols."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.config = server.config
        self.sessions = server.sessions
        self.limits = server.config.message_limits
        self.admission = server.admission
        server.backlog.is_full = self.admission.is_full
        self.served = ServedRuns(server)
        self.execution = self.served.execution
        self.turns = self.served.turns
        self.partial_runs = PartialRuns(server, self.admission, self.served.journal)
        self.in_flight = RunsInFlight(server)
        self._early: dict[asyncio.BaseTransport, _EarlyRun] = {}
        server.metrics.gauge("aexec_runs_in_flight", lambda: {(): self.admission.statistics().in_flight})
        server.metrics.gauge("aexec_runs_waiting", lambda: {(): self.admission.statistics().waiting})

    def run(self, request: web.Request) -> Awaitable[web.StreamResponse]:
        """POST …/{session}:run"""
        early = self._early_of(request)
        if early is not None and early.hosted.durable is not None:
            # It may have changed what lasts, so that its client must not be told that nothing has begun.
            return self.serve(request, early.hosted, self._answer)
        self.server.check_accepting()
        hosted = self.server.session_of(request)
        preferences = read_preferences(request)
        if preferences is None:
            return self.serve(request, hosted, self._answer)
        return self._as_preferred(request, hosted, preferences)

    async def _as_preferred(
        self, request: web.Request, hosted: HostedSession, preferences: Preferences
    ) -> web.StreamResponse:
        if preferences.events is not None:
            stream = self.in_flight.new_stream(hosted)
            running = asyncio.create_task(self.serve(request, hosted, self._answer, on_run=stream.attach))
            return await as_they_come(request, self.server.door, preferences.events, stream, running)
        self.admission.check(hosted, request[CALLER])
        with hosted.in_use():
            body = await bodies.read_body(request, self.config, self.server.body_budget)

            def run() -> Awaitable[web.Response]:
                if preferences.respond_async:
                    return self._respond_later(request, hosted, body, preferences.wait)
                return self.serve(request, hosted, self._answer, body=body)

            return await self.server.answered_once.answer(request, preferences.key, body, run, hosted.durable)

    def direct(self, names: Mapping[str, str], head: RawRequestMessage) -> DirectCall | None:
        """Make the direct call for runs of a session with this head; None if the head has preferences."""
        if read_preferences(head) is not None:
            return None
        kind = _DirectMessages if bodies.is_protobuf(bodies.media_type(head)) else _DirectJson
        return kind(self, names["session"], head)

    async def _respond_later(
        self, request: web.Request, hosted: HostedSession, body: bytes, wait: float
    ) -> web.Response:
        """Begin a run, and answer with its operation unless the run ends within `wait` seconds.

        The operation of a durable session is in the store before its client is told of it, and its result is there with
        the changes of the run before anybody sees it.
        """
        operation = self.server.operations.begin(request[CALLER])
        kept = keep_operation(hosted.durable, operation.id, request[CALLER])

        async def run() -> web.Response:
            try:
                response = await self._serve(request, hosted, self._answer, body, operation.attach)
            except errors.OpError as error:
                response = error_response(request, error)
            except BaseException:
                self.server.operations.delete(operation)
                kept.drop()
                raise
            answer = StoredAnswer.of(response)
            try:
                await kept.end(answer)
            except errors.OpError as error:
                response = error_response(request, error)
                answer = StoredAnswer.of(response)
            self.server.operations.end(operation, answer, too_large)
            return response

        def too_large(message: str) -> web.Response:
            return error_response(request, errors.ResourceExhaustedError(message))

        running = self.server.in_background(run(), f"operation {operation.id}")
        if wait:
            await asyncio.wait([running], timeout=wait)
        if running.done():
            self.server.operations.delete(operation)
            kept.forget()
            return running.result()
        try:
            await kept.begun()
        except errors.OpError:
            operation.cancel("its operation cannot be written")
            self.server.operations.delete(operation)
            raise
        where = {"Location": f"/v1/operations/{operation.id}", "Preference-Applied": "respond-async"}
        return operation_response(operation, 202, where)

    def serve(
        self,
        request: web.Request,
        hosted: HostedSession,
        answer: Answerer,
        *,
        body: bodies.Body | None = None,
        on_run: Callable[[Run], object] | None = None,
    ) -> Coroutine[Any, Any, web.Response]:
        """Answer a request for a run in any protocol: list the run, let it be cancelled, and count it.

        The answer of a durable session's run tells of nothing that is not on the disk.

        Args:
            body: the request's body, if it was read already.
            on_run: called with the run before it begins.

        Raises:
            ResourceExhaustedError: too many runs are in flight.
        """
        serving = self._serve(request, hosted, answer, body, on_run)
        # With a key, the answer is written with the state, and `AnsweredOnce` waits for both.
        if hosted.durable is None or KEYED in request:
            return serving
        return self._serve_durably(request, hosted, hosted.durable, serving)

    async def _serve_durably(
        self, request: web.Request, hosted: HostedSession, durable: DurableSession, serving: Awaitable[web.Response]
    ) -> web.Response:
        with hosted.in_use():
            response = await serving
            try:
                await durable.settle()
            except errors.OpError as error:
                failed = error_response(request, error)
                failed.headers[RUN_ID] = response.headers[RUN_ID]
                return failed
            return response

    async def _serve(
        self,
        request: web.Request,
        hosted: HostedSession,
        answer: Answerer,
        body: bodies.Body | None,
        on_run: Callable[[Run], object] | None,
    ) -> web.Response:
        run, arrival, caller, early, admitted = self._listed(request, hosted)
        buffer = 0
        try:
            if on_run is not None:
                on_run(run)
            _read_headers(request, hosted, run)
            if body is None:
                budget, length = self.server.body_budget, _json_length(request)
                body = await bodies.read_run_body(request, self.config, budget, length)
            if not early:
                run.deadline = self.execution.first_deadline(arrival, run.timeout)
                # counted only now: a body that does not come must not keep others from running
                self.admission.begin(hosted, run, caller)
                admitted = True
                # Shares the turns of the loop: of many requests that come at once some are read in each turn, and runs
                # go on in between.
                await self.turns.take_turn(asyncio.get_running_loop())
            run.ready = self.server.backlog.begun(request.transport)
            buffer = record_network_buffer(_BODY, body)
            response = await answer(request, hosted, run, body, arrival)
            if run.held is not None:  # the answer's reservation of memory is given back once the answer was sent
                run.held(response)
            run.outcome = _OK
            response.headers[RUN_ID] = run.id
            return response
        except asyncio.CancelledError as left:
            self.served.left(run)
            # Without this the frames of all requests whose clients left stay until their connections' tasks have run:
            # with a thousand of them the garbage collector scans as much again and again.
            raise left.with_traceback(None) from None
        except errors.OpError as error:
            self.served.failed(run, error)
            response = error_response(request, error, f"/v1/sessions/{hosted.handle}/runs/{run.id}")
            response.headers[RUN_ID] = run.id
            response[BEGUN] = run.step is not None
            return response
        finally:
            record_network_buffer_freed(_BODY, buffer)
            if admitted:
                self.admission.end(hosted, run)
            self.served.end(hosted, run, arrival, lambda: trace_of(request).trace_id)

    def _listed(self, request: web.Request, hosted: HostedSession) -> tuple[Run, float, Caller, bool, bool]:
        """Return the run of a request, listed in the table, its arrival, its caller, whether it was begun early, and
        whether it is counted as in flight.

        Raises:
            ResourceExhaustedError: too many runs are in flight.
        """
        early = self._begun_early(request, hosted)
        if early is not None:
            return early.run, early.arrival, early.caller, True, early.admitted
        arrival, caller = self.server.backlog.arrival(request.transport), request[CALLER]
        return self.served.new_run(hosted, caller), arrival, caller, False, False

    # Runs that `direct_runs.py` began before aiohttp made their requests

    def begin_early(
        self,
        transport: asyncio.BaseTransport,
        hosted: HostedSession,
        caller: Caller,
        arrival: float,
        deadline: float | None,
        begun: StartedRun,
        *,
        passed: bool = True,
    ) -> None:
        """Keep a run that was begun for the request on this connection, until `serve` continues it.

        Args:
            passed: True if `Admission.passes` has just returned True; else it has ended, and is not counted any more.
        """
        hosted.acquire()
        run = hosted.runs.add(hosted.runs_owner(caller))
        run.by_admin = caller.is_admin
        run.begun, run.deadline = begun, deadline
        if passed:
            self.admission.begin(hosted, run, caller)
            self.admission.takes(run)
        if hosted.durable is not None and hosted.changes(begun.served):
            hosted.durable.begin_change()
            run.changes = True
        if begun.step is not None:
            run.begin(begun.step)
        self._early[transport] = _EarlyRun(hosted, run, caller, arrival, passed)

    def _early_of(self, request: web.Request) -> _EarlyRun | None:
        return self._early.get(request.transport) if self._early and request.transport is not None else None

    def _begun_early(self, request: web.Request, hosted: HostedSession) -> _EarlyRun | None:
        early = self._early_of(request)
        if early is None or early.hosted is not hosted:  # another version of the model may have replaced it
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
            run.outcome = error.code.name  # it may have failed before
        finally:
            if early.admitted:
                self.admission.end(early.hosted, run)
            self.served.end(early.hosted, run, early.arrival)

    async def _answer(
        self, request: web.Request, hosted: HostedSession, run: Run, body: bodies.Body, arrival: float
    ) -> web.Response:
        if bodies.is_protobuf(bodies.media_type(request)):
            return await self._run_message(request, hosted, run, bytes(body), arrival)
        length = parse_header_length(request.headers.get(JSON_LENGTH), body)
        asked = await bodies.beside(read_ns(body, length), read_json, body, length, deadline=run.deadline)
        asked.style = json_style(request)
        if asked.run_id is not None:
            header_id = request.headers.get(RUN_ID)
            if header_id not in (None, asked.run_id):
                raise errors.InvalidArgumentError(
                    f"\"run_id\" is '{asked.run_id}', but the header {RUN_ID} is '{header_id}'"
                )
            hosted.runs.rename(run, asked.run_id)
        write = list_answer if asked.as_list else people_answer
        return tensors_response(*await self.execution.execute(hosted, run, asked, len(body), arrival, write))

    async def _run_message(
        self, request: web.Request, hosted: HostedSession, run: Run, body: bytes, arrival: float
    ) -> web.Response:
        message, decode_ns = await bodies.beside(
            0, bodies.parse_message, proto.RunStepRequest, body, self.limits, deadline=run.deadline
        )
        check_handle(message.session_handle, hosted)
        try:
            if message.partial_run_handle:
                return await self.partial_runs.go_on_by_message(
                    request, hosted, run_key(run.owner, message.partial_run_handle), message, len(body)
                )
            asked = await bodies.beside(decode_ns, protobuf.read_run_step, message, deadline=run.deadline)
            answer, _ = await self.execution.execute(hosted, run, asked, len(body), arrival, message_answer)
            return web.Response(body=answer, content_type=bodies.PROTOBUF)
        except errors.OpError as error:
            if not message.store_errors_in_response_body:
                raise
            return bodies.protobuf_response(protobuf.error_in_response(public_error(error, f"run {run.id}")))


class _DirectSessionRun:
    """`DirectRun` of a session."""

    __slots__ = ("_write", "asked", "hosted")

    def __init__(self, hosted: HostedSession, asked: RunRequest, write: Writer) -> None:
        self.hosted = hosted
        self.asked = asked
        self._write = write

    def check(self, served: ServedCall) -> None:
        if not self.asked.as_message:
            check_answerable(self.asked, served)

    def write(self, run_id: str, served: ServedCall, values: Sequence[Any]) -> Answer:
        return self._write(run_id, self.asked, served, values, None)

    def passed(self, arrival: float, decoded: float, ran: float) -> None:
        pass


class _DirectJson:
    """`DirectCall` of runs of a session in JSON."""

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
    """`DirectCall` of runs of a session in protobuf."""

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


def _read_headers(request: web.Request, hosted: HostedSession, run: Run) -> None:
    """Read the run's id, timeout and priority from the headers."""
    header_id = request.headers.get(RUN_ID)
    if header_id is not None:  # set before the body is read, so that the run can be cancelled meanwhile
        hosted.runs.rename(run, check_run_id(header_id, f"The header {RUN_ID}"))
    timeout = request.headers.get(TIMEOUT)
    if timeout is not None:
        run.timeout = read_timeout_header(timeout)
    urgency = request.headers.get(PRIORITY)
    if urgency is not None:
        run.priority = read_priority_header(urgency)


def _json_length(request: web.Request) -> int:
    """Return where binary tensors begin in the body by the header, or 0; the header is checked later, with the body."""
    text = request.headers.get(JSON_LENGTH, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


RUN_HANDLERS: web.AppKey[RunHandlers] = web.AppKey("run_handlers", RunHandlers)
