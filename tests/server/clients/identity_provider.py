"""`IdentityProvider`: one in this process, which signs tokens and tells its keys."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from aiohttp import web

jwt = pytest.importorskip("jwt", reason="needs aexec[jwt]")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: E402

__all__ = ["ISSUER", "IdentityProvider", "new_key"]

ISSUER = "https://login.example/"


def new_key(algorithm: str) -> Any:
    """A private key for an algorithm."""
    if algorithm.startswith("ES"):
        return ec.generate_private_key({"ES256": ec.SECP256R1, "ES384": ec.SECP384R1}[algorithm]())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


class IdentityProvider:
    """An identity provider.

    Attributes:
        keys: name → (algorithm, private key).
        told: the answer to who asks for its keys; None for a failure.
        asked: how many times its keys were asked for.
    """

    def __init__(self, *algorithms: str) -> None:
        self.keys = {f"key-{n}": (one, new_key(one)) for n, one in enumerate(algorithms or ("ES256",))}
        self.asked = 0
        self.told: bytes | None = self.key_set()

    def key_set(self, **more: Any) -> bytes:
        """Its public keys, with more fields in each."""
        return json.dumps({"keys": [self.public(name) | more for name in self.keys]}).encode()

    def public(self, name: str) -> dict[str, Any]:
        algorithm, key = self.keys[name]
        kind = jwt.get_algorithm_by_name(algorithm)
        return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}

    def token(self, key: str = "key-0", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token for alice, who may run; a claim or header of None is left out."""
        algorithm, private = self.keys[key]
        now = int(time.time())
        given = {"iss": ISSUER, "aud": "aexec", "sub": "alice", "exp": now + 600, "scope": "aexec:run", **claims}
        given = {name: value for name, value in given.items() if value is not None}
        heading = {name: value for name, value in {"kid": key, **(headers or {})}.items() if value is not None}
        return str(jwt.encode(given, private, algorithm, heading))

    def app(self) -> web.Application:
        async def keys(request: web.Request) -> web.Response:
            self.asked += 1
            return web.Response(status=503) if self.told is None else web.Response(body=self.told)

        async def elsewhere(request: web.Request) -> web.Response:
            raise web.HTTPFound("/keys")

        app = web.Application()
        app.router.add_get("/keys", keys)
        app.router.add_get("/elsewhere", elsewhere)
        return app
