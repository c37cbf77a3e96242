"""Measures the lag of an event loop: how long everything that waits for the loop has to wait."""

from __future__ import annotations

import asyncio

from aexec_server.watching.metrics import Histogram

__all__ = ["watch_lag"]

_EVERY_SECONDS = 0.25
# Less often in session hosts, of which hundreds may be idle.
_EVERY_SECONDS_IN_HOSTS = 1.0


async def watch_lag(seconds: Histogram, *, in_host: bool) -> None:
    """Sleep in a loop, and observe how many seconds later than due each sleep ends.

    Args:
        in_host: True in a session host.
    """
    loop = asyncio.get_running_loop()
    every = _EVERY_SECONDS_IN_HOSTS if in_host else _EVERY_SECONDS
    while True:
        due = loop.time() + every
        await asyncio.sleep(every)
        seconds.observe(max(0.0, loop.time() - due))
