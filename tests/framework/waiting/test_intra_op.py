"""Pieces of a kernel's work, on its own thread and on helpers that are free."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from aexec.framework.waiting import intra_op
from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread, check_wanted
from aexec.framework.waiting.intra_op import HelperThreads, at_once, in_pieces, use_helpers
from tests.support.collector import no_collector


@pytest.fixture
def helpers() -> Iterator[HelperThreads]:
    helpers = HelperThreads(2)
    yield helpers
    for thread in helpers.close():
        thread.join()


def test_outside_kernels_pieces_are_done_in_order() -> None:
    done: list[int] = []
    in_pieces(5, done.append)
    assert done == [0, 1, 2, 3, 4]


def test_each_piece_is_done_once(helpers: HelperThreads) -> None:
    done: list[int] = []
    with helpers.for_kernel():
        in_pieces(1000, done.append)
    assert sorted(done) == list(range(1000))


def test_pieces_at_once_are_bounded_by_the_threads(helpers: HelperThreads) -> None:
    assert at_once(5) == 1
    with helpers.for_kernel():
        assert [at_once(pieces) for pieces in (0, 1, 2, 50)] == [1, 1, 2, helpers.threads]


def test_kernel_has_the_help_of_another_thread(helpers: HelperThreads) -> None:
    both = threading.Barrier(2, timeout=60)  # nobody gets past it alone
    threads = set()

    def piece(_: int) -> None:
        threads.add(threading.current_thread())
        both.wait()

    with helpers.for_kernel():
        in_pieces(2, piece)
    assert len(threads) == 2


def test_helpers_of_an_abandoned_call_end_within_their_piece(helpers: HelperThreads) -> None:
    both, call = threading.Barrier(2, timeout=60), CallInThread()
    ended: list[threading.Thread] = []

    def piece(_: int) -> None:
        both.wait()
        call.abandon()
        both.wait()
        try:
            check_wanted()
        except AbandonedError:
            ended.append(threading.current_thread())
            raise

    with helpers.for_kernel(), call.running(), pytest.raises(AbandonedError):
        in_pieces(2, piece)
    assert len(set(ended)) == 2
    both.reset()
    with helpers.for_kernel():
        in_pieces(2, lambda _: (both.wait(), check_wanted()))  # the next call of these threads is none of that one's


def test_kernel_has_no_help_while_another_one_uses_the_cores(helpers: HelperThreads) -> None:
    threads = set()
    others_turn, ours = threading.Event(), threading.Event()

    def other() -> None:
        with helpers.for_kernel():
            ours.set()
            assert others_turn.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert ours.wait(60)
    with helpers.for_kernel():
        in_pieces(50, lambda _: threads.add(threading.current_thread()))
    others_turn.set()
    thread.join()
    assert threads == {threading.current_thread()}


def test_pieces_of_pieces(helpers: HelperThreads) -> None:
    done: list[tuple[int, int]] = []
    with helpers.for_kernel():
        in_pieces(8, lambda i: in_pieces(8, lambda j: done.append((i, j))))
    assert sorted(done) == [(i, j) for i in range(8) for j in range(8)]


@pytest.mark.parametrize("fails", ["helper", "own thread"])
def test_exception_of_a_piece_is_raised_and_stops_the_rest(helpers: HelperThreads, fails: str) -> None:
    both = threading.Barrier(2, timeout=60)
    own, done = threading.current_thread(), []

    def piece(i: int) -> None:
        done.append(i)
        if i < 2:
            both.wait()
            if (threading.current_thread() is own) == (fails == "own thread"):
                raise KeyError(i)

    with helpers.for_kernel():
        with pytest.raises(KeyError):
            in_pieces(10_000_000, piece)
        # Afterwards there is help again.
        in_pieces(2, lambda _: both.wait())
    assert len(done) < 10_000_000


def test_event_loop_has_help_until_the_session_is_closed() -> None:
    helpers, both, threads = HelperThreads(2), threading.Barrier(2, timeout=60), set()
    use_helpers(helpers)
    in_pieces(2, lambda _: both.wait())
    for thread in helpers.close():
        thread.join()
    in_pieces(10, lambda _: threads.add(threading.current_thread()))
    use_helpers(None)
    assert threads == {threading.current_thread()}


def test_helper_does_something_first() -> None:
    begun: list[str] = []
    helpers, both = HelperThreads(2, lambda: begun.append("begun")), threading.Barrier(2, timeout=60)
    with helpers.for_kernel():
        in_pieces(2, lambda _: both.wait())
        in_pieces(2, lambda _: both.wait())
    for thread in helpers.close():
        thread.join()
    assert begun == ["begun"]


def test_helper_that_has_not_begun_is_not_waited_for() -> None:
    begins, both = threading.Event(), threading.Barrier(2, timeout=60)

    def begin() -> None:
        assert begins.wait(60)

    slow = HelperThreads(2, begin)
    threads: list[threading.Thread] = []
    with slow.for_kernel():
        for _ in range(3):  # it is asked again while it is still to hear of the first time
            in_pieces(4, lambda _: threads.append(threading.current_thread()))
        begins.set()
        in_pieces(2, lambda _: both.wait())
    assert set(threads) == {threading.current_thread()}
    assert len(threads) == 12
    for thread in slow.close():
        thread.join()


def test_all_sessions_share_a_number_of_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has fewer while the first keeps its own, and as many when those that nobody asks have ended."""
    monkeypatch.setattr(intra_op, "_MOST_HELPERS", 4)
    monkeypatch.setattr(intra_op, "_helper_count", intra_op._HelperCount())
    first, second = HelperThreads(64), HelperThreads(64)
    assert helpers_of(first, 3) == 2
    assert helpers_of(second, 2) == 1
    for thread in first.close():
        thread.join()
    assert helpers_of(second, 3) == 2
    for thread in second.close():
        thread.join()


def helpers_of(helpers: HelperThreads, together: int) -> int:
    """How many help with what needs so many threads at once."""
    all_there, threads = threading.Barrier(together, timeout=60), set()

    def piece(i: int) -> None:
        threads.add(threading.current_thread())
        if i < together:
            all_there.wait()

    with helpers.for_kernel():
        in_pieces(100, piece)
    return len(threads) - 1


def test_helper_that_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch, helpers: HelperThreads) -> None:
    monkeypatch.setattr(intra_op, "_IDLE_SECONDS", 0.01)
    threads: list[threading.Thread] = []
    both = threading.Barrier(2, timeout=60)

    def piece(_: int) -> None:
        threads.append(threading.current_thread())
        both.wait()

    with helpers.for_kernel():
        for _ in range(2):
            in_pieces(2, piece)
            threads.remove(threading.current_thread())
            threads.pop().join(60)
    assert not helpers.close()


def test_threads_end_with_their_owner() -> None:
    helpers, both, threads = HelperThreads(2), threading.Barrier(2, timeout=60), []

    def piece(_: int) -> None:
        threads.append(threading.current_thread())
        both.wait()

    with helpers.for_kernel():
        in_pieces(2, piece)
    del helpers
    gc.collect()
    threads.remove(threading.current_thread())
    threads[0].join(60)
    assert not threads[0].is_alive()


def test_exception_of_a_piece_is_not_kept(helpers: HelperThreads) -> None:
    class Large:
        pass

    def fails(_: int) -> None:
        held = Large()
        kept.append(weakref.ref(held))
        raise KeyError

    kept: list[weakref.ref[Large]] = []
    with no_collector():
        with helpers.for_kernel():
            with suppress(KeyError):
                in_pieces(2, fails)
            # The helper that fails is the last to let go of it: it has, once it helps again.
            both = threading.Barrier(2, timeout=60)
            in_pieces(2, lambda _: both.wait())
        assert [ref() for ref in kept] == [None] * len(kept)
