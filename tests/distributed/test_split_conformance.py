"""Conformance cases give the same when their nodes are scattered over the tasks of a cluster as in one process.

Every node asks for a task that is drawn by its name, with three tasks in memory.  Here a sample of all families runs
each time, and 200 of them with `--soak`.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import aexec
from aexec.distributed.memory_engine import MemoryCluster
from aexec.distributed.opening_cluster_session import OpeningClusterSession
from aexec.runtime.session import Session
from tests.conformance import runner
from tests.conformance.test_conformance import outcome
from tests.conformance.test_devices import OTHER, scattered
from tests.conformance.test_passes import complete_cases

TASKS = [f"/job:worker/task:{number}" for number in range(3)]
NOT_SPLIT = {
    **OTHER,
    "train.moving_average.sgd.resource": "an Identity of a ref variable is its memory, seen later, in one process only",
    "variables_resource.dtype_mismatch": "two handles of one name on two tasks are two variables",
}
_names = itertools.count()


class OnThreeTasks(OpeningClusterSession):
    """A session on a cluster of its own, which goes with it."""

    def __init__(self, graph: aexec.Graph, config: aexec.SessionConfig) -> None:
        self.cluster = f"conformance-{next(_names)}"
        super().__init__(graph, f"memory://{self.cluster}", config)

    async def _open(self) -> Session:
        cluster = MemoryCluster(self.cluster, len(TASKS), lease=20.0)
        try:
            session = await super()._open()
        except BaseException:
            await cluster.__aexit__()
            raise
        close = session.close

        async def close_both(containers: Any = ()) -> None:
            await close(containers)
            for worker in cluster.workers.values():
                left = [open_one.describe() for open_one in worker.sessions.values()]
                assert not left, left
            await cluster.__aexit__()

        session.close = close_both  # type: ignore[method-assign]
        return session


@pytest.fixture
def three_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    scatter(monkeypatch, OnThreeTasks)


def scatter(monkeypatch: pytest.MonkeyPatch, make_session: Any) -> None:
    """Have cases run in sessions that this makes, their nodes scattered over three tasks."""

    class Config(aexec.SessionConfig):
        def __post_init__(self) -> None:
            object.__setattr__(self, "allow_soft_placement", True)
            object.__setattr__(self, "graph_passes", ())

    class Scattered(aexec.Graph):
        @classmethod
        def from_bytes(cls, data: bytes) -> aexec.Graph:
            return scattered(data, 0, TASKS)

    monkeypatch.setattr(runner.aexec, "SessionConfig", Config)
    monkeypatch.setattr(runner.aexec, "Graph", Scattered)
    monkeypatch.setattr(runner.aexec, "Session", make_session)


def check(number: int) -> None:
    found = [case for case in complete_cases() if case[1] not in NOT_SPLIT]
    failures = {}
    for family, name in found[:: max(1, len(found) // number)]:
        if (why := outcome(family, name)) is not None:
            failures[name] = why
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


def test_a_sample(three_tasks: None) -> None:
    check(40)


@pytest.mark.soak
def test_two_hundred(three_tasks: None) -> None:
    check(200)
