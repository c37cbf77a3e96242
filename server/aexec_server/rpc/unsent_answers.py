"""`UnsentAnswers`: bounds what clients ask for and do not read, in bytes and in time.

grpcio keeps an answer until its client has read it, and cannot drop one while its connection lives.  So:

* The bytes of such answers are limited, in total and for each client; a client that does not read cannot block the
  others' answers.
* Clients must take answers at `ServerConfig.min_rate`, as over HTTP.  An answer is late once it has waited for
  `slow_seconds`.  While a connection has late answers, its bytes are counted every `slow_seconds`; if they were fewer
  than the rate asks for, the connection is closed, with all its calls.

The connection of a trusted proxy carries other clients' calls, too, so it is not closed; nor is a front's.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from aexec.hosting import OnCancel, run_in_thread
from aexec_server.clients.client_shares import ClientShares
from aexec_server.core.server_state import Server
from aexec_server.rpc.client_socket import bytes_taken, cut_off, open_sockets
from aexec_server.rpc.method import Call
from aexec_server.rpc.peer import address_of

__all__ = ["UnsentAnswers"]

logger = logging.getLogger(__name__)

# Fewest bytes of an answer that counts; the number of smaller ones is bounded by the number of calls.
_LEAST = 2**14
# Limit for all answers: this part of the memory of sessions, or this many of the largest answers if memory has no
# limit.
_PART = 4
_ANSWERS = 4

_Address = tuple[str, int]


class _Waiting(NamedTuple):
    """An answer on its way: the client's address, its bytes, and since when by `time.monotonic`."""

    client: _Address
    size: int
    since: float


class UnsentAnswers:
    """The answers on their way.

    Args:
        closes: True to close the connections of clients that are too slow.

    Attributes:
        shares: the clients' shares.
    """

    def __init__(self, server: Server, *, closes: bool = True) -> None:
        config = server.config
        largest, limit = config.max_answer_bytes, server.sessions.memory.limit
        most = _ANSWERS * largest if limit is None else max(largest, limit // _PART)
        self.shares = ClientShares("rpc_answer_bytes", "bytes of answers that were not taken", most)
        server.metrics.add_shares(self.shares)
        self._server = server
        self._closes = closes
        self._proxies = server.access.proxies
        self._least_rate, self._patience = config.min_rate, config.slow_seconds
        # In the order in which they began to wait.
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        # What clients with late answers had taken at the last look, in bytes; None where the system does not tell.
        self._taken: dict[_Address, int | None] = {}

    def sending(self, call: Call, size: int) -> Callable[[], None]:
        """Count an answer from now on; returns the function to call when it was sent or given up.

        Raises:
            ResourceExhaustedError: too many bytes are counted, in total or for this client.
        """
        counted = size > _LEAST
        if counted:
            self.shares.take(call.caller, size)
        number = next(self._numbers)
        self._waiting[number] = _Waiting(address_of(call.peer), size, time.monotonic())
        if self._timer is None and self._closes:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._begin_look)

        def ended() -> None:
            del self._waiting[number]
            if counted:
                self.shares.give_back(call.caller.client, size)

        return ended

    def close(self) -> None:
        """Look at no connections any more."""
        self._closes = False
        if self._timer is not None:
            self._timer.cancel()

    def _begin_look(self) -> None:
        self._server.in_background(self._look_again(), "clients that do not take answers")

    async def _look_again(self) -> None:
        await self.look(time.monotonic())
        self._timer = None
        if self._waiting and self._closes:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._begin_look)

    async def look(self, now: float) -> None:
        """Close the connections of clients that have late answers and have taken too little since the last look."""
        late = self._late(now)
        if not late:
            self._taken.clear()
            return
        before = self._taken
        self._taken, closed = await run_in_thread(lambda: self._examine(late, before, now), on_cancel=OnCancel.ABANDON)
        for host, _ in closed:
            logger.warning("closed a gRPC connection from %s, which did not take its answers", host)

    def _late(self, now: float) -> dict[_Address, _Waiting]:
        """The answer that has waited longest, by client, of those that have waited too long."""
        late: dict[_Address, _Waiting] = {}
        for one in self._waiting.values():
            if now - one.since < self._patience:
                break
            if one.client[1] and not self._proxies.trusts(one.client[0]):
                late.setdefault(one.client, one)
        return late

    def _examine(
        self, late: dict[_Address, _Waiting], before: dict[_Address, int | None], now: float
    ) -> tuple[dict[_Address, int | None], list[_Address]]:
        """Return what clients have taken, and those whose connections were closed."""
        taken: dict[_Address, int | None] = {}
        closed = []
        with open_sockets(late) as sockets:
            for client, connected in sockets.items():
                has_taken, had_taken = bytes_taken(connected), before.get(client)
                if has_taken is None:
                    one = late[client]
                    slow = now - one.since > self._patience + one.size / self._least_rate
                else:
                    slow = had_taken is not None and has_taken - had_taken < self._least_rate * self._patience
                if slow:
                    cut_off(connected)
                    closed.append(client)
                else:
                    taken[client] = has_taken
        return taken, closed
