"""Sessions over HTTP: create, list, extend, delete, and what one can look at."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from aiohttp import web

from aexec import errors, proto
from aexec.hosting import OnCancel, loop_budget, run_in_thread
from aexec_server import bodies
from aexec_server.server_state import Server
from aexec_server.store import HostedSession, NewSession

__all__ = ["check_handle", "routes"]

_CREATE_FIELDS = frozenset({"graph_def", "config", "target", "ttl_s"})
_EXTEND_FIELDS = frozenset({"graph_def", "current_graph_version"})
_BINARY = frozenset({"application/octet-stream", bodies.PROTOBUF, "application/protobuf"})


def routes(server: Server) -> list[web.RouteDef]:
    """Everything under /v1/sessions but runs."""
    handlers = _Handlers(server)
    one = "/v1/sessions/{session:[^/:]+}"
    return [
        web.post("/v1/sessions", handlers.create),
        web.get("/v1/sessions", handlers.list),
        web.get(one, handlers.get),
        web.delete(one, handlers.delete),
        web.post(f"{one}:extend", handlers.extend),
        web.get(f"{one}/graph", handlers.graph),
        web.get(f"{one}/devices", handlers.devices),
        web.post(f"{one}/devices", handlers.devices),
    ]


class _Handlers:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.sessions = server.sessions

    async def _body(self, request: web.Request) -> bytes:
        return await bodies.read_body(request, self.server.config)

    # Creating and changing

    async def create(self, request: web.Request) -> web.Response:
        self.server.check_accepting()
        bodies.check_headers(request)
        ttl = _ttl(request.query.get("ttl_s"))
        body = await self._body(request)
        media = bodies.media_type(request)
        hosted = await self.sessions.create(lambda: _new_session(media, body, ttl), len(body))
        headers = {"Location": f"/v1/sessions/{hosted.handle}"}
        if bodies.is_protobuf(media):
            answer = proto.CreateSessionResponse(session_handle=hosted.handle, graph_version=hosted.graph_version)
            return bodies.protobuf_response(answer, 201, headers)
        return bodies.json_response(
            {"session_handle": hosted.handle, "graph_version": hosted.graph_version}, 201, headers
        )

    async def extend(self, request: web.Request) -> web.Response:
        self.server.check_accepting()
        bodies.check_headers(request)
        with self._session(request).in_use() as hosted:
            body = await self._body(request)
            protobuf = bodies.is_protobuf(bodies.media_type(request))
            nanoseconds = len(body) / loop_budget.NODE_BYTES * loop_budget.IMPORT_NODE_NS
            expected: Any
            if protobuf:
                message = await bodies.beside(
                    nanoseconds, lambda: bodies.parse_message(proto.ExtendSessionRequest, body)
                )
                check_handle(message.session_handle, hosted)
                graph_def, expected = message.graph_def, message.current_graph_version
            else:
                fields = await bodies.beside(nanoseconds, lambda: bodies.json_object(body))
                bodies.check_fields(fields, _EXTEND_FIELDS, "the request")
                expected = fields.get("current_graph_version")
                if type(expected) is not int:
                    raise bodies.expected('"current_graph_version" must be an integer', expected)
                graph_def = await bodies.beside(nanoseconds, lambda: _graph_def(fields))
            await bodies.beside(nanoseconds, lambda: self.sessions.check_graph(graph_def))
            version = await hosted.extend(graph_def, expected)
        if protobuf:
            return bodies.protobuf_response(proto.ExtendSessionResponse(new_graph_version=version))
        return bodies.json_response({"new_graph_version": version})

    async def delete(self, request: web.Request) -> web.Response:
        hosted = self._session(request)
        protobuf = bodies.is_protobuf(bodies.media_type(request))
        if protobuf:
            message = bodies.parse_message(proto.CloseSessionRequest, await self._body(request))
            check_handle(message.session_handle, hosted)
        await self.sessions.delete(hosted.handle)
        if protobuf:
            return bodies.protobuf_response(proto.CloseSessionResponse())
        return web.Response(status=204)

    # Looking

    def _session(self, request: web.Request) -> HostedSession:
        return self.sessions.get(request.match_info["session"])

    async def list(self, request: web.Request) -> web.Response:
        return bodies.json_response({"sessions": [_describe(hosted) for hosted in self.sessions]})

    async def get(self, request: web.Request) -> web.Response:
        hosted = self._session(request)
        description = _describe(hosted)
        with hosted.in_use():
            return bodies.json_response(description)

    async def graph(self, request: web.Request) -> web.Response:
        with self._session(request).in_use() as hosted:
            # An extension makes a new graph and leaves this one as it is.
            graph = hosted.session.graph
            for media in bodies.accepts(request):
                if media in _BINARY:
                    data = await run_in_thread(graph.to_bytes, on_cancel=OnCancel.ABANDON)
                    return web.Response(body=data, content_type=media)
                if media in ("text/plain", "text/*"):
                    text = await run_in_thread(graph.to_text, on_cancel=OnCancel.ABANDON)
                    return web.Response(text=text, content_type="text/plain")
            text = await run_in_thread(graph.to_json, on_cancel=OnCancel.ABANDON)
            return web.Response(text=text, content_type="application/json")

    async def devices(self, request: web.Request) -> web.Response:
        with self._session(request).in_use() as hosted:
            devices = hosted.session.devices()
            protobuf = bodies.is_protobuf(bodies.media_type(request))
            if protobuf:
                message = bodies.parse_message(proto.ListDevicesRequest, await self._body(request))
                check_handle(message.session_handle, hosted)
            if protobuf or any(bodies.is_protobuf(media) for media in bodies.accepts(request)):
                return bodies.protobuf_response(proto.ListDevicesResponse(local_device=[d.to_proto() for d in devices]))
            described = [
                {"name": d.name, "device_type": d.type, "memory_limit": d.memory_limit, "incarnation": d.incarnation}
                for d in devices
            ]
            return bodies.json_response({"devices": described})


def _describe(hosted: HostedSession) -> dict[str, Any]:
    statistics = hosted.session.statistics()
    return {
        "session_handle": hosted.handle,
        "graph_version": hosted.graph_version,
        "nodes": statistics.nodes,
        "runs": statistics.runs,
        "runs_in_flight": len(hosted.runs.live),
        "plans": statistics.plans,
        "ttl_s": hosted.ttl,
        "idle_s": round(hosted.idle_seconds, 3),
    }


def check_handle(handle: str, hosted: HostedSession) -> None:
    """A message may repeat the handle of its path, but not name another session."""
    if handle and handle != hosted.handle:
        raise errors.InvalidArgumentError(f"session_handle '{handle[:80]}' is not that of the path, '{hosted.handle}'")


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


def _new_session(media: str, body: bytes, ttl: float | None) -> NewSession:
    """Decode a request to create a session."""
    if bodies.is_protobuf(media):
        message = bodies.parse_message(proto.CreateSessionRequest, body)
        return NewSession(message.graph_def, message.config, ttl)
    if media == "application/octet-stream":
        return NewSession(bodies.parse_message(proto.GraphDef, body), proto.ConfigProto(), ttl)
    fields = bodies.json_object(body)
    bodies.check_fields(fields, _CREATE_FIELDS, "the request")
    config = bodies.parse_dict(proto.ConfigProto, fields.get("config", {}), '"config"')
    return NewSession(_graph_def(fields), config, _ttl(fields.get("ttl_s", ttl)))


def _graph_def(fields: dict[str, Any]) -> proto.GraphDef:
    """The field "graph_def" of a JSON request, base64 or JSON form."""
    given = fields.get("graph_def")
    if type(given) is str:
        return bodies.parse_message(proto.GraphDef, bodies.decode_base64(given, '"graph_def"'))
    if type(given) is dict:
        return bodies.parse_dict(proto.GraphDef, given, '"graph_def"')
    raise bodies.expected('"graph_def" must be a base64 string or a JSON object', given)
