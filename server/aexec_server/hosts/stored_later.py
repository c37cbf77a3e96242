"""`StoredLater`: the upstream of a request for a session of a store that another server is about to give up."""

from __future__ import annotations

from collections.abc import Callable

from aexec import errors
from aexec_server.clients.callers import Caller
from aexec_server.durable.store_opening import StoreOpening
from aexec_server.hosts.relay import Upstream, UpstreamConnection

__all__ = ["StoredLater"]


class StoredLater(Upstream):
    """Chooses the upstream of one request when the store is open, if the session is in it; at once otherwise.

    Args:
        opening: opens the store.
        handle: the session.
        caller: who asks for it.
        choose: returns the upstream; raises the OpError that refuses the request.
    """

    def __init__(self, opening: StoreOpening, handle: str, caller: Caller, choose: Callable[[], Upstream]) -> None:
        super().__init__("")
        self._opening = opening
        self._handle = handle
        self._caller = caller
        self._choose = choose
        self._chosen: Upstream | None = None
        self._error: errors.OpError | None = None

    async def connect(self) -> UpstreamConnection:
        try:
            facts = await self._opening.find(self._handle)
            if facts is not None and self._caller.sees(facts.owner):
                await self._opening.wait()
            self._chosen = self._choose()
        except errors.OpError as error:
            self._error = error
            raise ConnectionRefusedError from None
        return self._chosen.idle_connection() or await self._chosen.connect()

    async def why_lost(self) -> errors.OpError:
        if self._error is not None:
            return self._error
        return await (super().why_lost() if self._chosen is None else self._chosen.why_lost())
