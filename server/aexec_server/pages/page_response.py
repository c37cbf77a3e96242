"""Pages for people: what browsers may do with them, and the files beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route

__all__ = ["STATIC", "file_route", "file_routes", "page_response"]

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

# The files, which are read when this module is, since handlers may not wait for a disk.
STATIC = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}

# A page loads nothing from elsewhere, runs no script but the server's files, and stands in no other site's frame:
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
    """A page, or a file of one."""
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)


def file_routes(folder: str, names: Iterable[str]) -> list[Route]:
    """Files of a page, each at `folder` and its name; one that a browser has is not sent again."""
    return [file_route(f"{folder}/{name}", name) for name in names]


def file_route(path: str, name: str) -> Route:
    """A file of a page at any path."""
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
