"""`KeyedAnswer`: a request with an Idempotency-Key, or an operation, as a store keeps it; `AnswerKeeper` keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aexec_server.http.stored_answer import StoredAnswer

__all__ = ["OPERATIONS", "AnswerKeeper", "KeyedAnswer", "operation_name"]

# The client of an operation, which is nobody's request; its fingerprint is the name of the caller that asked for it.
OPERATIONS = ""


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """A request with an Idempotency-Key, or an operation.

    Attributes:
        client, name: whose key it is, and a digest of it; of an operation `OPERATIONS` and `operation_name`.
        fingerprint: a digest of the request.
        began: when it began, in seconds since 1970.
        answer: its answer; None while it is in flight, or if the answer is not kept.
        ended: True once it was carried out.
        secret: the secret in its answer; empty for none.
    """

    client: str
    name: bytes
    fingerprint: bytes
    began: float
    answer: StoredAnswer | None = None
    ended: bool = False
    secret: str = ""


def operation_name(operation_id: str) -> bytes:
    """The name under which an operation is kept."""
    return b"operation/" + operation_id.encode()


class AnswerKeeper(Protocol):
    """The part of a durable session that keeps answers to requests with keys (`durable/durable_session.py`)."""

    def begin_keyed(self, keyed: KeyedAnswer) -> None:
        """Note that a request is in flight."""

    def end_keyed(self, keyed: KeyedAnswer) -> None:
        """Note its answer, which is written with the next state."""

    def drop_keyed(self, keyed: KeyedAnswer) -> None:
        """Note that it was not carried out."""

    async def settle(self) -> None:
        """Return once what answers tell of is on the disk.  Raises OpError."""
