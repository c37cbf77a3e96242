"""The tensors that a session keeps under handles, over HTTP (`session.tensors`).

A handle comes from a GetSessionHandle node or from the answer to keeping a tensor.  To feed it in place of its tensor,
send the resource handle in a RunStepRequest; GetSessionTensor takes its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import quote

from aiohttp import web

from aexec import errors, proto
from aexec.hosting import datatype_of, dtypes, loop_budget, tensor_from_proto, tensor_to_parts
from aexec_server.clients.callers import CALLER, Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http import bodies
from aexec_server.http.answer_door import Holding, Part
from aexec_server.http.bodies import encode_json
from aexec_server.http.json_style import json_style
from aexec_server.http.json_text import value_pieces
from aexec_server.http.request_preferences import refuse_preferences
from aexec_server.requests.run_response import JSON_LENGTH
from aexec_server.requests.tensor_bodies import TensorBody
from aexec_server.requests.tensors import binary_parts, binary_size, check_v2_form, size_of, v2_pieces, write_ns
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["DEFAULT_NAME", "found_tensor", "message_pieces", "routes", "tensor_pieces"]

_FIELDS = frozenset({"name", "datatype", "shape", "data", "parameters"})
DEFAULT_NAME = "tensor"
# Copies of a string tensor while its message is made: the strings, the message, and its bytes.
_COPIES = 3


def routes(server: Server) -> list[Route]:
    """Return the routes below …/tensors."""
    handlers = _Handlers(server)
    all_of_them, one = "/v1/sessions/{session}/tensors", "/v1/sessions/{session}/tensors/{tensor}"
    call, may_be_given = partial(Route, scope=Scope.RUN), (str(JSON_LENGTH), "name")
    return [
        call("GET", all_of_them, handlers.list, "List the kept tensors of a session", None, "SessionTensors"),
        call("POST", all_of_them, handlers.put, "Keep a tensor", "KeepTensor", "SessionTensor", 201, may_be_given),
        call("GET", one, handlers.get, "The value of a kept tensor", None, "SessionTensorValue"),
        call("DELETE", one, handlers.delete, "Delete a kept tensor", status=204),
    ]


class _Handlers:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.door = server.door

    def _session(self, request: web.Request) -> HostedSession:
        """Return the request's session.  Raises PermissionDeniedError if its tensors are not the client's."""
        return self.server.changeable(self.server.session_of(request), request[CALLER])

    async def list(self, request: web.Request) -> web.StreamResponse:
        """GET …/tensors: oldest first."""
        with self._session(request).in_use() as hosted:
            await hosted.settled()
            return await self.door.send(request, tensor_pieces(hosted), bodies.JSON, in_thread=False)

    async def put(self, request: web.Request) -> web.Response:
        """POST …/tensors"""
        self.server.check_accepting()
        refuse_preferences(request)
        with self._session(request).in_use() as hosted:
            body = await bodies.read_body(request, self.server.config, self.server.body_budget)
            if bodies.is_protobuf(bodies.media_type(request)):
                message = await bodies.read_message(proto.TensorProto, body, self.server.config.message_limits)
                name = request.query.get("name", DEFAULT_NAME)
                value = await bodies.beside(len(body) * loop_budget.WIRE_NS, tensor_from_proto, message)
            else:
                name, value = await bodies.beside(
                    len(body) * loop_budget.JSON_READ_NS, lambda: _read(TensorBody.of(request, body, _FIELDS))
                )
            async with hosted.changing():
                kept = await hosted.session.tensors.put(value, name)
            location = f"/v1/sessions/{hosted.handle}/tensors/{quote(kept.name, safe=';/:')}"
            return bodies.json_response({"handle": kept.name}, 201, {"Location": location})

    async def get(self, request: web.Request) -> web.StreamResponse:
        """GET …/tensors/{tensor}"""
        with self._session(request).in_use() as hosted:
            handle = request.match_info["tensor"]
            await hosted.settled()
            value = found_tensor(hosted.session.tensors.get, handle)
            dtype = dtypes.from_numpy(value.dtype)
            accepted = bodies.accepts(request)
            in_thread = not loop_budget.DEFAULT.allows(write_ns(value, binary=False))
            if any(map(bodies.is_protobuf, accepted)):
                parts = message_pieces(value, self.door.holding)
                return await self.door.send(request, parts, bodies.PROTOBUF, in_thread=in_thread)
            binary = bodies.OCTETS in accepted
            check_v2_form(handle, dtype, binary)
            head = f'{{"handle":{encode_json(handle)},"datatype":"{datatype_of(dtype)}","shape":{list(value.shape)}'
            if binary:
                size = await bodies.beside(write_ns(value, binary=True), binary_size, value, dtype)
                head = f'{head},"parameters":{{"binary_data_size":{size}}}}}'
                text = head.encode()
                parts, said = chain([text], binary_parts(value, dtype)), {str(JSON_LENGTH): str(len(text))}
                return await self.door.send(
                    request, parts, bodies.OCTETS, headers=said, length=len(text) + size, in_thread=in_thread
                )
            parts = chain([f'{head},"data":'], v2_pieces(value, dtype, json_style(request)), ["}"])
            return await self.door.send(request, parts, bodies.JSON, in_thread=in_thread)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE …/tensors/{tensor}"""
        with self._session(request).in_use() as hosted:
            handle = request.match_info["tensor"]
            async with hosted.changing():
                found_tensor(hosted.session.tensors.delete, handle)
            return web.Response(status=204)


def tensor_pieces(hosted: HostedSession) -> Iterator[str]:
    """The list of the tensors that a session keeps as JSON, in pieces."""
    described = (
        {
            "handle": info.handle,
            "datatype": datatype_of(info.dtype),
            "shape": list(info.shape),
            "bytes": info.num_bytes,
        }
        for info in hosted.session.tensors.list()
    )
    return value_pieces({"tensors": described})


def found_tensor(call: Callable[[str], Any], handle: str) -> Any:
    """Return the result of a call with a handle; an unknown handle raises NotFoundError."""
    try:
        return call(handle)
    except errors.InvalidArgumentError as error:
        raise errors.NotFoundError(error.message) from None


def _read(body: TensorBody) -> tuple[str, Any]:
    """Return the first part of the handle that a tensor is to have, and the tensor."""
    fields = dict(body.fields)
    name = fields.pop("name", DEFAULT_NAME)
    if type(name) is not str:
        raise bodies.expected('"name" must be a string', name)
    body.fields = {"tensor": [fields]}
    return name, body.tensors("tensor", [name], [None])[0]


def message_pieces(value: Any, holding: Holding) -> Iterator[Part]:
    """A tensor's message in pieces."""
    dtype = dtypes.from_numpy(value.dtype)
    if dtype.size:
        yield from tensor_to_parts(value, dtype)
        return
    with holding(_COPIES * size_of(value)):
        yield from tensor_to_parts(value, dtype)
