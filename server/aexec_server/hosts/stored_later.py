"""`StoredLater`: the upstream of a request that only the store can tell: of a session, or of an operation.

It waits until the store is open, if another server is about to give it up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aexec import errors
from aexec_server.clients.callers import Caller
from aexec_server.durable.store_opening import StoreOpening
from aexec_server.durable.stored_session import SessionFacts
from aexec_server.hosts.relay import Upstream, UpstreamConnection

__all__ = ["StoredLater"]


class StoredLater(Upstream):
    """Chooses the upstream of one request by what the store has.

    Args:
        opening: opens the store.
        find: returns the session that the request is for, or whose operation it is for; None if there is none.
        caller: who asks.
        choose: returns the upstream for the handle of a session, or for None; raises the OpError that refuses the
            request.
    """

    def __init__(
        self,
        opening: StoreOpening,
        find: Callable[[], Awaitable[SessionFacts | None]],
        caller: Caller,
        choose: Callable[[str | None], Upstream],
    ) -> None:
        super().__init__("")
        self._opening = opening
        self._find = find
        self._caller = caller
        self._choose = choose
        self._chosen: Upstream | None = None
        self._error: errors.OpError | None = None

    async def connect(self) -> UpstreamConnection:
        try:
            facts = await self._find()
            handle = None if facts is None or not self._caller.sees(facts.owner) else facts.handle
            if handle is not None:
                await self._opening.wait()
            self._chosen = self._choose(handle)
        except errors.OpError as error:
            self._error = error
            raise ConnectionRefusedError from None
        return self._chosen.idle_connection() or await self._chosen.connect()

    async def why_lost(self) -> errors.OpError:
        if self._error is not None:
            return self._error
        return await (super().why_lost() if self._chosen is None else self._chosen.why_lost())
