"""`JwtRules`: which JWTs of an identity provider a server takes, and what their claims permit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from aexec import errors
from aexec.hosting import is_loopback

__all__ = ["JwtRules", "is_url", "jwt_rules"]

# Only asymmetric ones: with a symmetric one, the key that checks a token can also make one.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SCOPES = ("run", "manage", "admin")


@dataclass(frozen=True, slots=True)
class JwtRules:
    """The tokens of an identity provider that a server takes.

    Attributes:
        keys: the path or URL of the provider's keys, a JSON Web Key Set.
        issuer: what the claim `iss` must be.
        audiences: one of these must be in the claim `aud`.
        algorithms: the algorithms of signatures, some of `_ALGORITHMS`.
        leeway_seconds: how far the clocks of the provider and of this machine may be apart.
        refresh_seconds: time between two looks at the keys.
        scope_claim: the name of the claim with scopes; parts between dots lead into objects.
        scopes: value in that claim → the scope that it grants.
    """

    keys: str
    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    leeway_seconds: float
    refresh_seconds: float
    scope_claim: str
    scopes: Mapping[str, str]


def jwt_rules(
    keys: str | None,
    issuer: str | None,
    audiences: Collection[str],
    algorithms: Collection[str],
    leeway_seconds: float,
    refresh_seconds: float,
    scope_claim: str,
    scopes: Collection[str],
) -> JwtRules | None:
    """Return the rules of these settings; None if they name no keys.

    Raises:
        InvalidArgumentError: they do not go together, or one is malformed.
    """
    if keys is None:
        if issuer is not None or audiences:
            raise errors.InvalidArgumentError("jwt_issuer and jwt_audiences need jwt_keys")
        return None
    if issuer is None or not audiences:
        raise errors.InvalidArgumentError(
            "jwt_keys needs jwt_issuer and jwt_audiences: without them tokens for other services would be taken"
        )
    if is_url(keys):
        _check_url(keys)
    for one in algorithms:
        if one not in _ALGORITHMS:
            raise errors.InvalidArgumentError(f"jwt_algorithms: {one!r} is none of {', '.join(_ALGORITHMS)}")
    if not algorithms:
        raise errors.InvalidArgumentError("jwt_algorithms must name one at least")
    granted = {}
    for one in scopes:
        value, _, scope = one.rpartition("=")
        if not value or scope not in _SCOPES:
            raise errors.InvalidArgumentError(f"jwt_scopes: expected VALUE={'|'.join(_SCOPES)}, got {one!r}")
        granted[value] = scope
    return JwtRules(
        keys, issuer, tuple(audiences), tuple(algorithms), leeway_seconds, refresh_seconds, scope_claim, granted
    )


def is_url(keys: str) -> bool:
    """True for a URL, False for a path."""
    return keys.startswith(("http://", "https://"))


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None:
        raise errors.InvalidArgumentError("jwt_keys: expected https://HOST/PATH, without a user's name")
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        raise errors.InvalidArgumentError("jwt_keys: keys come by https, except from this machine")
