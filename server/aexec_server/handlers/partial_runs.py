"""Partial runs over HTTP: one step that is fed and fetched in several requests.

The setup starts the step and answers with a handle, the id of its run, by which it is listed and cancelled as any run
is.  Between requests the step continues.  It ends when all was fed and fetched, with its first error, when it is
cancelled, when a client that waits for a part leaves, with its session, or after a long time without a request.

It has one of the places of partial runs until it ends, and is a run in flight only while a request waits for a part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from aiohttp import web

import aexec
from aexec import errors, proto
from aexec.errors import Code
from aexec.hosting import canonical_name, loop_budget
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.clients.client_shares import ClientShares
from aexec_server.core.admission import Admission
from aexec_server.core.routes import Route
from aexec_server.core.run_journal import RunJournal
from aexec_server.core.server_state import Server
from aexec_server.handlers.session_calls import check_handle
from aexec_server.handles import shortened
from aexec_server.http import bodies
from aexec_server.http.answer_parts import AnswerParts
from aexec_server.http.error_responses import public_error
from aexec_server.http.json_style import json_style
from aexec_server.http.lost_handles import lost_by_restart
from aexec_server.http.request_preferences import TIMEOUT, read_timeout_header, refuse_preferences
from aexec_server.requests import protobuf
from aexec_server.requests.partial_step import PartialStep
from aexec_server.requests.run_request import (
    RunRequest,
    parse_header_length,
    read_json,
    read_names,
    read_ns,
    read_timeout,
)
from aexec_server.requests.run_response import (
    JSON_LENGTH,
    Writer,
    answer_bytes,
    answer_ns,
    check_answer_size,
    check_answerable,
    list_answer,
    message_answer,
    people_answer,
    tensors_response,
)
from aexec_server.requests.run_table import Run, check_run_id, run_key
from aexec_server.requests.tensors import size_of
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["PartialRuns", "asked_by_setup", "routes"]

_SETUP_FIELDS = frozenset({"feeds", "fetches", "targets", "run_id", "options"})
_SETUP_OPTIONS = frozenset({"timeout_in_ms"})
_HINT = "feed and fetch all that they were set up for, cancel them, or try again later"
# Limit on ended partial runs whose error no client has asked for.
_MAX_ENDED = 100


def routes(handlers: PartialRuns) -> list[Route]:
    """Return the routes that set up and continue partial runs."""
    one = "/v1/sessions/{session}"
    call = partial(Route, scope=Scope.RUN)
    return [
        call(
            "POST",
            f"{one}:partialRunSetup",
            handlers.setup,
            "Start a step that is fed and fetched in parts",
            "PartialRunSetup",
            "PartialRunHandle",
            parameters=(str(TIMEOUT),),
        ),
        call(
            "POST",
            f"{one}/partialRuns/{{partial}}:run",
            handlers.go_on,
            "Feed and fetch a part of a step",
            "PartialRunRequest",
            "RunResponse",
            parameters=(str(JSON_LENGTH),),
        ),
    ]


class PartialRuns:
    """Handlers of partial runs.

    Attributes:
        shares: counts each client's partial runs.
    """

    def __init__(self, server: Server, admission: Admission, journal: RunJournal) -> None:
        config = server.config
        self.server = server
        self.shares = ClientShares(
            "partial_runs", "partial runs", config.max_partial_runs, config.max_client_partial_runs, hint=_HINT
        )
        server.metrics.add_shares(self.shares)
        self.admission = admission
        self.journal = journal

    async def setup(self, request: web.Request) -> web.Response:
        """POST …/{session}:partialRunSetup"""
        self.server.check_accepting()
        refuse_preferences(request)
        caller = request[CALLER]
        hosted = self.server.sessions.get(request.match_info["session"], caller)
        self.shares.check(caller)
        with hosted.in_use():
            body = await bodies.read_body(request, self.server.config, self.server.body_budget)
            is_message = bodies.is_protobuf(bodies.media_type(request))
            if is_message:
                message = await bodies.read_message(
                    proto.PartialRunSetupRequest, body, self.server.config.message_limits
                )
                check_handle(message.session_handle, hosted)
                asked = asked_by_setup(message)
            else:
                asked = await bodies.beside(len(body) * loop_budget.JSON_READ_NS, _read_setup, body)
            in_header = read_timeout_header(request.headers.get(TIMEOUT, "0"))
            if in_header is not None:
                asked.timeout = in_header if asked.timeout is None else min(in_header, asked.timeout)
            handle = await self.begin(hosted, caller, asked, request.transport)
            if is_message:
                return bodies.protobuf_response(proto.PartialRunSetupResponse(partial_run_handle=handle))
            return bodies.json_response({"partial_run_handle": handle})

    async def begin(
        self,
        hosted: HostedSession,
        caller: Caller,
        asked: RunRequest,
        connection: asyncio.BaseTransport | None = None,
        *,
        by_rpc: bool = False,
    ) -> str:
        """Start a step whose feeds have no values yet; return its handle.

        Args:
            connection: that of the request; if it is closed, the step is given up soon.
            by_rpc: the request came by gRPC, and who sent it may have left without our knowing.
        """
        if hosted.durable is not None:
            raise errors.UnimplementedError(
                "Partial runs are not kept by a durable session: run the step as a whole, or make another session"
            )
        served = hosted.served_call(
            frozenset(asked.feeds), asked.fetches or (), asked.targets, by_admin=caller.is_admin
        )
        began = time.monotonic()
        self.shares.take(caller)
        run = hosted.runs.add(hosted.runs_owner(caller))
        try:
            hosted.runs.rename(run, asked.run_id or self.server.sessions.handles.new())
            hosted.partial_steps.pop(run.key, None)  # an earlier step of this id, whose error no client has asked for
            run.check()
            timeout = self._timeout(hosted, asked)
            step = await hosted.session.partial_run_setup(
                [canonical_name(name) for name in asked.fetches or ()],
                list(asked.feeds),
                asked.targets,
                options=None if timeout is None else aexec.RunOptions(timeout),
            )
        except BaseException:
            hosted.runs.remove(run)
            self.shares.give_back(caller.client)
            raise
        run.begin(step)
        blind = by_rpc or self.server.access.shares_connections(connection)
        part = hosted.partial_steps[run.key] = PartialStep(run, step, served, blind=blind)
        part.keep(connection)
        self.server.in_background(self._until_ended(hosted, caller, part, began), f"partial run {run.id}")
        return run.id

    def _timeout(self, hosted: HostedSession, asked: RunRequest) -> float | None:
        """Return the seconds that the whole step may take, None for no limit."""
        given = (asked.timeout or hosted.session.config.operation_timeout, self.server.config.max_timeout)
        return min((seconds for seconds in given if seconds is not None), default=None)

    async def _until_ended(self, hosted: HostedSession, caller: Caller, part: PartialStep, began: float) -> None:
        """Await the step's end and record it; clients may not ask for a part any more."""
        run = part.run
        try:
            await part.step
            run.outcome = Code.OK.name
        except errors.OpError as error:
            public_error(error, f"partial run {run.id} of session {shortened(hosted.handle)}")
            run.outcome, run.error = error.code.name, error
        part.let_go()
        hosted.runs.remove(run)
        self.journal.ended(hosted, run, began)
        self.shares.give_back(caller.client)
        # The error is kept for the next request; of those that are never asked for only the newest are kept.
        ended = [handle for handle, other in hosted.partial_steps.items() if other.step.done]
        for handle in ended[:-_MAX_ENDED]:
            del hosted.partial_steps[handle]

    async def go_on(self, request: web.Request) -> web.Response:
        """POST …/partialRuns/{partial}:run"""
        self.server.check_accepting()
        refuse_preferences(request)
        caller = request[CALLER]
        hosted = self.server.sessions.get(request.match_info["session"], caller)
        with hosted.in_use():
            name = request.match_info["partial"]
            handle = run_key(hosted.runs_owner(caller), name)
            if handle not in hosted.partial_steps:
                raise lost_by_restart(self.server.sessions.handles, "Partial run", name) or errors.NotFoundError(
                    f"Partial run '{name[:80]}' is not found: it was not set up, or has ended"
                )
            body = await bodies.read_body(request, self.server.config, self.server.body_budget)
            with self._in_flight(hosted, name, caller):
                return await self._go_on(request, hosted, handle, body)

    @contextmanager
    def _in_flight(self, hosted: HostedSession, name: str, caller: Caller) -> Iterator[None]:
        """Context manager: count a run in flight while a request waits for a part.  Raises ResourceExhaustedError if
        there are too many.
        """
        waiting = Run(name, self.server.config.clock())
        self.admission.begin(hosted, waiting, caller)
        try:
            yield
        finally:
            self.admission.end(hosted, waiting)

    async def _go_on(self, request: web.Request, hosted: HostedSession, handle: str, body: bytes) -> web.Response:
        if bodies.is_protobuf(bodies.media_type(request)):
            message = await bodies.read_message(proto.RunStepRequest, body, self.server.config.message_limits)
            check_handle(message.session_handle, hosted)
            return await self.go_on_by_message(request, hosted, handle, message, len(body))
        length = parse_header_length(request.headers.get(JSON_LENGTH), body)
        asked = await bodies.beside(read_ns(body, length), read_json, body, length)
        asked.style = json_style(request)
        write = list_answer if asked.as_list else people_answer
        return await self._part(request, hosted, handle, asked, len(body), write)

    async def go_on_by_message(
        self, request: web.Request, hosted: HostedSession, handle: str, message: proto.RunStepRequest, size: int
    ) -> web.Response:
        """Run the part that a RunStepRequest asks for."""
        asked = await bodies.beside(size * loop_budget.WIRE_NS, protobuf.read_run_step, message)
        return await self._part(request, hosted, handle, asked, size, message_answer)

    async def rpc_part(
        self, hosted: HostedSession, caller: Caller, name: str, asked: RunRequest, size: int
    ) -> tuple[bytes, object]:
        """Answer a gRPC request of `size` bytes for a part.

        Returns:
            The encoded response, and an object that counts its memory while it is kept.
        """
        handle = run_key(hosted.runs_owner(caller), name)
        with hosted.in_use(), self._in_flight(hosted, name, caller):
            # TensorFlow's client sends with each part how long it waits for it.
            timeout, asked.timeout = asked.timeout, None
            try:
                async with asyncio.timeout(timeout):
                    answer, _, counted = await self._run_part(None, hosted, handle, asked, size, message_answer)
            except TimeoutError:
                raise errors.DeadlineExceededError(f"The part was not computed within {timeout:g} s") from None
            return bytes(answer), counted

    async def _part(
        self, request: web.Request, hosted: HostedSession, handle: str, asked: RunRequest, size: int, write: Writer
    ) -> web.Response:
        answer, length, counted = await self._run_part(request.transport, hosted, handle, asked, size, write)
        if asked.as_message:
            return counted(web.Response(body=answer, content_type=bodies.PROTOBUF))
        return counted(tensors_response(answer, length))

    async def _run_part(
        self,
        connection: asyncio.BaseTransport | None,
        hosted: HostedSession,
        handle: str,
        asked: RunRequest,
        size: int,
        write: Writer,
    ) -> tuple[bytes | AnswerParts, int | None, Callable[[web.Response], web.Response]]:
        """The answer, its JSON's length, and what counts its memory."""
        part = hosted.partial_steps.get(handle)
        if part is None:
            name = handle.rpartition("/")[2]
            raise lost_by_restart(self.server.sessions.handles, "Partial run", name) or errors.InvalidArgumentError(
                "Must run 'setup' before performing partial runs!"
            )
        _check_part(asked)
        form = part.form(asked.fetches or ())
        names = tuple(asked.feeds)
        dtypes = part.feed_dtypes(names)
        if not asked.as_message:
            check_answerable(asked, form)
        values = await bodies.beside(size * loop_budget.WIRE_NS, asked.values, names, dtypes)
        try:
            with part.waited_for(connection):
                results = await hosted.session.partial_run(
                    part.step,
                    [canonical_name(name) for name in form.names],
                    dict(zip(names, values, strict=True)),
                )
        finally:
            # otherwise another step was set up under this name
            if part.over and hosted.partial_steps.get(handle) is part:
                del hosted.partial_steps[handle]
        size = sum(map(size_of, results))
        check_answer_size(size, self.server.config.max_answer_bytes)
        counted = self.server.door.reserve(answer_bytes(results, as_text=asked.as_text))
        answer, length = await bodies.beside(answer_ns(asked, results), write, part.run.id, asked, form, results, None)
        return answer, length, counted


def asked_by_setup(message: proto.PartialRunSetupRequest) -> RunRequest:
    """Return the feeds and fetches of all parts.  Raises InvalidArgumentError for a feed that is given twice."""
    asked = RunRequest(fetches=tuple(message.fetch), targets=tuple(message.target))
    asked.feeds = _fed_later(message.feed)
    return asked


def _fed_later(names: Iterable[str]) -> dict[str, Any]:
    """Return feeds without values yet.  Raises InvalidArgumentError for a repeated name."""
    feeds: dict[str, Any] = {}
    for name in names:
        if name in feeds:
            raise errors.InvalidArgumentError(f'Endpoint "{name[:200]}" fed more than once.')
        feeds[name] = None
    return feeds


def _check_part(asked: RunRequest) -> None:
    """Raise InvalidArgumentError if a part has settings that belong to the setup, or that partial runs do not have."""
    if asked.by_signature:
        raise errors.InvalidArgumentError("Partial runs name tensors, and no inputs of a signature")
    plain = RunRequest()
    for name in ("targets", "run_id", "timeout", "trace", "partition_graphs", "report_memory"):
        if getattr(asked, name) != getattr(plain, name):
            raise errors.InvalidArgumentError(f"A part of a partial run has no {name}: say it when that is set up")


def _read_setup(body: bytes) -> RunRequest:
    fields = bodies.json_object(body)
    bodies.check_fields(fields, _SETUP_FIELDS, "the request")
    asked = RunRequest(
        fetches=read_names(fields.get("fetches", []), '"fetches"'),
        targets=read_names(fields.get("targets", []), '"targets"'),
    )
    asked.feeds = _fed_later(read_names(fields.get("feeds", []), '"feeds"'))
    if fields.get("run_id") is not None:
        asked.run_id = check_run_id(fields["run_id"])
    options = fields.get("options", {})
    if type(options) is not dict:
        raise bodies.expected('"options" must be an object', options)
    bodies.check_fields(options, _SETUP_OPTIONS, '"options"')
    asked.timeout = read_timeout(options.get("timeout_in_ms", 0), '"timeout_in_ms"', 1e3)
    return asked
