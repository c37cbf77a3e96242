"""`Caller`: the client of a request, and what it may do.

Tokens define callers (`tokens.py`), `core/access.py` finds the caller of each request, and each session and run belongs
to one (`sessions/store.py`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from functools import lru_cache

from aiohttp import web

from aexec.hosting import work_owner
from aexec_server.clients.client_address import client_at

__all__ = [
    "ANYONE",
    "CALLER",
    "CLIENT",
    "NO_KEYS",
    "NO_QUOTAS",
    "REFUSALS",
    "Caller",
    "Quotas",
    "Refusal",
    "Scope",
    "anyone_at",
]


class Scope(enum.Enum):
    """The scopes of tokens: what a call of the API needs, and what a token allows.

    `OPEN` calls need no token.  `RUN`: look at and run existing sessions.  `MANAGE`: make, extend and delete one's own
    sessions.  `ADMIN`: all of that with the sessions of all clients and with the server's own models.
    """

    OPEN = "open"
    RUN = "run"
    MANAGE = "manage"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Quotas:
    """The most that one caller may have at a time; None for the server's own limit.

    Attributes:
        sessions: open sessions.
        runs: runs in flight.
        memory_bytes: the bytes of tensors in all its sessions.
    """

    sessions: int | None = None
    runs: int | None = None
    memory_bytes: int | None = None


NO_QUOTAS = Quotas()


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token, or a user of a server without tokens.

    Attributes:
        name: the token's name, which owns what is made with it; `jwt:` and the subject of a JWT; "" without a token.
        scopes: what it may do; ADMIN includes all.
        quotas: the most that it may have.
        address: without a token, its address as `client_at` names it.
        client: the client that it counts as for shares: its token's name, or else its address.
        is_admin: True if ADMIN is among its scopes.
    """

    name: str
    scopes: frozenset[Scope]
    quotas: Quotas = NO_QUOTAS
    address: str = ""
    client: str = field(init=False, repr=False, compare=False)
    is_admin: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", self.name or self.address)
        object.__setattr__(self, "is_admin", Scope.ADMIN in self.scopes)

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or self.is_admin

    def sees(self, owner: str | None) -> bool:
        """True if it may see things of `owner`, or with None those of the server."""
        return owner is None or owner == self.name or self.is_admin


# What a client is told about a refused token, by `Refusal.reason`.  A reason is given of JWTs that are authentic.
REFUSALS = {
    "": "The token is none that this server knows",
    "expired": "The token has expired",
    "early": "The token is not valid yet",
    "audience": "The token is for another audience",
    "issuer": "The token is of another issuer",
    "claims": "The token needs the claims exp, iss, aud and sub",
}
# The reason for a token whose signature cannot be checked now.
NO_KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request has no caller.

    Attributes:
        token_given: True if the request had a token.
        retry_after: seconds until a known token that has asked too often may ask again; else None.
        reason: what is wrong with a JWT, a key of `REFUSALS`; else "".
    """

    token_given: bool
    retry_after: int | None = None
    reason: str = ""


# The caller of a server without tokens: all share one name, and may use any session whose handle they know.
ANYONE = Caller("", frozenset((Scope.RUN, Scope.MANAGE)))
# The caller of a request that `core/access.py` has admitted: `request[CALLER]`.
CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
# The client of the request, or of the gRPC call, in whose task this is read: `Caller.client`.  It owns the long work
# that is done for it.
CLIENT = work_owner


@lru_cache(4096)
def anyone_at(host: str) -> Caller:
    """`ANYONE` with this address."""
    return replace(ANYONE, address=client_at(host))
