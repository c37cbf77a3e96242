"""`JwtTokens`: who sends a JWT of an identity provider: its signature, its claims, and what they permit.

The owner is the claim `sub`. A token that was checked is remembered until it expires: a check takes some 0.1 ms.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from aexec_server.clients.callers import NO_KEYS, Caller, Refusal, Scope
from aexec_server.clients.jwt_keys import JwtKey
from aexec_server.settings.jwt_rules import JwtRules

__all__ = ["JwtTokens"]

_NEEDED = ("exp", "iss", "aud", "sub")
_MAX_SUBJECT = 200
_MAX_REMEMBERED = 4096
_NEVER = 2**50
# A token that names no key is tried with those that its algorithm allows, if there are not more.
_MAX_TRIED = 4
# Names of owners begin so, and therefore differ from those of the server's own tokens, which have no colon.
_OWNER = "jwt:"
_REASONS = (
    ("ExpiredSignatureError", "expired"),
    ("ImmatureSignatureError", "early"),
    ("InvalidAudienceError", "audience"),
    ("InvalidIssuerError", "issuer"),
    ("MissingRequiredClaimError", "claims"),
    ("InvalidSubjectError", "claims"),
)


class JwtTokens:
    """Recognises the owners of JWTs.

    Args:
        rules: which tokens are taken.
        want_keys: called when a token names an unknown key; returns True if keys are going to be read.
        now: returns seconds since 1970.
    """

    def __init__(self, rules: JwtRules, want_keys: Callable[[], bool], now: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._want_keys = want_keys
        self._now = now
        self._keys: Sequence[JwtKey] = ()
        # Digest of a token → its caller, and when it expires.
        self._remembered: dict[bytes, tuple[Caller, float]] = {}

    def replace(self, keys: Sequence[JwtKey]) -> None:
        """Replace all keys; every token is checked again."""
        self._keys = keys
        self._remembered.clear()

    def identify(self, token: str) -> Caller | Refusal:
        """Return the caller with this token, or why there is none."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered.get(digest)
        if known is not None:
            if self._now() < known[1]:
                return known[0]
            del self._remembered[digest]
        claims = self._claims(token)
        if isinstance(claims, Refusal):
            return claims
        name = _OWNER + quote(claims["sub"], safe="")
        if not claims["sub"] or len(name) > _MAX_SUBJECT:
            return Refusal(token_given=True, reason="claims")
        caller = Caller(name, self._scopes(claims))
        if len(self._remembered) >= _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = caller, min(int(claims["exp"]), _NEVER) + self._rules.leeway_seconds
        return caller

    def _claims(self, token: str) -> dict[str, Any] | Refusal:
        """Return the claims of a token that the provider has signed for this server."""
        import jwt

        if not self._keys:
            self._want_keys()
            return Refusal(token_given=True, reason=NO_KEYS)
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return Refusal(token_given=True)
        algorithm, name = header.get("alg"), header.get("kid")
        if algorithm not in self._rules.algorithms or "crit" in header:
            return Refusal(token_given=True)
        keys = [key for key in self._keys if name in (None, key.name) and algorithm in key.algorithms]
        if not keys and name is not None and all(name != key.name for key in self._keys) and self._want_keys():
            return Refusal(token_given=True, reason=NO_KEYS)
        if len(keys) > _MAX_TRIED:
            return Refusal(token_given=True)
        for key in keys:
            try:
                found: dict[str, Any] = jwt.decode(
                    token,
                    key.key,
                    [algorithm],
                    audience=self._rules.audiences,
                    issuer=self._rules.issuer,
                    leeway=self._rules.leeway_seconds,
                    options={"require": list(_NEEDED)},
                )
                return found
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                reasons = (reason for kind, reason in _REASONS if isinstance(error, getattr(jwt.exceptions, kind)))
                return Refusal(token_given=True, reason=next(reasons, ""))
        return Refusal(token_given=True)

    def _scopes(self, claims: dict[str, Any]) -> frozenset[Scope]:
        """Return what the claims permit."""
        name, granted = self._rules.scope_claim, self._rules.scopes
        value: Any = claims
        for part in [name] if name in claims else name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        values = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        return frozenset(Scope(granted[one]) for one in values if isinstance(one, str) and one in granted)
