"""The lock that an event loop never waits for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aexec.framework.waiting.inline_call import PostponedError
from aexec.framework.waiting.postponing_lock import PostponingLock


async def test_loop_is_told_when_it_is_free() -> None:
    """On a loop a taken lock postpones the call, and calls back once it is free."""
    lock = PostponingLock()
    calls: list[str] = []
    with lock:
        with pytest.raises(PostponedError) as caught, lock:
            raise AssertionError("entered twice")
        caught.value.when_ready(lambda: calls.append("ready"))
        assert not calls
    assert calls == ["ready"]
    caught.value.when_ready(lambda: calls.append("at once"))
    assert calls == ["ready", "at once"]
    with lock:
        pass


async def test_loop_that_has_closed_does_not_keep_others_waiting() -> None:
    lock, other = PostponingLock(), asyncio.new_event_loop()
    calls: list[str] = []
    with lock:
        for callback in (lambda: other.call_soon_threadsafe(print), lambda: calls.append("ready")):
            with pytest.raises(PostponedError) as caught, lock:
                raise AssertionError("entered twice")
            caught.value.when_ready(callback)
        other.close()
    assert calls == ["ready"]


def test_threads_wait() -> None:
    """Increments under the lock are not lost."""
    lock, count = PostponingLock(), 0

    def add() -> None:
        nonlocal count
        for _ in range(1000):
            with lock:
                count += 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 4000
