"""JWTs: which are taken, and who sent them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.clients.callers import Caller, Refusal, Scope
from aexec_server.clients.jwt_keys import read_keys
from aexec_server.clients.jwt_tokens import JwtTokens
from aexec_server.clients.token_source import TokenSource
from aexec_server.clients.tokens import new_token

from tests.server.clients.identity_provider import ISSUER, IdentityProvider, jwt, new_key

UNKNOWN = Refusal(token_given=True)


def because(reason: str) -> Refusal:
    return Refusal(token_given=True, reason=reason)


def settings(**more: Any) -> ServerConfig:
    return ServerConfig(**{"jwt_keys": "keys.json", "jwt_issuer": ISSUER, "jwt_audiences": ["aexec"], **more})


def checking(provider: IdentityProvider, now: Any = time.time, **more: Any) -> JwtTokens:
    rules = settings(**more).jwt_rules
    assert rules is not None
    tokens = JwtTokens(rules, lambda: False, now)
    tokens.replace(read_keys(provider.key_set(), "keys"))
    return tokens


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_owner_is_the_subject(algorithm: str) -> None:
    provider = IdentityProvider(algorithm)
    tokens = checking(provider)
    alice = Caller("jwt:alice", frozenset([Scope.RUN]))
    assert tokens.identify(provider.token()) == tokens.identify(provider.token()) == alice
    assert tokens.identify(provider.token(sub="auth0|a b/ä")).name == "jwt:auth0%7Ca%20b%2F%C3%A4"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("claim", "claims", "scopes"),
    [
        ("scope", {"scope": "openid aexec:run aexec:manage"}, {Scope.RUN, Scope.MANAGE}),
        ("scope", {"scope": ["aexec:admin"]}, {Scope.ADMIN}),
        ("scope", {"scope": "other"}, set()),
        ("scope", {"scope": None}, set()),
        ("scope", {"scope": {"aexec:run": 1}}, set()),
        ("scope", {"scope": [1, None, ["aexec:run"]]}, set()),
        ("realm.roles", {"realm": {"roles": ["aexec:run"]}}, {Scope.RUN}),
        ("realm.roles", {"realm": ["aexec:run"]}, set()),
        ("https://a.example/roles", {"https://a.example/roles": ["aexec:run"]}, {Scope.RUN}),
    ],
)
def test_scopes_are_those_of_the_claim(claim: str, claims: dict[str, Any], scopes: set[Scope]) -> None:
    provider = IdentityProvider()
    tokens = checking(provider, jwt_scope_claim=claim)
    assert tokens.identify(provider.token(**claims)) == Caller("jwt:alice", frozenset(scopes))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "claims"),
        ({"exp": "soon"}, ""),
        ({"nbf": 2**40}, "early"),
        ({"aud": "another"}, "audience"),
        ({"aud": ["one", "aexec"]}, None),
        ({"aud": None}, "claims"),
        ({"iss": "https://login.example"}, "issuer"),
        ({"iss": None}, "claims"),
        ({"sub": None}, "claims"),
        ({"sub": ""}, "claims"),
        ({"sub": "x" * 300}, "claims"),
        ({"exp": 10**400}, None),
    ],
)
def test_claims_are_checked(claims: dict[str, Any], reason: str | None) -> None:
    provider = IdentityProvider()
    who = checking(provider).identify(provider.token(**claims))
    assert isinstance(who, Caller) if reason is None else who == because(reason)


def test_leeway_bridges_clocks_that_are_apart() -> None:
    provider = IdentityProvider()
    late = provider.token(exp=int(time.time()) - 20)
    assert isinstance(checking(provider).identify(late), Caller)
    assert checking(provider, jwt_leeway_seconds=1.0).identify(late) == because("expired")


def unsigned(claims: dict[str, Any], **header: Any) -> str:
    parts = ({"alg": "none", **header}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts) + "."


def test_forged_tokens_are_unknown() -> None:
    provider, other = IdentityProvider("RS256"), IdentityProvider("RS256")
    tokens = checking(provider, jwt_algorithms=["RS256"])
    good = provider.token()
    head, claims, signature = good.split(".")
    public = provider.keys["key-0"][1].public_key()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    import hashlib
    import hmac

    shared = unsigned({"sub": "alice"}, alg="HS256", kid="key-0")[:-1]
    by_secret = base64.urlsafe_b64encode(hmac.new(pem, shared.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    forged = [
        other.token(),
        f"{head}.{claims}.{signature[:-8]}AAAAAAAA",
        f"{head}.{other.token(sub='root').split('.')[1]}.{signature}",
        unsigned({"sub": "alice", "iss": ISSUER, "aud": "aexec", "exp": 2**40}) + "AA",
        f"{shared}.{by_secret}",
        provider.token(headers={"crit": ["b64"]}),
        provider.token(headers={"kid": "key-9"}),
        "a.b.c",
        "..",
    ]
    assert [tokens.identify(one) for one in forged] == [UNKNOWN] * len(forged)
    assert isinstance(tokens.identify(good), Caller)


def test_algorithm_is_one_of_the_settings_and_of_the_key() -> None:
    provider = IdentityProvider("ES384")
    assert checking(provider).identify(provider.token()) == UNKNOWN
    assert isinstance(checking(provider, jwt_algorithms=["ES384"]).identify(provider.token()), Caller)
    rsa = IdentityProvider("RS256")
    rules = settings(jwt_algorithms=["RS256", "PS256"]).jwt_rules
    assert rules is not None
    tokens = JwtTokens(rules, lambda: False)
    tokens.replace(read_keys(rsa.key_set(alg="RS256"), "keys"))
    assert isinstance(tokens.identify(rsa.token()), Caller)
    rsa.keys["key-0"] = ("PS256", rsa.keys["key-0"][1])
    assert tokens.identify(rsa.token()) == UNKNOWN


def test_token_that_names_no_key_is_tried_with_few() -> None:
    few, many = IdentityProvider(*["ES256"] * 4), IdentityProvider(*["ES256"] * 5)
    assert isinstance(checking(few).identify(few.token("key-3", {"kid": None})), Caller)
    assert checking(many).identify(many.token("key-3", {"kid": None})) == UNKNOWN


def test_remembered_token_expires() -> None:
    provider, now = IdentityProvider(), [time.time()]
    tokens = checking(provider, lambda: now[0])
    token = provider.token(exp=int(now[0]) - 10)
    assert isinstance(tokens.identify(token), Caller)
    decode = jwt.decode
    try:
        jwt.decode = None  # not called again
        assert isinstance(tokens.identify(token), Caller)
    finally:
        jwt.decode = decode
    now[0] += 30
    assert token not in repr(tokens) and tokens.identify(token) != because("expired")  # PyJWT's clock still takes it
    tokens.replace(read_keys(IdentityProvider().key_set(), "keys"))
    assert tokens.identify(token) == UNKNOWN


def test_own_tokens_are_known_beside_jwts(tmp_path: Any) -> None:
    provider = IdentityProvider()
    (tmp_path / "keys.json").write_bytes(provider.key_set())
    own, digest = new_token()
    line = f'alice = {{sha256 = "{digest}", scopes = ["admin"]}}'
    source = TokenSource(settings(jwt_keys=tmp_path / "keys.json", tokens=line))
    assert source.identify(f"Bearer {own}").name == "alice"  # type: ignore[union-attr]
    assert source.identify(f"bearer {provider.token()}").name == "jwt:alice"  # type: ignore[union-attr]
    assert source.identify(f"bearer {provider.token()}", counted=False).name == "jwt:alice"  # type: ignore[union-attr]
    assert source.identify(None) == Refusal(token_given=False)
    assert source.identify("Bearer a.b") == source.identify("Bearer a.b.c.d") == UNKNOWN


def test_key_of_another_kind_does_not_check() -> None:
    provider = IdentityProvider("ES256")
    tokens = checking(provider, jwt_algorithms=["ES256", "RS256"])
    provider.keys["key-0"] = ("RS256", new_key("RS256"))
    assert tokens.identify(provider.token()) == UNKNOWN
