"""Which process answers a request: the one that its route names."""

from __future__ import annotations

import re

import pytest
from aexec_server import ServerConfig
from aexec_server.app import route_table
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import AnsweredBy, Route, served_routes
from aexec_server.core.server_state import Server
from aexec_server.hosts.relayed_routes import RelayedRoutes
from aiohttp import web


def table() -> list[Route]:
    return route_table(Server(ServerConfig()))


async def handler(request: web.Request) -> web.Response:
    return web.Response()


def test_each_route_is_answered_where_it_says() -> None:
    routes = table()
    relayed = RelayedRoutes(routes)
    for route in routes:
        target = re.sub(r"\{(\w+)\}", r"\1-1", route.path)
        spelled = [target, f"{target}?x=1", *([target.upper()] if route.ignore_case else [])]
        for each in spelled:
            process, name = relayed.find(route.method.encode(), each.encode())
            assert process is route.answered_by, route
            assert name == {AnsweredBy.SESSION: "session-1", AnsweredBy.OPERATION: "operation-1"}.get(process, "")
    assert {route.answered_by for route in routes} == set(AnsweredBy)


def test_calls_of_models_are_answered_where_models_are() -> None:
    assert all(route.answered_by is AnsweredBy.MODELS for route in table() if "{model}" in route.path)


@pytest.mark.parametrize(
    ("method", "target", "answered"),
    [
        ("GET", "/v1/sessions", (AnsweredBy.FRONT, "")),
        ("GET", "/v1/sessions?name=a", (AnsweredBy.FRONT, "")),
        ("POST", "/v1/sessions/", (AnsweredBy.FRONT, "")),
        ("POST", "/v1/sessionsX", (AnsweredBy.FRONT, "")),
        ("POST", "/v1/sessions?name=a/b", (AnsweredBy.NEW_SESSION, "")),
        ("PUT", "/v1/sessions/a%20b:nothing", (AnsweredBy.SESSION, "a%20b")),
        ("GET", "/v1/sessions/s/../t", (AnsweredBy.SESSION, "s")),
        ("GET", "/v1/sessions//s", (AnsweredBy.FRONT, "")),
        ("GET", "/v2", (AnsweredBy.FRONT, "")),
        ("GET", "/v2/modelsX", (AnsweredBy.FRONT, "")),
        ("GET", "/", (AnsweredBy.FRONT, "")),
    ],
)
def test_unknown_path_goes_where_its_prefix_goes(method: str, target: str, answered: tuple[AnsweredBy, str]) -> None:
    assert RelayedRoutes(table()).find(method.encode(), target.encode()) == answered


def test_new_route_is_answered_where_it_says() -> None:
    """By its path, or by its `process`: nothing else has to know of it."""
    routes = [
        *table(),
        Route("POST", "/v1/sketches/{session}:draw", handler, "Draw", scope=Scope.RUN),
        Route("GET", "/v3/zoo", handler, "All models", process=AnsweredBy.MODELS, scope=Scope.RUN),
        Route("GET", "/v3/weather", handler, "How it is", scope=Scope.RUN),
    ]
    relayed = RelayedRoutes(routes)
    assert relayed.find(b"POST", b"/v1/sketches/s1-7:draw") == (AnsweredBy.SESSION, "s1-7")
    assert relayed.find(b"GET", b"/v3/zoo?all=1") == (AnsweredBy.MODELS, "")
    assert relayed.find(b"GET", b"/v3/weather") == (AnsweredBy.FRONT, "")


def test_server_without_routes_answers_in_front() -> None:
    assert RelayedRoutes(served_routes(web.Application())).find(b"GET", b"/v1/sessions/a") == (AnsweredBy.FRONT, "")
