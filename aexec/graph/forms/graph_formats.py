"""The forms of a GraphDef that are text: protobuf's own, and JSON.  Which file has which: `Graph.load`."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors

__all__ = ["parse_json", "parse_text"]

# A parser's message may quote the line, which may be the whole text.
_MAX_MESSAGE = 500


def parse_text(text: str) -> proto.GraphDef:
    """Read the text form.  Raises InvalidArgumentError if it is none."""
    return _parse(text_format.Parse, text, "text")


def parse_json(text: str) -> proto.GraphDef:
    """Read the JSON form.  Raises InvalidArgumentError if it is none."""
    from google.protobuf import json_format

    return _parse(json_format.Parse, text, "JSON")


def _parse(parse: Callable[[str, proto.GraphDef], proto.GraphDef], text: str, form: str) -> proto.GraphDef:
    """Read one of protobuf's text forms, whose parsers leak all sorts of exceptions on hostile texts."""
    try:
        # Copying a message takes its binary form, which may be nested less deeply than a text.
        return proto.GraphDef.FromString(parse(text, proto.GraphDef()).SerializeToString())
    except (RecursionError, DecodeError):
        raise errors.InvalidValueError(f"Cannot parse GraphDef from {form}: it is nested too deeply") from None
    except Exception as error:
        why = str(error)[:_MAX_MESSAGE].encode("utf-8", "backslashreplace").decode()
        raise errors.InvalidValueError(f"Cannot parse GraphDef from {form}: {why}") from None
