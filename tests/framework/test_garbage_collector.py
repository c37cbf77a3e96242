"""What is made while the collector is paused is not young any more when it goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from aexec.framework.garbage_collector import collector_paused, freeze_heap, unfreeze_heap


@pytest.fixture
def looked_at() -> Iterator[list[int]]:
    """Generations that were collected."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_nothing_is_collected_meanwhile(looked_at: list[int]) -> None:
    with collector_paused():
        kept = [[] for _ in range(10_000)]
        with collector_paused():
            kept += [[] for _ in range(10_000)]
        assert not gc.isenabled()
        kept += [[] for _ in range(10_000)]
        meanwhile = len(looked_at)
    assert gc.isenabled()
    assert meanwhile == 0


def test_much_that_was_made_counts_as_old() -> None:
    with collector_paused():
        kept = [[] for _ in range(200_000)]
    assert len(gc.get_objects(0)) < 1000  # a collection of the young looks at no more
    assert gc.is_tracked(kept)
    assert gc.get_freeze_count() == 0


def test_cycles_among_it_are_collected_later() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    with collector_paused():
        kept = [[] for _ in range(200_000)]
        for _ in range(100):
            Cycle()
    assert gc.collect() >= 100
    assert len(kept) == 200_000


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.collect()
    freeze_heap()
    try:
        before = gc.get_freeze_count()
        with collector_paused():
            kept = [[] for _ in range(200_000)]
        assert gc.get_freeze_count() == pytest.approx(before, abs=1000)
        assert kept
    finally:
        unfreeze_heap()
