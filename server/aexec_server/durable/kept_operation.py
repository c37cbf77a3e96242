"""`keep_operation`: keeps the operation of a run with the state of its session, if that is durable."""

from __future__ import annotations

import time
from dataclasses import replace

from aexec_server.clients.callers import Caller
from aexec_server.durable.durable_session import DurableSession
from aexec_server.http.keyed_answer import OPERATIONS, KeyedAnswer, operation_name
from aexec_server.http.stored_answer import StoredAnswer

__all__ = ["UnkeptOperation", "keep_operation"]


class UnkeptOperation:
    """An operation that ends with its process; `_KeptOperation` does something in place of nothing."""

    async def begun(self) -> None:
        """Before a client is told of the operation: write that it is in flight.  Raises OpError."""

    async def end(self, answer: StoredAnswer) -> None:
        """Write its answer with the changes of its run.  Raises OpError."""

    def drop(self) -> None:
        """Note that it was not carried out."""

    def forget(self) -> None:
        """Note that nobody will ask for it."""


class _KeptOperation(UnkeptOperation):
    def __init__(self, durable: DurableSession, kept: KeyedAnswer) -> None:
        self._durable = durable
        self._kept = kept
        durable.begin_keyed(kept)

    async def begun(self) -> None:
        self._durable.touch()
        await self._durable.settle()

    async def end(self, answer: StoredAnswer) -> None:
        self._durable.end_keyed(replace(self._kept, answer=answer, ended=True))
        await self._durable.settle()

    def drop(self) -> None:
        self._durable.drop_keyed(self._kept)

    def forget(self) -> None:
        self._durable.forget_keyed(self._kept)
        self._durable.settle_later()


def keep_operation(durable: DurableSession | None, operation_id: str, caller: Caller) -> UnkeptOperation:
    """Begin to keep an operation.

    Args:
        durable: of the session that it runs; None if that is not durable: then nothing is kept.
        operation_id: its id.
        caller: who asked for it.
    """
    if durable is None:
        return UnkeptOperation()
    name = operation_name(operation_id)
    return _KeptOperation(durable, KeyedAnswer(OPERATIONS, name, caller.name.encode(), time.time()))
