"""`/v1/events` and `/v1/sessions/{session}/events`: what changes, as server-sent events or lines, for the console.

The first sends the sessions that the caller may see and, to who may read `/v1/status`, that and each new point of the
history; the second a session's figures, its runs in flight with what they wait for, and its queues.  Of each kind the
latest state is sent whenever it has changed: a client that reads slowly misses states in between, and costs no memory.
A stream ends after ten minutes, so that a token that was withdrawn does not go on reading; clients follow anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from aiohttp import web
from aiohttp.hdrs import METH_HEAD

from aexec import errors
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.clients.client_shares import ClientShares
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.handlers.live_states import LiveState, LiveStates, Look, LookPace
from aexec_server.handlers.queue_calls import described_queues
from aexec_server.handlers.runs_in_flight import RunsInFlight
from aexec_server.handlers.session_calls import describe_session, listed_sessions
from aexec_server.handlers.status import describe_status
from aexec_server.requests.run_events import EVENT_HEADERS, framed, media_of_events
from aexec_server.requests.run_stream import PING_SECONDS
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["routes"]

_EVERY_SECONDS = 0.5
_LONGEST_SECONDS = 600.0
_MOST_FOLLOWERS = 256
# Sessions, runs and queues that an event names, and runs that it says more of.
_MOST_NAMED = 500
_MOST_DETAILED = 8


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
        self.states = LiveStates()

    async def server_events(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/events"""
        look = partial(self._server_states, request[CALLER], _Elsewhere(self.server, request))
        return await self._follow(request, "", look)

    async def session_events(self, request: web.Request) -> web.StreamResponse:
        """GET …/{session}/events"""
        handle = self.server.session_of(request).handle
        return await self._follow(request, handle, partial(self._session_states, request[CALLER], handle))

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        self.shares.take(caller)
        try:
            yield
        finally:
            self.shares.give_back(caller.client)

    async def _follow(self, request: web.Request, what: str, look: Look) -> web.StreamResponse:
        """Send the states whenever they change, until the session is closed or the time is over.

        Args:
            what: the session's handle; "" for the server.
        """
        media, caller = media_of_events(request), request[CALLER]
        response = web.StreamResponse(headers={**EVENT_HEADERS, "Content-Type": media})
        if request.method == METH_HEAD:
            return response
        write = partial(self.server.door.write, response, request, nanoseconds=0)
        with self._counted(caller), self.states.following((what, _told_alike(caller)), look) as followed:
            await response.prepare(request)
            clock = asyncio.get_running_loop().time
            ends, quiet_since = clock() + _LONGEST_SECONDS, clock()
            marks: dict[str, Any] = {}
            number = 0
            while not self.server.draining and clock() < ends and "closed" not in marks:
                changed = [state for state in await followed.states() if marks.get(state.kind) != state.mark]
                for state in changed:
                    marks[state.kind] = state.mark
                    number += 1
                    await write([framed(media, state.kind, number, state.text)])
                if changed:
                    quiet_since = clock()
                elif clock() - quiet_since >= PING_SECONDS:
                    quiet_since = clock()
                    await write([framed(media, "ping", number, "{}")])
                await asyncio.sleep(_EVERY_SECONDS)
        await response.write_eof()
        return response

    async def _server_states(self, caller: Caller, elsewhere: _Elsewhere, pace: LookPace) -> AsyncIterator[LiveState]:
        server, sessions = self.server, []
        for session in islice(listed_sessions(server, caller), _MOST_NAMED):
            sessions.append(session)
            await pace.give_way()
        sessions = [*sessions, *await pace.without(elsewhere.sessions())][:_MOST_NAMED]
        may_see = caller.is_admin or not server.config.wants_tokens
        rights = {"sees_status": may_see, "may_change_models": server.may_change_models(caller)}
        yield LiveState("sessions", {"sessions": sessions} | rights, [_without_ages(session) for session in sessions])
        if may_see:
            await pace.give_way()
            status = describe_status(server, caller)
            yield LiveState("status", status, _without_ages(status))
            points = server.history.points
            if points:
                point = {"point": points[-1], "limits": dict(server.history.limits)}
                yield LiveState("point", point, points[-1]["time"])

    async def _session_states(self, caller: Caller, handle: str, pace: LookPace) -> AsyncIterator[LiveState]:
        try:
            hosted = self.server.sessions.get(handle, caller)
        except errors.NotFoundError:
            yield LiveState("closed", {}, True)
            return
        described = describe_session(hosted, caller)
        yield LiveState("session", described, _without_ages(described))
        runs = [run async for run in self._runs(hosted, caller, pace)]
        yield LiveState("runs", {"runs": runs}, [_without_ages(run) for run in runs])
        queues = []
        for queue in islice(described_queues(hosted), _MOST_NAMED):
            queues.append(queue)
            await pace.give_way()
        yield LiveState("queues", {"queues": queues}, queues)

    async def _runs(self, hosted: HostedSession, caller: Caller, pace: LookPace) -> AsyncIterator[dict[str, Any]]:
        for number, run in enumerate(islice(self.in_flight.seen_runs(hosted, caller), _MOST_NAMED)):
            described = self.in_flight.describe_fully if number < _MOST_DETAILED else self.in_flight.describe
            yield described(run)
            await pace.give_way()


def _told_alike(caller: Caller) -> Hashable:
    """A key that callers have in common who are told the same, whatever their addresses."""
    return caller.name, caller.scopes


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
