"""What is made while the collector is paused is not young any more when it goes on.

`test_garbage_collector.py` runs these in a process of their own: what all tests share stays frozen, and a collection of
it takes a second.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from aexec.framework.memory import garbage_collector
from aexec.framework.memory.garbage_collector import (
    collect_garbage,
    collect_if_due,
    collecting_when_asked,
    collector_paused,
    drop_large,
    freeze_heap,
    keep_large,
    unfreeze_heap,
)


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


def test_paused_collector_collects_nothing(looked_at: list[int]) -> None:
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


def test_objects_frozen_by_the_program_stay_frozen() -> None:
    gc.collect()
    freeze_heap()
    try:
        before = gc.get_freeze_count()
        with collector_paused():
            kept = [[] for _ in range(200_000)]
        assert gc.get_freeze_count() == pytest.approx(before + 200_000, abs=1000)
        assert kept
    finally:
        unfreeze_heap()
    assert gc.get_freeze_count() == 0


def test_large_objects_are_frozen_until_the_last_is_gone() -> None:
    first = [[] for _ in range(50_000)]
    keep_large()
    second = [[] for _ in range(50_000)]
    keep_large()
    assert gc.get_freeze_count() > 100_000
    drop_large()
    assert gc.get_freeze_count() > 100_000
    assert not collect_garbage()
    drop_large()
    assert gc.get_freeze_count() == 0
    assert collect_garbage()
    assert first and second


def test_garbage_that_was_frozen_with_what_is_large_is_freed_when_that_is_gone() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    gc.collect()
    freeze_heap()
    try:
        kept = [Cycle()]
        alive = weakref.ref(kept[0])
        keep_large()
        kept.clear()
        gc.collect()
        assert alive() is not None
        drop_large()
        assert collect_garbage() and alive() is None
        assert gc.get_freeze_count() > 1000  # the program's own
    finally:
        unfreeze_heap()


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A program that has called gc.freeze: how much it froze."""
    monkeypatch.setattr(garbage_collector, "_program_freezes", False)
    gc.collect()
    gc.freeze()
    yield gc.get_freeze_count()
    gc.unfreeze()


def test_frozen_objects_stay_frozen_when_many_are_made(frozen: int) -> None:
    with collector_paused():
        kept = [[] for _ in range(200_000)]
    assert gc.get_freeze_count() == pytest.approx(frozen, abs=100)
    assert gc.is_tracked(kept)


def test_frozen_objects_stay_frozen_when_large_ones_come_and_go(frozen: int) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    keep_large()
    second = Cycle()
    alive = weakref.ref(second)
    keep_large()
    del second
    drop_large()
    drop_large()
    assert gc.get_freeze_count() == pytest.approx(frozen, abs=100)
    assert collect_garbage() and alive() is None
    assert gc.get_freeze_count() == pytest.approx(frozen, abs=100)


def many_young_collections() -> None:
    for _ in range(garbage_collector._DUE_AFTER + 1):
        gc.collect(1)


def test_full_collections_wait_for_an_idle_moment(looked_at: list[int]) -> None:
    schedule = gc.get_threshold()
    with collecting_when_asked():
        gc.collect()
        looked_at.clear()
        collect_if_due(idle=True)
        assert 2 not in looked_at  # it is not due
        many_young_collections()
        kept = [[] for _ in range(300_000)]  # Python would have looked through all of these by now
        collect_if_due(idle=False)
        assert 2 not in looked_at
        collect_if_due(idle=True)
        assert looked_at.count(2) == 1
    assert gc.get_threshold() == schedule
    assert kept


def test_collection_is_not_postponed_for_ever(looked_at: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(garbage_collector, "monotonic", lambda: now)
    with collecting_when_asked():
        gc.collect()
        looked_at.clear()
        many_young_collections()
        collect_if_due(idle=False)
        now = garbage_collector._PATIENCE
        collect_if_due(idle=False)
        assert looked_at.count(2) == 1


def test_program_that_does_not_ask_has_pythons_schedule(looked_at: list[int]) -> None:
    gc.collect()
    looked_at.clear()
    many_young_collections()
    collect_if_due(idle=True)
    assert 2 not in looked_at


def test_frozen_objects_are_counted_once(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = gc.get_freeze_count
    counted: list[int] = []

    def counting() -> int:
        counted.append(count())
        return counted[-1]

    monkeypatch.setattr(gc, "get_freeze_count", counting)
    for _ in range(3):
        with collector_paused():
            kept = [[] for _ in range(50_000)]
        assert kept
        keep_large()
        drop_large()
    assert len(counted) == 1
