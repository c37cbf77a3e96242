"""Each call of the API has an example, which a server answers as it is recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from aexec_server.schemas.examples import EXAMPLES
from aexec_server.schemas.openapi import BODIES

from tests.server.described import document, fits, table
from tests.server.schemas.api_examples import recorded

# Members whose numbers are the same each time.
EXACT = {"outputs", "predictions", "results", "components", "data"}
AGAIN = "python -m tests.server.schemas.api_examples records them anew"


def difference(then: Any, now: Any, where: str = "answer", *, exact: bool = False) -> str | None:
    """Where two answers differ, but for times, counts and ids; None if they do not."""
    if type(then) is not type(now):
        return f"{where}: {then!r} was recorded, and is {now!r}"
    if isinstance(then, dict):
        if set(then) != set(now):
            return f"{where}: {sorted(set(then) ^ set(now))} is in one of them alone"
        pairs = [(f"{where}.{key}", then[key], now[key], exact or key in EXACT) for key in then if key != "trace_id"]
        return next((said for at, a, b, e in pairs if (said := difference(a, b, at, exact=e))), None)
    if isinstance(then, list):
        if len(then) != len(now):
            return f"{where}: {len(then)} elements were recorded, and are {len(now)}"
        return next(
            (said for a, b in zip(then, now, strict=True) if (said := difference(a, b, where, exact=exact))), None
        )
    if isinstance(then, str):
        same = re.sub(r"[0-9.e+-]+", "0", then)[:150] == re.sub(r"[0-9.e+-]+", "0", now)[:150]
    else:
        same = then == now or not (exact or isinstance(then, bool) or then is None)
    return None if same else f"{where}: {then!r} was recorded, and is {now!r}"


async def test_server_answers_as_recorded(tmp_path: Path) -> None:
    now = await recorded(tmp_path)
    assert list(now) == list(EXAMPLES), AGAIN
    for name, then in EXAMPLES.items():
        said = difference(dict(then), now[name])
        assert said is None, f"{name}: {said}; {AGAIN}"


def test_each_call_has_an_example() -> None:
    calls = {f"{route.method} {route.path}" for route in table() if route.response != "PageFile"}
    assert calls - set(EXAMPLES) == set(), f"add them to tests/server/schemas/api_examples.py; {AGAIN}"


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_example_fits_its_schemas(name: str) -> None:
    method, path, *later = name.split(" ")
    one = EXAMPLES[name]
    (route,) = [route for route in table() if (route.method, route.path) == (method, path)]
    if one.get("request") is not None:
        assert fits(str(route.request), one["request"]) is None
    if one.get("media") == "application/json":
        schema = "Error" if one["status"] >= 400 else str(route.later if later else route.response)
        assert BODIES.get(schema, None) is None or BODIES[schema].schema is None or fits(schema, one["answer"]) is None
        assert schema != "Error" or fits(schema, one["answer"]) is None


def test_document_has_the_examples() -> None:
    for name, one in EXAMPLES.items():
        method, path, *_ = name.split(" ")
        operation = document()["paths"][path][method.lower()]
        if one.get("request") is not None:
            body = operation["requestBody"]["content"]["application/json"]
            assert body["example"] == EXAMPLES[f"{method} {path}"]["request"]
        answered = operation["responses"][str(one["status"])]
        if "media" in one:
            assert answered["content"][one["media"]]["example"] == one["answer"]
        given = {parameter["name"]: parameter.get("example") for parameter in operation.get("parameters", ())}
        assert all(given[name] is not None for name in one.get("parameters", ()))


@pytest.mark.parametrize(
    ("then", "now", "where"),
    [
        ({"a": 1, "s": "run-4"}, {"a": 2, "s": "run-17"}, None),
        ({"outputs": [1.0]}, {"outputs": [2.0]}, "answer.outputs"),
        ({"a": 1}, {"b": 1}, "is in one of them alone"),
        ([1], [1, 2], "1 elements"),
        ({"a": True}, {"a": False}, "answer.a"),
        ("ready", "broken", "ready"),
        (1, 1.0, "answer"),
    ],
)
def test_difference_is_found(then: Any, now: Any, where: str | None) -> None:
    said = difference(then, now)
    assert said is None if where is None else said is not None and where in said
