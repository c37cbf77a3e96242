"""Reads protobuf messages from files, in binary and in text form.

Next to read: `messages.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from aexec.framework import errors
from aexec.framework.wire.messages import unreadable

__all__ = ["read_message_file"]

M = TypeVar("M", bound=Message)


def read_message_file(path: str | Path, kind: type[M], *, is_text: bool) -> M:
    """Read a message of class `kind` from a file.

    Args:
        is_text: True for protobuf text.  The text may name the types of messages in `Any` fields by TensorFlow's
            package.

    Raises:
        NotFoundError: the file does not exist.
        InvalidArgumentError: the file cannot be read, or does not hold such a message.
    """
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise errors.NotFoundError(f"{path}; No such file or directory") from None
    except OSError as error:
        raise errors.InvalidValueError(f"Cannot read {path}: {error}") from None
    if is_text:
        return _parse_text(data, kind, path)
    try:
        return kind.FromString(data)
    except DecodeError:
        raise errors.InvalidValueError(f"{path}: {unreadable(kind.DESCRIPTOR.name, data).message}") from None


def _parse_text(data: bytes, kind: type[M], path: str | Path) -> M:
    from google.protobuf import text_format

    try:
        text = data.decode().replace("[type.googleapis.com/tensorflow.", "[type.googleapis.com/aexec.")
        return text_format.Parse(text, kind())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise errors.InvalidValueError(f"Cannot parse {path}: {error}") from None
