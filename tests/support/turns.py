"""Turns of the event loop while something else goes on: whether that holds the loop, told without a clock."""

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
    """Threads switch only when the running one lets go of the interpreter: a turn of the loop shows that it did."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600.0)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@contextmanager
def turns_counted() -> Iterator[Callable[[], int]]:
    """How many turns the loop has had since."""
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
    """Turns of the loop until `work` is done, and what that gives."""
    with turns_counted() as turns:
        await asyncio.sleep(0)
        before = turns()
        result = await work
        return turns() - before, result


async def assert_gives_way(step: aexec.Step) -> None:
    """A step that would take for ever lets the loop have its turns, and is cancelled in one of them."""
    with turns_counted() as turns:
        await until(lambda: turns() >= 10)
        assert step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
