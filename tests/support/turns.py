"""Counts turns of the event loop during other work, to tell without a clock whether the work holds the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import aexec
from aexec import errors
from tests.support.waiting import until

__all__ = ["assert_gives_way", "polite_threads", "turns_counted", "turns_during"]


@contextmanager
def polite_threads() -> Iterator[None]:
    """Context manager: threads switch only when the running one releases the interpreter's lock, so a turn of the loop
    shows that it did.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600.0)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@contextmanager
def turns_counted() -> Iterator[Callable[[], int]]:
    """Context manager: gives a function that returns the number of turns of the loop since."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        yield lambda: turns
    finally:
        counting.cancel()


async def turns_during(work: Awaitable[Any]) -> tuple[int, Any]:
    """Return the number of turns of the loop until `work` is done, and its result."""
    with turns_counted() as turns:
        await asyncio.sleep(0)
        before = turns()
        result = await work
        return turns() - before, result


async def assert_gives_way(step: aexec.Step) -> None:
    """Check that an endless step lets the loop have its turns, and can be cancelled in one of them."""
    with turns_counted() as turns:
        await until(lambda: turns() >= 10)
        assert step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
