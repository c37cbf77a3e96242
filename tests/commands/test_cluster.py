"""`aexec cluster status`: what it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aexec import cli
from aexec.distributed import opening_cluster_session
from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.memory_engine import MemoryCluster


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is connected to is a cluster in memory, which lives as long as the connection."""
    connect = opening_cluster_session.connect_to_cluster

    async def connected(target: str) -> ClusterConnection:
        cluster = MemoryCluster("status", 2, lease=60)
        connection = await connect("memory://status")
        session: dict[str, Any] = {"task": "/job:worker/replica:0/task:0", "client": "c", "graphs": 2, "resources": 3}
        steps = [{"step": 1, "seconds": 0.25}, {"step": 2, "seconds": 1.5}]

        class Fake:
            client = "c"

            def describe(self) -> dict[str, Any]:
                return {**session, "steps": steps}

            async def close(self) -> None:
                pass

        cluster.workers["worker-1"].sessions["abc"] = Fake()  # type: ignore[assignment]
        connection.also_close = cluster.__aexit__
        return connection

    monkeypatch.setattr(opening_cluster_session, "connect_to_cluster", connected)


@pytest.mark.usefixtures("two_workers")
def test_status_is_printed_as_lines_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", "status", "dask://there:1"]) == 0
    head, first, second, session = capsys.readouterr().out.splitlines()
    assert head == "2 workers, 1 sessions"
    assert first.startswith("worker-0: process ") and second.startswith("worker-1: process ")
    assert session == (
        "  session abc of c: /job:worker/replica:0/task:0, 2 steps, the longest for 1.5 s, 2 graphs, 3 resources"
    )
    assert cli.main(["cluster", "status", "dask://there:1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [len(worker["sessions"]) for worker in told["workers"]] == [0, 1]
    assert told["workers"][1]["sessions"][0]["steps"][1] == {"step": 2, "seconds": 1.5}


def test_unknown_cluster_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", "status", "nonsense://x"]) == 15
    assert "No cluster is known for target 'nonsense://x'" in capsys.readouterr().err
