"""The threads of a process, and the share of each session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from aexec.runtime.threads.shared_threads import SharedThreads, ThreadShare


class Gate:
    """Calls that announce themselves, in order, and wait until all are let go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun: list[str] = []
        self._said = threading.Condition()

    def call(self, name: str) -> Callable[[], str]:
        def wait() -> str:
            with self._said:
                self.begun.append(name)
                self._said.notify()
            assert self.open.wait(60)
            return name

        return wait

    def until(self, number: int) -> None:
        """Wait until this many calls have begun."""
        with self._said:
            assert self._said.wait_for(lambda: len(self.begun) >= number, 60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def threads(most: int, most_abandoned: int = 0) -> SharedThreads:
    return SharedThreads(lambda: None, most, most_abandoned)


def end(shared: SharedThreads, futures: list[Future[Any]], *shares: ThreadShare) -> None:
    for future in futures:
        if not future.cancelled():
            future.result(60)
    left: set[threading.Thread] = set()
    for share in shares:
        left |= shared.leave(share)
    for thread in left:
        thread.join(60)
        assert not thread.is_alive()


def test_session_has_as_many_threads_as_it_asks_for(gate: Gate) -> None:
    shared, share = threads(8), ThreadShare(2)
    futures = [shared.submit(share, gate.call(str(number))) for number in range(5)]
    gate.until(2)
    assert gate.begun == ["0", "1"] and share.running == 2
    gate.open.set()
    end(shared, futures, share)
    assert gate.begun == ["0", "1", "2", "3", "4"]


def test_session_that_asks_for_all_threads_has_half_and_others_begin_at_once(gate: Gate) -> None:
    shared = threads(8)
    shares = {name: ThreadShare(64) for name in "abcdef"}
    futures = [shared.submit(shares["a"], gate.call("a")) for _ in range(20)]
    for name in "bcdef":
        futures += [shared.submit(shares[name], gate.call(name)) for _ in range(20)]
    gate.until(8)
    running = {name: share.running for name, share in shares.items()}
    assert running == {"a": 4, "b": 2, "c": 1, "d": 1, "e": 0, "f": 0}
    gate.open.set()
    end(shared, futures, *shares.values())


def test_waiting_sessions_begin_in_turns() -> None:
    shared, first, second = threads(1), ThreadShare(1), ThreadShare(1)
    began, go_on, order = threading.Event(), threading.Event(), []

    def hold() -> None:
        began.set()
        assert go_on.wait(60)

    futures: list[Future[Any]] = [shared.submit(first, hold)]
    assert began.wait(60)
    futures += [shared.submit(first, lambda: order.append("first")) for _ in range(3)]
    futures += [shared.submit(second, lambda: order.append("second")) for _ in range(3)]
    go_on.set()
    end(shared, futures, first, second)
    assert order == ["first", "second"] * 3


def test_abandoned_call_keeps_the_place_of_its_own_session_only(gate: Gate) -> None:
    shared, first, second = threads(1, 1), ThreadShare(1), ThreadShare(1)
    futures = [shared.submit(first, gate.call("abandoned"))]
    gate.until(1)
    futures += [shared.submit(first, gate.call("first")), shared.submit(second, gate.call("second"))]
    shared.abandon(futures[0])
    gate.until(2)
    assert gate.begun == ["abandoned", "second"]
    shared.abandon(futures[2])  # more than may be: it keeps its place
    gate.open.set()
    end(shared, futures, first, second)
    assert gate.begun[2:] == ["first"]


def test_cancelled_waiting_call_is_passed_over(gate: Gate) -> None:
    shared, share = threads(4), ThreadShare(1)
    futures = [shared.submit(share, gate.call(str(number))) for number in range(4)]
    gate.until(1)
    assert futures[1].cancel() and futures[2].cancel() and not futures[0].cancel()
    gate.open.set()
    end(shared, futures, share)
    assert gate.begun == ["0", "3"]


def test_exception_goes_to_the_future_and_the_threads_go_on() -> None:
    shared, share = threads(1), ThreadShare(1)
    future = shared.submit(share, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        future.result(60)
    end(shared, [shared.submit(share, int)], share)
    end(shared, [shared.submit(share, int)], share)  # after all have left they begin anew
