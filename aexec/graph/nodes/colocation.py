"""Colocation groups: the attr `_class` of a node names the nodes that it must share a device with.

Each entry of the form `loc:@name` names one node; entries of other forms are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ATTR", "group_entry", "group_name", "group_names"]

ATTR = "_class"
_PREFIX = b"loc:@"


def group_entry(name: str) -> bytes:
    """Return the `_class` entry that names a node."""
    return _PREFIX + name.encode()


def group_name(entry: bytes) -> str | None:
    """Return the node that an entry names, or None for an entry of another form."""
    return str(entry[len(_PREFIX) :], "utf-8", "replace") if entry.startswith(_PREFIX) else None


def group_names(attrs: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes that a node with these attrs must share a device with."""
    entries = attrs.get(ATTR)
    if not isinstance(entries, list):
        return []  # a `_class` of another type is valid, as internal attrs are not checked, but means nothing
    names = (group_name(entry) for entry in entries if isinstance(entry, bytes))
    return [name for name in names if name is not None]
