"""Who is let in: tokens, scopes, owners and quotas, and pages of other sites."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.app import route_table
from aexec_server.clients.caller_header import authorization_of, new_key, read_caller, with_caller
from aexec_server.clients.callers import Caller, Quotas, Refusal, Scope, anyone_at
from aexec_server.clients.tokens import new_token
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server

from aexec import errors
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.server.sessions.test_model_changes import model
from tests.support.gates import Gate
from tests.support.waiting import until

GRAPH = base64.b64encode(small_graph().graph_def.SerializeToString()).decode()


class Team:
    """A server with a token for each of some names.

    Attributes:
        api: without a token.
        tokens: by name.
    """

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.lines = ""
        self.api: Api

    def add(self, name: str, *scopes: str, **quotas: float) -> None:
        self.tokens[name], digest = new_token()
        numbers = "".join(f", {key} = {value}" for key, value in quotas.items())
        self.lines += f'{name} = {{sha256 = "{digest}", scopes = {list(scopes)}{numbers}}}\n'

    def headers(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    async def call(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await self.api.call(method, path, body, headers=self.headers(name))

    async def create(self, name: str, graph: str = GRAPH) -> str:
        status, answer = await self.call(name, "POST", "/v1/sessions", {"graph_def": graph})
        assert status == 201, answer
        return str(answer["session_handle"])


async def team(start: Start, **settings: Any) -> Team:
    made = Team()
    for name in ("alice", "bob"):
        made.add(name, "run", "manage")
    made.add("reader", "run")
    made.add("root", "admin")
    made.api = await start(tokens=made.lines, **settings)
    return made


def table() -> list[Route]:
    return route_table(Server(ServerConfig()))


def test_every_route_has_a_scope() -> None:
    assert all(isinstance(route.scope, Scope) for route in table())
    open_to_all = {route.path for route in table() if route.scope is Scope.OPEN}
    assert {"/livez", "/readyz", "/openapi.json"} <= open_to_all
    assert not any(path.startswith(("/v1", "/v2/models", "/v2/repository")) for path in open_to_all)
    for route in table():
        if route.path.startswith("/v1/sessions") and route.method in ("PUT", "DELETE"):
            assert route.scope is Scope.MANAGE or "/tensors/" in route.path, route.path


async def test_every_call_wants_a_token_but_those_that_are_open(start: Start) -> None:
    api = (await team(start)).api
    for route in table():
        path = route.path.translate(str.maketrans("{}", "ab")).replace("versionb", "1").replace("/a1", "/1")
        status, answer = await api.call(route.method, path)
        if route.scope is Scope.OPEN:
            assert status in (200, 503), path
        else:
            assert (status, answer["code"]) == (401, "UNAUTHENTICATED"), path


async def test_missing_and_wrong_tokens_are_refused(start: Start) -> None:
    api = (await team(start)).api
    response, _ = await api.raw("GET", "/v1/sessions")
    assert (response.status, response.headers["WWW-Authenticate"]) == (401, 'Bearer realm="aexec"')
    response, body = await api.raw("GET", "/v1/sessions", Authorization="Bearer aexec_SECRETSECRET")
    assert (response.status, "invalid_token" in response.headers["WWW-Authenticate"]) == (401, True)
    assert b"SECRET" not in body


async def test_scopes(start: Start) -> None:
    t = await team(start, graphs={"model": model()})
    assert (await t.call("reader", "GET", "/v1/sessions"))[0] == 200
    response, body = await t.api.raw("POST", "/v1/sessions", b"{}", **t.headers("reader"))
    answer = json.loads(body)
    assert (response.status, answer["code"]) == (403, "PERMISSION_DENIED") and "'manage'" in answer["error"]
    assert 'scope="manage"' in response.headers["WWW-Authenticate"]
    status, answer = await t.call("alice", "POST", "/v2/repository/models/model/unload")
    assert status == 403 and "'admin'" in answer["error"]


async def test_session_belongs_to_its_owner(start: Start) -> None:
    t = await team(start)
    handle = await t.create("alice")
    one = f"/v1/sessions/{handle}"
    ways = [
        (route.method, route.path.replace("{session}", handle).translate(str.maketrans("{}", "ab")))
        for route in table()
        if route.path.startswith("/v1/sessions/{session}")
    ]
    assert len(ways) > 15
    unknown = "0" * len(handle)
    for method, path in ways:
        status, answer = await t.call("bob", method, path)
        assert status == 404, path
        # One that is another's, and one that nobody has, are told in the same words.
        status, other = await t.call("bob", method, path.replace(handle, unknown))
        told = json.loads(json.dumps(answer).replace(handle, unknown))
        assert (status, other) == (404, told | {"trace_id": other["trace_id"]}), path
    run = {"feeds": {"x": [2.0]}, "fetches": ["y"]}
    for name in ("alice", "root"):
        status, answer = await t.call(name, "POST", f"{one}:run", run)
        assert (status, answer["outputs"]) == (200, {"y": [4.0]})
    assert (await t.call("root", "GET", one))[1]["owner"] == "alice"
    assert "owner" not in (await t.call("alice", "GET", one))[1]
    assert (await t.call("bob", "DELETE", one))[0] == 404
    assert (await t.call("alice", "DELETE", one))[0] == 204


async def test_lists_show_what_is_ones_own(start: Start) -> None:
    t = await team(start, graphs={"model": model()})
    hers, his = await t.create("alice"), await t.create("bob")

    async def listed(name: str) -> set[str]:
        return {one["session_handle"] for one in (await t.call(name, "GET", "/v1/sessions"))[1]["sessions"]}

    assert await listed("alice") == {"model", hers} and await listed("bob") == {"model", his}
    assert await listed("root") == {"model", hers, his} and await listed("reader") == {"model"}


async def test_served_model_is_changed_by_admins_only(start: Start) -> None:
    t = await team(start, graphs={"model": model()})
    await t.api.hosted("model").session.run([], targets=["init", "init_ref", "init_table"])
    run = "/v1/sessions/model:run"
    write = {"feeds": {"x": 5.0}, "fetches": ["y"], "targets": ["write"]}
    for _ in range(2):
        status, answer = await t.call("alice", "POST", run, write)
        assert (status, answer["code"]) == (403, "PERMISSION_DENIED") and "the server's own" in answer["error"]
        assert (await t.call("root", "POST", run, write))[0] == 200
    assert (await t.call("reader", "POST", run, {"feeds": {"x": 2.0}, "fetches": ["y"]}))[1]["outputs"] == {"y": 10.0}
    assert (await t.call("alice", "DELETE", "/v1/sessions/model"))[0] == 403
    assert (await t.call("root", "POST", "/v2/repository/models/model/unload"))[0] == 200


async def test_managers_may_change_models_if_changes_are_allowed(start: Start) -> None:
    t = await team(start, graphs={"model": model()}, allow_model_changes=True)
    assert (await t.call("reader", "POST", "/v2/repository/models/model/unload"))[0] == 403
    assert (await t.call("alice", "POST", "/v2/repository/models/model/unload"))[0] == 200


async def test_runs_of_a_shared_session_are_ones_own(start: Start) -> None:
    gate = Gate()
    t = await team(start, graphs={"model": gate_graph(gate).graph()}, allow_model_changes=True)
    runs = "/v1/sessions/model/runs"
    asked = {"fetches": ["y"], "run_id": "same"}
    hers, his = (
        asyncio.create_task(t.call(name, "POST", "/v1/sessions/model:run", asked)) for name in ("alice", "bob")
    )
    await until(lambda: len(t.api.hosted("model").runs.live) == 2)
    assert len((await t.call("alice", "GET", runs))[1]["runs"]) == 1
    assert len((await t.call("root", "GET", runs))[1]["runs"]) == 2
    assert (await t.call("reader", "GET", f"{runs}/same"))[0] == 404
    assert (await t.call("reader", "POST", f"{runs}/same:cancel"))[0] == 404  # and not for anybody else's either
    assert (await t.call("alice", "POST", f"{runs}/same:cancel"))[1] == {"cancelled": True}
    assert (await hers)[0] == 499
    assert (await t.call("alice", "GET", f"{runs}/same"))[0] == 404
    assert (await t.call("bob", "GET", f"{runs}/same"))[0] == 200
    assert (await t.call("root", "POST", f"{runs}/same:cancel"))[1] == {"cancelled": True}
    assert (await his)[0] == 499


async def test_quotas(start: Start) -> None:
    t = Team()
    t.add("alice", "run", "manage", max_sessions=1, max_runs=1, max_memory_mb=1)
    gate = Gate()
    t.api = await start(tokens=t.lines)
    handle = await t.create("alice", base64.b64encode(gate_graph(gate).graph_def.SerializeToString()).decode())
    status, answer = await t.call("alice", "POST", "/v1/sessions", {"graph_def": GRAPH})
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED") and "as many sessions" in answer["error"]
    path = f"/v1/sessions/{handle}"
    first = asyncio.create_task(t.call("alice", "POST", f"{path}:run", {"fetches": ["y"]}))
    await until(lambda: len(t.api.hosted(handle).runs.live) == 1)
    response, body = await t.api.raw("POST", f"{path}:run", b'{"fetches": ["y"]}', **t.headers("alice"))
    assert response.status == 429 and b"as many runs in flight" in body and response.headers["Retry-After"]
    gate.open.set()
    assert (await first)[0] == 200
    assert (await t.call("alice", "POST", f"{path}:run", {"fetches": ["y"]}))[0] == 200
    assert (await t.call("alice", "DELETE", path))[0] == 204
    handle = await t.create("alice")
    run = {"feeds": {"x": [0.0] * 300_000}, "fetches": ["y"]}
    status, answer = await t.call("alice", "POST", f"/v1/sessions/{handle}:run", run)
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED") and "OOM" in answer["error"]


async def test_rates(start: Start) -> None:
    t = Team()
    t.add("alice", "run", rate=0.5, burst=2)
    t.api = await start(tokens=t.lines, clock=lambda: 0.0)
    for _ in range(2):
        assert (await t.call("alice", "GET", "/v1/sessions"))[0] == 200
    response, body = await t.api.raw("GET", "/v1/sessions", **t.headers("alice"))
    assert (response.status, response.headers["Retry-After"]) == (429, "2") and b"RESOURCE_EXHAUSTED" in body
    assert (await t.call("alice", "GET", "/livez"))[0] == 200


async def test_tokens_are_in_no_log_and_no_answer(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    t = await team(start, access_log=True)
    with caplog.at_level(logging.DEBUG):
        handle = await t.create("alice")
        run = {"feeds": {"x": [2.0]}, "fetches": ["y"], "options": {"trace_level": "FULL_TRACE"}}
        answers = [
            await t.call("alice", "POST", f"/v1/sessions/{handle}:run", run),
            await t.call("alice", "POST", f"/v1/sessions/{handle}:run", {"fetches": ["fails"]}),
            await t.call("reader", "POST", "/v1/sessions", {}),
        ]
        token = t.tokens["alice"]
        async with t.api.connection() as (reader, writer):  # what HTTP itself does not take
            head = f"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\0\r\n\r\n"
            writer.write(head.encode())
            assert b" 400 " in await reader.readline()
    for secret in t.tokens.values():
        assert secret not in repr(answers) and secret not in caplog.text


# Pages of other sites


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8500", "[::1]:1", "a.localhost", "10.1.2.3"])
async def test_names_that_are_the_servers(api: Api, host: str) -> None:
    assert (await api.raw("GET", "/v1/sessions", Host=host))[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8500", "127.0.0.1.evil.example", "x", "a/b", "127.1"]
)
async def test_names_that_lead_here_by_rebinding(api: Api, host: str) -> None:
    for method, path in (("GET", "/v1/sessions"), ("POST", "/v1/sessions"), ("GET", "/livez")):
        response, body = await api.raw(method, path, Host=host)
        assert response.status == 403 and b"not a name of this server" in body


async def test_names_that_are_allowed(start: Start) -> None:
    api = await start(allowed_hosts=["Models.Example"])
    assert (await api.raw("GET", "/v1/sessions", Host="models.example:8500"))[0].status == 200
    assert (await api.raw("GET", "/v1/sessions", Host="other.example"))[0].status == 403
    assert (await (await start(allowed_hosts=["*"])).raw("GET", "/livez", Host="any.example"))[0].status == 200
    # Where no request is answered without a token, its sender is no page that was lead here.
    t = await team(start)
    assert (await t.api.raw("GET", "/v1/sessions", Host="any.example", **t.headers("alice")))[0].status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://localhost"}, 404),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 404),
        ({"Sec_Fetch_Site": "none"}, 404),
        ({}, 404),
    ],
)
async def test_changes_from_other_sites_are_refused(api: Api, headers: Mapping[str, str], status: int) -> None:
    for method, path in (("POST", "/v1/sessions/none:run"), ("DELETE", "/v1/sessions/none")):
        assert (await api.raw(method, path, Host="localhost", **headers))[0].status == status
    assert (await api.raw("GET", "/v1/sessions", Host="localhost", **headers))[0].status == 200


async def test_pages_that_are_allowed(start: Start) -> None:
    api = await start(cors_origins=["https://app.example"])
    ours, theirs = "https://app.example", "https://evil.example"
    asks = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    response, _ = await api.raw("OPTIONS", "/v1/sessions/none:run", Origin=ours, **asks)
    assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (204, ours)
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    assert "Content-Type" in response.headers["Access-Control-Allow-Headers"]
    response, _ = await api.raw("OPTIONS", "/v1/sessions/none:run", Origin=theirs, **asks)
    assert response.status == 405 and "Access-Control-Allow-Origin" not in response.headers
    response, _ = await api.raw("POST", "/v1/sessions/none:run", Origin=ours, Sec_Fetch_Site="cross-site")
    assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (404, ours)
    assert response.headers["Vary"] == "Origin"
    response, _ = await api.raw("POST", "/v1/sessions/none:run", Origin=theirs)
    assert response.status == 403 and "Access-Control-Allow-Origin" not in response.headers
    anywhere = await start(cors_origins=["*"])
    assert (await anywhere.raw("POST", "/v1/sessions/none:run", Origin=theirs))[0].status == 404


async def test_pages_may_not_read_answers_by_default(api: Api) -> None:
    response, _ = await api.raw("GET", "/v1/sessions", Origin="https://evil.example")
    assert not [name for name in response.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "settings",
    [
        {"allowed_hosts": ["http://x"]},
        {"allowed_hosts": ["x:80"]},
        {"cors_origins": ["x.example"]},
        {"cors_origins": ["https://x.example/"]},
        {"cors_origins": ["null"]},
        {"tls_cert": "c.pem"},
        {"tls_client_ca": "ca.pem"},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        ServerConfig(**settings)


# What a front tells its hosts


def test_caller_header_is_believed_only_from_the_front() -> None:
    key = new_key()
    spoofed = b"AEXEC-CALLER: k caller root admin - - -"
    head = b"GET / HTTP/1.1\r\nHost: x\r\nauthorization:  Bearer T \r\n%b\r\nA: b\r\n\r\n" % spoofed
    assert authorization_of(head) == "Bearer T"
    assert authorization_of(b"GET / HTTP/1.1\r\nA: b\r\n\r\n") is None
    assert authorization_of(head.replace(b"A: b", b"Authorization: Bearer U")) == "Bearer T, Bearer U"
    for who in (
        Caller("alice", frozenset((Scope.RUN, Scope.MANAGE)), Quotas(sessions=3, memory_bytes=5)),
        Caller("alice", frozenset([Scope.ADMIN]), Quotas(runs=-1)),
        anyone_at("2001:db8::1"),
        Refusal(token_given=True, retry_after=2),
        Refusal(token_given=True, reason="expired"),
        Caller("jwt:a%20b", frozenset()),
        Refusal(token_given=False),
    ):
        signed = with_caller(head, key, who)
        assert b"Bearer" not in signed and b"root" not in signed and signed.endswith(b"\r\nA: b\r\n\r\n")
        values = [line[14:].decode() for line in signed.split(b"\r\n") if line.lower().startswith(b"aexec-caller:")]
        assert [read_caller(value, key) for value in values] == [who]
        assert read_caller(values[0], new_key()) == Refusal(token_given=False)
    assert read_caller(None, key) == read_caller("caller root admin - - -", key) == Refusal(token_given=False)
