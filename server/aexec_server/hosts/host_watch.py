"""`HostWatch`: looks at all session hosts twenty times a second, asks for their state, and kills broken ones.

It kills a host that is silent or exceeds its memory limit.  While all hosts together exceed theirs, it kills the
largest host of the client whose hosts have most.  It looks at idle hosts, and asks them, less often, so that hundreds
of them cost next to nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["LOOK_SECONDS", "HostWatch"]

LOOK_SECONDS = 0.05
# Idle hosts are looked at in one of this many looks.
_IDLE_LOOKS = 10
# A host counts as busy for this long after it was.
_BUSY_SECONDS = 1.0
_ASK_SECONDS = 0.2
_IDLE_ASK_SECONDS = 5.0
_IDLE_CONNECTIONS = 2
# The least interval between two questions to any hosts.
_LEAST_ASK_SECONDS = 0.008


class Watched(Protocol):
    """The part of a `SessionHost` that the watch uses."""

    client: str | None
    own_bytes: int
    busy_until: float
    asked_at: float
    serves: bool
    may_idle: bool
    told: bool

    @property
    def busy(self) -> bool: ...

    @property
    def silent_for(self) -> float: ...

    @property
    def most_bytes(self) -> int | None: ...

    def ask(self, memory_bytes: int | None) -> None: ...

    def measure(self) -> int: ...

    def close_idle(self, keep: int = 0) -> None: ...

    def kill(self, why: str) -> None: ...


H = TypeVar("H", bound=Watched)


class HostWatch(Generic[H]):
    """Watches session hosts, and kills those that are silent or have too much memory.

    Args:
        silence: seconds after which a host that does not answer is killed.
        most_bytes: the most memory of all hosts together, without what they share; None for no limit.
        allowance: returns the bytes of tensors that a host may have, for `SessionHost.ask`.
        clock: returns seconds.

    Attributes:
        own_bytes: the memory of all hosts together, approximately.
    """

    def __init__(
        self,
        silence: float,
        most_bytes: int | None,
        allowance: Callable[[H], int | None],
        clock: Callable[[], float],
    ) -> None:
        self.own_bytes = 0
        self._silence = silence
        self._most_bytes = most_bytes
        self._allowance = allowance
        self._clock = clock
        self._looks = 0
        self._ask_seconds = _ASK_SECONDS

    async def look(self, hosts: Sequence[H]) -> None:
        """Look at the hosts once."""
        now = self._clock()
        self._looks += 1
        looked_at = [host for number, host in enumerate(hosts) if self._is_due(host, number, now)]
        self._ask_seconds = max(_ASK_SECONDS, len(looked_at) * _LEAST_ASK_SECONDS)
        for host in looked_at:
            _check_memory(host)
            self._ask(host, now)
        self._check_all(hosts)
        await self._end_silent(looked_at)

    def _is_due(self, host: H, number: int, now: float) -> bool:
        if host.busy or not host.serves:
            host.busy_until = now + _BUSY_SECONDS
        return now < host.busy_until or (self._looks + number) % _IDLE_LOOKS == 0

    def _ask(self, host: H, now: float) -> None:
        busy = now < host.busy_until
        if now - host.asked_at >= (self._ask_seconds if busy or not host.may_idle else _IDLE_ASK_SECONDS):
            host.ask(self._allowance(host))
        if not busy:
            host.close_idle(_IDLE_CONNECTIONS)

    async def _end_silent(self, hosts: Sequence[H]) -> None:
        silent = [host for host in hosts if not host.told and host.silent_for > self._silence]
        if silent:
            await asyncio.sleep(0)  # if this loop was late, the answer may be here already
            await asyncio.sleep(0)
        for host in silent:
            if host.silent_for > self._silence:
                host.kill(f"was ended: it did not answer for {self._silence:g} s")

    def _check_all(self, hosts: Sequence[H]) -> None:
        self.own_bytes = sum(host.own_bytes for host in hosts)
        most = self._most_bytes
        if most is None or self.own_bytes <= most:
            return
        of_clients: Counter[str | None] = Counter()
        for host in hosts:
            of_clients[host.client] += host.own_bytes
        client, has = of_clients.most_common(1)[0]
        largest = max((host for host in hosts if host.client == client), key=lambda host: host.own_bytes)
        largest.kill(
            f"was ended: all hosts had {self.own_bytes >> 20} MB of memory, and may have {most >> 20}; "
            f"those of its client had most, {has >> 20}, and of these it had most"
        )


def _check_memory(host: Watched) -> None:
    has, most = host.measure(), host.most_bytes
    if most is not None and has > most:
        host.kill(f"was ended: it had {has >> 20} MB of memory, and may have {most >> 20}")
