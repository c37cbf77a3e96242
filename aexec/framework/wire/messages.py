"""Converts messages of other packages, such as TensorFlow's own GraphDef, to ours.

Our messages have TensorFlow's wire form under another package name, so a message of any package can be converted if it
has the same name.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from aexec.framework import errors

__all__ = ["as_message", "message_name", "unreadable"]

M = TypeVar("M", bound=Message)

_LOOKED_AT = 100


def as_message(value: Any, kind: type[M]) -> M:
    """`value` as a message of class `kind`.

    Args:
        value: such a message, which is returned as it is; a message of the same name from another package; or the bytes
            of one.

    Raises:
        InvalidArgumentError: the value is none of these, or the bytes cannot be parsed.
    """
    if isinstance(value, kind):
        return value
    wanted = kind.DESCRIPTOR.name
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    elif message_name(value) == wanted:
        data = value.SerializePartialToString()
    else:
        name = message_name(value) or (repr(value) if isinstance(value, type) else type(value).__name__)
        raise errors.InvalidTypeError(f"expected a {wanted} message or its bytes, got {name}")
    try:
        return kind.FromString(data)
    except DecodeError:
        raise unreadable(wanted, data) from None


def unreadable(wanted: str, data: bytes) -> errors.InvalidArgumentError:
    """The error for bytes that are not a message of the wanted kind: says what was expected, and what they look
    like.
    """
    looks = ""
    if data[:_LOOKED_AT].isascii():
        looks = "; they look like JSON" if data.lstrip()[:1] == b"{" else "; they look like text"
    return errors.InvalidArgumentError(
        f"Cannot parse {wanted}: {len(data)} bytes are no such message, expected a {wanted} in protobuf's binary form"
        f"{looks}"
    )


def message_name(value: Any) -> str | None:
    """The name of a message's type without its package, such as `GraphDef`; None if `value` is not a message."""
    if isinstance(value, type):
        return None
    name = getattr(getattr(value, "DESCRIPTOR", None), "name", None)
    return name if isinstance(name, str) and callable(getattr(value, "SerializePartialToString", None)) else None
