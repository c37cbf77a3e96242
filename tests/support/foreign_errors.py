"""What no answer to a client may be: a fault of ours, or words of Python's."""

from __future__ import annotations

import re

from aexec.framework import errors

__all__ = ["check_ours", "foreign_words", "is_foreign"]

_PYTHONS = re.compile(
    r"(^|: )[A-Z]\w+(Error|Exception): "  # an exception's class
    r"|Traceback|\.py\b"
    r"|\bat 0x[0-9a-f]{4,}|<\w+(\.\w+)* object"
    r"|/(work|usr|root|home|tmp)/"
)


def foreign_words(text: str) -> str | None:
    """The first words in a text that tell of Python, of a file or an address; None if there are none."""
    found = _PYTHONS.search(text)
    return None if found is None else found[0]


def is_foreign(error: errors.OpError) -> bool:
    """Does it say that the fault is ours, or how Python put it?"""
    return error.code in (errors.Code.INTERNAL, errors.Code.UNKNOWN) or foreign_words(error.message) is not None


def check_ours(error: errors.OpError) -> None:
    """Raises AssertionError for a foreign one."""
    if is_foreign(error):
        raise AssertionError(f"{error.code.name}: {error}") from error
