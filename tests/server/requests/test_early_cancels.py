"""Cancellations that wait for their runs: each is kept for as long as it was promised."""

from __future__ import annotations

import pytest
from aexec_server.clients.callers import anyone_at
from aexec_server.requests.early_cancels import REMEMBER_SECONDS, EarlyCancels

from aexec import errors


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_cancellation_is_taken_once() -> None:
    cancels = EarlyCancels(Clock())
    cancels.remember("a", "why")
    assert cancels.take("b") is None
    assert cancels.take("a") == "why"
    assert cancels.take("a") is None


def test_cancellation_holds_from_when_it_was_asked_for_last() -> None:
    clock = Clock()
    cancels = EarlyCancels(clock)
    cancels.remember("a", "first")
    clock.now = 50.0
    cancels.remember("a", "second")
    clock.now = 50.0 + REMEMBER_SECONDS
    assert cancels.take("a") == "second"
    cancels.remember("a", "third")
    clock.now += REMEMBER_SECONDS + 1
    assert cancels.take("a") is None


def test_cancellation_is_refused_where_too_many_wait_and_none_of_them_is_dropped() -> None:
    clock = Clock()
    cancels = EarlyCancels(clock)
    for number in range(896):
        cancels.remember(f"n{number}", "")
    with pytest.raises(errors.ResourceExhaustedError, match="896 of the 1024 cancellations that wait"):
        cancels.remember("one more", "")
    cancels.remember("of another", "theirs", anyone_at("192.0.2.7"))
    assert cancels.take("of another") == "theirs"
    cancels.remember("n5", "again")
    assert (cancels.take("n0"), cancels.take("n5")) == ("", "again")
    clock.now = REMEMBER_SECONDS + 1
    cancels.remember("later", "")
    assert len(cancels) == 1
