"""Callables by what they were asked for, within bounds: a client that makes up ever new requests must not fill memory.

The session keeps those of `Session.run` in one; a server keeps those of its clients in
another.  What is oldest goes first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

__all__ = ["CallableCache"]

# Of all that are kept together: entries, nodes of their plans, and characters of their names.
MAX_ENTRIES = 1000
MAX_PLAN_NODES = 1_000_000
MAX_TEXT = 10_000_000


class _Called(Protocol):
    """What is kept: a callable, or something with one."""

    @property
    def feeds(self) -> tuple[str, ...]: ...
    @property
    def fetches(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def num_plan_nodes(self) -> int: ...


V = TypeVar("V", bound=_Called)


class CallableCache(dict[Hashable, V], Generic[V]):
    """Callables by request, bounded in number: the oldest goes first.  Looked up like any dict; `remember` adds."""

    __slots__ = ("_text", "_texts")

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[Hashable, int] = {}
        self._text = 0

    def remember(self, key: Hashable, value: V) -> V:
        """Keep `value`, which `key` has not had; the oldest go where there are too many or too large ones."""
        self[key] = value
        self._texts[key] = sum(map(len, (*value.feeds, *value.fetches, *value.targets)))
        self._text += self._texts[key]
        nodes = sum(kept.num_plan_nodes for kept in self.values())
        while len(self) > 1 and (len(self) > MAX_ENTRIES or nodes > MAX_PLAN_NODES or self._text > MAX_TEXT):
            oldest = next(iter(self))
            nodes -= self.pop(oldest).num_plan_nodes
            self._text -= self._texts.pop(oldest)
        return value

    def clear(self) -> None:
        super().clear()
        self._texts.clear()
        self._text = 0
