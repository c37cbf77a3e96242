"""How late an event loop is: whoever has to wait for it waits so long."""

from __future__ import annotations

import asyncio

from aexec_server.metrics import Histogram

__all__ = ["watch_lag"]

_EVERY_SECONDS = 0.25


async def watch_lag(seconds: Histogram) -> None:
    """Note for ever how much later than due the loop comes back here."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _EVERY_SECONDS
        await asyncio.sleep(_EVERY_SECONDS)
        seconds.observe(max(0.0, loop.time() - due))
