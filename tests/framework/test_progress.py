"""Work says how far it is, to the innermost listener, and costs nothing without one."""

from __future__ import annotations

import pytest

from aexec.framework import progress
from tests.support.stand_ins.heard_progress import Heard


def test_work_is_heard_by_the_innermost_listener() -> None:
    outer, inner = Heard(), Heard()
    with progress.listening(outer):
        with progress.listening(inner), progress.of("one", lambda: 10, "things") as advance:
            advance(3)
            advance(7)
        with progress.of("two", lambda: 2, "B") as advance:
            advance(1)
    assert (inner.works, outer.works) == ([("one", 10, "things", [3, 7], "closed")], [("two", 2, "B", [1], "closed")])


def test_work_that_fails_ends_its_bar() -> None:
    heard = Heard()
    with pytest.raises(ValueError), progress.listening(heard), progress.of("one", lambda: 10, "things"):
        raise ValueError
    assert heard.works == [("one", 10, "things", [], "closed")]


def test_nothing_is_counted_without_a_listener() -> None:
    items = [1, 2, 3]
    with progress.of("one", lambda: 1 // 0, "things") as advance:
        assert progress.counted(items, advance) is items


def test_items_are_counted_together() -> None:
    heard = Heard()
    with progress.listening(heard), progress.of("one", lambda: 600, "things") as advance:
        assert list(progress.counted(range(600), advance)) == list(range(600))
    assert heard.works[0][3] == [256, 256, 88]
