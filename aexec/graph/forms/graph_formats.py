"""Text forms of a GraphDef: protobuf text and JSON.  `Graph.load` says which files have which form."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import errors

__all__ = ["parse_json", "parse_text"]

# Longest error message, in characters: a parser may quote the whole text in it.
_MAX_MESSAGE = 500


def parse_text(text: str) -> proto.GraphDef:
    """Parse protobuf text.  Raises InvalidArgumentError if it is malformed."""
    from google.protobuf import text_format

    return _parse(text_format.Parse, text, "text")


def parse_json(text: str) -> proto.GraphDef:
    """Parse protobuf JSON.  Raises InvalidArgumentError if it is malformed."""
    from google.protobuf import json_format

    return _parse(json_format.Parse, text, "JSON")


def _parse(parse: Callable[[str, proto.GraphDef], proto.GraphDef], text: str, form: str) -> proto.GraphDef:
    """Parse a text form; whatever exception protobuf's parsers raise becomes an InvalidArgumentError."""
    try:
        # Serialize once here: the binary form allows less nesting than the text forms.
        return proto.GraphDef.FromString(parse(text, proto.GraphDef()).SerializeToString())
    except (RecursionError, DecodeError):
        raise errors.InvalidValueError(f"Cannot parse GraphDef from {form}: it is nested too deeply") from None
    except Exception as error:
        why = str(error)[:_MAX_MESSAGE].encode("utf-8", "backslashreplace").decode()
        raise errors.InvalidValueError(f"Cannot parse GraphDef from {form}: {why}") from None
