"""Waiting for something without sleeping: the loop goes on until it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go on until something holds.  A turn may be too few: a busy machine uses slices up early."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)
