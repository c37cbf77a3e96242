"""Every conformance case gives the same with each graph pass alone, and with none.

Together they run in `test_conformance.py`.  Here a sample runs each time, and with `--soak` all, a family a test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pytest

import aexec
from aexec.graph.passes import PASSES
from tests.conformance import cases, runner
from tests.conformance.test_conformance import NOT_YET, UNDETERMINED, outcome

ALONE = {"none": (), **{name: (name,) for name in PASSES}}
EVERY = 97


@pytest.fixture(params=ALONE.values(), ids=ALONE)
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Sessions of conformance cases use these passes."""

    class Config(aexec.SessionConfig):
        def __post_init__(self) -> None:
            object.__setattr__(self, "graph_passes", request.param)

    monkeypatch.setattr(runner.aexec, "SessionConfig", Config)
    return request.param


def complete_cases() -> Iterator[tuple[str, str]]:
    for family in cases.families():
        yield from ((family, name) for name in cases.names(family) if name not in {*NOT_YET, *UNDETERMINED})


def check(every: int, offset: int = 0, other: Collection[str] = ()) -> None:
    """Cases from `offset` on, one in `every` of them, pass but for the others."""
    check_cases(list(complete_cases())[offset::every], other)


def check_family(family: str, other: Collection[str] = ()) -> None:
    """All cases of a family pass but for the others."""
    check_cases([(of, name) for of, name in complete_cases() if of == family], other)


def check_cases(chosen: Iterable[tuple[str, str]], other: Collection[str]) -> None:
    failures = {
        name: why for family, name in chosen if name not in other and (why := outcome(family, name)) is not None
    }
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


def test_sample(passes: tuple[str, ...]) -> None:
    check(EVERY)


@pytest.mark.soak
@pytest.mark.parametrize("family", cases.families())
def test_all(passes: tuple[str, ...], family: str) -> None:
    check_family(family)


def test_fixture_sets_the_passes(passes: tuple[str, ...]) -> None:
    assert runner.aexec.SessionConfig(check_feed_shapes=False).graph_passes == passes
