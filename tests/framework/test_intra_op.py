"""Pieces of a kernel's work, on its own thread and on helpers that are free."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from aexec.framework.intra_op import HelperThreads, in_pieces, use_helpers


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


def test_a_kernel_has_the_help_of_another_thread(helpers: HelperThreads) -> None:
    both = threading.Barrier(2, timeout=60)  # nobody gets past it alone
    threads = set()

    def piece(_: int) -> None:
        threads.add(threading.current_thread())
        both.wait()

    with helpers.for_kernel():
        in_pieces(2, piece)
    assert len(threads) == 2


def test_a_kernel_has_no_help_while_another_one_uses_the_cores(helpers: HelperThreads) -> None:
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
def test_what_a_piece_raises_is_raised_and_no_further_one_begins(helpers: HelperThreads, fails: str) -> None:
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


def test_the_event_loop_has_help_until_the_session_is_closed() -> None:
    helpers, both, threads = HelperThreads(2), threading.Barrier(2, timeout=60), set()
    use_helpers(helpers)
    in_pieces(2, lambda _: both.wait())
    for thread in helpers.close():
        thread.join()
    in_pieces(10, lambda _: threads.add(threading.current_thread()))
    use_helpers(None)
    assert threads == {threading.current_thread()}


def test_a_helper_does_something_first() -> None:
    begun: list[str] = []
    helpers, both = HelperThreads(2, lambda: begun.append("begun")), threading.Barrier(2, timeout=60)
    with helpers.for_kernel():
        in_pieces(2, lambda _: both.wait())
        in_pieces(2, lambda _: both.wait())
    for thread in helpers.close():
        thread.join()
    assert begun == ["begun"]


def test_a_helper_that_has_not_begun_is_not_waited_for() -> None:
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


def test_what_a_piece_raised_is_kept_by_nobody(helpers: HelperThreads) -> None:
    class Large:
        pass

    def fails(_: int) -> None:
        held = Large()
        kept.append(weakref.ref(held))
        raise KeyError

    kept: list[weakref.ref[Large]] = []
    gc.disable()
    try:
        with helpers.for_kernel():
            with suppress(KeyError):
                in_pieces(2, fails)
            # The helper that fails is the last to let go of it: it has, once it helps again.
            both = threading.Barrier(2, timeout=60)
            in_pieces(2, lambda _: both.wait())
        assert [ref() for ref in kept] == [None] * len(kept)
    finally:
        gc.enable()
