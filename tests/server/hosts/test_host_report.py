"""What a session host reports of itself to its front."""

from __future__ import annotations

from typing import Any

from aexec_server.hosts.host_report import HostReport

from tests.server.conftest import Api


async def test_counts_are_reported_when_they_are_asked_for(api: Api, small: str) -> None:
    """Reading all metrics takes longer than making a small session: not each time that one is made."""
    report = HostReport(api.server)
    report.changes(counted=True)
    await api.run(small, feeds={"x": [1.0]}, fetches=["y"])
    await api.call("DELETE", "/v1/models/none")
    told = report.changes(counted=False)
    assert told["status"]["runs"] == 1 and not {"metrics", "errors"} & told.keys()
    counted: dict[str, Any] = report.changes(counted=True)
    assert counted["metrics"]["aexec_runs"] == [[["", "OK"], 1]] and len(counted["errors"]) == 1
    assert not {"metrics", "errors", "status"} & report.changes(counted=True).keys()
