"""From errors to answers: the status table, the body, and what HTTP itself refuses."""

from __future__ import annotations

import json
import logging

import pytest
from aexec_server import ServerConfig, make_app
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from aexec import errors
from aexec.errors import Code
from tests.server.conftest import Api

# google/rpc/code.proto
TABLE = {
    "CANCELLED": (499, "Cancelled"),
    "UNKNOWN": (500, "Unknown"),
    "INVALID_ARGUMENT": (400, "Invalid argument"),
    "DEADLINE_EXCEEDED": (504, "Deadline exceeded"),
    "NOT_FOUND": (404, "Not found"),
    "ALREADY_EXISTS": (409, "Already exists"),
    "PERMISSION_DENIED": (403, "Permission denied"),
    "RESOURCE_EXHAUSTED": (429, "Resource exhausted"),
    "FAILED_PRECONDITION": (400, "Failed precondition"),
    "ABORTED": (409, "Aborted"),
    "OUT_OF_RANGE": (400, "Out of range"),
    "UNIMPLEMENTED": (501, "Unimplemented"),
    "INTERNAL": (500, "Internal"),
    "UNAVAILABLE": (503, "Unavailable"),
    "DATA_LOSS": (500, "Data loss"),
    "UNAUTHENTICATED": (401, "Unauthenticated"),
}


def client_of(handler: object) -> TestClient[web.Request, web.Application]:
    app = make_app(ServerConfig())
    app.router.add_route("*", "/raise", handler)  # type: ignore[arg-type]
    return TestClient(TestServer(app))


def test_table_has_every_code() -> None:
    assert set(TABLE) == {code.name for code in Code} - {"OK"}


@pytest.mark.parametrize("name", TABLE)
async def test_every_row(name: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise errors.from_code(Code[name], "what went wrong")

    status, title = TABLE[name]
    async with client_of(handler) as client, client.get("/raise") as response:
        assert response.status == status
        assert response.content_type == "application/json"
        answer = await response.json()
        assert len(answer.pop("trace_id")) == 32
        assert answer == {
            "error": "what went wrong",
            "code": name,
            "status": status,
            "type": "about:blank",
            "title": title,
            "detail": "what went wrong",
            "instance": "/raise",
        }
        assert ("Retry-After" in response.headers) == (status in (429, 503))
        assert response.reason


async def test_problem_json_for_who_asks_for_it(api: Api, small: str) -> None:
    response, body = await api.raw("GET", "/v1/sessions/none", Accept="application/problem+json, application/json")
    assert response.content_type == "application/problem+json" and json.loads(body)["status"] == 404


async def test_node_and_op_of_what_failed(api: Api, small: str) -> None:
    status, answer = await api.run(small, run_id="r7", feeds={"x": [1]}, fetches=["fails"])
    assert status == 400
    assert answer["node"] == "fails" and answer["op"] == "TestFail"
    assert answer["error"] == answer["detail"] == "failed on purpose"
    assert answer["instance"] == f"/v1/sessions/{small}/runs/r7"


async def test_bug_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise KeyError("secret")

    async with client_of(handler) as client, client.get("/raise", headers={"X-Request-Id": "id-7"}) as response:
        text = await response.text()
        assert response.status == 500 and response.headers["X-Request-Id"] == "id-7"
    assert json.loads(text)["code"] == "INTERNAL"
    assert "secret" not in text and "Traceback" not in text and ".py" not in text
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info is not None and "secret" in caplog.text


async def test_text_of_a_kernels_exception_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise errors.UnknownError("KeyError: secret", node="n", op="Op") from KeyError("secret")

    async with client_of(handler) as client, client.get("/raise") as response:
        answer = json.loads(await response.text())
    assert (response.status, answer["code"], answer["node"], answer["op"]) == (500, "INTERNAL", "n", "Op")
    assert "secret" not in str(answer)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info is not None and answer["error"].split()[2].rstrip(";") in record.getMessage()


async def test_request_ids_are_echoed(api: Api, small: str) -> None:
    for path in ("/livez", "/nowhere", f"/v1/sessions/{small}"):
        response, _ = await api.raw("GET", path, X_Request_Id="abc")
        assert response.headers["X-Request-Id"] == "abc"
    response, _ = await api.raw("GET", "/livez")
    assert "X-Request-Id" not in response.headers


@pytest.mark.parametrize("request_id", ["x" * 201, "a b", "a\tb", "ü"])
async def test_request_ids_that_are_no_names_are_not(api: Api, request_id: str) -> None:
    response, _ = await api.raw("GET", "/livez", X_Request_Id=request_id)
    assert response.status == 200 and "X-Request-Id" not in response.headers


async def test_paths_that_lead_nowhere(api: Api, small: str) -> None:
    for path in ("/nothing", "/v1", "/v1/sessions/", f"/v1/sessions/{small}:walk", f"/v1/sessions/{small}/nothing"):
        status, answer = await api.call("GET", path)
        assert (status, answer["code"]) == (404, "NOT_FOUND"), path


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/sessions/s:run", "POST"),
        ("PUT", "/v1/sessions", "GET, HEAD, POST"),
        ("POST", "/v1/sessions/s", "DELETE, GET, HEAD"),
        ("DELETE", "/livez", "GET, HEAD"),
    ],
)
async def test_wrong_verbs(api: Api, method: str, path: str, allowed: str) -> None:
    response, body = await api.raw(method, path)
    assert response.status == 405 and response.headers["Allow"] == allowed
    assert json.loads(body)["status"] == 405


async def test_long_message_is_cut(api: Api, small: str) -> None:
    _, answer = await api.run(small, fetches=["n" * 100_000])
    assert len(answer["error"]) <= 20_000
