"""Renders the OpenAPI document as the page at `/docs`, as HTML.  A script, static/docs.js, adds forms to try the calls.

Swagger UI and the like are made for looser policies: under that of `page_response.py`, which lets no script write HTML,
Swagger UI 5.35 draws nothing, and it is six times as large as all pages of this server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from aexec_server.schemas.schema import Schema

__all__ = ["documentation_page"]

_METHODS = {"get": "GET", "post": "POST", "delete": "DELETE", "put": "PUT"}


def documentation_page(document: dict[str, Any]) -> str:
    """Return the HTML page of an OpenAPI document."""
    info = document["info"]
    operations = [
        (method, path, operation) for path, item in document["paths"].items() for method, operation in item.items()
    ]
    tags = [(tag["name"], [o for o in operations if tag["name"] in o[2]["tags"]]) for tag in document["tags"]]
    schemas = document["components"]["schemas"]
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])}: the HTTP API</title>",
            '<link rel="icon" href="/console/icon.svg" type="image/svg+xml">',
            '<link rel="stylesheet" href="/docs/page.css"><link rel="stylesheet" href="/docs/docs.css">',
            '<script type="module" src="/docs/docs.js"></script></head><body>',
            '<a class="skip" href="#content">To the calls</a>',
            f'<header class="bar"><h1>{escape(info["title"])} <small>{escape(info["version"])}</small></h1>',
            '<nav aria-label="Pages"><a href="/">Console</a><a href="/docs" aria-current="page">API</a>',
            '<a href="/openapi.json">openapi.json</a></nav></header>',
            '<div class="docs"><nav class="contents" aria-label="Contents"><ul>',
            *(f'<li><a href="#{_anchor(tag)}">{escape(tag)}</a></li>' for tag, _ in tags),
            '<li><a href="#schemas">Schemas</a></li></ul></nav>',
            f'<main id="content"><p>{escape(info["description"])}</p>',
            *(_section(tag, operations) for tag, operations in tags),
            '<section id="schemas"><h2>Schemas</h2>',
            *(
                f'<section class="schema" id="schema-{escape(name)}"><h3>{escape(name)}</h3>{_block(schema)}</section>'
                for name, schema in sorted(schemas.items())
            ),
            "</section>",
            _error_section(document),
            "</main></div></body></html>",
        ]
    )


def _anchor(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower())


def _section(tag: str, operations: Iterable[tuple[str, str, dict[str, Any]]]) -> str:
    calls = "".join(_operation(*operation) for operation in operations)
    return f'<section id="{_anchor(tag)}"><h2>{escape(tag)}</h2>{calls}</section>'


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<details class="call" id="{escape(operation["operationId"])}"><summary>',
        f'<span class="method {method}">{_METHODS[method]}</span> <code>{escape(path)}</code> ',
        f'<span class="about">{escape(operation["summary"])}</span></summary>',
    ]
    parameters = operation.get("parameters", ())
    if parameters:
        parts += ["<h4>Parameters</h4><dl>", *map(_parameter, parameters), "</dl>"]
    body = operation.get("requestBody")
    if body is not None:
        parts.append(f"<h4>Body{'' if body['required'] else ', which may be left out'}</h4>{_content(body['content'])}")
    for status, response in operation["responses"].items():
        if status == "default":
            parts.append('<h4>Otherwise</h4><p>An <a href="#errors">error</a>.</p>')
        else:
            parts.append(f"<h4>Status {escape(status)}</h4>{_content(response.get('content', {}))}")
    return "".join([*parts, "</details>"])


def _parameter(parameter: dict[str, Any]) -> str:
    where = f"<i>in the {escape(parameter['in'])}</i> {_inline(parameter['schema'])}"
    return f"<dt><code>{escape(parameter['name'])}</code> {where}</dt><dd>{escape(parameter['description'])}</dd>"


def _content(content: dict[str, Any]) -> str:
    if not content:
        return "<p>Nothing.</p>"
    forms = "".join(
        f"<dt><code>{escape(media)}</code></dt><dd>{_block(of['schema'])}{_example(of)}</dd>"
        for media, of in content.items()
    )
    return f"<dl>{forms}</dl>"


def _example(described: dict[str, Any]) -> str:
    if "example" not in described:
        return ""
    example = described["example"]
    text = example if isinstance(example, str) else json.dumps(example, indent=1, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"


def _error_section(document: dict[str, Any]) -> str:
    response = document["components"]["responses"]["Error"]
    headers = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd>{escape(header['description'])}</dd>"
        for name, header in response["headers"].items()
    )
    return f'<section id="errors"><h2>Errors</h2>{_content(response["content"])}<dl>{headers}</dl></section>'


# Schemas


def _block(schema: Schema) -> str:
    """Return a schema as block elements, with its nested schemas."""
    about = f"<p>{escape(schema['description'])}</p>" if "description" in schema else ""
    if "anyOf" in schema and not _is_short(schema):
        either = "".join(f"<li>{_block(one)}</li>" for one in schema["anyOf"])
        return f'{about}<p>One of</p><ul class="either">{either}</ul>'
    if schema.get("type") == "object" and "properties" in schema:
        return f"{about}<dl>{''.join(_members(schema))}</dl>"
    if schema.get("type") == "array" and not _is_short(schema["items"]):
        return f"{about}<p>A list, of which each is</p>{_block(schema['items'])}"
    inline = _inline(schema)
    return about + (f"<p>{inline}</p>" if inline else "")


def _members(schema: Schema) -> Iterator[str]:
    required = schema.get("required", ())
    for name, member in schema["properties"].items():
        optional = "" if name in required else " <i>may be left out</i>"
        if _is_short(member):
            about = escape(member.get("description", ""))
            yield f"<dt><code>{escape(name)}</code> {_inline(member)}{optional}</dt><dd>{about}</dd>"
        else:
            yield f"<dt><code>{escape(name)}</code>{optional}</dt><dd>{_block(member)}</dd>"


def _is_short(schema: Schema) -> bool:
    """True if a schema can be shown inline."""
    if "anyOf" in schema:
        return all(_is_short(one) and "description" not in one for one in schema["anyOf"])
    if schema.get("type") == "array":
        return _is_short(schema["items"])
    return "properties" not in schema


def _inline(schema: Schema) -> str:
    """Return a schema as inline text."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_inline(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {_inline(schema['items']) or 'anything'}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_inline(schema['additionalProperties'])}"
    bounds = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([escape(kind), *bounds])
