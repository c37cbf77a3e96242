"""Load on a server from outside: `closed` has so many clients that ask again when answered, `offered` a rate.

As a program it prints one JSON object, so that the load has a process of its own:

    python scripts/http_load.py PORT PATH BODY-FILE closed CLIENTS SECONDS
    python scripts/http_load.py PORT PATH BODY-FILE offered RATE SECONDS

PATH may be several, with commas between them, which connections take in turn.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

__all__ = ["LOST", "Load", "closed", "measured", "offered"]

# Stands for a status if the connection was closed instead.
LOST = 0

# Answers that come later than this after the last request are not waited for.  Seconds.
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """Measurements of the clients.

    Attributes:
        seconds: from the first request to the last answer.
        statuses: status → number of answers.
        accepted, refused: percentiles 50, 99 and 100 of the latency, in seconds, of answers with status 200 and with
            status 429; empty if there were none.
    """

    seconds: float
    statuses: dict[str, int]
    accepted: tuple[float, ...]
    refused: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Number of accepted requests per second."""
        return self.statuses.get("200", 0) / self.seconds


class _Connection(asyncio.Protocol):
    """Sends requests, and calls `answered(self, status, seconds)` for each answer."""

    def __init__(self, request: bytes, answered: Callable[[_Connection, int, float], None]) -> None:
        self._request = request
        self._answered = answered
        self._data = b""
        self._waits = False
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, began: float) -> None:
        self.began = began
        self._data = b""
        self._waits = True
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if end:
            lower = head.lower()
            at = lower.index(b"\ncontent-length:") + 16
            if len(body) >= int(lower[at:].partition(b"\r")[0]):
                self._waits = False
                self._answered(self, int(head[9:12]), time.perf_counter() - self.began)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waits:
            self._waits = False
            self._answered(self, LOST, time.perf_counter() - self.began)


class _Tally:
    """Counts the answers."""

    def __init__(self, port: int, paths: str, body: bytes) -> None:
        requests = []
        for path in paths.split(","):
            start = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            requests.append(f"{start}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self._requests = itertools.cycle(requests)
        self._port = port
        self.seconds: dict[int, list[float]] = {}
        self.under_way = 0

    async def connection(self, answered: Callable[[_Connection, int, float], None]) -> _Connection:
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(
            lambda: _Connection(next(self._requests), answered), "127.0.0.1", self._port
        )
        return made[1]

    def note(self, status: int, seconds: float) -> None:
        self.under_way -= 1
        self.seconds.setdefault(status, []).append(seconds)

    async def ended(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            while self.under_way:
                await asyncio.sleep(0.001)

    def load(self, began: float) -> Load:
        counts = Counter({str(status): len(seconds) for status, seconds in self.seconds.items()})
        return Load(
            time.perf_counter() - began, dict(counts), *(_percentiles(self.seconds.get(s, [])) for s in (200, 429))
        )


def _percentiles(seconds: list[float]) -> tuple[float, ...]:
    return tuple(float(np.percentile(seconds, p)) for p in (50, 99, 100)) if seconds else ()


async def closed(port: int, path: str, body: bytes, clients: int, seconds: float) -> Load:
    """Send load with clients that send the next request as soon as they are answered."""
    tally = _Tally(port, path, body)
    began = time.perf_counter()
    end = began + seconds

    def answered(connection: _Connection, status: int, taken: float) -> None:
        tally.note(status, taken)
        now = time.perf_counter()
        if now < end and status != LOST:
            tally.under_way += 1
            connection.ask(now)

    connections = [await tally.connection(answered) for _ in range(clients)]
    began = time.perf_counter()
    end = began + seconds
    for connection in connections:
        tally.under_way += 1
        connection.ask(time.perf_counter())
    await tally.ended()
    for connection in connections:
        connection.transport.close()
    return tally.load(began)


async def offered(port: int, path: str, body: bytes, rate: float, seconds: float) -> Load:
    """Send requests at a fixed rate, however fast they are answered.

    The latency of a request that waits for a connection counts from when it was due.
    """
    tally = _Tally(port, path, body)
    free: list[_Connection] = []

    def answered(connection: _Connection, status: int, taken: float) -> None:
        tally.note(status, taken)
        if status != LOST:
            free.append(connection)

    free += [await tally.connection(answered) for _ in range(64)]
    began = time.perf_counter()
    asked = 0
    total = round(rate * seconds)
    while asked < total:
        due = min(total, int((time.perf_counter() - began) * rate) + 1)
        while asked < due:
            tally.under_way += 1
            when = began + asked / rate
            asked += 1
            connection = free.pop() if free else await tally.connection(answered)
            connection.ask(when)
        await asyncio.sleep(max(0.0, began + asked / rate - time.perf_counter()))
    await tally.ended()
    for connection in free:
        connection.transport.close()
    return tally.load(began)


async def measured(port: int, path: str, body_file: Path, kind: str, amount: float, seconds: float) -> Load:
    """Run `closed` or `offered` in a process of its own."""
    command = [sys.executable, __file__, str(port), path, str(body_file), kind, str(amount), str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit status {process.returncode}")
    return Load(**json.loads(output))


async def _main(port: str, path: str, body_file: str, kind: str, amount: str, seconds: str) -> None:
    body = Path(body_file).read_bytes()
    if kind == "closed":
        load = await closed(int(port), path, body, int(float(amount)), float(seconds))
    else:
        load = await offered(int(port), path, body, float(amount), float(seconds))
    print(
        json.dumps(
            {"seconds": load.seconds, "statuses": load.statuses, "accepted": load.accepted, "refused": load.refused}
        )
    )


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main(*sys.argv[1:]))
