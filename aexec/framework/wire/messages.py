"""Messages of other packages: TensorFlow's own GraphDef where one of ours is asked for.

Ours have TensorFlow's wire form under another package name, so any message of the same name can be
turned into ours, without knowing whose it is.
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
        value: such a message, which is given back as it is; one of the same name of another package; or the
            bytes of one.

    Raises:
        InvalidArgumentError: something else, or bytes that are no such message.
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
    """For bytes that are no message of a kind: says what was expected, and what they look like."""
    looks = ""
    if data[:_LOOKED_AT].isascii():
        looks = "; they look like JSON" if data.lstrip()[:1] == b"{" else "; they look like text"
    return errors.InvalidArgumentError(
        f"Cannot parse {wanted}: {len(data)} bytes are no such message, expected a {wanted} in protobuf's binary form"
        f"{looks}"
    )


def message_name(value: Any) -> str | None:
    """Name of a message's type without its package, `GraphDef`; None if `value` is no message."""
    if isinstance(value, type):
        return None
    name = getattr(getattr(value, "DESCRIPTOR", None), "name", None)
    return name if isinstance(name, str) and callable(getattr(value, "SerializePartialToString", None)) else None
