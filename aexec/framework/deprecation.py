"""Deprecates public names: they work for one more minor version, and warn.  docs/stability.md has the promise.

Whatever is deprecated calls `warn_deprecated` when it is used.  A renamed name of a module is a `Renamed` in a table of
that module, which its `__getattr__` reads.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

__all__ = ["Renamed", "warn_deprecated"]


@dataclass(frozen=True)
class Renamed:
    """A name that was replaced by another name of the same module.

    Attributes:
        name: the new name.
        removed_in: the minor version that no longer has the old one, such as "0.3".
    """

    name: str
    removed_in: str


def warn_deprecated(what: str, instead: str, removed_in: str, *, stacklevel: int = 1) -> None:
    """Warn the caller's caller that a name it used is deprecated.

    Args:
        what: the deprecated name or argument, as the message shows it.
        instead: what to use.
        removed_in: the first minor version without it.
        stacklevel: 1 to attribute the warning to the caller's caller, 2 to the caller of that, and so on.

    Warns:
        DeprecationWarning: always.
    """
    text = f"{what} is deprecated and goes with aexec {removed_in}: use {instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 2)
