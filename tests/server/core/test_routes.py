"""The table of calls: each is served, and told of in docs/http.md."""

from __future__ import annotations

import re
from pathlib import Path

from aexec_server import ServerConfig
from aexec_server.app import route_table
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aiohttp import web

from tests.server.conftest import Api

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text("utf-8")


def table() -> list[Route]:
    return route_table(Server(ServerConfig()))


def test_each_call_is_in_the_documentation() -> None:
    told = set(re.findall(r"`(?:(GET|POST|DELETE) )?(/?[\w/{}:.]+)`", PAGE.split("## Runs by signature")[0]))
    paths = {path for _, path in told}
    for route in table():
        if route.response == "PageFile":
            continue
        base = re.sub(r"(/v1/models/\{model\})/(versions/\{version\}|labels/\{label\})", r"\1", route.path)
        short = ":" + base.rpartition(":")[2]
        assert (route.method, base) in told or (base.startswith("/v1/models") and short in paths), (route.method, base)


def test_calls_are_listed_once() -> None:
    calls = [(route.method, route.path) for route in table()]
    assert len(calls) == len(set(calls))


def test_summaries_say_something() -> None:
    assert all(len(route.summary) > 8 and not route.summary.endswith(".") for route in table())


async def handler(request: web.Request) -> web.Response:
    return web.Response()


def test_fixed_parts_may_ignore_case() -> None:
    route = Route("GET", "/v1/models/{model}:predict", handler, "", ignore_case=True, scope=Scope.RUN)
    pattern = re.sub(r"\{(\w+):([^{}]+)\}", r"(?P<\1>\2)", route.pattern)
    for path in ("/v1/models/m:predict", "/V1/MODELS/m:PREDICT"):
        match = re.fullmatch(pattern, path)
        assert match is not None and match["model"] == "m"
        assert (match := route.expression.fullmatch(path)) is not None and match["model"] == "m"
    assert re.fullmatch(pattern, "/v1/models/m/x:predict") is None


async def test_other_verbs_are_refused(api: Api) -> None:
    status, answer = await api.call("PUT", "/v2/models/m/infer")
    assert status == 405 and "but POST" in answer["error"]
