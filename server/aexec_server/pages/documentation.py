"""Serves the API's description: for programs at `/openapi.json`, for people at `/docs`."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from aiohttp import web

from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.http.bodies import encode_json
from aexec_server.pages.documentation_page import documentation_page
from aexec_server.pages.page_response import file_routes, page_response
from aexec_server.schemas.openapi import describe_api

__all__ = ["routes"]


def routes(others: Iterable[Route]) -> list[Route]:
    """Return the routes of the description, which covers `others` and these routes themselves."""

    @functools.cache
    def document() -> bytes:
        return encode_json(describe_api(table)).encode()

    @functools.cache
    def page() -> bytes:
        return documentation_page(describe_api(table)).encode()

    async def openapi(request: web.Request) -> web.Response:
        return web.Response(body=document(), content_type="application/json")

    async def docs(request: web.Request) -> web.Response:
        return page_response(page(), "text/html")

    own = [
        Route(
            "GET",
            "/openapi.json",
            openapi,
            "This description, as an OpenAPI document",
            None,
            "OpenApi",
            scope=Scope.OPEN,
        ),
        Route("GET", "/docs", docs, "This description, as a page for people", None, "Page", scope=Scope.OPEN),
        *file_routes("/docs", ["page.css", "docs.css", "docs.js"]),
    ]
    table = [*others, *own]
    return own
