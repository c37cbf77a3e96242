"""Health endpoints."""

from __future__ import annotations

import pytest

from tests.server.conftest import Api


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/v2/health/live"])
async def test_live_whatever_happens(api: Api, path: str) -> None:
    api.server.draining = True
    assert await api.call("GET", path) == (200, {"live": True})


@pytest.mark.parametrize("path", ["/readyz", "/v2/health/ready"])
async def test_ready_until_draining(api: Api, path: str) -> None:
    assert await api.call("GET", path) == (200, {"ready": True})
    api.server.draining = True
    assert await api.call("GET", path) == (503, {"ready": False})


async def test_draining_server_begins_nothing_new(api: Api, small: str) -> None:
    api.server.draining = True
    for path in (f"/v1/sessions/{small}:run", f"/v1/sessions/{small}:extend", "/v1/sessions"):
        response, _ = await api.raw("POST", path, b"{}")
        assert response.status == 503 and response.headers["Retry-After"] == "1"
    assert (await api.call("GET", f"/v1/sessions/{small}"))[0] == 200
