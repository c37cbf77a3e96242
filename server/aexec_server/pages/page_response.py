"""Responses with pages for people and their static files, with headers that restrict what browsers may do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from aexec.hosting import viewer_files
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route

__all__ = ["STATIC", "file_route", "file_routes", "page_response"]

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

# Read at import: handlers must not wait for a disk.  By path in the folder, such as `vendor/uplot.css`.  What draws
# graphs is the library's.
STATIC = {
    **viewer_files(),
    **{
        path.relative_to(_FOLDER).as_posix(): path.read_bytes()
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _TYPES
    },
}

# A page loads nothing from other sites, runs only the server's scripts, and cannot be framed by another site:
# www.w3.org/TR/CSP3.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types aexec"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page_response(body: bytes, content_type: str) -> web.Response:
    """Return the response with a page or a static file."""
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)


def file_routes(folder: str, names: Iterable[str]) -> list[Route]:
    """Return routes for static files, at `folder`/name.  A file that the browser has cached is not sent again."""
    return [file_route(f"{folder}/{name}", name) for name in names]


def file_route(path: str, name: str) -> Route:
    """Return the route of a static file at any path."""
    content = STATIC[name]
    tag = hashlib.sha256(content).hexdigest()[:16]

    async def answer(request: web.Request) -> web.Response:
        if any(etag.value == tag for etag in request.if_none_match or ()):
            response = web.Response(status=304, headers=_HEADERS)
        else:
            response = page_response(content, _TYPES[Path(name).suffix])
        response.etag = tag
        return response

    return Route("GET", path, answer, "A file of a page", None, "PageFile", scope=Scope.OPEN)
