"""Handles of sessions.  Whoever knows a handle may use its session, so handles cannot be guessed and are not logged.

A handle identifies the start of the server that made it, so that a client can be told of a restart.  A client may
choose a name for its session instead, which is then no secret and does not identify the start.
"""

from __future__ import annotations

import re
import secrets
import zlib

from aexec import errors

__all__ = ["Handles", "check_model_name", "check_name", "is_made", "new_server_run", "shortened"]

_RANDOM_BYTES = 12
_RUN_BITS = 20
# Length of the checksum, which tells a handle of an earlier start from other text.
_CHECK_DIGITS = 3
_HANDLE = re.compile(r"([0-9a-f]{6})[0-9a-f]{26}(?![0-9a-f])")
# Matches what `Handles` makes, in any process.
_MADE = re.compile(r"(?:[0-9a-f]+-)?[0-9a-f]{32}")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@+-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


def is_made(handle: str) -> bool:
    """True for text of the form of handles that servers make, which clients' names may not have."""
    return _MADE.fullmatch(handle) is not None


def check_name(name: object) -> str:
    """Return a session's name.  Raises InvalidArgumentError if it is not valid."""
    if type(name) is not str or not _NAME.fullmatch(name) or is_made(name):
        raise errors.InvalidArgumentError(
            f'"name" must be 1 to 128 letters, digits or any of ._~- and none that a server makes, '
            f"got {str(name)[:60]!r}"
        )
    return name


def check_model_name(name: str) -> str:
    """Return a model's name.  Raises InvalidArgumentError if it cannot stand in a path."""
    if not _MODEL_NAME.fullmatch(name):
        raise errors.InvalidArgumentError(
            f"A model's name must be 1 to 128 letters, digits or any of ._~@+-, got {name[:60]!r}"
        )
    return name


def new_server_run() -> str:
    """Return a random id of one start of a server."""
    return f"{secrets.randbits(_RUN_BITS):05x}"


class Handles:
    """Makes handles.

    Args:
        prefix: identifies the process that has the sessions.
        run: id of this start of the server, as `new_server_run` returns it; empty for a new one.
    """

    def __init__(self, prefix: str = "", run: str = "") -> None:
        self._prefix = prefix
        self._run = run or new_server_run()

    def new(self) -> str:
        """Return a handle with 96 random bits."""
        digits = secrets.token_hex(_RANDOM_BYTES) + self._run
        return f"{self._prefix}{digits}{_check(digits)}"

    def is_of_another_run(self, handle: str) -> bool:
        """True for a handle that an earlier start of a server has made."""
        digits, check = handle[:-_CHECK_DIGITS].rpartition("-")[2], handle[-_CHECK_DIGITS:]
        return is_made(handle) and check == _check(digits) and not digits.endswith(self._run)


def _check(digits: str) -> str:
    return f"{zlib.crc32(digits.encode()) & 0xFFF:03x}"


def shortened(text: str) -> str:
    """Return a text for logs, in which handles are shortened to what tells them apart."""
    return _HANDLE.sub(r"\1…", text)
