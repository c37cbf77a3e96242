"""A bounded cache of callables by request, so that a client with ever new requests cannot fill the memory.

A session keeps the callables of `Session.run` in one; a server keeps those of its clients in another.  The oldest is
evicted first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

__all__ = ["CallableCache"]

# Bounds on the whole cache: entries, nodes of their plans, and characters of their names.
MAX_ENTRIES = 1000
MAX_PLAN_NODES = 1_000_000
MAX_TEXT = 10_000_000


class _Called(Protocol):
    """A value of the cache: a callable, or an object that has one."""

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
    """Callables by request, bounded in number and size; the oldest is evicted first.  A dict, but `remember` adds."""

    __slots__ = ("_text", "_texts")

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[Hashable, int] = {}
        self._text = 0

    def remember(self, key: Hashable, value: V) -> V:
        """Add `value` under the new key `key`, and evict the oldest while the cache is over a bound; return it."""
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
