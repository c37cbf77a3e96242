"""`BodySchema`: what a request or an answer of a route is, and shorthand for writing JSON schemas.

Each name that a `Route` gives as its request or response is described in one of the modules `*_schemas.py`;
`openapi.py` makes the document of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ANY_OBJECT",
    "BOOLEAN",
    "INTEGER",
    "NUMBER",
    "STRING",
    "BodySchema",
    "Schema",
    "array",
    "either",
    "mapping",
    "nullable",
    "record",
    "reference",
    "request",
    "told",
]

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}


@dataclass(frozen=True, slots=True)
class BodySchema:
    """What is sent, in all its forms.

    Attributes:
        schema: of the JSON form; None if there is none.
        message: the protobuf message whose form `application/x-protobuf` is.
        others: further media types → what they hold.
        required: a request without it is refused.
        also: statuses besides that of success with which the same is answered.
    """

    schema: Schema | None = None
    message: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    required: bool = True
    also: tuple[int, ...] = ()


def record(**fields: Schema) -> Schema:
    """An object with these members; one whose name ends in `_` may be missing."""
    names = {name: name.removesuffix("_") for name in fields}
    required = [name for name in fields if not name.endswith("_")]
    described: Schema = {"type": "object", "properties": {names[name]: schema for name, schema in fields.items()}}
    return described | ({"required": required} if required else {})


def request(**fields: Schema) -> Schema:
    """The same for what clients send: other members are refused."""
    return record(**fields) | {"additionalProperties": False}


def array(items: Schema, **bounds: Any) -> Schema:
    return {"type": "array", "items": items, **bounds}


def mapping(values: Schema) -> Schema:
    """An object with members of any name."""
    return {"type": "object", "additionalProperties": values}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def nullable(schema: Schema) -> Schema:
    return either(schema, {"type": "null"})


def reference(name: str) -> Schema:
    """A schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def told(schema: Schema, description: str, **more: Any) -> Schema:
    """With a description, and other keywords."""
    return schema | {"description": description} | more
