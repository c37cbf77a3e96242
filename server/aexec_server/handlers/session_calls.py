"""Sessions over HTTP: create, list, describe, extend, reset and delete them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiohttp import web
from aiohttp.hdrs import METH_HEAD
from google.protobuf.message import Message

import aexec
from aexec import errors, proto
from aexec.hosting import GraphForm, graph_pieces, loop_budget
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.core.routes import AnsweredBy, Route
from aexec_server.core.server_state import Server
from aexec_server.durable.durable_rules import Durability
from aexec_server.durable.durable_session import DurableSession
from aexec_server.handles import check_name
from aexec_server.http import bodies
from aexec_server.http.idempotency import KEYED, MADE_DURABLE
from aexec_server.http.json_text import value_pieces
from aexec_server.http.keyed_answer import KeyedAnswer
from aexec_server.http.request_preferences import read_key, refuse_preferences
from aexec_server.requests.run_request import read_names
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.session_limits import read_limits
from aexec_server.sessions.session_maker import NewSession
from aexec_server.sessions.signatures import describe_signatures, signatures_ns
from aexec_server.settings.message_scan import MessageLimits

__all__ = ["check_handle", "describe_session", "listed_sessions", "routes", "session_pieces"]

M = TypeVar("M", bound=Message)

_CREATE_FIELDS = frozenset({"graph_def", "config", "target", "ttl_s", "name", "limits", "durable", "durability"})
_RESET_FIELDS = frozenset({"containers"})
_EXTEND_FIELDS = frozenset({"graph_def", "current_graph_version"})
_MOST_DIGITS = 18
_BINARY = frozenset({bodies.OCTETS, bodies.PROTOBUF, "application/protobuf"})


def routes(server: Server) -> list[Route]:
    """Return the routes below /v1/sessions, except those of runs."""
    handlers = _Handlers(server)
    all_of_them, one = "/v1/sessions", "/v1/sessions/{session}"
    call = partial(Route, scope=Scope.RUN)
    manage = partial(Route, scope=Scope.MANAGE)
    return [
        manage(
            "POST",
            all_of_them,
            handlers.create,
            "Make a session",
            "CreateSessionRequest",
            "CreatedSession",
            201,
            ("ttl_s", "name", "durable", "durability", "Idempotency-Key", "Idempotency-Secret"),
            process=AnsweredBy.NEW_SESSION,
        ),
        call("GET", all_of_them, handlers.list, "List the sessions of the server's own graphs", None, "Sessions"),
        call("GET", one, handlers.get, "The facts about a session, and its signatures", None, "Session"),
        manage(
            "DELETE", one, handlers.delete, "Cancel the runs of a session and close it", "CloseRequest", "Closed", 204
        ),
        manage(
            "POST",
            f"{one}:extend",
            handlers.extend,
            "Add nodes to the graph of a session",
            "ExtendRequest",
            "ExtendedSession",
            parameters=("current_graph_version", "Idempotency-Key", "Idempotency-Secret"),
        ),
        manage(
            "POST",
            f"{one}:reset",
            handlers.reset,
            "Cancel the runs of a session and clear its containers",
            "ResetRequest",
            "Reset",
        ),
        call("GET", f"{one}/graph", handlers.graph, "The graph of a session, as JSON, text or bytes", None, "GraphDef"),
        call("GET", f"{one}/devices", handlers.devices, "List the devices of a session", None, "Devices"),
        call(
            "POST",
            f"{one}/devices",
            handlers.devices,
            "List the devices of a session, as TensorFlow's ListDevices",
            "DevicesRequest",
            "Devices",
        ),
    ]


class _Wishes(NamedTuple):
    """What the address of a request for a session says.

    Attributes:
        ttl: seconds without use after which it is closed; None for the server's default.
        name: its name; None for a handle that nobody can guess.
        durable: the fields that `_durability` reads.
    """

    ttl: float | None
    name: str | None
    durable: dict[str, Any]


class _Handlers:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.sessions = server.sessions
        self.limits = server.config.message_limits

    async def _message(self, request: web.Request, kind: type[M]) -> M:
        return await bodies.read_message(kind, await self._body(request), self.limits)

    async def _body(self, request: web.Request) -> bytes:
        return await bodies.read_body(request, self.server.config, self.server.body_budget)

    # Creating and changing

    async def create(self, request: web.Request) -> web.Response:
        name = request.query.get("name")
        with self.sessions.asked_for(name):
            return await self._create_once(request, name)

    async def _create_once(self, request: web.Request, name: str | None) -> web.Response:
        self.server.check_accepting()
        if self.server.sessions_elsewhere is not None:
            raise errors.NotFoundError("Sessions are made at /v1/sessions, written in this way")
        refuse_preferences(request, key=False)
        if self.server.durable is not None and read_key(request) is not None:
            await self.server.durable.until_open()  # which tells whether the request was carried out
        wishes = _Wishes(_ttl(request.query.get("ttl_s")), name, _durability_of_query(request.query))
        body = await self._body(request)

        async def create() -> web.Response:
            with self.sessions.asked_for(name):  # counted again because creation may outlive the request
                return await self._create(request, body, wishes)

        return await self.server.answered_once.answer(request, read_key(request), body, create)

    async def _create(self, request: web.Request, body: bytes, wishes: _Wishes) -> web.Response:
        in_host, media = bool(self.server.config.handle_prefix), bodies.media_type(request)
        hosted = await self.sessions.create(
            lambda: _new_session(media, body, wishes, self.limits, in_host=in_host), len(body), request[CALLER]
        )
        if hosted.durable is not None:
            await self._write_new(hosted, hosted.durable, request.get(KEYED))
        headers = {"Location": f"/v1/sessions/{hosted.handle}"}
        if bodies.is_protobuf(media):
            answer = proto.CreateSessionResponse(session_handle=hosted.handle, graph_version=hosted.graph_version)
            response = bodies.protobuf_response(answer, 201, headers)
        else:
            response = bodies.json_response(
                {"session_handle": hosted.handle, "graph_version": hosted.graph_version}, 201, headers
            )
        if hosted.durable is not None:
            response[MADE_DURABLE] = hosted.durable
        return response

    async def _write_new(self, hosted: HostedSession, durable: DurableSession, keyed: KeyedAnswer | None) -> None:
        """Write a new session.  Raises OpError, and closes it, if it cannot be written."""
        if keyed is not None:
            durable.begin_keyed(keyed)
        try:
            await durable.write()
        except errors.OpError:
            await self.sessions.give_up(hosted)
            raise

    async def extend(self, request: web.Request) -> web.Response:
        self.server.check_accepting()
        refuse_preferences(request, key=False)
        version = _version(request.query.get("current_graph_version"))
        with self._changeable(request).in_use() as hosted:
            body = await self._body(request)

            async def extend() -> web.Response:
                async with hosted.changing():
                    return await self._extend(hosted, body, bodies.media_type(request), version)

            return await self.server.answered_once.answer(request, read_key(request), body, extend, hosted.durable)

    async def _extend(self, hosted: HostedSession, body: bytes, media: str, version: int | None) -> web.Response:
        protobuf = bodies.is_protobuf(media)
        nanoseconds = len(body) / loop_budget.NODE_BYTES * loop_budget.IMPORT_NODE_NS
        expected: Any = version
        if media == bodies.OCTETS:
            graph_def = await bodies.beside(0, bodies.parse_graph, body, self.limits)
        elif protobuf:
            message, graph_def = await bodies.beside(
                0, bodies.parse_with_graph, proto.ExtendSessionRequest, body, self.limits
            )
            check_handle(message.session_handle, hosted)
            expected = message.current_graph_version
        else:
            fields = await bodies.beside(nanoseconds, bodies.json_object, body)
            bodies.check_fields(fields, _EXTEND_FIELDS, "the request")
            expected = fields.get("current_graph_version", version)
            if type(expected) is not int:
                raise bodies.expected('"current_graph_version" must be an integer', expected)
            graph_def = await bodies.beside(nanoseconds, _graph_def, fields, self.limits)
        await bodies.beside(nanoseconds, self.sessions.maker.check_graph, graph_def)
        if version is not None and expected != version:
            raise errors.InvalidArgumentError('"current_graph_version" is not that of the address')
        new = await hosted.extend(graph_def, expected)
        if protobuf:
            return bodies.protobuf_response(proto.ExtendSessionResponse(new_graph_version=new))
        return bodies.json_response({"new_graph_version": new})

    async def delete(self, request: web.Request) -> web.Response:
        hosted = self._changeable(request)
        protobuf = bodies.is_protobuf(bodies.media_type(request))
        if protobuf:
            message = await self._message(request, proto.CloseSessionRequest)
            check_handle(message.session_handle, hosted)
        if hosted.listed:
            await self.server.models.delete(hosted.handle.partition("@")[0])
        else:
            await self.sessions.delete(hosted)
        if protobuf:
            return bodies.protobuf_response(proto.CloseSessionResponse())
        return web.Response(status=204)

    async def reset(self, request: web.Request) -> web.Response:
        """POST …/{session}:reset"""
        refuse_preferences(request)
        with self._changeable(request).in_use() as hosted:
            body = await self._body(request)
            protobuf = bodies.is_protobuf(bodies.media_type(request))
            if protobuf:
                message = await bodies.read_message(proto.ResetRequest, body, self.limits)
                if message.device_filters:
                    raise errors.UnimplementedError("device_filters of a reset are not supported: leave them out")
                containers = tuple(message.container)
            else:
                fields = bodies.json_object(body) if body.strip() else {}
                bodies.check_fields(fields, _RESET_FIELDS, "the request")
                containers = read_names(fields.get("containers", []), '"containers"')
            # Shielded: once begun, the reset goes on even if the client leaves.
            async with hosted.changing():
                resetting = self.server.in_background(hosted.session.reset(containers), f"reset {hosted.session!r}")
                await asyncio.shield(resetting)
        if protobuf:
            return bodies.protobuf_response(proto.ResetResponse())
        return bodies.json_response({})

    def _changeable(self, request: web.Request) -> HostedSession:
        """Return the request's session.  Raises PermissionDeniedError if the client may not change it."""
        return self.server.changeable(self.server.session_of(request), request[CALLER])

    # Reading

    async def list(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/sessions: the server's own sessions, and those of the caller.

        Without tokens the handle of a client's session is a secret, so such sessions are not listed.
        """
        told = listed_sessions(self.server, request[CALLER])
        elsewhere = self.server.sessions_elsewhere
        others = [] if elsewhere is None or request.method == METH_HEAD else await elsewhere(request)
        described = itertools.chain(told, others)
        return await self.server.door.send(request, value_pieces({"sessions": described}), bodies.JSON, in_thread=False)

    async def get(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/sessions/{session}: its state, and its signatures."""
        hosted = self.server.session_of(request)
        parts = session_pieces(hosted, request[CALLER])  # before it is in use, and no longer idle
        with hosted.in_use():
            in_thread = not loop_budget.DEFAULT.allows(signatures_ns(hosted.session))
            return await self.server.door.send(request, parts, bodies.JSON, in_thread=in_thread)

    async def graph(self, request: web.Request) -> web.StreamResponse:
        with self.server.session_of(request).in_use() as hosted:
            # Safe without a lock: an extension makes a new graph and leaves this one unchanged.
            graph = hosted.session.graph
            form, media = _graph_form(bodies.accepts(request))
            door = self.server.door
            return await door.send(request, graph_pieces(graph, form, door.holding), media)

    async def devices(self, request: web.Request) -> web.Response:
        with self.server.session_of(request).in_use() as hosted:
            devices = hosted.session.devices()
            protobuf = bodies.is_protobuf(bodies.media_type(request))
            if protobuf:
                message = await self._message(request, proto.ListDevicesRequest)
                check_handle(message.session_handle, hosted)
            if protobuf or any(bodies.is_protobuf(media) for media in bodies.accepts(request)):
                return bodies.protobuf_response(proto.ListDevicesResponse(local_device=[d.to_proto() for d in devices]))
            described = [
                {"name": d.name, "device_type": d.type, "memory_limit": d.memory_limit, "incarnation": d.incarnation}
                for d in devices
            ]
            return bodies.json_response({"devices": described})


def _graph_form(accepted: Iterable[str]) -> tuple[GraphForm, str]:
    """Return the form in which a client wants a graph, and its media type."""
    for media in accepted:
        if media in _BINARY:
            return GraphForm.BYTES, media
        if media in ("text/plain", "text/*"):
            return GraphForm.TEXT, "text/plain; charset=utf-8"
    return GraphForm.JSON, "application/json; charset=utf-8"


def listed_sessions(server: Server, caller: Caller) -> Iterator[dict[str, Any]]:
    """Describe the sessions of this process that a caller is told of: the server's own, and those of its token."""
    for hosted in server.sessions:
        if hosted.listed or (caller.name and hosted.owner is not None and caller.sees(hosted.owner)):
            yield describe_session(hosted, caller)


def session_pieces(hosted: HostedSession, caller: Caller) -> Iterator[str]:
    """A session's description for a caller, with its signatures, as JSON in pieces."""
    return _with_signatures(describe_session(hosted, caller), hosted.session)


def _with_signatures(description: dict[str, Any], session: aexec.Session) -> Iterator[str]:
    yield from value_pieces(description | describe_signatures(session))


def describe_session(hosted: HostedSession, caller: Caller) -> dict[str, Any]:
    """Describe a session for a caller, without its signatures."""
    statistics = hosted.session.statistics()
    owner = {"owner": hosted.owner} if hosted.owner and caller.is_admin else {}
    return owner | {
        "session_handle": hosted.handle,
        "graph_version": hosted.graph_version,
        "nodes": statistics.nodes,
        "runs": statistics.runs,
        "runs_in_flight": len(hosted.runs.live),
        "plans": statistics.plans,
        "ttl_s": hosted.ttl,
        "idle_s": round(hosted.idle_seconds, 3),
        **({} if hosted.durable is None else {"durable": True, "durability": hosted.durable.facts.durability}),
    }


def check_handle(handle: str, hosted: HostedSession) -> None:
    """Raise InvalidArgumentError if a message names another session than its path."""
    if handle and handle != hosted.handle:
        raise errors.InvalidArgumentError(f"session_handle '{handle[:80]}' is not that of the path, '{hosted.handle}'")


def _version(text: str | None) -> int | None:
    """Parse the graph version in the query; None without one."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS):
        raise errors.InvalidArgumentError(f'"current_graph_version" must be a whole number, got {text[:40]!r}')
    return int(text)


def _ttl(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) is str:
        with contextlib.suppress(ValueError):
            value = float(value)
    if type(value) is int and abs(value) < 2**53:
        value = float(value)
    if type(value) is not float or not math.isfinite(value):
        raise bodies.expected('"ttl_s" must be a number of seconds', value)
    return value


def _new_session(media: str, body: bytes, wishes: _Wishes, limits: MessageLimits, *, in_host: bool) -> NewSession:
    """Decode a request to create a session."""
    ttl, name, durable = wishes
    if bodies.is_protobuf(media) or media == bodies.OCTETS:
        if media == bodies.OCTETS:
            config, graph_def = proto.ConfigProto(), bodies.parse_graph(body, limits)
        else:
            message, graph_def = bodies.parse_with_graph(proto.CreateSessionRequest, body, limits)
            config = message.config
        return NewSession(graph_def, config, ttl, _name(name), durability=_durability(durable))
    fields = bodies.json_object(body)
    bodies.check_fields(fields, _CREATE_FIELDS, "the request")
    config = bodies.parse_dict(proto.ConfigProto, fields.get("config", {}), '"config"')
    given = fields.get("name", name)
    if given != name and in_host:
        raise errors.UnimplementedError(
            '"name": sessions are spread over processes here, by their names, and so a name has to be in the address: '
            "POST /v1/sessions?name=…"
        )
    if name not in (None, given):
        raise errors.InvalidArgumentError('"name" is not that of the address')
    for field, value in durable.items():
        if fields.setdefault(field, value) != value:
            raise errors.InvalidArgumentError(f'"{field}" is not that of the address')
    return NewSession(
        _graph_def(fields, limits),
        config,
        _ttl(fields.get("ttl_s", ttl)),
        _name(given),
        read_limits(fields.get("limits", {})),
        _durability(fields),
    )


def _durability_of_query(query: Mapping[str, str]) -> dict[str, Any]:
    """The fields that `_durability` reads, as far as an address has them."""
    fields: dict[str, Any] = {name: query[name] for name in ("durable", "durability") if name in query}
    if fields.get("durable") in ("true", "false"):
        fields["durable"] = fields["durable"] == "true"
    return fields


def _durability(fields: Mapping[str, Any]) -> Durability | None:
    """Read whether a session is to be durable, and how; None if it is not."""
    durable, how = fields.get("durable", False), fields.get("durability")
    if type(durable) is not bool:
        raise bodies.expected('"durable" must be true or false', durable)
    if how is not None and not durable:
        raise errors.InvalidArgumentError('"durability" is for sessions with "durable": true')
    if how not in (None, *(one.value for one in Durability)):
        raise bodies.expected('"durability" must be "strict" or "relaxed"', how)
    return Durability(how or "strict") if durable else None


def _name(value: Any) -> str | None:
    return None if value is None else check_name(value)


def _graph_def(fields: dict[str, Any], limits: MessageLimits) -> proto.FlatGraphDef:
    """Decode the field "graph_def" of a JSON request, which is base64 or JSON."""
    given = fields.get("graph_def")
    if type(given) is str:
        return bodies.parse_graph(bodies.decode_base64(given, '"graph_def"'), limits)
    if type(given) is dict:
        return bodies.parse_graph(bodies.parse_dict(proto.GraphDef, given, '"graph_def"').SerializeToString(), limits)
    raise bodies.expected('"graph_def" must be a base64 string or a JSON object', given)
