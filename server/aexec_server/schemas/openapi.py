"""Makes the OpenAPI 3.1 document of the HTTP API from the table of routes that the server uses.

spec.openapis.org/oas/v3.1.1.  The modules `*_schemas.py` describe the bodies of requests and answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import aexec
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.schemas import (
    common_schemas,
    inference_schemas,
    operation_schemas,
    serving_schemas,
    session_schemas,
    state_schemas,
)
from aexec_server.schemas.examples import EXAMPLES, Example
from aexec_server.schemas.schema import BodySchema, Schema, reference

__all__ = ["BODIES", "describe_api", "undescribed"]

BODIES: dict[str, BodySchema] = {
    **common_schemas.BODIES,
    **session_schemas.BODIES,
    **operation_schemas.BODIES,
    **state_schemas.BODIES,
    **inference_schemas.BODIES,
    **serving_schemas.BODIES,
}
_PARAMETER = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"\w+")
_PROTOBUF = "application/x-protobuf"
# Tag by start of the path; the first match counts.
_TAGS = {
    "/v1/sessions": "Sessions",
    "/v1/operations": "Sessions",
    "/v2/models": "Open Inference Protocol v2",
    "/v2/repository": "Open Inference Protocol v2",
    "/v1/models": "TensorFlow Serving",
    "": "The service",
}


def undescribed(routes: Iterable[Route]) -> list[str]:
    """Return what routes name but no schema module describes, each with the place to add it."""
    return [f"{route.method} {route.path} {what}" for route in routes for what in _missing(route)]


def _missing(route: Route) -> Iterator[str]:
    for name in (route.request, route.response, route.later):
        if name is not None and name not in BODIES:
            yield f"names the body {name!r}: add it to BODIES of a module *_schemas.py"
    for name in (*_PARAMETER.findall(route.path), *route.parameters):
        if name not in common_schemas.PARAMETERS:
            yield f"has the parameter {name!r}: add it to PARAMETERS of common_schemas.py"
    if route.response is None and route.status != 204:
        yield "says nothing of its answer: name a body, or give it the status 204"


def describe_api(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI document.

    Raises:
        KeyError: a route names what no schema module describes; `undescribed` says what.
    """
    routes = list(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    named = {name for route in routes for name in (route.request, route.response, route.later) if name is not None}
    bodies = {name: BODIES[name].schema for name in sorted(named)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aexec",
            "version": aexec.__version__,
            "description": (
                "Dataflow graphs, run inside an event loop: the Session API, the Open Inference Protocol v2 and "
                "TensorFlow Serving's REST API over the same sessions."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(_TAGS.values())],
        "paths": paths,
        "components": {
            "schemas": common_schemas.SCHEMAS | {name: schema for name, schema in bodies.items() if schema is not None},
            "responses": {"Error": _ERROR},
            "securitySchemes": {"token": _TOKEN},
        },
    }


_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token, if the server has any. Each call names the scope that the token must have: run, manage "
    "(the caller's own sessions) or admin",
}
_ERROR = {
    "description": "The request was refused, or failed",
    "headers": {
        "Retry-After": {
            "description": "Seconds after which to try again; with 429 and 503",
            "schema": {"type": "integer"},
        },
        "WWW-Authenticate": {"description": "What the token lacks; with 401 and 403", "schema": {"type": "string"}},
    },
    "content": {media: {"schema": reference("Error")} for media in ("application/json", "application/problem+json")},
}

_LATER = {
    "description": "The run goes on; its operation will have the answer",
    "headers": {
        "Location": {"description": "Path of the operation", "schema": {"type": "string"}},
        "Preference-Applied": {"description": "respond-async", "schema": {"type": "string"}},
    },
}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *_WORD.findall(route.path)]) + "_" * route.path.endswith("/"),
        "summary": route.summary,
        "tags": [next(tag for start, tag in _TAGS.items() if route.path.startswith(start))],
    }
    example = EXAMPLES.get(f"{route.method} {route.path}", {})
    later = EXAMPLES.get(f"{route.method} {route.path} later", {})
    given = later.get("parameters", {}) | example.get("parameters", {})
    names = [*_PARAMETER.findall(route.path), *route.parameters]
    if names:
        operation["parameters"] = [_parameter(name, given.get(name)) for name in names]
    if route.request is not None:
        body = BODIES[route.request]
        content = _content(route.request)
        if example.get("request") is not None:
            content["application/json"]["example"] = example["request"]
        operation["requestBody"] = {"required": body.required, "content": content}
    operation["security"] = [{}] if route.scope is Scope.OPEN else [{}, {"token": [route.scope.value]}]
    operation["responses"] = _responses(route)
    for one in (example, later):
        _add_answer(operation["responses"], one)
    return operation


def _add_answer(responses: dict[str, Any], example: Example) -> None:
    """Add an example's answer to the description of answers with its status; one that is refused gets its own."""
    media = example.get("media")
    if media is None:
        return
    status = str(example["status"])
    if status not in responses:
        responses[status] = {
            "description": "The request is refused",
            "content": {media: {"schema": reference("Error")}},
        }
    response = responses[status]
    response["content"] = {
        kind: described | ({"example": example["answer"]} if kind == media else {})
        for kind, described in response["content"].items()
    }


def _parameter(name: str, example: str | None) -> Schema:
    parameter = common_schemas.PARAMETERS[name]
    described = {"name": name, "required": parameter["in"] == "path"} | parameter
    if example is not None:
        numeric = parameter["schema"].get("type") in ("integer", "number")
        described["example"] = float(example) if numeric else example
    return described


def _responses(route: Route) -> dict[str, Any]:
    nothing = {"description": "Success"}
    responses: dict[str, Any] = {str(route.status): nothing}
    if route.response is not None:
        # A status 204 is the answer to JSON; a request with a protobuf message gets a message, with status 200.
        first = 200 if route.status == 204 else route.status
        content = nothing | {"content": _content(route.response)}
        responses |= {str(status): content for status in (first, *BODIES[route.response].also)}
    if route.later is not None:
        responses["202"] = _LATER | {"content": _content(route.later)}
    return responses | {"default": {"$ref": "#/components/responses/Error"}}


def _content(name: str) -> dict[str, Any]:
    """Describe all forms of a body."""
    body = BODIES[name]
    content: dict[str, Any] = {}
    if body.schema is not None:
        content["application/json"] = {"schema": reference(name)}
    for media, what in body.others.items():
        content[media] = {"schema": {"description": what}}
    if body.message is not None:
        content[_PROTOBUF] = {"schema": {"description": f"The message {body.message}"}}
    return content
