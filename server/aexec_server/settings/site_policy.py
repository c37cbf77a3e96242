"""Decides which web pages may use the server through a browser.

A page of another site can make a visitor's browser send requests to this server, even to one that listens on the
loopback address only.  Therefore

- the `Host` of a request has to name this server: a page whose name was made to resolve to this address (DNS rebinding)
  still sends the page's name. Addresses need no name, and are always allowed;
- any request but GET and HEAD is refused if browsers mark it, by `Origin` or `Sec-Fetch-Site`, as sent by a page of
  another site, unless that origin is allowed;
- pages of allowed origins may read answers too (CORS, fetch.spec.whatwg.org).

Where each request needs a token, which no browser sends by itself, any `Host` is accepted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from multidict import CIMultiDict, istr

from aexec import errors
from aexec_server.headed import Headed

__all__ = ["SitePolicy", "check_host_name", "check_origin"]

_ANY = "*"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{0,5})?")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_SEC_FETCH_SITE = istr("Sec-Fetch-Site")
_PRIVATE_NETWORK = istr("Access-Control-Request-Private-Network")
_READS = frozenset(("GET", "HEAD"))
_ELSEWHERE = frozenset(("cross-site", "same-site"))
_MAX_KNOWN = 1000
_METHODS = "GET, POST, DELETE"
_HEADERS = (
    "Accept, Authorization, Content-Type, Aexec-Run-Id, Idempotency-Key, Idempotency-Secret, "
    "Inference-Header-Content-Length, Prefer, Traceparent, Tracestate, X-Request-Id"
)
_EXPOSED = (
    "Aexec-Run-Id, Idempotency-Secret, Inference-Header-Content-Length, Location, Preference-Applied, Retry-After, "
    "WWW-Authenticate, X-Request-Id"
)
_PREFLIGHT_SECONDS = 600


def check_host_name(name: str) -> None:
    """Raise InvalidArgumentError unless `name` is a host name or `*`."""
    if name != _ANY and not _NAME.fullmatch(name):
        raise errors.InvalidArgumentError(f"allowed_hosts has {name!r}: expected a name, without a port, or *")


def check_origin(origin: str) -> None:
    """Raise InvalidArgumentError unless `origin` is an origin as browsers write it, or `*`."""
    parts = urlsplit(origin)
    if origin != _ANY and (parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}"):
        raise errors.InvalidArgumentError(
            f"cors_origins has {origin!r}: expected an origin such as https://example.org, or *"
        )


class SitePolicy:
    """Decides by `Host`, `Origin` and `Sec-Fetch-Site` whether a request may come from a web page.

    Args:
        hosts: names of the server besides `localhost`; None for any.
        origins: origins of pages that may use the server; `*` for any.
    """

    def __init__(self, hosts: Collection[str] | None, origins: Collection[str]) -> None:
        self._hosts = None if hosts is None or _ANY in hosts else frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower() for origin in origins)
        self._known: set[str] = set()  # accepted values of `Host`

    def check(self, request: Headed) -> None:
        """Raise PermissionDeniedError for a request from a page of another site."""
        headers = request.headers
        host = headers.get(hdrs.HOST)
        if host is not None and host not in self._known:
            self._check_host(host)
        if request.method in _READS:
            return
        origin = headers.get(hdrs.ORIGIN)
        if origin is not None:
            self._check_origin(origin, host)
        elif headers.get(_SEC_FETCH_SITE) in _ELSEWHERE:
            raise errors.PermissionDeniedError("The request comes from a page of another site")

    def _check_host(self, host: str) -> None:
        match = _HOST.fullmatch(host)
        if match is None or not self._is_own(match[1].lower()):
            raise errors.PermissionDeniedError(
                f"'{host[:80]}' is not a name of this server; --allowed-host makes it one"
            )
        if len(self._known) < _MAX_KNOWN:
            self._known.add(host)

    def _is_own(self, name: str) -> bool:
        if self._hosts is None or name == "localhost" or name.endswith(".localhost") or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _check_origin(self, origin: str, host: str | None) -> None:
        if origin.lower().partition("://")[2] == (host or "").lower() != "" or self.allows(origin):
            return
        raise errors.PermissionDeniedError(
            f"The request comes from a page of '{origin[:80]}', which is another site; --cors-origin allows it"
        )

    def allows(self, origin: str) -> bool:
        """True if pages of this origin may use the server and read its answers."""
        return _ANY in self._origins or origin.lower() in self._origins

    def install(self, app: web.Application) -> None:
        """Answer preflight requests, and mark in answers which pages may read them, if any origin is allowed."""
        if self._origins:
            app.middlewares.append(self._preflights)
            app.on_response_prepare.append(self._allow_reading)

    async def _allow_reading(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.setdefault(hdrs.VARY, hdrs.ORIGIN)
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and self.allows(origin):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSED

    @property
    def _preflights(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def answer(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            headers = request.headers
            asks = request.method == "OPTIONS" and hdrs.ACCESS_CONTROL_REQUEST_METHOD in headers
            if not asks or not self.allows(headers.get(hdrs.ORIGIN, "")):
                return await handler(request)
            answers = CIMultiDict(
                {
                    hdrs.ACCESS_CONTROL_ALLOW_METHODS: _METHODS,
                    hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _HEADERS,
                    hdrs.ACCESS_CONTROL_MAX_AGE: str(_PREFLIGHT_SECONDS),
                }
            )
            if headers.get(_PRIVATE_NETWORK) == "true":
                answers["Access-Control-Allow-Private-Network"] = "true"
            return web.Response(status=204, headers=answers)

        return answer
