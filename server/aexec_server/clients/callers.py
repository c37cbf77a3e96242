"""Who asks: `Caller`, which each request has once it was admitted, and what one may do.

Tokens make callers (`tokens.py`), `core/access.py` admits them, and sessions and runs belong to one
(`sessions/store.py`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import lru_cache

from aiohttp import web

from aexec import errors
from aexec_server.clients.client_address import client_at

__all__ = ["ANYONE", "NO_QUOTAS", "Caller", "Quotas", "Refusal", "Scope", "anyone_at", "caller_of", "set_caller"]


class Scope(enum.Enum):
    """What a call of the API needs of a token, and what a token may do.

    `OPEN` calls need no token.  `RUN`: look at and run what is there.  `MANAGE`: make, extend and delete sessions of
    one's own.  `ADMIN`: all of that with everybody's sessions and with the server's own models.
    """

    OPEN = "open"
    RUN = "run"
    MANAGE = "manage"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one caller may have at a time; None for what the server allows to all together.

    Attributes:
        sessions: open.
        runs: in flight.
        memory_bytes: that the tensors of all its sessions take.
    """

    sessions: int | None = None
    runs: int | None = None
    memory_bytes: int | None = None


NO_QUOTAS = Quotas()


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who has a token, or uses a server without any.

    Attributes:
        name: of the token, and of the owner of what is made with it; empty without one.
        scopes: what it may do; ADMIN stands for all.
        quotas: what it may have.
        address: without a token, from where it comes, as `client_at` has it.
    """

    name: str
    scopes: frozenset[Scope]
    quotas: Quotas = NO_QUOTAS
    address: str = ""

    @property
    def client(self) -> str:
        """What tells it from other clients, with which it shares the server: its token's name, else its address."""
        return self.name or self.address

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def sees(self, owner: str | None) -> bool:
        """Does it know of what belongs to `owner`, or with None to the server?"""
        return owner is None or owner == self.name or self.is_admin


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request has no caller.

    Attributes:
        token_given: there was one.
        retry_after: it is known, but has asked too often, and may again in so many seconds; else None.
    """

    token_given: bool
    retry_after: int | None = None


# Where no tokens are: all have one name, under which each may use whatever it knows the handle of.
ANYONE = Caller("", frozenset((Scope.RUN, Scope.MANAGE)))
_KEY: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


@lru_cache(4096)
def anyone_at(host: str) -> Caller:
    """`ANYONE`, whose connection comes from this address."""
    return replace(ANYONE, address=client_at(host))


def caller_of(request: web.Request) -> Caller:
    """Who sent an admitted request."""
    caller: Caller | None = request.get(_KEY)
    if caller is None:  # a route that is not in the table
        raise errors.InternalError(f"{request.method} {request.path} was not admitted")
    return caller


def set_caller(request: web.Request, caller: Caller) -> None:
    request[_KEY] = caller
