"""Turns of the event loop while something else goes on: whether that holds the loop, told without a clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["polite_threads", "turns_during"]


@contextmanager
def polite_threads() -> Iterator[None]:
    """Threads switch only when the running one lets go of the interpreter: a turn of the loop shows that it did."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600.0)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


async def turns_during(work: Awaitable[Any]) -> tuple[int, Any]:
    """Turns of the loop until `work` is done, and what that gives."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    before = turns
    try:
        result = await work
        return turns - before, result
    finally:
        counting.cancel()
