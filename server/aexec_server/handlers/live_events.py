"""`/v1/events` and `/v1/sessions/{session}/events`: what changes, as server-sent events or lines, for the console.

The first sends the sessions that the caller may see and, to who may read `/v1/status`, that and each new point of the
history; the second a session's figures, its runs in flight with what they wait for, and its queues.  Of each kind the
latest state is sent whenever it has changed: a client that reads slowly misses states in between, and costs no memory.
A stream ends after ten minutes, so that a token that was withdrawn does not go on reading; clients follow anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.hdrs import METH_HEAD

from aexec import errors
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.clients.client_shares import ClientShares
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.handlers.queue_calls import described_queues
from aexec_server.handlers.runs_in_flight import RunsInFlight
from aexec_server.handlers.session_calls import describe_session, listed_sessions
from aexec_server.handlers.status import describe_status
from aexec_server.http import bodies
from aexec_server.requests.run_events import EVENT_HEADERS, framed, media_of_events
from aexec_server.requests.run_stream import PING_SECONDS
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["routes"]

_EVERY_SECONDS = 0.5
# Looking takes at most one part in this many of the time, for each client that follows.
_REST = 50
_LONGEST_SECONDS = 600.0
_MOST_FOLLOWERS = 256
# Sessions, runs and queues that an event names, and runs that it says more of.
_MOST_NAMED = 500
_MOST_DETAILED = 8


class _State(NamedTuple):
    """The latest state of one kind.

    Attributes:
        kind: name of its events.
        what: the event's object.
        mark: what has to change for another event; it lacks what changes by itself, such as ages.
    """

    kind: str
    what: dict[str, Any]
    mark: Any


_Look = Callable[[], AsyncIterator[_State]]


def routes(server: Server, in_flight: RunsInFlight) -> list[Route]:
    """Return the routes that follow the server, and one session."""
    handlers = _Handlers(server, in_flight)
    call = partial(Route, scope=Scope.RUN)
    session = "/v1/sessions/{session}/events"
    return [
        call("GET", "/v1/events", handlers.server_events, "Follow sessions and figures", None, "ServerEvents"),
        call("GET", session, handlers.session_events, "Follow a session's runs and queues", None, "SessionEvents"),
    ]


class _Handlers:
    def __init__(self, server: Server, in_flight: RunsInFlight) -> None:
        self.server = server
        self.in_flight = in_flight
        self.shares = ClientShares("followers", "streams of events", _MOST_FOLLOWERS)

    async def server_events(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/events"""
        return await self._follow(request, partial(self._server_states, request, _Elsewhere(self.server, request)))

    async def session_events(self, request: web.Request) -> web.StreamResponse:
        """GET …/{session}/events"""
        self.server.session_of(request)
        return await self._follow(request, partial(self._session_states, request))

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        self.shares.take(caller)
        try:
            yield
        finally:
            self.shares.give_back(caller.client)

    async def _follow(self, request: web.Request, look: _Look) -> web.StreamResponse:
        """Send the states whenever they change, until the session is closed or the time is over."""
        media = media_of_events(request)
        response = web.StreamResponse(headers={**EVENT_HEADERS, "Content-Type": media})
        if request.method == METH_HEAD:
            return response
        write = partial(self.server.door.write, response, request, nanoseconds=0)
        with self._counted(request[CALLER]):
            await response.prepare(request)
            clock = asyncio.get_running_loop().time
            ends, quiet_since = clock() + _LONGEST_SECONDS, clock()
            marks: dict[str, Any] = {}
            number = 0
            while not self.server.draining and clock() < ends and "closed" not in marks:
                began = perf_counter()
                states = [state async for state in look()]
                cost = perf_counter() - began
                changed = [state for state in states if marks.get(state.kind) != state.mark]
                for state in changed:
                    marks[state.kind] = state.mark
                    number += 1
                    await write([framed(media, state.kind, number, bodies.encode_json(state.what))])
                if changed:
                    quiet_since = clock()
                elif clock() - quiet_since >= PING_SECONDS:
                    quiet_since = clock()
                    await write([framed(media, "ping", number, "{}")])
                await asyncio.sleep(max(_EVERY_SECONDS, _REST * cost))
        await response.write_eof()
        return response

    async def _server_states(self, request: web.Request, elsewhere: _Elsewhere) -> AsyncIterator[_State]:
        server, caller = self.server, request[CALLER]
        sessions = [*islice(listed_sessions(server, caller), _MOST_NAMED), *await elsewhere.sessions()][:_MOST_NAMED]
        may_see = caller.is_admin or not server.config.wants_tokens
        rights = {"sees_status": may_see, "may_change_models": server.may_change_models(caller)}
        yield _State("sessions", {"sessions": sessions} | rights, [_without_ages(session) for session in sessions])
        if may_see:
            status = describe_status(server, caller)
            yield _State("status", status, _without_ages(status))
            points = server.history.points
            if points:
                point = {"point": points[-1], "limits": dict(server.history.limits)}
                yield _State("point", point, points[-1]["time"])

    async def _session_states(self, request: web.Request) -> AsyncIterator[_State]:
        caller = request[CALLER]
        try:
            hosted = self.server.session_of(request)
        except errors.NotFoundError:
            yield _State("closed", {}, True)
            return
        described = describe_session(hosted, caller)
        yield _State("session", described, _without_ages(described))
        runs = [run async for run in self._runs(hosted, caller)]
        yield _State("runs", {"runs": runs}, [_without_ages(run) for run in runs])
        queues = list(islice(described_queues(hosted), _MOST_NAMED))
        yield _State("queues", {"queues": queues}, queues)

    async def _runs(self, hosted: HostedSession, caller: Caller) -> AsyncIterator[dict[str, Any]]:
        for number, run in enumerate(islice(self.in_flight.seen_runs(hosted, caller), _MOST_NAMED)):
            if number < _MOST_DETAILED:
                yield self.in_flight.describe_fully(run)
                await asyncio.sleep(0)
            else:
                yield self.in_flight.describe(run)


class _Elsewhere:
    """The sessions in other processes, which are asked again only when they report that something has changed."""

    def __init__(self, server: Server, request: web.Request) -> None:
        self._server = server
        self._request = request
        self._mark: Any = None
        self._sessions: list[dict[str, Any]] = []

    async def sessions(self) -> list[dict[str, Any]]:
        listed = self._server.sessions_elsewhere
        if listed is not None:
            hosts = self._server.others().hosts
            mark = [(name, of["sessions"], of["runs"], of["runs_in_flight"]) for name, of in hosts.items()]
            if mark != self._mark:
                self._mark, self._sessions = mark, await listed(self._request)
        return self._sessions


def _without_ages(described: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name not in ("uptime_s", "idle_s", "seconds")}
