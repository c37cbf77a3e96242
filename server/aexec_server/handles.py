"""The handles of sessions: who knows one may do all with its session, so they cannot be guessed and are not logged.

A client may choose another name for its session, which is then no secret.
"""

from __future__ import annotations

import re
import secrets

from aexec import errors

__all__ = ["check_model_name", "check_name", "is_made", "new_handle", "shortened"]

_BYTES = 16
_HANDLE = re.compile(r"([0-9a-f]{6})[0-9a-f]{26}(?![0-9a-f])")
# What `new_handle` makes, in whichever process.
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


def new_handle(prefix: str = "") -> str:
    """A handle of 128 random bits, after a prefix that says where the session is."""
    return prefix + secrets.token_hex(_BYTES)


def shortened(text: str) -> str:
    """For logs: of handles in it no more than tells them apart."""
    return _HANDLE.sub(r"\1…", text)
