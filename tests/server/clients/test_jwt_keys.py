"""The keys of an identity provider: read from a file or a URL, and read again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.clients.jwt_keys import JwtKeys, read_keys
from aiohttp.test_utils import TestServer

from aexec import errors
from tests.server.clients.identity_provider import ISSUER, IdentityProvider


@pytest.fixture
async def provider() -> AsyncIterator[tuple[IdentityProvider, str]]:
    one = IdentityProvider()
    async with TestServer(one.app()) as server:
        yield one, str(server.make_url("/keys"))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Keys(JwtKeys):
    """Remembers what it has told."""

    def __init__(self, place: str | Path, clock: Clock | None = None) -> None:
        self.told: list[list[str | None]] = []
        rules = ServerConfig(jwt_keys=place, jwt_issuer=ISSUER, jwt_audiences=["a"]).jwt_rules
        assert rules is not None
        super().__init__(rules, lambda keys: self.told.append([key.name for key in keys]), clock or Clock())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "no JSON Web Key Set"),
        (b"[]", "no JSON Web Key Set"),
        (b"[" * 100_000, "no JSON Web Key Set"),
        (b'{"keys": {}}', "a list of at most 100"),
        (b'{"keys": [%s]}' % b",".join([b"{}"] * 101), "a list of at most 100"),
        (b'{"keys": []}', "no key that checks"),
        (b'{"keys": [{"kty": "oct", "k": "SECRET"}, 1, {"kty": "RSA", "n": "SECRET", "e": "AQAB"}]}', "no key that"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "SECRET"}]}', "a private key"),
    ],
)
def test_wrong_sets_are_refused_without_their_values(data: bytes, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words) as error:
        read_keys(data, "f")
    assert "SECRET" not in str(error.value) + caplog.text


def test_keys_for_something_else_are_left_out() -> None:
    provider = IdentityProvider("ES256", "RS256", "EdDSA", "ES384")
    public = [provider.public(name) for name in provider.keys]
    public[0]["use"] = "enc"
    public[1]["alg"] = "HS256"
    public[2]["key_ops"] = ["sign"]
    (key,) = read_keys(json.dumps({"keys": public}).encode(), "f")
    assert (key.name, key.algorithms) == ("key-3", ("ES384",))


def test_short_rsa_key_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    provider = IdentityProvider("RS256")
    provider.keys["key-0"] = ("RS256", rsa.generate_private_key(65537, 1024))
    with pytest.raises(errors.InvalidArgumentError, match="no key"):
        read_keys(provider.key_set(), "f")
    assert "1024 bits" in caplog.text


async def test_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"

    def write(data: bytes, time: int) -> None:
        path.write_bytes(data)
        os.utime(path, ns=(0, time))

    await asyncio.to_thread(write, IdentityProvider().key_set(), 0)
    keys = await asyncio.to_thread(Keys, path)
    assert not keys.want()  # a look is for URLs
    for time, data in enumerate((b"nothing", IdentityProvider("ES256", "ES256").key_set()), 1):
        await asyncio.to_thread(write, data, time)
        await keys.refresh_if_changed()
    await keys.refresh_if_changed()
    assert keys.told == [["key-0"], ["key-0", "key-1"]]
    assert "keys stay as they were" in caplog.text


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="missing"):
        Keys(tmp_path / "missing")


async def test_keys_are_fetched_when_a_token_names_an_unknown_one(provider: tuple[IdentityProvider, str]) -> None:
    one, url = provider
    clock = Clock()
    keys = Keys(url, clock)
    await keys.refresh()
    watching = asyncio.create_task(keys.watch())
    assert not keys.want()  # just fetched
    clock.now += 11
    one.keys["key-1"] = one.keys["key-0"]
    one.told = one.key_set()
    assert keys.want() and keys.want()
    while len(keys.told) < 2:
        await asyncio.sleep(0)
    assert keys.told == [["key-0"], ["key-0", "key-1"]] and one.asked == 2
    assert not keys.want()
    watching.cancel()
    await asyncio.wait([watching])


async def test_keys_that_cannot_be_fetched_stay_for_some_time(
    provider: tuple[IdentityProvider, str], caplog: pytest.LogCaptureFixture
) -> None:
    one, url = provider
    clock = Clock()
    keys = Keys(f"{url}?key=SECRET", clock)
    await keys.refresh()
    for told in (None, b"x", b" " * (2**18 + 1)):
        one.told = told
        clock.now += 1000
        await keys.refresh()
    assert keys.told == [["key-0"]]
    assert "status 503" in caplog.text and "more than" in caplog.text and "SECRET" not in caplog.text
    clock.now += 601
    await keys.refresh()
    assert keys.told == [["key-0"], []]


async def test_server_that_sends_elsewhere_is_not_followed(
    provider: tuple[IdentityProvider, str], caplog: pytest.LogCaptureFixture
) -> None:
    one, url = provider
    keys = Keys(url.replace("/keys", "/elsewhere"))
    await keys.refresh()
    assert keys.told == [] and not one.asked and "status 302" in caplog.text


async def test_server_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    await Keys("http://127.0.0.1:1/keys").refresh()
    assert "cannot be fetched from http://127.0.0.1:1/keys" in caplog.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"jwt_keys": "f"}, "needs jwt_issuer and jwt_audiences"),
        ({"jwt_issuer": "i"}, "need jwt_keys"),
        ({"jwt_audiences": ["a"]}, "need jwt_keys"),
        ({"jwt_keys": "http://login.example/keys"}, "keys come by https"),
        ({"jwt_keys": "https://user:SECRET@login.example/keys"}, "without a user's name"),
        ({"jwt_algorithms": ["HS256"]}, "'HS256' is none of"),
        ({"jwt_algorithms": ["none"]}, "'none' is none of"),
        ({"jwt_algorithms": []}, "one at least"),
        ({"jwt_scopes": ["x=open"]}, "expected VALUE="),
        ({"jwt_scopes": ["run"]}, "expected VALUE="),
    ],
)
def test_settings_go_together(settings: dict[str, Any], words: str) -> None:
    whole = {"jwt_keys": "f", "jwt_issuer": "i", "jwt_audiences": ["a"]}
    given = settings if words.startswith("need") else whole | settings
    with pytest.raises(errors.InvalidArgumentError, match=words) as error:
        ServerConfig(**given)
    assert "SECRET" not in str(error.value)


def test_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(errors.FailedPreconditionError, match=r"aexec\[jwt\]"):
        Keys(tmp_path / "keys.json")
