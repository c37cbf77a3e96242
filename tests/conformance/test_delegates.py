"""Every conformance case gives the same, within its own tolerance, with regions run by OpenVINO from the first run.

In `test_conformance.py` they are too small for a session to choose that.  Here a sample runs each time, and all with
`--soak`.
"""

from __future__ import annotations

import pytest

import aexec
from aexec.runtime.planning import delegated
from tests.conformance import runner
from tests.conformance.test_passes import check

pytest.importorskip("openvino")

EVERY = 331


@pytest.fixture(autouse=True)
def delegates(monkeypatch: pytest.MonkeyPatch) -> None:
    class Config(aexec.SessionConfig):
        def __post_init__(self) -> None:
            object.__setattr__(self, "delegates", ("openvino",))

    monkeypatch.setattr(runner.aexec, "SessionConfig", Config)
    monkeypatch.setattr(delegated, "MIN_NODES", 1)
    monkeypatch.setattr(delegated, "NAMED_HOPS", 0)


def test_sample() -> None:
    check(EVERY)


@pytest.mark.soak
def test_all() -> None:
    check(1)
