"""How late an event loop is: whoever has to wait for it waits so long."""

from __future__ import annotations

import asyncio

from aexec_server.watching.metrics import Histogram

__all__ = ["watch_lag"]

_EVERY_SECONDS = 0.25
# There may be hundreds of session hosts that do nothing else.
_EVERY_SECONDS_IN_HOSTS = 1.0


async def watch_lag(seconds: Histogram, *, in_host: bool) -> None:
    """Note for ever how much later than due the loop comes back here.

    Args:
        in_host: is this process a session host?
    """
    loop = asyncio.get_running_loop()
    every = _EVERY_SECONDS_IN_HOSTS if in_host else _EVERY_SECONDS
    while True:
        due = loop.time() + every
        await asyncio.sleep(every)
        seconds.observe(max(0.0, loop.time() - due))
