"""Holds what tests send and get against the API's description: `check_exchange`, which the tests' client calls."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from aexec_server import ServerConfig
from aexec_server.app import route_table
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.schemas.openapi import BODIES, describe_api
from jsonschema import Draft202012Validator

__all__ = ["check_exchange", "document", "fits", "route_of", "table"]

# Larger ones are of tests of speed and of limits, and would take longer than these.
_MOST = 20_000


@functools.cache
def table() -> list[Route]:
    """That of any server."""
    return route_table(Server(ServerConfig()))


@functools.cache
def document() -> dict[str, Any]:
    """The description."""
    return describe_api(table())


@functools.cache
def _patterns() -> list[tuple[str, re.Pattern[str], Route]]:
    def regex(pattern: str) -> str:
        # Parameters are `{name:pattern}`; what lies between them is as it stands.
        parts = re.split(r"\{\w+:((?:[^{}])+)\}", pattern)
        return "".join(f"({part})" if i % 2 else re.escape(part) for i, part in enumerate(parts))

    return [(route.method, re.compile(regex(route.pattern)), route) for route in table()]


def route_of(method: str, path: str) -> Route | None:
    """The route that such a request takes."""
    path = path.partition("?")[0]
    return next((r for m, pattern, r in _patterns() if m == method and pattern.fullmatch(path)), None)


def _closed(schema: Any) -> Any:
    """The schema without members that it does not name."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in closed and closed.get("description", "").find("refused by name") < 0:
        closed.setdefault("additionalProperties", False)
    return closed


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    components = {"schemas": _closed(document()["components"]["schemas"])}
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})


def fits(name: str, value: Any) -> str | None:
    """Why a value does not fit the schema of a name; None if it does."""
    error = next(iter(_validator(name).iter_errors(value)), None)
    if error is None:
        return None
    while error.context:  # of several forms, the one that it comes closest to
        error = min(error.context, key=lambda e: (-len(e.absolute_path), len(e.context or ())))
    return f"{name} at {error.json_path}: {error.message[:300]}"


def check_exchange(method: str, path: str, body: Any, status: int, answer: Any) -> None:
    """AssertionError if a request that succeeded, or an answer, is none that the description tells of.

    Args:
        body: what was sent: bytes, or what is sent as JSON.
        answer: what came back, decoded if it is JSON.
    """
    route = route_of(method, path)
    said = "the description of the API (*_schemas.py) does not tell of this"
    if route is None or not isinstance(answer, dict | list) or len(json.dumps(answer)) > _MOST:
        return
    response = BODIES.get(route.response or "")
    if status == route.status or (response is not None and status in response.also):
        if response is not None and response.schema is not None:
            why = fits(route.response or "", answer)
            assert why is None, f"{method} {path}: {said} answer: {why}"
        request = BODIES.get(route.request or "")
        if request is not None and request.schema is not None and isinstance(body, dict | list):
            sent = json.dumps(body)
            why = fits(route.request or "", json.loads(sent)) if len(sent) < _MOST else None
            assert why is None, f"{method} {path}: {said} request: {why}"
    elif status >= 400:
        why = fits("Error", answer)
        assert why is None, f"{method} {path}: {said} error: {why}"
