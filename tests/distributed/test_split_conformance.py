"""Conformance cases give the same when their nodes are scattered over the tasks of a cluster as in one process.

Every node asks for a task that is drawn by its name, with three tasks in memory; but those that keep something under a
name, or look for it, which is another one on another task.  Here a sample of all families runs
each time; with `--soak` hypothesis draws cases of each family, and where their nodes go, 200 in all.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import aexec
from aexec.distributed.memory_engine import MemoryCluster
from aexec.distributed.opening_cluster_session import OpeningClusterSession
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

    async def _open(self) -> None:
        cluster = MemoryCluster(self.cluster, len(TASKS), lease=20.0)
        try:
            await super()._open()
        except BaseException:
            await cluster.__aexit__()
            raise
        close = self.close

        async def close_both(containers: Any = ()) -> None:
            await close(containers)
            for worker in cluster.workers.values():
                left = [open_one.describe() for open_one in worker.sessions.values()]
                assert not left, left
            await cluster.__aexit__()

        self.close = close_both  # type: ignore[method-assign]


@pytest.fixture
def three_tasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    return scatter(monkeypatch, OnThreeTasks)


def scatter(monkeypatch: pytest.MonkeyPatch, make_session: Any) -> Any:
    """Have cases run in sessions that this makes, their nodes scattered over three tasks.

    Returns:
        the class of graphs, whose attribute `seed` says where the nodes go.
    """

    class Config(aexec.SessionConfig):
        def __post_init__(self) -> None:
            object.__setattr__(self, "allow_soft_placement", True)
            object.__setattr__(self, "graph_passes", ())

    class Scattered(aexec.Graph):
        seed = 0

        @classmethod
        def from_bytes(cls, data: bytes) -> aexec.Graph:
            graph = scattered(data, cls.seed, TASKS)
            for node in graph.nodes:
                if node.op_def.is_stateful:
                    node.device = ""
            return graph

    monkeypatch.setattr(runner.aexec, "SessionConfig", Config)
    monkeypatch.setattr(runner.aexec, "Graph", Scattered)
    monkeypatch.setattr(runner.aexec, "Session", make_session)
    return Scattered


def check(number: int) -> None:
    found = [case for case in complete_cases() if case[1] not in NOT_SPLIT]
    failures = {}
    for family, name in found[:: max(1, len(found) // number)]:
        if (why := outcome(family, name)) is not None:
            failures[name] = why
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


def test_sample(three_tasks: None) -> None:
    check(40)


def by_family() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for family, name in complete_cases():
        if name not in NOT_SPLIT:
            found.setdefault(family, []).append(name)
    return found


@pytest.mark.soak
@pytest.mark.parametrize("family", sorted(by_family()))
def test_two_hundred_cases_give_the_same_results_when_split(three_tasks: Any, family: str) -> None:
    """As many of each family as make 200."""
    names = by_family()

    @settings(
        max_examples=-(-200 // len(names)),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # a smaller number is no simpler place
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(st.sampled_from(names[family]), st.integers(0, 1 << 30))
    def draw(name: str, seed: int) -> None:
        three_tasks.seed = seed
        assert (why := outcome(family, name)) is None, f"{name}, its nodes placed by {seed}: {why}"

    draw()
