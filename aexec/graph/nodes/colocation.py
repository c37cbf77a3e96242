"""Colocation groups: the attr `_class` of a node names the nodes that it must share a device with.

Each entry `loc:@name` names one; entries of other forms mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ATTR", "group_entry", "group_name", "group_names"]

ATTR = "_class"
_PREFIX = b"loc:@"


def group_entry(name: str) -> bytes:
    """The entry that names a node."""
    return _PREFIX + name.encode()


def group_name(entry: bytes) -> str | None:
    """The node that an entry names, or None if it is none of a group."""
    return str(entry[len(_PREFIX) :], "utf-8", "replace") if entry.startswith(_PREFIX) else None


def group_names(attrs: Mapping[str, Any]) -> list[str]:
    """The nodes that a node with these attrs must share a device with."""
    entries = attrs.get(ATTR)
    if not isinstance(entries, list):
        return []  # internal attrs are not checked; one of another kind says nothing
    names = (group_name(entry) for entry in entries if isinstance(entry, bytes))
    return [name for name in names if name is not None]
