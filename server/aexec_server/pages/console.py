"""The console at `/`: a page on which people look at sessions, run them, and cancel runs.

Its files are in `static/`, one module of JavaScript for each concept: `console.js` is the page, `live_page.js` and
`session_page.js` are what it shows.  Graphs are drawn by the library's `aexec/graph/viewer/`, and laid out in a worker,
`layout_worker.js`.  What others have written is in folders `vendor/`, with its licences.  The page uses only the HTTP
API that is open to every client.
"""

from __future__ import annotations

from aiohttp import web

from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.pages.page_response import STATIC, file_route, file_routes, page_response

__all__ = ["routes"]

_FILES = [name for name in STATIC if name not in ("console.html", "page.css") and not name.startswith("page_of_graph")]


def routes() -> list[Route]:
    """Return the routes of `/` and of the page's files."""

    async def page(request: web.Request) -> web.Response:
        return page_response(STATIC["console.html"], "text/html")

    return [
        Route("GET", "/", page, "The console, a page for people", None, "Page", scope=Scope.OPEN),
        *file_routes("/console", _FILES),
        file_route("/favicon.ico", "icon.svg"),  # browsers request it whatever a page says
    ]
