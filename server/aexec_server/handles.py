"""The handles of sessions: who knows one may do all with its session, so they cannot be guessed and are not logged.

A handle also says which start of the server has made it, so that a client is told of a restart.  A client may choose
another name for its session, which is then no secret and says nothing.
"""

from __future__ import annotations

import re
import secrets
import zlib

from aexec import errors

__all__ = ["Handles", "check_model_name", "check_name", "is_made", "new_server_run", "shortened"]

_RANDOM_BYTES = 12
_RUN_BITS = 20
# By which a handle of another start is told from what only looks like one.
_CHECK_DIGITS = 3
_HANDLE = re.compile(r"([0-9a-f]{6})[0-9a-f]{26}(?![0-9a-f])")
# What `Handles` makes, in whichever process.
_MADE = re.compile(r"(?:[0-9a-f]+-)?[0-9a-f]{32}")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@+-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


def is_made(handle: str) -> bool:
    """Does it look like one that a server has made, and not like a name?"""
    return _MADE.fullmatch(handle) is not None


def check_name(name: object) -> str:
    """Raise InvalidArgumentError for what cannot be a session's name."""
    if type(name) is not str or not _NAME.fullmatch(name) or is_made(name):
        raise errors.InvalidArgumentError(
            f'"name" must be 1 to 128 letters, digits or any of ._~- and none that a server makes, '
            f"got {str(name)[:60]!r}"
        )
    return name


def check_model_name(name: str) -> str:
    """Raise InvalidArgumentError for what cannot be a model's name in a path."""
    if not _MODEL_NAME.fullmatch(name):
        raise errors.InvalidArgumentError(
            f"A model's name must be 1 to 128 letters, digits or any of ._~@+-, got {name[:60]!r}"
        )
    return name


def new_server_run() -> str:
    """What tells one start of a server from others."""
    return f"{secrets.randbits(_RUN_BITS):05x}"


class Handles:
    """Makes handles.

    Args:
        prefix: says in which process it is that one stands for.
        run: of the server, as `new_server_run` gives it; empty for a new one.
    """

    def __init__(self, prefix: str = "", run: str = "") -> None:
        self._prefix = prefix
        self._run = run or new_server_run()

    def new(self) -> str:
        """A handle of 96 random bits."""
        digits = secrets.token_hex(_RANDOM_BYTES) + self._run
        return f"{self._prefix}{digits}{_check(digits)}"

    def is_of_another_run(self, handle: str) -> bool:
        """Was it made by a server, but not since this one was started?"""
        digits, check = handle[:-_CHECK_DIGITS].rpartition("-")[2], handle[-_CHECK_DIGITS:]
        return is_made(handle) and check == _check(digits) and not digits.endswith(self._run)


def _check(digits: str) -> str:
    return f"{zlib.crc32(digits.encode()) & 0xFFF:03x}"


def shortened(text: str) -> str:
    """For logs: of handles in it no more than tells them apart."""
    return _HANDLE.sub(r"\1…", text)
