"""Attempts that wait: order, cancellation, undoing, and other lines going past."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from aexec import errors
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.resources.waiting_lines import NOT_YET, WaitingLines
from tests.support.collector import no_collector


class Store:
    """A number of things that may be taken."""

    def __init__(self, things: int = 0) -> None:
        self.things = things
        self.lines = WaitingLines()

    def give(self, count: int) -> None:
        with self.lines.lock:
            self.things += count
            self.lines.changed()

    async def take(self, count: int, manager: CancellationManager | None = None, line: str = "take") -> int:
        def attempt() -> Any:
            if count < 0:
                raise errors.InvalidArgumentError("negative")
            if count > self.things:
                return NOT_YET
            self.things -= count
            return count

        taken: int = await self.lines.join(line, attempt, manager, "taking was cancelled", self.give)
        return taken


async def _started(*coroutines: Any) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.ensure_future(c) for c in coroutines]
    await asyncio.sleep(0)
    return tasks


async def test_served_in_order_of_arrival() -> None:
    """A large attempt at the head blocks small ones of its line, and only those."""
    store = Store()
    large, small, other = await _started(store.take(3), store.take(1), store.take(2, line="other"))
    assert len(store.lines) == 3
    store.give(2)
    assert await other == 2
    assert not large.done()
    store.give(4)
    assert await asyncio.gather(large, small) == [3, 1]
    assert store.things == 0
    assert len(store.lines) == 0


async def test_cancelled_waiter_makes_room() -> None:
    """The head is cancelled: the next one is served, and nothing was taken for the first."""
    store, manager = Store(1), CancellationManager()
    large, small = await _started(store.take(3, manager), store.take(1))
    manager.start_cancel()
    with pytest.raises(errors.CancelledError, match="taking was cancelled"):
        await large
    assert await small == 1
    large, small = await _started(store.take(3), store.take(1))
    large.cancel()
    store.give(1)
    assert await small == 1
    with pytest.raises(errors.CancelledError):
        await store.take(1, manager)
    assert len(store.lines) == 0


async def test_value_delivered_to_a_cancelled_waiter_is_given_back() -> None:
    """A task cancelled after it was served, before its turn, has taken nothing."""
    store = Store()
    (task,) = await _started(store.take(2))
    store.give(2)
    assert store.things == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.things == 2


async def test_errors_end_an_attempt() -> None:
    """At once, and while it waits; whoever stands behind goes on."""
    store = Store()
    with pytest.raises(errors.InvalidArgumentError):
        await store.take(-1)
    first, bad, last = await _started(store.take(1), store.take(-1), store.take(1))
    store.give(2)
    assert await first == 1
    with pytest.raises(errors.InvalidArgumentError, match="negative"):
        await bad
    assert await last == 1


class _Value:
    """Something that can be referred to weakly."""


@pytest.mark.parametrize("by", ["manager", "task", "error"])
async def test_failed_wait_is_freed_without_the_garbage_collector(by: str) -> None:
    lines, manager, value = WaitingLines(), CancellationManager(), _Value()
    held, fails = weakref.ref(value), False

    async def wait_with(value: Any) -> None:
        def attempt() -> Any:
            if fails:
                raise errors.InvalidArgumentError(f"no {value}")
            return NOT_YET

        await lines.join("line", attempt, manager, "was cancelled")

    gc.collect()
    with no_collector():
        waiting = asyncio.ensure_future(wait_with(value))
        del value
        await asyncio.sleep(0)
        if by == "manager":
            manager.start_cancel()
        elif by == "task":
            waiting.cancel()
        else:
            fails = True
            lines.changed()
        await asyncio.wait([waiting])
        assert waiting.cancelled() or isinstance(waiting.exception(), errors.OpError)
        del waiting
        await asyncio.sleep(0)
        assert held() is None
