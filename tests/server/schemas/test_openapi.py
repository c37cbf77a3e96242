"""The API's description: valid, whole, and true of what is sent and answered (`described.py` holds all tests to it)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from aexec_server.schemas.openapi import BODIES, undescribed
from openapi_spec_validator import validate

from aexec import proto
from tests.server.conftest import Api
from tests.server.described import check_exchange, document, fits, route_of, table

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text("utf-8")
# Requests of the documentation: the path, and what `-d` gives.
EXAMPLES = re.findall(r"localhost:8500(/[^\s?]*)(?:[^'\n]|\\\n)*?(?:-H '[^']*'(?:[^'\n]|\\\n)*?)?-d '([^']+)'", PAGE)


def test_every_route_is_described() -> None:
    assert not undescribed(table()), "\n".join(undescribed(table()))


def test_undescribed_parts_are_named_with_their_place() -> None:
    route = replace(table()[0], path="/v1/{unheard}", request="NoSuchRequest", response=None, parameters=("X-Y",))
    said = undescribed([route])
    assert [re.findall(r"'\w.*'|says nothing", text)[0] for text in said] == [
        "'NoSuchRequest'",
        "'unheard'",
        "'X-Y'",
        "says nothing",
    ]
    assert all("_schemas.py" in text or "status 204" in text for text in said)


def test_document_is_valid_and_has_each_call() -> None:
    validate(document())
    described = {(m.upper(), path) for path, item in document()["paths"].items() for m in item}
    assert described == {(route.method, route.path) for route in table()}


def test_every_described_body_is_used_by_a_route() -> None:
    assert set(BODIES) == {name for route in table() for name in (route.request, route.response) if name is not None}


def test_messages_that_are_named_exist() -> None:
    for body in BODIES.values():
        assert body.message is None or hasattr(proto, body.message)


@pytest.mark.parametrize(("path", "body"), EXAMPLES)
def test_examples_of_the_documentation_fit(path: str, body: str) -> None:
    route = route_of("POST", path)
    assert route is not None and route.request is not None
    assert fits(route.request, json.loads(body)) is None


def test_examples_exist() -> None:
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("RunRequest", {"feeds": {"x:0": [1]}, "fetch": ["y:0"]}, "fetch"),
        ("RunRequest", {"feeds": {"x:0": {"b65": "AA=="}}}, "b65"),
        ("RunResponse", {"run_id": "r", "outputs": []}, None),
        ("InferRequest", {"inputs": [{"name": "x", "shape": [1], "datatype": "FP31", "data": [1]}]}, "FP31"),
        ("PredictRequest", {"instances": [1], "inputs": 1}, "inputs"),
        ("Error", {"error": "no"}, "code"),
        ("CreatedSession", {"session_handle": "s", "graph_version": 0, "colour": "red"}, "colour"),
    ],
)
def test_mismatch_with_a_schema_is_found(name: str, value: Any, why: str | None) -> None:
    said = fits(name, value)
    assert said is None if why is None else said is not None and why in said


def test_exchange_that_is_not_described_fails_the_test_that_made_it() -> None:
    check_exchange("GET", "/livez", None, 200, {"live": True})
    with pytest.raises(AssertionError, match=r"_schemas\.py.*lively"):
        check_exchange("GET", "/livez", None, 200, {"live": True, "lively": 1})
    with pytest.raises(AssertionError, match="request"):
        check_exchange("POST", "/v1/sessions/s:run", {"feed": 1}, 200, {"run_id": "r", "outputs": []})
    with pytest.raises(AssertionError, match="error"):
        check_exchange("GET", "/livez", None, 500, {"message": "oh"})


async def test_document_is_served(api: Api) -> None:
    status, answer = await api.call("GET", "/openapi.json")
    assert status == 200 and answer == document()


def test_run_may_be_answered_later() -> None:
    paths = document()["paths"]
    later = paths["/v1/sessions/{session}:run"]["post"]["responses"]["202"]
    assert later["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Operation"}
    assert "Location" in later["headers"]
    assert "202" not in paths["/v1/sessions"]["get"]["responses"]


class _Page(HTMLParser):
    """What a page links to, loads and names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)
        if tag == "a":
            self.links.add(given["href"] or "")
        for name in ("src", "href") if tag != "a" else ():
            if given.get(name):
                self.loaded.add(str(given[name]))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        assert "style" not in given and not any(name.startswith("on") for name in given)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


async def test_page_tells_of_each_call_and_needs_nothing_from_elsewhere(api: Api) -> None:
    response, body = await api.raw("GET", "/docs")
    text = body.decode()
    assert response.status == 200 and "default-src 'none'" in response.headers["Content-Security-Policy"]
    for route in table():
        assert f"<code>{route.path}</code>" in text
    page = _Page(text)
    assert not page.open and len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert page.loaded == {"/docs/page.css", "/docs/docs.css", "/docs/docs.js", "/console/icon.svg"}
    assert text.count("<pre>") > 100


async def test_file_of_a_page_is_sent_once(api: Api) -> None:
    response, body = await api.raw("GET", "/docs/page.css")
    assert response.status == 200 and response.content_type == "text/css" and body
    again, nothing = await api.raw("GET", "/docs/page.css", If_None_Match=response.headers["ETag"])
    assert again.status == 304 and not nothing
