"""What a thread does for a step that is over ends between two pieces of its work."""

from __future__ import annotations

import pytest

from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread, check_wanted, finishing
from aexec.framework.waiting.intra_op import in_pieces
from aexec.framework.waiting.loop_budget import giving_way, let_others_run


def test_abandoned_call_raises_on_the_next_check() -> None:
    call = CallInThread()
    with call.running():
        check_wanted()
        call.abandoned = True
        with pytest.raises(AbandonedError):
            check_wanted()
        with pytest.raises(AbandonedError):
            let_others_run()
    check_wanted()


def test_pieces_are_not_begun_any_more() -> None:
    call, done = CallInThread(), []

    def piece(i: int) -> None:
        done.append(i)
        call.abandoned = i == 2

    with call.running(), pytest.raises(AbandonedError):
        in_pieces(10, piece)
    assert done == [0, 1, 2]


def test_items_are_given_until_then() -> None:
    call, given = CallInThread(), []

    def take() -> None:
        for item in giving_way(range(100), 500_000.0):  # two in a slice
            given.append(item)
            call.abandoned = item >= 4

    with call.running(), pytest.raises(AbandonedError):
        take()
    assert given in ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4])  # if it seems slow, it asks at each
    assert list(giving_way("abc", 1e9)) == ["a", "b", "c"]


def test_call_that_finishes_is_waited_for() -> None:
    call = CallInThread()
    with call.running():
        with finishing():
            assert not call.abandon()
            check_wanted()
        assert call.abandon()
        with pytest.raises(AbandonedError), finishing():
            raise AssertionError("it began to change what nobody waits for")


def test_finishing_without_a_thread_is_not_interrupted() -> None:
    with finishing():
        check_wanted()
