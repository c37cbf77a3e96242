"""The console at `/`: one page to look at sessions, run them, and cancel what runs.

Its files are in `static/`: `console.js` is the page, `graph_view.js` draws graphs, which `graph_layout.js` lays out in
a worker, and `timeline.js` draws traces.  It asks what any client may ask.
"""

from __future__ import annotations

from aiohttp import web

from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.pages.page_response import STATIC, file_route, file_routes, page_response

__all__ = ["routes"]

_FILES = [name for name in STATIC if name not in ("console.html", "page.css")]


def routes() -> list[Route]:
    """`/`, and the files of the page."""

    async def page(request: web.Request) -> web.Response:
        return page_response(STATIC["console.html"], "text/html")

    return [
        Route("GET", "/", page, "The console", None, "Page", scope=Scope.OPEN),
        *file_routes("/console", _FILES),
        file_route("/favicon.ico", "icon.svg"),  # browsers ask for it wherever they are, whatever a page says
    ]
