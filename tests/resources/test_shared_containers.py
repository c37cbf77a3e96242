"""Containers that several managers have in common: seen by all, gone with the last."""

from __future__ import annotations

import gc

import pytest

from aexec.framework import errors
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.resources.shared_containers import SharingResourceManager, shared_containers


class Thing:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_shared_ones_are_seen_by_all_and_others_are_not() -> None:
    one, two = SharingResourceManager(["s"]), SharingResourceManager(["s", "t"])
    thing, own = Thing(), Thing()
    one.create("s", "a", thing)
    one.create("o", "a", own)
    assert two.lookup("s", "a", Thing) is two.lookup_or_create("s", "a", Thing, Thing) is thing
    assert two.find("o", "a", Thing) is None
    with pytest.raises(errors.AlreadyExistsError):
        two.create("s", "a", Thing())
    assert [(info.container, info.name) for info in one.resources()] == [("o", "a"), ("s", "a")]
    assert one.of_type(Thing) == [("o", "a", own), ("s", "a", thing)] and two.of_type(Thing) == [("s", "a", thing)]
    assert one.containers == ["o", "s"]
    assert (one.statistics().containers, one.statistics().resources, two.statistics().resources) == (2, 2, 1)
    assert one.statistics().by_type == {one.resources()[0].type_name: 2}
    assert shared_containers() == {"s": 2, "t": 1}
    one.clear()
    assert (own.closed, thing.closed) == (1, 0)
    two.clear()
    assert thing.closed == 1
    assert shared_containers() == {}
    two.clear()  # a second time changes nothing
    assert two.resources() == []


def test_removing() -> None:
    one, two = SharingResourceManager(["s"]), SharingResourceManager(["s"])
    things = [Thing(), Thing(), Thing()]
    for name, thing in zip("abc", things, strict=True):
        one.create("s", name, thing)
    two.delete("s", "a", Thing)
    two.delete_handle(ResourceHandle(container="s", name="b"))
    assert one.find("s", "a", Thing) is one.find("s", "b", Thing) is None
    one.cleanup("s")
    assert [thing.closed for thing in things] == [1, 1, 1]
    with pytest.raises(errors.NotFoundError):
        two.lookup("s", "c", Thing)
    one.clear()
    two.clear()


def test_manager_that_is_dropped_leaves() -> None:
    one = SharingResourceManager(["s"])
    thing = Thing()
    one.create("s", "a", thing)
    del one
    gc.collect()
    assert thing.closed == 1
    assert shared_containers() == {}


def test_bad_names_take_no_part() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="invalid characters"):
        SharingResourceManager(["fine", "no way"])
    assert shared_containers() == {}
