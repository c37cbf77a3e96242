"""`BodySchema` describes the body of a request or an answer; the functions are shorthand for JSON schemas.

Each body that a `Route` names is described in one of the modules `*_schemas.py`; `openapi.py` assembles the document.
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
    """A body in all its forms.

    Attributes:
        schema: of the JSON form; None if there is none.
        message: name of the protobuf message of `application/x-protobuf`; None if there is none.
        others: further media types → description.
        required: True if a request without it is refused.
        also: further statuses, besides that of success, whose answers have this body.
    """

    schema: Schema | None = None
    message: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    required: bool = True
    also: tuple[int, ...] = ()


def record(**fields: Schema) -> Schema:
    """Schema of an object with these members; those whose name ends in `_` are optional."""
    names = {name: name.removesuffix("_") for name in fields}
    required = [name for name in fields if not name.endswith("_")]
    described: Schema = {"type": "object", "properties": {names[name]: schema for name, schema in fields.items()}}
    return described | ({"required": required} if required else {})


def request(**fields: Schema) -> Schema:
    """Like `record`, but without further members: clients' other members are refused."""
    return record(**fields) | {"additionalProperties": False}


def array(items: Schema, **bounds: Any) -> Schema:
    return {"type": "array", "items": items, **bounds}


def mapping(values: Schema) -> Schema:
    """Schema of an object with members of any name."""
    return {"type": "object", "additionalProperties": values}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def nullable(schema: Schema) -> Schema:
    return either(schema, {"type": "null"})


def reference(name: str) -> Schema:
    """Refer to a schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def told(schema: Schema, description: str, **more: Any) -> Schema:
    """Add a description and other keywords to a schema."""
    return schema | {"description": description} | more
