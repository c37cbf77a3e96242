"""Callers with JWTs: what a server answers them, by itself and with session hosts."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aexec_server.clients.tokens import new_token
from aiohttp.test_utils import TestServer

import aexec
from tests.server.clients.identity_provider import ISSUER, IdentityProvider
from tests.server.conftest import Api, Start, small_graph
from tests.support.server_process import ServerProcess

GRAPH = {"graph_def": base64.b64encode(small_graph().graph_def.SerializeToString()).decode()}
ALL = "aexec:run aexec:manage"
RUN = {"feeds": {"x": [2.0]}, "fetches": ["y"]}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def provider() -> AsyncIterator[tuple[IdentityProvider, dict[str, Any]]]:
    """An identity provider, and the settings of servers that believe it."""
    one = IdentityProvider()
    async with TestServer(one.app()) as server:
        yield (
            one,
            {"jwt_keys": str(server.make_url("/keys")), "jwt_issuer": ISSUER, "jwt_audiences": ["aexec"]},
        )


async def called(api: Api, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    return await api.call(method, path, body, headers=bearer(token))


async def test_session_belongs_to_the_subject(start: Start, provider: tuple[IdentityProvider, dict[str, Any]]) -> None:
    one, settings = provider
    own, digest = new_token()
    api = await start(tokens=f'root = {{sha256 = "{digest}", scopes = ["admin"]}}', **settings)
    alice, bob, guest = (one.token(sub=name, scope=scope) for name, scope in (("a", ALL), ("b", ALL), ("c", "other")))
    status, answer = await called(api, alice, "POST", "/v1/sessions", GRAPH)
    assert status == 201
    path = f"/v1/sessions/{answer['session_handle']}"
    for _ in range(3):  # the later ones are direct runs
        assert (await called(api, alice, "POST", f"{path}:run", RUN))[0] == 200
    assert (await called(api, bob, "POST", f"{path}:run", RUN))[0] == 404
    status, answer = await called(api, guest, "GET", "/v1/sessions")
    assert status == 403 and "that of 'jwt:c' has not" in answer["error"]
    assert (await called(api, own, "GET", path))[1]["owner"] == "jwt:a"
    assert (await called(api, one.token(scope=ALL, exp=1), "POST", f"{path}:run", RUN))[0] == 401


async def test_refused_token_is_told_what_is_wrong(
    start: Start, provider: tuple[IdentityProvider, dict[str, Any]]
) -> None:
    one, settings = provider
    api = await start(**settings)
    for claims, words in (
        ({"exp": 1}, "The token has expired"),
        ({"aud": "another"}, "The token is for another audience"),
    ):
        token = one.token(**claims)
        response, body = await api.raw("GET", "/v1/sessions", **bearer(token))
        assert response.status == 401 and json.loads(body)["error"] == words
        assert f'error_description="{words}"' in response.headers["WWW-Authenticate"]
        assert token not in body.decode()
    response, body = await api.raw("GET", "/v1/sessions", **bearer(IdentityProvider().token()))
    assert response.status == 401 and "none that this server knows" in json.loads(body)["error"]


async def test_token_of_an_unknown_key_waits_for_the_key(
    start: Start, provider: tuple[IdentityProvider, dict[str, Any]]
) -> None:
    one, settings = provider
    now = [0.0]
    api = await start(clock=lambda: now[0], **settings)
    one.keys["key-1"] = one.keys["key-0"]
    one.told, token = one.key_set(), one.token("key-1")
    assert (await called(api, token, "GET", "/v1/sessions"))[0] == 401  # fetched just before
    now[0] += 11
    response, body = await api.raw("GET", "/v1/sessions", **bearer(token))
    assert response.status == 503 and response.headers["Retry-After"] == "1", body
    while (status := (await called(api, token, "GET", "/v1/sessions"))[0]) == 503:
        pass
    assert status == 200 and one.asked == 2


async def test_server_starts_without_the_provider(
    start: Start, provider: tuple[IdentityProvider, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    one, settings = provider
    one.told = None
    own, digest = new_token()
    api = await start(tokens=f'bob = {{sha256 = "{digest}", scopes = ["run"]}}', **settings)
    assert "answers with status 503" in caplog.text
    assert (await called(api, own, "GET", "/v1/sessions"))[0] == 200
    assert (await called(api, one.token(), "GET", "/v1/sessions"))[0] == 503


def test_front_passes_owners_on(tmp_path: Path) -> None:
    """Hosts see no token, but who it is of, and what that one may do."""
    one = IdentityProvider("RS256")
    (tmp_path / "keys.json").write_bytes(one.key_set())
    server = ServerProcess(
        tmp_path,
        watch=False,
        hosts="1",
        jwt_keys=tmp_path / "keys.json",
        jwt_issuer=ISSUER,
        jwt_audience="aexec",
    )
    try:
        alice, bob, guest = (
            bearer(one.token(sub=name, scope=scope)) for name, scope in (("a é", ALL), ("b", ALL), ("c", "other"))
        )
        with aexec.Graph() as graph:
            aexec.ops.mul(aexec.placeholder("float32", name="x"), 2.0, name="y")
        body = {"graph_def": base64.b64encode(graph.to_bytes()).decode()}
        made = server.call("POST", "/v1/sessions", body, alice)
        assert made.status == 201
        path = f"/v1/sessions/{made.body['session_handle']}"
        assert [server.call("POST", f"{path}:run", RUN, who).status for who in (alice, bob, guest)] == [200, 404, 403]
        late = server.call("POST", f"{path}:run", RUN, bearer(one.token(exp=1)))
        assert (late.status, late.body["error"]) == (401, "The token has expired")
    finally:
        server.stop()
