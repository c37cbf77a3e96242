"""The part of an error that names what exists: known names, and those similar to an unknown one."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

__all__ = ["listed", "near_names"]

# Comparing two names takes the product of their lengths: at most this many are compared, none of them longer.
_MOST, _LONGEST = 5000, 200
# With more names than this, only those of about the same length are compared.
_MANY = 1000
_LISTED = 50


def near_names(name: str, names: Collection[str]) -> str:
    """`; did you mean 'x'?` with the names most similar to `name`, or ""."""
    import difflib

    if len(name) > _LONGEST:
        return ""
    slack = 3 if len(names) > _MANY else _LONGEST
    candidates = (n for n in names if len(n) <= _LONGEST and abs(len(n) - len(name)) <= slack)
    near = difflib.get_close_matches(name, list(islice(candidates, _MOST)), n=3)
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""


def listed(names: Collection[str]) -> str:
    """`x, y`, or `none`.  Of many names only the first are listed, with the number of others; long ones are cut."""
    shown = ", ".join([name[:_LONGEST] for name in islice(names, _LISTED)]) or "none"
    return f"{shown} and {len(names) - _LISTED} others" if len(names) > _LISTED else shown
