"""What a store has of a session, and what is written of it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aexec.hosting import ResourceRecord, SessionChanges
from aexec_server.http.keyed_answer import KeyedAnswer

__all__ = ["SessionFacts", "SessionWrite", "StoredSession", "WrittenSession"]


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What never changes of a durable session.

    Attributes:
        handle: its name in paths.
        owner: name of the caller who made it; "" for callers without a token.
        client: the client in whose share it counts.
        ttl: seconds without use after which it is closed; None for never.
        relaxed: True if answers need not wait until changes are written.
        limits: the limits that its creator set, by name.
        created: when it was made, in seconds since 1970.
    """

    handle: str
    owner: str
    client: str
    ttl: float | None
    relaxed: bool
    limits: Mapping[str, int]
    created: float

    @property
    def durability(self) -> str:
        """As clients write it."""
        return "relaxed" if self.relaxed else "strict"


@dataclass(frozen=True, slots=True)
class WrittenSession:
    """A new session as it is written.

    Attributes:
        config, graph: its ConfigProto and its graph as bytes.
        ttl, relaxed, limits: as of `SessionFacts`.
    """

    config: bytes
    graph: bytes
    ttl: float | None
    limits: Mapping[str, int]
    relaxed: bool


@dataclass(slots=True)
class SessionWrite:
    """What is written of a session in one transaction.

    Attributes:
        handle: the session.
        changes: what has changed in its state.
        facts, config: its description and its ConfigProto, if it is new; else None.
        graphs: (version, bytes) of its graph and of extensions that are new.
        answers: requests with keys that have begun or ended since the last write.
        withdrawn: (client, name) of requests with keys that were not carried out, though it was written that they had
            begun.
    """

    handle: str
    changes: SessionChanges
    facts: SessionFacts | None = None
    config: bytes = b""
    graphs: Sequence[tuple[int, bytes]] = ()
    answers: Sequence[KeyedAnswer] = ()
    withdrawn: Sequence[tuple[str, bytes]] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.facts or self.graphs or self.answers or self.withdrawn)


@dataclass(slots=True)
class StoredSession:
    """A session as a store has it.

    Attributes:
        facts, config: as of `SessionWrite`.
        graphs: its graph and its extensions, as bytes.
        records: its resources.
        kept: its kept tensors by handle, oldest first.
        next_tensor: number of its next kept tensor.
    """

    facts: SessionFacts
    config: bytes
    graphs: Sequence[bytes]
    records: Sequence[ResourceRecord]
    kept: Mapping[str, Any] = field(default_factory=dict)
    next_tensor: int = 0

    @property
    def size(self) -> int:
        """Bytes of its graphs."""
        return sum(map(len, self.graphs))
