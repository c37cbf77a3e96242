"""`AccessControl`: decides which requests are answered, before the handler of every route.

It refuses requests from pages of other sites (`settings/site_policy.py`), requests whose token is missing, unknown or
over its rate (`clients/tokens.py`), and requests without the scope that the route needs (`Scope`).  Handlers get the
`Caller` of the others.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web
from multidict import CIMultiDictProxy

from aexec import errors
from aexec_server.clients.caller_header import CALLER_HEADER, read_caller
from aexec_server.clients.callers import ANYONE, CALLER, CLIENT, NO_KEYS, REFUSALS, Caller, Refusal, Scope, anyone_at
from aexec_server.clients.client_address import peer_host
from aexec_server.clients.token_source import TokenSource
from aexec_server.core.routes import Handler, Route
from aexec_server.http.error_responses import HasHeaders
from aexec_server.settings.server_config import ServerConfig
from aexec_server.settings.site_policy import SitePolicy
from aexec_server.settings.trusted_proxies import FORWARDED_FOR, TrustedProxies

__all__ = ["AccessControl"]


class _UnauthenticatedError(HasHeaders, errors.UnauthenticatedError):
    def __init__(self, refusal: Refusal) -> None:
        # RFC 6750, section 3: no error is named where no token was sent.
        if refusal.token_given:
            why = REFUSALS[refusal.reason]
            super().__init__(why)
            described = f', error_description="{why}"' if refusal.reason else ""
            self.headers = {"WWW-Authenticate": f'Bearer realm="aexec", error="invalid_token"{described}'}
        else:
            super().__init__("This server wants a token: send the header Authorization: Bearer TOKEN")
            self.headers = {"WWW-Authenticate": 'Bearer realm="aexec"'}


class _NoKeysError(HasHeaders, errors.UnavailableError):
    def __init__(self) -> None:
        super().__init__("The keys by which the token is checked are not known yet: try again")
        self.headers = {"Retry-After": "1"}


class _ScopeError(HasHeaders, errors.PermissionDeniedError):
    def __init__(self, caller: Caller, scope: Scope) -> None:
        super().__init__(f"This needs a token with the scope '{scope.value}', which that of '{caller.name}' has not")
        self.headers = {"WWW-Authenticate": f'Bearer realm="aexec", error="insufficient_scope", scope="{scope.value}"'}


class _RateError(HasHeaders, errors.ResourceExhaustedError):
    def __init__(self, retry_after: int) -> None:
        super().__init__("The token has sent more requests than it may: try again later")
        self.headers = {"Retry-After": str(retry_after)}


class AccessControl:
    """Decides for each request whether it is answered: by its origin, its token, and the route's scope.

    Attributes:
        source: the source of tokens; None if the server wants none.
        site: the policy for web pages.
        proxies: the proxies whose word on a client's address is taken.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._key = config.caller_key
        self._wants_tokens = config.wants_tokens
        self.source = TokenSource(config) if config.has_tokens else None
        self.proxies = TrustedProxies(config.trusted_proxies)
        self._has_proxies = bool(config.trusted_proxies)
        # A browser sends no token by itself: if tokens are needed, a page cannot use the server under any name.
        any_host = config.wants_tokens and not config.allowed_hosts
        self.site = SitePolicy(None if any_host else (config.host, *config.allowed_hosts), config.cors_origins)

    @property
    def front_says(self) -> bool:
        """True if a front names the caller of each request; then equal heads always come from the same caller."""
        return self._key is not None

    def guard(self, route: Route) -> Handler:
        """The route's handler, with the checks before it."""
        handler, check = route.handler, self.site.check
        if route.scope is Scope.OPEN:

            async def open_to_all(request: web.Request) -> web.StreamResponse:
                check(request)
                return await handler(request)

            return open_to_all
        admit = self._admit_anyone if self.source is None and self._key is None else self._admit
        scope = route.scope

        async def guarded(request: web.Request) -> web.StreamResponse:
            check(request)
            admit(request, scope)
            CLIENT.set(request[CALLER].client)
            return await handler(request)

        return guarded

    def caller(self, headers: CIMultiDictProxy[str]) -> Caller | None:
        """The caller of requests with these headers, if nothing else decides whether it may run.

        None if it may not, or if its requests are counted.
        """
        if self.source is None and self._key is None:
            return ANYONE
        if self._key is not None:
            who = read_caller(headers.get(CALLER_HEADER), self._key)
        else:
            assert self.source is not None
            who = self.source.identify(headers.get(hdrs.AUTHORIZATION), counted=False)
        return who if isinstance(who, Caller) and who.may(Scope.RUN) else None

    def located(self, caller: Caller, transport: asyncio.BaseTransport, headers: CIMultiDictProxy[str]) -> Caller:
        """The caller of a request on this connection, with its address if it is told from others by that."""
        return self._anyone(peer_host(transport), headers) if caller is ANYONE else caller

    def shares_connections(self, transport: asyncio.BaseTransport | None) -> bool:
        """True if a connection is a front's or a proxy's, which may close it while its clients are there."""
        return self.front_says or (self._has_proxies and self.proxies.trusts(peer_host(transport)))

    async def begin(self) -> None:
        """Fetch what tokens are checked by, before the first request."""
        if self.source is not None:
            await self.source.begin()

    async def watch(self) -> None:
        """Fetch it again when that is due, until cancelled."""
        if self.source is not None:
            await self.source.watch()

    async def reload_if_changed(self) -> None:
        """Read the tokens again if their files were written."""
        if self.source is not None:
            await self.source.reload_if_changed()

    def _admit_anyone(self, request: web.Request, scope: Scope) -> None:
        request[CALLER] = self._anyone(request.remote or "", request.headers)

    def _anyone(self, peer: str, headers: CIMultiDictProxy[str]) -> Caller:
        """The caller of a request without a token, which came from `peer`."""
        if not self._has_proxies:
            return anyone_at(peer)
        return anyone_at(self.proxies.client_host(peer, headers.getall(FORWARDED_FOR, ())))

    def admit_call(self, authorization: str | None, host: str, scope: Scope) -> Caller:
        """The caller of a gRPC call that a client has sent here.

        Args:
            authorization: its metadata of that name.
            host: the address that it comes from.

        Raises:
            UnauthenticatedError, PermissionDeniedError, ResourceExhaustedError, UnavailableError: it is refused.
        """
        if scope is Scope.OPEN or self.source is None:
            return anyone_at(host)
        return self._checked(self.source.identify(authorization), scope)

    def admit_relayed_call(self, named: str | None, scope: Scope) -> Caller:
        """The caller of a gRPC call that a front has passed on.  Raises as `admit_call`.

        Args:
            named: what the front says of the caller, as `CALLER_HEADER` has it.
        """
        return self._checked(self._named(named), scope)

    def _admit(self, request: web.Request, scope: Scope) -> None:
        request[CALLER] = self._checked(self._who(request), scope)

    def _checked(self, who: Caller | Refusal, scope: Scope) -> Caller:
        """The caller, if it may do what needs this scope.  Raises otherwise."""
        if isinstance(who, Refusal):
            if who.reason == NO_KEYS:
                raise _NoKeysError
            raise _UnauthenticatedError(who) if who.retry_after is None else _RateError(who.retry_after)
        if self._wants_tokens and not who.may(scope):
            raise _ScopeError(who, scope)
        return who

    def _who(self, request: web.Request) -> Caller | Refusal:
        if self._key is not None:
            return self._named(request.headers.get(CALLER_HEADER))
        assert self.source is not None
        sent = request.headers.getall(hdrs.AUTHORIZATION, ())
        return self.source.identify(", ".join(sent) if sent else None)

    def _named(self, header: str | None) -> Caller | Refusal:
        """Return the caller that the front names."""
        assert self._key is not None
        who = read_caller(header, self._key)
        # A front passes a request whose head it cannot read on unchanged, so that it names no caller.
        return who if self._wants_tokens or isinstance(who, Caller) else ANYONE
