"""Waiting for something without sleeping: the loop goes on until it holds; and that nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aexec.framework.device_contract.rendezvous import Rendezvous

__all__ = ["assert_empty", "until"]


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go on until something holds.  A turn may be too few: a busy machine uses slices up early."""
    while not condition():
        await asyncio.sleep(0)


def assert_empty(rendezvous: Iterable[Rendezvous]) -> None:
    """Nobody waits in them, and nothing was sent that nobody took."""
    for each in rendezvous:
        left = each.statistics()
        assert (left.values, left.receivers) == (0, 0)
